"""Chat completions, as OpenAI's own client sees them and as they stand on the wire."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from rx_sampler.simulator import Fault, SimulatorThread, ToolCall, Turn, Usage

from .raw_http import CHAT, post

PATH = "/v1/chat/completions"
QUESTION: Any = [{"role": "user", "content": "Why is the sky blue?"}]
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"type": "string"}},
            "required": ["city", "days"],
        },
    },
}


@pytest.fixture
def client(simulator: SimulatorThread) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key="dummy", base_url=simulator.base_url, max_retries=0) as client:
        yield client


def text_of(chunks: list[ChatCompletionChunk], choice: int = 0) -> str:
    deltas = [c.delta.content for chunk in chunks for c in chunk.choices if c.index == choice]
    return "".join(delta or "" for delta in deltas)


def test_a_stream_says_what_the_whole_answer_says(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="some-model", messages=QUESTION)
    chunks = list(client.chat.completions.create(model="some-model", messages=QUESTION, stream=True))
    said = whole.choices[0].message.content
    assert said is not None
    assert said.startswith('This is a simulated answer to "Why is the sky blue?".')
    assert text_of(chunks) == said
    assert {(chunk.id, chunk.model, chunk.created) for chunk in chunks} == {(whole.id, "some-model", whole.created)}
    assert whole.choices[0].finish_reason == chunks[-1].choices[0].finish_reason == "stop"
    assert len([chunk for chunk in chunks if chunk.choices[0].delta.content]) > 10


def test_the_stream_helper_accumulates_it(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="m", messages=QUESTION)
    options: Any = {"include_usage": True}
    with client.chat.completions.stream(model="m", messages=QUESTION, stream_options=options) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == whole.choices[0].message.content
    assert final.usage == whole.usage


def test_every_frame_is_what_the_official_types_require(simulator: SimulatorThread) -> None:
    body = {**CHAT, "tools": [WEATHER], "tool_choice": "required", "reasoning_effort": "low"}
    whole = post(simulator.origin, PATH, body)
    streamed = post(simulator.origin, PATH, {**body, "stream": True, "stream_options": {"include_usage": True}})
    assert whole.headers["content-type"] == "application/json"
    assert streamed.headers["content-type"].startswith("text/event-stream")
    ChatCompletion.model_validate(whole.json)
    for chunk in streamed.data:
        ChatCompletionChunk.model_validate(chunk)
    assert [name for name, _ in streamed.events] == [None] * len(streamed.events)
    assert streamed.events[-1] == (None, "[DONE]")


def test_the_frames_of_a_short_answer(simulator: SimulatorThread) -> None:
    simulator.script_next(Turn(text="Hi there"))
    frames = post(simulator.origin, PATH, {**CHAT, "stream": True}).data
    assert [frame["choices"][0]["delta"] for frame in frames] == [
        {"role": "assistant", "content": "", "refusal": None},
        {"content": "Hi"},
        {"content": " there"},
        {},
    ]
    assert [frame["choices"][0]["finish_reason"] for frame in frames] == [None, None, None, "stop"]
    assert all("usage" not in frame for frame in frames)


def test_usage_comes_last_and_alone_when_asked_for(client: openai.OpenAI, simulator: SimulatorThread) -> None:
    body = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
    frames = post(simulator.origin, PATH, body).data
    assert [frame["usage"] for frame in frames[:-1]] == [None] * (len(frames) - 1)
    assert frames[-1]["choices"] == []
    usage = client.chat.completions.create(model="m", messages=QUESTION).usage
    assert usage is not None
    assert frames[-1]["usage"] == usage.model_dump(exclude_none=True)
    deltas = [frame for frame in frames if frame["choices"] and frame["choices"][0]["delta"].get("content")]
    assert usage.completion_tokens == len(deltas)
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_obfuscation_pads_deltas_unless_switched_off(simulator: SimulatorThread) -> None:
    padded = post(simulator.origin, PATH, {**CHAT, "stream": True}).data
    assert {(len(f["choices"][0]["delta"].get("content", "")) + len(f["obfuscation"])) % 16 for f in padded} == {0}
    bare = post(simulator.origin, PATH, {**CHAT, "stream": True, "stream_options": {"include_obfuscation": False}})
    assert all("obfuscation" not in frame for frame in bare.data)


def test_the_token_limit_cuts(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="m", messages=QUESTION, max_tokens=4)
    assert whole.choices[0].message.content == "This is a simulated"
    assert whole.choices[0].finish_reason == "length"
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 4
    chunks = list(client.chat.completions.create(model="m", messages=QUESTION, stream=True, max_completion_tokens=4))
    assert text_of(chunks) == "This is a simulated"
    assert chunks[-1].choices[0].finish_reason == "length"


def test_a_limit_that_is_just_enough_does_not_cut(client: openai.OpenAI, simulator: SimulatorThread) -> None:
    simulator.script_next(Turn(text="one two three"))
    whole = client.chat.completions.create(model="m", messages=QUESTION, max_tokens=3)
    assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == ("one two three", "stop")


@pytest.mark.parametrize("stop", ["three", ["six", "three"]])
def test_a_stop_sequence_ends_the_text_before_it(
    client: openai.OpenAI, simulator: SimulatorThread, stop: str | list[str]
) -> None:
    simulator.script_next(Turn(text="one two three four six"))
    whole = client.chat.completions.create(model="m", messages=QUESTION, stop=stop)
    assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == ("one two ", "stop")


def test_several_choices_come_interleaved(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="m", messages=QUESTION, n=3)
    chunks = list(client.chat.completions.create(model="m", messages=QUESTION, n=3, stream=True))
    said = [choice.message.content for choice in whole.choices]
    assert [choice.index for choice in whole.choices] == [0, 1, 2]
    assert len(set(said)) == 3
    assert [text_of(chunks, index) for index in range(3)] == said
    assert [chunk.choices[0].index for chunk in chunks[:6]] == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize(
    "choice",
    [
        "required",
        {"type": "function", "function": {"name": "get_weather"}},
        {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [WEATHER]}},
    ],
)
def test_a_forced_tool_is_called(client: openai.OpenAI, choice: Any) -> None:
    whole = client.chat.completions.create(model="m", messages=QUESTION, tools=[WEATHER], tool_choice=choice)
    with client.chat.completions.stream(model="m", messages=QUESTION, tools=[WEATHER], tool_choice=choice) as stream:
        final = stream.get_final_completion()
    for message, reason in (
        (whole.choices[0].message, whole.choices[0].finish_reason),
        (final.choices[0].message, final.choices[0].finish_reason),
    ):
        assert reason == "tool_calls"
        assert message.content is None
        assert message.tool_calls is not None
        (call,) = message.tool_calls
        assert call.type == "function"
        assert call.function.name == "get_weather"
        arguments = json.loads(call.function.arguments)
        assert set(arguments) == {"city", "days"}
        assert isinstance(arguments["city"], str)
        assert isinstance(arguments["days"], int)
    assert whole.choices[0].message.tool_calls is not None
    assert final.choices[0].message.tool_calls is not None
    assert whole.choices[0].message.tool_calls[0].id == final.choices[0].message.tool_calls[0].id


def test_an_offered_tool_is_called_once_and_then_the_answer_is_in_words(client: openai.OpenAI) -> None:
    asked: list[Any] = [*QUESTION]
    first = client.chat.completions.create(model="m", messages=asked, tools=[WEATHER], tool_choice="auto")
    message = first.choices[0].message
    assert message.tool_calls is not None
    asked += [message, {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "rain"}]
    # what cannot stand in a result may follow it
    seen: Any = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://img.test/rain.png"}}]}
    for more in ([], [seen]):
        second = client.chat.completions.create(model="m", messages=[*asked, *more], tools=[WEATHER])
        assert second.choices[0].message.tool_calls is None
        assert second.choices[0].message.content
    asked += [second.choices[0].message, {"role": "user", "content": "And tomorrow?"}]
    assert client.chat.completions.create(model="m", messages=asked, tools=[WEATHER]).choices[0].message.tool_calls


def test_an_offered_tool_is_not_called_where_it_may_not_or_json_is_wanted(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="m", messages=QUESTION, tools=[WEATHER], tool_choice="none")
    assert whole.choices[0].message.tool_calls is None
    whole = client.chat.completions.create(
        model="m", messages=QUESTION, tools=[WEATHER], response_format={"type": "json_object"}
    )
    assert whole.choices[0].message.tool_calls is None


def test_scripted_calls_stream_in_fragments(simulator: SimulatorThread) -> None:
    calls = (ToolCall(name="a", arguments={"x": 1}, id="call_1"), ToolCall(name="b"))
    simulator.script_next(Turn(text="Wait.", tool_calls=calls, delta_chars=4))
    frames = post(simulator.origin, PATH, {**CHAT, "stream": True}).data
    fragments = [call for f in frames for call in f["choices"][0]["delta"].get("tool_calls", [])]
    assert fragments[0] == {"index": 0, "id": "call_1", "type": "function", "function": {"name": "a", "arguments": ""}}
    assert fragments[1:3] == [
        {"index": 0, "function": {"arguments": '{"x"'}},
        {"index": 0, "function": {"arguments": ":1}"}},
    ]
    assert (fragments[3]["index"], fragments[3]["function"]) == (1, {"name": "b", "arguments": ""})
    assert fragments[3]["id"].startswith("call_")
    assert fragments[4:] == [{"index": 1, "function": {"arguments": "{}"}}]
    assert frames[0]["choices"][0]["delta"]["content"] == ""
    assert frames[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_arguments_cut_by_the_limit_are_left_broken(client: openai.OpenAI, simulator: SimulatorThread) -> None:
    simulator.script_next(Turn(tool_calls=(ToolCall(name="a", arguments={"x": 1}),)))
    whole = client.chat.completions.create(model="m", messages=QUESTION, max_tokens=3)
    assert whole.choices[0].finish_reason == "length"
    assert whole.choices[0].message.tool_calls is not None
    (call,) = whole.choices[0].message.tool_calls
    assert call.type == "function"
    assert call.function.arguments == '{"x'


def test_reasoning_when_asked_for(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="m", messages=QUESTION, reasoning_effort="low")
    chunks = list(client.chat.completions.create(model="m", messages=QUESTION, reasoning_effort="low", stream=True))
    message = whole.choices[0].message.model_dump()
    assert message["reasoning_content"].startswith("This is simulated reasoning")
    parts = [chunk.choices[0].delta.model_dump().get("reasoning_content") or "" for chunk in chunks]
    assert "".join(parts) == message["reasoning_content"]
    assert whole.usage is not None
    assert whole.usage.completion_tokens_details is not None
    assert whole.usage.completion_tokens_details.reasoning_tokens == len([part for part in parts if part])
    plain = client.chat.completions.create(model="m", messages=QUESTION)
    assert "reasoning_content" not in plain.choices[0].message.model_dump()
    assert plain.choices[0].message.content == whole.choices[0].message.content


def test_a_refusal(client: openai.OpenAI, simulator: SimulatorThread) -> None:
    simulator.script_next(Turn(refusal="I will not."), Turn(refusal="I will not."))
    whole = client.chat.completions.create(model="m", messages=QUESTION)
    assert (whole.choices[0].message.content, whole.choices[0].message.refusal) == (None, "I will not.")
    chunks = list(client.chat.completions.create(model="m", messages=QUESTION, stream=True))
    assert "".join(chunk.choices[0].delta.refusal or "" for chunk in chunks) == "I will not."


def test_a_content_filter(client: openai.OpenAI, simulator: SimulatorThread) -> None:
    simulator.script_next(Turn(text="So far", stop_reason="content_filter"))
    whole = client.chat.completions.create(model="m", messages=QUESTION)
    assert whole.choices[0].finish_reason == "content_filter"


def test_annotations_are_sent_as_they_stand(simulator: SimulatorThread) -> None:
    citation = {"type": "url_citation", "url_citation": {"url": "https://example.com", "title": "Example"}}
    simulator.script_next(Turn(text="See.", annotations=(citation,)), Turn(text="See.", annotations=(citation,)))
    assert post(simulator.origin, PATH, CHAT).json["choices"][0]["message"]["annotations"] == [citation]
    frames = post(simulator.origin, PATH, {**CHAT, "stream": True}).data
    assert [f["choices"][0]["delta"].get("annotations") for f in frames] == [None, None, None, [citation], None]


def test_json_output_fits_its_schema(client: openai.OpenAI) -> None:
    schema: Any = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema}}
    whole = client.chat.completions.create(model="m", messages=QUESTION, response_format=wanted)
    assert json.loads(whole.choices[0].message.content or "") == {"city": "simulated city"}
    loose: Any = {"type": "json_object"}
    whole = client.chat.completions.create(model="m", messages=QUESTION, response_format=loose)
    assert json.loads(whole.choices[0].message.content or "") == {"answer": "simulated answer"}


def test_usage_can_be_scripted(client: openai.OpenAI, simulator: SimulatorThread) -> None:
    simulator.script_next(Turn(usage=Usage(input_tokens=100, output_tokens=7, cached_input_tokens=60)))
    usage = client.chat.completions.create(model="m", messages=QUESTION).usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (100, 7, 107)
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == 60


def test_parts_of_a_message_are_read_and_images_are_not_counted_as_text(client: openai.OpenAI) -> None:
    image = "data:image/png;base64," + "A" * 100_000
    parts: Any = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": image}}]
    whole = client.chat.completions.create(model="m", messages=[{"role": "user", "content": parts}])
    assert (whole.choices[0].message.content or "").startswith('This is a simulated answer to "What is it?".')
    assert whole.usage is not None
    assert whole.usage.prompt_tokens < 100


def test_headers(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(model="m", messages=QUESTION)
    completion = raw.parse()
    assert raw.headers["server"] == "rx-sampler-simulator"
    assert raw.headers["x-request-id"].startswith("req_")
    assert completion.usage is not None
    used = int(raw.headers["x-ratelimit-limit-tokens"]) - int(raw.headers["x-ratelimit-remaining-tokens"])
    assert used == completion.usage.total_tokens
    assert {"x-ratelimit-reset-requests", "x-ratelimit-reset-tokens"} <= set(raw.headers)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (403, openai.PermissionDeniedError),
        (404, openai.NotFoundError),
        (409, openai.ConflictError),
        (422, openai.UnprocessableEntityError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
        (503, openai.InternalServerError),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_scripted_statuses_raise_the_right_exception(
    client: openai.OpenAI, simulator: SimulatorThread, status: int, kind: type[openai.APIStatusError], stream: bool
) -> None:
    simulator.script_next(Turn(fault=Fault(kind="status", status=status, code="some_code", message="scripted")))
    with pytest.raises(kind) as caught:
        client.chat.completions.create(model="m", messages=QUESTION, stream=stream)
    assert (caught.value.status_code, caught.value.code) == (status, "some_code")
    assert "scripted" in caught.value.message


def test_an_error_inside_a_stream_raises(client: openai.OpenAI, simulator: SimulatorThread) -> None:
    fault = Fault(kind="error", after_deltas=2, type="server_error", code="overloaded", message="try later")
    simulator.script_next(Turn(text="one two three", fault=fault))
    seen: list[ChatCompletionChunk] = []
    with pytest.raises(openai.APIError, match="try later") as caught:  # noqa: PT012 - what came before has to stay
        for chunk in client.chat.completions.create(model="m", messages=QUESTION, stream=True):
            seen.append(chunk)  # noqa: PERF402
    assert text_of(seen) == "one two"
    assert (caught.value.type, caught.value.code) == ("server_error", "overloaded")


@pytest.mark.parametrize(
    ("change", "param", "code"),
    [
        ({"model": None}, "model", "missing_required_parameter"),
        ({"model": 3}, "model", "invalid_type"),
        ({"messages": None}, "messages", "missing_required_parameter"),
        ({"messages": []}, "messages", "empty_array"),
        ({"messages": ["hi"]}, "messages", "invalid_type"),
        ({"max_tokens": 0}, "max_tokens", "integer_below_min_value"),
        ({"max_tokens": "many"}, "max_tokens", "invalid_type"),
        ({"n": 1000}, "n", "integer_above_max_value"),
        ({"stop": [1]}, "stop", "invalid_type"),
        ({"tool_choice": {"type": "function", "function": {"name": "nope"}}}, "tool_choice", "invalid_value"),
    ],
)
def test_invalid_requests_get_openais_error(
    simulator: SimulatorThread, change: dict[str, Any], param: str, code: str
) -> None:
    answer = post(simulator.origin, PATH, {**CHAT, **change})
    assert answer.status == 400
    error = answer.json["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, code)
    assert f"'{param}'" in error["message"]
    assert answer.headers["x-request-id"].startswith("req_")
