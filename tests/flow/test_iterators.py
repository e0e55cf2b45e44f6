"""`to_async_iterator`: what a consumer sees of values, ends and errors, and what it does to the source."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
import reactivex as rx
from reactivex import Observable, abc
from reactivex.disposable import Disposable
from reactivex.subject import Subject

from rx_sampler.demand import Demand, current_demand
from rx_sampler.flow import BufferOverflowError, Overflow, to_async_iterator


async def listed(values: AsyncIterator[Any], into: list[Any] | None = None) -> list[Any]:
    seen = [] if into is None else into
    async for value in values:
        seen.append(value)  # what came before an error counts
    return seen


class Source:
    """A hot source that counts its subscriptions and knows the demand and the scheduler of the last one."""

    def __init__(self) -> None:
        self.subject: Subject[int] = Subject()
        self.subscribed = 0
        self.disposed = 0
        self.demand: Demand | None = None
        self.scheduler: abc.SchedulerBase | None = None

    def observable(self) -> Observable[int]:
        def subscribe(
            observer: abc.ObserverBase[int], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            self.subscribed += 1
            self.demand, self.scheduler = current_demand(), scheduler
            subscription = self.subject.subscribe(observer)

            def dispose() -> None:
                self.disposed += 1
                subscription.dispose()

            return Disposable(dispose)

        return Observable(subscribe)


async def test_values_come_in_order_and_end_with_the_source() -> None:
    assert await listed(to_async_iterator(rx.from_iterable(range(5)))) == [0, 1, 2, 3, 4]
    assert await listed(to_async_iterator(rx.empty())) == []


async def test_an_error_comes_behind_the_values_and_is_raised_once() -> None:
    broken = OSError("broken")
    values = to_async_iterator(rx.concat(rx.from_iterable([1, 2]), rx.throw(broken)))
    seen: list[int] = []
    with pytest.raises(OSError, match="broken") as raised:
        await listed(values, seen)
    assert seen == [1, 2]
    assert raised.value is broken
    assert await listed(values) == []


async def test_a_consumer_that_waits_gets_what_comes() -> None:
    source = Source()
    values = to_async_iterator(source.observable())
    waiting = asyncio.create_task(anext(values))
    await asyncio.sleep(0)
    source.subject.on_next(1)
    assert await waiting == 1
    rest = asyncio.create_task(listed(values))
    await asyncio.sleep(0)
    source.subject.on_next(2)
    source.subject.on_completed()
    assert await rest == [2]


async def test_nothing_is_subscribed_to_before_the_first_value_is_asked_for() -> None:
    source = Source()
    values = to_async_iterator(source.observable())
    assert source.subscribed == 0
    task = asyncio.create_task(listed(values))
    await asyncio.sleep(0)
    assert source.subscribed == 1
    source.subject.on_completed()
    await task
    assert source.subscribed == 1


async def test_async_with_subscribes_at_once_and_disposes_at_its_end() -> None:
    source = Source()
    async with to_async_iterator(source.observable()) as values:
        source.subject.on_next(1)
        source.subject.on_next(2)
        assert await anext(values) == 1
        assert values.waiting == 1
        assert source.disposed == 0
    assert source.disposed == 1
    assert await listed(values) == []


@pytest.mark.parametrize("how", ["break", "aclose", "close", "cancel"])
async def test_who_leaves_early_disposes_the_source(how: str) -> None:
    source = Source()

    async def consume() -> None:
        async for _ in to_async_iterator(source.observable()):
            break

    if how == "break":
        task = asyncio.create_task(consume())
        await asyncio.sleep(0)
        source.subject.on_next(1)
        await task
    else:
        values = to_async_iterator(source.observable())
        waiting = asyncio.create_task(anext(values))
        await asyncio.sleep(0)
        if how == "cancel":
            waiting.cancel()
            del values
        elif how == "aclose":
            await values.aclose()
        else:
            values.close()
        with suppress(StopAsyncIteration, asyncio.CancelledError):
            await waiting
        del waiting
    await asyncio.sleep(0)  # until then the loop holds on to what a cancelled task raised
    gc.collect()
    assert source.disposed == 1
    assert source.subject.observers == []


async def test_a_cancelled_wait_loses_nothing() -> None:
    source = Source()
    values = to_async_iterator(source.observable())
    waiting = asyncio.create_task(anext(values))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    source.subject.on_next(1)
    assert await anext(values) == 1


async def test_take_gives_whatever_waits() -> None:
    source = Source()
    async with to_async_iterator(source.observable()) as values:
        waiting = asyncio.create_task(values.take())
        await asyncio.sleep(0)
        for value in range(3):
            source.subject.on_next(value)
        assert await waiting == [0, 1, 2]
        source.subject.on_next(3)
        source.subject.on_completed()
        assert await values.take() == [3]
        assert await values.take() == []


@pytest.mark.parametrize("overflow", ["pause", "drop_oldest", "drop_newest", "latest", "error"])
async def test_demand_travels_to_the_source_through_what_stands_between(overflow: Overflow) -> None:
    source = Source()
    between = source.observable().map(lambda value: value + 0).scan(lambda total, value: total + value)
    scheduler: Any = object()
    async with to_async_iterator(between, 1, overflow, scheduler=scheduler) as values:
        assert current_demand() is None
        assert source.scheduler is scheduler
        if overflow == "latest":
            assert source.demand is None
            return
        assert source.demand is not None
        assert source.demand.wants
        source.subject.on_next(1)
        assert not source.demand.wants
        for _ in range(3):
            await asyncio.sleep(0)
        # The others only ask for a turn of the loop, so that who had none is not taken for slow.
        assert source.demand.wants is (overflow != "pause")
        assert await anext(values) == 1
        assert source.demand.wants


async def test_counters_and_overflow() -> None:
    source = Source()
    async with to_async_iterator(source.observable(), 2, "drop_oldest", keep=lambda value: value == 0) as values:
        for value in range(6):
            source.subject.on_next(value)
        assert (values.dropped, values.high_water, values.waiting) == (3, 3, 3)
        source.subject.on_completed()
        assert await listed(values) == [0, 4, 5]
    with pytest.raises(BufferOverflowError):
        await listed(to_async_iterator(rx.from_iterable(range(3)), 2, "error"))


def test_bad_arguments_are_told_at_once() -> None:
    with pytest.raises(ValueError, match="capacity is 0"):
        to_async_iterator(rx.never(), 0)
