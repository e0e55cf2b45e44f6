"""Time: a scheduler on the loop's own clock, and clocks read off schedulers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from reactivex import abc
from reactivex.scheduler.eventloop import AsyncIOScheduler, AsyncIOThreadSafeScheduler
from reactivex.testing import TestScheduler

from rx_sampler.scheduling import LoopTimeScheduler, clock_of, request_scheduler


class SteeredLoop(asyncio.SelectorEventLoop):
    """A loop whose time stands still until a test moves it, at which its timers come due."""

    at = 50.0

    def time(self) -> float:
        return self.at

    def turn(self) -> None:
        """Run what is due."""
        self.call_soon(self.stop)
        self.run_forever()


@pytest.fixture
def loop() -> Iterator[SteeredLoop]:
    steered = SteeredLoop()
    yield steered
    steered.close()


def test_now_is_the_epoch_and_what_the_loop_advanced(loop: SteeredLoop) -> None:
    scheduler = LoopTimeScheduler(loop, epoch=1_000.0)
    assert (scheduler.seconds(), scheduler.now) == (1_000.0, datetime.fromtimestamp(1_000, UTC))
    loop.at += 2.5
    assert (scheduler.seconds(), scheduler.now) == (1_002.5, datetime.fromtimestamp(1_002.5, UTC))


def test_the_epoch_is_the_wall_clock_and_its_steps_do_not_matter(
    loop: SteeredLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall = 1_700_000_000.0
    monkeypatch.setattr(time, "time", lambda: wall)
    scheduler = LoopTimeScheduler(loop)
    assert scheduler.seconds() == 1_700_000_000.0
    wall = 5.0
    loop.at += 1
    assert scheduler.seconds() == 1_700_000_001.0


def test_an_epoch_of_zero_is_one(loop: SteeredLoop) -> None:
    assert LoopTimeScheduler(loop, epoch=0.0).seconds() == 0.0


def test_timers_come_due_by_the_loops_time(loop: SteeredLoop) -> None:
    scheduler = LoopTimeScheduler(loop, epoch=1_000.0)
    fired: list[tuple[str, float]] = []

    def note(name: str) -> abc.ScheduledAction[Any]:
        def action(_scheduler: abc.SchedulerBase, _state: object = None) -> None:
            fired.append((name, scheduler.seconds()))

        return action

    scheduler.schedule(note("now"))
    scheduler.schedule_relative(2.0, note("relative"))
    scheduler.schedule_absolute(scheduler.now + timedelta(seconds=5), note("absolute"))
    cancelled = scheduler.schedule_relative(3.0, note("cancelled"))
    loop.turn()
    assert fired == [("now", 1_000.0)]
    loop.at += 2
    cancelled.dispose()
    loop.turn()
    assert fired[1:] == [("relative", 1_002.0)]
    loop.at += 2
    loop.turn()
    assert len(fired) == 2
    loop.at += 1
    loop.turn()
    assert fired[2:] == [("absolute", 1_005.0)]


def test_a_clock_follows_its_scheduler(loop: SteeredLoop) -> None:
    assert clock_of(None) is time.time
    of_loop = clock_of(LoopTimeScheduler(loop, epoch=7.0))
    loop.at += 1
    assert of_loop() == 8.0
    virtual = TestScheduler()
    of_virtual = clock_of(virtual)
    virtual.advance_to(12.5)
    assert of_virtual() == 12.5


def test_the_clock_of_an_rxpy_scheduler_is_its_now(loop: SteeredLoop) -> None:
    before = time.time()
    assert before - 1e-3 <= clock_of(AsyncIOScheduler(loop))() <= time.time() + 1e-3


async def test_a_request_runs_on_the_running_loops_time() -> None:
    running = asyncio.get_running_loop()
    fired: asyncio.Queue[None] = asyncio.Queue()

    def action(_scheduler: abc.SchedulerBase, _state: object = None) -> None:
        fired.put_nowait(None)

    for given in (None, AsyncIOScheduler(running), AsyncIOThreadSafeScheduler(running)):
        scheduler = request_scheduler(given)
        assert isinstance(scheduler, LoopTimeScheduler)
        scheduler.schedule_relative(0.0, action)
        await fired.get()


async def test_other_schedulers_are_taken_as_they_are() -> None:
    for given in (TestScheduler(), LoopTimeScheduler(asyncio.get_running_loop(), epoch=0.0)):
        assert request_scheduler(given) is given


def test_without_a_running_loop_there_is_a_plain_error(loop: SteeredLoop) -> None:
    for given in (None, AsyncIOScheduler(loop)):
        with pytest.raises(RuntimeError, match="needs a running asyncio event loop"):
            request_scheduler(given)
    virtual = TestScheduler()
    assert request_scheduler(virtual) is virtual
