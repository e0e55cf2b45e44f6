"""What is said where streams differ: the first difference, both diagrams, the letters; errors by type and content."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from rx_sampler.conversation import SamplingResponse, TextItem, ToolCall
from rx_sampler.errors import SamplingError, SamplingErrorKind
from rx_sampler.testing.made import completed, text
from rx_sampler.testing.marble_report import Notice, difference, same_error, unlike_part
from rx_sampler.testing.marbles import drawn


def stream(*values: tuple[float, Any], end: Notice | None = None) -> list[Notice]:
    return [*(Notice(at, "next", value) for at, value in values), *([] if end is None else [end])]


def told(expected: list[Notice], found: list[Notice], letters: dict[str, Any] | None = None) -> list[str]:
    said = difference(expected, found, letters or {})
    assert said is not None
    return said.splitlines()


@pytest.mark.parametrize(
    "notices",
    [
        [],
        stream((1, "a"), (3, 2)),
        stream((1, {"x": [1]}), end=Notice(2, "completed")),
        stream(end=Notice(2, "error", ValueError("x"))),
    ],
)
def test_the_same_is_no_difference(notices: list[Notice]) -> None:
    assert difference(notices, list(notices), {}) is None


def test_equal_but_not_identical_is_no_difference() -> None:
    one, other = (stream((1, [1, 2]), end=Notice(2, "error", ValueError("x", 1))) for _ in range(2))
    assert difference(one, other, {}) is None


def test_another_value() -> None:
    assert told(stream((1, 10), (3, 20)), stream((1, 10), (3, 21)), {"x": 10, "y": 20}) == [
        "expected value 20 at 3 ms; found value 21 at 3 ms",
        "expected  -x-y",
        "found     -x-a",
        "  x = 10",
        "  y = 20",
        "  a = 21",
    ]


def test_another_time() -> None:
    assert told(stream((1, "a"), (3, "b")), stream((1, "a"), (4, "b"))) == [
        "expected value 'b' at 3 ms; found value 'b' at 4 ms",
        "expected  -a-b",
        "found     -a--b",
    ]


def test_too_little_and_too_much() -> None:
    short, whole = stream((1, "a")), stream((1, "a"), end=Notice(2, "completed"))
    assert told(whole, short) == [
        "expected completion at 2 ms; found nothing more",
        "expected  -a|",
        "found     -a",
    ]
    assert told(short, whole)[0] == "expected nothing more; found completion at 2 ms"
    assert told(short, []) == ["expected value 'a' at 1 ms; found nothing more", "expected  -a", "found"]


def test_another_end() -> None:
    rows = told(stream(end=Notice(2, "completed")), stream(end=Notice(2, "error", OSError(5, "gone"))))
    assert rows == [
        "expected completion at 2 ms; found error OSError(5, 'gone') at 2 ms",
        "expected  --|",
        "found     --#",
    ]


def test_an_error_in_place_of_a_value_that_is_one() -> None:
    error = ValueError("x")
    assert told(stream((1, error)), [Notice(1, "error", error)])[0] == (
        "expected value ValueError('x') at 1 ms; found error ValueError('x') at 1 ms"
    )


def test_the_order_at_one_time() -> None:
    assert told(stream((1, "a"), (1, "b")), stream((1, "b"), (1, "a"))) == [
        "expected value 'a' at 1 ms; found value 'b' at 1 ms",
        "expected  -(ab)",
        "found     -(ba)",
    ]


def test_what_no_diagram_can_show_is_listed() -> None:
    end = Notice(2, "completed")
    rows = told(stream((1, "a"), (1, "b"), end=end), stream((1, "a"), (1.25, "b"), end=end))
    assert rows[1:] == ["expected  a 1 ms, b 1 ms, completed 2 ms", "found     a 1 ms, b 1.25 ms, completed 2 ms"]


def test_letters_of_the_diagram_come_first_and_are_never_given_twice() -> None:
    expected = [Notice(1, "next", "b", letter="a"), Notice(2, "next", 1, letter="c")]
    assert told(expected, stream((1, "a"), (2, True), (3, "b"))) == [
        "expected value 'b' at 1 ms; found value 'a' at 1 ms",
        "expected  -ac",
        "found     -bda",
        "  a = 'b'",
        "  c = 1",
        "  b = 'a'",
        "  d = True",
    ]


def test_one_letter_may_mean_several_values() -> None:
    expected = [Notice(1, "next", 1, letter="a"), Notice(2, "next", 2, letter="a")]
    assert told(expected, stream((1, 1)))[1:] == ["expected  -aa", "found     -a", "  a = 1", "  a = 2"]


def test_more_values_than_letters() -> None:
    rows = told(stream(*((at, at + 1000) for at in range(70))), [])
    assert rows[1] == "expected  abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789????????"


def test_long_values_are_cut() -> None:
    rows = told(stream((1, ["x" * 1000])), [])
    assert rows[0] == f"expected value ['{'x' * 298}... (1004 characters) at 1 ms; found nothing more"


# -- which part of a value


class Pair(NamedTuple):
    one: int
    other: list[str]


@dataclass
class Holder:
    pair: Pair
    note: str = field(default="", compare=False)


@pytest.mark.parametrize(
    ("expected", "found", "part"),
    [
        (1, 2, ""),
        ("a", "b", ""),
        (1, "1", ""),
        (Pair(1, []), Pair(2, []), ".one: expected 1, found 2"),
        (Holder(Pair(1, ["x"]), "n"), Holder(Pair(1, ["y"]), "m"), ".pair.other[0]: expected 'x', found 'y'"),
        (Pair(1, ["x"]), Pair(1, ["x", "y"]), ".other[1]: expected 'nothing', found 'y'"),
        ({"a": 1, "b": 2}, {"a": 1}, "['b']: expected 2, found 'nothing'"),
        ([1, {"k": (2,)}], [1, {"k": (3,)}], "[1]['k'][0]: expected 2, found 3"),
        ([1], (1,), ""),
        (
            SamplingResponse(items=(TextItem(text="a"),)),
            SamplingResponse(items=(TextItem(text="b"),)),
            ".items[0].text: expected 'a', found 'b'",
        ),
        (["x" * 400 + "a"], ["x" * 400 + "b"], "[0][400:]: expected 'a', found 'b'"),
    ],
)
def test_the_part_that_differs(expected: object, found: object, part: str) -> None:
    assert unlike_part(expected, found) == part


def test_the_part_of_an_error_whose_words_are_the_same() -> None:
    one, other = (SamplingError.of(SamplingErrorKind.HTTP, "cut", is_retryable=retry) for retry in (True, False))
    assert repr(one) == repr(other)
    rows = told([Notice(1, "error", one)], [Notice(1, "error", other)])
    assert rows[1] == "in .info.is_retryable: expected True, found False"


def test_the_part_of_an_event_that_is_longer_than_what_is_shown() -> None:
    (*_, one), (*_, other) = (
        drawn("S(Fa)C", {"a": text("long " * 99), "C": completed(stop_sequence=at)}) for at in "xy"
    )
    rows = told(stream((1, one)), stream((1, other)))
    assert rows[1] == "in .response.stop_sequence: expected 'x', found 'y'"


def test_no_part_where_another_thing_came() -> None:
    assert told(stream((1, [1])), [Notice(1, "error", ValueError())])[1].startswith("expected  ")


# -- errors


class PlainError(Exception):
    pass


class DerivedError(PlainError):
    pass


class KeyedError(Exception):
    def __init__(self, *, code: int) -> None:
        super().__init__()
        self.code = code


def sampling(message: str, **fields: Any) -> SamplingError:
    return SamplingError.of(SamplingErrorKind.API, message, **fields)


@pytest.mark.parametrize(
    ("expected", "found", "same"),
    [
        (ValueError("x"), ValueError("x"), True),
        (ValueError("x"), TypeError("x"), False),
        (ValueError("x"), ValueError("y"), False),
        (ValueError("1"), ValueError(1), False),
        (ValueError("x"), ValueError("x", "y"), False),
        (PlainError("x"), DerivedError("x"), False),
        (DerivedError("x"), PlainError("x"), False),
        (KeyedError(code=1), KeyedError(code=1), True),
        (KeyedError(code=1), KeyedError(code=2), False),
        (OSError(2, "no", "one"), OSError(2, "no", "other"), False),
        (sampling("x", status=500), sampling("x", status=500), True),
        (sampling("x", status=500), sampling("x", status=502), False),
        (sampling("x", is_retryable=True), sampling("x"), False),
        (PlainError, PlainError("any"), True),
        (PlainError, DerivedError("any"), True),
        (DerivedError, PlainError("any"), False),
        (ValueError, TypeError("x"), False),
        (ValueError("x"), "x", False),
    ],
)
def test_same_errors(expected: object, found: object, same: bool) -> None:
    assert same_error(expected, found) is same
    assert (difference([Notice(1, "error", expected)], [Notice(1, "error", found)], {}) is None) is same


def test_notes_and_causes_are_no_content() -> None:
    one, other = ValueError("x"), ValueError("x")
    one.add_note("a note")
    one.__cause__ = OSError("why")
    assert same_error(one, other)


def test_errors_that_differ_are_named() -> None:
    rows = told([Notice(3, "error", ValueError("x"))], [Notice(3, "error", TypeError("x"))])
    assert rows == [
        "expected error ValueError('x') at 3 ms; found error TypeError('x') at 3 ms",
        "expected  ---#",
        "found     ---#",
    ]


def test_a_call_shows_what_it_is() -> None:
    call = ToolCall(id="1", name="f", arguments="{}", complete=True)
    part = unlike_part(
        SamplingResponse(items=(call,)), SamplingResponse(items=(call.model_copy(update={"name": "g"}),))
    )
    assert part == ".items[0].name: expected 'f', found 'g'"
