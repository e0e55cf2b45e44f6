"""Time: one monotone scheduler over an event loop, and a plain clock read off any scheduler."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from reactivex.abc import SchedulerBase
from reactivex.scheduler.eventloop import AsyncIOScheduler

__all__ = ["Clock", "LoopTimeScheduler", "clock_of", "on_own_thread", "request_scheduler", "running_loop"]

Clock = Callable[[], float]
"""Seconds since the Unix epoch."""


class LoopTimeScheduler(AsyncIOScheduler):
    """Schedules on an asyncio loop and tells that loop's time.

    RxPY's own asyncio schedulers report the wall clock, which steps and knows nothing of a loop in virtual time. Here
    `now` is `epoch` (by default the wall clock at construction) plus what `loop.time()` has advanced since.
    Not thread-safe: use it on the loop's own thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, epoch: float | None = None) -> None:
        super().__init__(loop)
        self._time = loop.time
        self._offset = (time.time() if epoch is None else epoch) - loop.time()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def seconds(self) -> float:
        """`now` as a float, at a tenth of the cost of a datetime."""
        return self._time() + self._offset

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(0, UTC) + timedelta(seconds=self.seconds())


def clock_of(scheduler: SchedulerBase | None) -> Clock:
    """A clock that follows `scheduler`; without one, the wall clock."""
    if scheduler is None:
        return time.time
    if isinstance(scheduler, LoopTimeScheduler):
        return scheduler.seconds
    return lambda: (scheduler.now - datetime.fromtimestamp(0, UTC)).total_seconds()


def request_scheduler(scheduler: SchedulerBase | None) -> SchedulerBase:
    """The scheduler that a request runs on, from the one given at subscribe.

    None and RxPY's asyncio schedulers become a `LoopTimeScheduler` on the running loop, so that a step of the wall
    clock moves no timer; anything else (a virtual time scheduler) is taken as it is. Raises RuntimeError without a
    running loop where one is needed.
    """
    if scheduler is None or (isinstance(scheduler, AsyncIOScheduler) and not isinstance(scheduler, LoopTimeScheduler)):
        try:
            return LoopTimeScheduler(asyncio.get_running_loop())
        except RuntimeError:
            raise RuntimeError("a request needs a running asyncio event loop in the subscribing thread") from None
    return scheduler


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The loop that runs in this thread, if one does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def on_own_thread(scheduler: SchedulerBase, action: Callable[[], None]) -> None:
    """Do `action` where the scheduler's own actions run: at once if that is here, else soon, on its loop.

    At once too if that loop is closed: nothing else can happen on it.
    """
    if isinstance(scheduler, LoopTimeScheduler) and scheduler.loop is not running_loop():
        try:
            scheduler.loop.call_soon_threadsafe(action)
            return
        except RuntimeError:  # closed
            pass
    action()
