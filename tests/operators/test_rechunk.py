"""`Rechunker`: numbering, announcement, order and what is held back, whatever the cutter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from reactivex.subject import Subject

from rx_sampler.events import (
    AnnotationAdded,
    BackendToolCallStarted,
    DoomLoopSignals,
    ImagesStripped,
    ModelMetadata,
    ReasoningCompleted,
    ResponseStarted,
    SamplingEvent,
)
from rx_sampler.operators.per_request import each_request
from rx_sampler.operators.rechunk import Rechunker

from .assembling import check_legal, completed, delta, failed, first, retrying, run, started, token


class Pairs:
    """Cuts into pairs of letters."""

    held: list[str] | None = None

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> Sequence[tuple[str, str]]:
        text = self._held + text
        end = len(text) - len(text) % 2
        self._held = text[end:]
        return [("text", text[at : at + 2]) for at in range(0, end, 2)]

    def finish(self) -> Sequence[tuple[str, str]]:
        held, self._held = self._held, ""
        return [("text", held)] if held else []


pairs = each_request(lambda: Rechunker("text", Pairs))


def test_tokens_are_numbered_and_announced_anew() -> None:
    events = [started(), first(ts=1.0), token("a", 1), token("bcde", 2), token("f", 3), completed("abcdef", ts=4.0)]
    out = run(pairs, events)
    assert out == [
        started(),
        first(ts=2.0),
        token("ab", 1, ts=2.0),
        token("cd", 2, ts=2.0),
        token("ef", 3, ts=3.0),
        completed("abcdef", ts=4.0),
    ]
    check_legal(out)


def test_the_first_token_is_that_of_what_comes_out_first() -> None:
    events = [first(ts=1.0), token("a", 1), token("hm", 2, channel="reasoning"), completed("a", ts=3.0)]
    # "a" is flushed by the reasoning that follows it.
    assert run(pairs, events) == [
        first(ts=2.0),
        token("a", 1, ts=2.0),
        token("hm", 2, channel="reasoning"),
        completed("a", ts=3.0),
    ]
    events = [first("reasoning", ts=1.0), token("hm", 1, channel="reasoning"), token("ab", 2)]
    assert run(pairs, events) == events


NOTE = AnnotationAdded(request_id="r", attempt=1, ts=2.0, annotation={})
CONTENT: list[SamplingEvent] = [
    delta("x", ts=2.0),
    NOTE,
    ReasoningCompleted(request_id="r", attempt=1, ts=2.0, signature="s"),
    BackendToolCallStarted(request_id="r", attempt=1, ts=2.0, call_id="c", name="search"),
    DoomLoopSignals(request_id="r", attempt=1, ts=2.0, triggers=("loop",)),
    completed("a", ts=2.0),
    failed("a", ts=2.0),
]


@pytest.mark.parametrize("event", CONTENT, ids=lambda event: event.kind)
def test_what_is_held_comes_before_any_other_content(event: SamplingEvent) -> None:
    out = run(pairs, [first(ts=1.0), token("a", 1), event])
    assert out == [first(ts=2.0), token("a", 1, ts=2.0), event]


NO_CONTENT: list[SamplingEvent] = [
    started(ts=2.0),
    ResponseStarted(request_id="r", attempt=1, ts=2.0),
    ModelMetadata(request_id="r", attempt=1, ts=2.0),
    ImagesStripped(request_id="r", attempt=1, ts=2.0, stripped_urls=("u",), reason="server_rejected"),
]


@pytest.mark.parametrize("event", NO_CONTENT, ids=lambda event: event.kind)
def test_what_is_no_content_cuts_nothing(event: SamplingEvent) -> None:
    out = run(pairs, [first(ts=1.0), token("a", 1), event, token("b", 2, ts=3.0)])
    assert out == [event, first(ts=3.0), token("ab", 1, ts=3.0)]


def test_new_tokens_are_of_the_turn_of_the_old_ones() -> None:
    events: list[SamplingEvent] = [first(ts=1.0), token("abc", 1), completed("abc", ts=2.0)]
    out = run(pairs, [replace(event, turn=3) for event in events])
    assert [(event.kind, event.turn) for event in out] == [
        ("first_token", 3),
        ("channel_token", 3),
        ("channel_token", 3),
        ("completed", 3),
    ]


def test_choices_are_cut_apart() -> None:
    events = [
        first(ts=1.0),
        token("a", 1),
        token("x", 2, choice=1),
        token("b", 3),
        token("c", 4),
        delta("{}", choice=1, ts=5.0),
        token("y", 6, choice=1),
        token("d", 7),
    ]
    assert run(pairs, events) == [
        first(ts=3.0),
        token("ab", 1, ts=3.0),
        token("x", 2, choice=1, ts=5.0),
        delta("{}", choice=1, ts=5.0),
        token("cd", 3, ts=7.0),
        token("y", 4, choice=1, ts=7.0),  # at the end of the source
    ]


def test_retrying_drops_what_is_held_and_numbers_from_one() -> None:
    events = [first(), token("abc", 1), retrying(ts=2.0), first(attempt=2, ts=3.0), token("xy", 1, attempt=2, ts=3.0)]
    assert run(pairs, events) == [
        first(ts=1.0),
        token("ab", 1),
        retrying(ts=2.0),
        first(attempt=2, ts=3.0),
        token("xy", 1, attempt=2, ts=3.0),
    ]


def test_two_requests_interleaved() -> None:
    events = [
        first(),
        token("a", 1),
        first(of="s"),
        token("x", 1, of="s"),
        token("b", 2),
        completed("ab", ts=3.0),
        token("y", 2, of="s"),
        token("z", 3, of="s"),
    ]
    out = run(pairs, events)
    assert out == [
        first(ts=2.0),
        token("ab", 1, ts=2.0),
        completed("ab", ts=3.0),
        first(of="s", ts=2.0),
        token("xy", 1, of="s", ts=2.0),
        token("z", 2, of="s", ts=3.0),
    ]
    check_legal(out)


def test_an_error_of_the_source_comes_behind_what_was_held() -> None:
    source: Subject[SamplingEvent] = Subject()
    seen: list[object] = []
    source.pipe(pairs).subscribe(seen.append, seen.append)
    broken = OSError("broken")
    source.on_next(token("abc", 1))
    source.on_error(broken)
    assert seen == [first(ts=1.0), token("ab", 1), token("c", 2, ts=1.0), broken]


def test_a_token_that_needs_no_change_is_passed_itself() -> None:
    hm = token("hm", 2, channel="reasoning")
    out = run(pairs, [first(ts=1.0), token("ab", 1), hm])
    assert out[-1] is hm
