"""One submitted request as its listeners know it: what it said so far, and who is told of more."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import NewType

from reactivex import abc

from .events import SamplingEvent
from .replay import History
from .running import RunningRequest, part_with, report

__all__ = ["Feed", "Observers", "RequestId"]

RequestId = NewType("RequestId", str)
"""Names one submitted request; any string, a UUID where the caller gives none."""


class Observers:
    """Who listens. Changed from any thread, read as a whole: who leaves or comes during a delivery changes the next."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.all: tuple[abc.ObserverBase[SamplingEvent], ...] = ()

    def add(self, observer: abc.ObserverBase[SamplingEvent]) -> None:
        with self._lock:
            self.all = (*self.all, observer)

    def remove(self, observer: abc.ObserverBase[SamplingEvent]) -> None:
        with self._lock:
            self.all = tuple(one for one in self.all if one is not observer)

    def tell(self, event: SamplingEvent) -> None:
        """Each of them; one that raises is out: see `part_with`."""
        for observer in self.all:
            try:
                observer.on_next(event)
            except (Exception, asyncio.CancelledError) as error:
                self.remove(observer)
                part_with(observer, error)

    def complete(self) -> None:
        with self._lock:
            everyone, self.all = self.all, ()
        for observer in everyone:
            try:
                observer.on_completed()
            except (Exception, asyncio.CancelledError) as error:
                report(error)


class Feed(abc.ObserverBase[SamplingEvent]):
    """One submitted request: what it said, who listens, and how to break it off."""

    def __init__(
        self,
        request_id: str,
        deliver: Callable[[Feed, SamplingEvent], None],
        broken: Callable[[Feed, Exception], None],
    ) -> None:
        self.request_id = RequestId(request_id)
        self.history = History()
        self.observers = Observers()
        self.run: RunningRequest | None = None
        self.over = False
        """Its terminal event came; it may not have been delivered yet."""
        self.closed = False
        """Its terminal event was delivered."""
        self.kept = 0
        """How many events are kept of it, once it is over."""
        self._deliver = deliver
        self._broken = broken

    def on_next(self, value: SamplingEvent) -> None:
        if not self.over:
            self._deliver(self, value)

    def on_error(self, error: Exception) -> None:
        self._broken(self, error)  # failures of requests are events

    def on_completed(self) -> None:
        pass  # the terminal event said so
