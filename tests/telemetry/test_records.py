"""What is recorded of each event, and what never is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, Final, cast, get_args

import pytest

from rx_sampler import (
    AnnotationAdded,
    BackendToolCallCompleted,
    BackendToolCallStarted,
    ChannelToken,
    Completed,
    DoomLoopSignals,
    Failed,
    FirstToken,
    ImagesStripped,
    LatencyMetrics,
    ModelMetadata,
    RateLimit,
    ReasoningCompleted,
    ResponseStarted,
    Retrying,
    SamplingErrorInfo,
    SamplingErrorKind,
    SamplingEvent,
    SamplingRequest,
    SamplingResponse,
    StreamStarted,
    ToolCallDelta,
    event_from_json,
)
from rx_sampler.conversation import ImagePart, ToolResultItem
from rx_sampler.events import ToolResultAdded
from rx_sampler.telemetry.notes import Notes, rfc3339
from rx_sampler.telemetry.records import attempt, builders, dropped_by_subscriber, submit

from .made import SUBMITTED_AT, facts, notes, stamp

FIRST: Final = ["time", "record", "request_id"]


def built(known: Notes, event: SamplingEvent) -> list[dict[str, Any]]:
    """The records of an event as they come back from the file."""
    build = builders(content=known.content).get(type(event))
    found = build(known, event) if build else []
    assert all(list(record)[:3] == FIRST for record in found)
    return json.loads(json.dumps(found))


def only(known: Notes, event: SamplingEvent) -> dict[str, Any]:
    """The fields of the one record of an event, without those that all records have."""
    (record,) = built(known, event)
    return {name: value for name, value in record.items() if name not in FIRST}


def test_times_are_utc_to_the_millisecond() -> None:
    # RFC 3339, section 5.6; the seconds are those of `date -u -d 2026-01-31T09:30:00Z +%s`
    assert rfc3339(SUBMITTED_AT) == "2026-01-31T09:30:00.000Z"
    assert rfc3339(SUBMITTED_AT + 0.125) == "2026-01-31T09:30:00.125Z"
    assert rfc3339(0.0) == "1970-01-01T00:00:00.000Z"


IMAGE: Final = "data:image/png;base64," + "iVBOR" * 100
CONVERSATION: Final = SamplingRequest.model_validate(
    {
        "items": [
            {"type": "system", "content": "Be brief."},
            {
                "type": "user",
                "content": [{"type": "text", "text": "What is it?"}, {"type": "image", "url": IMAGE}],
            },
        ],
        "tools": [{"name": "look_up"}],
        "hosted_tools": [{"type": "web_search"}],
    }
)


def test_submit_counts_what_was_asked() -> None:
    known = Notes(facts(request=CONVERSATION, reasoning_effort="high"), content=False)
    assert submit(known) == [
        {
            "time": "2026-01-31T09:30:00.000Z",
            "record": "submit",
            "request_id": "r-1",
            "backend": "messages",
            "model": "toy-1",
            "base_url": "https://api.test/v1",
            "reasoning_effort": "high",
            "item_count": 2,
            "tool_count": 2,
            "image_count": 1,
        }
    ]


def test_submit_with_content_has_the_items_but_no_whole_image() -> None:
    (record,) = submit(notes(CONVERSATION, content=True))
    assert record["items"] == [
        {"type": "system", "content": "Be brief."},
        {
            "type": "user",
            "content": [
                {"type": "text", "text": "What is it?"},
                {"type": "image", "url": "data:image/png;base64,...(500 characters)"},
            ],
        },
    ]


def test_the_first_attempt_says_how_long_the_request_had_queued() -> None:
    (first,) = attempt(notes(), 1, SUBMITTED_AT + 0.25)
    assert first == {
        "time": "2026-01-31T09:30:00.250Z",
        "record": "attempt",
        "request_id": "r-1",
        "attempt": 1,
        "queued_ms": 250.0,
    }
    (second,) = attempt(notes(), 2, SUBMITTED_AT + 3)
    assert second["attempt"] == 2
    assert "queued_ms" not in second


def test_a_dropped_request() -> None:
    (record,) = dropped_by_subscriber(notes(), SUBMITTED_AT + 1.5)
    assert [*record.values()] == ["2026-01-31T09:30:01.500Z", "dropped_by_subscriber", "r-1", 1500.0]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (StreamStarted(**stamp(0.5)), {"attempt": 1, "since_submit_ms": 500.0}),
        (
            FirstToken(**stamp(2, 2), channel="reasoning"),
            {"attempt": 2, "channel": "reasoning", "since_submit_ms": 2e3},
        ),
        (
            ResponseStarted(**stamp(), message_id="msg_1", model="toy-1b", input_tokens=5),
            {"attempt": 1, "message_id": "msg_1", "model": "toy-1b", "input_tokens": 5},
        ),
        (
            ModelMetadata(
                **stamp(),
                model="toy-1b",
                context_window=8192,
                rate_limits=(RateLimit(name="tokens", limit=100, remaining=40, reset_after_s=1.5),),
                provider_request_id="req_1",
            ),
            {
                "attempt": 1,
                "model": "toy-1b",
                "context_window": 8192,
                "max_completion_tokens": None,
                "models_etag": None,
                "rate_limits": [{"name": "tokens", "limit": 100, "remaining": 40, "reset_after_s": 1.5}],
                "provider_request_id": "req_1",
            },
        ),
        (
            ToolResultAdded(
                **stamp(),
                tool_call_id="call_1",
                name="look_up",
                result=ToolResultItem(
                    tool_call_id="call_1", content="rain", images=(ImagePart(url="https://img.test/a"),), is_error=True
                ),
                duration_ms=1.23456,
            ),
            {
                "attempt": 1,
                "tool_call_id": "call_1",
                "name": "look_up",
                "is_error": True,
                "duration_ms": 1.235,
                "chars": 4,
                "image_count": 1,
            },
        ),
        (
            ImagesStripped(
                **stamp(), stripped_urls=("https://img.test/a", "https://img.test/b"), reason="server_rejected"
            ),
            {"attempt": 1, "count": 2, "reason": "server_rejected"},
        ),
        (
            DoomLoopSignals(**stamp(), triggers=("tail_repetition_8",)),
            {"attempt": 1, "triggers": ["tail_repetition_8"]},
        ),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_events_on_the_way(event: SamplingEvent, expected: dict[str, Any]) -> None:
    assert only(notes(), event) == expected


def test_retrying_has_every_field_of_the_event_and_its_wait_in_seconds() -> None:
    event = Retrying(
        **stamp(1),
        next_attempt=2,
        retry=1,
        max_retries=15,
        budget="transport",
        error_kind=SamplingErrorKind.HTTP,
        reason="cannot connect",
        backoff_s=2.12345,
        doom_loop_triggers=("x",),
        doom_loop_aborted_at_chunk=9,
    )
    record = only(notes(), event)
    assert set(record) == {field.name for field in fields(event)} - {"request_id", "ts", "turn", "kind"}
    assert record["backoff_s"] == 2.123
    assert (record["error_kind"], record["reason"]) == ("http", "cannot connect")


METRICS: Final = LatencyMetrics(
    queued_ms=1.0, time_to_first_token_ms=12.3456, output_tokens_per_second=40.0, chunk_count=3, attempts=2
)


def test_completed_has_stop_usage_cost_and_latency() -> None:
    """B295: the numbers of output and reasoning tokens are set on success."""
    answer = SamplingResponse.model_validate(
        {
            "items": [{"type": "text", "text": "Blue."}],
            "stop_reason": "stop",
            "usage": {
                "input_tokens": 5,
                "output_tokens": 7,
                "total_tokens": 12,
                "reasoning_tokens": 3,
                "wire": {"prompt_tokens": 5},
            },
            "cost_usd": 0.25,
            "model": "toy-1b",
            "message_id": "msg_1",
        }
    )
    event = Completed(**stamp(3, 2), response=answer, metrics=METRICS)
    record = only(notes(), event)
    metrics = record.pop("metrics")
    assert record == {
        "attempt": 2,
        "stop_reason": "stop",
        "model": "toy-1b",
        "message_id": "msg_1",
        "usage": {
            "input_tokens": 5,
            "output_tokens": 7,
            "total_tokens": 12,
            "cached_input_tokens": None,
            "cache_creation_input_tokens": None,
            "reasoning_tokens": 3,
        },
        "cost_usd": 0.25,
        "attempts": 2,
    }
    assert set(metrics) == {field.name for field in fields(LatencyMetrics)} - {"attempts"}
    assert metrics["time_to_first_token_ms"] == 12.346
    assert metrics["time_to_last_byte_ms"] is None
    assert only(notes(content=True), event)["text"] == "Blue."


def failed(info: dict[str, Any], partial: SamplingResponse | None = None) -> Failed:
    return Failed(**stamp(3, 2), error=SamplingErrorInfo(**info), partial=partial, metrics=METRICS)


OVERLOADED: Final[dict[str, Any]] = {
    "kind": SamplingErrorKind.API,
    "message": "Overloaded",
    "status": 529,
    "code": "overloaded_error",
    "is_retryable": True,
    "retry_after_s": 4.0,
    "provider_request_id": "req_1",
}


def test_failed_says_what_went_wrong_and_how_much_had_come() -> None:
    partial = SamplingResponse.model_validate(
        {"items": [{"type": "reasoning", "text": "Hm."}, {"type": "text", "text": "Blue"}]}
    )
    record = only(notes(), failed(OVERLOADED, partial))
    assert record.pop("metrics")["queued_ms"] == 1.0
    assert record == {
        "attempt": 2,
        "kind": "api",
        "status": 529,
        "code": "overloaded_error",
        "message": "Overloaded",
        "is_retryable": True,
        "provider_request_id": "req_1",
        "retry_after_s": 4.0,
        "attempts": 2,
        "partial_chars": 7,
    }


@pytest.mark.parametrize(("retries", "is_retryable", "told"), [(1, True, True), (0, True, False), (1, False, False)])
def test_retries_that_were_in_vain_are_told_before_the_failure(retries: int, is_retryable: bool, told: bool) -> None:
    known = notes()
    known.retries = retries
    found = built(known, failed({**OVERLOADED, "is_retryable": is_retryable}))
    assert [record["record"] for record in found] == (["retries_exhausted"] if told else []) + ["failed"]
    if told:
        assert found[0]["total_attempts"] == 2


CONTENT_EVENTS: Final[list[SamplingEvent]] = [
    ChannelToken(**stamp(), channel="text", text="Blue", chunk_index=1),
    ReasoningCompleted(**stamp(), signature="sig"),
    ToolCallDelta(**stamp(), tool_index=0, id="call_1", name="look_up", arguments_delta='{"q'),
    BackendToolCallStarted(**stamp(), call_id="ws_1", name="web_search"),
    BackendToolCallCompleted(**stamp(), call_id="ws_1", name="web_search", result={"query": "sky"}),
    AnnotationAdded(**stamp(), annotation={"url": "https://a.test"}),
]


@pytest.mark.parametrize("event", CONTENT_EVENTS, ids=lambda event: cast(SamplingEvent, event).kind)
def test_pieces_of_the_answer_are_recorded_only_if_content_is_asked_for(event: SamplingEvent) -> None:
    assert built(notes(), event) == []
    record = only(notes(content=True), event)
    assert set(record) == {"attempt", "event"}
    assert event_from_json(json.dumps(record["event"])) == event


def test_each_event_is_recorded_or_a_piece_of_content() -> None:
    pieces = {type(event) for event in CONTENT_EVENTS}
    assert set(builders(content=True)) == set(get_args(SamplingEvent))
    assert set(builders(content=False)) == set(get_args(SamplingEvent)) - pieces


# -- nothing that was said


def canaries() -> Iterator[str]:
    """A word that stands nowhere else, each time."""
    for number in range(1000):
        yield f"CANARY-{number:03}-Xy7"


WORDS = canaries()
PROMPT, IMAGE_URL, ARGUMENTS, RESULT = next(WORDS), f"https://img.test/{next(WORDS)}.png", next(WORDS), next(WORDS)
SAID: Final = SamplingRequest.model_validate(
    {
        "items": [
            {"type": "system", "content": next(WORDS)},
            {"type": "user", "content": [{"type": "text", "text": PROMPT}, {"type": "image", "url": IMAGE_URL}]},
            {
                "type": "assistant",
                "content": next(WORDS),
                "tool_calls": [{"id": "call_0", "name": "f", "arguments": ARGUMENTS}],
            },
            {"type": "tool_result", "tool_call_id": "call_0", "content": RESULT},
        ],
        "tools": [{"name": "f", "description": next(WORDS), "parameters": {"title": next(WORDS)}}],
        "stop": [next(WORDS)],
        "metadata": {"user": next(WORDS)},
        "json_schema": {"title": next(WORDS)},
        "extra_body": {"x": next(WORDS)},
        "extra_headers": {"authorization": next(WORDS)},
        "prompt_cache_key": next(WORDS),
    }
)
ANSWER: Final = SamplingResponse.model_validate(
    {
        "items": [
            {"type": "reasoning", "text": next(WORDS), "signature": next(WORDS)},
            {"type": "text", "text": next(WORDS), "annotations": [{"cited_text": next(WORDS)}]},
            {"type": "refusal", "text": next(WORDS)},
            {"type": "tool_call", "id": "call_1", "name": "f", "arguments": next(WORDS)},
            {"type": "backend_tool_call", "call_id": "ws_1", "name": "web_search", "wire": [{"query": next(WORDS)}]},
        ],
        "stop_sequence": next(WORDS),
        "stop_message": next(WORDS),
        "usage": {"wire": {"x": next(WORDS)}},
        "extras": {"citations": [next(WORDS)]},
    }
)


def everything_said() -> list[SamplingEvent]:
    """One event of each kind, with canaries wherever there is room for what user or model say."""
    quoting = f"bad input {PROMPT!r}, {IMAGE_URL}, {ARGUMENTS}; {RESULT}"
    info: dict[str, Any] = {"kind": SamplingErrorKind.API, "message": quoting, "status": 422}
    unreadable: dict[str, Any] = {"kind": SamplingErrorKind.SERIALIZATION, "message": f"not JSON: {next(WORDS)}"}
    retrying: dict[str, Any] = {"next_attempt": 2, "retry": 1, "max_retries": 2, "backoff_s": 1.0}
    return [
        StreamStarted(**stamp()),
        ResponseStarted(**stamp()),
        ModelMetadata(**stamp()),
        FirstToken(**stamp(), channel="text"),
        ChannelToken(**stamp(), channel="text", text=next(WORDS), chunk_index=1),
        ReasoningCompleted(**stamp(), signature=next(WORDS)),
        ToolCallDelta(**stamp(), tool_index=0, id="call_1", name="f", arguments_delta=next(WORDS)),
        ToolResultAdded(
            **stamp(),
            tool_call_id="call_1",
            name="f",
            result=ToolResultItem(tool_call_id="call_1", content=next(WORDS)),
            duration_ms=1.0,
        ),
        BackendToolCallStarted(**stamp(), call_id="ws_1", name="web_search"),
        BackendToolCallCompleted(**stamp(), call_id="ws_1", name="web_search", result={"q": next(WORDS)}),
        AnnotationAdded(**stamp(), annotation={"cited_text": next(WORDS)}),
        ImagesStripped(**stamp(), stripped_urls=(IMAGE_URL,), reason="server_rejected"),
        DoomLoopSignals(**stamp(), triggers=("tail_repetition_8",)),
        Retrying(**stamp(), **retrying, budget="transport", error_kind=SamplingErrorKind.API, reason=quoting),
        Retrying(
            **stamp(), **retrying, budget="transport", error_kind=SamplingErrorKind.SERIALIZATION, reason=next(WORDS)
        ),
        Completed(**stamp(), response=ANSWER, metrics=LatencyMetrics()),
        failed(info, ANSWER),
        failed({**info, "message": f"cut after {ANSWER.text!r}"}, ANSWER),
        failed(unreadable, ANSWER),
    ]


def all_records(known: Notes) -> str:
    found = [*submit(known), *attempt(known, 1, SUBMITTED_AT), *dropped_by_subscriber(known, SUBMITTED_AT)]
    events = everything_said()
    assert {type(event) for event in events} == set(get_args(SamplingEvent))
    return json.dumps([*found, *(record for event in events for record in built(known, event))])


def test_nothing_that_was_said_is_recorded_unless_content_is_asked_for() -> None:
    assert "CANARY" not in all_records(notes(SAID))


def test_what_was_said_is_recorded_when_asked_for_but_nothing_beside_the_items() -> None:
    text = all_records(notes(SAID, content=True))
    for word in (PROMPT, IMAGE_URL, ARGUMENTS, RESULT, ANSWER.text):
        assert word in text
    for setting in (SAID.extra_headers, SAID.extra_body, SAID.metadata):
        assert not [word for word in setting.values() if str(word) in text]


def test_the_rest_of_a_message_that_quotes_is_kept() -> None:
    known = notes(SamplingRequest.of("My secret question, which is long enough."))
    message = "messages.0: 'My secret question, which is long enough.' is not a list"
    record = only(known, failed({"kind": SamplingErrorKind.INVALID_REQUEST, "message": message}))
    assert record["message"] == "messages.0: '[...]' is not a list"


def test_our_own_words_are_kept_even_where_the_user_said_the_same() -> None:
    known = notes(SamplingRequest.of("cannot connect to api.test: refused"))
    info = {"kind": SamplingErrorKind.HTTP, "message": "cannot connect to api.test: refused"}
    assert only(known, failed(info))["message"] == "cannot connect to api.test: refused"
