"""Chat completion streams as servers really send them, and the events and response that each must give."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rx_sampler import (
    AnnotationAdded,
    ChannelToken,
    FirstToken,
    ReasoningItem,
    RefusalItem,
    ResponseStarted,
    SamplingErrorKind,
    TextItem,
    ToolCallDelta,
    Usage,
)
from rx_sampler.backends.assembly import Context
from rx_sampler.backends.chat_completions.transform import ChatTransform
from rx_sampler.conversation import JsonObject
from rx_sampler.wire.idle import Pulse

from .streams import (
    CHAT,
    DONE,
    Frame,
    calling,
    calls,
    chat,
    completed,
    failed,
    kinds,
    run,
    says,
    sse,
    tokens,
    tool_deltas,
    usage,
)


def counts(found: Usage | None) -> tuple[int, int, int] | None:
    return (found.input_tokens, found.output_tokens, found.total_tokens) if found else None


# -- what a stream amounts to


def test_text_in_two_chunks() -> None:
    """B146, but for `message_chunks`, which is `metrics.chunk_count` here."""
    events = run(CHAT, sse(says("Hello, "), says("world!", "stop"), DONE))
    assert kinds(events) == [
        "stream_started",
        "response_started",
        "first_token",
        "channel_token",
        "channel_token",
        "completed",
    ]
    assert tokens(events) == [("text", "Hello, "), ("text", "world!")]
    response = completed(events)
    assert (response.text, response.stop_reason, response.raw_stop_reason) == ("Hello, world!", "stop", "stop")
    assert (response.model, response.message_id) == ("toy-1", "cmpl-1")


def test_an_empty_body_is_no_answer() -> None:
    """B145 completes it; here a clean end that nothing announced is a failure on every backend (DESIGN, section 6)."""
    events = run(CHAT, b"")
    assert kinds(events) == ["stream_started", "failed"]
    error = failed(events).error
    assert (error.kind, error.code, error.is_retryable) == (SamplingErrorKind.HTTP, "unterminated", True)
    assert failed(events).partial is None


def test_reasoning_then_text() -> None:
    """B147: one FirstToken, both channels, a reasoning item."""
    events = run(CHAT, sse(chat({"reasoning_content": "Hm. "}), says("Yes.", "stop"), DONE))
    assert kinds(events).count("first_token") == 1
    assert tokens(events) == [("reasoning", "Hm. "), ("text", "Yes.")]
    assert completed(events).items == (ReasoningItem(text="Hm. "), TextItem(text="Yes."))


def test_chunks_are_numbered_over_all_channels() -> None:
    """B148."""
    events = run(CHAT, sse(says("a"), chat({"reasoning": "b"}), says("c", "stop"), DONE))
    numbered = [(e.chunk_index, e.channel) for e in events if isinstance(e, ChannelToken)]
    assert numbered == [(1, "text"), (2, "reasoning"), (3, "text")]


def test_a_tool_call_over_two_chunks() -> None:
    """B149: also without a finish reason the stop is tool_calls."""
    events = run(CHAT, sse(calling('{"x":', id="call_abc", name="do_thing"), calling("1}"), DONE))
    assert tool_deltas(events) == [(0, "call_abc", "do_thing", '{"x":'), (0, None, None, "1}")]
    response = completed(events)
    assert calls(response) == [("call_abc", "do_thing", '{"x":1}', True)]
    assert (response.stop_reason, response.raw_stop_reason) == ("tool_calls", None)


def test_calls_are_ordered_by_appearance() -> None:
    """B150 orders by the wire's index; here `tool_index` numbers the calls as they appear (DESIGN, section 4)."""
    events = run(CHAT, sse(calling("{}", index=1, id="b", name="second"), calling("{}", id="a", name="first"), DONE))
    assert [delta[:3] for delta in tool_deltas(events)] == [(0, "b", "second"), (1, "a", "first")]
    assert [call[0] for call in calls(completed(events))] == ["b", "a"]


def test_usage_is_a_snapshot() -> None:
    """B155, and usage on every chunk: the last value wins, nothing is added."""
    events = run(CHAT, sse(says("a"), usage(100, 20), says("b", "stop"), usage(100, 50), DONE))
    assert counts(completed(events).usage) == (100, 50, 150)


@pytest.mark.parametrize(
    ("ticks", "cost"),
    [
        ([78], 78e-10),
        ([0], None),
        ([], None),
        ([99, 0], 99e-10),
        ([10_000_000_000], 1.0),
    ],
)
def test_cost_comes_in_ticks(ticks: list[int], cost: float | None) -> None:
    """B156 in dollars: a tick is 1e-10 of one; 0 says that nothing is known."""
    chunks: list[Frame] = [usage(3, 4, cost_in_usd_ticks=count) for count in ticks] or [usage(3, 4)]
    found = completed(run(CHAT, sse(says("x", "stop"), *chunks, DONE))).cost_usd
    assert found == (cost if cost is None else pytest.approx(cost))


def test_a_clean_end_amid_the_text_is_a_failure() -> None:
    """B157 completes it; here it is Failed(http) with the partial kept (DESIGN, section 6)."""
    events = run(CHAT, sse(says("Half an ans")))
    end = failed(events)
    assert (end.error.kind, end.error.is_retryable) == (SamplingErrorKind.HTTP, True)
    assert end.partial is not None
    assert (end.partial.text, end.partial.stop_reason, end.partial.raw_stop_reason) == ("Half an ans", None, None)


@pytest.mark.parametrize("reason", ["eos_token", "abort", "max_tool_calls", "insufficient_system_resource"])
def test_an_unknown_reason_is_a_stop(reason: str) -> None:
    """B158 fails it; here enums are open (DESIGN, law 8)."""
    response = completed(run(CHAT, sse(says("x", reason), DONE)))
    assert (response.stop_reason, response.raw_stop_reason) == ("stop", reason)


# -- the shape of chunks


def test_azure_sends_filter_results_first() -> None:
    first = {"id": "", "model": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]}
    events = run(CHAT, sse(first, says("Bonjour"), chat(None, "stop"), DONE))
    announced = [e for e in events if isinstance(e, ResponseStarted)]
    assert [(e.message_id, e.model) for e in announced] == [("cmpl-1", "toy-1")]
    assert events.index(announced[0]) == 1
    assert (completed(events).text, completed(events).model) == ("Bonjour", "toy-1")


@pytest.mark.parametrize(
    "name",
    [
        "id",
        "model",
    ],
)
def test_id_and_model_come_from_the_first_chunk_that_has_them(name: str) -> None:
    late = [says("a") | {name: ""}, says("b"), says("c", "stop")]
    response = completed(run(CHAT, sse(*late, DONE)))
    assert (response.message_id, response.model) == ("cmpl-1", "toy-1")


@pytest.mark.parametrize("choices", [{"choices": None}, {}])
def test_choices_null_or_missing(choices: JsonObject) -> None:
    events = run(CHAT, sse({"id": "cmpl-1", "model": "toy-1", **choices}, says("a", "stop"), DONE))
    assert tokens(events) == [("text", "a")]
    assert completed(events).text == "a"


@pytest.mark.parametrize("last", [{"delta": None}, {}])
def test_a_last_chunk_without_delta(last: JsonObject) -> None:
    choice = {"index": 0, "finish_reason": "stop", **last}
    response = completed(run(CHAT, sse(says("a"), {"id": "cmpl-1", "choices": [choice]}, DONE)))
    assert (response.text, response.stop_reason, response.raw_stop_reason) == ("a", "stop", "stop")


def test_role_on_each_chunk_means_nothing() -> None:
    events = run(CHAT, sse(*(chat({"role": role, "content": "a"}) for role in ("assistant", "", "tool")), DONE))
    assert tokens(events) == [("text", "a")] * 3


@pytest.mark.parametrize("content", [None, ""])
def test_no_content_is_no_token(content: str | None) -> None:
    events = run(CHAT, sse(chat({"role": "assistant", "content": content}), says("hi", "stop"), DONE))
    assert [e.kind for e in events] == [
        "stream_started",
        "response_started",
        "first_token",
        "channel_token",
        "completed",
    ]
    assert tokens(events) == [("text", "hi")]


@pytest.mark.parametrize("nothing", [None, []])
def test_tool_calls_that_are_none(nothing: list[JsonObject] | None) -> None:
    """B144."""
    events = run(CHAT, sse(chat({"content": "hi", "tool_calls": nothing}), chat({"tool_calls": nothing}, "stop"), DONE))
    assert tokens(events) == [("text", "hi")]
    assert (tool_deltas(events), completed(events).tool_calls, completed(events).stop_reason) == ([], (), "stop")


def test_content_in_typed_blocks() -> None:
    content = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}, {"type": "text", "text": ", so"}]},
        {"type": "text", "text": "ok"},
        {"type": "novel", "weight": 3},
    ]
    events = run(CHAT, sse(chat({"content": content}, "stop"), DONE))
    assert tokens(events) == [("reasoning", "hm"), ("reasoning", ", so"), ("text", "ok")]
    assert completed(events).items == (ReasoningItem(text="hm, so"), TextItem(text="ok"))


def _choice(delta: JsonObject | None, message: JsonObject, finish: str | None = None) -> JsonObject:
    choice: JsonObject = {"index": 0, "message": message, "finish_reason": finish}
    return {"id": "cmpl-1", "model": "toy-1", "choices": [choice if delta is None else choice | {"delta": delta}]}


def test_a_message_beside_the_delta_is_ignored() -> None:
    frames = [
        _choice({"content": "Red "}, {"content": "Red "}),
        _choice({"content": "fox"}, {"content": "Red fox"}, "stop"),
    ]
    assert tokens(run(CHAT, sse(*frames, DONE))) == [("text", "Red "), ("text", "fox")]


def test_messages_without_any_delta_are_snapshots() -> None:
    frames = [_choice(None, {"content": "Red "}), _choice(None, {"content": "Red fox"}, "stop")]
    events = run(CHAT, sse(*frames, DONE))
    assert tokens(events) == [("text", "Red fox")]
    assert completed(events).text == "Red fox"


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning_content": "t"},
        {"reasoning": "t"},
        {"reasoning_details": [{"type": "reasoning.text", "text": "t"}]},
        {"reasoning_details": [{"type": "reasoning.summary", "summary": "t"}]},
        {"reasoning": "t", "reasoning_content": "t"},
        {"reasoning": "", "reasoning_content": None, "reasoning_details": [{"type": "reasoning.text", "text": "t"}]},
        {"reasoning": "t", "reasoning_content": "t", "reasoning_details": [{"type": "reasoning.text", "text": "t"}]},
    ],
    ids=lambda delta: "+".join(delta),
)
def test_reasoning_counts_once_whatever_its_field(delta: JsonObject) -> None:
    events = run(CHAT, sse(chat(delta), says("x", "stop"), DONE))
    assert tokens(events) == [("reasoning", "t"), ("text", "x")]


def test_encrypted_reasoning_is_kept_and_no_token() -> None:
    sealed = {"type": "reasoning.encrypted", "data": "c2VjcmV0", "index": 0, "format": "toy-v1"}
    events = run(CHAT, sse(chat({"reasoning_details": [sealed]}), says("x", "stop"), DONE))
    assert tokens(events) == [("text", "x")]
    assert completed(events).items == (ReasoningItem(details=(sealed,)), TextItem(text="x"))


def details_of(*details: JsonObject) -> tuple[JsonObject, ...]:
    frames = [chat({"reasoning_details": [{"type": "reasoning.text", "index": 0, **detail}]}) for detail in details]
    [item, _] = completed(run(CHAT, sse(*frames, says("x", "stop"), DONE))).items
    assert isinstance(item, ReasoningItem)
    return item.details


def test_a_signature_ends_its_block_and_an_empty_one_takes_none_away() -> None:
    [whole] = details_of({"text": "a"}, {"text": "b", "signature": "S1"}, {"text": "", "signature": ""})
    assert (whole["text"], whole["signature"]) == ("ab", "S1")
    two = details_of({"text": "a", "signature": "S1"}, {"text": "b", "signature": "S2"})
    assert [(one["text"], one["signature"]) for one in two] == [("a", "S1"), ("b", "S2")]
    late = details_of({"text": "a"}, {"text": "", "signature": "S1"}, {"text": "b"})
    assert [(one["text"], one.get("signature")) for one in late] == [("a", "S1"), ("b", None)]
    named = details_of({"text": "a", "id": "1"}, {"text": "b", "id": "2"}, {"text": "c", "id": "2"})
    assert [one["text"] for one in named] == ["a", "bc"]


def test_reasoning_details_go_back_as_whole_blocks() -> None:
    """OpenRouter wants the sequence back unmodified: fragments of one block joined, its signature kept."""
    first = {"type": "reasoning.text", "index": 0, "text": "one, "}
    second = {"type": "reasoning.text", "index": 0, "text": "two", "signature": "s1"}
    sealed = {"type": "reasoning.encrypted", "index": 1, "data": "AA=="}
    deltas = [chat({"reasoning_details": [detail]}) for detail in (first, second, sealed)]
    item = completed(run(CHAT, sse(*deltas, says("x", "stop"), DONE))).items[0]
    assert isinstance(item, ReasoningItem)
    assert item.text == "one, two"
    joined = {"type": "reasoning.text", "index": 0, "text": "one, two", "signature": "s1"}
    assert item.details == (joined, sealed)


def test_think_tags_only_where_asked_for() -> None:
    body = sse(says("<thi"), says("nk>plan</think>go", "stop"), DONE)
    assert tokens(run(CHAT, body)) == [("text", "<thi"), ("text", "nk>plan</think>go")]
    events = run(CHAT, body, split_think_tags=True)
    assert tokens(events) == [("reasoning", "plan"), ("text", "go")]
    assert completed(events).items == (ReasoningItem(text="plan"), TextItem(text="go"))


def test_half_characters_join_across_deltas() -> None:
    body = sse(says("hi \ud83d"), says("\ude00!"), says(" \ud83d"), DONE)
    events = run(CHAT, body)
    assert tokens(events) == [("text", "hi "), ("text", "😀!"), ("text", " "), ("text", "\ufffd")]
    assert completed(events).text == "hi 😀! \ufffd"


def test_a_refusal_has_its_channel_and_its_stop() -> None:
    events = run(CHAT, sse(chat({"refusal": "No."}), chat({}, "stop"), DONE))
    assert tokens(events) == [("refusal", "No.")]
    response = completed(events)
    assert response.items == (RefusalItem(text="No."),)
    assert (response.stop_reason, response.raw_stop_reason) == ("content_filter", "stop")


def test_a_content_filter_completes() -> None:
    response = completed(run(CHAT, sse(says("I"), chat({}, "content_filter"), DONE)))
    assert (response.text, response.stop_reason) == ("I", "content_filter")


def test_what_stands_beside_the_answer_is_kept() -> None:
    # B176
    top: dict[str, Any] = {
        "citations": ["https://example.org/a"],
        "service_tier": "flex",
        "system_fingerprint": "fp_1",
        "provider": "Toy",
        "timings": {"predicted_ms": 5},
        "obfuscation": "xxxx",
        "logprobs": None,
    }
    events = run(CHAT, sse(says("a"), chat({}, "stop", **top), DONE))
    assert tokens(events) == [("text", "a")]
    kept = completed(events).extras
    names = ("citations", "service_tier", "system_fingerprint", "provider", "timings")
    assert {name: kept[name] for name in names} == {name: top[name] for name in names}


def test_annotations_are_told_once_with_their_place() -> None:
    note = {"type": "url_citation", "url_citation": {"url": "https://example.org/a"}}
    events = run(CHAT, sse(says("four"), chat({"annotations": [note]}), chat({"annotations": [note]}, "stop"), DONE))
    assert [(e.annotation, e.offset) for e in events if isinstance(e, AnnotationAdded)] == [(note, 4)]
    assert completed(events).items == (TextItem(text="four", annotations=(note,)),)


def test_several_choices_are_read_to_the_end() -> None:
    body = sse(says("A"), says("B", index=1), says("a", "stop"), says("b", "length", index=1), DONE)
    events = run(CHAT, body)
    assert [(e.choice, e.text) for e in events if isinstance(e, ChannelToken)] == [
        (0, "A"),
        (1, "B"),
        (0, "a"),
        (1, "b"),
    ]
    response = completed(events)
    assert (response.text, response.stop_reason) == ("Aa", "stop")


def test_a_choice_that_is_cut_after_another_was_whole() -> None:
    """Some servers send choices one after the other: the second has neither reason nor [DONE]."""
    assert failed(run(CHAT, sse(says("A", "stop"), says("B", index=1)))).error.code == "unterminated"


def test_tool_calls_of_choices_are_numbered_apart() -> None:
    body = sse(calling("{}", id="a", name="f"), calling("{}", id="b", name="g", choice=1), DONE)
    events = run(CHAT, body)
    assert [(e.choice, e.tool_index, e.id) for e in events if isinstance(e, ToolCallDelta)] == [
        (0, 0, "a"),
        (1, 0, "b"),
    ]
    assert calls(completed(events)) == [("a", "f", "{}", True)]


def test_the_call_from_before_tool_calls() -> None:
    frames = [
        chat({"function_call": {"name": "f", "arguments": '{"a"'}}),
        chat({"function_call": {"arguments": ":1}"}}),
        chat({}, "function_call"),
    ]
    events = run(CHAT, sse(*frames, DONE))
    (call,) = completed(events).tool_calls
    assert (call.name, call.arguments, call.complete) == ("f", '{"a":1}', True)
    assert call.id
    assert tool_deltas(events) == [(0, call.id, "f", '{"a"'), (0, None, None, ":1}")]
    assert (completed(events).stop_reason, completed(events).raw_stop_reason) == ("tool_calls", "function_call")


def test_a_json_answer_gives_the_same_events_as_a_stream() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    whole = {
        "id": "cmpl-1",
        "object": "chat.completion",
        "model": "toy-1",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "reasoning_content": "Hm.", "content": "Yes.", "tool_calls": [call]},
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {"prompt_tokens": 4, "completion_tokens": 6, "total_tokens": 10},
    }
    streamed = [
        chat({"reasoning_content": "Hm."}),
        says("Yes."),
        calling('{"a":1}', id="c1", name="f"),
        chat({}, "tool_calls"),
        usage(4, 6),
    ]
    assert run(CHAT, json.dumps(whole).encode()) == run(CHAT, sse(*streamed, DONE))
    assert run(CHAT, json.dumps(whole, indent=2).encode()) == run(CHAT, sse(*streamed, DONE))


# -- tool calls


ARGS = ('{"q"', ':"tea"}')
WHOLE = '{"q":"tea"}'

ONE_CALL: dict[str, tuple[list[Frame], tuple[str, str, str, bool]]] = {
    "index missing": (
        [calling(ARGS[0], index=None, id="c1", name="f"), calling(ARGS[1], index=None)],
        ("c1", "f", WHOLE, True),
    ),
    "index missing, id repeated": (
        [calling(ARGS[0], index=None, id="c1", name="f"), calling(ARGS[1], index=None, id="c1")],
        ("c1", "f", WHOLE, True),
    ),
    "id changes, no name": ([calling(id="t1", name="f"), calling(WHOLE, id="t2")], ("t2", "f", WHOLE, True)),
    "empty means absent": (
        [calling(ARGS[0], id="c1", name="f"), calling(ARGS[1], id="", name="")],
        ("c1", "f", WHOLE, True),
    ),
    "name in every chunk": (
        [calling(id="c1", name="go"), calling(ARGS[0], name="go"), calling(ARGS[1], name="go")],
        ("c1", "go", WHOLE, True),
    ),
    "name in pieces": (
        [calling(id="c1", name="re"), calling(name="ad"), calling(WHOLE)],
        ("c1", "read", WHOLE, True),
    ),
    "name grows": (
        [calling(id="c1", name="re"), calling(name="read"), calling(WHOLE)],
        ("c1", "read", WHOLE, True),
    ),
    "name after arguments": (
        [calling(ARGS[0], id="c1"), calling(ARGS[1], name="f")],
        ("c1", "f", WHOLE, True),
    ),
    "whole in one chunk": ([calling(WHOLE, id="c1", name="f")], ("c1", "f", WHOLE, True)),
    "arguments as object": ([calling({"a": 1}, id="c1", name="f")], ("c1", "f", '{"a": 1}', True)),
    "arguments empty": ([calling("", id="c1", name="f")], ("c1", "f", "{}", True)),
    "arguments null": (
        [chat({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "f", "arguments": None}}]})],
        ("c1", "f", "{}", True),
    ),
    "arguments absent": ([calling(id="c1", name="f")], ("c1", "f", "{}", True)),
    "encoded twice": ([calling(json.dumps(WHOLE), id="c1", name="f")], ("c1", "f", json.dumps(WHOLE), False)),
    "last fragment with the reason": (
        [calling(ARGS[0], id="c1", name="f"), calling(ARGS[1], finish="stop")],
        ("c1", "f", WHOLE, True),
    ),
    "two objects in one": (
        [calling('{"q":"a"}', id="c1", name="f"), calling('{"q":"b"}')],
        ("c1", "f", '{"q":"a"}{"q":"b"}', False),
    ),
    "an array is no object": ([calling("[1]", id="c1", name="f")], ("c1", "f", "[1]", False)),
    "odd types around it": (
        [chat({"tool_calls": [{"index": "0", "id": 7, "type": "", "function": {"name": "f", "arguments": WHOLE}}]})],
        ("7", "f", WHOLE, True),
    ),
    "null entries": (
        [chat({"tool_calls": [None, {"index": 0, "id": "c1", "function": {"name": "f", "arguments": WHOLE}}]})],
        ("c1", "f", WHOLE, True),
    ),
}


@pytest.mark.parametrize(("frames", "call"), ONE_CALL.values(), ids=ONE_CALL.keys())
def test_one_call(frames: list[Frame], call: tuple[str, str, str, bool]) -> None:
    events = run(CHAT, sse(*frames, DONE))
    assert calls(completed(events)) == [call]
    assert {index for index, *_ in tool_deltas(events)} == {0}
    streamed = "".join(fragment or "" for *_, fragment in tool_deltas(events))
    assert streamed == ("" if call[2] == "{}" else call[2])
    named = [name for _, _, name, _ in tool_deltas(events) if name]
    assert named[-1] == call[1]
    assert completed(events).stop_reason == "tool_calls"


def test_a_delta_waits_for_the_name() -> None:
    events = run(CHAT, sse(calling(ARGS[0], id="c1"), says("meanwhile"), calling(ARGS[1], name="f"), DONE))
    assert tool_deltas(events) == [(0, "c1", "f", WHOLE)]
    assert kinds(events).index("tool_call_delta") > kinds(events).index("channel_token")


def test_a_call_whose_name_never_comes_is_shown_at_the_end() -> None:
    events = run(CHAT, sse(calling(WHOLE, id="c1"), DONE))
    assert tool_deltas(events) == [(0, "c1", None, WHOLE)]
    assert calls(completed(events)) == [("c1", "", WHOLE, False)]


def test_a_name_is_frozen_once_arguments_came() -> None:
    events = run(CHAT, sse(calling('{"a":', id="c1", name="f"), calling("1}", name="fu"), DONE))
    assert calls(completed(events)) == [("c1", "f", '{"a":1}', True)]


TWO_CALLS: dict[str, list[Frame]] = {
    "index missing": [
        calling('{"n":1}', index=None, id="a", name="f"),
        calling('{"n":2}', index=None, id="b", name="f"),
    ],
    "index missing, fragments": [
        calling('{"n":', index=None, id="a", name="f"),
        calling("1}", index=None),
        calling('{"n":', index=None, id="b", name="f"),
        calling("2}", index=None),
    ],
    "index always 0": [calling('{"n":1}', id="a", name="f"), calling('{"n":2}', id="b", name="f")],
    "index always 0, fragments without id": [
        calling(id="a", name="f"),
        calling('{"n":1}'),
        calling(id="b", name="f"),
        calling('{"n":2}'),
    ],
    "in turns": [
        calling('{"n":', id="a", name="f"),
        calling('{"n":', index=1, id="b", name="f"),
        calling("1}"),
        calling("2}", index=1),
    ],
    "indexes that skip": [calling('{"n":1}', index=2, id="a", name="f"), calling('{"n":2}', index=7, id="b", name="f")],
    "both in one delta": [
        chat(
            {
                "tool_calls": [
                    {"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"n":1}'}},
                    {"index": 1, "id": "b", "function": {"name": "f", "arguments": '{"n":2}'}},
                ]
            }
        )
    ],
}


@pytest.mark.parametrize("frames", TWO_CALLS.values(), ids=TWO_CALLS.keys())
def test_two_calls(frames: list[Frame]) -> None:
    events = run(CHAT, sse(*frames, chat({}, "tool_calls"), DONE))
    assert calls(completed(events)) == [("a", "f", '{"n":1}', True), ("b", "f", '{"n":2}', True)]
    for index, wanted in enumerate(('{"n":1}', '{"n":2}')):
        assert "".join(part or "" for at, _, _, part in tool_deltas(events) if at == index) == wanted


def test_what_a_server_puts_beside_a_call_stays_with_it() -> None:
    """Gemini's compatible endpoint signs a call there, and refuses a next turn without the signature."""
    signed = {"google": {"thought_signature": "c2ln"}}
    call: JsonObject = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    events = run(CHAT, sse(chat({"tool_calls": [{**call, "extra_content": signed}]}), chat({}, "tool_calls"), DONE))
    assert completed(events).tool_calls[0].extra_content == signed
    nothing: list[object] = [None, "x", []]
    for odd in nothing:
        events = run(CHAT, sse(chat({"tool_calls": [{**call, "extra_content": odd}]}), chat({}, "tool_calls"), DONE))
        assert completed(events).tool_calls[0].extra_content == {}


def test_made_up_ids_are_stable_and_differ() -> None:
    body = sse(calling('{"n":', name="f"), calling("1}"), calling("{}", index=1, name="g"), DONE)
    first, second = completed(run(CHAT, body)).tool_calls
    assert first.id
    assert second.id
    assert first.id != second.id
    assert [call.id for call in completed(run(CHAT, [body[:200], body[200:]])).tool_calls] == [first.id, second.id]
    assert tool_deltas(run(CHAT, body))[0] == (0, first.id, "f", '{"n":')


def test_made_up_ids_differ_between_answers() -> None:
    """Both may end up in one conversation."""
    anonymous = [{"choices": [{"delta": {"tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}}]}]
    one, other = (completed(run(CHAT, sse(*anonymous, DONE), request_id=name)).tool_calls[0] for name in ("r-1", "r-2"))
    assert one.id
    assert one.id != other.id


def test_the_token_limit_cuts_the_arguments() -> None:
    events = run(CHAT, sse(calling('{"path":"a","body":"once', id="c1", name="f"), chat({}, "length"), DONE))
    response = completed(events)
    assert calls(response) == [("c1", "f", '{"path":"a","body":"once', False)]
    assert (response.stop_reason, response.raw_stop_reason) == ("length", "length")


def test_the_token_limit_before_the_first_argument() -> None:
    """DESIGN, section 6: a call that the limit cut is never replaced by `{}`."""
    response = completed(run(CHAT, sse(calling("", id="c1", name="f"), chat({}, "length"), DONE)))
    assert calls(response) == [("c1", "f", "", False)]


def test_a_lost_stream_leaves_its_call_unfinished() -> None:
    end = failed(run(CHAT, sse(calling('{"a"', id="c1", name="f"))))
    assert calls(end.partial) == [("c1", "f", '{"a"', False)]


def test_half_characters_join_across_fragments() -> None:
    body = sse(calling('{"a":"\ud83d', id="c1", name="f"), calling('\ude00"}'), DONE)
    events = run(CHAT, body)
    assert [part for *_, part in tool_deltas(events)] == ['{"a":"', '😀"}']
    assert calls(completed(events)) == [("c1", "f", '{"a":"😀"}', True)]


def test_white_space_without_end_is_no_progress() -> None:
    pulse = Pulse(0.0)
    transform = ChatTransform(Context(request_id="r-1", pulse=pulse))
    pulse.now = 1.0
    transform.feed(_chunk(calling('{"a":', id="c1", name="f")))
    assert pulse.content_at == 1.0
    for now in (2.0, 3.0):
        pulse.now = now
        transform.feed(_chunk(calling("\n   ")))
    assert pulse.content_at == 1.0
    pulse.now = 4.0
    transform.feed(_chunk(calling("1}")))
    assert pulse.content_at == 4.0


def _chunk(document: JsonObject) -> Any:
    return document


# -- finish, usage, end


def test_an_empty_reason_is_none() -> None:
    frames: list[Frame] = [says("a", ""), says("b", ""), says("c", "stop")]
    assert completed(run(CHAT, sse(*frames, DONE))).text == "abc"
    assert failed(run(CHAT, sse(*frames[:2]))).error.code == "unterminated"


def test_a_reason_stop_after_calls() -> None:
    response = completed(run(CHAT, sse(calling("{}", id="c", name="f"), chat({}, "stop"), DONE)))
    assert (response.stop_reason, response.raw_stop_reason) == ("tool_calls", "stop")


def test_a_reason_tool_calls_without_any() -> None:
    response = completed(run(CHAT, sse(says("x", "tool_calls"), DONE)))
    assert (response.stop_reason, response.raw_stop_reason) == ("stop", "tool_calls")


@pytest.mark.parametrize("reason", ["length", "model_context_window_exceeded"])
def test_reasons_that_mean_a_limit(reason: str) -> None:
    response = completed(run(CHAT, sse(says("x", reason), DONE)))
    assert (response.stop_reason, response.raw_stop_reason) == ("length", reason)


def test_a_later_null_reason_takes_nothing_back() -> None:
    response = completed(run(CHAT, sse(says("x", "length"), chat({}, None), chat({}, ""), DONE)))
    assert (response.stop_reason, response.raw_stop_reason) == ("length", "length")


def test_the_reason_error_fails() -> None:
    end = failed(run(CHAT, sse(says("half"), chat({}, "error"), DONE)))
    assert end.error.kind is SamplingErrorKind.API
    assert end.partial is not None
    assert end.partial.text == "half"


BAD_CALL = {"code": 502, "message": "bad call upstream"}
IN_STREAM_ERRORS: dict[str, list[Frame]] = {
    "alone": [{"error": BAD_CALL}],
    "beside empty choices": [{"choices": [], "error": BAD_CALL}],
    "beside a reason stop": [chat({}, "stop", error=BAD_CALL)],
    "beside a reason error": [chat({}, "error", error=BAD_CALL)],
    "inside the choice": [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "error": BAD_CALL}]}],
    "inside the choice, reason error": [
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "error", "error": BAD_CALL}]}
    ],
    "usage follows": [{"error": BAD_CALL}, usage(3, 4)],
    "in a named frame": [("error", {"error": BAD_CALL})],
    "flat in a named frame": [("error", BAD_CALL)],
    "as an error field": [b'error: {"code":502,"message":"bad call upstream"}\n\n'],
    "as an error field, nested": [b'error: {"error":{"code":502,"message":"bad call upstream"}}\n\n'],
    "in a list": [json.dumps([{"error": BAD_CALL}])],
    "encoded twice": [{"error": {"message": json.dumps({"error": BAD_CALL})}}],
}


@pytest.mark.parametrize(
    "frames",
    [pytest.param(frames, id=name) for name, frames in IN_STREAM_ERRORS.items()],
)
def test_an_error_inside_the_stream(frames: list[Frame]) -> None:
    end = failed(run(CHAT, sse(says("so far"), *frames, DONE)))
    assert (end.error.kind, end.error.status, end.error.code) == (SamplingErrorKind.API, 502, "502")
    assert end.error.message == "bad call upstream"
    assert end.error.is_retryable
    assert end.partial is not None
    assert (end.partial.text, end.partial.stop_reason) == ("so far", None)


def test_text_that_rides_on_the_error_is_kept() -> None:
    events = run(CHAT, sse({**says("last words"), "error": BAD_CALL}))
    assert tokens(events) == [("text", "last words")]
    assert failed(events).error.status == 502


@pytest.mark.parametrize(
    ("error", "status", "code", "retryable"),
    [
        ({"message": "no such tool", "code": "tool_use_failed", "status_code": 400}, 400, "tool_use_failed", False),
        ({"message": "engine crashed"}, None, None, True),
        ({"message": "too fast", "code": "rate_limit_exceeded"}, 429, "rate_limit_exceeded", True),
        ({"message": "no money", "code": "insufficient_quota"}, 429, "insufficient_quota", False),
        ({"message": "bad key", "type": "authentication_error"}, 401, "authentication_error", False),
        ({"message": "wrong field", "type": "invalid_request_error"}, 400, "invalid_request_error", False),
    ],
)
def test_an_error_is_classed_by_what_it_says(
    error: JsonObject, status: int | None, code: str | None, retryable: bool
) -> None:
    info = failed(run(CHAT, sse(("error", {"error": error})))).error
    assert (info.status, info.code, info.is_retryable, info.message) == (status, code, retryable, error["message"])


def test_an_error_beside_its_own_message() -> None:
    """LM Studio."""
    info = failed(
        run(CHAT, sse(("error", {"error": {"message": "Model unloaded"}, "message": "Model unloaded"})))
    ).error
    assert (info.message, info.is_retryable) == ("Model unloaded", True)


@pytest.mark.parametrize("error", [None, "", {}, [], False])
def test_an_error_that_says_nothing_is_none(error: object) -> None:
    events = run(CHAT, sse({**says("fine", "stop"), "error": error}, DONE))
    assert completed(events).text == "fine"


@pytest.mark.parametrize("done", [[], [DONE], [f"{DONE} "], [DONE, DONE], [DONE, says("late")]])
def test_a_reason_is_enough_and_done_ends_it(done: list[Frame]) -> None:
    # B131
    response = completed(run(CHAT, sse(says("all"), chat({}, "stop"), *done)))
    assert (response.text, response.raw_stop_reason) == ("all", "stop")


@pytest.mark.parametrize("tail", [b"data: [DONE]", b"data:[DONE]", b"data: [DONE]\n", b"data:  [DONE] \r\n"])
def test_done_without_its_blank_line(tail: bytes) -> None:
    response = completed(run(CHAT, sse(says("all"), tail)))
    assert (response.text, response.stop_reason, response.raw_stop_reason) == ("all", "stop", None)


def test_a_half_payload_at_the_end_is_a_lost_connection() -> None:
    end = failed(run(CHAT, sse(says("some"), b'data: {"choices":[{"del')))
    assert (end.error.kind, end.error.is_retryable) == (SamplingErrorKind.HTTP, True)
    assert end.partial is not None
    assert end.partial.text == "some"


def test_usage_after_the_reason_is_read() -> None:
    assert counts(completed(run(CHAT, sse(says("a", "stop"), usage(11, 3), DONE))).usage) == (11, 3, 14)
    assert counts(completed(run(CHAT, sse(says("a", "stop"), usage(11, 3)))).usage) == (11, 3, 14)


GROQ: JsonObject = {"x_groq": {"id": "req", "usage": {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}}}


def test_usage_in_a_vendors_field() -> None:
    assert counts(completed(run(CHAT, sse(says("a"), chat({}, "stop", **GROQ), DONE))).usage) == (2, 3, 5)


@pytest.mark.parametrize("order", ["before", "after"])
def test_standard_usage_beats_a_vendors(order: str) -> None:
    frames: list[Frame] = [chat({}, "stop", **GROQ), usage(7, 8)]
    body = sse(says("a"), *(frames if order == "before" else reversed(frames)), DONE)
    assert counts(completed(run(CHAT, body)).usage) == (7, 8, 15)


def test_null_usage_erases_nothing() -> None:
    body = sse(chat({"content": "a"}, usage=None), usage(7, 8), chat({}, "stop", usage=None), DONE)
    assert counts(completed(run(CHAT, body)).usage) == (7, 8, 15)


@pytest.mark.parametrize(
    "late",
    [
        {"total_tokens": 0, "total_characters": 0},
        {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        {"prompt_tokens": None, "completion_tokens": None, "total_tokens": None},
        {},
    ],
)
def test_zeros_replace_no_numbers(late: JsonObject) -> None:
    body = sse(says("a", "stop"), usage(15, 4), {"choices": [], "usage": late}, DONE)
    assert counts(completed(run(CHAT, body)).usage) == (15, 4, 19)


def test_usage_merges_field_by_field() -> None:
    early = {
        "prompt_tokens": 15,
        "completion_tokens": 1,
        "total_tokens": 16,
        "prompt_tokens_details": {"cached_tokens": 6},
    }
    late = {"completion_tokens": 4, "total_tokens": 19, "prompt_tokens_details": None}
    body = sse({**says("a"), "usage": early}, {"choices": [], "usage": late}, chat({}, "stop"), DONE)
    found = completed(run(CHAT, body)).usage
    assert counts(found) == (15, 4, 19)
    assert found is not None
    assert found.cached_input_tokens == 6


@pytest.mark.parametrize("wire", [{"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}, {"queue_time": 0.1}])
def test_no_counts_are_no_usage(wire: JsonObject) -> None:
    assert completed(run(CHAT, sse(says("a", "stop"), {"choices": [], "usage": wire}, DONE))).usage is None


def test_reasoning_counted_beside_the_completion() -> None:
    wire = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 102}
    wire |= {"completion_tokens_details": {"reasoning_tokens": 90}}
    found = completed(run(CHAT, sse(says("a", "stop"), {"choices": [], "usage": wire}, DONE))).usage
    assert counts(found) == (10, 92, 102)
    assert found is not None
    assert found.reasoning_tokens == 90


def test_reasoning_counted_inside_the_completion() -> None:
    wire = {"prompt_tokens": 10, "completion_tokens": 92, "total_tokens": 102}
    wire |= {"completion_tokens_details": {"reasoning_tokens": 90}}
    assert counts(completed(run(CHAT, sse(says("a", "stop"), {"choices": [], "usage": wire}, DONE))).usage) == (
        10,
        92,
        102,
    )


def test_cached_counted_beside_the_prompt() -> None:
    wire = {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 50}}
    found = completed(run(CHAT, sse(says("a", "stop"), {"choices": [], "usage": wire}, DONE))).usage
    assert counts(found) == (55, 2, 57)
    assert found is not None
    assert found.cached_input_tokens == 50


@pytest.mark.parametrize(
    "wire",
    [
        {"prompt_tokens_details": None, "completion_tokens_details": None},
        {"prompt_tokens_details": [], "completion_tokens_details": "none"},
        {},
    ],
)
def test_details_that_say_nothing(wire: JsonObject) -> None:
    found = completed(run(CHAT, sse(says("a", "stop"), usage(5, 2, **wire), DONE))).usage
    assert counts(found) == (5, 2, 7)
    assert found is not None
    assert (found.cached_input_tokens, found.reasoning_tokens) == (None, None)


@pytest.mark.parametrize(
    ("odd", "read"), [("5", 5), (5.0, 5), (5.5, 0), (True, 0), (-1, -1), (10**30, 0), ("5" * 40, 0), ([5], 0)]
)
def test_counts_of_odd_types(odd: object, read: int) -> None:
    body = sse(says("a", "stop"), {"choices": [], "usage": {"prompt_tokens": odd, "completion_tokens": 2}}, DONE)
    found = completed(run(CHAT, body)).usage
    assert found is not None
    assert (found.input_tokens, found.output_tokens) == (max(read, 0) if read != -1 else found.input_tokens, 2)


# -- what must not stop a stream


def test_a_first_token_stands_directly_before_its_chunk() -> None:
    events = run(CHAT, sse(calling("{}", id="c", name="f"), chat({"reasoning": "r"}), says("t", "stop"), DONE))
    at = kinds(events).index("first_token")
    first, token = events[at], events[at + 1]
    assert isinstance(first, FirstToken)
    assert isinstance(token, ChannelToken)
    assert (first.channel, token.channel, token.text) == ("reasoning", "reasoning", "r")


ODD_CHUNKS: list[object] = [
    {"choices": {}},
    {"choices": [None]},
    {"choices": [{"index": 0, "delta": []}]},
    {"choices": [{"index": "zero", "delta": {"content": ""}}]},
    {"choices": [{"index": 0, "delta": {"content": 5.5}}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": {}}}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": [5]}}]},
    {"choices": [{"index": 0, "delta": {"reasoning_details": [None, 5]}}]},
    {"choices": [{"index": 0, "delta": {"annotations": [None, 5]}}]},
    {"choices": [{"index": 0, "delta": {"novel": {"deep": [1]}}}]},
    {"id": 5, "model": ["x"], "choices": []},
    {"usage": [], "choices": []},
    {"usage": "none", "x_groq": 5},
    {"object": "novel.thing"},
    [],
    [{}],
    5,
]


@pytest.mark.parametrize("odd", ODD_CHUNKS, ids=json.dumps)
def test_odd_chunks_pass_by(odd: object) -> None:
    events = run(CHAT, sse(says("be"), json.dumps(odd), says("fore", "stop"), DONE))
    assert completed(events).text.replace("5.5", "") == "before"


@pytest.mark.parametrize(
    "cost",
    [
        10**400,
        -1,
        True,
        "free",
        [1],
        {"total_cost": "free"},
    ],
)
def test_a_cost_that_is_none(cost: object) -> None:
    events = run(CHAT, sse(says("a", "stop"), usage(1, 2, cost=cost), DONE))
    assert completed(events).cost_usd is None


@pytest.mark.parametrize(("cost", "usd"), [(0.25, 0.25), (2, 2.0), ({"total_cost": 0.5}, 0.5)])
def test_a_cost_in_dollars(cost: object, usd: float) -> None:
    assert completed(run(CHAT, sse(says("a", "stop"), usage(1, 2, cost=cost), DONE))).cost_usd == usd


def test_details_of_odd_types_are_no_text() -> None:
    odd = [{"type": "reasoning.text", "text": {"a": 1}}, {"type": "reasoning.summary", "summary": ["b"]}]
    assert tokens(run(CHAT, sse(chat({"reasoning_details": odd}), says("x", "stop"), DONE))) == [("text", "x")]


def test_invalid_utf8_is_replaced() -> None:
    raw = b'data: {"id":"cmpl-1","choices":[{"delta":{"content":"ab\xffcd"},"finish_reason":"stop"}]}\n\n'
    assert completed(run(CHAT, raw)).text == "ab\ufffdcd"
