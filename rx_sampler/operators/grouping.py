"""A stream for each request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import reactivex as rx
from reactivex import GroupedObservable, Observable, abc
from reactivex.disposable import Disposable, RefCountDisposable, SingleAssignmentDisposable

from rx_sampler.events import Completed, Failed, SamplingEvent

__all__ = ["by_request"]


def by_request() -> Callable[[Observable[SamplingEvent]], Observable[GroupedObservable[str, SamplingEvent]]]:
    """A stream of its own for each request, with the id as its `key`.

    With `g` and `h` for the groups of two requests, of which the second says `x` and `Y`:

        source      -S-x-(Fa)-C-Y-|
        by_request  -g-h----------|
        first       -S---(Fa)-(C|)
        second      ---x--------(Y|)

    In: events of several requests, interleaved. Out: a `GroupedObservable` at a request's first event, which completes
    with its terminal one and is let go of then; a later request of the same id has a group of its own. Groups are hot:
    subscribe to one when it comes, or miss its first events. What a subscriber of a group raises reaches the source.

    Synchronous, cold as its source, and as each subscription has groups of its own; forwards the scheduler. The source
    is disposed when the subscription and those to its groups are, or when it ends. Its error goes to the open groups,
    then on. Memory: a group per open request.
    """

    def operator(source: Observable[SamplingEvent]) -> Observable[GroupedObservable[str, SamplingEvent]]:
        def subscribe(
            observer: abc.ObserverBase[GroupedObservable[str, SamplingEvent]],
            scheduler: abc.SchedulerBase | None = None,
        ) -> abc.DisposableBase:
            upstream = SingleAssignmentDisposable()
            shared = RefCountDisposable(upstream)
            groups: dict[str, _Group] = {}

            def on_next(event: SamplingEvent) -> None:
                request_id = event.request_id
                group = groups.get(request_id)
                if group is None:
                    group = groups[request_id] = _Group(request_id, shared)
                    observer.on_next(group)
                kind = event.__class__
                ends = kind is Completed or kind is Failed
                if ends:
                    groups.pop(request_id, None)
                for listener in group.listeners:
                    listener.on_next(event)
                if ends:
                    group.end(_complete)

            def on_error(error: Exception) -> None:
                for group in list(groups.values()):
                    group.end(lambda listener: listener.on_error(error))
                observer.on_error(error)

            def on_completed() -> None:
                for group in list(groups.values()):
                    group.end(_complete)
                observer.on_completed()

            upstream.disposable = source.subscribe(on_next, on_error, on_completed, scheduler=scheduler)
            return shared

        return Observable(subscribe)

    return operator


_NOWHERE: Final[Observable[SamplingEvent]] = rx.never()
"""What RxPY's groups would subscribe to."""


class _Group(GroupedObservable[str, SamplingEvent]):
    """One request for whoever listens; who comes or leaves during a delivery changes the next.

    A subject behind RxPY's own group takes a lock and three observers per event, which costs more than all the rest.
    """

    def __init__(self, key: str, shared: RefCountDisposable) -> None:
        super().__init__(key, _NOWHERE)
        self._shared = shared
        self.listeners: tuple[abc.ObserverBase[SamplingEvent], ...] = ()
        self._end: Callable[[abc.ObserverBase[SamplingEvent]], None] | None = None

    def _subscribe_core(
        self,
        observer: abc.ObserverBase[SamplingEvent],
        scheduler: abc.SchedulerBase | None = None,  # noqa: ARG002  # RxPY's name; nothing is scheduled
    ) -> abc.DisposableBase:
        if self._end is not None:
            self._end(observer)
            return Disposable()
        reference = self._shared.disposable
        self.listeners = (*self.listeners, observer)

        def leave() -> None:
            self.listeners = tuple(one for one in self.listeners if one is not observer)
            reference.dispose()

        return Disposable(leave)

    def end(self, end: Callable[[abc.ObserverBase[SamplingEvent]], None]) -> None:
        """Tell all who listen, and all who will."""
        self._end = end
        listeners, self.listeners = self.listeners, ()
        for listener in listeners:
            end(listener)


def _complete(listener: abc.ObserverBase[SamplingEvent]) -> None:
    listener.on_completed()
