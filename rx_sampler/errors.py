"""What can go wrong with a request, and what a caller may do about it.

An error has two forms. `SamplingError` is the rich one: an exception with its cause, raised by `collect()` and
carried on Rx's error channel between stages. `SamplingErrorInfo` is the plain one inside a `Failed` event: frozen,
serialisable, without secrets. Each leads to the other: `error.info`, `info.to_error()`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import BeforeValidator

if TYPE_CHECKING:
    from .conversation import SamplingResponse
    from .metrics import LatencyMetrics

__all__ = [
    "EmptyReason",
    "EmptyResponseContext",
    "ErrorStamp",
    "SamplingError",
    "SamplingErrorInfo",
    "SamplingErrorKind",
    "SentCredential",
    "is_retryable_status",
    "printable_line",
]

EmptyReason = Literal["reasoning_only", "no_visible_content"]
SentCredential = Literal["sent", "missing", "unknown"]


def _known_credential(word: object) -> object:
    """A recording outlives the version that made it: a word of a later one reads as `unknown`."""
    return word if word in ("sent", "missing") else "unknown"


# 501 and 505 say that the server never will; 525 and 526 are broken TLS at the origin, which time does not mend.
_FINAL_SERVER_STATUSES = frozenset({501, 505, 525, 526})
_RETRYABLE_CLIENT_STATUSES = frozenset({408, 409, 429})

_OVERLOAD_TYPES: Final = ("overloaded_error", "service_unavailable_error")
_OVERLOAD_WORDS: Final = ("overloaded", "service_unavailable_error")

MAX_DESCRIPTION_CHARS: Final = 700
"""A message of full length, and what is said around it."""


def printable_line(text: str, max_chars: int) -> str:
    """One line: white space folded, control characters shown as escapes, what is longer cut with a `…` behind it."""
    line = " ".join(text.split())
    line = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" if ord(c) > 255 else f"\\x{ord(c):02x}" for c in line)
    return line if len(line) <= max_chars else line[:max_chars].rstrip() + "…"


def is_retryable_status(status: int) -> bool:
    """Whether the same request may succeed later: 408, 409, 429 and every 5xx that is not final by its meaning."""
    return status in _RETRYABLE_CLIENT_STATUSES or (status >= 500 and status not in _FINAL_SERVER_STATUSES)


class SamplingErrorKind(StrEnum):
    """The classes of failure. A context overflow is `api` with `is_context_overflow` set."""

    AUTH = "auth"
    """The credential was refused (401) or could not be used. 403 is `api`: the key is known, the act forbidden."""
    HTTP = "http"
    """The connection failed, broke or ended before the protocol said so. Never carries a status."""
    API = "api"
    """The server said no, by status or inside the stream."""
    SERIALIZATION = "serialization"
    """A frame that we should understand is not valid JSON or exceeds the frame limit."""
    IDLE_TIMEOUT = "idle_timeout"
    """No bytes, no content, or no end within the configured limit; `code` says which."""
    RATE_LIMITED = "rate_limited"
    """Status 429, or an in-stream error that means the same."""
    EMPTY_RESPONSE = "empty_response"
    """The stream ended well without text, tool calls or a refusal."""
    MAX_TOKENS_TRUNCATION = "max_tokens_truncation"
    """The output hit the token limit and `on_length="fail"` is configured."""
    DOOM_LOOP_DETECTED = "doom_loop_detected"
    """The model repeats itself: the server reported it, or `LoopDetection` found it."""
    CANCELLED = "cancelled"
    """The caller cancelled a submitted request."""
    INVALID_REQUEST = "invalid_request"
    """The request or configuration cannot be sent; found before anything was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyResponseContext:
    """What was in an answer that counts as empty."""

    reason: EmptyReason
    had_reasoning: bool
    finish_reason: str | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    input_tokens: int | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingErrorInfo:
    """A failure as data: what `Failed.error` holds and what JSON keeps of an error.

    `message` is for people: one line, at most `MAX_MESSAGE_CHARS` of the server's own words, no markup, no terminal
    escapes, no credentials. `status` is the HTTP status or the one that an in-stream error stands for. `code` is the
    provider's machine-readable code, or its error type where it has no code.
    """

    kind: SamplingErrorKind
    message: str
    status: int | None = None
    code: str | None = None
    is_retryable: bool = False
    is_context_overflow: bool = False
    retry_after_s: float | None = None
    should_retry: bool | None = None
    model_metadata: Mapping[str, str | int] | None = None
    empty_response_context: EmptyResponseContext | None = None
    doom_loop_triggers: tuple[str, ...] = ()
    doom_loop_aborted_at_chunk: int | None = None
    credential: Annotated[SentCredential, BeforeValidator(_known_credential)] = "unknown"
    provider_request_id: str | None = None

    @property
    def is_overloaded(self) -> bool:
        """Whether the server said that it has too much to do: 529, or another 5xx that names it in code or message.

        A 4xx never counts, whatever its words. An error inside a stream has the status that its type stands for; where
        it stands for none, only the code decides, since a message may quote anything.
        """
        code = (self.code or "").lower()
        if self.status is None:
            return code in _OVERLOAD_TYPES
        words = f"{code} {self.message.lower()}"
        return self.status == 529 or (self.status >= 500 and any(word in words for word in _OVERLOAD_WORDS))

    def describe(self, retries: int | None = None) -> str:
        """The failure in one line for people, after how many `retries` if any were made.

        Printable, at most `MAX_DESCRIPTION_CHARS`, without credentials. For a dialog or a status line: programs read
        the fields, and no two versions need say the same.
        """
        count = f"{retries} {'retry' if retries == 1 else 'retries'}"
        lead = f"Request failed after {count}. " if retries else ""
        # A label, a model's name, a finish reason are the server's, word for word.
        return printable_line(f"{lead}{_in_words(self)}", MAX_DESCRIPTION_CHARS - 1)

    def to_error(self) -> SamplingError:
        """The exception this describes; its `__cause__` did not survive the trip."""
        return SamplingError(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorStamp:
    """Which attempt failed, and when; in the terms of an event."""

    request_id: str
    attempt: int
    ts: float


class SamplingError(Exception):
    """A failed request: `info` says what happened, `partial` and `metrics` what there was until then.

    `partial` is the `SamplingResponse` of what streamed before the failure, None if nothing did.
    """

    info: SamplingErrorInfo
    partial: SamplingResponse | None
    metrics: LatencyMetrics | None
    where: ErrorStamp | None

    def __init__(self, info: SamplingErrorInfo):
        super().__init__(info)
        self.info = info
        self.partial = None
        self.metrics = None
        self.where = None

    @classmethod
    def of(
        cls,
        kind: SamplingErrorKind,
        message: str,
        *,
        status: int | None = None,
        code: str | None = None,
        is_retryable: bool = False,
    ) -> SamplingError:
        """Build an error from the fields that most failures need."""
        return cls(SamplingErrorInfo(kind=kind, message=message, status=status, code=code, is_retryable=is_retryable))

    @property
    def kind(self) -> SamplingErrorKind:
        return self.info.kind

    def amend(self, **changes: object) -> SamplingError:
        """Replace fields of `info` in place (the traceback and the cause stay) and return self."""
        self.info = replace(self.info, **changes)  # type: ignore[arg-type]  # names are checked by replace itself
        self.args = (self.info,)
        return self

    def __str__(self) -> str:
        info = self.info
        status = f" {info.status}" if info.status is not None else ""
        code = f" [{info.code}]" if info.code and info.code not in info.message else ""
        return f"{info.kind.value}{status}{code}: {info.message}"

    def __repr__(self) -> str:
        return f"SamplingError({str(self)!r})"


# -- words for people

_LEADS: Final = {
    SamplingErrorKind.AUTH: "Authentication failed",
    SamplingErrorKind.HTTP: "Connection failed",
    SamplingErrorKind.SERIALIZATION: "Unreadable response",
    SamplingErrorKind.IDLE_TIMEOUT: "Timed out",
    SamplingErrorKind.EMPTY_RESPONSE: "Empty response",
    SamplingErrorKind.MAX_TOKENS_TRUNCATION: "Response cut short",
    SamplingErrorKind.DOOM_LOOP_DETECTED: "Doom loop detected",
    SamplingErrorKind.CANCELLED: "Cancelled",
    SamplingErrorKind.INVALID_REQUEST: "Invalid request",
}
_HINTS: Final = {
    400: "bad request",
    403: "not allowed with this credential",
    404: "no such model or address",
    413: "request too large; send less, or fewer and smaller images",
    429: "rate limited",
    500: "server error",
}


def _in_words(info: SamplingErrorInfo) -> str:
    lead = _LEADS.get(info.kind)
    if lead is None:
        facts = _api_facts(info)
        lead = f"API error ({'; '.join(facts)})" if facts else "API error"
    elif info.kind is SamplingErrorKind.AUTH and info.credential == "missing":
        lead += " (no credential was sent)"
    elif info.kind is SamplingErrorKind.EMPTY_RESPONSE and info.empty_response_context is not None:
        return f"{lead} ({'; '.join(_emptiness(info.empty_response_context))})"
    elif info.kind is SamplingErrorKind.DOOM_LOOP_DETECTED and info.doom_loop_triggers:
        at = info.doom_loop_aborted_at_chunk
        return f"{lead}{'' if at is None else f' at chunk {at}'}: {', '.join(info.doom_loop_triggers)}"
    return f"{lead}: {info.message}"


def _emptiness(context: EmptyResponseContext) -> list[str]:
    facts = [context.reason.replace("_", " ")]
    if context.model:
        facts.append(f"model {context.model}")
    if context.had_reasoning and context.reason != "reasoning_only":
        facts.append("had reasoning")
    if context.finish_reason:
        facts.append(f"finish reason {context.finish_reason}")
    if context.output_tokens is not None:
        facts.append(f"{context.output_tokens} output tokens")
    return facts


def _api_facts(info: SamplingErrorInfo) -> list[str]:
    known = info.code if info.status is None else f"HTTP {info.status}"
    facts = [known] if known else []
    if info.is_context_overflow:
        facts.append("the conversation is too long for the model")
    elif info.is_overloaded:
        facts.append("overloaded")
    elif hint := _HINTS.get(info.status or 0):
        facts.append(hint)
    elif info.status is not None and info.is_retryable:
        facts.append("temporary")
    if info.retry_after_s is not None:
        facts.append(f"the server asks to wait {info.retry_after_s:g} s")
    return facts
