"""Demand by number: a subscriber that gets as many values as it asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from reactivex import Observable, Observer, abc
from reactivex.disposable import SingleAssignmentDisposable

from rx_sampler.demand import Demand, demanding

__all__ = ["DemandSubscription", "subscribe_with_demand"]

T = TypeVar("T")


def subscribe_with_demand(
    source: Observable[T],
    on_next: Callable[[T], None],
    on_error: Callable[[Exception], None] | None = None,
    on_completed: Callable[[], None] | None = None,
    *,
    scheduler: abc.SchedulerBase | None = None,
) -> DemandSubscription[T]:
    """Subscribe to `source` at once; `on_next` is called as often as `request(n)` asked for, and no more.

    The rules are those of Reactive Streams: requests add up, `on_completed` and `on_error` need none, and `on_next` may
    itself request. While nothing is asked for, the requests behind `source` do not read their sockets; what their last
    frame brought waits here (so does all of a source that cannot wait). On one event loop's thread. Without `on_error`
    an error is raised, as Rx does.
    """
    subscription = DemandSubscription(Observer(on_next, on_error, on_completed))
    subscription.subscribe_to(source, scheduler)
    return subscription


class DemandSubscription(abc.ObserverBase[T], abc.DisposableBase, Generic[T]):
    """What `subscribe_with_demand` gives."""

    def __init__(self, observer: abc.ObserverBase[T]) -> None:
        self._observer = observer
        self._upstream = SingleAssignmentDisposable()
        self._demand = Demand()
        self._waiting: deque[T] = deque()
        self._requested: float = 0
        self._end: Callable[[], None] | None = None
        self._delivering = False
        self._disposed = False

    def subscribe_to(self, source: Observable[T], scheduler: abc.SchedulerBase | None) -> None:
        self._demand.hold()
        with demanding(self._demand):
            self._upstream.disposable = source.subscribe(self, scheduler=scheduler)

    def request(self, n: float) -> None:
        """Take `n` values more (`math.inf`: all). Those that wait come at once. ValueError for less than 1."""
        if not n >= 1:
            raise ValueError(f"n is {n}; request at least 1 value")
        self._requested += n
        self._deliver()

    @property
    def waiting(self) -> int:
        """How many values came that nobody asked for yet."""
        return len(self._waiting)

    def dispose(self) -> None:
        """Let go of the source; nothing comes any more, whatever was requested."""
        self._disposed = True
        self._waiting.clear()
        self._demand.close()
        self._upstream.dispose()

    def on_next(self, value: T) -> None:
        self._waiting.append(value)
        self._deliver()

    def on_error(self, error: Exception) -> None:
        self._end = lambda: self._observer.on_error(error)
        self._deliver()

    def on_completed(self) -> None:
        self._end = self._observer.on_completed
        self._deliver()

    def _deliver(self) -> None:
        if self._delivering:  # inside on_next: the loop below goes on
            return
        self._delivering = True
        try:
            while not self._disposed and self._waiting and self._requested >= 1:
                self._requested -= 1
                self._observer.on_next(self._waiting.popleft())
                if not self._waiting and self._requested >= 1:
                    self._demand.release()  # which may bring what was kept back
        finally:
            self._delivering = False
        if self._disposed:
            return
        if self._end is not None and not self._waiting:
            end, self._end, self._disposed = self._end, None, True
            end()
        elif self._requested >= 1:
            self._demand.release()
        else:
            self._demand.hold()
