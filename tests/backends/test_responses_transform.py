"""Responses streams as servers really send them, and the events and response that each must give."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rx_sampler import (
    AnnotationAdded,
    BackendToolCallCompleted,
    BackendToolCallItem,
    BackendToolCallStarted,
    DoomLoopSignals,
    OpaqueItem,
    ReasoningCompleted,
    ReasoningItem,
    RefusalItem,
    ResponseStarted,
    SamplingErrorKind,
    SamplingEvent,
    TextItem,
    Usage,
)
from rx_sampler.backends.assembly import Context
from rx_sampler.backends.responses.transform import ResponsesTransform
from rx_sampler.conversation import JsonObject
from rx_sampler.wire.idle import Pulse

from .streams import (
    CREATED,
    DONE,
    RESPONSES,
    Frame,
    calls,
    completed,
    delta,
    ended,
    ev,
    failed,
    function,
    kinds,
    message,
    run,
    sse,
    tokens,
    tool_deltas,
)


def counts(usage: Usage | None) -> tuple[int, int, int] | None:
    return (usage.input_tokens, usage.output_tokens, usage.total_tokens) if usage else None


def added(item: JsonObject, output: int | None = 0) -> JsonObject:
    where = {} if output is None else {"output_index": output}
    return ev("output_item.added", item=item, **where)


def done(item: JsonObject, output: int | None = 0) -> JsonObject:
    where = {} if output is None else {"output_index": output}
    return ev("output_item.done", item=item, **where)


def argues(text: str, output: int | None = 0, **more: Any) -> JsonObject:
    where = {} if output is None else {"output_index": output}
    return ev("function_call_arguments.delta", delta=text, **where, **more)


def hosted(events: list[SamplingEvent]) -> list[tuple[str, str, str]]:
    return [
        (event.kind.removeprefix("backend_tool_call_"), event.call_id, event.name)
        for event in events
        if isinstance(event, BackendToolCallStarted | BackendToolCallCompleted)
    ]


# -- what a stream amounts to


@pytest.mark.parametrize("tail", [[], [DONE]])
@pytest.mark.parametrize("start", [[CREATED], [CREATED, delta("Nearly"), done(message("Nearly"))]])
def test_an_unannounced_end_is_a_lost_connection(start: list[Frame], tail: list[Frame]) -> None:
    """B159 calls it api, 500; here it is Failed(http) on every backend (DESIGN, section 6)."""
    assert failed(run(RESPONSES, b"")).error.kind is SamplingErrorKind.HTTP
    end = failed(run(RESPONSES, sse(*start, *tail)))
    assert (end.error.kind, end.error.code, end.error.is_retryable) == (SamplingErrorKind.HTTP, "unterminated", True)
    assert end.error.status is None
    assert (end.partial.text if end.partial else None) == ("Nearly" if start[1:] else None)


def test_text_and_the_terminal_event() -> None:
    """B160."""
    events = run(RESPONSES, sse(CREATED, delta("hello"), ended(output=[message("hello")])))
    assert kinds(events) == ["stream_started", "response_started", "first_token", "channel_token", "completed"]
    response = completed(events)
    assert (response.text, response.stop_reason, response.raw_stop_reason) == ("hello", "stop", "completed")
    assert (response.model, response.message_id, counts(response.usage)) == ("toy-1", "resp-1", (5, 3, 8))


def test_the_terminal_event_ends_the_stream() -> None:
    """B178 waits for the socket; DESIGN, section 6: the logical end ends the stream, whatever follows."""
    body = sse(CREATED, delta("hello"), ended(), delta(" late"), {"type": "error", "message": "late"})
    assert completed(run(RESPONSES, body)).text == "hello"


@pytest.mark.parametrize("name", ["id", "model"])
def test_created_names_the_answer(name: str) -> None:
    events = run(RESPONSES, sse(ev("created", response={name: "x"}), delta("a"), ended()))
    announced = [event for event in events if isinstance(event, ResponseStarted)]
    assert [(e.message_id, e.model) for e in announced] == [("x", None) if name == "id" else (None, "x")]


def test_a_failed_response() -> None:
    """B161: the code tells the status."""
    error = {"code": "server_error", "message": "boom"}
    body = sse(CREATED, delta("Partial"), ended("failed", status="failed", error=error, usage=None))
    end = failed(run(RESPONSES, body))
    assert (end.error.kind, end.error.status, end.error.code) == (SamplingErrorKind.API, 500, "server_error")
    assert end.error.message == "boom"
    assert end.error.is_retryable
    assert end.partial is not None
    assert (end.partial.text, end.partial.message_id) == ("Partial", "resp-1")


def test_a_failed_response_is_not_always_a_500() -> None:
    body = sse(CREATED, ended("failed", error={"code": "invalid_prompt", "message": "no"}))
    assert (failed(run(RESPONSES, body)).error.status, failed(run(RESPONSES, body)).error.is_retryable) == (400, False)


def test_a_response_that_failed_at_once_has_nothing_to_show() -> None:
    """B163: neither a token nor a partial answer, so a retry repeats nothing."""
    usage = {"input_tokens": 5, "output_tokens": 0, "total_tokens": 5}
    error = {"code": "server_error", "message": "boom"}
    events = run(RESPONSES, sse(CREATED, ended("failed", status="failed", error=error, usage=usage)))
    assert kinds(events) == ["stream_started", "response_started", "failed"]
    assert failed(events).partial is None


@pytest.mark.parametrize("kind", ["completed", "done"])
def test_the_status_tells_of_a_failure_too(kind: str) -> None:
    body = sse(CREATED, ended(kind, status="failed", error={"code": "server_error", "message": "boom"}))
    assert failed(run(RESPONSES, body)).error.code == "server_error"


@pytest.mark.parametrize(
    "frame",
    [
        {"type": "error", "code": "invalid_image", "message": "bad picture", "param": None},  # B162
        {"type": "error", "error": {"code": "invalid_image", "message": "bad picture"}},
        {"type": "error", "error": {"type": "invalid_image", "message": "bad picture"}, "code": None, "message": None},
        ("error", {"code": "invalid_image", "message": "bad picture"}),
    ],
)
def test_an_error_event_flat_or_nested(frame: Frame) -> None:
    # B128
    end = failed(run(RESPONSES, sse(CREATED, delta("so far"), frame)))
    assert (end.error.kind, end.error.code) == (SamplingErrorKind.API, "invalid_image")
    assert end.error.message == "bad picture"
    assert end.partial is not None
    assert end.partial.text == "so far"


def test_an_error_event_tells_in_prose_how_long_to_wait() -> None:
    error = {"code": "rate_limit_exceeded", "message": "Rate limit reached. Please try again in 2s."}
    info = failed(run(RESPONSES, sse(CREATED, {"type": "error", "error": error}))).error
    assert (info.kind, info.status, info.code) == (SamplingErrorKind.RATE_LIMITED, 429, "rate_limit_exceeded")
    assert (info.is_retryable, info.retry_after_s) == (True, 2.0)


@pytest.mark.parametrize(("reason", "stop"), [("max_output_tokens", "length"), ("content_filter", "content_filter")])
def test_an_incomplete_response(reason: str, stop: str) -> None:
    body = sse(CREATED, delta("so f"), ended("incomplete", incomplete_details={"reason": reason}))
    response = completed(run(RESPONSES, body))
    assert (response.text, response.stop_reason, response.raw_stop_reason) == ("so f", stop, reason)


def test_an_incomplete_response_with_a_call_is_length() -> None:
    """B175 gives tool_calls; DESIGN, section 6: a length stop stays one, and the call says that it is cut."""
    body = sse(
        CREATED,
        added(function("f", "")),
        argues('{"a":'),
        done(function("f", '{"a":', status="incomplete")),
        ended("incomplete", incomplete_details={"reason": "max_output_tokens"}),
    )
    response = completed(run(RESPONSES, body))
    assert response.stop_reason == "length"
    assert calls(response) == [("call-1", "f", '{"a":', False)]


def test_an_incomplete_call_without_arguments() -> None:
    """DESIGN, section 6: a call that the limit cut is never replaced by `{}`."""
    item = function("f", "", status="incomplete")
    end = ended("incomplete", incomplete_details={"reason": "max_output_tokens"}, output=[item])
    response = completed(run(RESPONSES, sse(CREATED, added(function("f", "")), done(item), end)))
    assert calls(response) == [("call-1", "f", "", False)]


@pytest.mark.parametrize("kind", ["completed", "cancelled"])
def test_a_response_cancelled_by_the_server(kind: str) -> None:
    end = failed(run(RESPONSES, sse(CREATED, delta("a"), ended(kind, status="cancelled"))))
    assert (end.error.kind, end.error.is_retryable) == (SamplingErrorKind.API, False)
    assert "cancelled by server" in end.error.message


def test_a_refusal() -> None:
    """B168 and B179 lose it and call it empty; here it streams and completes (DESIGN, section 6)."""
    part = {"type": "refusal", "refusal": "No, sorry."}
    item: JsonObject = {"type": "message", "id": "msg-1", "content": [part]}
    where = {"output_index": 0, "content_index": 0}
    body = sse(
        CREATED,
        ev("refusal.delta", delta="No, ", **where),
        ev("refusal.delta", delta="sorry.", **where),
        ev("refusal.done", refusal="No, sorry.", **where),
        done(item),
        ended(output=[item]),
    )
    events = run(RESPONSES, body)
    assert tokens(events) == [("refusal", "No, "), ("refusal", "sorry.")]
    response = completed(events)
    assert (response.stop_reason, response.items) == ("content_filter", (RefusalItem(text="No, sorry."),))


def test_a_call_with_two_fragments() -> None:
    """B170."""
    body = sse(CREATED, added(function("do_thing", "", call_id="call_xyz")), argues('{"x":'), argues("1}"), ended())
    events = run(RESPONSES, body)
    assert tool_deltas(events) == [(0, "call_xyz", "do_thing", None), (0, None, None, '{"x":'), (0, None, None, "1}")]
    assert calls(completed(events)) == [("call_xyz", "do_thing", '{"x":1}', True)]
    assert completed(events).stop_reason == "tool_calls"


def test_fragments_find_their_call_by_output_index() -> None:
    """B172."""
    body = sse(
        CREATED,
        added(function("f", "", call_id="c1"), 0),
        added(function("g", "", call_id="c2"), 1),
        argues('{"b":2}', 1),
        argues('{"a":1}', 0),
        ended(),
    )
    events = run(RESPONSES, body)
    assert [(at, part) for at, _, _, part in tool_deltas(events) if part] == [(1, '{"b":2}'), (0, '{"a":1}')]
    assert calls(completed(events)) == [("c1", "f", '{"a":1}', True), ("c2", "g", '{"b":2}', True)]


def test_tool_indexes_are_dense() -> None:
    """B173."""
    events = run(RESPONSES, sse(CREATED, added(function("f", ""), 3), argues("{}", 3), ended()))
    assert [at for at, *_ in tool_deltas(events)] == [0, 0]


def test_reasoning_text_without_a_closing_item() -> None:
    """B174: what streamed makes the reasoning item."""
    where = {"output_index": 0, "content_index": 0}
    body = sse(CREATED, ev("reasoning_text.delta", delta="Hm.", **where), delta("So.", output=1), ended())
    events = run(RESPONSES, body)
    assert tokens(events) == [("reasoning", "Hm."), ("text", "So.")]
    assert [item.type for item in completed(events).items] == ["reasoning", "text"]
    assert completed(events).reasoning == "Hm."


def test_items_keep_their_order() -> None:
    """B177, without the rule that the assistant comes last: the order is the wire's."""
    search = {"type": "web_search_call", "id": "ws-1", "status": "completed"}
    thought = {"type": "reasoning", "id": "rs-1", "summary": [{"type": "summary_text", "text": "Hm."}]}
    response = completed(run(RESPONSES, sse(CREATED, ended(output=[thought, search, message("So.")]))))
    assert [item.type for item in response.items] == ["reasoning", "backend_tool_call", "text"]


# -- quirks


@pytest.mark.parametrize(
    "frame",
    [
        {"type": "keepalive", "sequence_number": 3},
        {"type": "ping"},
        {"type": "response.queued", "response": {"id": "resp-1"}},
        {"type": "response.in_progress", "response": {"id": "resp-1"}},
        {"type": "response.novel.thing", "delta": "?"},
        {"type": "novel"},
        {"hello": 1},
        delta(""),
    ],
    ids=lambda frame: str(frame.get("type")),
)
def test_events_that_say_nothing(frame: JsonObject) -> None:
    events = run(RESPONSES, sse(CREATED, frame, delta("a"), frame, delta("b"), frame, ended()))
    assert kinds(events) == [
        "stream_started",
        "response_started",
        "first_token",
        "channel_token",
        "channel_token",
        "completed",
    ]
    assert completed(events).text == "ab"


@pytest.mark.parametrize("kind", ["created", "queued", "in_progress"])
def test_signs_of_life_are_no_progress(kind: str) -> None:
    """And keepalives: B163 in spirit, on the content clock."""
    # B166, B167
    pulse = Pulse(0.0)
    transform = ResponsesTransform(Context(request_id="r-1", pulse=pulse))
    pulse.now = 5.0
    for frame in (ev(kind, response={}), {"type": "keepalive"}, delta("")):
        transform.feed(_chunk(frame))
    assert pulse.content_at == 0.0
    transform.feed(_chunk(delta("x")))
    assert pulse.content_at == 5.0


PROGRESS: dict[str, JsonObject] = {
    "refusal": ev("refusal.delta", delta="No", output_index=0, content_index=0),
    "reasoning": ev("reasoning_text.delta", delta="Hm", output_index=0, content_index=0),
    "arguments": argues('{"a"'),
    "web search": ev("web_search_call.searching", output_index=0, item_id="ws-1"),
    "item": added(function("f", "")),
    "unknown": ev("novel.thing"),
}


@pytest.mark.parametrize("frame", PROGRESS.values(), ids=PROGRESS.keys())
def test_what_is_progress(frame: JsonObject) -> None:
    """B166 and B167, on the content clock; text is above."""
    pulse = Pulse(0.0)
    transform = ResponsesTransform(Context(request_id="r-1", pulse=pulse))
    pulse.now = 5.0
    transform.feed(_chunk(frame))
    assert pulse.content_at == 5.0


def _chunk(document: JsonObject) -> Any:
    return document


def test_an_unknown_item_is_kept_as_it_came() -> None:
    item = {"type": "novel_thing", "id": "n-1", "weight": 3}
    events = run(RESPONSES, sse(CREATED, added({"type": "novel_thing", "id": "n-1"}), done(item), ended()))
    assert kinds(events) == ["stream_started", "response_started", "completed"]
    assert completed(events).items == (OpaqueItem(wire=item, backend="responses"),)


@pytest.mark.parametrize("kind", ["mcp_approval_request", "mcp_list_tools"])
def test_questions_to_the_caller_are_items_not_calls(kind: str) -> None:
    item = {"type": kind, "id": "m-1", "server_label": "toy"}
    events = run(RESPONSES, sse(CREATED, added(item), done(item), delta("x", output=1), ended()))
    response = completed(events)
    assert (hosted(events), response.tool_calls) == ([], ())
    assert response.items[0] == OpaqueItem(wire=item, backend="responses")


def test_an_unknown_part_says_nothing() -> None:
    item = message("x")
    item["content"] = [{"type": "novel_part", "blob": "?"}, *item["content"]]
    body = sse(
        CREATED, delta("x", content=1), ev("content_part.done", part={"type": "novel_part"}), done(item), ended()
    )
    assert completed(run(RESPONSES, body)).text == "x"


def test_item_ids_that_change_with_each_event() -> None:
    """GitHub Copilot: the output index is what stays."""
    body = sse(
        CREATED,
        added({"type": "function_call", "id": "AAA", "call_id": "call_c", "name": "read", "arguments": ""}, 1),
        argues('{"path"', 1, item_id="BBB", obfuscation="xxxx"),
        argues(':"p"}', 1, item_id="CCC", obfuscation="x"),
        ev("function_call_arguments.done", output_index=1, item_id="DDD", arguments='{"path":"p"}'),
        done(
            {"type": "function_call", "id": "EEE", "call_id": "call_c", "name": "read", "arguments": '{"path":"p"}'}, 1
        ),
        ended(output=[message("Hi", id="FFF"), function("read", '{"path":"p"}', call_id="call_c", id="GGG")]),
    )
    response = completed(run(RESPONSES, body))
    assert calls(response) == [("call_c", "read", '{"path":"p"}', True)]
    assert response.text == "Hi"


IDENTITIES: dict[str, tuple[JsonObject, JsonObject]] = {
    "item id": ({"id": "fc-{}"}, {"item_id": "fc-{}"}),
    "call id": ({}, {"call_id": "call-{}"}),
}


@pytest.mark.parametrize(("opened", "named"), IDENTITIES.values(), ids=IDENTITIES.keys())
def test_calls_without_output_indexes(opened: JsonObject, named: JsonObject) -> None:
    def fill(fields: JsonObject, at: int) -> JsonObject:
        return {name: value.format(at) for name, value in fields.items()}

    items = [function(f"f{at}", "", call_id=f"call-{at}") | fill(opened, at) for at in (0, 1)]
    body = sse(
        CREATED,
        *(added(item, None) for item in items),
        argues('{"n":1}', None, **fill(named, 1)),
        argues('{"n":0}', None, **fill(named, 0)),
        ended(output=[item | {"arguments": f'{{"n":{at}}}'} for at, item in enumerate(items)]),
    )
    assert calls(completed(run(RESPONSES, body))) == [
        ("call-0", "f0", '{"n":0}', True),
        ("call-1", "f1", '{"n":1}', True),
    ]


def test_fragments_that_name_nothing_go_to_the_open_call() -> None:
    body = sse(
        CREATED,
        added(function("f", "", call_id="c1"), None),
        argues('{"n":', None),
        argues("1}", None),
        done(function("f", '{"n":1}', call_id="c1"), None),
        added(function("g", "", call_id="c2"), None),
        argues('{"n":2}', None),
        ended(),
    )
    assert calls(completed(run(RESPONSES, body))) == [("c1", "f", '{"n":1}', True), ("c2", "g", '{"n":2}', True)]


def test_text_that_names_nothing_goes_to_the_open_message() -> None:
    frames: list[Frame] = []
    for name, text in (("a", "one"), ("b", "two")):
        frames.append(added({"type": "message", "id": name, "content": []}, None))
        frames.append(ev("output_text.delta", delta=text))
        frames.append(done(message(text, id=name), None))
    events = run(RESPONSES, sse(CREATED, *frames, ended(output=[message("one", id="a"), message("two", id="b")])))
    assert tokens(events) == [("text", "one"), ("text", "two")]
    assert completed(events).items == (TextItem(text="one"), TextItem(text="two"))


def test_output_index_0_for_every_item() -> None:
    """What streamed as text is text, whatever stood under its index before."""
    thought = {"type": "reasoning", "id": "rs-1", "summary": [{"type": "summary_text", "text": "Hm."}]}
    body = sse(
        CREATED,
        added({"type": "reasoning", "id": "rs-1", "summary": []}),
        ev("reasoning_summary_text.delta", delta="Hm.", output_index=0, item_id="rs-1"),
        done(thought),
        added({"type": "message", "id": "msg-1", "content": []}),
        delta("So.", item_id="msg-1"),
        done(message("So.")),
        ended(output=[thought, message("So.")]),
    )
    response = completed(run(RESPONSES, body))
    assert (response.reasoning, response.text) == ("Hm.", "So.")


def test_text_sent_to_the_index_of_a_call_is_not_lost() -> None:
    body = sse(CREATED, added(function("f", "")), argues("{}"), delta("hm"), ended())
    response = completed(run(RESPONSES, body))
    assert (response.text, calls(response)) == ("hm", [("call-1", "f", "{}", True)])


def test_a_call_without_item_id() -> None:
    item = function("lookup", '{"q":"sky"}', call_id="call_55")
    events = run(RESPONSES, sse(CREATED, added(item | {"arguments": ""}), argues('{"q":"sky"}'), done(item), ended()))
    assert calls(completed(events)) == [("call_55", "lookup", '{"q":"sky"}', True)]


@pytest.mark.parametrize("start", [[], [CREATED]])
def test_text_before_anything_was_opened(start: list[Frame]) -> None:
    events = run(
        RESPONSES, sse(*start, delta("He"), delta("llo"), done(message("Hello")), ended(output=[message("Hello")]))
    )
    assert tokens(events) == [("text", "He"), ("text", "llo")]
    assert completed(events).items == (TextItem(text="Hello"),)


def test_a_nameless_call_waits_for_its_closing_event() -> None:
    """B171 drops what it cannot map; rule 2 of the wire: nothing that streamed may be lost."""
    body = sse(CREATED, argues('{"q"'), argues(":1}"), done(function("f", '{"q":1}')), ended())
    events = run(RESPONSES, body)
    assert tool_deltas(events) == [(0, "call-1", "f", '{"q":1}')]
    assert calls(completed(events)) == [("call-1", "f", '{"q":1}', True)]


def test_arguments_of_a_call_whose_name_never_comes_are_kept() -> None:
    events = run(RESPONSES, sse(CREATED, argues('{"q":1}'), ended()))
    (call,) = completed(events).tool_calls
    assert (call.name, call.arguments, call.complete) == ("", '{"q":1}', False)
    assert "".join(part or "" for *_, part in tool_deltas(events)) == '{"q":1}'


def test_arguments_of_a_nameless_call_are_in_the_partial() -> None:
    partial = failed(run(RESPONSES, sse(CREATED, argues('{"q"')))).partial
    assert partial is not None
    assert [(call.arguments, call.complete) for call in partial.tool_calls] == [('{"q"', False)]


def test_a_name_that_comes_after_the_arguments_began() -> None:
    body = sse(CREATED, argues('{"q"'), added(function("f", "")), argues(":1}"), ended())
    assert calls(completed(run(RESPONSES, body))) == [("call-1", "f", '{"q":1}', True)]


def test_final_items_are_ordered_by_output_index() -> None:
    body = sse(
        CREATED,
        delta("B", output=1),
        delta("a", output=0),
        delta("b", output=1),
        done(message("Bb", id="two"), 1),
        done(message("a", id="one"), 0),
        ended(),
    )
    events = run(RESPONSES, body)
    assert [text for _, text in tokens(events)] == ["B", "a", "b"]
    assert completed(events).items == (TextItem(text="a"), TextItem(text="Bb"))


def test_an_event_sent_twice_counts_once() -> None:
    frames = [delta("a", sequence_number=3), delta("b", sequence_number=4), delta("b", sequence_number=4)]
    assert completed(run(RESPONSES, sse(CREATED, *frames, ended()))).text == "ab"


@pytest.mark.parametrize("numbers", [(1, 2, 2, 5), (9, 3, 4, 1), (7, 7, 7, 7), (None, None, None, None)])
def test_sequence_numbers_order_nothing(numbers: tuple[int | None, ...]) -> None:
    frames = [delta(text, sequence_number=number) for text, number in zip("abcd", numbers, strict=True)]
    assert completed(run(RESPONSES, sse(CREATED, *frames, ended()))).text == "abcd"


def test_equal_deltas_with_their_own_numbers_all_count() -> None:
    frames = [delta("ha", sequence_number=number) for number in (3, 4, 5)]
    assert completed(run(RESPONSES, sse(CREATED, *frames, ended()))).text == "hahaha"
    assert completed(run(RESPONSES, sse(CREATED, *[delta("ha")] * 3, ended()))).text == "hahaha"


CLOSING = {
    "text.done": ev("output_text.done", output_index=0, content_index=0, text="hello world"),
    "part.done": ev(
        "content_part.done", output_index=0, content_index=0, part={"type": "output_text", "text": "hello world"}
    ),
    "item.done": done(message("hello world")),
}


@pytest.mark.parametrize("streamed", [["hello", " world"], ["hello"], []])
@pytest.mark.parametrize("closing", [*([frame] for frame in CLOSING.values()), list(CLOSING.values()), []])
def test_closing_events_say_only_what_is_missing(streamed: list[str], closing: list[Frame]) -> None:
    # B212
    body = sse(CREATED, *map(delta, streamed), *closing, ended(output=[message("hello world")]))
    events = run(RESPONSES, body)
    assert [text for _, text in tokens(events)][: len(streamed)] == streamed
    assert "".join(text for _, text in tokens(events)) == "hello world"
    assert completed(events).text == "hello world"


@pytest.mark.parametrize("streamed", [['{"a"', ":1}"], ['{"a"'], []])
@pytest.mark.parametrize("closed", [True, False])
def test_arguments_in_a_closing_event(streamed: list[str], closed: bool) -> None:
    whole = '{"a":1}'
    closing: list[Frame] = [ev("function_call_arguments.done", output_index=0, arguments=whole)] if closed else []
    body = sse(
        CREATED, added(function("f", "")), *map(argues, streamed), *closing, ended(output=[function("f", whole)])
    )
    events = run(RESPONSES, body)
    assert "".join(part or "" for *_, part in tool_deltas(events)) == whole
    assert calls(completed(events)) == [("call-1", "f", whole, True)]


def test_closed_too_early() -> None:
    body = sse(
        CREATED,
        delta("1"),
        ev("output_text.done", output_index=0, content_index=0, text="1"),
        done(message("1")),
        delta(", 2"),
        delta(", 3"),
        ended(output=[message("1, 2, 3")]),
    )
    events = run(RESPONSES, body)
    assert [text for _, text in tokens(events)] == ["1", ", 2", ", 3"]
    assert completed(events).text == "1, 2, 3"


@pytest.mark.parametrize("response", [{"output": []}, {}, None])
def test_a_terminal_event_that_knows_nothing(response: JsonObject | None) -> None:
    body = sse(CREATED, delta("all of it"), {"type": "response.completed", "response": response})
    found = completed(run(RESPONSES, body))
    assert (found.text, found.stop_reason, found.usage) == ("all of it", "stop", None)
    assert (found.message_id, found.model) == ("resp-1", "toy-1")


def test_a_huge_delta() -> None:
    text = "long " * 50_000
    assert completed(run(RESPONSES, sse(CREATED, delta(text), ended(output=[message(text)])))).text == text


def says_summary(text: str, part: int, output: int = 0) -> JsonObject:
    return ev("reasoning_summary_text.delta", delta=text, summary_index=part, output_index=output)


def test_summary_parts_are_set_apart() -> None:
    parts = [{"type": "summary_text", "text": "**Reading**"}, {"type": "summary_text", "text": "**Writing**"}]
    item = {"type": "reasoning", "id": "rs-1", "summary": parts, "encrypted_content": "ZW5j"}
    body = sse(
        CREATED,
        says_summary("**Read", 0),
        says_summary("ing**", 0),
        says_summary("**Writing**", 1),
        done(item),
        delta("Done.", output=1),
        ended(output=[item, message("Done.")]),
    )
    events = run(RESPONSES, body)
    assert "".join(text for channel, text in tokens(events) if channel == "reasoning") == "**Reading**\n\n**Writing**"
    thought = completed(events).items[0]
    assert isinstance(thought, ReasoningItem)
    assert thought.summary == ("**Reading**", "**Writing**")
    assert (thought.id, thought.encrypted_content) == ("rs-1", "ZW5j")
    assert thought.text == "**Reading**\n\n**Writing**"
    assert [event.signature for event in events if isinstance(event, ReasoningCompleted)] == ["ZW5j"]


def test_summaries_of_two_items_are_set_apart() -> None:
    body = sse(CREATED, says_summary("one", 0), says_summary("two", 0, output=1), ended())
    assert completed(run(RESPONSES, body)).reasoning == "one\n\ntwo"


def test_the_same_reasoning_is_not_told_twice() -> None:
    # B174
    item = {
        "type": "reasoning",
        "id": "rs-1",
        "summary": [{"type": "summary_text", "text": "Hm."}],
        "content": [{"type": "reasoning_text", "text": "Hm."}],
    }
    body = sse(
        CREATED,
        ev("reasoning_text.delta", delta="Hm.", output_index=0, content_index=0),
        done(item),
        ended(output=[item]),
    )
    events = run(RESPONSES, body)
    assert tokens(events) == [("reasoning", "Hm.")]
    assert completed(events).reasoning == "Hm."


def test_encrypted_reasoning_without_text_is_kept() -> None:
    item: JsonObject = {"type": "reasoning", "id": "rs-1", "summary": [], "encrypted_content": "ZW5j"}
    events = run(
        RESPONSES, sse(CREATED, added(item | {"encrypted_content": ""}), done(item), delta("x", output=1), ended())
    )
    assert tokens(events) == [("text", "x")]
    assert completed(events).items[0] == ReasoningItem(id="rs-1", encrypted_content="ZW5j")


def test_annotations_are_told_once_and_kept() -> None:
    note = {"type": "url_citation", "url": "https://example.org/a", "start_index": 0, "end_index": 4}
    item = message("four", annotations=[note])
    body = sse(
        CREATED,
        delta("four"),
        ev("output_text.annotation.added", output_index=0, content_index=0, annotation_index=0, annotation=note),
        done(item),
        ended(output=[item]),
    )
    events = run(RESPONSES, body)
    assert [(e.annotation, e.offset) for e in events if isinstance(e, AnnotationAdded)] == [(note, 4)]
    assert completed(events).items == (TextItem(text="four", annotations=(note,)),)


HOSTED = ["web_search", "file_search", "code_interpreter", "mcp", "image_generation", "computer"]


@pytest.mark.parametrize("name", HOSTED)
@pytest.mark.parametrize("opened", [True, False])
def test_the_servers_own_tools(name: str, opened: bool) -> None:
    kind = f"{name}_call"
    item = {"type": kind, "id": "h-1", "status": "completed", "action": {"query": "tea"}}
    where = {"output_index": 0, "item_id": "h-1"}
    signs = [ev(f"{kind}.in_progress", **where), ev(f"{kind}.searching", **where), ev(f"{kind}.completed", **where)]
    start = [added({"type": kind, "id": "h-1", "status": "in_progress"})] if opened else []
    body = sse(CREATED, *start, *signs, done(item), delta("Tea.", output=1), ended(output=[item, message("Tea.")]))
    events = run(RESPONSES, body)
    assert hosted(events) == [("started", "h-1", name), ("completed", "h-1", name)]
    assert kinds(events)[2] == "backend_tool_call_started"
    (result,) = (event.result for event in events if isinstance(event, BackendToolCallCompleted))
    assert result is not None
    assert {key: result[key] for key in item} == item
    response = completed(events)
    assert (response.tool_calls, response.stop_reason) == ((), "stop")
    call = response.items[0]
    assert isinstance(call, BackendToolCallItem)
    assert (call.call_id, call.name) == ("h-1", name)
    assert {key: call.wire[0][key] for key in item} == item


def test_code_that_the_server_ran() -> None:
    """B169."""
    item = {"type": "code_interpreter_call", "id": "ci-1", "code": "print(1)", "outputs": None}
    body = sse(
        CREATED,
        ev("code_interpreter_call.in_progress", output_index=0, item_id="ci-1"),
        ev("code_interpreter_call_code.delta", output_index=0, item_id="ci-1", delta="print("),
        ev("code_interpreter_call_code.done", output_index=0, item_id="ci-1", code="print(1)"),
        done(item),
        ended(),
    )
    events = run(RESPONSES, body)
    assert hosted(events) == [("started", "ci-1", "code_interpreter"), ("completed", "ci-1", "code_interpreter")]
    (result,) = (event.result for event in events if isinstance(event, BackendToolCallCompleted))
    assert result is not None
    assert result["code"] == "print(1)"
    assert tokens(events) == []


def test_a_hosted_call_in_the_terminal_event_alone() -> None:
    item = {"type": "web_search_call", "id": "ws-1", "status": "completed"}
    assert hosted(run(RESPONSES, sse(CREATED, ended(output=[item, message("x")])))) == [
        ("started", "ws-1", "web_search"),
        ("completed", "ws-1", "web_search"),
    ]


def x_search(name: str = "x_keyword_search", text: str = '{"query":"tea"}') -> JsonObject:
    return {"type": "custom_tool_call", "id": "ct-1", "call_id": "xs-1", "name": name, "input": text}


def x_frames(name: str, *, opened: bool = True) -> list[Frame]:
    where = {"output_index": 0, "item_id": "ct-1"}
    return [
        CREATED,
        *([added(x_search(name, ""))] if opened else []),
        ev("custom_tool_call_input.delta", delta='{"query"', **where),
        ev("custom_tool_call_input.delta", delta=':"tea"}', **where),
        ev("custom_tool_call_input.done", input='{"query":"tea"}', **where),
        done(x_search(name)),
        ended(),
    ]


@pytest.mark.parametrize("name", ["x_keyword_search", "x_semantic_search", "x_user_search", "x_thread_fetch"])
@pytest.mark.parametrize(
    "opened",
    [
        True,
        False,
    ],
)
def test_searches_of_xai_are_hosted(name: str, opened: bool) -> None:
    events = run(RESPONSES, sse(*x_frames(name, opened=opened)))
    assert [entry[::2] for entry in hosted(events)] == [("started", "x_search"), ("completed", "x_search")]
    assert (tool_deltas(events), completed(events).tool_calls, completed(events).stop_reason) == ([], (), "stop")


@pytest.mark.parametrize("name", ["run_query", "search", "ax_search"])
@pytest.mark.parametrize("opened", [True, False])
def test_other_custom_calls_are_the_clients(name: str, opened: bool) -> None:
    """With raw input, which need not be JSON."""
    events = run(RESPONSES, sse(*x_frames(name, opened=opened)))
    assert hosted(events) == []
    (call,) = completed(events).tool_calls
    assert (call.id, call.name, call.arguments, call.complete, call.custom) == (
        "xs-1",
        name,
        '{"query":"tea"}',
        True,
        True,
    )
    assert "".join(part or "" for *_, part in tool_deltas(events)) == '{"query":"tea"}'


def test_a_declared_tool_named_like_a_search_is_the_clients() -> None:
    context = Context(request_id="r-1", pulse=Pulse(0.0), declared_tools=frozenset({"x_keyword_search"}))
    transform = ResponsesTransform(context)
    events: list[SamplingEvent] = []
    for frame in x_frames("x_keyword_search"):
        events += transform.feed(_chunk(frame if isinstance(frame, dict) else {}))
    assert hosted(events) == []
    assert completed(events).tool_calls[0].name == "x_keyword_search"


def test_raw_input_is_text() -> None:
    item = {"type": "custom_tool_call", "id": "ct-1", "call_id": "c-1", "name": "apply", "input": "*** Begin\n+x"}
    body = sse(
        CREATED,
        added(item | {"input": ""}),
        ev("custom_tool_call_input.delta", output_index=0, delta="*** Begin\n"),
        ev("custom_tool_call_input.delta", output_index=0, delta="+x"),
        done(item),
        ended(),
    )
    assert calls(completed(run(RESPONSES, body))) == [("c-1", "apply", "*** Begin\n+x", True)]


def test_a_client_function_named_like_a_built_in() -> None:
    item = function("web_search", '{"query":"tea"}')
    events = run(
        RESPONSES, sse(CREATED, added(item | {"arguments": ""}), argues('{"query":"tea"}'), done(item), ended())
    )
    assert hosted(events) == []
    assert calls(completed(events)) == [("call-1", "web_search", '{"query":"tea"}', True)]


def test_only_the_final_image_is_kept() -> None:
    blob = "QUJD" * 1000
    item = {"type": "image_generation_call", "id": "ig-1", "status": "completed", "result": "RklOQUw="}
    partial = [
        ev("image_generation_call.partial_image", output_index=0, item_id="ig-1", partial_image_b64=blob)
        for _ in range(3)
    ]
    events = run(
        RESPONSES, sse(CREATED, added({"type": "image_generation_call", "id": "ig-1"}), *partial, done(item), ended())
    )
    assert tokens(events) == []
    assert hosted(events) == [("started", "ig-1", "image_generation"), ("completed", "ig-1", "image_generation")]
    kept = completed(events).items[0]
    assert isinstance(kept, BackendToolCallItem)
    assert kept.wire[0]["result"] == "RklOQUw="
    assert blob not in repr(events) + completed(events).model_dump_json()


def check(*labels: str) -> JsonObject:
    return {"type": "response.doom_loop_check", "doom_loop_check": {"triggers": list(labels)}}


@pytest.mark.parametrize(
    "frames",
    [
        [check("tail_repetition:8@thinking"), check("tail_repetition:8@thinking", "novel@x")],
        [("response.doom_loop_check", {"doom_loop_check": {"triggers": ["tail_repetition:8@thinking", "novel@x"]}})],
        [("response.doom_loop_check", "{broken"), check("tail_repetition:8@thinking", "novel@x")],
        [("response.doom_loop_check", {"other": 1}), check("tail_repetition:8@thinking", "novel@x")],
    ],
    ids=["unnamed and growing", "named", "garbage", "malformed"],
)
def test_b279_b280_b281_the_repetition_check_is_swallowed_and_told(frames: list[Frame]) -> None:
    events = run(RESPONSES, sse(CREATED, delta("a"), *frames, delta("b"), ended()))
    assert tokens(events) == [("text", "a"), ("text", "b")]
    labels = ("tail_repetition:8@thinking", "novel@x")
    assert [event.triggers for event in events if isinstance(event, DoomLoopSignals)] == [labels]
    assert completed(events).doom_loop_triggers == labels


def test_b280_text_that_quotes_the_check_is_text() -> None:
    quote = 'event: response.doom_loop_check {"type": "response.doom_loop_check"} tail_repetition:8@thinking'
    events = run(RESPONSES, sse(CREATED, delta(quote), ended()))
    assert tokens(events) == [("text", quote)]
    assert completed(events).doom_loop_triggers == ()


@pytest.mark.parametrize(
    ("usage", "normal"),
    [
        ({"input_tokens": 5, "output_tokens": 3}, (5, 3, 8)),
        ({"input_tokens": 5, "output_tokens": 3, "total_tokens": 8, "input_tokens_details": None}, (5, 3, 8)),
        # xAI: the billing adds up the server's turns; the total is the length of the conversation
        (
            {
                "input_tokens": 50,
                "output_tokens": 9,
                "total_tokens": 59,
                "context_details": {"input_tokens": 20, "output_tokens": 4},
            },
            (50, 9, 24),
        ),
        ({"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}, None),
        (None, None),
    ],
)
def test_usage(usage: JsonObject | None, normal: tuple[int, int, int] | None) -> None:
    assert counts(completed(run(RESPONSES, sse(CREATED, delta("x"), ended(usage=usage)))).usage) == normal


def test_usage_details() -> None:
    usage = {
        "input_tokens": 50,
        "input_tokens_details": {"cached_tokens": 40},
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 7},
        "total_tokens": 59,
        "cost_in_usd_ticks": 20_000_000_000,
    }
    response = completed(run(RESPONSES, sse(CREATED, delta("x"), ended(usage=usage))))
    assert response.usage is not None
    assert (response.usage.cached_input_tokens, response.usage.reasoning_tokens) == (40, 7)
    assert response.cost_usd == 2.0


@pytest.mark.parametrize(
    ("context", "total"),
    [
        ({"input_tokens": 5022, "output_tokens": 571}, 5593),
        ({"input_tokens": 5022}, 6714),
        ({"output_tokens": 571}, 6714),
        ({"input_tokens": None, "output_tokens": 571}, 6714),
        ({}, 6714),
        (None, 6714),
    ],
)
def test_the_total_is_the_length_of_the_conversation_where_that_is_told(context: JsonObject | None, total: int) -> None:
    """B138 and B139."""
    wire = {"input_tokens": 6000, "output_tokens": 714, "total_tokens": 6714, "context_details": context}
    usage = completed(run(RESPONSES, sse(CREATED, delta("x"), ended(usage=wire)))).usage
    assert counts(usage) == (6000, 714, total)


def test_usage_before_the_end_is_no_usage() -> None:
    """B139, for events that do not end the answer."""
    early = {"input_tokens": 1, "context_details": {"input_tokens": 1, "output_tokens": 1}, "cost_in_usd_ticks": 5}
    progress = ev("in_progress", response={"id": "resp-1", "usage": early})
    response = completed(run(RESPONSES, sse(CREATED, progress, delta("x"), ended())))
    assert (counts(response.usage), response.cost_usd) == ((5, 3, 8), None)


@pytest.mark.parametrize(("ticks", "cost"), [(78, 78e-10), (0, None), (-1, None), (None, None), (10**10, 1.0)])
@pytest.mark.parametrize("kind", ["completed", "incomplete"])
def test_cost_comes_in_ticks(ticks: int | None, cost: float | None, kind: str) -> None:
    """B140 in dollars: a tick is 1e-10 of one."""
    wire = {"input_tokens": 5, "output_tokens": 3, "total_tokens": 8, "cost_in_usd_ticks": ticks}
    found = completed(run(RESPONSES, sse(CREATED, delta("x"), ended(kind, usage=wire)))).cost_usd
    assert found == (cost if cost is None else pytest.approx(cost))


@pytest.mark.parametrize("kind", ["created", "in_progress", "completed"])
def test_tools_that_the_server_echoes_say_nothing(kind: str) -> None:
    """B137: xAI lists its `x_search` among them, which the published types do not know."""
    tools: list[JsonObject] = [{"type": "x_search"}, {"type": "novel", "weight": 3}]
    echo: JsonObject = {"id": "resp-1", "model": "toy-1", "status": kind, "tools": tools, "output": []}
    start, end = (CREATED, ev(kind, response=echo)) if kind == "completed" else (ev(kind, response=echo), ended())
    events = run(RESPONSES, sse(start, delta("hello"), end))
    assert tokens(events) == [("text", "hello")]
    assert (completed(events).text, completed(events).tool_calls) == ("hello", ())


WHOLE: JsonObject = {
    "id": "resp-1",
    "object": "response",
    "model": "toy-1",
    "status": "completed",
    "output": [
        {"type": "reasoning", "id": "rs-1", "summary": [{"type": "summary_text", "text": "Hm."}]},
        message("Yes."),
        function("f", '{"a":1}'),
    ],
    "usage": {"input_tokens": 5, "output_tokens": 3, "total_tokens": 8},
    "error": None,
}


def test_a_json_answer_gives_the_same_events_as_a_stream() -> None:
    events = run(RESPONSES, json.dumps(WHOLE, indent=2).encode())
    assert tokens(events) == [("reasoning", "Hm."), ("text", "Yes.")]
    assert tool_deltas(events) == [(0, "call-1", "f", None), (0, None, None, '{"a":1}')]
    assert isinstance(events[1], ResponseStarted)
    assert (events[1].message_id, events[1].model) == ("resp-1", "toy-1")
    streamed = run(
        RESPONSES,
        sse(
            CREATED,
            says_summary("Hm.", 0),
            done(WHOLE["output"][0]),
            delta("Yes.", output=1),
            added(function("f", ""), 2),
            argues('{"a":1}', 2),
            ended(output=WHOLE["output"]),
        ),
    )
    assert completed(streamed).items == completed(events).items
    assert tokens(streamed) == tokens(events)
    assert tool_deltas(streamed) == tool_deltas(events)


def test_a_json_answer_that_failed() -> None:
    whole: JsonObject = WHOLE | {"status": "failed", "output": [], "error": {"code": "server_error", "message": "boom"}}
    info = failed(run(RESPONSES, json.dumps(whole).encode())).error
    assert (info.status, info.code, info.message) == (500, "server_error", "boom")


@pytest.mark.parametrize("status", ["queued", "in_progress"])
def test_a_json_answer_that_is_not_ready(status: str) -> None:
    """Background mode: a turn is complete only when its own protocol says so."""
    end = failed(run(RESPONSES, json.dumps(WHOLE | {"status": status, "output": []}).encode()))
    assert end.error.kind is not SamplingErrorKind.SERIALIZATION


def test_half_characters_join_across_deltas() -> None:
    events = run(RESPONSES, sse(CREATED, delta("hi \ud83d"), delta("\ude00!"), ended()))
    assert tokens(events) == [("text", "hi "), ("text", "😀!")]


@pytest.mark.parametrize(
    "odd",
    [
        {"type": "response.output_item.added"},
        {"type": "response.output_item.added", "item": None, "output_index": None},
        {"type": "response.output_item.done", "item": {}},
        {"type": "response.output_text.delta"},
        {"type": "response.output_text.delta", "delta": None},
        {"type": "response.output_text.delta", "delta": {"text": "x"}, "output_index": "no"},
        {"type": "response.output_text.done", "text": None},
        {"type": "response.content_part.added", "part": None},
        {"type": "response.content_part.done", "part": None},
        {"type": "response.function_call_arguments.done"},
        {"type": "response.output_text.annotation.added", "annotation": 5},
        {"type": "response.created", "response": None},
        {"type": "response."},
        {"type": 5},
        {},
        [],
        5,
    ],
    ids=json.dumps,
)
def test_odd_chunks_pass_by(odd: object) -> None:
    body = sse(CREATED, delta("be"), json.dumps(odd), delta("fore"), ended())
    assert completed(run(RESPONSES, body)).text == "before"
