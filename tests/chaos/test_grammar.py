"""The words of a storm about events; the rules themselves have their tests beside `rx_sampler.testing.grammar`."""

from __future__ import annotations

from typing import Any, Final

from rx_sampler import ChannelToken, FirstToken, Retrying, SamplingErrorKind, SamplingEvent, StreamStarted

from .grammar import broken_rule, last_text, shown

Stamp = dict[str, Any]


def at(attempt: int = 1) -> Stamp:
    return {"request_id": "r", "attempt": attempt, "ts": 10.0}


def token(index: int, text: str, attempt: int = 1, channel: str = "text") -> ChannelToken:
    return ChannelToken(**at(attempt), channel=channel, text=text, chunk_index=index)


RETRYING: Final = Retrying(
    **at(),
    next_attempt=2,
    retry=1,
    max_retries=2,
    budget="transport",
    error_kind=SamplingErrorKind.HTTP,
    reason="broke",
    backoff_s=0.5,
)
TWICE: Final[list[SamplingEvent]] = [
    StreamStarted(**at()),
    FirstToken(**at(), channel="text"),
    token(1, "a"),
    RETRYING,
    StreamStarted(**at(2)),
    FirstToken(**at(2), channel="reasoning"),
    token(1, "hm", 2, "reasoning"),
    token(2, "b", 2),
]


def test_a_disorder_is_named_in_words() -> None:
    assert broken_rule(TWICE, whole=False) is None
    assert broken_rule(TWICE, whole=True) == "event 8 (the end): no terminal event, the last is channel_token"
    assert broken_rule(TWICE[1:], whole=False) == "event 0 (first_token): comes before stream_started"


def test_the_last_text_is_that_of_the_last_attempt() -> None:
    assert last_text(TWICE) == "b"


def test_events_are_shown_in_a_line_each() -> None:
    assert shown(TWICE[2:4]) == (
        "      0.000  #1 channel_token text 1 'a'\n      0.000  #1 retrying transport 1/2 in 0.500 s: http, broke"
    )
