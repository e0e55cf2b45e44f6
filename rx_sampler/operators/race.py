"""Several requests at once; the first that answers is followed."""

from __future__ import annotations

from collections.abc import Callable

from reactivex import Observable, abc

from rx_sampler.events import SamplingEvent

from .contest import Contest, RaceOutcome

__all__ = ["race"]


def race(
    *others: Observable[SamplingEvent], on_decided: Callable[[RaceOutcome], None] | None = None
) -> Callable[[Observable[SamplingEvent]], Observable[SamplingEvent]]:
    """The events of whichever stream answers first, the source or one of `others`; the rest are cancelled at once.

        source  -S------(Fa)-C|
        other   -S---(Fx)-y-C|
        race    -----(SFx)y-C|

    In: streams of one request each, such as `Sampler.stream` gives. Out: the stream of one of them, unchanged, its
    `request_id` included: exactly one terminal event, then completion. A stream wins by its first content
    (`FirstToken`, `ChannelToken`, `ToolCallDelta`), or by a `Completed` without any. What it says before, `Retrying`
    included, waits until then, at most `MAX_HELD` events: the one that reaches that number wins, content or not. What
    the winner says later stands, a failure too. A stream that fails before its first content is out; if all do, the
    last to fail is followed, with what it had said.

    `on_decided` gets the outcome once, before the winner's events; what it raises counts as raised by the subscriber.
    Every stream that was begun is paid for by what it used until it was cancelled.

    Cold: subscribes to all, in their order; forwards the scheduler. The losers are disposed at the decision, which
    closes their sockets (a submitted request, `events_of`, only loses a listener). Dispose disposes all. A consumer
    that pauses (`flow`) makes all of them wait. Errors by `on_error`: one of any stream before the decision, of the
    winner after it; a bug, which ends all. Memory: what is held back.
    """

    def operator(source: Observable[SamplingEvent]) -> Observable[SamplingEvent]:
        def subscribe(
            observer: abc.ObserverBase[SamplingEvent], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            contest = Contest((source, *others), observer, scheduler, on_decided=on_decided)
            contest.start(1 + len(others))
            return contest

        return Observable(subscribe)

    return operator
