"""The check of a storm's events notices each disorder, and none where there is none."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from rx_sampler import (
    ChannelToken,
    Completed,
    DoomLoopSignals,
    Failed,
    FirstToken,
    ImagesStripped,
    LatencyMetrics,
    Retrying,
    SamplingErrorInfo,
    SamplingErrorKind,
    SamplingEvent,
    SamplingResponse,
    StreamStarted,
)
from rx_sampler.conversation import TextItem

from .grammar import broken_rule, last_text

Stamp = dict[str, Any]


def at(attempt: int = 1, ts: float = 10.0) -> Stamp:
    return {"request_id": "r", "attempt": attempt, "ts": ts}


def response(text: str) -> SamplingResponse:
    return SamplingResponse(items=(TextItem(text=text),))


def token(index: int, text: str, attempt: int = 1) -> ChannelToken:
    return ChannelToken(**at(attempt), channel="text", text=text, chunk_index=index)


def first(attempt: int = 1) -> FirstToken:
    return FirstToken(**at(attempt), channel="text")


def completed(text: str, attempt: int = 1, ts: float = 10.0) -> Completed:
    return Completed(**at(attempt, ts), response=response(text), metrics=LatencyMetrics())


def failed(partial: str | None = None, kind: SamplingErrorKind = SamplingErrorKind.HTTP, attempt: int = 1) -> Failed:
    error = SamplingErrorInfo(kind=kind, message="broke")
    return Failed(**at(attempt), error=error, partial=None if partial is None else response(partial))


def retrying(attempt: int = 1, retry: int = 1, budget: Any = "transport", max_retries: int = 2) -> Retrying:
    return Retrying(
        **at(attempt),
        next_attempt=attempt + 1,
        retry=retry,
        max_retries=max_retries,
        budget=budget,
        error_kind=SamplingErrorKind.HTTP,
        reason="broke",
        backoff_s=0.1,
    )


STARTED: Final = StreamStarted(**at())
STARTED_AGAIN: Final = StreamStarted(**at(2))
STRIPPED: Final = ImagesStripped(**at(), stripped_urls=("u",), reason="server_rejected")
SIGNALS: Final = DoomLoopSignals(**at(), triggers=("low_logprob@text",))

IN_ORDER: Final[dict[str, Sequence[SamplingEvent]]] = {
    "an answer": (STARTED, first(), token(1, "a"), token(2, "b"), completed("ab")),
    "a second attempt starts anew": (
        STARTED,
        first(),
        token(1, "a"),
        retrying(),
        STARTED_AGAIN,
        first(2),
        token(1, "b", 2),
        completed("b", 2),
    ),
    "never connected": (retrying(), retrying(2, 2), failed(attempt=3)),
    "the partial": (STARTED, first(), token(1, "a"), failed("a")),
    "cancelled with more read": (STARTED, first(), failed("a", SamplingErrorKind.CANCELLED)),
    "images, then a retry": (STRIPPED, retrying(), STARTED_AGAIN, completed("", 2)),
    "signals, images, a retry": (STARTED, SIGNALS, STRIPPED, retrying(), failed(attempt=2)),
    "signals of an answer": (STARTED, first(), token(1, "a"), SIGNALS, completed("a")),
    "429s are counted in a row": (
        retrying(budget="rate_limit", max_retries=1),
        retrying(2),
        retrying(3, budget="rate_limit", max_retries=1),
        failed(attempt=4),
    ),
}

OUT_OF_ORDER: Final[dict[str, Sequence[SamplingEvent]]] = {
    "comes after the terminal event": (STARTED, completed(""), token(1, "a")),
    "ends twice": (failed(), failed()),
    "no terminal event": (STARTED, first(), token(1, "a")),
    "nothing at all": (),
    "another request's": (STARTED, replace(first(), request_id="s"), failed()),
    "ts goes back": (STARTED, completed("", ts=9.9)),
    "an attempt without Retrying": (STARTED, STARTED_AGAIN, completed("", 2)),
    "the old attempt after Retrying": (STARTED, retrying(), completed("")),
    "next_attempt leaps": (replace(retrying(), next_attempt=3), failed(attempt=3)),
    "chunk_index leaps": (STARTED, first(), token(1, "a"), token(3, "b"), completed("ab")),
    "chunk_index goes on in the next attempt": (
        STARTED,
        first(),
        token(1, "a"),
        retrying(),
        STARTED_AGAIN,
        first(2),
        token(2, "b", 2),
        completed("b", 2),
    ),
    "a token before FirstToken": (STARTED, token(1, "a"), completed("a")),
    "FirstToken twice": (STARTED, first(), first(), token(1, "a"), completed("a")),
    "StreamStarted twice": (STARTED, STARTED, completed("")),
    "content before StreamStarted": (first(), token(1, "a"), failed("a")),
    "an answer without StreamStarted": (completed(""),),
    "an empty token": (STARTED, first(), token(1, ""), completed("")),
    "images, then content": (STARTED, STRIPPED, first(), token(1, "a"), completed("a")),
    "images twice": (STRIPPED, STRIPPED, retrying(), failed(attempt=2)),
    "images of two attempts": (
        STRIPPED,
        retrying(),
        replace(STRIPPED, attempt=2),
        retrying(2, 2),
        failed(attempt=3),
    ),
    "signals, then content": (STARTED, SIGNALS, first(), token(1, "a"), completed("a")),
    "signals twice": (STARTED, SIGNALS, SIGNALS, completed("")),
    "a retry beyond its budget": (retrying(retry=3), failed(attempt=2)),
    "retries beyond their budget": (retrying(), retrying(2), retrying(3), failed(attempt=4)),
    "a retry that is none": (retrying(retry=0), failed(attempt=2)),
    "a wait into the past": (replace(retrying(), backoff_s=-0.1), failed(attempt=2)),
    "another text than streamed": (STARTED, first(), token(1, "a"), completed("ab")),
    "text of the attempt before": (STARTED, first(), token(1, "a"), retrying(), STARTED_AGAIN, completed("a", 2)),
    "a partial that was lost": (STARTED, first(), token(1, "a"), failed()),
    "a partial from nowhere": (STARTED, failed("a")),
}


@pytest.mark.parametrize("events", IN_ORDER.values(), ids=IN_ORDER.keys())
def test_events_in_order_pass(events: Sequence[SamplingEvent]) -> None:
    assert broken_rule(events, whole=True) is None
    for cut in range(len(events)):
        assert broken_rule(events[:cut], whole=False) is None


@pytest.mark.parametrize("events", OUT_OF_ORDER.values(), ids=OUT_OF_ORDER.keys())
def test_each_disorder_is_named(events: Sequence[SamplingEvent]) -> None:
    assert broken_rule(events, whole=True) is not None


def test_the_first_event_out_of_order_is_named() -> None:
    wrong = broken_rule((STARTED, first(), token(1, "a"), token(3, "b"), completed("ab")), whole=True)
    assert wrong == "event 3 (channel_token): chunk_index is 3, expected 2"


def test_the_last_text_is_that_of_the_last_attempt() -> None:
    assert last_text(IN_ORDER["a second attempt starts anew"]) == "b"
