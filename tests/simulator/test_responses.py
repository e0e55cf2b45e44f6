"""Responses, as OpenAI's own client sees them and as they stand on the wire."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from rx_sampler.simulator import Fault, SimulatorThread, ToolCall, Turn, Usage

from .raw_http import RESPONSES, post

PATH = "/v1/responses"
QUESTION = "Why is the sky blue?"
WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


@pytest.fixture
def client(simulator: SimulatorThread) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key="dummy", base_url=simulator.base_url, max_retries=0) as client:
        yield client


def kinds(frames: list[Any]) -> list[str]:
    return [frame["type"] for frame in frames]


def test_a_stream_says_what_the_whole_answer_says(client: openai.OpenAI) -> None:
    whole = client.responses.create(model="some-model", input=QUESTION)
    events = list(client.responses.create(model="some-model", input=QUESTION, stream=True))
    assert whole.output_text.startswith('This is a simulated answer to "Why is the sky blue?".')
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response == whole
    assert (whole.model, whole.status) == ("some-model", "completed")


def test_the_stream_helper_accumulates_it(client: openai.OpenAI) -> None:
    reasoning: Any = {"effort": "low", "summary": "auto"}
    whole = client.responses.create(model="m", input=QUESTION, reasoning=reasoning)
    with client.responses.stream(model="m", input=QUESTION, reasoning=reasoning) as stream:
        final = stream.get_final_response()
    assert final.output_text == whole.output_text
    assert final.usage == whole.usage
    assert [item.type for item in final.output] == ["reasoning", "message"]


def test_every_frame_is_what_the_official_types_require(simulator: SimulatorThread) -> None:
    body = {
        **RESPONSES,
        "tools": [WEATHER],
        "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
    }
    citation = {
        "type": "url_citation",
        "url": "https://example.com",
        "title": "Example",
        "start_index": 0,
        "end_index": 2,
    }
    calls = (ToolCall(name="get_weather", arguments={"city": "Bern"}),)
    turn = Turn(text="So:", refusal="no", tool_calls=calls, annotations=(citation,))
    simulator.script_next(turn, turn)
    Response.model_validate(post(simulator.origin, PATH, body).json)
    streamed = post(simulator.origin, PATH, {**body, "stream": True})
    for name, data in streamed.events:
        frame = json.loads(data)
        assert frame["type"] == name
        if name == "response.function_call_arguments.done":
            continue  # the types want a name there that the service does not send
        EVENT.validate_python(frame)
    assert [frame["sequence_number"] for frame in streamed.data] == list(range(len(streamed.data)))


def test_the_frames_of_a_short_answer(simulator: SimulatorThread) -> None:
    simulator.script_next(Turn(text="Hi there"))
    frames = post(simulator.origin, PATH, {**RESPONSES, "stream": True}).data
    assert kinds(frames) == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    created, _, added, part, first, second, done, part_done, item_done, completed = frames
    assert (created["response"]["status"], created["response"]["output"]) == ("in_progress", [])
    item = added["item"]
    assert item == {"id": item["id"], "type": "message", "status": "in_progress", "content": [], "role": "assistant"}
    assert part["part"] == {"type": "output_text", "annotations": [], "logprobs": [], "text": ""}
    for frame, delta in ((first, "Hi"), (second, " there")):
        assert (frame["delta"], frame["logprobs"]) == (delta, [])
        assert (frame["item_id"], frame["output_index"], frame["content_index"]) == (item["id"], 0, 0)
        assert (len(frame["delta"]) + len(frame["obfuscation"])) % 16 == 0
    assert done["text"] == part_done["part"]["text"] == item_done["item"]["content"][0]["text"] == "Hi there"
    assert item_done["item"]["status"] == "completed"
    assert completed["response"]["output"] == [item_done["item"]]
    assert completed["response"]["id"] == created["response"]["id"]
    assert completed["response"]["usage"]["output_tokens"] == 2


def test_the_token_limit_makes_it_incomplete(client: openai.OpenAI) -> None:
    whole = client.responses.create(model="m", input=QUESTION, max_output_tokens=4)
    events = list(client.responses.create(model="m", input=QUESTION, max_output_tokens=4, stream=True))
    last = events[-1]
    assert last.type == "response.incomplete"
    for response in (whole, last.response):
        assert response.status == "incomplete"
        assert response.incomplete_details is not None
        assert response.incomplete_details.reason == "max_output_tokens"
        assert response.output_text == "This is a simulated"
        assert response.output[0].type == "message"
        assert response.output[0].status == "incomplete"


def test_cut_while_reasoning_there_is_no_message(simulator: SimulatorThread) -> None:
    body = {**RESPONSES, "reasoning": {"effort": "low", "summary": "auto"}, "max_output_tokens": 3}
    whole = post(simulator.origin, PATH, body).json
    assert [item["type"] for item in whole["output"]] == ["reasoning"]
    assert whole["usage"]["output_tokens_details"]["reasoning_tokens"] == 3


def test_a_content_filter_makes_it_incomplete(simulator: SimulatorThread) -> None:
    simulator.script_next(Turn(text="So far", stop_reason="content_filter"))
    assert post(simulator.origin, PATH, RESPONSES).json["incomplete_details"] == {"reason": "content_filter"}


@pytest.mark.parametrize(
    "choice",
    [
        "required",
        {"type": "function", "name": "get_weather"},
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "get_weather"}]},
    ],
)
def test_a_forced_tool_is_called(client: openai.OpenAI, choice: Any) -> None:
    whole = client.responses.create(model="m", input=QUESTION, tools=[WEATHER], tool_choice=choice)
    events = list(client.responses.create(model="m", input=QUESTION, tools=[WEATHER], tool_choice=choice, stream=True))
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response.output == whole.output
    (call,) = whole.output
    assert call.type == "function_call"
    assert call.name == "get_weather"
    assert json.loads(call.arguments) == {"city": "simulated city"}
    deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert "".join(deltas) == call.arguments
    added = [event.item for event in events if event.type == "response.output_item.added"]
    assert added[0].type == "function_call"
    assert (added[0].call_id, added[0].arguments) == (call.call_id, "")


def test_an_offered_tool_is_called_once_and_then_the_answer_is_in_words(client: openai.OpenAI) -> None:
    asked: list[Any] = [{"role": "user", "content": "Will it rain?"}]
    first = client.responses.create(model="m", input=asked, tools=[WEATHER])
    (call,) = first.output
    assert call.type == "function_call"
    asked += [call, {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}]
    second = client.responses.create(model="m", input=asked, tools=[WEATHER])
    assert [item.type for item in second.output] == ["message"]
    asked += [*second.output, {"role": "user", "content": "And tomorrow?"}]
    third = client.responses.create(model="m", input=asked, tools=[WEATHER], tool_choice="auto")
    assert [item.type for item in third.output] == ["function_call"]
    never = client.responses.create(model="m", input=QUESTION, tools=[WEATHER], tool_choice="none")
    assert [item.type for item in never.output] == ["message"]


def test_several_calls_are_items_of_their_own(simulator: SimulatorThread) -> None:
    simulator.script_next(Turn(tool_calls=(ToolCall(name="a", id="call_1"), ToolCall(name="b", id="call_2"))))
    frames = post(simulator.origin, PATH, {**RESPONSES, "stream": True}).data
    done = [(f["output_index"], f["item"]["call_id"]) for f in frames if f["type"] == "response.output_item.done"]
    assert done == [(0, "call_1"), (1, "call_2")]


def test_reasoning_shows_a_summary_only_when_asked_for(client: openai.OpenAI) -> None:
    private = client.responses.create(model="m", input=QUESTION, reasoning={"effort": "low"})
    item = private.output[0]
    assert item.type == "reasoning"
    assert (item.summary, item.encrypted_content) == ([], None)
    assert private.usage is not None
    assert private.usage.output_tokens_details.reasoning_tokens > 0

    shown = client.responses.create(
        model="m",
        input=QUESTION,
        reasoning={"effort": "low", "summary": "auto"},
        include=["reasoning.encrypted_content"],
    )
    item = shown.output[0]
    assert item.type == "reasoning"
    assert item.summary[0].text.startswith("This is simulated reasoning")
    assert item.encrypted_content
    assert shown.output_text == private.output_text

    silent = client.responses.create(model="m", input=QUESTION, reasoning={"effort": "none"})
    assert [item.type for item in silent.output] == ["message"]


def test_reasoning_streams_as_summary_parts(simulator: SimulatorThread) -> None:
    simulator.script_next(Turn(reasoning="Let me", text="Yes"))
    frames = post(simulator.origin, PATH, {**RESPONSES, "stream": True}).data
    assert kinds(frames)[2:9] == [
        "response.output_item.added",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
        "response.output_item.done",
    ]
    assert [frame["summary_index"] for frame in frames[3:8]] == [0] * 5
    assert frames[8]["item"]["summary"] == [{"type": "summary_text", "text": "Let me"}]
    assert frames[9]["output_index"] == 1


def test_a_refusal_is_a_part(client: openai.OpenAI, simulator: SimulatorThread) -> None:
    simulator.script_next(Turn(refusal="I will not."))
    events = list(client.responses.create(model="m", input=QUESTION, stream=True))
    assert "".join(event.delta for event in events if event.type == "response.refusal.delta") == "I will not."
    last = events[-1]
    assert last.type == "response.completed"
    message = last.response.output[0]
    assert message.type == "message"
    assert message.content[0].type == "refusal"
    assert message.content[0].refusal == "I will not."


def test_json_output_fits_its_schema(client: openai.OpenAI) -> None:
    schema: Any = {"type": "object", "properties": {"n": {"const": 4}}, "required": ["n"]}
    output: Any = {"format": {"type": "json_schema", "name": "number", "schema": schema}}
    assert json.loads(client.responses.create(model="m", input=QUESTION, text=output).output_text) == {"n": 4}


def test_the_response_echoes_the_request(simulator: SimulatorThread) -> None:
    asked = {"temperature": 0.3, "tools": [WEATHER], "tool_choice": "auto", "store": False, "metadata": {"a": "b"}}
    whole = post(simulator.origin, PATH, {**RESPONSES, **asked, "instructions": "Be brief."}).json
    assert {name: whole[name] for name in asked} == asked
    assert whole["instructions"] == "Be brief."
    assert whole["text"] == {"format": {"type": "text"}, "verbosity": "medium"}


def test_usage_can_be_scripted(client: openai.OpenAI, simulator: SimulatorThread) -> None:
    simulator.script_next(
        Turn(usage=Usage(input_tokens=100, output_tokens=7, reasoning_tokens=5, cached_input_tokens=60))
    )
    usage = client.responses.create(model="m", input=QUESTION).usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (100, 7, 107)
    assert (usage.input_tokens_details.cached_tokens, usage.output_tokens_details.reasoning_tokens) == (60, 5)


def test_items_are_read_as_input(client: openai.OpenAI) -> None:
    items: Any = [
        {"role": "user", "content": [{"type": "input_text", "text": "First?"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "done"},
        {"type": "message", "role": "user", "content": "And then?"},
    ]
    assert client.responses.create(model="m", input=items).output_text.startswith(
        'This is a simulated answer to "And then?".'
    )


def test_an_error_inside_a_stream_is_an_event_and_a_failed_response(
    client: openai.OpenAI, simulator: SimulatorThread
) -> None:
    fault = Fault(kind="error", after_deltas=1, code="server_error", message="try later")
    simulator.script_next(Turn(text="one two", fault=fault), Turn(text="one two", fault=fault))
    frames = post(simulator.origin, PATH, {**RESPONSES, "stream": True}).data
    assert kinds(frames)[-3:] == ["response.output_text.delta", "error", "response.failed"]
    assert [frame["sequence_number"] for frame in frames] == list(range(len(frames)))
    assert frames[-2]["error"]["code"] == "server_error"
    assert frames[-1]["response"]["status"] == "failed"
    assert frames[-1]["response"]["error"] == {"code": "server_error", "message": "try later"}
    with pytest.raises(openai.APIError, match="try later"):
        list(client.responses.create(model="m", input=QUESTION, stream=True))


def test_a_status_raises_the_right_exception(client: openai.OpenAI, simulator: SimulatorThread) -> None:
    simulator.script_next(Turn(fault=Fault(kind="status", status=429, headers={"retry-after": "7"})))
    with pytest.raises(openai.RateLimitError) as caught:
        client.responses.create(model="m", input=QUESTION)
    assert caught.value.code == "rate_limit_exceeded"
    assert caught.value.response.headers["retry-after"] == "7"


TRIGGERS = ("tail_repetition:32@thinking", "tail_repetition:8@thinking")
DOOMED = Turn(text="one two three", fault=Fault(kind="doom_loop", after_deltas=1, triggers=TRIGGERS))


def test_doom_loop_checks_are_cumulative_and_repeated_at_the_end(simulator: SimulatorThread) -> None:
    simulator.script_next(DOOMED)
    answer = post(simulator.origin, PATH, {**RESPONSES, "stream": True}, {"x-grok-doom-loop-check": "1024"})
    frames = answer.data
    checks = [frame for frame in frames if frame["type"] == "response.doom_loop_check"]
    assert [check["doom_loop_check"] for check in checks] == [
        {"triggers": [TRIGGERS[0]]},
        {"triggers": list(TRIGGERS)},
    ]
    assert kinds(frames)[4:9] == [
        "response.output_text.delta",
        "response.doom_loop_check",
        "response.output_text.delta",
        "response.doom_loop_check",
        "response.output_text.delta",
    ]
    assert [frame["sequence_number"] for frame in frames] == list(range(len(frames)))
    assert ("response.doom_loop_check", json.dumps(checks[0], separators=(",", ":"))) in answer.events
    assert frames[-1]["response"]["doom_loop_check"] == {"triggers": list(TRIGGERS)}


@pytest.mark.parametrize(("stream", "headers"), [(True, {}), (False, {"x-grok-doom-loop-check": "1024"})])
def test_doom_loop_checks_need_a_stream_that_asks_for_them(
    simulator: SimulatorThread, stream: bool, headers: dict[str, str]
) -> None:
    simulator.script_next(DOOMED)
    answer = post(simulator.origin, PATH, {**RESPONSES, "stream": stream}, headers)
    assert answer.status == 200
    assert b"doom_loop" not in answer.body


def test_doom_loop_labels_may_stand_in_the_terminal_event_alone(simulator: SimulatorThread) -> None:
    simulator.script_next(Turn(text="one", fault=Fault(kind="doom_loop", after_deltas=9, triggers=TRIGGERS)))
    frames = post(simulator.origin, PATH, {**RESPONSES, "stream": True}, {"x-grok-doom-loop-check": "1024"}).data
    assert "response.doom_loop_check" not in kinds(frames)
    assert frames[-1]["response"]["doom_loop_check"] == {"triggers": list(TRIGGERS)}


@pytest.mark.parametrize(
    ("change", "param", "code"),
    [
        ({"model": None}, "model", "missing_required_parameter"),
        ({"input": None}, "input", "missing_required_parameter"),
        ({"input": ""}, "input", "missing_required_parameter"),
        ({"input": []}, "input", "empty_array"),
        ({"input": 5}, "input", "invalid_type"),
        ({"max_output_tokens": -1}, "max_output_tokens", "integer_below_min_value"),
        ({"tool_choice": {"type": "function", "name": "nope"}}, "tool_choice", "invalid_value"),
    ],
)
def test_invalid_requests_get_openais_error(
    simulator: SimulatorThread, change: dict[str, Any], param: str, code: str
) -> None:
    answer = post(simulator.origin, PATH, {**RESPONSES, **change})
    assert answer.status == 400
    error = answer.json["error"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, code)
