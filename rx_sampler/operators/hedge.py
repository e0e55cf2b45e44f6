"""A second request where the first is slow to answer."""

from __future__ import annotations

import math
from collections.abc import Callable

from reactivex import Observable, abc
from reactivex.disposable import Disposable

from rx_sampler.events import SamplingEvent
from rx_sampler.scheduling import request_scheduler

from .contest import Contest, RaceOutcome

__all__ = ["hedge"]


def hedge(
    after_s: float | Callable[[], float],
    other: Observable[SamplingEvent] | None = None,
    on_decided: Callable[[RaceOutcome], None] | None = None,
) -> Callable[[Observable[SamplingEvent]], Observable[SamplingEvent]]:
    """The events of whichever answers first: the source, or a second stream that begins if the source is slow.

    With `after_s=0.004`:

        source  -S-------------(Fa)-C|
        other       -S-(Fx)-C|
        hedge   -------(SFx)C|

    In: a stream of one request, such as `Sampler.stream` gives. Out: one of the two, as `race` does it. The second is
    `other`, or the source once more, which sends the request again under an id of its own. It begins when the first has
    no content `after_s` seconds after the subscription (say, the p95 of the time to first token; a function is asked at
    each subscription; `math.inf` is never), or at once when the first fails before its content. A failure `cancelled`
    or `invalid_request` begins nothing and passes. A request whose consumer pauses (`flow`) at that moment is not slow:
    it has another `after_s` from when the consumer goes on.

    `on_decided` gets the outcome once, before the events: with `started` 1 the second was not needed; `winner` is 1 if
    it won. Each second request is paid for: one in twenty with a p95.

    Cold; forwards the scheduler, on which its timer runs too (by default one on the running loop). The loser is
    disposed at the decision, which closes its socket. Dispose disposes both and the timer. Raises ValueError at call
    time for a negative `after_s`; by `on_error` come that of the function, RuntimeError without a running loop where
    one is needed, and the errors of `race`. Memory: what is held back, as in `race`.
    """
    if not callable(after_s):
        _checked(after_s)

    def operator(source: Observable[SamplingEvent]) -> Observable[SamplingEvent]:
        streams = (source, source if other is None else other)

        def subscribe(
            observer: abc.ObserverBase[SamplingEvent], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            wait_s = _checked(after_s() if callable(after_s) else after_s)
            timers = None if math.isinf(wait_s) else request_scheduler(scheduler)
            contest = Contest(streams, observer, scheduler, on_decided=on_decided)

            def arm() -> None:
                if timers is not None and not contest.alarm.is_disposed:
                    contest.alarm.disposable = timers.schedule_relative(wait_s, due)

            def due(_scheduler: abc.SchedulerBase, _state: object = None) -> None:
                demand = contest.demand
                if demand is None or demand.wants:
                    contest.start(1)
                else:
                    contest.alarm.disposable = Disposable(demand.on_release(arm))

            contest.start(1)
            arm()  # after the start: of two things at the same moment, the answer comes first
            return contest

        return Observable(subscribe)

    return operator


def _checked(after_s: float) -> float:
    if not after_s >= 0:
        raise ValueError(f"after_s is {after_s}; it counts seconds, 0 or more")
    return after_s
