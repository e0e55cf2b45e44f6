"""What one request gets: `Turn` and its parts; frozen, strict, and the same in Python and in JSON.

A script is a list of turns. `load_script` reads one from JSON and refuses what it does not know, naming turn, field,
value and what would be right; `dump_script` writes one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from .faults import Fault
from .strict import FROM_LIST, HeaderName, HeaderValue, StrictModel

__all__ = [
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

_SHOWN_VALUE_CHARS = 60
"""How much of a refused value an error message shows."""


class ScriptError(ValueError):
    """A script or turn that is not one; the message names the field, its value and what would be right."""


class Timing(StrictModel):
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


class ToolCall(StrictModel):
    """A call of a client tool: its arguments as an object; `id` in the provider's style when absent."""

    name: Annotated[str, Field(min_length=1)]
    arguments: dict[str, Any] = Field(default_factory=dict)
    id: str | None = None


class Usage(StrictModel):
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


class Turn(StrictModel):
    """What one request gets. What is absent is generated from the seed and the request.

    Without `tool_calls`, a tool is called if the request forces one, or offers some and brings no result of a call (and
    wants no JSON); with `tool_calls` or `refusal`, an absent `text` is empty. `reasoning` that is given is sent whether
    or not the request asked for any. The request's limits (maximum of tokens, stop sequences) apply to scripted text
    too. `annotations` are sent as they stand, so give them in the shape of the wire format that will be asked.
    `delta_chars` is the size of a delta; absent: one token each. `headers` are added to the response's; `timing`
    replaces the server's for this request.

    `fault` is for the one request that takes the turn; if that is sent again, it takes the next turn. `faults` is for
    a request and its retries: the n-th attempt meets the n-th entry (None: no fault), and every attempt after the last
    entry is answered well. The turn stays with its request until an attempt was answered whole with no entry left, so
    an attempt whose connection fails after the last entry finds the same answer again.

    An attempt is known by its *key*: the name in the header `x-simulator-request` if it has one, else its endpoint
    and body. Two bodies have the same key if they are equal apart from images: image parts, lines of text that are
    nothing but a note about an image in square brackets (`[image removed: ...]`, in any case), `cache_control` and
    the difference between a text, a list of that text, and one text per line do not count. So requests in flight at
    the same time need different questions, or names.
    """

    text: str | None = None
    reasoning: str | None = None
    tool_calls: Annotated[tuple[ToolCall, ...], FROM_LIST] | None = None
    refusal: str | None = None
    annotations: Annotated[tuple[dict[str, Any], ...], FROM_LIST] = ()
    stop_reason: StopReason | None = None
    usage: Usage | None = None
    fault: Fault | None = None
    faults: Annotated[tuple[Fault | None, ...], FROM_LIST] | None = None
    delta_chars: Annotated[int, Field(ge=1)] | None = None
    headers: dict[HeaderName, HeaderValue] = Field(default_factory=dict)
    timing: Timing | None = None

    @model_validator(mode="after")
    def _one_kind_of_fault(self) -> Turn:
        if self.fault is not None and self.faults is not None:
            raise ValueError(
                "fault and faults exclude each other: faults has one entry per attempt, the first included"
            )
        return self

    def meeting(self, fault: Fault | None) -> Turn:
        """The turn of one attempt, which meets this fault."""
        return self.model_copy(update={"fault": fault, "faults": None})

    @property
    def has_upload_fault(self) -> bool:
        """Whether some attempt is reset before its body is whole."""
        return any(fault is not None and fault.kind == "upload_reset" for fault in (self.fault, *(self.faults or ())))


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
