"""From Rx to `async for`, through a bounded buffer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

from reactivex import Observable, abc

from .buffer import Buffer, Overflow

__all__ = ["BoundedIterator", "to_async_iterator"]

T = TypeVar("T")


def to_async_iterator(
    source: Observable[T],
    capacity: int = 1024,
    overflow: Overflow = "pause",
    *,
    keep: Callable[[T], bool] | None = None,
    scheduler: abc.SchedulerBase | None = None,
) -> BoundedIterator[T]:
    """The values of `source` for `async for`, of which at most `capacity` wait for the consumer.

    When that many wait, `overflow` decides:

    * `pause`: the requests behind `source` stop reading their sockets until half of the buffer is free, and TCP slows
      their servers. Nothing is lost. What one frame still brings may come on top. It reaches requests (`stream`,
      `events`, `events_of`) and `from_async_iterable` through whatever operators stand between; a source that cannot
      wait (a list, a timer) is kept whole, however much it is. A request that several consumers listen to goes at the
      pace of the slowest that pauses. Paused time counts for no limit in time; a `deadline_s` that passed meanwhile
      ends the request when it is to go on.
    * `drop_oldest`, `drop_newest`: one value is lost, and counted in `dropped`.
    * `latest`: as `drop_oldest` with a capacity of 1.
    * `error`: the source is disposed; what waited still comes, then `BufferOverflowError`.

    With the drops and `error`, a request that fills the buffer gives the consumer a turn of the loop before anything is
    lost: how much one read brings makes nobody slow.

    What `keep` is true for is never lost and comes on top of the capacity: by default terminal events, `Retrying` and
    the results of tools.

    Subscribes at the first `anext`, or when entered with `async with` (a hot source would be missed until then), with
    `scheduler`. The consumer must be on the source's event loop. `on_error` of the source is raised behind the values
    that came before. `aclose`, the end of `async with` and the loss of the last reference dispose the source; so leave
    a loop early only with one of them in sight. Raises ValueError for a capacity below 1 or an unknown overflow.
    """
    return BoundedIterator(
        source, Buffer(capacity, overflow) if keep is None else Buffer(capacity, overflow, keep), scheduler
    )


class BoundedIterator(AsyncIterator[T], Generic[T]):
    """What `to_async_iterator` gives; for one consumer."""

    def __init__(self, source: Observable[T], buffer: Buffer[T], scheduler: abc.SchedulerBase | None) -> None:
        self._source: Observable[T] | None = source
        self._buffer = buffer
        self._scheduler = scheduler

    @property
    def dropped(self) -> int:
        """How many values were lost."""
        return self._buffer.dropped

    @property
    def high_water(self) -> int:
        """The most that waited at once."""
        return self._buffer.high_water

    @property
    def waiting(self) -> int:
        """How many values wait now."""
        return len(self._buffer)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        buffer = self._buffer
        if self._source is not None:
            self._subscribe()
        while not buffer:
            if buffer.ended:
                raise self._end()
            await buffer.arrival()
        return buffer.pop()

    async def take(self) -> list[T]:
        """Whatever waits, and at least one value; empty at the end. Raises as `anext` does."""
        try:
            first = await anext(self)
        except StopAsyncIteration:
            return []
        return [first, *self._buffer.pop_all()]

    def _subscribe(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            self._buffer.subscribe_to(source, self._scheduler)

    def _end(self) -> Exception:
        error, self._buffer.error = self._buffer.error, None
        return error if error is not None else StopAsyncIteration()

    def close(self) -> None:
        """Dispose the source and drop what waits; the iteration is over. On the loop's thread."""
        self._source = None
        self._buffer.dispose()

    async def aclose(self) -> None:
        """As `close`."""
        self.close()

    async def __aenter__(self) -> Self:
        self._subscribe()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # Left by a `break`: nobody will ever read on, and a paused request would hold its socket for good.
        if (buffer := getattr(self, "_buffer", None)) is not None:
            buffer.dispose()
