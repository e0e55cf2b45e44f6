"""How many requests run."""

from __future__ import annotations

from collections.abc import Callable

from reactivex import Observable, abc

from rx_sampler.events import Completed, Failed, SamplingEvent

__all__ = ["in_flight"]


def in_flight() -> Callable[[Observable[SamplingEvent]], Observable[int]]:
    """How many requests run, whenever that changes.

    With `x` and `Y` for the first and the last event of another request, and the numbers themselves:

        source     -S-x-(Fa)-C-Y-|
        in_flight  -1-2------1-0-|

    In: events of several requests. Out: after the first event of a request, and after its terminal one, how many have
    begun and not ended. A request that queues, or waits for its headers, has said nothing yet and is not counted; one
    between two attempts is.

    Synchronous, cold as its source, and as each subscription has state of its own; forwards the scheduler. Dispose
    disposes the source. Errors by `on_error`: the source's. Memory: the ids of the open requests.
    """

    def operator(source: Observable[SamplingEvent]) -> Observable[int]:
        def subscribe(
            observer: abc.ObserverBase[int], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            push = observer.on_next
            running: set[str] = set()

            def on_next(event: SamplingEvent) -> None:
                request_id = event.request_id
                if isinstance(event, Completed | Failed):
                    if request_id in running:  # one that failed while it queued has never run
                        running.remove(request_id)
                        push(len(running))
                elif request_id not in running:
                    running.add(request_id)
                    push(len(running))

            return source.subscribe(on_next, observer.on_error, observer.on_completed, scheduler=scheduler)

        return Observable(subscribe)

    return operator
