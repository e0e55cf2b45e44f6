"""How many requests run at a time: the others queue, first come first served."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Admission", "Place"]


class Place:
    """A request's place, in the queue or among those that run."""

    __slots__ = ("_admission", "_ready", "_runs")

    def __init__(self, admission: Admission, ready: Callable[[], None]) -> None:
        self._admission = admission
        self._ready = ready
        self._runs = False

    def run(self) -> None:
        self._runs = True
        self._ready()

    def dispose(self) -> None:
        """Give the place back, or leave the queue. More than once is as once."""
        self._admission.leave(self, ran=self._runs)
        self._runs = False


class Admission:
    """Places for requests. Not thread-safe: all on the thread of the requests."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._running = 0
        self._queue: dict[Place, None] = {}  # ordered, and anyone can leave at no cost
        self._admitting = False

    @property
    def queued(self) -> int:
        return len(self._queue)

    def enter(self, ready: Callable[[], None]) -> Place:
        """A place; `ready` is called once, now or when its turn comes. Whoever has a place disposes of it."""
        place = Place(self, ready)
        self._queue[place] = None
        self._admit()
        return place

    def resize(self, limit: int | None) -> None:
        """More places are filled at once; fewer are not taken from those that have one."""
        self._limit = limit
        self._admit()

    def leave(self, place: Place, *, ran: bool) -> None:
        self._queue.pop(place, None)
        if ran:
            self._running -= 1
            self._admit()

    def _admit(self) -> None:
        # A request that starts may end at once and make room for the next: a loop, so that no queue is a stack.
        if self._admitting:
            return
        self._admitting = True
        try:
            while self._queue and (self._limit is None or self._running < self._limit):
                place = next(iter(self._queue))
                del self._queue[place]
                self._running += 1
                place.run()
        finally:
            self._admitting = False
