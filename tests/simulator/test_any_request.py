"""Any JSON whatever is answered or refused, and what streams is what the whole answer says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rx_sampler.simulator import Fault, ToolCall, Turn
from rx_sampler.simulator.answers import Derivation, fill
from rx_sampler.simulator.asks import Problem, RefusedError
from rx_sampler.simulator.chat_completions import ChatCompletions
from rx_sampler.simulator.frames import encode
from rx_sampler.simulator.json_tools import dumps
from rx_sampler.simulator.messages import Messages
from rx_sampler.simulator.responses import Responses
from rx_sampler.simulator.steps import Send, stream_steps
from rx_sampler.simulator.wire_format import WireFormat

from .raw_http import BODIES

CHAT, RESPONSES, MESSAGES = ChatCompletions(), Responses(), Messages()
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""How fast inputs are drawn says something about the machine only."""

WIRES = pytest.mark.parametrize("wire", [CHAT, RESPONSES, MESSAGES], ids=["chat", "responses", "messages"])

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 200) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = (
    *("input", "instructions", "max_completion_tokens", "max_output_tokens", "max_tokens", "messages", "model", "n"),
    *("output_config", "reasoning", "reasoning_effort", "response_format", "stop", "stop_sequences", "stream"),
    *("stream_options", "system", "text", "thinking", "tool_choice", "tools", "include"),
)
TEXTS = st.text(max_size=40)
CALLS = st.builds(ToolCall, name=st.just("f"), arguments=st.dictionaries(TEXTS, TEXTS, max_size=2))
TURNS = st.builds(
    Turn,
    text=st.none() | TEXTS,
    reasoning=st.none() | TEXTS,
    refusal=st.none() | TEXTS,
    tool_calls=st.none() | st.lists(CALLS, max_size=2).map(tuple),
    stop_reason=st.sampled_from([None, "stop", "length", "tool_calls", "content_filter"]),
    delta_chars=st.none() | st.integers(1, 9),
)


def streamed(wire: WireFormat, body: dict[str, Any], turn: Turn) -> tuple[list[Any], dict[str, Any]]:
    """The data of every frame, and the whole answer to the same request."""
    ask = wire.read(body)
    answer = fill(ask, turn, seed=0, derivation=Derivation(0, wire.path, body), created=0)
    frames = list(wire.frames(ask, answer))
    for number, frame in enumerate(frames):
        assert encode(frame, number).endswith(b"\n\n")
    return [frame.data for frame in frames], wire.document(ask, answer)


@WIRES
@UNTIMED
@given(changes=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4))
def test_any_body_is_answered_or_refused(wire: WireFormat, changes: dict[str, Any]) -> None:
    body = {**BODIES[f"/v1{wire.path}"], **changes}
    problem: Problem | None = None
    try:
        frames, document = streamed(wire, body, Turn())
        assert len(frames) >= 3
        dumps(document).encode()
    except RefusedError as error:
        problem = error.problem
    if problem is not None:
        assert problem.status == 400
        assert problem.param in body
        dumps(wire.error_body(problem, "req_1"))


@UNTIMED
@given(turn=TURNS, limit=st.none() | st.integers(1, 20))
def test_a_chat_stream_adds_up_to_the_whole(turn: Turn, limit: int | None) -> None:
    frames, document = streamed(CHAT, {**BODIES["/v1/chat/completions"], "max_tokens": limit}, turn)
    deltas = [frame["choices"][0]["delta"] for frame in frames[:-1]]
    message = document["choices"][0]["message"]
    for field in ("content", "refusal", "reasoning_content"):
        assert "".join(delta.get(field) or "" for delta in deltas) == (message.get(field) or "")
    arguments: dict[int, str] = {}
    for call in (call for delta in deltas for call in delta.get("tool_calls", ())):
        arguments[call["index"]] = arguments.get(call["index"], "") + call["function"]["arguments"]
    assert list(arguments.values()) == [call["function"]["arguments"] for call in message.get("tool_calls", ())]
    assert frames[-2]["choices"][0]["finish_reason"] == document["choices"][0]["finish_reason"]
    if limit is not None:
        assert document["usage"]["completion_tokens"] <= limit


@UNTIMED
@given(turn=TURNS, limit=st.none() | st.integers(1, 20))
def test_a_responses_stream_adds_up_to_the_whole(turn: Turn, limit: int | None) -> None:
    frames, document = streamed(RESPONSES, {**BODIES["/v1/responses"], "max_output_tokens": limit}, turn)
    assert frames[-1]["response"] == document
    done = [frame["item"] for frame in frames if frame["type"] == "response.output_item.done"]
    assert done == document["output"]
    pieces: dict[tuple[int, int], str] = {}
    for frame in frames:
        if frame["type"].endswith(".delta"):
            place = frame["output_index"], frame.get("content_index", frame.get("summary_index", 0))
            pieces[place] = pieces.get(place, "") + frame["delta"]
    for index, item in enumerate(done):
        parts = item.get("content", item.get("summary", [{"text": item.get("arguments")}]))
        for number, part in enumerate(parts):
            assert pieces.pop((index, number), "") == part.get("text", part.get("refusal"))
    assert not pieces


@UNTIMED
@given(turn=TURNS, limit=st.integers(1, 20))
def test_a_messages_stream_adds_up_to_the_whole(turn: Turn, limit: int) -> None:
    frames, document = streamed(MESSAGES, {**BODIES["/v1/messages"], "max_tokens": limit}, turn)
    starts = [frame["content_block"] for frame in frames if frame["type"] == "content_block_start"]
    assert [start["type"] for start in starts] == [block["type"] for block in document["content"]]
    deltas = [(frame["index"], frame["delta"]) for frame in frames if frame["type"] == "content_block_delta"]
    for index, block in enumerate(document["content"]):
        for field in ("text", "thinking", "signature"):
            said = "".join(delta.get(field, "") for place, delta in deltas if place == index)
            assert said == block.get(field, "")
    assert frames[-2]["delta"]["stop_reason"] == document["stop_reason"]
    assert frames[-2]["usage"]["output_tokens"] == document["usage"]["output_tokens"] <= limit


@WIRES
@UNTIMED
@given(turn=TURNS, after=st.integers(0, 30))
def test_a_fault_strikes_in_every_answer_before_its_end(wire: WireFormat, turn: Turn, after: int) -> None:
    body = BODIES[f"/v1{wire.path}"]
    ask = wire.read(body)
    answer = fill(ask, turn, seed=0, derivation=Derivation(0, wire.path, body), created=0)
    frames = list(wire.frames(ask, answer))
    fault = Fault(kind="early_end", after_deltas=after)
    steps = list(stream_steps(frames, fault, wire=wire, ask=ask, answer=answer))
    deltas = sum(frame.is_delta for frame in frames)
    assert sum(isinstance(step, Send) and step.is_delta for step in steps) == min(after, deltas)
    assert len(steps) < len(frames)
