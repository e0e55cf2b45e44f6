"""`token_rate`: chunks a second over a window, in bounded memory."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reactivex import operators as ops
from reactivex.subject import Subject

from rx_sampler.events import ChannelToken, SamplingEvent
from rx_sampler.operators import rates as module
from rx_sampler.operators.rates import TokenRate, token_rate
from rx_sampler.testing.marbles import Marbles, diagram_of

from .assembling import completed, failed, retrying, run, started, token


def rates(events: Sequence[SamplingEvent], window_s: float = 1.0) -> list[TokenRate]:
    return run(token_rate(window_s), events)


def tokens_at(*stamps: float, of: str = "r") -> list[ChannelToken]:
    return [token("a", index, ts=ts, of=of) for index, ts in enumerate(stamps, 1)]


def figures(stamps: Sequence[float], window_s: float = 1.0) -> list[tuple[float, float]]:
    return [(one.ts, one.chunks_per_second) for one in rates(tokens_at(*stamps), window_s)]


def test_the_diagram() -> None:
    rows = diagram_of(token_rate)
    with Marbles() as marbles:
        source = marbles.events(rows["source"])
        seen = source.pipe(token_rate(0.0045), ops.map(lambda one: round(one.chunks_per_second)))
        marbles.expect(seen).to_be(rows["token_rate"], {"x": 250, "y": 200})


def test_before_a_window_is_full_it_counts_from_the_first_token() -> None:
    # one after the first in 0.25 s, two in 0.5 s, three in 0.625 s
    assert figures([1.0, 1.25, 1.5, 1.625]) == [(1.25, 4.0), (1.5, 4.0), (1.625, 4.8)]


def test_a_steady_stream_has_its_rate_whatever_the_window() -> None:
    stamps = [1.0 + 0.125 * number for number in range(40)]
    for window_s in (0.0625, 0.125, 0.3, 1.0, 3.0, 100.0):
        assert [rate for _, rate in figures(stamps, window_s)] == [8.0] * 39


def test_the_base_is_the_newest_token_that_is_a_window_old() -> None:
    # At 3.0 that is the one at 2.0, exactly; at 3.25 again; after a pause it is the one before the pause.
    assert figures([1.0, 2.0, 3.0, 3.25, 7.25]) == [(2.0, 1.0), (3.0, 1.0), (3.25, 1.6), (7.25, 0.25)]


def test_tokens_of_one_moment_have_no_rate_until_time_passes() -> None:
    assert figures([1.0, 1.0, 1.0, 1.5, 1.5]) == [(1.5, 6.0), (1.5, 8.0)]


def test_channels_and_choices_count_together() -> None:
    events = [
        started(ts=0.5),
        token("hm", 1, channel="reasoning", ts=1.0),
        token("a", 2, ts=1.5),
        token("b", 3, choice=1, ts=1.5),
    ]
    assert rates(events) == [TokenRate("r", 1, 1.5, 2.0), TokenRate("r", 1, 1.5, 4.0)]


def test_a_retry_begins_anew() -> None:
    events = [
        *tokens_at(1.0, 1.5),
        retrying(ts=1.5),
        token("a", 1, ts=1.75, attempt=2),
        token("b", 2, ts=2.0, attempt=2),
    ]
    assert rates(events) == [TokenRate("r", 1, 1.5, 2.0), TokenRate("r", 2, 2.0, 4.0)]


def test_two_requests_interleaved_and_one_that_comes_again() -> None:
    events = [
        *tokens_at(1.0),
        *tokens_at(1.25, 1.5, of="s"),
        token("b", 2, ts=1.5),
        completed("ab", ts=1.75),
        *tokens_at(2.0),
        token("c", 3, ts=2.0, of="s"),
        failed(ts=2.0, of="s"),
        *tokens_at(2.5, of="s"),
    ]
    found = [(one.request_id, one.ts, one.chunks_per_second) for one in rates(events)]
    assert found == [("s", 1.5, 4.0), ("r", 1.5, 2.0), ("s", 2.0, 2 / 0.75)]


def by_definition(stamps: list[float], window_s: float) -> list[tuple[float, float]]:
    """As the docstring says it, from the whole past each time."""
    found: list[tuple[float, float]] = []
    for place, ts in enumerate(stamps):
        past = stamps[: place + 1]
        old = [at for at, stamp in enumerate(past[:-1]) if stamp <= ts - window_s]
        base = old[-1] if old else 0
        if ts > past[base]:
            found.append((ts, (place - base) / (ts - past[base])))
    return found


@given(st.lists(st.integers(0, 40), max_size=40), st.integers(1, 60))
def test_it_is_what_the_definition_says(eighths: list[int], window: int) -> None:
    stamps = [at / 8 for at in sorted(eighths)]
    assert figures(stamps, window / 8) == by_definition(stamps, window / 8)


def test_a_window_too_short_to_tell_counts_from_the_token_before() -> None:
    assert 1.8e9 - 1e-9 == 1.8e9
    assert figures([1.8e9, 1.8e9 + 1, 1.8e9 + 1.5], 1e-9) == [(1.8e9 + 1, 1.0), (1.8e9 + 1.5, 2.0)]


def test_a_request_is_known_by_what_its_id_says() -> None:
    # Not by the object: each event of a recording has a string of its own.
    events = [token("a", place, ts=ts, of="-".join(["r", "1"])) for place, ts in ((1, 1.0), (2, 1.5), (3, 2.5))]
    assert events[0].request_id is not events[1].request_id
    assert [one.chunks_per_second for one in rates(events, 0.25)] == [2.0, 1.0]


@pytest.mark.parametrize("window_s", [0.0, -1.0, math.inf, math.nan])
def test_a_window_that_is_none(window_s: float) -> None:
    with pytest.raises(ValueError, match=rf"window_s is {window_s}"):
        token_rate(window_s)


def test_beyond_the_most_it_counts_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_TOKENS", 3)
    # At 3.0 three are remembered, those of 2.0, 2.5 and 3.0: two in a second. The first one is forgotten.
    assert figures([1.0, 2.0, 2.5, 3.0, 3.25], 100.0) == [(2.0, 1.0), (2.5, 2 / 1.5), (3.0, 2.0), (3.25, 2 / 0.75)]


def test_memory_is_bounded_by_the_window_and_by_the_most() -> None:
    def grown(gap_s: float, count: int) -> int:
        source: Subject[SamplingEvent] = Subject()
        source.pipe(token_rate(1.0)).subscribe(lambda _one: None)
        source.on_next(token("a", 1, ts=0.0))
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for index in range(2, count):
                source.on_next(token("a", index, ts=index * gap_s))
            return tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()

    assert grown(0.1, 10_000) < 5_000  # ten tokens of a window
    assert grown(1e-6, 20_000) < 40 * module.MOST_TOKENS + 5_000  # a float is 24 bytes and its place 8; not 20,000


def test_no_state_is_left_of_requests_that_have_ended() -> None:
    source: Subject[SamplingEvent] = Subject()
    source.pipe(token_rate()).subscribe(lambda _one: None)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(2000):
            source.on_next(token("a", 1, of=f"request {number}"))
            source.on_next(failed(of=f"request {number}"))
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 20_000  # a window each would take more than 1,000,000
