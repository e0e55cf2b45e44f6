"""What one request gets: `Turn`, `Fault`, `Timing`; frozen, strict, and the same in Python and in JSON.

A script is a list of turns. `load_script` reads one from JSON and refuses what it does not know, naming turn, field,
value and what would be right; `dump_script` writes one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

__all__ = [
    "Fault",
    "FaultKind",
    "ScriptError",
    "StopReason",
    "Timing",
    "ToolCall",
    "Turn",
    "Usage",
    "dump_script",
    "load_script",
    "load_turn",
]

StopReason = Literal["stop", "length", "tool_calls", "content_filter"]
FaultKind = Literal[
    "status",
    "stall",
    "silent",
    "cut",
    "early_end",
    "reset",
    "error",
    "truncated_json",
    "doom_loop",
    "keepalive",
]

_SHOWN_VALUE_CHARS = 60
"""How much of a refused value an error message shows."""


def _tuple_of_list(value: object) -> object:
    """A list where the strict model wants a tuple: what people write, and what JSON has, stays welcome."""
    return tuple(value) if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - pydantic checks the elements


HeaderName = Annotated[str, Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]
"""A token: RFC 9110, section 5.6.2."""

HeaderValue = Annotated[str, Field(pattern=r"^[^\x00-\x08\x0a-\x1f\x7f]*$")]
"""Anything but control characters, of which line ends would start another header."""


class ScriptError(ValueError):
    """A script or turn that is not one; the message names the field, its value and what would be right."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class Timing(_Model):
    """How the server paces an answer. Headers and opening frames go out at once.

    `time_to_first_token_s` passes before the first delta, then `tokens_per_second` rules (None: as fast as it goes).
    Each wait is drawn evenly from plus or minus `jitter` of itself (0.2 is 20 %), from the seeded generator.
    """

    time_to_first_token_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.25
    tokens_per_second: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = 40.0
    jitter: Annotated[float, Field(ge=0, le=1)] = 0.2

    @classmethod
    def instant(cls) -> Timing:
        """No waiting at all."""
        return cls(time_to_first_token_s=0.0, tokens_per_second=None, jitter=0.0)


class ToolCall(_Model):
    """A call of a client tool: its arguments as an object; `id` in the provider's style when absent."""

    name: Annotated[str, Field(min_length=1)]
    arguments: dict[str, Any] = {}
    id: str | None = None


class Usage(_Model):
    """Token counts to report instead of the true ones; what is absent is counted.

    `input_tokens` includes cache reads and writes and `output_tokens` includes reasoning, in every wire format; the
    messages format subtracts the cache again, as Anthropic does.
    """

    input_tokens: Annotated[int, Field(ge=0)] | None = None
    output_tokens: Annotated[int, Field(ge=0)] | None = None
    reasoning_tokens: Annotated[int, Field(ge=0)] | None = None
    cached_input_tokens: Annotated[int, Field(ge=0)] = 0
    cache_creation_input_tokens: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _cache_is_part_of_the_input(self) -> Usage:
        cache = self.cached_input_tokens + self.cache_creation_input_tokens
        if self.input_tokens is not None and self.input_tokens < cache:
            raise ValueError(f"input_tokens={self.input_tokens} must be at least the {cache} cache tokens it includes")
        return self


_FAULT_FIELDS: dict[FaultKind, frozenset[str]] = {
    "status": frozenset({"status", "headers", "body", "type", "code", "message"}),
    "silent": frozenset(),
    "stall": frozenset({"after_deltas"}),
    "cut": frozenset({"after_deltas"}),
    "early_end": frozenset({"after_deltas"}),
    "reset": frozenset({"after_deltas"}),
    "error": frozenset({"after_deltas", "type", "code", "message"}),
    "truncated_json": frozenset({"after_deltas"}),
    "doom_loop": frozenset({"after_deltas", "triggers"}),
    "keepalive": frozenset({"after_deltas", "count", "interval_s"}),
}
"""Which fields mean something for which kind; a script that sets another one is refused rather than half obeyed."""


class Fault(_Model):
    """What goes wrong with an answer, and where.

    `after_deltas` counts frames with content (text, reasoning, refusal, arguments): the fault strikes right after the
    n-th, or before the closing frames of a shorter answer; at 0 it strikes directly after the headers.

    * `status`: this HTTP status instead of an answer, with these `headers` and this `body` (text as it stands, an
      object as JSON; absent: the provider's own error shape, with `type`, `code` and `message` where given).
    * `silent`: no headers, ever; the socket stays open.
    * `stall`: nothing more is sent; the socket stays open.
    * `cut`: the connection is dropped in the middle of a chunk; the chunked body is unfinished.
    * `early_end`: the body ends cleanly, without finish reason or terminal event.
    * `reset`: the connection is reset (RST); at 0 before any header.
    * `error`: the provider's in-stream error event; a request without streaming gets it as an HTTP error.
    * `truncated_json`: the next frame holds half its JSON; the stream then goes on.
    * `doom_loop`: xAI's check frames with cumulative `triggers`, one more before each frame that follows, and all of
      them in the terminal event (only there, if the answer ends before `after_deltas`); on streamed responses of a
      client that sent `x-grok-doom-loop-check`, nothing elsewhere.
    * `keepalive`: comments or pings, `count` of them (None: for ever) every `interval_s`, then the answer goes on.

    Without streaming, `stall`, `cut`, `early_end`, `reset` and `truncated_json` strike in the middle of the body.
    """

    kind: FaultKind
    after_deltas: Annotated[int, Field(ge=0)] = 0
    status: Annotated[int, Field(ge=200, le=599)] = 500
    headers: dict[HeaderName, HeaderValue] = {}
    body: str | dict[str, Any] | None = None
    type: str | None = None
    code: str | None = None
    message: str | None = None
    triggers: Annotated[tuple[str, ...], BeforeValidator(_tuple_of_list)] = ("tail_repetition:8@thinking",)
    count: Annotated[int, Field(ge=0)] | None = None
    interval_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0

    @model_validator(mode="after")
    def _fields_fit_the_kind(self) -> Fault:
        known = _FAULT_FIELDS[self.kind]
        for name in sorted(self.model_fields_set - known - {"kind"}):
            fitting = ", ".join(sorted(known)) or "no other field"
            raise ValueError(f"{name} means nothing for kind={self.kind!r}, which takes {fitting}")
        return self


class Turn(_Model):
    """What one request gets. What is absent is generated from the seed and the request.

    Without `tool_calls`, a tool is called only if the request forces one; with `tool_calls` or `refusal`, an absent
    `text` is empty. `reasoning` that is given is sent whether or not the request asked for any. The request's limits
    (maximum of tokens, stop sequences) apply to scripted text too. `annotations` are sent as they stand, so give them
    in the shape of the wire format that will be asked. `delta_chars` is the size of a delta; absent: one token each.
    `headers` are added to the response's; `timing` replaces the server's for this request.
    """

    text: str | None = None
    reasoning: str | None = None
    tool_calls: Annotated[tuple[ToolCall, ...], BeforeValidator(_tuple_of_list)] | None = None
    refusal: str | None = None
    annotations: Annotated[tuple[dict[str, Any], ...], BeforeValidator(_tuple_of_list)] = ()
    stop_reason: StopReason | None = None
    usage: Usage | None = None
    fault: Fault | None = None
    delta_chars: Annotated[int, Field(ge=1)] | None = None
    headers: dict[HeaderName, HeaderValue] = {}
    timing: Timing | None = None


_SCRIPT: TypeAdapter[tuple[Turn, ...]] = TypeAdapter(tuple[Turn, ...])


def load_script(json_text: str | bytes) -> tuple[Turn, ...]:
    """The turns of a JSON array; `ScriptError` where it is none."""
    try:
        return _SCRIPT.validate_json(json_text)
    except ValidationError as error:
        raise ScriptError(_explanation("script", error)) from error


def load_turn(json_text: str | bytes) -> Turn:
    """The one turn of a JSON object; `ScriptError` where it is none."""
    try:
        return Turn.model_validate_json(json_text)
    except ValidationError as error:
        raise ScriptError(_explanation("turn", error)) from error


def dump_script(turns: Iterable[Turn]) -> str:
    """The turns as a JSON array of what was set; `load_script` reads the same turns back."""
    return _SCRIPT.dump_json(tuple(turns), exclude_unset=True).decode()


def _explanation(what: str, error: ValidationError) -> str:
    """One line per mistake: where it is, what stood there and what would be right."""
    lines: list[str] = []
    for detail in error.errors(include_url=False):
        place = ".".join(str(part) for part in detail["loc"]) or "value"
        shown = repr(detail["input"])
        if len(shown) > _SHOWN_VALUE_CHARS:
            shown = shown[:_SHOWN_VALUE_CHARS] + "..."
        lines.append(f"{what}: {place} = {shown}: {detail['msg']}")
    return "\n".join(lines)
