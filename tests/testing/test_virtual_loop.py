"""Virtual time: jumps from timer to timer, real waits where something comes from outside, an error for a deadlock."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import pytest
from reactivex import abc

from rx_sampler import LoopTimeScheduler
from rx_sampler.testing import DeadlockError, VirtualTimeLoop, run_virtual


def now() -> float:
    return asyncio.get_running_loop().time()


def test_time_jumps_to_the_next_timer_and_nowhere_else() -> None:
    fired: list[tuple[str, float]] = []

    async def waiting(name: str, *waits_s: float) -> None:
        for wait_s in waits_s:
            await asyncio.sleep(wait_s)
            fired.append((name, now()))

    async def main() -> str:
        await asyncio.gather(waiting("a", 86_400, 1e9), waiting("b", 0.25, 0.25, 0, 604_800))
        return "done"

    assert run_virtual(main()) == "done"
    assert fired == [("b", 0.25), ("b", 0.5), ("b", 0.5), ("a", 86_400), ("b", 604_800.5), ("a", 1_000_086_400)]


def test_time_stands_still_while_something_is_ready() -> None:
    async def main() -> tuple[float, float]:
        for _ in range(1000):
            await asyncio.sleep(0)
        return now(), await asyncio.wait_for(asyncio.sleep(0, now()), timeout=1)

    assert run_virtual(main(), start_s=7.5) == (7.5, 7.5)


@pytest.mark.parametrize("start_s", [0, 2**23, 1.7e9, 1e15])
def test_a_timer_for_at_once_is_run_at_any_time(start_s: float) -> None:
    # between two floats lie 2e-9 s at 2**23 s, and an eighth of a second at 1e15 s
    async def main() -> float:
        ran = asyncio.Event()
        asyncio.get_running_loop().call_later(0, ran.set)
        await ran.wait()
        return now()

    assert run_virtual(main(), start_s=start_s) == start_s


def test_timeouts_come_due() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(300):
                await asyncio.Event().wait()
        return now()

    assert run_virtual(main()) == 300


def test_a_cancelled_timer_is_not_jumped_to() -> None:
    async def main() -> float:
        asyncio.get_running_loop().call_later(5, pytest.fail).cancel()
        await asyncio.sleep(9)
        return now()

    assert run_virtual(main()) == 9


def test_the_scheduler_on_loop_time_follows() -> None:
    fired: list[tuple[float, float]] = []

    async def main() -> None:
        scheduler = LoopTimeScheduler(asyncio.get_running_loop(), epoch=1_000)

        def ring(_scheduler: abc.SchedulerBase, _state: object = None) -> None:
            fired.append((now(), scheduler.seconds()))

        scheduler.schedule_relative(120.5, ring)
        scheduler.schedule_relative(60, ring).dispose()
        await asyncio.sleep(200)

    run_virtual(main())
    assert fired == [(120.5, 1_120.5)]


# -- deadlocks


async def never() -> None:
    await asyncio.Event().wait()


def test_a_deadlock_is_an_error_that_says_when_and_who_waits() -> None:
    async def main() -> None:
        other = asyncio.create_task(never(), name="other")
        await asyncio.sleep(2.5)
        await other

    with pytest.raises(DeadlockError, match=r"at 2\.5 s; waiting: .*main, line \d+, other in never, line \d+$"):
        run_virtual(main())


def test_of_many_waiting_tasks_a_few_are_named() -> None:
    async def main() -> None:
        await asyncio.gather(*(never() for _ in range(1000)))

    with pytest.raises(DeadlockError, match=r", 991 more$") as caught:  # ten of 1,001
        run_virtual(main())
    assert str(caught.value).count("line ") == 10


def test_tasks_of_a_deadlock_are_cancelled_and_may_clean_up_in_virtual_time() -> None:
    ended: list[float] = []

    async def main() -> None:
        try:
            await never()
        finally:
            await asyncio.sleep(3)
            ended.append(now())

    with pytest.raises(DeadlockError):
        run_virtual(main())
    assert ended == [3]


def test_what_the_coroutine_raises_is_raised() -> None:
    async def main() -> None:
        await asyncio.sleep(1)
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        run_virtual(main())


# -- what comes from outside


@pytest.fixture
def loop() -> Generator[VirtualTimeLoop]:
    virtual = VirtualTimeLoop()
    yield virtual
    virtual.run_until_complete(virtual.shutdown_default_executor())
    virtual.close()


def test_a_job_of_a_thread_is_waited_for_in_real_time(loop: VirtualTimeLoop) -> None:
    gate = threading.Event()

    async def main() -> bool:
        loop.call_later(0.01, gate.set)
        return await asyncio.to_thread(gate.wait, 60)

    loop.call_later(3600, pytest.fail)  # a jump would end there
    assert loop.run_until_complete(main())


def test_threads_are_ended_with_the_loop() -> None:
    async def main() -> int:
        return await asyncio.to_thread(threading.get_ident)

    before = threading.active_count()
    assert run_virtual(main()) != threading.get_ident()
    assert threading.active_count() == before


def test_once_its_job_is_done_time_jumps_again(loop: VirtualTimeLoop) -> None:
    async def main() -> float:
        await asyncio.to_thread(int)
        begin = now()
        await asyncio.sleep(1000)
        return now() - begin

    assert loop.run_until_complete(main()) == pytest.approx(1000, abs=1e-6)  # pyright: ignore[reportUnknownMemberType]  # pytest leaves it untyped


def test_another_thread_may_call_while_the_loop_is_held_up(loop: VirtualTimeLoop) -> None:
    async def main() -> tuple[str, bool]:
        told: asyncio.Future[str] = loop.create_future()
        thread = threading.Thread(target=loop.call_soon_threadsafe, args=(told.set_result, "hello"))
        thread.start()
        await asyncio.to_thread(thread.join)
        return await told, thread.is_alive()

    assert loop.run_until_complete(main()) == ("hello", False)


async def exchange(client: Callable[[int], Awaitable[Any]]) -> Any:
    """A server that echoes a line, and what a client makes of it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        return await client(server.sockets[0].getsockname()[1])


def test_sockets_work_and_hold_time_up() -> None:
    async def ask(port: int) -> bytes:
        async with asyncio.timeout(3600):  # an hour does not pass while an answer is on its way
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"hello\n")
            answer = await reader.read()
            writer.close()
            await writer.wait_closed()
            return answer

    async def main() -> bytes:
        answer = await exchange(ask)
        await asyncio.sleep(3600)
        return answer

    assert run_virtual(main()) == b"hello\n"


def test_a_timer_beside_an_open_socket_comes_due_exactly_at_its_time() -> None:
    async def main() -> list[float]:
        async def wait(_port: int) -> list[float]:
            times = [now()]
            for _ in range(3):
                await asyncio.sleep(0.001)
                times.append(now())
            return [later - times[0] for later in times[1:]]

        return await exchange(wait)

    # no socket is ever ready here, so that real waits, which end late, leave no trace
    assert run_virtual(main()) == [0.001, 0.002, 0.003]


def test_where_a_loop_runs_there_is_a_plain_error() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="without a running event loop"):
            run_virtual(never())

    run_virtual(main())
