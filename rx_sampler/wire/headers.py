"""What response headers tell: how long to wait, whether to come again, and facts about model and account."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, TypedDict

from rx_sampler.events import RateLimit

__all__ = ["HeadFacts", "head_facts", "retry_after_s", "should_retry"]


class HeadFacts(TypedDict, total=False):
    """The fields of `ModelMetadata` that the headers know."""

    context_window: int
    max_completion_tokens: int
    models_etag: str
    rate_limits: tuple[RateLimit, ...]
    provider_request_id: str


_NOT_PRINTABLE: Final = re.compile(r"[^\x21-\x7e]")
_REQUEST_ID_HEADERS: Final = ("x-request-id", "request-id", "apim-request-id", "x-amzn-requestid", "cf-ray")


def retry_after_s(headers: Mapping[str, str], wall_clock: float) -> float | None:
    """The wait that the server asks for, in seconds, not capped; None if it asks for none that makes sense.

    `retry-after-ms` first, then `retry-after` as seconds (fractions too), then as an HTTP date, measured against
    `wall_clock` (Unix seconds). Past and negative waits are 0. Source: RFC 9110 section 10.2.3; the millisecond form
    is OpenAI's and Azure's.
    """
    milliseconds = _finite(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return max(milliseconds / 1e3, 0.0)
    raw = headers.get("retry-after", "").strip()
    seconds = _finite(raw)
    if seconds is not None:
        return max(seconds, 0.0)
    try:
        when = parsedate_to_datetime(raw)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return max(when.replace(tzinfo=when.tzinfo or UTC).timestamp() - wall_clock, 0.0)


def should_retry(headers: Mapping[str, str]) -> bool | None:
    """`x-should-retry` as the server's own verdict; None if absent or unreadable."""
    return {"true": True, "false": False}.get(headers.get("x-should-retry", "").strip().lower())


def head_facts(headers: Mapping[str, str], wall_clock: float) -> HeadFacts:
    """Facts about model, limits and the provider's request id; only what is there and can be read."""
    facts = HeadFacts()
    if (window := _integer(headers.get("x-grok-context-window"))) is not None:
        facts["context_window"] = window
    if (tokens := _integer(headers.get("x-grok-max-completion-tokens"))) is not None:
        facts["max_completion_tokens"] = tokens
    if etag := headers.get("x-models-etag"):
        facts["models_etag"] = etag
    if limits := _rate_limits(headers, wall_clock):
        facts["rate_limits"] = limits
    if request_id := next((value for name in _REQUEST_ID_HEADERS if (value := headers.get(name))), None):
        facts["provider_request_id"] = _NOT_PRINTABLE.sub("", request_id)[:200]
    return facts


# `x-ratelimit-remaining-tokens` (OpenAI and followers), `anthropic-ratelimit-tokens-remaining` (Anthropic)
_VENDOR_FIRST: Final = re.compile(r"anthropic-ratelimit-(?P<name>[a-z-]+)-(?P<part>limit|remaining|reset)")
_PART_FIRST: Final = re.compile(r"x-ratelimit-(?P<part>limit|remaining|reset)(?:-(?P<name>[a-z0-9-]+))?")


def _rate_limits(headers: Mapping[str, str], wall_clock: float) -> tuple[RateLimit, ...]:
    found: dict[str, dict[str, str]] = {}
    for header, value in headers.items():
        match = _VENDOR_FIRST.fullmatch(header.lower()) or _PART_FIRST.fullmatch(header.lower())
        if match:
            found.setdefault(match["name"] or "requests", {})[match["part"]] = value
    return tuple(
        RateLimit(
            name=name,
            limit=_integer(parts.get("limit")),
            remaining=_integer(parts.get("remaining")),
            reset_after_s=_reset_after_s(parts.get("reset", ""), wall_clock),
        )
        for name, parts in sorted(found.items())
    )


_DURATION: Final = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")
_UNITS_S: Final = (86_400.0, 3_600.0, 60.0, 1.0, 1e-3)


def _reset_after_s(raw: str, wall_clock: float) -> float | None:
    """Seconds from now out of `6m0s`, `120ms`, `30`, a Unix time in seconds or milliseconds, or an RFC 3339 time."""
    raw = raw.strip()
    number = _finite(raw)
    if number is not None:
        if number > 1e11:
            return max(number / 1e3 - wall_clock, 0.0)
        return max(number - wall_clock if number > 1e9 else number, 0.0)
    if raw and (match := _DURATION.fullmatch(raw)):
        return sum(float(part) * unit for part, unit in zip(match.groups(), _UNITS_S, strict=True) if part)
    try:
        when = datetime.fromisoformat(raw)
    except ValueError:
        return None
    return max(when.replace(tzinfo=when.tzinfo or UTC).timestamp() - wall_clock, 0.0)


def _finite(raw: str | None) -> float | None:
    # float() also reads "1_0" and "nan", which no header means.
    if not raw or not re.fullmatch(r"\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*", raw, re.IGNORECASE | re.ASCII):
        return None
    value = float(raw)
    return value if math.isfinite(value) else None


def _integer(raw: str | None) -> int | None:
    raw = (raw or "").strip()
    return int(raw) if re.fullmatch(r"\d{1,18}", raw, re.ASCII) else None
