"""What the attempts of one request have in common: its clock, its numbers, and who may break it off."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace

from .demand import Gate
from .errors import ErrorStamp, SamplingError
from .metrics import LatencyMetrics
from .observing import RequestWatch

__all__ = ["Course"]


class Course:
    """The way of one request from submit to its end. Written by whoever joins the attempts, read by each attempt."""

    __slots__ = (
        "armed",
        "begun",
        "deadline_s",
        "fresh_connections",
        "gate",
        "lane",
        "number",
        "on_abort",
        "queued_s",
        "request_id",
        "strip_images",
        "submitted_at",
        "watch",
    )

    def __init__(
        self,
        request_id: str,
        submitted_at: float,
        *,
        deadline_s: float | None = None,
        lane: Hashable = None,
        watch: RequestWatch | None = None,
    ) -> None:
        self.request_id = request_id
        self.submitted_at = submitted_at
        """Unix seconds on the request's clock."""
        self.deadline_s = deadline_s
        """Counted from `submitted_at`."""
        self.lane = lane
        """Host and credential: whom a 429 concerns."""
        self.watch = watch
        self.gate = Gate()
        """Shut while the consumer wants no more."""
        self.number = 1
        """The attempt that runs, or comes next."""
        self.begun = 0
        """How many attempts have begun."""
        self.queued_s: float | None = None
        """From submit to the first attempt; None before it."""
        self.fresh_connections = False
        self.strip_images = False
        self.armed = True
        """Whether a doom loop fails the attempt, rather than being reported only."""
        self.on_abort: Callable[[SamplingError], None] | None = None
        """Ends the present phase (queue, wait, attempt) in an error, keeping what it has."""

    def begin_attempt(self, now: float) -> None:
        self.begun += 1
        if self.queued_s is None:
            self.queued_s = max(now - self.submitted_at, 0.0)
        if self.watch is not None:
            self.watch.attempt_started(self.number, now)

    def stamped(self, error: SamplingError, now: float) -> SamplingError:
        """The error with the place where it came, and what was measured by then, if an attempt did not say so."""
        if error.metrics is None:
            queued_s = now - self.submitted_at if self.queued_s is None else self.queued_s
            error.metrics = LatencyMetrics(queued_ms=queued_s * 1e3, attempts=self.begun)
        elif error.where is not None and error.where.attempt != self.number:  # of a source that counts no attempts
            error.metrics = replace(error.metrics, attempts=self.begun)
        if error.where is None or error.where.attempt != self.number:
            error.where = ErrorStamp(request_id=self.request_id, attempt=self.number, ts=now)
        return error

    def abort(self, error: SamplingError) -> None:
        """End the request in `error`, in whatever phase it is."""
        if self.on_abort is not None:
            self.on_abort(error)
