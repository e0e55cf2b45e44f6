"""The event grammar: each rule by an example that keeps it, and one that breaks it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pytest
import reactivex as rx

from rx_sampler import (
    AnnotationAdded,
    BackendToolCallCompleted,
    BackendToolCallItem,
    BackendToolCallStarted,
    ChannelToken,
    Completed,
    DoomLoopSignals,
    Failed,
    FirstToken,
    ImagesStripped,
    LatencyMetrics,
    ModelMetadata,
    OpaqueItem,
    ReasoningCompleted,
    ReasoningItem,
    RefusalItem,
    ResponseStarted,
    Retrying,
    SamplingErrorInfo,
    SamplingErrorKind,
    SamplingEvent,
    SamplingResponse,
    StreamStarted,
    TextItem,
    ToolCall,
    ToolCallDelta,
)
from rx_sampler.conversation import ResponseItem, ToolResultItem
from rx_sampler.events import ToolResultAdded
from rx_sampler.testing.grammar import EventGrammar, GrammarError, check_all_events, check_events, checked_events
from rx_sampler.testing.marbles import Marbles, diagram_of
from rx_sampler.testing.streamed import is_woven

Events = Sequence[SamplingEvent]
Stamp = dict[str, Any]


def at(attempt: int = 1, ts: float = 10.0) -> Stamp:
    return {"request_id": "r", "attempt": attempt, "ts": ts}


def measured(chunks: int, attempt: int = 1, *, texts: bool = True, last_byte_ms: float = 0.0) -> LatencyMetrics:
    """The figures of an attempt all of which happened at one moment."""
    return LatencyMetrics(
        time_to_stream_started_ms=0.0,
        time_to_first_token_ms=0.0 if chunks else None,
        time_to_first_text_ms=0.0 if chunks and texts else None,
        time_to_last_byte_ms=last_byte_ms,
        chunk_count=chunks,
        attempts=attempt,
    )


def token(index: int, text: str, attempt: int = 1, **fields: Any) -> ChannelToken:
    given: Stamp = {**at(attempt), "channel": "text", **fields}
    return ChannelToken(**given, text=text, chunk_index=index)


def first(attempt: int = 1, channel: str = "text") -> FirstToken:
    return FirstToken(**at(attempt), channel=channel)


def says(text: str) -> tuple[ResponseItem, ...]:
    return (TextItem(text=text),) if text else ()


def completed(*items: ResponseItem, chunks: int = 0, attempt: int = 1, texts: bool = True, **fields: Any) -> Completed:
    stop = "tool_calls" if any(isinstance(item, ToolCall) for item in items) else "stop"
    given: Stamp = {"items": items, "stop_reason": stop, **fields}
    response = SamplingResponse(**given)
    return Completed(**at(attempt), response=response, metrics=measured(chunks, attempt, texts=texts))


def failed(
    *items: ResponseItem,
    chunks: int = 0,
    kind: SamplingErrorKind = SamplingErrorKind.HTTP,
    attempt: int = 1,
    started: bool = True,
    **error: Any,
) -> Failed:
    metrics = measured(chunks, attempt) if started else LatencyMetrics(attempts=attempt)
    info = SamplingErrorInfo(kind=kind, message="broke", **error)
    partial = SamplingResponse(items=items) if items else None
    return Failed(**at(attempt), error=info, partial=partial, metrics=metrics)


def retrying(attempt: int = 1, retry: int = 1, budget: Any = "transport", **fields: Any) -> Retrying:
    kinds = {"transport": "http", "rate_limit": "rate_limited", "doom_loop": "doom_loop_detected"}
    given: Stamp = {
        **at(attempt),
        "next_attempt": attempt + 1,
        "retry": retry,
        "max_retries": 2,
        "budget": budget,
        "error_kind": SamplingErrorKind(kinds[budget]),
        "reason": "broke",
        "backoff_s": 0.1,
        **fields,
    }
    return Retrying(**given)


def delta(index: int = 0, **fields: Any) -> ToolCallDelta:
    return ToolCallDelta(**at(), tool_index=index, **fields)


def hosted(call_id: str = "h", name: str = "search") -> BackendToolCallStarted:
    return BackendToolCallStarted(**at(), call_id=call_id, name=name)


def hosted_done(call_id: str = "h", name: str = "search", result: Any = None) -> BackendToolCallCompleted:
    return BackendToolCallCompleted(**at(), call_id=call_id, name=name, result=result)


def cites(offset: int | None, channel: str = "text") -> AnnotationAdded:
    return AnnotationAdded(**at(), annotation={"url": "u"}, offset=offset, channel=channel)


def signed(signature: str) -> ReasoningCompleted:
    return ReasoningCompleted(**at(), signature=signature)


STARTED: Final = StreamStarted(**at())
AGAIN: Final = StreamStarted(**at(2))
NAMED: Final = ResponseStarted(**at(), message_id="m-1", model="toy")
FACTS: Final = ModelMetadata(**at(), model="toy")
RAN: Final = ToolResultAdded(
    **at(), tool_call_id="c", name="f", result=ToolResultItem(tool_call_id="c", content="1"), duration_ms=1.0
)
RAN_TOO: Final = replace(RAN, tool_call_id="d", result=ToolResultItem(tool_call_id="d", content="2"))
STRIPPED: Final = ImagesStripped(**at(), stripped_urls=("u",), reason="server_rejected")
SIGNALS: Final = DoomLoopSignals(**at(), triggers=("tail_repetition:8@thinking",))
LOOP: Final = SamplingErrorKind.DOOM_LOOP_DETECTED
CANCELLED: Final = SamplingErrorKind.CANCELLED
CALL: Final = ToolCall(id="c", name="f", arguments='{"a":1}')
USED: Final = BackendToolCallItem(call_id="h", name="search")
RESULT: Final = {"type": "search_tool_result", "tool_use_id": "h"}
TWO: Final = (STARTED, first(), token(1, "a"), token(2, "b"))


IN_ORDER: Final[dict[str, Events]] = {
    "an answer": (*TWO, completed(*says("ab"), chunks=2)),
    "all that can come before content": (STARTED, FACTS, NAMED, *TWO[1:], completed(*says("ab"), chunks=2)),
    "named late by its server": (*TWO, NAMED, completed(*says("ab"), chunks=2, message_id="m-1")),
    "an empty answer": (STARTED, completed()),
    "a second attempt starts anew": (
        *TWO,
        retrying(),
        AGAIN,
        first(2),
        token(1, "b", 2),
        completed(*says("b"), chunks=1, attempt=2),
    ),
    "never connected": (retrying(), retrying(2, 2), failed(attempt=3, started=False)),
    "never begun": (replace(failed(started=False), metrics=LatencyMetrics(attempts=0)),),
    "failed in the wait": (retrying(), replace(failed(attempt=2, started=False), metrics=LatencyMetrics(attempts=1))),
    "the partial": (*TWO, failed(*says("ab"), chunks=2)),
    "cancelled with more read": (STARTED, first(), failed(*says("a"), chunks=1, kind=CANCELLED)),
    "repetition found between events of one read": (
        *TWO[:3],
        SIGNALS,
        failed(*says("ab"), chunks=2, kind=LOOP, code="client_repetition"),
    ),
    "results of calls, then a turn": (RAN, RAN_TOO, STARTED, completed()),
    "a turn that never connects": (RAN, retrying(), failed(attempt=2, started=False)),
    "a turn of a loop": tuple(replace(event, turn=2) for event in (RAN, STARTED, completed())),
    "images, then a retry": (STRIPPED, retrying(), AGAIN, completed(attempt=2)),
    "signals, images, a retry": (STARTED, SIGNALS, STRIPPED, retrying(), failed(attempt=2, started=False)),
    "signals of an answer": (
        *TWO,
        SIGNALS,
        completed(*says("ab"), chunks=2, doom_loop_triggers=SIGNALS.triggers),
    ),
    "429s are counted in a row": (
        retrying(budget="rate_limit", max_retries=1),
        retrying(2, 2),
        retrying(3, budget="rate_limit", max_retries=1),
        failed(attempt=4, started=False),
    ),
    "loops have a budget of their own": (
        retrying(),
        AGAIN,
        replace(SIGNALS, attempt=2),
        retrying(2, 1, "doom_loop", doom_loop_triggers=SIGNALS.triggers),
        retrying(3, 2),
        failed(attempt=4, started=False),
    ),
    "a loop does not end a row of 429s": (
        retrying(budget="rate_limit"),
        AGAIN,
        replace(SIGNALS, attempt=2),
        retrying(2, 1, "doom_loop", doom_loop_triggers=SIGNALS.triggers),
        retrying(3, 2, "rate_limit"),
        failed(attempt=4, started=False),
    ),
    "a retry without images beyond the budget": (
        STRIPPED,
        retrying(max_retries=1),
        failed(attempt=2, started=False),
    ),
    "reasoning, refusal": (
        STARTED,
        first(channel="reasoning"),
        token(1, "hm", channel="reasoning"),
        signed("s"),
        token(2, "no", channel="refusal"),
        completed(ReasoningItem(text="hm", signature="s"), RefusalItem(text="no"), chunks=2, texts=False),
    ),
    "a channel of tomorrow": (
        STARTED,
        first(channel="audio"),
        token(1, "la", channel="audio"),
        completed(chunks=1, texts=False),
    ),
    "other choices are not in the answer": (
        STARTED,
        first(),
        token(1, "x", choice=1),
        token(2, "a"),
        delta(id="d", name="f", choice=1),
        completed(*says("a"), chunks=2),
    ),
    "items that stream at the same time": (
        STARTED,
        first(),
        token(1, "a"),
        token(2, "1"),
        token(3, "b"),
        token(4, "2"),
        completed(*says("ab"), *says("12"), chunks=4),
    ),
    "a call": (
        STARTED,
        delta(id="c", name="f"),
        delta(arguments_delta='{"a"'),
        delta(arguments_delta=":1}"),
        completed(CALL),
    ),
    "a call without arguments": (
        STARTED,
        delta(id="c", name="f", arguments_delta=" "),
        completed(ToolCall(id="c", name="f", arguments="{}")),
    ),
    "a name in pieces, an id that changes": (
        STARTED,
        delta(id="b", name="g"),
        delta(name="f"),
        delta(id="c", arguments_delta='{"a":1}'),
        completed(CALL),
    ),
    "a call that was held back": (
        STARTED,
        delta(1, id="d", name="f"),
        delta(id="c", name="f", arguments_delta='{"a":1}'),
        completed(CALL, ToolCall(id="d", name="f", arguments="{}")),
    ),
    "a call whose name never came": (
        STARTED,
        delta(id="c", arguments_delta="{}"),
        completed(ToolCall(id="c", name="", arguments="{}", complete=False)),
    ),
    "a cut call": (
        STARTED,
        delta(id="c", name="f", arguments_delta='{"a'),
        failed(ToolCall(id="c", name="f", arguments='{"a', complete=False)),
    ),
    "calls at the limit": (
        STARTED,
        delta(id="c", name="f", arguments_delta='{"a":1}'),
        completed(CALL, stop_reason="length"),
    ),
    "a hosted call": (STARTED, hosted(), hosted_done(result=RESULT), completed(USED)),
    "a hosted call that goes on in the next turn": (STARTED, hosted(), completed(USED)),
    "the result of an earlier turn's call": (
        STARTED,
        hosted(),
        hosted_done(result=RESULT),
        completed(OpaqueItem(wire=RESULT)),
    ),
    "a citation": (
        *TWO,
        cites(1),
        completed(TextItem(text="ab", annotations=({"url": "u"},)), chunks=2),
    ),
    "a signature of a block that did not close": (STARTED, failed(ReasoningItem(signature="s"))),
}

OUT_OF_ORDER: Final[dict[str, tuple[int, str, Events]]] = {
    # name: position, a part of the rule, events
    "after the end": (2, "after the terminal", (STARTED, completed(), token(1, "a"))),
    "ends twice": (1, "after the terminal", (failed(started=False), failed(started=False))),
    "no end": (4, "no terminal event", TWO),
    "nothing at all": (0, "no terminal event", ()),
    "another request's": (1, "is of request", (STARTED, replace(first(), request_id="s"), failed())),
    "ts goes back": (1, "ts", (STARTED, replace(completed(), ts=9.9))),
    "ts is no number": (1, "ts", (STARTED, replace(completed(), ts=float("nan")))),
    "made before it was asked": (0, "submitted_at", (replace(STARTED, submitted_at=11.0), failed())),
    "an attempt without Retrying": (1, "attempt is 2", (STARTED, AGAIN, completed(attempt=2))),
    "the old attempt after Retrying": (2, "attempt is 1", (STARTED, retrying(), completed())),
    "attempts begin at 1": (0, "attempt is 2", (AGAIN, completed(attempt=2))),
    "StreamStarted twice": (1, "second", (STARTED, STARTED, completed())),
    "content before StreamStarted": (0, "before stream_started", (first(), token(1, "a"), failed())),
    "an answer without StreamStarted": (0, "before stream_started", (completed(),)),
    "facts too late": (2, "directly behind", (STARTED, NAMED, FACTS, completed(message_id="m-1"))),
    "facts twice": (2, "directly behind", (STARTED, FACTS, FACTS, completed())),
    "named twice": (2, "second", (STARTED, NAMED, NAMED, completed())),
    "a token before FirstToken": (1, "before first_token", (STARTED, token(1, "a"), completed(*says("a"), chunks=1))),
    "FirstToken twice": (2, "between", (STARTED, first(), first(), token(1, "a"), completed(*says("a"), chunks=1))),
    "FirstToken after a token": (4, "after a token", (*TWO, first(), completed(*says("ab"), chunks=2))),
    "FirstToken of another channel": (
        2,
        "first_token said",
        (STARTED, first(channel="reasoning"), token(1, "a"), completed(*says("a"), chunks=1)),
    ),
    "between FirstToken and its token": (2, "between", (STARTED, first(), NAMED, token(1, "a"))),
    "FirstToken, then nothing": (2, "between", (STARTED, first(), completed())),
    "FirstToken, then a failure": (2, "between", (STARTED, first(), failed(*says("a"), chunks=1))),
    "chunk_index leaps": (3, "expected 2", (*TWO[:3], token(3, "b"), completed(*says("ab"), chunks=2))),
    "chunk_index goes on in the next attempt": (
        7,
        "expected 1",
        (*TWO, retrying(), AGAIN, first(2), token(2, "b", 2)),
    ),
    "an empty token": (2, "is empty", (STARTED, first(), token(1, ""), completed())),
    "half a character": (2, "half", (STARTED, first(), token(1, "a\ud83d"), completed())),
    "a channel without a name": (2, "channel", (STARTED, first(channel=""), token(1, "a", channel=""))),
    "another text than streamed": (4, "response.text", (*TWO, completed(*says("abc"), chunks=2))),
    "text of the attempt before": (6, "response.text", (*TWO, retrying(), AGAIN, completed(*says("ab"), attempt=2))),
    "text of another choice": (
        3,
        "response.text",
        (STARTED, first(), token(1, "x", choice=1), completed(*says("x"), chunks=1, texts=False)),
    ),
    "items in another order than streamed": (
        4,
        "response.text",
        (*TWO, completed(*says("ba"), chunks=2)),
    ),
    "reasoning as text": (
        3,
        "response.text",
        (
            STARTED,
            first(channel="reasoning"),
            token(1, "a", channel="reasoning"),
            completed(*says("a"), chunks=1, texts=False),
        ),
    ),
    "a partial that was lost": (4, "partial is None", (*TWO, failed(chunks=2))),
    "a partial from nowhere": (1, "partial.text", (STARTED, failed(*says("a")))),
    "more was read, but nobody cancelled": (3, "chunk_count", (*TWO[:3], failed(*says("ab"), chunks=2))),
    "cancelled with less than was told": (
        4,
        "partial.text",
        (*TWO, failed(*says("a"), chunks=2, kind=CANCELLED)),
    ),
    "no stop reason": (1, "stop_reason", (STARTED, completed(stop_reason=None))),
    "stopped for calls without any": (1, "stop_reason", (STARTED, completed(stop_reason="tool_calls"))),
    "stopped in spite of calls": (
        2,
        "stop_reason",
        (STARTED, delta(id="c", name="f", arguments_delta='{"a":1}'), completed(CALL, stop_reason="stop")),
    ),
    "a call without an id": (1, "no id", (STARTED, delta(name="f"))),
    "a fragment of nothing": (2, "brings nothing", (STARTED, delta(id="c", name="f"), delta())),
    "an empty fragment": (2, "empty field", (STARTED, delta(id="c", name="f"), delta(id="d", arguments_delta=""))),
    "a call numbered below 0": (1, "tool_index", (STARTED, delta(-1, id="c", name="f"))),
    "an id again": (2, "again", (STARTED, delta(id="c", name="f"), delta(id="c", arguments_delta="{}"))),
    "a name again": (2, "again", (STARTED, delta(id="c", name="f"), delta(name="f", arguments_delta="{}"))),
    "a name after arguments": (
        2,
        "after arguments",
        (STARTED, delta(id="c", name="f", arguments_delta="{"), delta(name="g")),
    ),
    "calls with a gap": (
        2,
        "not numbered",
        (STARTED, delta(1, id="c", name="f", arguments_delta='{"a":1}'), completed(CALL)),
    ),
    "a call that the answer lacks": (2, "tool_calls", (STARTED, delta(id="c", name="f"), completed())),
    "a call that nothing told of": (1, "tool_calls", (STARTED, completed(CALL))),
    "a call by another id": (
        2,
        "tool_calls",
        (STARTED, delta(id="d", name="f", arguments_delta='{"a":1}'), completed(CALL)),
    ),
    "other arguments": (
        2,
        "tool_calls",
        (STARTED, delta(id="c", name="f", arguments_delta='{"a":2}'), completed(CALL)),
    ),
    "a hosted call twice": (2, "again", (STARTED, hosted(), hosted(), completed(USED))),
    "completed without a start": (1, "not started", (STARTED, hosted_done(), completed(USED))),
    "completed twice": (3, "again", (STARTED, hosted(), hosted_done(), hosted_done(), completed(USED))),
    "completed by another name": (2, "calls 'h' code", (STARTED, hosted(), hosted_done(name="code"))),
    "a hosted call that the answer lacks": (2, "backend tool call", (STARTED, hosted(), completed())),
    "a hosted call that nothing told of": (1, "never started", (STARTED, completed(USED))),
    "a hosted call by another name": (2, "started was", (STARTED, hosted(name="code"), completed(USED))),
    "an empty signature": (1, "no signature", (STARTED, signed(""), completed())),
    "a signature that the answer lacks": (2, "signed", (STARTED, signed("s"), completed())),
    "a signature that nothing told of": (1, "signed", (STARTED, completed(ReasoningItem(signature="s")))),
    "a citation of what was not said yet": (4, "offset is 3", (*TWO, cites(3))),
    "a citation before the beginning": (4, "offset is -1", (*TWO, cites(-1))),
    "a citation of another channel": (4, "offset is 1", (*TWO, cites(1, "reasoning"))),
    "a citation that the answer lacks": (5, "annotations", (*TWO, cites(2), completed(*says("ab"), chunks=2))),
    "signals, then content": (2, "follows doom_loop_signals", (STARTED, SIGNALS, first(), token(1, "a"))),
    "signals twice": (2, "follows doom_loop_signals", (STARTED, SIGNALS, SIGNALS, completed())),
    "signals of nothing": (1, "no triggers", (STARTED, replace(SIGNALS, triggers=()), failed())),
    "signals that the answer lacks": (2, "doom_loop_triggers", (STARTED, SIGNALS, completed())),
    "other signals than the retry's": (
        2,
        "doom_loop_triggers",
        (STARTED, SIGNALS, retrying(budget="doom_loop", doom_loop_triggers=("x",))),
    ),
    "a loop without signals": (1, "doom_loop_triggers", (STARTED, retrying(budget="doom_loop"))),
    "a loop beyond what streamed": (
        2,
        "aborted_at_chunk",
        (
            STARTED,
            SIGNALS,
            retrying(budget="doom_loop", doom_loop_triggers=SIGNALS.triggers, doom_loop_aborted_at_chunk=1),
        ),
    ),
    "a result after the start": (1, "follows stream_started", (STARTED, RAN, completed())),
    "a result after a retry": (1, "follows retrying", (retrying(), replace(RAN, attempt=2))),
    "a result twice": (1, "again", (RAN, RAN, STARTED, completed())),
    "a result of another call": (0, "its result of 'd'", (replace(RAN, result=RAN_TOO.result), STARTED)),
    "a result that took less than nothing": (0, "duration_ms is -1", (replace(RAN, duration_ms=-1.0), STARTED)),
    "events of two turns": (1, "is of turn 2, the others are of None", (STARTED, replace(completed(), turn=2))),
    "images, then content": (2, "follows images_stripped", (STARTED, STRIPPED, first(), token(1, "a"))),
    "images, then success": (2, "follows images_stripped", (STARTED, STRIPPED, completed())),
    "images, then the start": (1, "follows images_stripped", (STRIPPED, STARTED, completed())),
    "images twice": (1, "second", (STRIPPED, STRIPPED, retrying(), failed(attempt=2, started=False))),
    "images of two attempts": (2, "second", (STRIPPED, retrying(), replace(STRIPPED, attempt=2))),
    "no images": (0, "strips nothing", (replace(STRIPPED, stripped_urls=()), retrying())),
    "next_attempt leaps": (0, "next_attempt", (retrying(next_attempt=3), failed(attempt=3, started=False))),
    "a retry beyond its budget": (0, "which has 0", (retrying(max_retries=0),)),
    "retries beyond their budget": (2, "which has 2", (retrying(), retrying(2, 2), retrying(3, 3))),
    "a retry that is none": (0, "retry is 0", (retrying(retry=0),)),
    "a retry counted twice": (1, "retry is 1", (retrying(), retrying(2, 1))),
    "a wait into the past": (0, "backoff_s", (retrying(backoff_s=-0.1),)),
    "an endless wait": (0, "backoff_s", (retrying(backoff_s=float("inf")),)),
    "the wrong budget for a loop": (0, "debits", (retrying(error_kind=LOOP),)),
    "the wrong budget for a fault": (0, "debits", (retrying(budget="doom_loop", error_kind=SamplingErrorKind.HTTP),)),
    "the wrong budget for a refusal": (
        0,
        "debits",
        (retrying(budget="rate_limit", error_kind=SamplingErrorKind.API),),
    ),
    "attempts miscounted": (
        1,
        "metrics.attempts",
        (STARTED, replace(completed(), metrics=measured(0, 2))),
    ),
    "chunks miscounted": (4, "metrics.chunk_count", (*TWO, completed(*says("ab"), chunks=3))),
    "the first token mistimed": (
        4,
        "time_to_first_token_ms",
        (STARTED, *(replace(event, ts=10.5) for event in (*TWO[1:], completed(*says("ab"), chunks=2)))),
    ),
    "the end mistimed": (1, "time_to_last_byte_ms", (STARTED, replace(completed(), ts=10.5))),
    "the submit mistimed": (
        1,
        "time_to_stream_started_ms",
        (replace(STARTED, submitted_at=9.0), completed()),
    ),
    "figures of an attempt that did not start": (0, "did not start", (failed(),)),
}

BY_BACKEND: Final[dict[str, tuple[str, int, Events]]] = {
    "named late": ("chat_completions", 4, (*TWO, NAMED, completed(*says("ab"), chunks=2))),
    "named behind a signature": ("messages", 2, (STARTED, signed("s"), NAMED)),
    "never named": ("messages", 1, (STARTED, completed(message_id="m-1"))),
    "named otherwise": ("messages", 2, (STARTED, NAMED, completed(message_id="m-2"))),
    "an id that changes": ("messages", 2, (STARTED, delta(id="b", name="f"), delta(id="c"))),
    "a later call first": ("responses", 1, (STARTED, delta(1, id="d", name="f"))),
    "a citation somewhere before": ("chat_completions", 4, (*TWO, cites(1))),
    "calls in another order": (
        "chat_completions",
        3,
        (
            STARTED,
            delta(id="c", name="f", arguments_delta='{"a":1}'),
            delta(1, id="d", name="f"),
            completed(ToolCall(id="d", name="f", arguments="{}"), CALL),
        ),
    ),
    "another signature": ("messages", 2, (STARTED, signed("t"), completed(ReasoningItem(signature="s")))),
    "a result that nothing told of": (
        "messages",
        2,
        (STARTED, hosted(), completed(USED, OpaqueItem(wire=RESULT))),
    ),
}


def by_name(examples: dict[str, Any]) -> Any:
    return pytest.mark.parametrize("example", examples.values(), ids=examples.keys())


@by_name(IN_ORDER)
def test_events_in_order_pass(example: Events) -> None:
    check_events(example)
    for cut in range(len(example)):
        check_events(example[:cut], whole=False)


@by_name(OUT_OF_ORDER)
def test_each_disorder_is_found_where_it_is(example: tuple[int, str, Events]) -> None:
    position, rule, events = example
    with pytest.raises(GrammarError) as caught:
        check_events(events)
    assert caught.value.position == position
    assert rule in caught.value.rule
    assert caught.value.event is (events[position] if position < len(events) else None)


@by_name(BY_BACKEND)
def test_some_rules_are_those_of_a_wire_format(example: tuple[str, int, Events]) -> None:
    backend, position, events = example
    check_events(events, whole=False)  # elsewhere it is in order
    with pytest.raises(GrammarError) as caught:
        check_events(events, backend=backend)
    assert caught.value.position == position


def test_an_error_says_which_event_and_what() -> None:
    with pytest.raises(GrammarError) as caught:
        check_events((*TWO[:3], token(3, "b"), completed(*says("ab"), chunks=2)))
    assert str(caught.value) == "event 3 (channel_token): chunk_index is 3, expected 2"
    with pytest.raises(GrammarError) as caught:
        check_events(TWO)
    assert str(caught.value) == "event 4 (the end): no terminal event, the last is channel_token"


def test_a_later_attempt_may_be_checked_by_itself() -> None:
    check_events((AGAIN, completed(attempt=2)), first_attempt=2)


def test_event_by_event() -> None:
    grammar = EventGrammar()
    assert [grammar.read(event) for event in TWO] == [None] * 4
    assert not grammar.ended
    assert grammar.finish() == "no terminal event, the last is channel_token"
    assert grammar.read(completed(*says("ab"), chunks=2)) is None
    assert grammar.ended
    assert grammar.finish() is None


# -- several requests


def of(request_id: str, events: Events) -> list[SamplingEvent]:
    return [replace(event, request_id=request_id) for event in events]


ANSWER: Final = IN_ORDER["an answer"]


def test_interleaved_requests_are_told_apart() -> None:
    both = [event for pair in zip(of("a", ANSWER), of("b", ANSWER), strict=True) for event in pair]
    check_all_events(both)
    with pytest.raises(GrammarError) as caught:
        check_all_events(both[:5] + both[6:])  # without b's first token
    assert caught.value.position == 6
    assert "of request 'b'" in caught.value.rule
    with pytest.raises(GrammarError, match="of request 'b': no terminal event") as caught:
        check_all_events(both[:-1])
    assert caught.value.position == len(both) - 1
    check_all_events(both[:-1], whole=False)


def test_an_id_may_be_used_again_once_its_request_has_ended() -> None:
    check_all_events([*ANSWER, *ANSWER])
    with pytest.raises(GrammarError) as caught:
        check_all_events([*ANSWER, ANSWER[-1]])  # an end twice is no other request
    assert caught.value.position == len(ANSWER)


# -- as an operator


def test_a_stream_is_watched() -> None:
    rows = diagram_of(checked_events)
    with Marbles() as marbles:
        source = marbles.events(rows["source"])
        marbles.expect(source.pipe(checked_events())).to_be_events(rows["checked_events"], error=GrammarError)
        marbles.expect_subscriptions(source).to_be("^-------!")


def test_the_error_of_a_watched_stream_says_where() -> None:
    told: list[object] = []
    rx.of(STARTED, STARTED, completed()).pipe(checked_events()).subscribe(told.append, told.append)
    assert told[:-1] == [STARTED]
    error = told[-1]
    assert isinstance(error, GrammarError)
    assert (error.position, error.event) == (1, STARTED)


def test_a_watched_stream_must_reach_its_end() -> None:
    told: list[object] = []
    rx.from_iterable(TWO).pipe(checked_events()).subscribe(told.append, told.append, lambda: told.append("done"))
    assert told[:-1] == list(TWO)
    assert isinstance(told[-1], GrammarError)


def test_each_subscription_is_watched_by_itself() -> None:
    source = rx.from_iterable(ANSWER).pipe(checked_events())
    for _ in range(2):
        told: list[SamplingEvent] = []
        source.subscribe(told.append)
        assert told == list(ANSWER)


# -- weaving


@pytest.mark.parametrize(
    ("pieces", "texts", "ahead", "woven"),
    [
        ([], [], False, True),
        (["a", "b"], ["ab"], False, True),
        (["a", "b"], ["ba"], False, False),
        (["a", "1", "b", "2"], ["ab", "12"], False, True),
        (["a", "2", "b", "1"], ["ab", "12"], False, False),
        (["a", "b", "a"], ["a", "ab"], False, True),
        (["ab"], ["a", "b"], False, True),
        (["b", "a"], ["ab", ""], False, False),
        (["a", "1"], ["ab", "12"], True, True),
        (["a", "2"], ["ab", "12"], True, False),
        (["a", "1"], ["ab", "12"], False, False),
        (["a"] * 3000, ["a" * 1000, "a" * 2000], False, True),
        ([*"ab" * 200, "b"], ["ab" * 50 + "b", "ab" * 150], False, True),
    ],
)
def test_texts_of_items_that_stream_at_the_same_time(
    pieces: list[str], texts: list[str], ahead: bool, woven: bool
) -> None:
    assert is_woven(pieces, texts, ahead=ahead) is woven


def test_weaving_without_end_is_given_up() -> None:
    # Each "a" may belong to any of four texts: the ways to weave them are too many, the characters alone are compared.
    texts = ["a" * 50 + end for end in "wxyz"]
    assert is_woven([*"a" * 100, *"a" * 100, *"zyxw"], texts)
    assert not is_woven([*"a" * 201, *"zyx"], texts)
