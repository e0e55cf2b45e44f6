"""`partial_arguments`: arguments as they grow, their end, and what reading them costs."""

from __future__ import annotations

import copy
import json
import pickle
import tracemalloc
from itertools import pairwise
from typing import Any

import pytest
from counted_calls import calls_during
from hypothesis import given
from hypothesis import strategies as st

from rx_sampler.conversation import JsonObject
from rx_sampler.events import SamplingEvent
from rx_sampler.operators import growing_json
from rx_sampler.operators.arguments import PartialArguments, partial_arguments
from rx_sampler.operators.growing_json import EAGER_CHARS, GROWTH

from .assembling import MOST, call, completed, delta, failed, retrying, run
from .test_tools import OBJECTS, cut_at

# -- arguments while they are written


def shown(pieces: list[str], *rest: SamplingEvent) -> list[tuple[JsonObject, bool]]:
    events = [delta(id="c", name="f"), *(delta(piece) for piece in pieces), *rest]
    return [(one.arguments, one.complete) for one in run(partial_arguments(), events)]


def test_arguments_grow() -> None:
    pieces = ["{", '"city"', ': "Par', "is", '", "days"', ": 1", "2", ', "now": tr', "ue", "}", " "]
    assert shown(pieces) == [
        ({"city": "Par"}, False),
        ({"city": "Paris"}, False),
        ({"city": "Paris"}, False),  # the string has ended
        ({"city": "Paris"}, False),  # a number begins
        ({"city": "Paris", "days": 12}, False),
        ({"city": "Paris", "days": 12, "now": True}, False),
        ({"city": "Paris", "days": 12, "now": True}, True),
    ]


def test_it_says_whose_arguments_they_are() -> None:
    events = [delta('{"a":"x', id="c", name="f", index=2, choice=1, of="s", attempt=3)]
    assert run(partial_arguments(), events) == [PartialArguments("s", 3, 2, 1, "c", "f", {"a": "x"}, False)]


def test_calls_interleaved_of_two_requests_and_choices() -> None:
    events = [
        delta('{"a":1,', id="c", name="f"),
        delta('{"b":1,', id="d", name="g", index=1),
        delta('{"c":1,', id="c", name="f", of="s"),
        delta('{"d":1,', id="c", name="f", choice=1),
        delta('"e":2}'),
        delta('"e":3}', index=1),
        delta('"e":4}', of="s"),
        delta('"e":5}', choice=1),
    ]
    out = run(partial_arguments(), events)
    assert [(one.request_id, one.choice, one.tool_index, one.id, one.name, one.arguments) for one in out] == [
        ("r", 0, 0, "c", "f", {"a": 1}),
        ("r", 0, 1, "d", "g", {"b": 1}),
        ("s", 0, 0, "c", "f", {"c": 1}),
        ("r", 1, 0, "c", "f", {"d": 1}),
        ("r", 0, 0, "c", "f", {"a": 1, "e": 2}),
        ("r", 0, 1, "d", "g", {"b": 1, "e": 3}),
        ("s", 0, 0, "c", "f", {"c": 1, "e": 4}),
        ("r", 1, 0, "c", "f", {"d": 1, "e": 5}),
    ]
    assert [one.complete for one in out] == [False] * 4 + [True] * 4


def test_a_call_that_is_named_anew() -> None:
    out = run(partial_arguments(), [delta('{"a":"x', id="c", name="f"), delta("y", name="g"), delta("z", id="d")])
    assert [(one.id, one.name, one.arguments) for one in out] == [
        ("c", "f", {"a": "x"}),
        ("c", "g", {"a": "xy"}),
        ("d", "g", {"a": "xyz"}),
    ]


def test_calls_without_arguments_are_complete_at_the_end() -> None:
    assert shown([]) == []
    assert shown([], completed(call("{}"))) == [({}, True)]
    assert shown(["{}"], completed(call("{}"))) == [({}, True)]


def test_what_is_cut_is_shown_and_never_complete() -> None:
    assert shown(['{"a":"x'], failed()) == [({"a": "x"}, False)]
    assert shown(['{"a":"x'], completed(call('{"a":"x', complete=False))) == [({"a": "x"}, False)]


def test_free_text_and_lists_show_nothing() -> None:
    assert shown(["do it"], completed(call("do it", custom=True))) == []
    assert shown(["[1, 2]"], completed(call("[1, 2]", complete=False))) == []


def test_what_turns_out_to_be_no_json() -> None:
    assert shown(['{"a": 1, ', "b}"]) == [({"a": 1}, False)]  # closed, but never complete
    assert shown(['{"a": 1, ', "b"]) == [({"a": 1}, False), ({}, False)]
    assert shown(['{"a": 1} {', '"b": 1}']) == [({"a": 1}, False)]
    assert shown(['{"a": 1} or', " so"]) == [({"a": 1}, False)] * 2


def test_nothing_is_shown_behind_the_end() -> None:
    assert shown(['{"a":1}', ' {"b":2}', " more"]) == [({"a": 1}, True)]


def test_white_space_and_digits_come_with_what_is_behind_them() -> None:
    assert shown(['{"a": "', "1", " ", "2", "x", '", "b":[1', "2", " ", ",", "\n ", "3]"]) == [
        ({"a": ""}, False),
        ({"a": "1 2x"}, False),
        ({"a": "1 2x", "b": []}, False),
        ({"a": "1 2x", "b": [12]}, False),
        ({"a": "1 2x", "b": [12, 3]}, False),
    ]


def test_half_a_surrogate_pair_is_whole_all_the_same() -> None:
    assert shown(['{"a": "\\ud83d"}']) == [({"a": "\ud83d"}, True)]


def test_a_retry_begins_anew() -> None:
    events = [delta('{"a":1,', id="c", name="f"), retrying(), delta('{"a":1,', id="c", name="f", attempt=2)]
    assert [(one.attempt, one.arguments) for one in run(partial_arguments(), events)] == [(1, {"a": 1}), (2, {"a": 1})]


def test_the_end_shows_what_growth_did_not() -> None:
    # Beyond 256 characters a single one is no reason for a snapshot; the end is.
    head = '{"a":"' + "x" * 4000
    assert shown([head, "y"]) == [({"a": "x" * 4000}, False)]
    assert shown([head, "y"], failed())[-1] == ({"a": "x" * 4000 + "y"}, False)
    assert shown([head, "y", '"}'])[-1] == ({"a": "x" * 4000 + "y"}, True)


def grows(before: Any, after: Any) -> bool:
    """Whether `after` only adds to `before`."""
    kind = before.__class__
    if kind is not after.__class__:
        return False
    if kind is str:
        return after.startswith(before)
    if kind is list:
        return len(before) <= len(after) and all(map(grows, before, after))
    if kind is dict:
        return all(key in after and grows(before[key], after[key]) for key in before)
    return before == after


@given(OBJECTS, st.booleans(), st.lists(st.integers(0, 1000), max_size=12))
def test_nothing_shown_is_taken_back(value: JsonObject, escaped: bool, places: list[int]) -> None:
    text = json.dumps(value, ensure_ascii=escaped)
    out = shown(cut_at(text, places))
    assert out[-1] == (value, True)
    assert all(not complete for _, complete in out[:-1])
    for (before, _), (after, _) in pairwise(out):
        assert grows(before, after)


# -- the snapshots


def test_a_snapshot_is_parsed_when_it_is_read_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = _parses(monkeypatch)
    first, second, last = run(partial_arguments(), [delta(piece, id="c") for piece in ('{"a":"x', "y", '"}')])
    assert parsed == []
    assert (second.id, second.complete, last.complete) == ("c", False, True)
    assert parsed == []
    assert second.arguments is second.arguments
    assert second.arguments == {"a": "xy"}
    assert len(parsed) == 1
    assert first.arguments == {"a": "x"}  # whatever came since
    assert last.arguments == {"a": "xy"}
    assert len(parsed) == 2


def test_snapshots_are_equal_if_what_they_say_is() -> None:
    one, same, other = run(partial_arguments(), [delta(piece, id="c") for piece in ('{"a":"x', '"', ', "b": ""')])
    assert one == same
    assert one != other
    assert one == PartialArguments("r", 1, 0, 0, "c", "", {"a": "x"}, False)
    assert one != PartialArguments("r", 1, 0, 0, "c", "", {"a": "x"}, True)
    assert one != {"a": "x"}
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)


def test_a_snapshot_can_be_copied_and_pickled() -> None:
    (one,) = run(partial_arguments(), [delta('{"a":["x', id="c", name="f")])
    for made in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):  # noqa: S301  # our own
        assert type(made) is PartialArguments
        assert made == one
    assert copy.copy(one).arguments is one.arguments


def test_a_snapshot_shows_what_it_says_in_short() -> None:
    (one,) = run(partial_arguments(), [delta('{"a":"x', id="c", name="f")])
    assert repr(one) == (
        "PartialArguments('r', attempt=1, tool_index=0, choice=0, id='c', name='f', arguments={'a': 'x'}, "
        "complete=False)"
    )
    (long,) = run(partial_arguments(), [delta('{"a":"' + "x" * 1000, id="c", name="f")])
    assert "{'a': 'xxx" in repr(long)
    assert len(repr(long)) < 250


# -- cost


def _parses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of what is parsed, as far as it is not known to be whole."""
    parsed: list[int] = []
    from_json = growing_json.from_json

    def counting(text: str, **options: Any) -> Any:
        parsed.append(len(text))
        return from_json(text, **options)

    monkeypatch.setattr(growing_json, "from_json", counting)
    return parsed


def _arguments(n: int, fragment: str = 'x","') -> list[SamplingEvent]:
    return [delta(id="c", name="f"), *[delta('{"a":["')], *[delta(fragment)] * n, delta('"]}')]


@pytest.mark.parametrize("fragment", ['x","', '",{"b":1},"', "}", '\\"}', " ", "1"])
def test_calls_are_linear_in_the_fragments(fragment: str) -> None:
    run(partial_arguments(), _arguments(3, fragment))
    few, many = (calls_during(lambda n=n: run(partial_arguments(), _arguments(n, fragment))) for n in (1000, 10_000))
    assert many <= MOST * few


@pytest.mark.parametrize("head", ["", "  ", '{"', "{"])
def test_calls_are_linear_where_nothing_is_said(head: str) -> None:
    def white(n: int) -> list[SamplingEvent]:
        return [delta(head, id="c", name="f"), *[delta("\n  ")] * n]

    few, many = (calls_during(lambda n=n: run(partial_arguments(), white(n))) for n in (1000, 10_000))
    assert many <= MOST * few


def test_a_short_text_is_shown_piece_by_piece_and_a_long_one_as_it_grows() -> None:
    lengths = [len(one.arguments["a"]) for one in run(partial_arguments(), [delta('{"a":"'), *[delta("x")] * 20_000])]
    short = [one for one in lengths if one <= EAGER_CHARS - len('{"a":"')]
    assert short == list(range(EAGER_CHARS - len('{"a":"') + 1))
    long = lengths[len(short) - 1 :]
    assert all(after - before == (before + 6) // GROWTH for before, after in pairwise(long))
    assert long[-1] > 19_000


def test_to_read_each_snapshot_is_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = _parses(monkeypatch)
    totals: list[int] = []
    for n in (20_000, 200_000):
        parsed.clear()
        assert all(one.arguments for one in run(partial_arguments(), _arguments(n)))
        totals.append(sum(parsed))
    assert totals[1] <= MOST * totals[0]
    # And no more than is promised: some 33 times the text, and the start.
    assert totals[1] <= 34 * 4 * 200_000 + 64 * 256


def test_unread_snapshots_share_the_text() -> None:
    tracemalloc.start()
    try:
        events = _arguments(20_000)
        before, _ = tracemalloc.get_traced_memory()
        kept = run(partial_arguments(), events)
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(kept) > 200
    # A list of 20,000 pieces and the whole arguments; with a text each they would come to some 3 million characters.
    assert held < 3_000_000
