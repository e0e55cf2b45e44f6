"""What a storm looks for afterwards is found where it is there."""

import asyncio
import socket

from rx_sampler import Sampler, SamplerConfig
from rx_sampler.simulator import Fault, Simulator, Timing, Turn

from .leftovers import Baseline, in_sampler, running_requests, until


async def test_a_task_a_timer_and_a_socket_are_found_until_they_are_gone() -> None:
    before = Baseline()
    assert await before.left() == []
    waits = asyncio.Event()
    task = asyncio.create_task(waits.wait(), name="forgotten")
    timer = asyncio.get_running_loop().call_later(1000, waits.set)
    with socket.socket():
        found = await before.left(patience_s=0)
        assert [any(word in one for one in found) for word in ("forgotten", "TimerHandle", "1 sockets")] == [True] * 3
        assert len(found) == 3
    timer.cancel()
    waits.set()
    await task
    assert await before.left() == []


async def test_what_a_sampler_holds_is_found_until_its_requests_end() -> None:
    async with (
        Simulator(timing=Timing.instant(), script=[Turn(fault=Fault(kind="silent"))]) as server,
        Sampler(SamplerConfig(base_url=server.base_url, model="any", max_concurrency=1)) as sampler,
    ):
        assert in_sampler(sampler, subscribers=0) == []
        first, second = sampler.submit("one"), sampler.submit("two")
        sampler.events.subscribe()
        assert in_sampler(sampler, subscribers=0) == [
            "active_count: 2, expected 0",
            "running requests: 2, expected 0",
            "places taken: 1, expected 0",
            "places queued for: 1, expected 0",
            "subscribers of events: 1, expected 0",
        ]
        assert running_requests() >= 2
        sampler.cancel(first)
        sampler.cancel(second)
        assert in_sampler(sampler, subscribers=1) == []
        assert await until(lambda: server.active_count == 0)
