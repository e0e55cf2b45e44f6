"""Headers that only one vendor's servers understand, sent where somebody asks for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from .conversation import SamplingRequest
from .policies import Frozen

__all__ = ["GrokHeaders", "VendorHeaders"]


@runtime_checkable
class VendorHeaders(Protocol):
    """What `SamplerConfig.vendor_headers` takes."""

    def headers_for(self, request: SamplingRequest, model: str, request_id: str) -> Mapping[str, str]:
        """The headers of one attempt; `model` is the one that is asked. Whatever else sets a header wins over them."""
        ...


class GrokHeaders(Frozen):
    """xAI's `x-grok-*` headers, by which its servers tell whose request it is.

    Sent with each attempt: the request's `conversation_id` and id, the model, `session_id` and `agent_id`, each empty
    where it is not known; and the others where they are set.
    """

    session_id: str = ""
    agent_id: str = ""
    turn_idx: int | None = None
    deployment_id: str | None = None
    user_id: str | None = None
    client_identifier: str | None = None
    client_version: str | None = None

    def headers_for(self, request: SamplingRequest, model: str, request_id: str) -> Mapping[str, str]:
        """See `VendorHeaders.headers_for`."""
        always = {
            "x-grok-conv-id": request.conversation_id or "",
            "x-grok-req-id": request_id,
            "x-grok-model-override": model,
            "x-grok-session-id": self.session_id,
            "x-grok-agent-id": self.agent_id,
        }
        if_set = {
            "x-grok-turn-idx": None if self.turn_idx is None else str(self.turn_idx),
            "x-grok-deployment-id": self.deployment_id,
            "x-grok-user-id": self.user_id,
            "x-grok-client-identifier": self.client_identifier,
            "x-grok-client-version": self.client_version,
        }
        return always | {name: value for name, value in if_set.items() if value}
