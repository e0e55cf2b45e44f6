"""One lenient reading of what servers say when they refuse: HTTP bodies and errors inside a stream alike.

Servers nest, flatten, wrap in lists, double-encode, answer in plain text or HTML, and put numbers where codes should
be. `read_error` finds the message, type, code and status wherever they are; `refusal` turns them into a
`SamplingError` of the right kind.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final, cast

from rx_sampler.errors import (
    SamplingError,
    SamplingErrorInfo,
    SamplingErrorKind,
    is_retryable_status,
    printable_line,
)

__all__ = ["MAX_MESSAGE_CHARS", "ErrorBody", "clean_message", "is_markup", "read_error", "refusal", "status_text"]

MAX_MESSAGE_CHARS: Final = 500
"""A message is for a log line or a dialog; some servers echo the whole request in it."""

_LONGEST_READ: Final = MAX_MESSAGE_CHARS * 8

_NO_CREDIT_CODES: Final = frozenset(
    {
        "insufficient_quota",
        "credit_balance_exhausted",
        "usage_limit_reached",
        "billing_hard_limit_reached",
        "billing_not_active",
        "billing_error",
        "insufficient_credits",
        "insufficient_balance",
    }
)
"""Codes that mean "no money", on whatever status: waiting does not help. Decided on the code, never on words."""

_OVERFLOW_CODES: Final = frozenset(
    {
        "context_length_exceeded",
        "exceed_context_size_error",
        "model_context_window_exceeded",
        "too_many_prompt_tokens",
        "context_window_exceeded",
    }
)
_OVERFLOW_PHRASES: Final = (
    "too long for this model",
    "prompt is too long",
    "maximum prompt length",
    "maximum context length",
    "context_length_exceeded",
    "exceeds the context window",
    "exceeds the available context size",
    "exceed context window",
)

_STATUS_OF: Final[dict[str, int]] = {
    # Anthropic, https://docs.anthropic.com/en/api/errors
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
    # OpenAI, https://platform.openai.com/docs/guides/error-codes and the responses error event
    "invalid_prompt": 400,
    "context_length_exceeded": 400,
    "content_policy_violation": 400,
    "invalid_api_key": 401,
    "model_not_found": 404,
    "insufficient_quota": 429,
    "rate_limit_exceeded": 429,
    "usage_limit_reached": 429,
    "credit_balance_exhausted": 429,
    "server_error": 500,
    "internal_server_error": 500,
    "internal_error": 500,
    "service_unavailable": 503,
    "service_unavailable_error": 503,
    # llama.cpp and vLLM
    "exceed_context_size_error": 400,
    "unavailable_error": 503,
    "not_supported_error": 501,
    "badrequesterror": 400,
    "notfounderror": 404,
    "internalservererror": 500,
}
"""The HTTP status that an error inside a 200 stream stands for, by its code or type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBody:
    """What a refusal says of itself; None where it does not."""

    message: str | None = None
    type: str | None = None
    code: str | None = None
    status: int | None = None
    retry_after_s: float | None = None

    @property
    def label(self) -> str | None:
        """The machine-readable name: a code that is no mere number, else the type, else the number."""
        if self.code and not self.code.isdigit():
            return self.code
        return self.type or self.code


def read_error(body: object) -> ErrorBody | None:
    """What an error body says; None if it says nothing readable.

    `body` is raw bytes, text, or an already parsed JSON value. Text that is not JSON is a message of its own unless
    it is markup.
    """
    return _read(body.decode("utf-8", "replace") if isinstance(body, bytes) else body, depth=0)


def _read_text(text: str, depth: int) -> ErrorBody | None:
    try:
        return _read(json.loads(text), depth + 1)  # JSON that says nothing is not a message of its own
    except (ValueError, RecursionError):
        pass
    text = text.strip()
    if not text or is_markup(text) or is_markup(clean_message(text)):
        return None
    message, slug = _split_marker(text)
    return ErrorBody(message=message or slug, code=slug)


def _read(value: object, depth: int) -> ErrorBody | None:
    if depth > 16:  # double-encoded bodies go two or three deep; deeper is a joke at our expense
        return None
    if isinstance(value, str):
        return _read_text(value, depth)
    if isinstance(value, list):
        items = cast("list[object]", value)
        return next(filter(None, (_read(item, depth + 1) for item in items[:20])), None)
    if not isinstance(value, dict):
        return None
    fields = cast("dict[str, object]", value)
    own_type = _word(fields.get("type")) or _google_status(fields.get("status"))
    code = _word(fields.get("code")) or _word(fields.get("error_code"))
    status = _status(fields.get("status_code")) or _status(fields.get("status")) or _status(fields.get("code"))
    found: ErrorBody | None = None
    for name in ("error", "message", "detail", "msg", "description", "error_description", "errors", "failure"):
        inner = fields.get(name)
        if inner and (found := _read(inner, depth + 1)):
            break
    if found is None and isinstance(base := fields.get("base_resp"), dict):
        return _read_minimax(cast("dict[str, object]", base))
    if found is None:
        if own_type in (None, "error") and code is None and status is None:
            return None
        found = ErrorBody()
    message = found.message
    if message and isinstance(metadata := fields.get("metadata"), dict):  # OpenRouter quotes its upstream here
        raw = cast("dict[str, object]", metadata).get("raw")
        if raw and (upstream := _read(raw, depth + 1)) and upstream.message and upstream.message not in message:
            message = f"{message}: {upstream.message}"
    return ErrorBody(
        message=message,
        type=found.type or (own_type if own_type != "error" else None),
        code=found.code or code,
        status=found.status or status,
        retry_after_s=found.retry_after_s if found.retry_after_s is not None else _retry_delay_s(fields.get("details")),
    )


def _google_status(value: object) -> str | None:
    """Google names the error in `status`, in capitals (https://cloud.google.com/apis/design/errors)."""
    return value if isinstance(value, str) and re.fullmatch("[A-Z]{2}[A-Z_]+", value) else None


def _retry_delay_s(details: object) -> float | None:
    """And says in a `google.rpc.RetryInfo` among the details how long to wait: `"retryDelay": "34.5s"`."""
    for detail in cast("list[object]", details) if isinstance(details, list) else ():
        delay = cast("dict[str, object]", detail).get("retryDelay") if isinstance(detail, dict) else None
        if isinstance(delay, str) and (found := re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)s", delay)):
            return float(found[1])
    return None


_MINIMAX_STATUS: Final = {1001: 504, 1002: 429, 1004: 401, 1008: 402, 1013: 500, 1024: 500, 1039: 429, 1041: 429}
"""MiniMax's own codes (https://www.minimax.io/platform/document/error_code); what is not here is the caller's fault."""


def _read_minimax(envelope: dict[str, object]) -> ErrorBody | None:
    code = envelope.get("status_code")
    if not isinstance(code, int) or code == 0:
        return None
    return ErrorBody(message=_word(envelope.get("status_msg")), code=str(code), status=_MINIMAX_STATUS.get(code, 400))


def refusal(
    found: ErrorBody | None,
    *,
    status: int | None = None,
    retry_after_s: float | None = None,
    should_retry: bool | None = None,
) -> SamplingError:
    """The error that a server's refusal amounts to.

    `status` is the HTTP status of an error response; None for an error inside a 200 stream, whose own status, code or
    type then decides. Without any, the failure counts as retryable: nothing says that it is final.
    """
    found = found or ErrorBody()
    label = found.label
    if status is None:
        status = found.status or next(
            (_STATUS_OF[word.lower()] for word in (found.code, found.type) if word and word.lower() in _STATUS_OF), None
        )
    message = clean_message(found.message) if found.message else status_text(status)
    overflow = (label or "").lower() in _OVERFLOW_CODES or _mentions_overflow(message)
    retryable = (
        (status is None or is_retryable_status(status))
        and not overflow
        and not {(found.code or "").lower(), (found.type or "").lower()} & _NO_CREDIT_CODES
        and should_retry is not False
    )
    kind = {401: SamplingErrorKind.AUTH, 429: SamplingErrorKind.RATE_LIMITED}.get(status or 0, SamplingErrorKind.API)
    if retry_after_s is None:
        retry_after_s = found.retry_after_s
    if retry_after_s is None and kind is SamplingErrorKind.RATE_LIMITED:
        retry_after_s = _wait_in_prose(found.message or "")
    return SamplingError(
        SamplingErrorInfo(
            kind=kind,
            message=message,
            status=status,
            code=clean_message(label) if label else None,
            is_retryable=retryable,
            is_context_overflow=overflow,
            retry_after_s=retry_after_s,
            should_retry=should_retry,
        )
    )


def status_text(status: int | None) -> str:
    """Our words for a refusal that brought none."""
    if status is None:
        return "the server reported an error without a message"
    if status in (502, 503, 504):
        what = "the server is temporarily unavailable"
    elif status == 529:
        what = "the server is temporarily overloaded"
    elif 520 <= status <= 524 or status == 530:
        what = "the connection behind the gateway timed out or was interrupted"
    elif status in (525, 526):
        what = "the gateway's secure connection to the server failed"
    elif status >= 500:
        what = "something went wrong on the server"
    elif status == 429:
        what = "too many requests"
    elif status == 401:
        what = "the credential was refused"
    elif status == 404:
        what = "the server knows no such address or model"
    elif status == 413:
        what = "the request is too large for the server"
    else:
        what = "the request failed"
    return f"{what} ({status})"


def clean_message(text: str) -> str:
    """One printable line of at most `MAX_MESSAGE_CHARS` of what a server said."""
    return printable_line(text[:_LONGEST_READ], MAX_MESSAGE_CHARS)


def is_markup(text: str) -> bool:
    """Whether a body is a page, not a message."""
    head = text[:2000].lstrip("\ufeff \t\r\n").lower()
    return head.startswith("<") or "<html" in head or "<!doctype" in head or "</" in head


_MARKER: Final = re.compile(r"\[WKE=([^\]\s]{1,200})\]\.?")


def _split_marker(text: str) -> tuple[str, str | None]:
    """xAI marks some messages with `[WKE=slug]`: the text without it, and the slug."""
    match = _MARKER.search(text)
    if match is None:
        return text, None
    return (text[: match.start()].rstrip() + text[match.end() :]).strip(), match[1]


def _mentions_overflow(message: str) -> bool:
    text = message.lower()
    return any(phrase in text for phrase in _OVERFLOW_PHRASES) or (
        "current message" in text and "exceeds budget" in text
    )


_WAIT: Final = re.compile(r"(?:try again|retry|wait)[^\d<>]{0,20}(?=\d)", re.IGNORECASE)
_AMOUNT: Final = re.compile(
    r"[\s,]*(?:and\s+)?(\d{1,9}(?:\.\d{1,9})?)\s*"
    r"(milliseconds?|ms|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s)(?![a-z])",
    re.IGNORECASE,
)
_UNIT_S: Final = {"h": 3600.0, "m": 60.0, "s": 1.0}


def _wait_in_prose(message: str) -> float | None:
    """The wait in words such as "Please try again in 1m6.5s" or "Wait 5 minutes"."""
    lead = _WAIT.search(message[:_LONGEST_READ])
    if lead is None:
        return None
    at, wait_s = lead.end(), None
    while amount := _AMOUNT.match(message, at):
        unit = amount[2].lower()
        is_milli = unit == "ms" or unit.startswith("milli")
        wait_s = (wait_s or 0.0) + float(amount[1]) * (1e-3 if is_milli else _UNIT_S[unit[0]])
        at = amount.end()
    return wait_s


def _word(value: Any) -> str | None:
    if isinstance(value, str):
        return value.strip()[:200] or None
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**12:
        return str(value)
    return None


def _status(value: object) -> int | None:
    """A number that can be an HTTP error status; vendors' own codes (1008, 40303) cannot."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) == 3:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 400 <= value < 600 else None
