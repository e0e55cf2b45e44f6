"""One pipeline, three times: live over a socket, from its recording, and in virtual time; the same comes out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest
import reactivex as rx
from reactivex import Observable, operators
from reactivex.subject import Subject
from tape import HeldClock, Player, Recorder
from wires import BACKENDS

from rx_sampler import (
    Completed,
    RetryPolicy,
    Sampler,
    SamplerConfig,
    SamplingEvent,
    ToolSpec,
    event_from_json,
    event_to_json,
)
from rx_sampler import operators as rxs
from rx_sampler.conversation import SamplingRequest
from rx_sampler.operators import Slo
from rx_sampler.simulator import Fault, Simulator, Timing, ToolCall, Turn
from rx_sampler.testing import run_virtual
from rx_sampler.wire.http import HttpTransport

EPOCH: Final = 1_800_000_000.0

TURN: Final = Turn(
    reasoning="A question about the sky. Light scatters.",
    text="The sky is blue. Short waves scatter most.\nAsk again at dusk.",
    tool_calls=(ToolCall(name="look_up", arguments={"what": "sky", "when": ["noon", "dusk"]}),),
    faults=(Fault(kind="cut", after_deltas=4),),
)
"""An answer whose first attempt breaks off."""

TIMING: Final = Timing(time_to_first_token_s=0.005, tokens_per_second=1000, jitter=0.5)

PIPELINES: Final[dict[str, Callable[[Observable[SamplingEvent]], Observable[Any]]]] = {
    "text": lambda events: events.pipe(rxs.text()),
    "time_to_first_token": lambda events: events.pipe(rxs.time_to_first_token()),
    "time_to_first_text": lambda events: events.pipe(rxs.time_to_first_text()),
    "inter_token_latency": lambda events: events.pipe(rxs.inter_token_latency()),
    "token_rate": lambda events: events.pipe(rxs.token_rate(0.01)),
    "latency_stats": lambda events: events.pipe(rxs.latency_stats()),
    "goodput": lambda events: events.pipe(rxs.goodput(Slo(time_to_first_token_ms=1000.0))),
    "in_flight": lambda events: events.pipe(rxs.in_flight()),
    "sentences": lambda events: events.pipe(rxs.sentences(), rxs.text()),
    "tool_calls": lambda events: events.pipe(rxs.tool_calls()),
    "partial_arguments": lambda events: events.pipe(rxs.partial_arguments()),
    "accumulate": lambda events: events.pipe(rxs.accumulate(), operators.map(lambda one: (one.text, one.tool_calls))),
}


def sampler(base_url: str, backend: str, transport: Any) -> Sampler:
    retry = RetryPolicy(max_retries=2, initial_backoff_s=0.01, max_backoff_s=0.01)
    config = SamplerConfig.model_validate({"backend": backend, "base_url": base_url, "model": "m", "retry": retry})
    return Sampler(config, transport=transport, random=lambda: 0.5)


QUESTION: Final = SamplingRequest.of("Why?").model_copy(update={"tools": (ToolSpec(name="look_up", parameters={}),)})


async def through_all(
    stream: Observable[SamplingEvent], clock: HeldClock | None
) -> tuple[list[SamplingEvent], dict[str, list[Any]]]:
    """The events, and what each pipeline makes of them."""
    shared: Subject[SamplingEvent] = Subject()
    seen: list[SamplingEvent] = []
    results: dict[str, list[Any]] = {name: [] for name in PIPELINES}
    shared.subscribe(seen.append)
    for name, pipeline in PIPELINES.items():
        pipeline(shared).subscribe(results[name].append)
    done = asyncio.get_running_loop().create_future()
    shared.subscribe(on_completed=lambda: done.set_result(None))
    if clock is None:
        stream.subscribe(shared)
    else:
        with clock.held(clock.seconds()):
            stream.subscribe(shared, scheduler=clock)
    async with asyncio.timeout(30):
        await done
    return seen, results


@pytest.mark.parametrize("backend", BACKENDS)
def test_live_recorded_and_virtual(backend: str) -> None:
    async def live() -> tuple[list[str], list[SamplingEvent], dict[str, list[Any]]]:
        async with Simulator(seed=5, timing=TIMING, script=[TURN]) as server:
            recorder = Recorder(HttpTransport())
            clock = HeldClock(asyncio.get_running_loop(), EPOCH)
            asked = sampler(server.base_url, backend, recorder).stream(QUESTION, request_id="r")
            return recorder.tape, *await through_all(asked, clock)

    async def virtual(tape: list[str], began_at: float) -> tuple[list[SamplingEvent], dict[str, list[Any]]]:
        clock = HeldClock(asyncio.get_running_loop(), began_at)
        asked = sampler("http://192.0.2.1/v1", backend, Player(tape)).stream(QUESTION, request_id="r")
        return await through_all(asked, clock)

    tape, events, results = asyncio.run(live())
    assert [event.kind for event in events].count("retrying") == 1
    assert isinstance(events[-1], Completed)
    assert all(results.values()), "a pipeline that says nothing proves nothing"

    lines = [event_to_json(event) for event in events]
    from_recording = asyncio.run(through_all(rx.from_iterable(map(event_from_json, lines)), None))
    assert from_recording == (events, results)

    began_at = next(event.submitted_at for event in events if event.kind == "stream_started")
    assert began_at is not None
    assert run_virtual(virtual(tape, began_at)) == (events, results)
