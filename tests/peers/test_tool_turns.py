"""Conversations with tools against llama.cpp, judged by the prompt that it makes of the second turn."""

from __future__ import annotations

import pytest

from rx_sampler import (
    Completed,
    ImagePart,
    RetryPolicy,
    Sampler,
    SamplingErrorKind,
    SamplingEvent,
    SamplingRequest,
    SamplingResponse,
    StreamStarted,
    ToolCallDelta,
)
from rx_sampler.backends.history import NO_RESULT
from rx_sampler.conversation import FunctionChoice
from rx_sampler.events import ToolResultAdded
from rx_sampler.local import LocalServer
from rx_sampler.tools import run_call, run_tools

from . import tiny_gguf as tiny
from .answers import BACKENDS
from .streams import completed, events_of, failed
from .tiny_mmproj import IMAGE_TOKENS
from .tool_turns import PNG, WEATHER, asking, called, llama_config, prompt_of, result

pytestmark = pytest.mark.parametrize("backend", BACKENDS)

FORECAST_CALL = called("forecast", '{"place": "Oslo"}')
CLOCK_CALL = called("clock", "{}")


async def turn(server: LocalServer, backend: str, request: SamplingRequest) -> SamplingResponse:
    return (await completed(request, llama_config(server, backend))).response


async def last_turn(server: LocalServer, backend: str, request: SamplingRequest) -> str:
    """The prompt of a turn whose answer has to be one in words, streamed to its end."""
    response = await turn(server, backend, request)
    assert (response.text, response.tool_calls, response.stop_reason) == (tiny.TEXT, (), "stop")
    return await prompt_of(server)


@pytest.mark.parametrize("choice", ["required", FunctionChoice(name="weather")])
async def test_a_forced_call_is_answered(turns: LocalServer, backend: str, choice: str | FunctionChoice) -> None:
    request = asking("weather?", tools=(WEATHER,), tool_choice=choice)
    first = await turn(turns, backend, request)
    (call,) = first.tool_calls
    again = request.then(first, result(call, "sunny, 21°")).replaced(tool_choice="auto")
    second = await turn(turns, backend, again)

    assert (first.text, first.stop_reason) == (tiny.PREAMBLE, "tool_calls")
    assert (call.name, call.arguments_json, call.complete) == ("weather", {"city": "Paris", "days": 3}, True)
    assert (second.text, second.tool_calls, second.stop_reason) == (tiny.TEXT, (), "stop")
    assert await prompt_of(turns) == (
        f"[system]Be brief.[user]weather?[assistant]{tiny.PREAMBLE}"
        + called("weather", '{"city": "Paris", "days": 3}')
        + f"[tool {call.id}]sunny, 21°{tiny.TEXT_CUE}"
    )
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.input_tokens > first.usage.input_tokens


@pytest.mark.parametrize("parallel", [None, False])  # llama.cpp lets a model call as it likes
async def test_two_calls_at_once_are_answered(turns: LocalServer, backend: str, parallel: bool | None) -> None:
    request = asking("both", parallel_tool_calls=parallel)
    events = await events_of(request, llama_config(turns, backend))
    assert isinstance(events[-1], Completed)
    first = events[-1].response
    forecast, clock = first.tool_calls
    prompt = await last_turn(turns, backend, request.then(first, result(clock, "noon"), result(forecast, "rain")))

    assert first.text == tiny.BOTH
    assert first.stop_reason == "tool_calls"
    assert (forecast.name, forecast.arguments_json) == ("forecast", {"place": "Oslo"})
    assert (clock.name, clock.arguments_json) == ("clock", {})
    deltas = [event for event in events if isinstance(event, ToolCallDelta)]
    assert [(one.id, one.name) for one in deltas if one.id] == [(forecast.id, "forecast"), (clock.id, "clock")]
    arguments = ("".join(one.arguments_delta or "" for one in deltas if one.tool_index == index) for index in (0, 1))
    assert tuple(arguments) == (forecast.arguments, clock.arguments)
    assert prompt == (
        f"[system]Be brief.[user]both[assistant]{tiny.BOTH}{FORECAST_CALL}{CLOCK_CALL}"
        f"[tool {clock.id}]noon[tool {forecast.id}]rain{tiny.TEXT_CUE}"
    )


async def test_a_third_turn_holds_the_first_two(turns: LocalServer, backend: str) -> None:
    request = asking("both")
    first = await turn(turns, backend, request)
    request = request.then(first, *(result(call, "fine") for call in first.tool_calls))
    second = await turn(turns, backend, request)
    before = await prompt_of(turns)
    prompt = await last_turn(turns, backend, request.then(second, "Thanks."))

    assert prompt == f"{before.removesuffix(tiny.TEXT_CUE)}[assistant]{tiny.TEXT}[user]Thanks.{tiny.TEXT_CUE}"


async def test_a_call_without_a_result_is_told_as_not_run(turns: LocalServer, backend: str) -> None:
    request = asking("both")
    first = await turn(turns, backend, request)
    forecast, clock = first.tool_calls
    prompt = await last_turn(turns, backend, request.then(first, result(clock, "noon"), "Never mind."))

    assert prompt == (
        f"[system]Be brief.[user]both[assistant]{tiny.BOTH}{FORECAST_CALL}{CLOCK_CALL}"
        f"[tool {clock.id}]noon[tool {forecast.id}]{NO_RESULT}[user]Never mind.{tiny.TEXT_CUE}"
    )


async def test_a_call_that_the_token_limit_cuts_is_not_run(turns: LocalServer, backend: str) -> None:
    ran: list[str] = []

    def forecast(place: str) -> str:
        ran.append(place)
        return "rain"

    request = asking("both", max_output_tokens=3)  # the phrase before the calls, and two of the first call's three
    first = await turn(turns, backend, request)
    (call,) = first.tool_calls
    refused = await run_call(call, [forecast])
    again = request.then(first, refused).replaced(max_output_tokens=100)
    prompt = await last_turn(turns, backend, again)

    assert (call.name, call.complete) == ("forecast", False)
    assert ran == []
    assert refused.is_error
    assert prompt == (
        f"[system]Be brief.[user]both[assistant]{tiny.BOTH}{called('forecast', '{}')}"
        f"[tool {call.id}]{refused.content}{tiny.TEXT_CUE}"
    )


async def test_a_thought_before_a_call(turns: LocalServer, backend: str) -> None:
    request = asking("plan")
    first = await turn(turns, backend, request)
    (call,) = first.tool_calls
    prompt = await last_turn(turns, backend, request.then(first, result(call, "rain")))

    assert (first.reasoning, first.text) == (tiny.PLAN, "")
    assert prompt == (
        f"[system]Be brief.[user]plan[assistant]<think>{tiny.PLAN}</think>"
        + called("forecast", '{"place": "Rome"}')
        + f"[tool {call.id}]rain{tiny.TEXT_CUE}"
    )


async def test_the_loop_runs_both_calls_and_ends_in_words(turns: LocalServer, backend: str) -> None:
    ran: list[str] = []

    async def forecast(place: str) -> str:
        """What is to come."""
        ran.append(f"forecast {place}")
        return "rain"

    def clock() -> str:
        """The time of day."""
        ran.append("clock")
        raise RuntimeError("it stands still")

    events: list[SamplingEvent] = []
    async with Sampler(llama_config(turns, backend)) as sampler:
        await run_tools(sampler, asking("both", tools=()), [forecast, clock]).do_action(events.append)
    prompt = await prompt_of(turns)
    first, second = (event.response for event in events if isinstance(event, Completed))
    added = {event.name: event.result for event in events if isinstance(event, ToolResultAdded)}

    assert sorted(ran) == ["clock", "forecast Oslo"]
    assert [event.turn for event in events if isinstance(event, StreamStarted)] == [1, 2]
    assert (second.text, second.stop_reason) == (tiny.TEXT, "stop")
    assert (added["forecast"].content, added["clock"].is_error) == ("rain", True)
    assert prompt.endswith(
        f"[tool {first.tool_calls[0].id}]rain[tool {first.tool_calls[1].id}]{added['clock'].content}{tiny.TEXT_CUE}"
    )


async def test_images_of_the_user_and_of_a_tool(seeing: LocalServer, backend: str) -> None:
    image = ImagePart(url=PNG)
    request = asking("both", image)
    first = await turn(seeing, backend, request)
    forecast, clock = first.tool_calls
    again = request.then(first, result(forecast, "a map", images=(image,)), result(clock, "noon"))
    second = await turn(seeing, backend, again)
    seen = await prompt_of(seeing)
    unillustrated = asking("both").then(first, result(forecast, "a map"), result(clock, "noon"))
    without = await turn(seeing, backend, unillustrated)
    unseen = await prompt_of(seeing)

    assert (second.text, second.stop_reason) == (tiny.TEXT, "stop")
    # The text behind an image begins anew, which with this vocabulary means with a space.
    assert seen == (
        f"[system]Be brief.[user]both [assistant]{tiny.BOTH}{FORECAST_CALL}{CLOCK_CALL}"
        f"[tool {forecast.id}]a map [tool {clock.id}]noon{tiny.TEXT_CUE}"
    )
    assert second.usage is not None
    assert without.usage is not None
    more = second.usage.input_tokens - without.usage.input_tokens
    assert more == 2 * IMAGE_TOKENS + len(seen) - len(unseen)


async def test_an_image_that_the_model_cannot_see(turns: LocalServer, backend: str) -> None:
    end = await failed(asking("Look:", ImagePart(url=PNG)), llama_config(turns, backend))

    assert (end.error.kind, end.error.status) == (SamplingErrorKind.API, 500)
    assert "image input is not supported" in end.error.message
    assert end.partial is None


async def test_the_conversation_goes_on_without_the_images(turns: LocalServer, backend: str) -> None:
    request = asking("both")
    first = await turn(turns, backend, request)
    forecast, clock = first.tool_calls
    again = request.then(first, result(forecast, "a map", images=(ImagePart(url=PNG),)), result(clock, "noon"))
    once_more = RetryPolicy(max_retries=1, initial_backoff_s=0.01, max_backoff_s=0.01)
    async with Sampler(llama_config(turns, backend, retry=once_more)) as sampler:
        end = await sampler.collect(again)

    assert [event.stripped_urls for event in end.images_stripped] == [(PNG,)]
    assert end.response.text == tiny.TEXT
    assert (await prompt_of(turns)).endswith(f"[tool {forecast.id}]a map[tool {clock.id}]noon{tiny.TEXT_CUE}")
