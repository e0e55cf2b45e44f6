"""`partial_json`: data and values as they grow, the verdict at the end, and what it costs."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from typing import Any, Literal, cast

import pytest
import reactivex as rx
from counted_calls import calls_during
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter
from reactivex import operators as ops
from typing_extensions import TypedDict

from rx_sampler.events import SamplingEvent
from rx_sampler.operators import growing_json
from rx_sampler.operators.structured import MAX_ERROR_CHARS, PartialJson, partial_json

from .assembling import MOST, answer, completed, failed, retrying, run, token
from .test_arguments import grows
from .test_tools import JSON, cut_at


class City(BaseModel):
    name: str
    people: int = 0
    kind: Literal["town", "townhall"] | None = None
    streets: list[str] = Field(default_factory=list[str])


class Loose(TypedDict, total=False):
    name: str
    since: date
    cities: list[City]


@dataclass
class Point:
    x: int
    label: str = ""


def values(model: type[Any], pieces: list[str]) -> list[Any]:
    """The values shown before the end."""
    return [one.value for one in run(partial_json(model), answer(pieces)[:-1])]


def new_values(model: type[Any], pieces: list[str]) -> list[Any]:
    """Those that are not the ones before."""
    seen = values(model, pieces)
    return [value for place, value in enumerate(seen) if not place or value != seen[place - 1]]


def last(model: type[Any], text: str) -> PartialJson[Any]:
    return run(partial_json(model), answer([text] if text else []))[-1]


# -- data


def test_data_grows_and_the_end_is_complete() -> None:
    pieces = ["  {", '"name"', ': "Pa', 'ris", "people": 2', "1", ', "kind": nul', "l}"]
    out = run(partial_json(City), answer(pieces))
    assert [(one.data, one.complete) for one in out] == [
        ({"name": "Pa"}, False),
        ({"name": "Paris"}, False),
        ({"name": "Paris", "people": 21}, False),
        ({"name": "Paris", "people": 21, "kind": None}, False),
        ({"name": "Paris", "people": 21, "kind": None}, True),
    ]
    assert [(one.request_id, one.attempt, one.error) for one in out] == [("r", 1, None)] * 5


def test_only_text_of_the_choice_counts() -> None:
    events = [
        token('["', 1, channel="reasoning"),
        token("[1, ", 2, choice=1),
        token("[2, ", 3),
        token('["', 4, channel="refusal"),
        token("3]", 5, choice=1),
    ]
    assert [one.data for one in run(partial_json(list[int]), events)] == [[2]]
    assert [one.data for one in run(partial_json(list[int], choice=1), events)] == [[1], [1, 3]]
    end = completed("[2, 4]")
    assert run(partial_json(list[int]), [*events, token("4]", 6), end])[-1].value == [2, 4]
    assert run(partial_json(list[int], choice=1), [*events, end])[-1].value == [1, 3]


def test_retrying_and_failing() -> None:
    events = [token("[1, ", 1), retrying(), token("[1, ", 1, attempt=2), failed()]
    assert [(one.attempt, one.data, one.complete) for one in run(partial_json(list[int]), events)] == [
        (1, [1], False),
        (2, [1], False),
    ]


def test_two_requests_interleaved() -> None:
    events = [token("[1,", 1), token("[2,", 1, of="s"), token(" 3]", 2), token(" 4]", 2, of="s"), completed("[1, 3]")]
    out = run(partial_json(list[int]), events)
    assert [(one.request_id, one.value) for one in out] == [
        ("r", [1]),
        ("s", [2]),
        ("r", [1, 3]),
        ("s", [2, 4]),
        ("r", [1, 3]),
    ]


def test_an_answer_without_its_tokens_is_still_validated() -> None:
    (only,) = run(partial_json(list[int]), [completed("[1, 2]")])
    assert only == PartialJson("r", 1, [1, 2], [1, 2], True, None)


# -- values


def test_a_model_is_there_once_its_required_fields_are() -> None:
    assert values(City, ['{"people": 3, ', '"name": "Pa', 'ris", "streets": ["A', '", "B']) == [
        None,
        City(name="Pa", people=3),
        City(name="Paris", people=3, streets=["A"]),
        City(name="Paris", people=3, streets=["A", "B"]),
    ]


def test_fields_that_have_not_come_are_not_set() -> None:
    (value,) = values(City, ['{"name": "Pa'])
    assert value.model_fields_set == {"name"}


def test_a_typed_dict_is_there_from_its_first_field() -> None:
    assert values(Loose, ['{"name": "x', '", "cities": [{"people": 1', ', "name": "y']) == [
        {"name": "x"},
        {"name": "x", "cities": []},
        {"name": "x", "cities": [City(name="y", people=1)]},
    ]


def test_a_list_of_models_leaves_the_last_out_until_it_fits() -> None:
    assert values(list[City], ['[{"name": "x"}, {"people": 1,', ' "name": "y"}']) == [
        [City(name="x")],
        [City(name="x"), City(name="y", people=1)],
    ]


def test_a_dataclass() -> None:
    assert values(Point, ['{"x": 1, "label": "a', "b"]) == [Point(1, "a"), Point(1, "ab")]


def test_a_string_that_means_something_waits_for_its_end() -> None:
    # Each prefix would do for pydantic, and be wrong.
    assert values(City, ['{"name": "x", "kind": "town', 'hall"']) == [
        City(name="x"),
        City(name="x", kind="townhall"),
    ]
    assert values(list[int], ['["1', '2"']) == [[], [12]]
    assert values(Loose, ['{"name": "x", "since": "2026-01-0', '1"']) == [
        {"name": "x"},
        {"name": "x", "since": date(2026, 1, 1)},
    ]


def test_the_end_of_such_a_string_shows_its_value_though_the_data_is_the_same() -> None:
    out = run(partial_json(City), answer(['{"name": "x", "kind": "town', '"'])[:-1])
    data = {"name": "x", "kind": "town"}
    assert [(one.data, one.value) for one in out] == [(data, City(name="x")), (data, City(name="x", kind="town"))]


def test_half_an_escape_takes_no_value_back() -> None:
    pieces = ['{"name": "x", "streets": ["a', "\\", "n", "\\ud83d", "\\u", "de00", "\\\\", "\\u00", '41"']
    streets = ["a", "a\n", "a\n\U0001f600", "a\n\U0001f600\\", "a\n\U0001f600\\A"]
    assert [value.streets for value in new_values(City, pieces)] == [[one] for one in streets]


def test_a_string_at_its_greatest_length_keeps_what_was_shown() -> None:
    class Short(BaseModel):
        note: str = Field(default="", max_length=4)

    pieces = ['{"note": "a', "b", "c", "d", '"']
    assert [value.note for value in values(Short, pieces)] == ["a", "ab", "abc", "abcd", "abcd"]


def test_there_is_no_value_while_a_part_is_not_valid_and_who_wants_the_last_filters() -> None:
    pieces = ['{"name": "x", "people": "m', "any", '", "streets": ["A"']
    assert values(City, pieces) == [City(name="x"), City(name="x"), None]

    class Country(BaseModel):
        name: str
        capital: City | None = None

    pieces = ['{"name": "x', '", "capital": {', '"people": 1, ', '"name": "y']
    whole = Country(name="x", capital=City(name="y", people=1))
    assert values(Country, pieces) == [Country(name="x"), None, None, whole]
    held: list[Any] = []
    source = rx.from_iterable(answer(pieces)[:-1])
    source.pipe(partial_json(Country), ops.filter(lambda one: one.value is not None)).subscribe(held.append)
    assert [one.value for one in held] == [Country(name="x"), whole]


# -- the snapshots


def test_a_snapshot_is_parsed_when_it_is_read_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = _parses(monkeypatch)
    first, second = run(partial_json(City), answer(['{"name":"x', "y"])[:-1])
    assert parsed == []
    assert (second.request_id, second.attempt, second.complete, second.error) == ("r", 1, False, None)
    assert parsed == []
    assert second.data is second.data
    assert (second.data, len(parsed)) == ({"name": "xy"}, 1)
    assert second.value is second.value
    assert (second.value, len(parsed)) == (City(name="xy"), 1)
    assert (first.data, first.value) == ({"name": "x"}, City(name="x"))  # whatever came since


def test_the_order_of_reading_makes_no_difference() -> None:
    pieces = ['{"name": "a', 'b", "kind": "tow', 'n", "streets": ["c', '", "d"], "people": 1', "}"]
    forth = run(partial_json(City), answer(pieces))
    back = run(partial_json(City), answer(pieces))
    seen = [(one.value, one.data) for one in reversed(back)]
    assert [(one.value, one.data) for one in forth] == seen[::-1]


def test_snapshots_are_equal_if_what_they_say_is() -> None:
    one, same, other = run(partial_json(City), answer(['{"name":"x', '"', ', "streets": []'])[:-1])
    assert one == same
    assert one != other
    assert one == PartialJson("r", 1, {"name": "x"}, City(name="x"), False, None)
    assert one != PartialJson("r", 1, {"name": "x"}, City(name="x"), True, None)
    assert one != {"name": "x"}
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)
    out: list[Any] = []
    source = rx.from_iterable(answer(['{"name":"x', '"', ', "streets": []', "}"]))
    source.pipe(partial_json(City), ops.distinct_until_changed()).subscribe(out.append)
    assert [(one.data, one.complete) for one in out] == [
        ({"name": "x"}, False),
        ({"name": "x", "streets": []}, False),
        ({"name": "x", "streets": []}, True),
    ]


def test_a_snapshot_can_be_copied_and_pickled() -> None:
    for one in run(partial_json(City), answer(['{"name":"x', '"}'])):
        for made in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):  # noqa: S301  # our own
            assert type(made) is PartialJson
            assert made == one


def test_a_snapshot_shows_what_it_says_in_short() -> None:
    (one,) = run(partial_json(list[str]), answer(['["x'])[:-1])
    assert repr(one) == "PartialJson('r', attempt=1, data=['x'], value=['x'], complete=False, error=None)"
    (long,) = run(partial_json(list[str]), answer(['["' + "x" * 1000])[:-1])
    assert len(repr(long)) < 300


def test_what_turns_out_to_be_no_json_has_no_data() -> None:
    out = run(partial_json(City), answer(['{"name": "x', '", name', ": 1", "}"]))
    assert [(one.data, one.value, one.complete) for one in out] == [
        ({"name": "x"}, City(name="x"), False),
        (None, None, False),
        (None, None, False),
        (None, None, False),
        (None, None, True),
    ]
    assert (out[-1].error or "").startswith("not JSON: ")


def test_what_stands_behind_the_json_changes_nothing_until_the_end() -> None:
    out = run(partial_json(list[int]), answer(["[1, 2] I", " hope", " it helps"]))
    assert [(one.value, one.complete) for one in out] == [([1, 2], False)] * 3 + [(None, True)]
    out = run(partial_json(list[int]), answer(["[1, 2]", " I hope", " it helps"]))
    assert [(one.value, one.complete) for one in out] == [([1, 2], False), (None, True)]


@pytest.mark.parametrize("pieces", [["12", "3"], ["tr", "ue"], ["nu", "ll"], ["So", " it is."]])
def test_a_bare_number_or_word_comes_at_the_end(pieces: list[str]) -> None:
    anything: Any = int | bool | str | None
    out: list[PartialJson[Any]] = run(partial_json(anything), answer(pieces))
    (only,) = out
    assert only.complete


def test_a_bare_string_grows() -> None:
    assert values(str, ['"', "a", '\\n"']) == ["a", "a\n"]


# -- the verdict


def test_the_error_names_field_and_what_would_be_right() -> None:
    out = last(City, '{"name": 1, "people": "many", "kind": "village"}')
    assert (out.value, out.complete) == (None, True)
    assert out.data == {"name": 1, "people": "many", "kind": "village"}
    assert out.error is not None
    assert "name: Input should be a valid string" in out.error
    assert "people: Input should be a valid integer" in out.error
    assert "kind: Input should be 'town' or 'townhall'" in out.error
    assert "village" not in out.error
    assert last(list[City], '[{"name": "x"}, {}]').error == "1.name: Field required"
    assert last(City, "[]").error is not None
    assert (last(City, "[]").error or "").startswith("the answer: Input should be an object")


@pytest.mark.parametrize("text", ['{"name": "x"', '{"name": "x"} there you are', "```json\n{}\n```", '{"name": NaN}'])
def test_what_is_no_json_is_an_error(text: str) -> None:
    out = last(City, text)
    assert out.value is None
    assert (out.error or "").startswith("not JSON: ")


@pytest.mark.parametrize("text", ["", " \n"])
def test_no_text_is_an_error(text: str) -> None:
    assert last(City, text) == PartialJson("r", 1, None, None, True, "the answer has no text")


def test_the_error_is_one_bounded_line() -> None:
    class Chosen(BaseModel):
        word: Literal["a\nb"]

    assert last(Chosen, '{"word": "c"}').error == "word: Input should be 'a\\nb'"
    error = last(list[int], json.dumps(["x"] * 1000)).error or ""
    assert (len(error), error[-1]) == (MAX_ERROR_CHARS + 1, "\u2026")
    error = last(list[City], json.dumps([{}] * 10)).error or ""
    assert error == "; ".join([*(f"{place}.name: Field required" for place in range(8)), "and 2 more"])


def test_a_type_that_cannot_be_validated_is_refused_at_once() -> None:
    class Opaque:
        pass

    with pytest.raises(Exception, match="Unable to generate pydantic-core schema"):
        partial_json(Opaque)


# -- laws


@given(JSON, st.booleans(), st.lists(st.integers(0, 1000), max_size=12))
def test_nothing_shown_is_taken_back(value: Any, escaped: bool, places: list[int]) -> None:
    text = json.dumps(value, ensure_ascii=escaped)
    anything: Any = list[Any] | dict[str, Any]
    out: list[PartialJson[Any]] = run(partial_json(anything), answer(cut_at(text, places)))
    assert (out[-1].data, out[-1].complete) == (value, True)
    for before, after in pairwise(out):
        assert grows(before.data, after.data)
    shown = [one.value for one in out if one.value is not None]
    assert all(grows(before, after) for before, after in pairwise(shown))


@given(st.text(max_size=8), st.integers(), st.lists(st.text(max_size=5), max_size=4), st.lists(st.integers(0, 1000)))
def test_a_model_only_grows(name: str, people: int, streets: list[str], places: list[int]) -> None:
    whole = City(name=name, people=people, kind="town", streets=streets)
    out = run(partial_json(City), answer(cut_at(whole.model_dump_json(), places)))
    assert out[-1].value == whole
    shown = [one.value.model_dump(exclude_unset=True) for one in out if one.value is not None]
    for before, after in pairwise(shown):
        assert grows(before, after)


# -- cost


def _stream(n: int, piece: str = 'x","') -> list[SamplingEvent]:
    return answer(['["', *[piece] * n, '"]'])


def _parses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of what is parsed as data before the end."""
    parsed: list[int] = []
    from_json = growing_json.from_json

    def counting(text: str, **options: Any) -> Any:
        parsed.append(len(text))
        return from_json(text, **options)

    monkeypatch.setattr(growing_json, "from_json", counting)
    return parsed


@pytest.mark.parametrize("piece", ['x","', "x", '",{"b":1},"', "]", '\\"]'])
def test_calls_are_linear_in_the_tokens(piece: str) -> None:
    operator = partial_json(list[Any])
    run(operator, _stream(3))
    few, many = (calls_during(lambda n=n: run(operator, _stream(n, piece))) for n in (2000, 20_000))
    assert many <= MOST * few


def test_to_read_each_snapshot_is_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = _parses(monkeypatch)
    totals: list[int] = []
    for n in (10_000, 100_000):
        parsed.clear()
        assert all(one.data for one in run(partial_json(list[str]), _stream(n)))
        totals.append(sum(parsed))
    assert totals[1] <= MOST * totals[0]
    assert totals[1] <= 34 * 4 * 100_000 + 64 * 256


def test_a_long_string_is_validated_once_for_each_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    validated: list[str] = []
    validate_json: Any = cast("Any", TypeAdapter).validate_json

    def counting(self: Any, text: str, **options: Any) -> Any:
        validated.append(text)
        return validate_json(self, text, **options)

    monkeypatch.setattr(TypeAdapter, "validate_json", counting)
    out = run(partial_json(City), answer(['{"name": "', *["x"] * 200])[:-1])
    assert [one.value for one in out][-1] == City(name="x" * 200)
    assert len(validated) == len(out) + 2  # and once with any string, once without it
