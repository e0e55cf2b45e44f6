"""Loops over real sockets, on all three wire formats, against the simulator."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from wires import BACKENDS

from rx_sampler import Completed, Failed, RetryPolicy, Sampler, SamplerConfig, SamplingRequest
from rx_sampler.conversation import ImagePart
from rx_sampler.events import SamplingEvent, ToolResultAdded
from rx_sampler.simulator import Fault, Simulator, Timing, ToolCall, Turn
from rx_sampler.testing.grammar import check_all_events
from rx_sampler.tools import collect_tools, run_tools

IMAGE = ImagePart(url="data:image/png;base64,aGk=")


def add(x: int, y: int) -> int:
    """Add two numbers."""
    return x + y


async def chart(of: str) -> list[Any]:
    await asyncio.sleep(0)
    return [f"a chart of {of}", IMAGE]


def config(simulator: Simulator, backend: str, retries: int = 0) -> SamplerConfig:
    policy = RetryPolicy(max_retries=retries, initial_backoff_s=0.001, max_backoff_s=0.001)
    return SamplerConfig(backend=backend, base_url=simulator.base_url, model="m", retry=policy)


def calls(*wanted: tuple[str, dict[str, Any]]) -> Turn:
    return Turn(text="One moment.", tool_calls=tuple(ToolCall(name=name, arguments=said) for name, said in wanted))


async def events_of(sampler: Sampler, *arguments: Any, **options: Any) -> list[SamplingEvent]:
    seen: list[SamplingEvent] = []
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    run_tools(sampler, *arguments, **options).subscribe(
        seen.append, ended.set_exception, lambda: ended.set_result(None)
    )
    await ended
    check_all_events(seen)
    return seen


@pytest.mark.parametrize("backend", BACKENDS)
async def test_parallel_calls_sync_and_async_good_and_bad(backend: str) -> None:
    wanted = calls(("add", {"x": 1, "y": 2}), ("chart", {"of": "owls"}), ("add", {"x": 1}), ("gone", {}))
    async with Simulator(timing=Timing.instant(), script=[wanted, Turn(text="Done.")]) as simulator:
        async with Sampler(config(simulator, backend)) as sampler:
            seen = await events_of(sampler, "Go.", [add, chart])
        first, second = [request.body for request in simulator.requests]
    assert first is not None
    assert second is not None
    assert len(json.dumps(second)) > len(json.dumps(first))
    last = seen[-1]
    assert isinstance(last, Completed)
    assert last.response.text == "Done."
    results = {event.tool_call_id: event.result for event in seen if isinstance(event, ToolResultAdded)}
    called = next(event for event in seen if isinstance(event, Completed)).response.tool_calls
    assert [results[call.id].content for call in called] == [
        "3",
        "a chart of owls",
        "add was not run: y: Missing required argument; send one JSON object with x (required), y (required)",
        "no tool is called 'gone'; there are add, chart",
    ]
    assert results[called[1].id].images == (IMAGE,)
    # the results stand on the wire, in the order of the calls
    sent = json.dumps(second)
    places = [
        sent.index(json.dumps(text)[1:-1]) for text in ("a chart of owls", "add was not run", "no tool is called")
    ]
    assert places == sorted(places)


@pytest.mark.parametrize("backend", BACKENDS)
async def test_the_simulator_calls_a_tool_that_it_is_offered(backend: str) -> None:
    async with (
        Simulator(timing=Timing.instant()) as simulator,
        Sampler(config(simulator, backend)) as sampler,
    ):
        result = await collect_tools(sampler, "Go.", [add])
        forced = SamplingRequest.of("Go.").model_copy(update={"tool_choice": "required"})
        again = await collect_tools(sampler, forced, [add])
    for one in (result, again):
        first, second = one.turns
        assert [call.name for call in first.response.tool_calls] == ["add"]
        assert first.results[0].is_error is False
        assert second.response.text
        assert one.usage is not None
        assert first.response.usage is not None
        assert one.usage.output_tokens > first.response.usage.output_tokens


@pytest.mark.parametrize("backend", BACKENDS)
async def test_turns_are_retried_and_may_fail_each_for_itself(backend: str) -> None:
    broken = Fault(kind="status", status=503)
    script = [
        calls(("add", {"x": 1, "y": 2})).model_copy(update={"faults": (broken,)}),
        Turn(text="Never.", faults=(broken, broken)),
    ]
    async with (
        Simulator(timing=Timing.instant(), script=script) as simulator,
        Sampler(config(simulator, backend, retries=1)) as sampler,
    ):
        seen = await events_of(sampler, "Go.", [add])
    kinds = [(event.turn, event.kind) for event in seen if event.kind in ("retrying", "completed", "failed")]
    assert kinds == [(1, "retrying"), (1, "completed"), (2, "retrying"), (2, "failed")]
    last = seen[-1]
    assert isinstance(last, Failed)
    assert last.error.status == 503
    assert last.attempt == 2


@pytest.mark.parametrize("backend", BACKENDS)
async def test_dispose_in_the_middle_of_a_later_turn_hangs_up(backend: str) -> None:
    slow = Timing(time_to_first_token_s=0, tokens_per_second=1, jitter=0)
    script = [calls(("add", {"x": 1, "y": 2})), Turn(text="one two three four", timing=slow)]
    async with (
        Simulator(timing=Timing.instant(), script=script) as simulator,
        Sampler(config(simulator, backend)) as sampler,
    ):
        seen: list[SamplingEvent] = []
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_next(event: SamplingEvent) -> None:
            seen.append(event)
            if event.turn == 2 and event.kind == "channel_token" and not reached.done():
                reached.set_result(None)

        subscription = run_tools(sampler, "Go.", [add]).subscribe(on_next)
        await reached
        subscription.dispose()
        count = len(seen)
        for _ in range(10):
            await asyncio.sleep(0)
    assert len(seen) == count
    assert seen[-1].kind == "channel_token"
