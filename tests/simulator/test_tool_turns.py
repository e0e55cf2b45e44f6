"""Conversations with tools between this library and its simulator, over a socket, on every endpoint."""

from __future__ import annotations

import json

import pytest

from rx_sampler import (
    Completed,
    ImagePart,
    RetryPolicy,
    Sampler,
    SamplerConfig,
    SamplingEvent,
    SamplingRequest,
    SamplingResponse,
)
from rx_sampler.backends.history import NO_RESULT
from rx_sampler.conversation import FunctionChoice, ToolResultItem
from rx_sampler.simulator import SimulatorThread, ToolCall, Turn
from rx_sampler.tools import run_tools

pytestmark = pytest.mark.parametrize("backend", ["chat_completions", "responses", "messages"])

PNG = "data:image/png;base64,iVBORw0KGgo="
BOTH = Turn(
    reasoning="Ask the sky.",
    text="Both at once.",
    tool_calls=(ToolCall(name="forecast", arguments={"place": "Oslo"}), ToolCall(name="clock")),
    delta_chars=3,
)


async def forecast(place: str) -> list[str | ImagePart]:
    """What is to come."""
    return [f"a map of {place}", ImagePart(url=PNG)]


def clock() -> dict[str, int]:
    """The time of day."""
    return {"hour": 12}


def sampler_of(simulator: SimulatorThread, backend: str) -> Sampler:
    retry = RetryPolicy(max_retries=0)
    return Sampler(SamplerConfig(backend=backend, base_url=simulator.base_url, model="any", retry=retry))


async def answer(sampler: Sampler, request: SamplingRequest) -> SamplingResponse:
    return (await sampler.collect(request)).response


@pytest.mark.parametrize("choice", [None, "required", FunctionChoice(name="forecast")])
async def test_a_call_and_then_words(
    simulator: SimulatorThread, backend: str, choice: str | FunctionChoice | None
) -> None:
    request = SamplingRequest.user("And tomorrow?").with_tools(forecast).replaced(tool_choice=choice)
    async with sampler_of(simulator, backend) as sampler:
        first = await answer(sampler, request)
        (call,) = first.tool_calls
        again = request.then(first, ToolResultItem(tool_call_id=call.id, content="rain"))
        second = await answer(sampler, again.replaced(tool_choice=None))

    assert (call.name, call.complete, first.stop_reason) == ("forecast", True, "tool_calls")
    assert call.arguments_json is not None
    assert list(call.arguments_json) == ["place"]
    assert (second.tool_calls, second.stop_reason) == ((), "stop")
    assert second.text
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.input_tokens > first.usage.input_tokens


async def test_the_loop_answers_two_calls_at_once(simulator: SimulatorThread, backend: str) -> None:
    simulator.script_next(BOTH, Turn(text="Take an umbrella."))
    request = SamplingRequest.user("Where", ImagePart(url=PNG), "is this?")
    events: list[SamplingEvent] = []
    async with sampler_of(simulator, backend) as sampler:
        await run_tools(sampler, request, [forecast, clock]).do_action(events.append)
    first, second = (event.response for event in events if isinstance(event, Completed))

    assert (first.reasoning, first.text, first.stop_reason) == ("Ask the sky.", "Both at once.", "tool_calls")
    assert [(call.name, call.arguments_json) for call in first.tool_calls] == [
        ("forecast", {"place": "Oslo"}),
        ("clock", {}),
    ]
    assert (second.text, second.stop_reason) == ("Take an umbrella.", "stop")
    said = told(simulator)
    order = ["is this?", "Both at once.", first.tool_calls[0].id, first.tool_calls[1].id, "a map of Oslo", "hour"]
    places = [said.index(words) for words in order]
    assert places == sorted(places)
    assert said.count("iVBORw0KGgo=") == 2
    assert [said.count(call.id) for call in first.tool_calls] == [2, 2]


async def test_reasoning_goes_back_where_it_can_be_proved(simulator: SimulatorThread, backend: str) -> None:
    simulator.script_next(BOTH)
    request = SamplingRequest.user("?").with_tools(forecast, clock)
    async with sampler_of(simulator, backend) as sampler:
        first = await answer(sampler, request)
        results = (ToolResultItem(tool_call_id=call.id, content="fine") for call in first.tool_calls)
        second = await answer(sampler, request.then(first, *results))

    assert second.stop_reason == "stop"
    (thought,) = (item for item in first.items if item.type == "reasoning")
    proof = {"chat_completions": "Ask the sky.", "responses": thought.encrypted_content, "messages": thought.signature}
    assert proof[backend]
    assert str(proof[backend]) in told(simulator)


async def test_a_call_without_a_result_is_told_as_not_run(simulator: SimulatorThread, backend: str) -> None:
    simulator.script_next(BOTH, Turn(text="Very well."))
    request = SamplingRequest.user("?").with_tools(forecast, clock)
    async with sampler_of(simulator, backend) as sampler:
        first = await answer(sampler, request)
        noon = ToolResultItem(tool_call_id=first.tool_calls[1].id, content="noon")
        second = await answer(sampler, request.then(first, noon, "Never mind."))

    assert second.text == "Very well."
    said = told(simulator)
    assert said.index("noon") < said.index(NO_RESULT) < said.index("Never mind.")
    assert [said.count(call.id) for call in first.tool_calls] == [2, 2]


def told(simulator: SimulatorThread) -> str:
    """The body that came last, as one text in which order shows."""
    body = simulator.requests[-1].body
    assert body is not None
    return json.dumps(body.get("messages") or body["input"], ensure_ascii=False)
