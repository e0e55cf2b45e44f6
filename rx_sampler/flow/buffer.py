"""What a bounded consumer keeps of a stream, and what it does when that is full."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, Literal, TypeVar, get_args

from reactivex import Observable, abc
from reactivex.disposable import SingleAssignmentDisposable

from rx_sampler.demand import Demand, demanding
from rx_sampler.events import Completed, Failed, Retrying, ToolResultAdded
from rx_sampler.scheduling import running_loop

__all__ = ["Buffer", "BufferOverflowError", "Overflow"]

T = TypeVar("T")

Overflow = Literal["pause", "drop_oldest", "drop_newest", "latest", "error"]
"""What happens when a buffer is full: see `to_async_iterator`."""


class BufferOverflowError(RuntimeError):
    """The consumer was slower than its source, and had asked to be told (`overflow="error"`)."""


def says_how_it_went(value: object) -> bool:
    """Terminal events, `Retrying` and results: who misses one takes void text for good, waits, or cannot go on."""
    return isinstance(value, Completed | Failed | Retrying | ToolResultAdded)


class Buffer(abc.ObserverBase[T], Generic[T]):
    """An observer that keeps what comes until it is taken, on the thread of one event loop.

    `high_water` is the most that waited at once, `dropped` how many values were lost.
    """

    def __init__(self, capacity: int, overflow: Overflow, keep: Callable[[T], bool] = says_how_it_went) -> None:
        if overflow not in get_args(Overflow):
            raise ValueError(f"overflow is {overflow!r}; it can be {', '.join(get_args(Overflow))}")
        if capacity < 1:
            raise ValueError(f"capacity is {capacity}; a buffer holds 1 value or more")
        self.dropped = 0
        self.high_water = 0
        self.ended = False
        self.error: Exception | None = None
        self._capacity = 1 if overflow == "latest" else capacity
        self._low_water = self._capacity // 2
        self._overflow: Overflow = overflow
        self._demand = Demand() if overflow != "latest" else None
        self._is_full = False
        """It was, and is not half empty again."""
        self._gave_a_turn = False
        """The consumer could have run since the buffer filled up."""
        self._keep = keep
        self._kept: deque[T] = deque()
        """What could not be dropped, and is older than all that waits."""
        self._waiting: deque[T] = deque()
        self._upstream = SingleAssignmentDisposable()
        self._arrival: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._kept) + len(self._waiting)

    def subscribe_to(self, source: Observable[T], scheduler: abc.SchedulerBase | None) -> None:
        with demanding(self._demand):
            self._upstream.disposable = source.subscribe(self, scheduler=scheduler)

    def dispose(self) -> None:
        """Let go of the source and of what waits."""
        self.ended = True
        self._upstream.dispose()
        if self._demand is not None:
            self._demand.close()
        self._kept.clear()
        self._waiting.clear()
        self._tell()

    # -- the source's side

    def on_next(self, value: T) -> None:
        if self.ended:
            return
        waiting = self._waiting
        if len(waiting) >= self._capacity and not self._makes_room(value):
            return
        waiting.append(value)
        held = len(waiting) + len(self._kept)
        if held > self.high_water:
            self.high_water = held
        if held >= self._capacity:
            self._fill_up()
        if self._arrival is not None:
            self._tell()

    def on_error(self, error: Exception) -> None:
        if not self.ended:
            self.ended, self.error = True, error
            self._tell()

    def on_completed(self) -> None:
        self.ended = True
        self._tell()

    def _fill_up(self) -> None:
        demand, self._is_full = self._demand, True
        if demand is None:
            return
        if self._overflow == "pause":
            demand.hold()
        elif not self._gave_a_turn and (loop := running_loop()) is not None:
            # One read can bring a thousand events, all in one turn of the loop: a consumer that had no turn in between
            # is not slow.
            self._gave_a_turn = True
            demand.hold()
            loop.call_soon(demand.release)

    def _makes_room(self, value: T) -> bool:
        """Whether `value` is to be kept, now that as many wait as may."""
        match self._overflow:
            case "pause":  # the source was told; what it could not hold back is not lost
                return True
            case "drop_oldest" | "latest":
                self._drop_oldest()
                return True
            case "drop_newest":
                if self._keep(value):
                    return True
                self.dropped += 1
                return False
            case "error":
                if self._keep(value):
                    return True
                message = f"{len(self)} values wait and another came: the consumer is slower than its source"
                self.on_error(BufferOverflowError(message))
                self._upstream.dispose()
                return False

    def _drop_oldest(self) -> None:
        waiting = self._waiting
        while waiting:
            oldest = waiting.popleft()
            if not self._keep(oldest):
                self.dropped += 1
                return
            self._kept.append(oldest)

    def _tell(self) -> None:
        arrival, self._arrival = self._arrival, None
        if arrival is None or arrival.done():
            return
        loop = arrival.get_loop()
        if running_loop() is loop:
            arrival.set_result(None)
        elif not loop.is_closed():  # a source with a thread of its own
            loop.call_soon_threadsafe(lambda: arrival.done() or arrival.set_result(None))

    # -- the consumer's side

    def pop(self) -> T:
        """The oldest value; IndexError if there is none."""
        value = self._kept.popleft() if self._kept else self._waiting.popleft()
        if self._is_full:
            self._make_way()
        return value

    def pop_all(self) -> list[T]:
        """All that waits, oldest first."""
        values = [*self._kept, *self._waiting]
        self._kept.clear()
        self._waiting.clear()
        self._make_way()
        return values

    def _make_way(self) -> None:
        self._gave_a_turn = False
        if len(self._waiting) <= self._low_water:
            self._is_full = False
            if self._demand is not None:
                self._demand.release()

    def arrival(self) -> asyncio.Future[None]:
        """Done once something may have come. RuntimeError if somebody waits already."""
        if self._arrival is not None and not self._arrival.done():
            raise RuntimeError(
                "another task waits for the next value already; give each consumer an iterator of its own"
            )
        self._arrival = arrival = asyncio.get_running_loop().create_future()
        return arrival
