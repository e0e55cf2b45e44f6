"""The rim: where a failure stops being an exception and becomes the last event."""

from __future__ import annotations

from collections.abc import Callable

from reactivex import Observable, abc

from .errors import SamplingError
from .events import Failed, SamplingEvent
from .metrics import LatencyMetrics
from .scheduling import clock_of

__all__ = ["failed_event", "failures_as_events"]


def failed_event(error: SamplingError, request_id: str, now: float) -> Failed:
    """The last event of a failed request; id, attempt and time are those of the attempt, if one was begun."""
    where = error.where
    return Failed(
        request_id=where.request_id if where else request_id,
        attempt=where.attempt if where else 1,
        ts=max(where.ts, now) if where else now,
        error=error.info,
        partial=error.partial,
        metrics=error.metrics or LatencyMetrics(),
        exception=error,
    )


def failures_as_events(
    *, request_id: str = "offline"
) -> Callable[[Observable[SamplingEvent]], Observable[SamplingEvent]]:
    """The same events; a `SamplingError` becomes a `Failed`, then the stream completes.

    Out: exactly one terminal event at the end. Synchronous, cold as its source; dispose disposes it. `Failed` carries
    the id, attempt and time of the attempt that failed; `request_id` and the subscription scheduler's time serve for
    failures that came before an attempt. Errors by `on_error`: anything that is no
    `SamplingError`, which is a bug.
    """

    def operator(source: Observable[SamplingEvent]) -> Observable[SamplingEvent]:
        def subscribe(
            observer: abc.ObserverBase[SamplingEvent], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            def on_error(error: Exception) -> None:
                if isinstance(error, SamplingError):
                    observer.on_next(failed_event(error, request_id, clock_of(scheduler)()))
                    observer.on_completed()
                else:
                    observer.on_error(error)

            return source.subscribe(observer.on_next, on_error, observer.on_completed, scheduler=scheduler)

        return Observable(subscribe)

    return operator
