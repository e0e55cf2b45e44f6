"""Places for requests: order, limits, leaving, and no deep stacks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rx_sampler.admission import Admission, Place


def test_without_a_limit_all_run_at_once() -> None:
    admission, ran = Admission(), list[int]()
    for number in range(100):
        admission.enter(lambda number=number: ran.append(number))
    assert (ran, admission.queued) == (list(range(100)), 0)


def test_first_come_first_served() -> None:
    admission, ran = Admission(2), list[int]()
    places = [admission.enter(lambda number=number: ran.append(number)) for number in range(5)]
    assert (ran, admission.queued) == ([0, 1], 3)
    places[1].dispose()
    assert ran == [0, 1, 2]
    places[1].dispose()  # once is enough
    assert ran == [0, 1, 2]


def test_who_leaves_the_queue_takes_nobodys_place() -> None:
    admission, ran = Admission(1), list[int]()
    places = [admission.enter(lambda number=number: ran.append(number)) for number in range(4)]
    places[1].dispose()
    places[2].dispose()
    assert (ran, admission.queued) == ([0], 1)
    places[0].dispose()
    assert ran == [0, 3]


def test_a_new_limit_counts_from_now_on() -> None:
    admission, ran = Admission(1), list[int]()
    places = [admission.enter(lambda number=number: ran.append(number)) for number in range(4)]
    admission.resize(3)
    assert ran == [0, 1, 2]
    admission.resize(1)
    places[0].dispose()
    places[1].dispose()
    assert ran == [0, 1, 2]
    places[2].dispose()
    assert ran == [0, 1, 2, 3]


def test_a_long_queue_of_short_requests_is_no_deep_stack() -> None:
    admission, places, ran = Admission(1), list[Place](), 0

    def end_at_once() -> None:
        nonlocal ran
        ran += 1
        places[ran - 1].dispose()

    first = admission.enter(lambda: None)
    places += [admission.enter(end_at_once) for _ in range(50_000)]
    first.dispose()
    assert (ran, admission.queued) == (50_000, 0)


@given(st.integers(1, 4), st.lists(st.one_of(st.none(), st.integers(0, 30)), max_size=60))
def test_never_more_than_the_limit_and_never_an_idle_place(limit: int, steps: list[int | None]) -> None:
    admission = Admission(limit)
    running: set[int] = set()
    places: list[Place] = []
    gone: set[int] = set()
    for step in steps:
        if step is None:
            number = len(places)
            places.append(admission.enter(lambda number=number: running.add(number)))
        elif step < len(places):
            gone.add(step)
            running.discard(step)
            places[step].dispose()
        assert len(running) <= limit
        assert len(running) == min(limit, len(places) - len(gone))
