"""`from_async_iterable`: values, ends, errors, disposal, and waiting for a consumer that wants no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest
from reactivex import abc, operators

from rx_sampler.flow import from_async_iterable, to_async_iterator
from rx_sampler.testing import run_virtual


class Counting:
    """Counts up, one number a second, and knows how far it came and whether it was closed."""

    def __init__(self, count: int, error: Exception | None = None) -> None:
        self.count = count
        self.error = error
        self.made = 0
        self.closed = 0

    async def __call__(self) -> AsyncGenerator[int]:
        try:
            for number in range(self.count):
                await asyncio.sleep(1)
                self.made += 1
                yield number
            if self.error is not None:
                raise self.error
        finally:
            self.closed += 1


def test_each_subscription_iterates_anew() -> None:
    async def main() -> None:
        numbers = from_async_iterable(Counting(3))
        for _ in range(2):
            assert await numbers.pipe(operators.to_list()) == [0, 1, 2]

    run_virtual(main())


def test_an_error_comes_by_on_error() -> None:
    broken = OSError("broken")

    async def main() -> None:
        seen: list[object] = []
        done = asyncio.Event()

        def on_error(error: Exception) -> None:
            seen.append(error)
            done.set()

        from_async_iterable(Counting(1, broken)).subscribe(seen.append, on_error)
        await done.wait()
        assert seen == [0, broken]

    run_virtual(main())


@pytest.mark.parametrize("phase", ["waiting", "inside on_next"])
def test_dispose_closes_the_iterator(phase: str) -> None:
    async def main() -> None:
        source, seen = Counting(10), list[int]()
        subscription: abc.DisposableBase

        def on_next(value: int) -> None:
            seen.append(value)
            if phase == "inside on_next" and value == 1:
                subscription.dispose()

        subscription = from_async_iterable(source).subscribe(on_next)
        await asyncio.sleep(2.5)
        subscription.dispose()
        await asyncio.sleep(5)
        assert seen == [0, 1]
        assert (source.made, source.closed) == (2, 1)
        assert len(asyncio.all_tasks()) == 1

    run_virtual(main())


def test_what_a_subscriber_raises_ends_its_subscription_and_is_told_to_the_loop() -> None:
    async def main() -> None:
        told: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context["exception"]))
        source, bug, errors = Counting(10), KeyError("bug"), list[Exception]()

        def on_next(_value: int) -> None:
            raise bug

        from_async_iterable(source).subscribe(on_next, errors.append)
        await asyncio.sleep(5)
        assert told == [bug]
        assert (source.made, source.closed) == (1, 1)

    run_virtual(main())


def test_it_waits_for_a_bounded_consumer() -> None:
    async def main() -> None:
        source = Counting(20)
        async with to_async_iterator(from_async_iterable(source).pipe(operators.map(str)), 4) as values:
            await asyncio.sleep(1000)
            assert (source.made, values.high_water) == (4, 4)
            assert await anext(values) == "0"
            assert await anext(values) == "1"
            await asyncio.sleep(1000)
            assert (source.made, values.high_water) == (6, 4)
            assert [value async for value in values] == [str(number) for number in range(2, 20)]
        assert source.closed == 1

    run_virtual(main())


def test_an_iterator_without_aclose_serves_too() -> None:
    class Twice:
        def __init__(self) -> None:
            self.left = 2

        def __aiter__(self) -> AsyncIterator[int]:
            return self

        async def __anext__(self) -> int:
            if not self.left:
                raise StopAsyncIteration
            self.left -= 1
            return self.left

    async def main() -> Any:
        return await from_async_iterable(Twice()).pipe(operators.to_list())

    assert run_virtual(main()) == [1, 0]


def test_it_needs_a_running_loop() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        from_async_iterable(Counting(1)).subscribe()
