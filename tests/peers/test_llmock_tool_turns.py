"""Conversations with tools against llmock: what it hears of the second turn, and what it thinks of the client."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from rx_sampler import Completed, ImagePart, Sampler, SamplingEvent, SamplingRequest, SamplingResponse
from rx_sampler.backends.history import NO_RESULT
from rx_sampler.conversation import FunctionChoice
from rx_sampler.tools import run_call, run_tools

from .answers import BACKENDS
from .bodies import Said, conversation_of
from .llmocks import config_of, script
from .streams import completed
from .tool_turns import CLOCK, FORECAST, PNG, WEATHER, asking, result

if TYPE_CHECKING:
    from llmock.testing import LLMockServer

pytestmark = pytest.mark.parametrize("backend", BACKENDS)

BOTH: dict[str, Any] = {
    "type": "reply",
    "text": "Both at once.",
    "tool_calls": [{"name": "forecast", "arguments": {"place": "Oslo"}}, {"name": "clock", "arguments": {}}],
}


@pytest.fixture(scope="module")
def running() -> Generator[LLMockServer]:
    """Unless told otherwise it calls a tool that is offered, and once a result has come says what it heard."""
    pytest.importorskip("llmock", reason="llmock is not installed")
    from llmock.simulation import MockResponseSettings
    from llmock.testing import LLMockServer

    with LLMockServer(responses=MockResponseSettings(response_style="echo", tool_mode="auto")) as server:
        yield server


@pytest.fixture
def mock(running: LLMockServer) -> Generator[LLMockServer]:
    running.state.reset()
    yield running
    running.state.reset()


async def turn(mock: LLMockServer, backend: str, request: SamplingRequest) -> SamplingResponse:
    return (await completed(request, config_of(mock, backend))).response


async def asked_of(mock: LLMockServer, path: str) -> Any:
    async with aiohttp.ClientSession() as http, http.get(f"{mock.url}/_llmock/{path}") as response:
        return await response.json()


async def heard(mock: LLMockServer, backend: str) -> list[Said]:
    """The conversation that came last; every request before it was answered well and to its end."""
    requests: list[dict[str, Any]] = (await asked_of(mock, "requests"))["requests"]
    assert {(one["status"], one["completed"]) for one in requests} == {(200, True)}
    return conversation_of(backend, requests[-1]["body"])


@pytest.mark.parametrize("choice", [None, "required", FunctionChoice(name="weather")])
async def test_it_calls_a_tool_and_answers_what_came_of_it(
    mock: LLMockServer, backend: str, choice: str | FunctionChoice | None
) -> None:
    request = asking("And the weather?", tools=(CLOCK, WEATHER), tool_choice=choice)
    first = await turn(mock, backend, request)
    called = first.tool_calls[0].name
    again = request.then(first, *(result(call, "sunny, 21°") for call in first.tool_calls))
    second = await turn(mock, backend, again.replaced(tool_choice=None))

    assert called == "weather"
    assert first.tool_calls[0].arguments_json == {"city": "Paris", "days": 1}
    assert (second.tool_calls, second.stop_reason) == ((), "stop")
    system = "" if backend == "messages" else "Be brief. "  # which llmock's messages keep to themselves
    assert second.text == f"Hello! You said: {system}And the weather? sunny, 21°"
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.input_tokens > first.usage.input_tokens
    verdict = await asked_of(mock, "verdict")
    assert (verdict["passed"], verdict["calls"], verdict["findings"]) == (True, 2, [])


async def test_two_calls_at_once_with_images_all_around(mock: LLMockServer, backend: str) -> None:
    image = ImagePart(url=PNG)
    script(mock, BOTH)
    request = asking("Where", image, "is this?")
    first = await turn(mock, backend, request)
    forecast, clock = first.tool_calls
    again = request.then(first, result(clock, "noon"), result(forecast, "a map", images=(image,)), "Thanks.")
    script(mock, {"type": "reply", "text": "Not at all."})
    second = await turn(mock, backend, again)

    assert first.text == "Both at once."
    assert (second.text, second.stop_reason) == ("Not at all.", "stop")
    assert await heard(mock, backend) == [
        ("system", "Be brief."),
        ("user", "Where", PNG, "is this?"),
        ("assistant", "Both at once."),
        ("call", forecast.id, "forecast", {"place": "Oslo"}),
        ("call", clock.id, "clock", {}),
        ("result", clock.id, "noon"),
        ("result", forecast.id, "a map", PNG),
        ("user", "Thanks."),
    ]


async def test_a_call_without_a_result_is_told_as_not_run(mock: LLMockServer, backend: str) -> None:
    script(mock, BOTH)
    request = asking("both")
    first = await turn(mock, backend, request)
    forecast, clock = first.tool_calls
    second = await turn(mock, backend, request.then(first, result(clock, "noon")))

    assert second.stop_reason == "stop"
    assert (await heard(mock, backend))[2:] == [
        ("assistant", "Both at once."),
        ("call", forecast.id, "forecast", {"place": "Oslo"}),
        ("call", clock.id, "clock", {}),
        ("result", clock.id, "noon"),
        ("result", forecast.id, NO_RESULT),
    ]


@pytest.mark.parametrize(
    ("fault", "name", "arguments"),
    [("malformed_arguments", "forecast", {}), ("unknown_tool", "llmock_unknown_tool", {"place": "Oslo"})],
)
async def test_a_broken_call_is_not_run(
    mock: LLMockServer, backend: str, fault: str, name: str, arguments: dict[str, str]
) -> None:
    ran: list[str] = []
    script(
        mock,
        {"type": "reply", "tool_calls": [{"name": "forecast", "arguments": {"place": "Oslo"}}]},
        {"type": "tool_fault", "kind": fault},
    )
    request = asking("?", tools=(FORECAST,))
    first = await turn(mock, backend, request)
    (call,) = first.tool_calls

    def forecast(place: str) -> None:
        ran.append(place)

    refused = await run_call(call, [forecast])
    second = await turn(mock, backend, request.then(first, refused))

    assert ran == []
    assert refused.is_error
    assert second.stop_reason == "stop"
    assert (await heard(mock, backend))[2:] == [
        ("call", call.id, name, arguments),
        ("result", call.id, refused.content),
    ]


async def test_the_loop_goes_round_three_times(mock: LLMockServer, backend: str) -> None:
    ran: list[str] = []

    async def forecast(place: str) -> list[str | ImagePart]:
        ran.append(place)
        return ["a map of " + place, ImagePart(url=PNG)]

    def clock() -> dict[str, int]:
        ran.append("clock")
        return {"hour": 12}

    later = {"type": "reply", "tool_calls": [{"name": "forecast", "arguments": {"place": "Rome"}}]}
    script(mock, BOTH, later)
    events: list[SamplingEvent] = []
    async with Sampler(config_of(mock, backend)) as sampler:
        await run_tools(sampler, asking("both", tools=()), [forecast, clock]).do_action(events.append)
    first, second, third = (event.response for event in events if isinstance(event, Completed))
    (oslo, noon), (rome,) = first.tool_calls, second.tool_calls

    assert sorted(ran) == ["Oslo", "Rome", "clock"]
    assert (third.tool_calls, third.stop_reason) == ((), "stop")
    assert (await heard(mock, backend))[3:] == [
        ("call", oslo.id, "forecast", {"place": "Oslo"}),
        ("call", noon.id, "clock", {}),
        ("result", oslo.id, "a map of Oslo", PNG),
        ("result", noon.id, '{"hour":12}'),
        ("call", rome.id, "forecast", {"place": "Rome"}),
        ("result", rome.id, "a map of Rome", PNG),
    ]
    assert (await asked_of(mock, "verdict"))["findings"] == []
