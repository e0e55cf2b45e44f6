"""`SamplingEvent`: the one vocabulary that every wire format is turned into.

A request's events are, per attempt, `StreamStarted`, then `ModelMetadata` and `ResponseStarted` where the server
says something of the kind, then content; and once per request a single `Completed` or `Failed` at the end. Between
attempts stands `Retrying`, which voids what the attempt before it streamed. A request that is a turn of a loop over
tools (`run_tools`) begins with the results that it brings, each a `ToolResultAdded`.

Events are frozen, slotted dataclasses. `kind` is the class name in snake_case and the discriminator of the JSON
form: `event_to_json`, `event_from_json`, `event_json_schema`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field, SkipValidation, TypeAdapter
from pydantic.json_schema import SkipJsonSchema

from .conversation import JsonObject, SamplingResponse, ToolResultItem
from .errors import SamplingError, SamplingErrorInfo, SamplingErrorKind
from .metrics import LatencyMetrics

__all__ = [
    "REASONING",
    "REFUSAL",
    "TEXT",
    "AnnotationAdded",
    "BackendToolCallCompleted",
    "BackendToolCallStarted",
    "ChannelToken",
    "Completed",
    "DoomLoopSignals",
    "Failed",
    "FirstToken",
    "ImagesStripped",
    "ModelMetadata",
    "RateLimit",
    "ReasoningCompleted",
    "ResponseStarted",
    "Retrying",
    "SamplingEvent",
    "StreamStarted",
    "ToolCallDelta",
    "ToolResultAdded",
    "event_from_json",
    "event_json_schema",
    "event_to_json",
]

TEXT, REASONING, REFUSAL = "text", "reasoning", "refusal"
"""The channels that exist today. The set is open: match on the names you know and pass by the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamped:
    """What every event carries: whose it is, in which attempt (from 1), and when (Unix seconds, never going back).

    `turn` counts from 1 where the request is a turn of a loop (`run_tools`); else it is None.
    """

    request_id: str
    attempt: int
    ts: float
    turn: int | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStarted(Stamped):
    """The server accepted the request: headers of a 2xx came, no body byte was looked at yet.

    `submitted_at` is when the request was made, on the clock of `ts`: what happened before this event, earlier attempts
    and waits included, took `ts - submitted_at`. It is no part of what makes two events equal.
    """

    submitted_at: float | None = field(default=None, compare=False)
    kind: Literal["stream_started"] = field(default="stream_started", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseStarted(Stamped):
    """The wire named the answer: once per attempt, before its content, if the server gives an id or a model."""

    message_id: str | None = None
    model: str | None = None
    input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    kind: Literal["response_started"] = field(default="response_started", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """One limit of the account as the headers state it; `reset_after_s` counts from the response."""

    name: str
    limit: int | None = None
    remaining: int | None = None
    reset_after_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMetadata(Stamped):
    """What the response headers tell about model and account; emitted only if they tell something."""

    model: str | None = None
    context_window: int | None = None
    max_completion_tokens: int | None = None
    models_etag: str | None = None
    rate_limits: tuple[RateLimit, ...] = ()
    provider_request_id: str | None = None
    kind: Literal["model_metadata"] = field(default="model_metadata", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstToken(Stamped):
    """The first content of the attempt on any channel; directly before its `ChannelToken`."""

    channel: str
    kind: Literal["first_token"] = field(default="first_token", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelToken:
    """One non-empty piece of text of a channel, in wire order.

    `chunk_index` counts from 1 over all channels of the attempt. `choice` is 0 unless the request asked for `n > 1`.
    """

    request_id: str  # the fields of Stamped, spelt out: _TokenDraft needs a class without a frozen base
    attempt: int
    ts: float
    channel: str
    text: str
    chunk_index: int
    choice: int = 0
    turn: int | None = field(default=None, repr=False)
    kind: Literal["channel_token"] = field(default="channel_token", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningCompleted(Stamped):
    """A reasoning block closed and its signature or encrypted form is known."""

    signature: str = field(repr=False)
    kind: Literal["reasoning_completed"] = field(default="reasoning_completed", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallDelta(Stamped):
    """A fragment of a call of the client's own tool: id and name come first, argument fragments follow.

    `tool_index` numbers the calls of a choice densely from 0 in order of appearance, whatever the wire's index says.
    """

    tool_index: int
    id: str | None = None
    name: str | None = None
    arguments_delta: str | None = None
    choice: int = 0
    kind: Literal["tool_call_delta"] = field(default="tool_call_delta", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultAdded(Stamped):
    """A call of the client's own tool was run (`run_tools`): its result is part of the request of this id.

    Before that request's `StreamStarted`, in the order in which the calls finished. `exception` is what the tool
    raised, for code in the same process; JSON does not carry it.
    """

    tool_call_id: str
    name: str
    result: ToolResultItem
    duration_ms: float
    """From the start of the call, without its wait for a place."""
    exception: Annotated[SkipJsonSchema[SkipValidation[Any]], Field(exclude=True)] = field(
        default=None, repr=False, compare=False
    )
    kind: Literal["tool_result_added"] = field(default="tool_result_added", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendToolCallStarted(Stamped):
    """The server began to run a tool of its own; once per call, at its first sign."""

    call_id: str
    name: str
    kind: Literal["backend_tool_call_started"] = field(default="backend_tool_call_started", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendToolCallCompleted(Stamped):
    """The server's own tool finished; `result` is the wire item that says so, also when it reports an error."""

    call_id: str
    name: str
    result: JsonObject | None = None
    kind: Literal["backend_tool_call_completed"] = field(default="backend_tool_call_completed", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationAdded(Stamped):
    """A citation, as on the wire, on what `channel` had said up to `offset` characters of its text."""

    annotation: JsonObject
    channel: str = TEXT
    offset: int | None = None
    kind: Literal["annotation_added"] = field(default="annotation_added", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagesStripped(Stamped):
    """Images were taken out of the request before the next attempt; a URL stands once per removed image."""

    stripped_urls: tuple[str, ...] = field(repr=False)
    reason: Literal["server_rejected", "payload_heuristic"]
    kind: Literal["images_stripped"] = field(default="images_stripped", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DoomLoopSignals(Stamped):
    """Labels of a repetition check, the server's or our own, on the attempt that is being dropped or accepted."""

    triggers: tuple[str, ...]
    kind: Literal["doom_loop_signals"] = field(default="doom_loop_signals", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying(Stamped):
    """Another attempt follows after `backoff_s`; forget what this one streamed."""

    next_attempt: int
    retry: int
    max_retries: int
    budget: Literal["transport", "rate_limit", "doom_loop"]
    error_kind: SamplingErrorKind
    reason: str
    backoff_s: float
    doom_loop_triggers: tuple[str, ...] = ()
    doom_loop_aborted_at_chunk: int | None = None
    kind: Literal["retrying"] = field(default="retrying", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed(Stamped):
    """The answer is whole. The last event of a request."""

    response: SamplingResponse
    metrics: LatencyMetrics
    kind: Literal["completed"] = field(default="completed", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(Stamped):
    """The request failed; `partial` is what streamed until then. The last event of a request.

    `exception` is the rich error with its cause, for code in the same process; JSON does not carry it.
    """

    error: SamplingErrorInfo
    partial: SamplingResponse | None = None
    metrics: LatencyMetrics = field(default_factory=LatencyMetrics)
    exception: Annotated[SkipJsonSchema[SkipValidation[Any]], Field(exclude=True)] = field(
        default=None, repr=False, compare=False
    )
    kind: Literal["failed"] = field(default="failed", repr=False)

    def to_error(self) -> SamplingError:
        """The rich error; rebuilt from `error` if this event came from JSON."""
        error = self.exception if isinstance(self.exception, SamplingError) else self.error.to_error()
        error.partial, error.metrics = self.partial, self.metrics
        return error


SamplingEvent = (
    StreamStarted
    | ResponseStarted
    | ModelMetadata
    | FirstToken
    | ChannelToken
    | ReasoningCompleted
    | ToolCallDelta
    | ToolResultAdded
    | BackendToolCallStarted
    | BackendToolCallCompleted
    | AnnotationAdded
    | ImagesStripped
    | DoomLoopSignals
    | Retrying
    | Completed
    | Failed
)

if TYPE_CHECKING:
    _Adapter = TypeAdapter[SamplingEvent]

_adapter_cache: list[_Adapter] = []
_NO_TURN: Final = {"turn"}
"""Most requests are no turn of anything, and their recordings need not say so on every line."""


def _adapter() -> _Adapter:
    # Built at first use: the schema of the union costs some 20 ms, which an import should not.
    if not _adapter_cache:
        _adapter_cache.append(TypeAdapter(Annotated[SamplingEvent, Field(discriminator="kind")]))
    return _adapter_cache[0]


def event_to_json(event: SamplingEvent) -> str:
    """One line of JSON, without the line end; fields at None are kept, but for `turn`; no `Failed.exception`."""
    return _adapter().dump_json(event, exclude=_NO_TURN if event.turn is None else None).decode()


def event_from_json(line: str | bytes) -> SamplingEvent:
    """The event that `event_to_json` wrote. Raises `pydantic.ValidationError` naming field and value otherwise."""
    return _adapter().validate_json(line)


def event_json_schema() -> Mapping[str, Any]:
    """The JSON Schema of the closed union, discriminated by `kind`."""
    return _adapter().json_schema(mode="serialization")


class TokenDraft:
    """A `ChannelToken` in the making: `draft.__class__ = ChannelToken` finishes it.

    A frozen dataclass sets each field through `object.__setattr__`, together some 2 us. This draft of the same memory
    layout takes plain assignments, in a fifth of that. Other events are rare enough not to care; nearly all events of
    a stream are tokens.
    """

    __slots__ = ("attempt", "channel", "choice", "chunk_index", "kind", "request_id", "text", "ts", "turn")

    def __init__(
        self, request_id: str, attempt: int, ts: float, channel: str, text: str, chunk_index: int, choice: int
    ) -> None:
        self.request_id = request_id
        self.attempt = attempt
        self.ts = ts
        self.channel = channel
        self.text = text
        self.chunk_index = chunk_index
        self.choice = choice
        self.turn = None
        self.kind = "channel_token"
