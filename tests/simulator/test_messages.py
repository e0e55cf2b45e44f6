"""Messages, as Anthropic's own client sees them and as they stand on the wire."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter

from rx_sampler.simulator import Fault, SimulatorThread, ToolCall, Turn, Usage

from .raw_http import MESSAGES, post

PATH = "/v1/messages"
QUESTION: Any = [{"role": "user", "content": "Why is the sky blue?"}]
WEATHER: Any = {
    "name": "get_weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
THINKING: Any = {"type": "enabled", "budget_tokens": 1024}
EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)


@pytest.fixture
def client(simulator: SimulatorThread) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(api_key="dummy", base_url=simulator.origin, max_retries=0) as client:
        yield client


def text_of(message: Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def test_a_stream_says_what_the_whole_answer_says(client: anthropic.Anthropic) -> None:
    whole = client.messages.create(model="some-model", max_tokens=4096, messages=QUESTION)
    with client.messages.stream(model="some-model", max_tokens=4096, messages=QUESTION) as stream:
        final = stream.get_final_message()
    assert text_of(whole).startswith('This is a simulated answer to "Why is the sky blue?".')
    assert final.model_dump(exclude={"usage"}) == whole.model_dump(exclude={"usage"})
    assert final.usage.output_tokens == whole.usage.output_tokens
    assert final.usage.input_tokens == whole.usage.input_tokens
    assert (whole.model, whole.stop_reason) == ("some-model", "end_turn")


def test_a_plain_stream_gives_the_events(client: anthropic.Anthropic) -> None:
    whole = client.messages.create(model="m", max_tokens=4096, messages=QUESTION)
    text = ""
    with client.messages.create(model="m", max_tokens=4096, messages=QUESTION, stream=True) as events:
        for event in events:
            if event.type == "content_block_delta" and event.delta.type == "text_delta":
                text += event.delta.text
    assert text == text_of(whole)


def test_every_frame_is_what_the_official_types_require(simulator: SimulatorThread) -> None:
    citation = {
        "type": "char_location",
        "cited_text": "blue",
        "document_index": 0,
        "document_title": None,
        "file_id": None,
        "start_char_index": 0,
        "end_char_index": 4,
    }
    calls = (ToolCall(name="get_weather", arguments={"city": "Bern"}),)
    turn = Turn(reasoning="Hm.", text="So:", tool_calls=calls, annotations=(citation,))
    simulator.script_next(turn, turn)
    Message.model_validate(post(simulator.origin, PATH, MESSAGES).json)
    streamed = post(simulator.origin, PATH, {**MESSAGES, "stream": True})
    for (name, _), frame in zip(streamed.events, streamed.data, strict=True):
        assert frame["type"] == name
        if name != "ping":
            EVENT.validate_python(frame)


def test_the_frames_of_a_short_answer(simulator: SimulatorThread) -> None:
    simulator.script_next(Turn(reasoning="Hm.", text="Hi there"))
    frames = post(simulator.origin, PATH, {**MESSAGES, "stream": True}).data
    start = frames[0]["message"]
    assert (start["content"], start["stop_reason"], start["usage"]["output_tokens"]) == ([], None, 1)
    signature = frames[5]["delta"]["signature"]
    assert signature
    assert frames[1:-2] == [
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "thinking", "thinking": "", "signature": ""},
        },
        {"type": "ping"},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "."}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": signature}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Hi"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": " there"}},
        {"type": "content_block_stop", "index": 1},
    ]
    assert frames[-2]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None, "stop_details": None}
    assert frames[-2]["usage"]["output_tokens"] == 4
    assert frames[-2]["usage"]["output_tokens_details"] == {"thinking_tokens": 2}
    assert frames[-1] == {"type": "message_stop"}


def test_the_token_limit_cuts(client: anthropic.Anthropic) -> None:
    whole = client.messages.create(model="m", max_tokens=4, messages=QUESTION)
    with client.messages.stream(model="m", max_tokens=4, messages=QUESTION) as stream:
        final = stream.get_final_message()
    for message in (whole, final):
        assert (text_of(message), message.stop_reason) == ("This is a simulated", "max_tokens")
        assert message.usage.output_tokens == 4


def test_a_stop_sequence_is_named(client: anthropic.Anthropic, simulator: SimulatorThread) -> None:
    simulator.script_next(Turn(text="one two three four"))
    whole = client.messages.create(model="m", max_tokens=64, messages=QUESTION, stop_sequences=["four", "three"])
    assert (text_of(whole), whole.stop_reason, whole.stop_sequence) == ("one two ", "stop_sequence", "three")


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "get_weather"}])
def test_a_forced_tool_is_called(client: anthropic.Anthropic, choice: Any) -> None:
    whole = client.messages.create(model="m", max_tokens=512, messages=QUESTION, tools=[WEATHER], tool_choice=choice)
    with client.messages.stream(
        model="m", max_tokens=512, messages=QUESTION, tools=[WEATHER], tool_choice=choice
    ) as stream:
        final = stream.get_final_message()
    assert final.content == whole.content
    (block,) = whole.content
    assert block.type == "tool_use"
    assert (block.name, block.input) == ("get_weather", {"city": "simulated city"})
    assert block.id.startswith("toolu_")
    assert whole.stop_reason == "tool_use"


def test_an_offered_tool_is_called_once_and_then_the_answer_is_in_words(client: anthropic.Anthropic) -> None:
    asked: list[Any] = [*QUESTION]
    first = client.messages.create(model="m", max_tokens=512, messages=asked, tools=[WEATHER])
    (block,) = first.content
    assert block.type == "tool_use"
    result = {"type": "tool_result", "tool_use_id": block.id, "content": "rain"}
    asked += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    second = client.messages.create(model="m", max_tokens=512, messages=asked, tools=[WEATHER])
    assert [block.type for block in second.content] == ["text"]
    asked += [{"role": "assistant", "content": second.content}, {"role": "user", "content": "And tomorrow?"}]
    third = client.messages.create(model="m", max_tokens=512, messages=asked, tools=[WEATHER])
    assert third.stop_reason == "tool_use"
    never = client.messages.create(
        model="m", max_tokens=512, messages=QUESTION, tools=[WEATHER], tool_choice={"type": "none"}
    )
    assert never.stop_reason == "end_turn"


def test_arguments_stream_in_fragments_after_an_empty_one(simulator: SimulatorThread) -> None:
    simulator.script_next(Turn(tool_calls=(ToolCall(name="a", arguments={"x": 1}, id="toolu_1"),), delta_chars=4))
    frames = post(simulator.origin, PATH, {**MESSAGES, "stream": True}).data
    block: dict[str, Any] = {"type": "tool_use", "id": "toolu_1", "name": "a", "input": {}}
    assert frames[1] == {"type": "content_block_start", "index": 0, "content_block": block}
    assert [f["delta"]["partial_json"] for f in frames if f["type"] == "content_block_delta"] == ["", '{"x"', ":1}"]


def test_thinking_when_asked_for(client: anthropic.Anthropic) -> None:
    whole = client.messages.create(model="m", max_tokens=4096, messages=QUESTION, thinking=THINKING)
    with client.messages.stream(model="m", max_tokens=4096, messages=QUESTION, thinking=THINKING) as stream:
        final = stream.get_final_message()
    assert [block.to_dict() for block in final.content] == [block.to_dict() for block in whole.content]
    thinking, text = whole.content
    assert thinking.type == "thinking"
    assert thinking.thinking.startswith("This is simulated reasoning")
    assert thinking.signature
    assert text.type == "text"
    plain = client.messages.create(model="m", max_tokens=4096, messages=QUESTION)
    assert [block.type for block in plain.content] == ["text"]
    assert text_of(plain) == text.text


def test_a_refusal_explains_the_stop(client: anthropic.Anthropic, simulator: SimulatorThread) -> None:
    simulator.script_next(Turn(refusal="I will not."), Turn(refusal="I will not."))
    whole = client.messages.create(model="m", max_tokens=64, messages=QUESTION)
    with client.messages.stream(model="m", max_tokens=64, messages=QUESTION) as stream:
        final = stream.get_final_message()
    for message in (whole, final):
        assert (message.content, message.stop_reason) == ([], "refusal")
    assert whole.stop_details is not None
    assert whole.stop_details.explanation == "I will not."


def test_an_answer_of_nothing_still_pings(simulator: SimulatorThread) -> None:
    simulator.script_next(Turn(text=""))
    frames = post(simulator.origin, PATH, {**MESSAGES, "stream": True}).data
    assert [frame["type"] for frame in frames] == ["message_start", "ping", "message_delta", "message_stop"]


def test_json_output_fits_its_schema(client: anthropic.Anthropic) -> None:
    schema = {"type": "object", "properties": {"n": {"const": 4}}, "required": ["n"]}
    output: Any = {"format": {"type": "json_schema", "schema": schema}}
    whole = client.messages.create(model="m", max_tokens=64, messages=QUESTION, output_config=output)
    assert text_of(whole) == '{"n":4}'


def test_usage_counts_the_cache_apart(client: anthropic.Anthropic, simulator: SimulatorThread) -> None:
    usage = Usage(input_tokens=100, output_tokens=7, cached_input_tokens=60, cache_creation_input_tokens=30)
    simulator.script_next(Turn(usage=usage), Turn(usage=usage))
    whole = client.messages.create(model="m", max_tokens=64, messages=QUESTION)
    with client.messages.stream(model="m", max_tokens=64, messages=QUESTION) as stream:
        final = stream.get_final_message()
    for message in (whole, final):
        counted = message.usage
        assert (counted.input_tokens, counted.output_tokens) == (10, 7)
        assert (counted.cache_read_input_tokens, counted.cache_creation_input_tokens) == (60, 30)


def test_headers(client: anthropic.Anthropic) -> None:
    raw = client.messages.with_raw_response.create(model="m", max_tokens=64, messages=QUESTION)
    message: Message = raw.parse()
    assert raw.headers["request-id"].startswith("req_")
    assert raw.headers["server"] == "rx-sampler-simulator"
    for name, used in (
        ("requests", 1),
        ("input-tokens", message.usage.input_tokens),
        ("output-tokens", message.usage.output_tokens),
    ):
        limit, left = (int(raw.headers[f"anthropic-ratelimit-{name}-{part}"]) for part in ("limit", "remaining"))
        assert limit - left == used
        assert raw.headers[f"anthropic-ratelimit-{name}-reset"] == "2026-01-01T00:00:01Z"


@pytest.mark.parametrize(
    ("status", "kind", "named"),
    [
        (400, anthropic.BadRequestError, "invalid_request_error"),
        (401, anthropic.AuthenticationError, "authentication_error"),
        (403, anthropic.PermissionDeniedError, "permission_error"),
        (404, anthropic.NotFoundError, "not_found_error"),
        (429, anthropic.RateLimitError, "rate_limit_error"),
        (500, anthropic.InternalServerError, "api_error"),
        (529, anthropic.InternalServerError, "overloaded_error"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_scripted_statuses_raise_the_right_exception(
    client: anthropic.Anthropic,
    simulator: SimulatorThread,
    status: int,
    kind: type[anthropic.APIStatusError],
    named: str,
    stream: bool,
) -> None:
    simulator.script_next(Turn(fault=Fault(kind="status", status=status, message="scripted")))
    with pytest.raises(kind) as caught:
        client.messages.create(model="m", max_tokens=64, messages=QUESTION, stream=stream)
    assert caught.value.status_code == status
    body: Any = caught.value.body
    assert body["error"] == {"type": named, "message": "scripted"}
    assert body["request_id"] == caught.value.request_id


def test_an_error_inside_a_stream_raises(client: anthropic.Anthropic, simulator: SimulatorThread) -> None:
    fault = Fault(kind="error", after_deltas=2, type="overloaded_error", message="try later")
    simulator.script_next(Turn(text="one two three", fault=fault))
    text = ""
    with (  # noqa: PT012 - what came before has to stay
        client.messages.create(model="m", max_tokens=64, messages=QUESTION, stream=True) as events,
        pytest.raises(anthropic.APIStatusError, match="try later"),
    ):
        for event in events:
            if event.type == "content_block_delta" and event.delta.type == "text_delta":
                text += event.delta.text
    assert text == "one two"


def test_without_streaming_the_same_error_is_a_status(client: anthropic.Anthropic, simulator: SimulatorThread) -> None:
    simulator.script_next(Turn(fault=Fault(kind="error", type="rate_limit_error", message="slow down")))
    with pytest.raises(anthropic.RateLimitError, match="slow down"):
        client.messages.create(model="m", max_tokens=64, messages=QUESTION)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"model": None}, "model"),
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"stop_sequences": 3}, "stop_sequences"),
        ({"tool_choice": {"type": "tool", "name": "nope"}}, "tool_choice"),
    ],
)
def test_invalid_requests_get_anthropics_error(simulator: SimulatorThread, change: dict[str, Any], param: str) -> None:
    answer = post(simulator.origin, PATH, {**MESSAGES, **change})
    assert answer.status == 400
    assert set(answer.json) == {"type", "error", "request_id"}
    assert answer.json["type"] == "error"
    assert answer.json["error"]["type"] == "invalid_request_error"
    assert answer.json["error"]["message"].startswith(f"{param}: ")
    assert answer.json["request_id"] == answer.headers["request-id"]
