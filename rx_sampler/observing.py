"""How a log, or metrics, looks on: what a sampler tells of each request, without being asked to wait for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Final, Protocol, cast

from .conversation import SamplingRequest
from .events import SamplingEvent

__all__ = ["RequestFacts", "RequestWatch", "SamplerObserver", "observer_from_environment"]

_SWITCHES: Final = ("RX_SAMPLER_LOG", "GROK_LOG_SAMPLING")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """A request as it was made. `request` holds what the user said, and in its `extra_headers` perhaps a credential."""

    request_id: str
    ts: float
    """Unix seconds on the request's clock, as in its events."""
    backend: str
    model: str
    base_url: str
    """Without user, password and query."""
    reasoning_effort: str | None = None
    request: SamplingRequest = field(repr=False)


class RequestWatch(Protocol):
    """Told of one request, on the thread of its events, before its subscribers are. It must not block.

    What it raises goes to the loop's exception handler, and it is told no more of that request.
    """

    def attempt_started(self, number: int, ts: float) -> None:
        """An attempt begins, counted from 1; before the first, the request may have queued."""
        ...

    def on_event(self, event: SamplingEvent) -> None:
        """Every event of the request, the terminal one last."""
        ...

    def dropped(self, ts: float) -> None:
        """The subscriber disposed of the request before its end: there is no terminal event."""
        ...


class SamplerObserver(Protocol):
    """Given to a `Sampler`; asked once per request."""

    def request_made(self, facts: RequestFacts) -> RequestWatch:
        """A request is made; it may still have to queue."""
        ...


def observer_from_environment(environ: Mapping[str, str]) -> SamplerObserver | None:
    """The sampling log, where the environment switches it on; None, and nothing imported, where it does not."""
    if not any(environ.get(name) for name in _SWITCHES):
        return None
    # By name and only now: the core does not know what stands around it.
    telemetry = import_module("rx_sampler.telemetry")
    return cast("SamplerObserver | None", telemetry.sampling_log_from_env(environ))
