"""From `async for` to Rx."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, TypeVar

from reactivex import Observable, abc
from reactivex.disposable import Disposable

from rx_sampler.demand import Gate, current_demand, demanding
from rx_sampler.running import part_with, report
from rx_sampler.scheduling import running_loop

__all__ = ["from_async_iterable"]

T = TypeVar("T")


def from_async_iterable(source: AsyncIterable[T] | Callable[[], AsyncIterable[T]]) -> Observable[T]:
    """The values of an async iterable.

    Cold: each subscription iterates anew, in a task of the running loop; a generator can be iterated only once, so for
    several subscriptions give the function that makes it. Waits between values while a bounded consumer
    (`to_async_iterator` with `pause`, `subscribe_with_demand`) wants no more. Dispose cancels the task and closes the
    iterator. What the iterable raises comes by `on_error`; what a subscriber raises ends its subscription, and the
    loop's exception handler gets it. Raises RuntimeError at subscribe without a running loop.
    """

    def subscribe(observer: abc.ObserverBase[T], _scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        loop = asyncio.get_running_loop()
        gate = Gate()
        gate.attach(current_demand())
        iterable = source() if callable(source) else source
        with demanding(None):
            task = loop.create_task(_pump(aiter(iterable), observer, gate), name="rx_sampler async iterable")
        task.add_done_callback(lambda _done: gate.close())

        def stop() -> None:
            if running_loop() is loop:
                task.cancel()
            elif not loop.is_closed():
                loop.call_soon_threadsafe(task.cancel)

        return Disposable(stop)

    return Observable(subscribe)


async def _pump(iterator: AsyncIterator[T], observer: abc.ObserverBase[T], gate: Gate) -> None:
    async with aclosing(_Closable(iterator)):
        while True:
            if gate.is_shut:
                await gate.opened()
            try:
                value = await anext(iterator)
            except StopAsyncIteration:
                break
            except Exception as error:
                observer.on_error(error)
                return
            try:
                observer.on_next(value)
            except (Exception, asyncio.CancelledError) as error:
                part_with(observer, error)
                return
        try:
            observer.on_completed()
        except (Exception, asyncio.CancelledError) as error:
            report(error)


class _Closable:
    """An iterator with an `aclose`, which only generators have of themselves."""

    def __init__(self, iterator: AsyncIterator[Any]) -> None:
        self._iterator = iterator

    async def aclose(self) -> None:
        aclose = getattr(self._iterator, "aclose", None)
        if aclose is not None:
            await aclose()
