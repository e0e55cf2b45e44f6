"""Faults by chance: as likely as the rates say, and the same for each attempt of each request in every run."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from rx_sampler.simulator import Chaos, Fault, FaultKind, Simulator, SimulatorThread, Timing, Turn

from .raw_http import BODIES, post

INSTANT = Timing.instant()
KEYS = [f"key {number}" for number in range(2000)]

ENDING = Chaos(seed=11, rates={"status": 0.2, "close": 0.1, "reset": 0.2, "cut": 0.2, "error": 0.1, "early_end": 0.1})
"""Faults that a client without timers sees the end of."""


def kinds(chaos: Chaos) -> Counter[FaultKind | None]:
    drawn = [chaos.fault_for(key, 1) for key in KEYS]
    return Counter(fault.kind if fault else None for fault in drawn)


def drawn(kind: FaultKind, **fields: Any) -> list[Fault]:
    chaos = Chaos.model_validate({"rates": {kind: 1.0}, **fields})
    return [fault for key in KEYS if (fault := chaos.fault_for(key, 1)) is not None]


def test_the_rates_are_probabilities() -> None:
    counts = kinds(Chaos(rates={"status": 0.5, "reset": 0.25}))
    # Five standard deviations of a count out of 2000: 112 at one half, 97 at one quarter.
    assert abs(counts["status"] - 1000) < 112
    assert abs(counts["reset"] - 500) < 97
    assert abs(counts[None] - 500) < 97
    assert counts.total() == sum(counts[kind] for kind in ("status", "reset", None))


def test_no_rates_no_faults_and_whole_rates_no_answers() -> None:
    assert kinds(Chaos(rates={})) == {None: 2000}
    assert kinds(Chaos(rates={"close": 1.0})) == {"close": 2000}
    assert None not in kinds(Chaos(rates=dict.fromkeys(("close", "cut", "reset"), 1 / 3)))


@pytest.mark.parametrize("kind", [kind for kind in get_args(FaultKind) if kind != "upload_reset"])
def test_every_kind_may_come_by_chance(kind: FaultKind) -> None:
    assert {fault.kind for fault in drawn(kind)} == {kind}
    assert len(drawn(kind)) == 2000


def test_the_order_of_the_rates_means_nothing() -> None:
    one, other = Chaos(rates={"cut": 0.3, "close": 0.3}), Chaos(rates={"close": 0.3, "cut": 0.3})
    assert [one.fault_for(key, 1) for key in KEYS] == [other.fault_for(key, 1) for key in KEYS]


def test_seed_key_and_attempt_each_change_what_is_drawn() -> None:
    chaos = Chaos(seed=1)
    same = [chaos.fault_for("key", 1) for _ in range(2)]
    assert same[0] == same[1]
    by_key = [chaos.fault_for(key, 1) for key in KEYS]
    by_attempt = [chaos.fault_for("key", number) for number in range(1, 2001)]
    by_seed = [Chaos(seed=seed).fault_for("key", 1) for seed in range(2000)]
    assert len({str(draws) for draws in (by_key, by_attempt, by_seed)}) == 3


def test_places_are_all_over_the_answer() -> None:
    for kind in ("cut", "stall", "early_end", "error", "truncated_json", "keepalive"):
        shares = [fault.after_share for fault in drawn(kind) if fault.after_share is not None]
        assert len(shares) == 2000
        assert [sum(tenth <= share * 10 < tenth + 1 for share in shares) > 100 for tenth in range(10)] == [True] * 10
    at_headers = [fault for fault in drawn("reset") if fault == Fault(kind="reset")]
    assert abs(len(at_headers) - 400) < 90  # one in five; five standard deviations


def test_statuses_come_with_and_without_hints_and_pages() -> None:
    faults = drawn("status", statuses=[429, 503], longest_wait_s=0.5)
    assert {fault.status for fault in faults} == {429, 503}
    names = ("retry-after", "retry-after-ms", "x-should-retry")
    assert {tuple(fault.headers) for fault in faults} == {(), *((name,) for name in names)}
    assert {fault.headers.get("x-should-retry") for fault in faults} == {None, "true", "false"}
    waits_s = [float(fault.headers["retry-after"]) for fault in faults if "retry-after" in fault.headers]
    waits_ms = [float(fault.headers["retry-after-ms"]) for fault in faults if "retry-after-ms" in fault.headers]
    assert 0.4 < max(waits_s) <= 0.5
    assert 400 < max(waits_ms) <= 500
    assert {type(fault.body) for fault in faults} == {str, type(None)}


def test_no_wait_is_longer_than_asked_for() -> None:
    assert 0.08 < max(fault.delay_s for fault in drawn("slow_headers", longest_wait_s=0.1)) <= 0.1
    assert 0.08 < max(fault.interval_s for fault in drawn("keepalive", longest_wait_s=0.1)) <= 0.1
    assert {fault.delay_s for fault in drawn("slow_headers", longest_wait_s=0.0)} == {0.0}
    assert {fault.count for fault in drawn("keepalive")} == {1, 2, 3}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rates": {"cut": 0.7, "reset": 0.6}}, "rates add up to 1.3, expected at most 1"),
        ({"rates": {"upload_reset": 0.1}}, "upload_reset cannot come by chance"),
        ({"rates": {"cut": -0.1}}, "greater than or equal to 0"),
        ({"rates": {"explode": 0.1}}, "rates.explode"),
        ({"statuses": []}, "at least 1 item"),
        ({"statuses": [200]}, "greater than or equal to 400"),
        ({"longest_wait_s": -1.0}, "longest_wait_s"),
        ({"rate": 0.5}, "rate"),
    ],
)
def test_what_is_no_chaos_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Chaos.model_validate(fields)


def test_something_else_is_refused_where_it_is_given() -> None:
    wrong: Any = {"seed": 1}
    with pytest.raises(TypeError, match="chaos is dict, expected Chaos or None"):
        Simulator(chaos=wrong)


Met = dict[tuple[str | None, int], Fault | None]


def run(rounds: int, times: int, threads: int, chaos: Chaos = ENDING) -> Met:
    """What each attempt met: 60 questions, `times` attempts on end in each of the rounds, in another order each."""
    questions = [(list(BODIES)[number % 3], number) for number in range(60)]

    def ask(question: tuple[str, int]) -> None:
        path, number = question
        headers = {"x-simulator-request": f"question {number}"}
        for _ in range(times):
            post(simulator.origin, path, {**BODIES[path], "stream": number % 2 == 0}, headers)

    with SimulatorThread(timing=INSTANT, chaos=chaos) as simulator, ThreadPoolExecutor(threads) as pool:
        for order_seed in range(rounds):
            Random(order_seed).shuffle(questions)
            list(pool.map(ask, questions))
        requests = simulator.requests
    assert len(requests) == 60 * rounds * times
    return {(request.key, request.attempt): request.fault for request in requests}


def test_every_attempt_meets_the_same_in_any_order_of_arrival() -> None:
    one_by_one, side_by_side = run(rounds=4, times=1, threads=1), run(rounds=1, times=4, threads=12)
    assert one_by_one == side_by_side
    assert one_by_one == {(key, number): ENDING.fault_for(key or "", number) for key, number in one_by_one}
    assert {fault.kind if fault else None for fault in one_by_one.values()} == {*ENDING.rates, None}
    other = ENDING.model_copy(update={"seed": 12})
    assert run(rounds=4, times=1, threads=1, chaos=other) != one_by_one


@pytest.mark.parametrize("path", list(BODIES))
def test_the_body_tells_who_a_request_is_and_the_script_goes_first(path: str) -> None:
    chaos = Chaos(rates={"close": 1.0})
    with SimulatorThread(timing=INSTANT, chaos=chaos, script=[Turn(text="scripted")]) as simulator:
        assert b"scripted" in post(simulator.origin, path, BODIES[path]).body
        own = {"x-simulator-turn": '{"text": "its own"}'}
        assert b"its own" in post(simulator.origin, path, BODIES[path], own).body
        for _ in range(2):
            assert post(simulator.origin, path, BODIES[path]).raw == b""
        assert [request.attempt for request in simulator.requests] == [1, 1, 1, 2]
        assert len({request.key for request in simulator.requests}) == 1
