"""Against llama.cpp's own server, through xllamacpp, with a model whose answers are known."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from rx_sampler import (
    ChannelToken,
    Failed,
    FirstToken,
    Sampler,
    SamplerConfig,
    SamplingErrorKind,
    SamplingEvent,
    SamplingRequest,
    StreamStarted,
    ToolCallDelta,
    ToolSpec,
    UserItem,
)
from rx_sampler.conversation import ToolResultItem
from rx_sampler.local import LocalServer

from . import tiny_gguf as tiny
from .answers import BACKENDS, Answer, unstreamed
from .streams import ONCE, completed, events_of, failed

pytestmark = pytest.mark.parametrize("backend", BACKENDS)

MANY_TOKENS = 120_000  # would take minutes; the messages backend must name a limit, and would name a smaller one

WEATHER = ToolSpec(
    name="weather",
    description="The weather of a city.",
    parameters={
        "type": "object",
        "properties": {"city": {"enum": ["Paris"]}, "days": {"type": "integer"}},
        "required": ["city", "days"],
    },
)


def config_of(server: LocalServer, backend: str, **fields: Any) -> SamplerConfig:
    return SamplerConfig(backend=backend, base_url=server.base_url, model=server.model, retry=ONCE, **fields)


def asking(question: str, **fields: Any) -> SamplingRequest:
    """A request that is answered the same each time: greedy, and without the prompt cache, which shows in `usage`."""
    extra = {"seed": 1, "cache_prompt": False, **fields.pop("extra_body", {})}
    return SamplingRequest(
        items=(UserItem.model_validate({"content": question}),), temperature=0.0, extra_body=extra, **fields
    )


async def both_ways(request: SamplingRequest, config: SamplerConfig) -> tuple[Answer, Answer]:
    """What streams, and what the same server answers to the same request in one piece."""
    end = await completed(request, config)
    return Answer.of(end.response), await unstreamed(request, config)


async def test_text(plain: LocalServer, backend: str) -> None:
    config = config_of(plain, backend)
    events = await events_of(asking("hi"), config)
    streamed, whole = await both_ways(asking("hi"), config)

    assert streamed == whole
    assert streamed.text == tiny.TEXT
    assert streamed.stop_reason == "stop"
    # The server waits for a whole character: three byte tokens make one piece, and the end mark none.
    pieces = [event.text for event in events if isinstance(event, ChannelToken)]
    assert len(pieces) == streamed.output_tokens - 3
    assert "☂" in pieces


async def test_reasoning(thinking: LocalServer, backend: str) -> None:
    config = config_of(thinking, backend)
    events = await events_of(asking("hi"), config)
    streamed, whole = await both_ways(asking("hi"), config)

    assert streamed == whole
    assert (streamed.reasoning, streamed.text) == (tiny.REASONING, tiny.ANSWER)
    assert [event.channel for event in events if isinstance(event, FirstToken)] == ["reasoning"]


async def test_a_forced_tool_call(tools: LocalServer, backend: str) -> None:
    request = asking("hi", tools=(WEATHER,), tool_choice="required", max_output_tokens=200)
    config = config_of(tools, backend)
    events = await events_of(request, config)
    streamed, whole = await both_ways(request, config)

    assert streamed == whole
    assert streamed.text == tiny.PREAMBLE
    assert streamed.calls == (("weather", {"city": "Paris", "days": 3}),)
    assert streamed.stop_reason == "tool_calls"
    deltas = [event for event in events if isinstance(event, ToolCallDelta)]
    assert deltas[0].id
    assert deltas[0].name == "weather"
    assert {delta.tool_index for delta in deltas} == {0}


async def test_a_tool_call_that_the_token_limit_cuts(tools: LocalServer, backend: str) -> None:
    request = asking("hi", tools=(WEATHER,), tool_choice="required", max_output_tokens=50)
    end = await completed(request, config_of(tools, backend))

    (call,) = end.response.tool_calls
    assert call.name == "weather"
    assert call.arguments.startswith("{")
    assert not call.complete
    assert call.arguments_json is None
    assert end.response.usage is not None
    assert end.response.usage.output_tokens == 50


async def test_a_turn_goes_back_as_it_came(tools: LocalServer, backend: str) -> None:
    config = config_of(tools, backend)
    request = asking("hi", tools=(WEATHER,), tool_choice="required", max_output_tokens=200)
    first = (await completed(request, config)).response
    result = ToolResultItem(tool_call_id=first.tool_calls[0].id, content="sunny")
    again = request.model_copy(update={"items": (*request.items, *first.items, result)})
    streamed, whole = await both_ways(again, config)

    assert streamed == whole
    assert first.usage is not None
    assert streamed.input_tokens > first.usage.input_tokens


async def test_reasoning_goes_back(thinking: LocalServer, backend: str) -> None:
    config = config_of(thinking, backend)
    request = asking("hi")
    first = (await completed(request, config)).response
    streamed, whole = await both_ways(request.then(first, "and?"), config)
    thoughtless = first.model_copy(update={"items": [item for item in first.items if item.type != "reasoning"]})
    without = await unstreamed(request.then(thoughtless, "and?"), config)

    assert streamed == whole
    assert first.reasoning == tiny.REASONING
    assert streamed.input_tokens > without.input_tokens


async def test_a_stop_sequence(plain: LocalServer, backend: str) -> None:
    config = config_of(plain, backend)
    stop = "\nQuestion:"
    # The responses API has no stop sequences; llama.cpp takes one in each of its formats.
    given = {"extra_body": {"stop": [stop]}} if backend == "responses" else {"stop": (stop,)}
    streamed, whole = await both_ways(asking("tell a story", **given), config)

    assert streamed == whole
    assert streamed.text == "Once upon"
    assert tiny.STORY.startswith("Once upon" + stop)
    assert streamed.stop_reason == "stop"


async def test_max_tokens(plain: LocalServer, backend: str) -> None:
    streamed, whole = await both_ways(asking("loop", max_output_tokens=10), config_of(plain, backend))

    assert streamed == whole
    assert streamed.text == "".join((tiny.LOOP * 3)[:10])
    assert streamed.output_tokens == 10
    # llama.cpp's responses endpoint calls a cut answer completed, and says nothing else about it.
    assert streamed.stop_reason == ("stop" if backend == "responses" else "length")


async def test_an_answer_that_fills_the_context(plain: LocalServer, backend: str) -> None:
    streamed, whole = await both_ways(asking("loop"), config_of(plain, backend))

    assert streamed == whole
    assert streamed.input_tokens + streamed.output_tokens == 512
    assert streamed.text.startswith("".join(tiny.LOOP * 50))


async def test_a_prompt_larger_than_the_context(plain: LocalServer, backend: str) -> None:
    end = await failed(asking("x " * 600), config_of(plain, backend))

    assert (end.error.kind, end.error.status) == (SamplingErrorKind.API, 400)
    assert end.error.is_context_overflow
    assert not end.error.is_retryable
    assert end.partial is None


async def test_a_request_that_the_server_refuses(plain: LocalServer, backend: str) -> None:
    end = await failed(asking("hi", extra_body={"temperature": "hot"}), config_of(plain, backend))

    assert end.error.kind is SamplingErrorKind.API
    assert end.error.status is not None
    assert end.error.message
    assert not end.error.is_context_overflow


async def test_a_wrong_address(plain: LocalServer, backend: str) -> None:
    config = config_of(plain, backend).model_copy(update={"base_url": plain.base_url + "/nowhere"})
    end = await failed(asking("hi"), config)

    assert (end.error.kind, end.error.status) == (SamplingErrorKind.API, 404)
    assert not end.error.is_retryable


async def test_a_server_that_is_not_there(tiny_model: Path, backend: str) -> None:
    with LocalServer(tiny_model) as server:
        config = config_of(server, backend)
    end = await failed(asking("hi"), config)

    assert (end.error.kind, end.error.status) == (SamplingErrorKind.HTTP, None)
    assert end.error.is_retryable
    assert end.partial is None


async def test_a_server_killed_in_the_middle(tiny_model: Path, backend: str) -> None:
    async with LocalServer(tiny_model, chat_template=tiny.PLAIN_TEMPLATE, context=100_000) as server:

        def kill(event: SamplingEvent) -> None:
            if isinstance(event, ChannelToken) and event.chunk_index == 3:
                assert server.pid is not None
                os.kill(server.pid, signal.SIGKILL)

        end = await failed(asking("loop", max_output_tokens=MANY_TOKENS), config_of(server, backend), kill)

    assert (end.error.kind, end.error.status) == (SamplingErrorKind.HTTP, None)
    assert end.error.is_retryable
    assert end.partial is not None
    assert end.partial.text.startswith("".join(tiny.LOOP[:3]))
    assert end.partial.stop_reason is None


async def test_a_server_killed_in_the_middle_of_a_tool_call(tiny_model: Path, backend: str) -> None:
    free_text = ToolSpec(name="note", parameters={"type": "object", "properties": {"text": {"type": "string"}}})
    async with LocalServer(tiny_model, chat_template=tiny.TOOLS_TEMPLATE, context=100_000) as server:

        def kill(event: SamplingEvent) -> None:
            if isinstance(event, ToolCallDelta) and event.arguments_delta:
                assert server.pid is not None
                os.kill(server.pid, signal.SIGKILL)

        request = asking("hi", tools=(free_text,), tool_choice="required")
        end = await failed(request, config_of(server, backend), kill)

    assert end.error.kind is SamplingErrorKind.HTTP
    assert end.partial is not None
    (call,) = end.partial.tool_calls
    assert (call.name, call.complete) == ("note", False)


async def test_disposing_frees_the_only_slot(tiny_model: Path, backend: str) -> None:
    # One request at a time, and one that would take the server minutes: the next is answered only if the first stops.
    async with LocalServer(tiny_model, chat_template=tiny.PLAIN_TEMPLATE, context=131_072, parallel=1) as server:
        config = config_of(server, backend, header_timeout_s=20.0)
        seen: list[SamplingEvent] = []
        begun = asyncio.Event()

        def on_next(event: SamplingEvent) -> None:
            seen.append(event)
            if isinstance(event, ChannelToken):
                begun.set()

        async with Sampler(config) as sampler:
            subscription = sampler.stream(asking("loop", max_output_tokens=MANY_TOKENS)).subscribe(on_next)
            await begun.wait()
            subscription.dispose()
            count = len(seen)
            result = await sampler.collect(asking("hi"))

    assert result.response.text == tiny.TEXT
    assert len(seen) == count
    assert isinstance(seen[0], StreamStarted)


async def test_cancelling_collect_leaves_no_request_in_the_queue(tiny_model: Path, backend: str) -> None:
    async with (
        LocalServer(tiny_model, chat_template=tiny.PLAIN_TEMPLATE, context=131_072, parallel=1) as server,
        Sampler(config_of(server, backend, header_timeout_s=20.0)) as sampler,
    ):
        begun = asyncio.Event()
        occupying = sampler.stream(asking("loop", max_output_tokens=MANY_TOKENS)).subscribe(lambda _: begun.set())
        await begun.wait()
        waiting = asyncio.create_task(sampler.collect(asking("loop", max_output_tokens=MANY_TOKENS)))
        await asyncio.sleep(0)  # let it start
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        occupying.dispose()

        assert (await sampler.collect(asking("hi"))).response.text == tiny.TEXT


async def test_two_streams_at_a_time_do_not_mix(plain: LocalServer, backend: str) -> None:
    config = config_of(plain, backend)
    loop, text = await asyncio.gather(
        completed(asking("loop", max_output_tokens=40), config), completed(asking("hi"), config)
    )

    assert loop.response.text == "".join(tiny.LOOP * 10)
    assert text.response.text == tiny.TEXT


async def test_an_answer_of_nothing_is_told_apart(plain: LocalServer, backend: str) -> None:
    # Its stop sequence is the first token, so nothing is left to say.
    stop = {"extra_body": {"stop": ["Hello"]}} if backend == "responses" else {"stop": ("Hello",)}
    end = (await events_of(asking("hi", **stop), config_of(plain, backend)))[-1]

    assert isinstance(end, Failed)
    assert end.error.kind is SamplingErrorKind.EMPTY_RESPONSE
    assert end.error.is_retryable
