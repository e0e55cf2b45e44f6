"""Interleaved requests: a state for each, gone when the request is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, TypeVar

from reactivex import Observable, abc

from rx_sampler.events import Completed, Failed, SamplingEvent

__all__ = ["OfOneRequest", "each_request"]

B = TypeVar("B")
B_co = TypeVar("B_co", covariant=True)

_LAST: Final = frozenset({Completed, Failed})


class OfOneRequest(Protocol[B_co]):
    """What is made of one request's events; any `Machine` does that never sets `done` and amends no errors."""

    def feed(self, item: SamplingEvent) -> Iterable[B_co] | SamplingEvent:
        """What `item` brings; `item` itself means that it passes, which costs less than `(item,)`."""
        ...

    def finish(self) -> Iterable[B_co]:
        """What is left at the end of the source."""
        ...

    def spill(self) -> Iterable[B_co]:
        """What was held back, when the source fails."""
        ...


def each_request(make: Callable[[], OfOneRequest[B]]) -> Callable[[Observable[SamplingEvent]], Observable[B]]:
    """A machine of its own for each request id, made at its first event and dropped after its terminal one.

    The machine sees every event of its request, `Retrying` included: what an attempt brought is void then. Machines of
    requests that are still open at the end of the source finish (or spill) in the order they began. What one raises
    fails the stream.
    """

    def operator(source: Observable[SamplingEvent]) -> Observable[B]:
        def subscribe(observer: abc.ObserverBase[B], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
            machines: dict[str, OfOneRequest[B]] = {}
            feeds: dict[str, Callable[[SamplingEvent], Iterable[B] | SamplingEvent]] = {}
            push: Any = observer.on_next

            def on_next(event: SamplingEvent) -> None:
                feed = feeds.get(event.request_id)
                if feed is None or event.__class__ in _LAST:
                    feed = turned(event)
                try:
                    out: Any = feed(event)
                except Exception as error:
                    on_error(error)
                    return
                if out is event:
                    push(event)
                elif out:  # mostly there is nothing, and even to begin a loop costs something
                    for item in out:
                        push(item)

            def turned(event: SamplingEvent) -> Callable[[SamplingEvent], Iterable[B] | SamplingEvent]:
                """Where to feed a request's first event, or its last."""
                request_id = event.request_id
                if request_id not in machines:
                    machine = machines[request_id] = make()
                    feeds[request_id] = machine.feed
                feed = feeds[request_id]
                if event.__class__ in _LAST:
                    del machines[request_id], feeds[request_id]
                return feed

            def on_error(error: Exception) -> None:
                for machine in machines.values():
                    for item in machine.spill():
                        push(item)
                observer.on_error(error)

            def on_completed() -> None:
                for machine in machines.values():
                    for item in machine.finish():
                        push(item)
                observer.on_completed()

            return source.subscribe(on_next, on_error, on_completed, scheduler=scheduler)

        return Observable(subscribe)

    return operator
