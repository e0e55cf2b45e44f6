"""`in_flight`: how many requests run, after each change."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import reactivex as rx
from hypothesis import given
from hypothesis import strategies as st

from rx_sampler.events import SamplingEvent
from rx_sampler.operators.counting import in_flight
from rx_sampler.testing.made import completed as ends
from rx_sampler.testing.made import text
from rx_sampler.testing.marbles import Marbles, diagram_of

from .assembling import completed, failed, first, retrying, run, started, token


def counts(events: Sequence[SamplingEvent]) -> list[int]:
    return run(in_flight(), events)


def test_the_diagram() -> None:
    rows = diagram_of(in_flight)
    with Marbles() as marbles:
        source = marbles.events(rows["source"], {"x": text("x", of="s"), "Y": ends(of="s")})
        marbles.expect(source.pipe(in_flight())).to_be(rows["in_flight"], {"0": 0, "1": 1, "2": 2})


def test_only_the_first_and_the_last_event_of_a_request_change_it() -> None:
    assert counts([started(), first(), token("a", 1), token("b", 2), completed("ab")]) == [1, 0]
    assert counts([token("b", 7), failed("b")]) == [1, 0]


def test_a_request_between_two_attempts_runs() -> None:
    assert counts([started(), retrying(), started(attempt=2), failed(attempt=2)]) == [1, 0]
    assert counts([retrying(), started(attempt=2), completed(attempt=2)]) == [1, 0]


def test_one_that_failed_while_it_queued_has_never_run() -> None:
    assert counts([failed(of="q")]) == []
    assert counts([started(), failed(of="q"), completed()]) == [1, 0]


def test_a_request_of_the_same_id_is_another() -> None:
    assert counts([started(), completed(), started(), completed()]) == [1, 0, 1, 0]


@given(st.lists(st.integers(0, 5), max_size=20), st.randoms(use_true_random=False))
def test_of_many_interleaved(lengths: list[int], random: Random) -> None:
    streams = [
        [
            started(of=str(number)),
            *(token("a", index, of=str(number)) for index in range(length)),
            failed(of=str(number)),
        ]
        for number, length in enumerate(lengths)
    ]
    turns = [number for number, stream in enumerate(streams) for _ in stream]
    random.shuffle(turns)
    left = [iter(stream) for stream in streams]
    begun, over, expected = set[int](), set[int](), list[int]()
    places = dict.fromkeys(range(len(streams)), 0)
    events: list[SamplingEvent] = []
    for number in turns:
        events.append(next(left[number]))
        places[number] += 1
        if places[number] == 1:
            begun.add(number)
        elif places[number] == len(streams[number]):
            over.add(number)
        else:
            continue
        expected.append(len(begun) - len(over))
    assert counts(events) == expected


def test_each_subscription_counts_from_nothing() -> None:
    counted = rx.from_iterable([started(), started(of="s"), completed()]).pipe(in_flight())
    for _ in range(2):
        seen: list[int] = []
        counted.subscribe(seen.append)
        assert seen == [1, 2, 1]
