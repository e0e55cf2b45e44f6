"""What is known of a request while it is recorded, and which words about it may be written down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from rx_sampler.conversation import SamplingResponse
from rx_sampler.errors import SamplingErrorKind
from rx_sampler.observing import RequestFacts

from .masking import masked, texts_of

__all__ = ["Notes", "Record", "rfc3339"]

Record = Mapping[str, object]

_QUOTING: Final = frozenset(
    {
        SamplingErrorKind.API,
        SamplingErrorKind.AUTH,
        SamplingErrorKind.RATE_LIMITED,
        SamplingErrorKind.INVALID_REQUEST,
    }
)
"""Kinds whose messages can quote the request; those of the others are our own words."""


@dataclass(slots=True)
class Notes:
    """What is known of a request besides the event at hand."""

    facts: RequestFacts
    content: bool
    retries: int = 0
    """How many `Retrying` there were."""
    _masked: tuple[str, str] = ("", "")
    """The last message that was masked, and what became of it: retries tend to repeat it."""

    def words(self, kind: SamplingErrorKind, message: str, partial: SamplingResponse | None = None) -> str:
        """An error's message, without quotations of content unless that is asked for."""
        if self.content:
            return message
        if kind is SamplingErrorKind.SERIALIZATION:
            return "an event of the stream cannot be read"  # the message quotes it
        if kind not in _QUOTING:
            return message
        if partial is not None:
            message = masked(message, texts_of(partial.items))
        if message != self._masked[0]:
            self._masked = message, masked(message, texts_of(self.facts.request.items))
        return self._masked[1]


def rfc3339(ts: float) -> str:
    """Unix seconds as RFC 3339 in UTC, to the millisecond: `2026-01-31T09:30:00.125Z`."""
    return datetime.fromtimestamp(ts, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
