"""`GrowingJson`: where a text stands, and when it is worth a parse."""

from __future__ import annotations

from typing import Any

import pytest

from rx_sampler.operators.growing_json import (
    EAGER_CHARS,
    GROWTH,
    MISSING,
    GrowingJson,
    in_short,
    partial,
    without_number,
)


def looks(growing: GrowingJson, *pieces: str) -> list[bool]:
    """For each piece, whether it is time to look once it is added."""
    out: list[bool] = []
    for piece in pieces:
        growing.pieces.append(piece)
        growing.chars += len(piece)
        out.append(growing.is_time(piece))
    return out


def fed(*pieces: str) -> GrowingJson:
    growing = GrowingJson()
    growing.pieces.extend(pieces)
    return growing


@pytest.mark.parametrize(
    ("pieces", "closed"),
    [
        (["{"], False),
        (["{}"], True),
        ([" [", "]", " \n"], True),
        (["{", "}", "x"], False),
        (["{}", "{", "}"], True),  # two values: no JSON, as a parse will tell
        (['{"a": "}'], False),
        (["{[}"], True),  # no JSON either
        (['{"a": "', "\\", '"}', '"', "} "], True),
        (['{"a": "', "\\", "\\", '"', "}"], True),
        (['{"a": "', "\\", "\\", '\\"}'], False),
        (['{"', "{", '"', ":", '""}'], True),
        (['{"\ud83d": "}', '"', "}"], True),
        (["[{}", "]"], True),
        (["[{}"], False),
        (["[", '"]"'], False),
        (['"{}"'], False),
        (["12"], False),
        ([""], False),
    ],
)
def test_closed(pieces: list[str], closed: bool) -> None:
    assert fed(*pieces).closed is closed


@pytest.mark.parametrize(
    ("text", "stem", "began"),
    [
        ("", "", -1),
        ('{"a', '{"a', 1),
        ('{"a": 12', '{"a": ', -1),
        ('{"a": -1.5E+', '{"a": ', -1),
        ('{"a": 12 ', '{"a": 12 ', -1),
        ('{"a": true', '{"a": true', -1),
        ('{"a": "12', '{"a": "12', 6),
        ('{"a": "\\', '{"a": "\\', 6),
        ('{"a": "\\"1', '{"a": "\\"1', 6),
        ('{"a": "\\\\"1', '{"a": "\\\\"', -1),
        ('["\\\\\\"", "\\n1', '["\\\\\\"", "\\n1', 9),
    ],
)
def test_numbers_at_the_end_and_where_a_string_began(text: str, stem: str, began: int) -> None:
    assert without_number(text) == (stem, began)


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("", MISSING),
        ("  ", MISSING),
        ("Hello", MISSING),
        ("[1, 2", [1]),
        ("[1, 2 ", [1, 2]),
        ("[-", []),
        ("[1.5e", []),
        ("[true", [True]),
        ("[fals", []),
        ("[false", [False]),
        ("[nul", []),
        ("12", MISSING),
        ('["1', ["1"]),
        ('["a\\u00', ["a"]),
        ('["a\\ud83d', ["a"]),
        ("[NaN,", MISSING),
        ("[1] is all", [1]),
        ("[1,, 2]", MISSING),
        ('{"a": {"b": 1, "c', {"a": {"b": 1}}),
    ],
)
def test_what_a_text_says_so_far(text: str, data: Any) -> None:
    assert partial(text) == data


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "',
        '{"a":[',
        '{"a": {',
        '{"a": null',
        "[true",
        "[false",
        "[0,",
        '{"a": -1.5e3}',
        '"x',
        ' [ "',
        '{"\\"": "',
    ],
)
def test_what_says_something(text: str) -> None:
    assert not any(fed(text[:end]).says_something() for end in range(len(text)))
    assert fed(text).says_something()


@pytest.mark.parametrize(
    "text", ["", " ", "{}", "[]", '""', "12", "true", "So", '{"a": tru', '{"a": b', "[12", '{"a" "']
)
def test_what_says_nothing(text: str) -> None:
    assert not fed(text).says_something()


def test_when_it_is_time_to_look() -> None:
    growing = GrowingJson()
    assert looks(growing, '["', "x" * (EAGER_CHARS - 2)) == [True, True]
    step = EAGER_CHARS // GROWTH
    assert looks(growing, "x" * (step - 1), "x", "x") == [False, True, False]
    assert looks(growing, "]") == [False]  # within the string
    assert growing.is_unseen
    assert looks(growing, '"]') == [True]  # closed: whatever it is, it is all there is
    assert growing.is_over
    assert not growing.is_unseen
    assert looks(growing, " ", "x", "]", "x" * 1000) == [False] * 4
    assert len(growing.text) == EAGER_CHARS + step + 4 + 1003


def test_it_is_never_time_where_nothing_may_be_shown() -> None:
    assert looks(GrowingJson(), "So", " it", ' is. {"a": "x"}', "x" * 1000) == [False] * 4
    assert looks(GrowingJson(), "1", "2", ",") == [False] * 3
    assert looks(GrowingJson("{"), '["x', '"]', "x" * 1000) == [False] * 3
    growing = GrowingJson()
    assert looks(growing, " ", "\n", "{", '"a"', ": ", "{", "}", " ", "}") == [False] * 5 + [True, True, False, True]
    assert growing.closed


def test_an_object_that_closes_empty_is_worth_a_look() -> None:
    assert looks(GrowingJson(), "{", "}") == [False, True]
    assert looks(GrowingJson(), "[]") == [True]


def test_what_grew_since_the_last_look_is_unseen() -> None:
    growing = GrowingJson()
    assert not growing.is_unseen
    looks(growing, '{"a": "x')
    assert not growing.is_unseen
    looks(growing, "1")
    assert growing.is_unseen


def test_in_short() -> None:
    assert in_short({"a": [1]}) == "{'a': [1]}"
    assert in_short("x" * 100) == "'" + "x" * 79 + "..."
