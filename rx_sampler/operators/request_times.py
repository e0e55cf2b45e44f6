"""From when the times of a request count."""

from __future__ import annotations

from rx_sampler.events import Retrying, SamplingEvent, StreamStarted

__all__ = ["RequestTimes"]


class RequestTimes:
    """When a request was made, and when its present attempt began; made of its first event, which is to be noted too.

    A recording that was cut has no `StreamStarted`, or one without `submitted_at`: then its first event counts.
    """

    __slots__ = ("started_at", "submitted_at")

    def __init__(self, first: SamplingEvent) -> None:
        self.submitted_at = first.ts
        self.started_at: float | None = None

    def note(self, event: SamplingEvent) -> None:
        """Any event, though nothing is learnt from a second token."""
        if isinstance(event, StreamStarted):
            self.started_at = event.ts
            if event.submitted_at is not None:
                self.submitted_at = event.submitted_at
        elif isinstance(event, Retrying):
            self.started_at = None
        elif self.started_at is None:
            self.started_at = event.ts
