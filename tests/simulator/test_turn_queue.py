"""Which turn a request takes and which attempt it is, without a socket."""

from __future__ import annotations

from typing import Any

import pytest

from rx_sampler.simulator import Chaos, Fault, ScriptError, Turn
from rx_sampler.simulator import turn_queue as module
from rx_sampler.simulator.turn_queue import Arrival, Attempt, TurnQueue

CLOSE, CUT, RESET = Fault(kind="close"), Fault(kind="cut"), Fault(kind="reset")
UPLOAD = Fault(kind="upload_reset", after_bytes=10)


def arrival(length_bytes: int | None = 100, **fields: Any) -> Arrival:
    return Arrival(path=fields.pop("path", "/messages"), length_bytes=length_bytes, **fields)


def met(attempt: Attempt | None) -> tuple[int | None, int, Fault | None] | None:
    return None if attempt is None else (attempt.index, attempt.number, attempt.turn.fault)


def test_the_attempts_of_two_requests_do_not_take_each_others_turns() -> None:
    queue = TurnQueue([Turn(text="a", faults=(CLOSE, CUT)), Turn(text="b", faults=(RESET,))], None)
    came = [queue.take(arrival(), key) for key in ("a", "b", "b", "a", "a")]
    assert [met(attempt) for attempt in came] == [(0, 1, CLOSE), (1, 1, RESET), (1, 2, None), (0, 2, CUT), (0, 3, None)]
    assert [attempt.turn.text for attempt in came] == ["a", "b", "b", "a", "a"]


def test_a_turn_ends_when_it_was_answered_well_and_has_nothing_left() -> None:
    queue = TurnQueue([Turn(text="a", faults=(CLOSE, None, CUT)), Turn(text="b")], None)
    for fault in (CLOSE, None, CUT):
        attempt = queue.take(arrival(), "k")
        assert attempt.turn.fault == fault
        queue.answered(attempt)  # of a cut answer too: it was sent as scripted
    lost = queue.take(arrival(), "k")  # its connection fails, and it comes again
    again = queue.take(arrival(), "k")
    assert [lost.turn.text, lost.number, again.turn.text, again.number] == ["a", 4, "a", 5]
    queue.answered(again)
    assert met(queue.take(arrival(), "k")) == (1, 1, None)
    assert met(queue.take(arrival(), "k")) == (None, 1, None)


@pytest.mark.parametrize("harmless", [Fault(kind="keepalive", count=1), Fault(kind="slow_headers")])
def test_a_late_answer_is_an_answer(harmless: Fault) -> None:
    queue = TurnQueue([Turn(faults=(harmless,)), Turn(text="b")], None)
    queue.answered(queue.take(arrival(), "k"))
    assert queue.take(arrival(), "k").turn.text == "b"


def test_a_single_fault_is_for_one_request() -> None:
    queue = TurnQueue([Turn(fault=CLOSE), Turn(text="b")], None)
    assert [met(queue.take(arrival(), "k")) for _ in range(3)] == [(0, 1, CLOSE), (1, 1, None), (None, 1, None)]


def test_a_name_is_the_key_whatever_the_body() -> None:
    queue = TurnQueue([Turn(faults=(CLOSE,)), Turn(faults=(CUT,))], None)
    first = queue.take(arrival(name="one"), "same")
    other = queue.take(arrival(name="two"), "same")
    retry = queue.take(arrival(name="one"), "changed")
    assert [first.key, other.key, retry.key] == ["one", "two", "one"]
    assert [met(first), met(other), met(retry)] == [(0, 1, CLOSE), (1, 1, CUT), (0, 2, None)]


def test_an_own_turn_may_have_attempts_too() -> None:
    queue = TurnQueue([Turn(text="scripted")], None)
    own = arrival(own_turn='{"faults": [{"kind": "close"}]}')
    assert [met(queue.take(own, key)) for key in ("a", "b", "a")] == [
        (None, 1, CLOSE),
        (None, 1, CLOSE),
        (None, 2, None),
    ]
    assert queue.take(arrival(), "a").turn.text == "scripted"


def test_a_bad_turn_of_its_own_is_refused() -> None:
    queue = TurnQueue([], None)
    bad = arrival(own_turn='{"faults": 3}')
    with pytest.raises(ScriptError, match="faults = 3"):
        queue.take(bad, "k")
    with pytest.raises(ScriptError, match="faults = 3"):
        queue.before_body(bad)


def test_nothing_is_decided_before_the_body_unless_an_upload_is_reset() -> None:
    queue = TurnQueue([Turn(faults=(CLOSE,)), Turn(fault=UPLOAD)], None)
    assert queue.before_body(arrival()) is None
    assert met(queue.take(arrival(), "k")) == (0, 1, CLOSE)


def test_an_upload_is_reset_and_the_body_of_the_next_attempt_tells_who_it_is() -> None:
    queue = TurnQueue([Turn(text="a", faults=(UPLOAD, UPLOAD)), Turn(text="b")], None)
    assert met(queue.before_body(arrival(100))) == (0, 1, UPLOAD)
    assert met(queue.before_body(arrival(100))) == (0, 2, UPLOAD)
    assert queue.before_body(arrival(20)) is None  # shorter: its images are gone
    attempt = queue.take(arrival(20), "k")
    assert (met(attempt), attempt.turn.text, attempt.key) == ((0, 3, None), "a", "k")
    queue.answered(attempt)
    assert queue.take(arrival(20), "k").turn.text == "b"


def test_an_upload_is_reset_in_a_later_attempt_of_the_same_length() -> None:
    queue = TurnQueue([Turn(faults=(CLOSE, UPLOAD)), Turn(text="b")], None)
    assert queue.before_body(arrival(100)) is None
    queue.take(arrival(100), "k")
    assert queue.before_body(arrival(99)) is None
    assert met(queue.before_body(arrival(100))) == (0, 2, UPLOAD)
    assert met(queue.take(arrival(100), "k")) == (0, 3, None)


def test_where_the_head_leaves_a_doubt_the_body_decides() -> None:
    queue = TurnQueue([Turn(faults=(CLOSE, CUT)), Turn(fault=UPLOAD)], None)
    queue.take(arrival(100), "k")
    assert queue.before_body(arrival(100)) is None
    assert met(queue.take(arrival(100), "other")) == (1, 1, UPLOAD)
    assert met(queue.take(arrival(100), "k")) == (0, 2, CUT)


def test_a_name_leaves_no_doubt() -> None:
    queue = TurnQueue([Turn(faults=(UPLOAD, CLOSE, UPLOAD)), Turn(text="b", faults=(UPLOAD,))], None)
    one, two = arrival(name="one"), arrival(name="two")
    assert met(queue.before_body(one)) == (0, 1, UPLOAD)
    assert queue.before_body(one) is None
    assert met(queue.before_body(two)) == (1, 1, UPLOAD)
    assert met(queue.take(one, "x")) == (0, 2, CLOSE)
    assert met(queue.before_body(one)) == (0, 3, UPLOAD)
    assert met(queue.take(two, "x")) == (1, 2, None)


def test_an_endpoint_does_not_take_anothers_turn() -> None:
    queue = TurnQueue([Turn(faults=(UPLOAD,)), Turn(text="b")], None)
    queue.before_body(arrival(path="/responses"))
    assert queue.take(arrival(path="/messages"), "k").turn.text == "b"
    assert met(queue.take(arrival(path="/responses"), "k")) == (0, 2, None)


def test_an_own_turn_may_reset_the_upload() -> None:
    queue = TurnQueue([Turn(text="scripted")], None)
    own = arrival(own_turn='{"text": "own", "faults": [{"kind": "upload_reset", "after_bytes": 10}]}')
    assert met(queue.before_body(own)) == (None, 1, UPLOAD)
    assert queue.take(arrival(), "k").turn.text == "scripted"
    assert queue.before_body(own) is None
    assert queue.take(own, "k").turn.text == "own"


def test_chance_counts_the_attempts_of_each_request() -> None:
    chaos = Chaos(seed=3, rates={"close": 0.5, "reset": 0.5})
    queue = TurnQueue([Turn(text="first")], chaos)
    assert queue.take(arrival(), "a").turn.text == "first"
    came = [queue.take(arrival(), key) for key in ("a", "b", "a", "b", "a")]
    assert [attempt.number for attempt in came] == [1, 1, 2, 2, 3]
    assert [attempt.turn.fault for attempt in came] == [
        chaos.fault_for(key, number) for key, number in (("a", 1), ("b", 1), ("a", 2), ("b", 2), ("a", 3))
    ]


def test_chance_begins_anew_after_a_whole_answer() -> None:
    queue = TurnQueue([], Chaos(rates={}))
    assert [queue.take(arrival(), "a").number for _ in range(2)] == [1, 2]
    queue.answered(queue.take(arrival(), "a"))
    assert queue.take(arrival(), "a").number == 1


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_REMEMBERED", 3)
    chance = TurnQueue([], Chaos(rates={}))
    script = TurnQueue([Turn(faults=(CLOSE, CLOSE))] * 4, None)
    for queue in (chance, script):
        for key in "abcd":
            queue.take(arrival(), key)
        assert queue.take(arrival(), "d").number == 2
        assert queue.take(arrival(), "a").number == 1  # forgotten: four are more than three
