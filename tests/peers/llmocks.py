"""llmock as the tests use it: where it is, and what it shall do next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from rx_sampler import SamplerConfig

from .streams import ONCE

if TYPE_CHECKING:
    from llmock.testing import LLMockServer

__all__ = ["config_of", "script"]


def config_of(mock: LLMockServer, backend: str, **fields: Any) -> SamplerConfig:
    base = mock.base_url("anthropic") + "/v1" if backend == "messages" else mock.base_url("openai")
    return SamplerConfig(backend=backend, base_url=base, model="toy", api_key=SecretStr("k"), retry=ONCE, **fields)


def script(mock: LLMockServer, *behaviors: dict[str, Any]) -> None:
    """Queue behaviours, given as its HTTP API takes them; each serves one request unless it says `times`."""
    from llmock.scenarios import behavior_from_dict

    mock.state.scenarios.add(*(behavior_from_dict(behavior) for behavior in behaviors))
