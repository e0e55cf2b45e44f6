"""The vocabulary of events: frozen and slotted, one JSON form each, a closed union, and a token made the fast way."""

from __future__ import annotations

import dataclasses
import json
import pickle
import re
from typing import Any, Final, cast, get_args

import pytest
from pydantic import ValidationError

from rx_sampler.conversation import (
    ImagePart,
    ReasoningItem,
    SamplingResponse,
    TextItem,
    ToolCall,
    ToolResultItem,
    Usage,
)
from rx_sampler.errors import EmptyResponseContext, SamplingError, SamplingErrorInfo, SamplingErrorKind
from rx_sampler.events import (
    AnnotationAdded,
    BackendToolCallCompleted,
    BackendToolCallStarted,
    ChannelToken,
    Completed,
    DoomLoopSignals,
    Failed,
    FirstToken,
    ImagesStripped,
    ModelMetadata,
    RateLimit,
    ReasoningCompleted,
    ResponseStarted,
    Retrying,
    SamplingEvent,
    StreamStarted,
    TokenDraft,
    ToolCallDelta,
    ToolResultAdded,
    event_from_json,
    event_json_schema,
    event_to_json,
)
from rx_sampler.metrics import LatencyMetrics

STAMP: Final[dict[str, Any]] = {"request_id": "r-1", "attempt": 2, "ts": 1_767_225_600.125, "turn": 3}
SIGNATURE: Final = "EqQBCkYIB-signature"
IMAGE_URL: Final = "https://images.test/private.png"

RESPONSE: Final = SamplingResponse(
    items=(
        ReasoningItem(text="hm", signature=SIGNATURE),
        TextItem(text="yes"),
        ToolCall(id="c", name="f", arguments="{"),
    ),
    stop_reason="tool_calls",
    usage=Usage(input_tokens=3, output_tokens=4, total_tokens=7, wire={"prompt_tokens": 3}),
    cost_usd=0.25,
    model="toy-1",
)
METRICS: Final = LatencyMetrics(time_to_first_token_ms=12.5, chunk_count=3, attempts=2)
FULL_ERROR: Final = SamplingErrorInfo(
    kind=SamplingErrorKind.EMPTY_RESPONSE,
    message="nothing came",
    status=503,
    code="overloaded",
    is_retryable=True,
    is_context_overflow=True,
    retry_after_s=1.5,
    should_retry=False,
    model_metadata={"context_window": 128, "models_etag": "e"},
    empty_response_context=EmptyResponseContext(reason="reasoning_only", had_reasoning=True, output_tokens=0),
    doom_loop_triggers=("tail_repetition:8@thinking",),
    doom_loop_aborted_at_chunk=9,
    credential="missing",
    provider_request_id="req_1",
)

FULL: Final[list[SamplingEvent]] = [
    StreamStarted(**STAMP, submitted_at=1767225599.5),
    ResponseStarted(
        **STAMP,
        message_id="m",
        model="toy-1",
        input_tokens=0,
        cache_read_input_tokens=1,
        cache_creation_input_tokens=2,
    ),
    ModelMetadata(
        **STAMP,
        model="toy-1",
        context_window=128_000,
        max_completion_tokens=4096,
        models_etag='W/"1"',
        rate_limits=(RateLimit(name="requests", limit=60, remaining=59, reset_after_s=0.5), RateLimit(name="tokens")),
        provider_request_id="req_1",
    ),
    FirstToken(**STAMP, channel="text"),
    ChannelToken(**STAMP, channel="a channel of tomorrow", text="\u2028\0</script>\U0001f600", chunk_index=7, choice=1),
    ReasoningCompleted(**STAMP, signature=SIGNATURE),
    ToolCallDelta(**STAMP, tool_index=0, id="call_1", name="f", arguments_delta='{"a":', choice=2),
    ToolResultAdded(
        **STAMP,
        tool_call_id="call_1",
        name="f",
        result=ToolResultItem(tool_call_id="call_1", content="no", images=(ImagePart(url=IMAGE_URL),), is_error=True),
        duration_ms=1.5,
    ),
    BackendToolCallStarted(**STAMP, call_id="ws_1", name="web_search"),
    BackendToolCallCompleted(**STAMP, call_id="ws_1", name="web_search", result={"n": [1, None, {"x": 1.5}]}),
    AnnotationAdded(
        **STAMP, annotation={"type": "url_citation", "url": "https://example.org"}, channel="text", offset=3
    ),
    ImagesStripped(**STAMP, stripped_urls=(IMAGE_URL, IMAGE_URL), reason="server_rejected"),
    DoomLoopSignals(**STAMP, triggers=("low_logprob@final",)),
    Retrying(
        **STAMP,
        next_attempt=3,
        retry=2,
        max_retries=15,
        budget="doom_loop",
        error_kind=SamplingErrorKind.DOOM_LOOP_DETECTED,
        reason="it repeats itself",
        backoff_s=0.2,
        doom_loop_triggers=("tail_repetition:8@thinking",),
        doom_loop_aborted_at_chunk=4,
    ),
    Completed(**STAMP, response=RESPONSE, metrics=METRICS),
    Failed(**STAMP, error=FULL_ERROR, partial=RESPONSE, metrics=METRICS),
]
"""One event of each kind with every field set to something that is not its default."""

SPARSE: Final[list[SamplingEvent]] = [
    ResponseStarted(**STAMP),
    ModelMetadata(**STAMP),
    ToolCallDelta(**STAMP, tool_index=0),
    BackendToolCallCompleted(**STAMP, call_id="c", name="n"),
    AnnotationAdded(**STAMP, annotation={}),
    ImagesStripped(**STAMP, stripped_urls=(), reason="payload_heuristic"),
    Completed(**STAMP, response=SamplingResponse(), metrics=LatencyMetrics()),
    Failed(**STAMP, error=SamplingErrorInfo(kind=SamplingErrorKind.HTTP, message="m")),
]
"""Events with nothing set that need not be."""

ALL: Final = [*FULL, *SPARSE]
CLASSES: Final = get_args(SamplingEvent)


def _ids(event: SamplingEvent) -> str:
    return event.kind


def snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def test_the_examples_here_cover_the_union() -> None:
    assert {type(event) for event in FULL} == set(CLASSES)
    assert len(CLASSES) == 16


@pytest.mark.parametrize("event", FULL, ids=_ids)
def test_no_field_of_an_example_is_at_its_default(event: SamplingEvent) -> None:
    # Else a field that JSON drops would come back as its default and nobody would see.
    kept = {
        f.name
        for f in dataclasses.fields(event)
        if f.name not in ("kind", "exception", "channel") and getattr(event, f.name) == f.default
    }
    assert not kept


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_kind_is_the_class_name_in_snake_case(cls: Any) -> None:
    kind = next(f for f in dataclasses.fields(cls) if f.name == "kind")
    assert kind.default == snake_case(cls.__name__)


@pytest.mark.parametrize("event", ALL, ids=_ids)
def test_events_are_frozen_slotted_and_keyword_only(event: SamplingEvent) -> None:
    for name in ("ts", "kind"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(event, name, None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        delattr(event, "ts")
    assert not hasattr(event, "__dict__")
    with pytest.raises(TypeError):
        cast(Any, type(event))("r-1", 1, 0.0)


@pytest.mark.parametrize("event", ALL, ids=_ids)
def test_an_event_comes_back_from_its_json(event: SamplingEvent) -> None:
    line = event_to_json(event)
    assert "\n" not in line  # one event a line, whatever text it holds
    back = event_from_json(line)
    assert back == event
    assert type(back) is type(event)
    assert event_from_json(line.encode()) == event
    assert event_to_json(back) == line


@pytest.mark.parametrize("event", ALL, ids=_ids)
def test_json_holds_every_field_but_the_exception(event: SamplingEvent) -> None:
    written = json.loads(event_to_json(event))
    assert set(written) == {f.name for f in dataclasses.fields(event)} - {"exception"}
    assert (written["request_id"], written["attempt"], written["ts"]) == ("r-1", 2, 1_767_225_600.125)


@pytest.mark.parametrize("event", ALL, ids=_ids)
def test_json_is_silent_about_the_turn_of_a_request_that_is_none(event: SamplingEvent) -> None:
    alone = dataclasses.replace(event, turn=None)
    line = event_to_json(alone)
    assert set(json.loads(line)) == {f.name for f in dataclasses.fields(event)} - {"exception", "turn"}
    assert event_from_json(line) == alone
    assert event != alone
    schema = dict(event_json_schema())
    assert _fits(json.loads(line), schema, schema)


@pytest.mark.parametrize("event", ALL, ids=_ids)
def test_events_of_a_kind_are_equal_by_value_only(event: SamplingEvent) -> None:
    assert event == dataclasses.replace(event)
    assert event != dataclasses.replace(event, ts=0.0)
    assert event != next(other for other in FULL if other.kind != event.kind)


@pytest.mark.parametrize("request_id", ["turn-7", "", "a/b é \U0001f600", "7", "null"])
def test_a_request_id_is_any_str_and_stays_as_it_is(request_id: str) -> None:
    """B001."""
    event = StreamStarted(request_id=request_id, attempt=1, ts=0.0)
    assert json.loads(event_to_json(event))["request_id"] == request_id
    assert event_from_json(event_to_json(event)).request_id == request_id


# -- the JSON Schema, read with a small validator of what it uses: an independent reader of the same contract


def _fits(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    if "$ref" in schema:
        return _fits(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root)
    if alternatives := schema.get("anyOf") or schema.get("oneOf"):
        matches = [_fits(value, one, root) for one in alternatives]
        return any(matches) if "anyOf" in schema else matches.count(True) == 1
    if "const" in schema and value != schema["const"]:
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    kind = schema.get("type")
    if kind == "object":
        if not isinstance(value, dict):
            return False
        members = cast("dict[str, Any]", value)
        properties: dict[str, Any] = schema.get("properties", {})
        further = schema.get("additionalProperties", True)
        return all(name in members for name in schema.get("required", ())) and all(
            _fits(member, properties[name], root)
            if name in properties
            else (_fits(member, further, root) if isinstance(further, dict) else further)  # pyright: ignore[reportUnknownArgumentType]
            for name, member in members.items()
        )
    if kind == "array":
        return isinstance(value, list) and all(
            _fits(one, schema.get("items", {}), root) for one in cast("list[Any]", value)
        )
    types: dict[Any, tuple[type, ...]] = {
        "string": (str,),
        "integer": (int,),
        "number": (int, float),
        "boolean": (bool,),
    }
    if kind == "null":
        return value is None
    if kind in types:
        return isinstance(value, types[kind]) and (kind == "boolean" or not isinstance(value, bool))
    assert kind is None, f"the validator of this test does not know {kind!r}"
    return True


@pytest.mark.parametrize("event", ALL, ids=_ids)
def test_the_schema_describes_what_is_written(event: SamplingEvent) -> None:
    schema = dict(event_json_schema())
    written = json.loads(event_to_json(event))
    assert _fits(written, schema, schema)
    assert not _fits({**written, "ts": "soon"}, schema, schema)
    assert not _fits({**written, "kind": "something_else"}, schema, schema)
    assert not _fits({name: value for name, value in written.items() if name != "request_id"}, schema, schema)


def test_the_schema_is_the_closed_union_with_its_discriminator() -> None:
    schema = event_json_schema()
    kinds = {snake_case(cls.__name__): f"#/$defs/{cls.__name__}" for cls in CLASSES}
    assert schema["discriminator"] == {"propertyName": "kind", "mapping": kinds}
    assert [one["$ref"] for one in schema["oneOf"]] == [f"#/$defs/{cls.__name__}" for cls in CLASSES]
    json.dumps(schema)  # plain JSON


@pytest.mark.parametrize("name", ["Failed", "ToolResultAdded"])
def test_the_schema_does_not_tell_of_the_exception(name: str) -> None:
    assert "exception" not in event_json_schema()["$defs"][name]["properties"]


# -- what is refused


def test_an_unknown_kind_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValidationError) as caught:
        event_from_json('{"kind": "first_tokem", "request_id": "r", "attempt": 1, "ts": 0}')
    assert "first_tokem" in str(caught.value)
    assert "first_token" in str(caught.value)


def test_a_missing_kind_is_named() -> None:
    with pytest.raises(ValidationError, match="kind"):
        event_from_json('{"request_id": "r", "attempt": 1, "ts": 0}')


@pytest.mark.parametrize("line", ["", "{", "null", "[]", '"stream_started"', "\xff"])
def test_what_is_no_event_is_a_validation_error(line: str) -> None:
    with pytest.raises(ValidationError):
        event_from_json(line)


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"attempt": "two"}, "attempt", "two"),
        ({"ts": "yesterday"}, "ts", "yesterday"),
        ({"channel": 7}, "channel", "7"),
    ],
)
def test_a_wrong_value_is_named_with_its_field(changes: dict[str, Any], field: str, value: str) -> None:
    line = json.dumps({**json.loads(event_to_json(FirstToken(**STAMP, channel="text"))), **changes})
    with pytest.raises(ValidationError) as caught:
        event_from_json(line)
    assert field in str(caught.value)
    assert value in str(caught.value)


def test_a_missing_field_is_named() -> None:
    with pytest.raises(ValidationError, match="channel"):
        event_from_json('{"kind": "first_token", "request_id": "r", "attempt": 1, "ts": 0}')


def test_an_unknown_field_is_passed_by() -> None:
    """What a later version wrote can be read: a recording outlives the version that made it."""
    event = FirstToken(**STAMP, channel="text")
    assert event_from_json(json.dumps({**json.loads(event_to_json(event)), "novelty": 1})) == event


# -- TokenDraft


def _drafted() -> ChannelToken:
    draft: Any = TokenDraft("r-1", 2, 1_767_225_600.125, "text", "hello", 7, 1)
    draft.turn = 3
    draft.__class__ = ChannelToken
    return draft


def test_a_drafted_token_is_like_a_constructed_one() -> None:
    drafted, made = _drafted(), ChannelToken(**STAMP, channel="text", text="hello", chunk_index=7, choice=1)
    assert type(drafted) is ChannelToken
    assert drafted == made
    assert made == drafted
    assert hash(drafted) == hash(made)
    assert repr(drafted) == repr(made)
    assert event_to_json(drafted) == event_to_json(made)
    assert dataclasses.asdict(drafted) == dataclasses.asdict(made)
    assert dataclasses.replace(drafted, text="bye") == dataclasses.replace(made, text="bye")
    assert pickle.loads(pickle.dumps(drafted)) == made  # noqa: S301  # of our own making
    assert not hasattr(drafted, "__dict__")
    with pytest.raises(dataclasses.FrozenInstanceError):
        cast(Any, drafted).text = "other"
    match drafted:
        case ChannelToken(text=text, kind=kind):
            assert (text, kind) == ("hello", "channel_token")


def test_a_draft_has_the_fields_of_a_token_and_no_others() -> None:
    assert sorted(TokenDraft.__slots__) == sorted(f.name for f in dataclasses.fields(ChannelToken))


# -- Failed


def test_failed_hands_out_the_rich_error_with_what_streamed() -> None:
    rich = SamplingError(FULL_ERROR)
    rich.__cause__ = OSError("broken")
    event = Failed(**STAMP, error=FULL_ERROR, partial=RESPONSE, metrics=METRICS, exception=rich)
    error = event.to_error()
    assert error is rich
    assert (error.partial, error.metrics) == (RESPONSE, METRICS)


def test_failed_from_json_rebuilds_an_error() -> None:
    event = Failed(**STAMP, error=FULL_ERROR, partial=RESPONSE, metrics=METRICS, exception=SamplingError(FULL_ERROR))
    back = event_from_json(event_to_json(event))
    assert isinstance(back, Failed)
    assert back.exception is None
    assert back == event  # the exception is no part of the value
    error = back.to_error()
    assert (error.info, error.partial, error.metrics) == (FULL_ERROR, RESPONSE, METRICS)


def test_json_cannot_smuggle_an_exception_in() -> None:
    line = json.dumps({**json.loads(event_to_json(FULL[-1])), "exception": "raise SystemExit"})
    back = event_from_json(line)
    assert isinstance(back, Failed)
    assert back.to_error().info == FULL_ERROR


def test_what_a_tool_raised_is_no_part_of_the_value() -> None:
    event = next(one for one in FULL if isinstance(one, ToolResultAdded))
    raised = dataclasses.replace(event, exception=OSError("broken"))
    assert raised == event
    assert event_from_json(event_to_json(raised)) == event


# -- repr


@pytest.mark.parametrize("event", ALL, ids=_ids)
def test_a_repr_is_short_and_says_what_it_is(event: SamplingEvent) -> None:
    shown = repr(event)
    assert shown.startswith(type(event).__name__ + "(")
    assert "'r-1'" in shown
    assert f"kind={event.kind!r}" not in shown  # the class name says it already
    assert len(shown) < 2000


def test_the_repr_of_a_long_answer_is_short() -> None:
    response = SamplingResponse(items=(TextItem(text="word " * 100_000),))
    assert len(repr(Completed(**STAMP, response=response, metrics=METRICS))) < 2000


@pytest.mark.parametrize(
    "event",
    [e for e in ALL if e.kind in ("reasoning_completed", "images_stripped", "tool_result_added")],
    ids=_ids,
)
def test_a_repr_shows_neither_signatures_nor_urls(event: SamplingEvent) -> None:
    assert SIGNATURE not in repr(event)
    assert IMAGE_URL not in repr(event)


@pytest.mark.parametrize("field", ["signature", "encrypted_content", "redacted_data"])
def test_the_repr_of_a_terminal_event_shows_no_signature(field: str) -> None:
    response = SamplingResponse(items=(ReasoningItem.model_validate({"text": "hm", field: SIGNATURE * 100}),))
    assert SIGNATURE not in repr(Completed(**STAMP, response=response, metrics=METRICS))
    assert SIGNATURE not in repr(Failed(**STAMP, error=FULL_ERROR, partial=response))
