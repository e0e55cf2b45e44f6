"""Operators that watch an answer for repetition."""

from __future__ import annotations

from collections.abc import Callable

from reactivex import Observable, abc

from rx_sampler.config import LoopDetection
from rx_sampler.events import SamplingEvent
from rx_sampler.loop_detection import LoopDetector

__all__ = ["detect_loop"]


def detect_loop(
    policy: LoopDetection = LoopDetection(),  # noqa: B008  # frozen
) -> Callable[[Observable[SamplingEvent]], Observable[SamplingEvent]]:
    """The same events, until an answer repeats itself: then `DoomLoopSignals`, and the stream fails.

    With passages of four characters and `LoopDetection(min_repeats=4, min_chars=16)`:

        source       --a--b--b--b--b--b--b--|
        detect_loop  --a--b--b--b--(bD#)

    In: events of one request, or of several interleaved. A loop is seen at the latest a quarter of `min_chars` after
    it is complete; the event that shows it still passes, D follows it. A loop in any request ends the whole stream, so
    put the operator on each request's own stream where the others are to go on. An answer that ends before its loop is
    seen stands. `Retrying` and a new attempt start anew.

    Synchronous, cold as its source, and as each subscription has state of its own; forwards the scheduler. Dispose
    disposes the source, as does a loop, which closes the request's socket. Errors by `on_error`: the source's as they
    are, and `SamplingError(doom_loop_detected, code="client_repetition")`, retryable, without a partial response;
    `failures_as_events()` behind it makes that `Failed`. Cost: linear in the characters; memory: per request and text
    (channel, or arguments of a tool call) some `max(min_repeats * max_period_chars, 2 * min_chars)` characters.
    """

    def operator(source: Observable[SamplingEvent]) -> Observable[SamplingEvent]:
        def subscribe(
            observer: abc.ObserverBase[SamplingEvent], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            detector = LoopDetector(policy)
            feed, push = detector.feed, observer.on_next

            def on_next(event: SamplingEvent) -> None:
                out = feed(event)
                push(event)
                if detector.error is not None:
                    push(out[-1])
                    observer.on_error(detector.error)  # and that disposes the source

            return source.subscribe(on_next, observer.on_error, observer.on_completed, scheduler=scheduler)

        return Observable(subscribe)

    return operator
