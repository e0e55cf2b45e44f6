"""`GrowingJson`: where a text stands, and when it is worth a parse."""

from __future__ import annotations

from typing import Any

import pytest

from rx_sampler.operators.growing_json import EAGER_CHARS, GROWTH, MISSING, GrowingJson


def fed(*pieces: str) -> GrowingJson:
    growing = GrowingJson()
    for piece in pieces:
        growing.feed(piece)
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
        (["{[}"], False),
        (['"{}"'], False),
        (["12"], False),
        ([""], False),
    ],
)
def test_closed(pieces: list[str], closed: bool) -> None:
    assert fed(*pieces).closed is closed


def test_in_string_and_where_it_began() -> None:
    growing = fed('{"a')
    assert (growing.in_string, growing.string_began) == (True, 1)
    growing.feed('": ')
    assert not growing.in_string
    growing.feed(' "\\')
    assert (growing.in_string, growing.string_began) == (True, 7)
    growing.feed('"')
    assert growing.in_string
    growing.feed('"')
    assert not growing.in_string


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
        ('{"a": {"b": 1, "c', {"a": {"b": 1}}),
    ],
)
def test_what_a_text_says_so_far(text: str, data: Any) -> None:
    assert fed(text).partial() == data


def test_when_it_is_time_to_parse() -> None:
    growing = GrowingJson()
    assert growing.feed('["')
    assert growing.feed("x" * (EAGER_CHARS - 2))
    growing.partial()
    step = EAGER_CHARS // GROWTH
    assert not growing.feed("x" * (step - 1))
    assert growing.feed("x")
    growing.partial()
    assert not growing.feed("x")
    assert not growing.feed("]")  # within the string
    assert growing.feed('"]')  # closed: whatever it is, it is all there is
    assert len(growing.text) == EAGER_CHARS + step + 4


def test_what_is_added_counts_like_what_is_fed() -> None:
    growing = GrowingJson()
    for piece in ('{"a": "', "\\", '"}', '"', "} "):
        assert not growing.closed
        growing.add(piece)
    assert growing.closed
    assert growing.text == '{"a": "\\"}"} '
