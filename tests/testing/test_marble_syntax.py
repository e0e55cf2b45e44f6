"""Diagrams: read as RxJS reads them in run mode, refused with a pointer to the place, drawn so that they read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rx_sampler.testing.marble_syntax import (
    Diagram,
    Mark,
    MarkKind,
    drawn_marks,
    drawn_subscription,
    is_letter,
    read_diagram,
    read_subscription,
)


def values(*marks: tuple[int, str]) -> tuple[Mark, ...]:
    """Marks from frames and signs."""
    kinds: dict[str, MarkKind] = {"|": "completed", "#": "error"}
    return tuple(Mark(frame, kinds.get(sign, "next"), "" if sign in kinds else sign) for frame, sign in marks)


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("", []),
        ("---", []),
        ("-------a---b---|", [(7, "a"), (11, "b"), (15, "|")]),
        ("-------a---b---#", [(7, "a"), (11, "b"), (15, "#")]),
        ("a", [(0, "a")]),
        ("|", [(0, "|")]),
        ("(a|)", [(0, "a"), (0, "|")]),
        ("---(abc)---", [(3, "a"), (3, "b"), (3, "c")]),
        # A group takes as many frames as it has characters, its brackets counted.
        ("(ab)c", [(0, "a"), (0, "b"), (4, "c")]),
        ("-(ab)-(c|)", [(1, "a"), (1, "b"), (6, "c"), (6, "|")]),
        ("()a", [(2, "a")]),
        ("  -a - b -    c |       ", [(1, "a"), (3, "b"), (5, "c"), (6, "|")]),
        ("\n  -a-\n  -b|\n", [(1, "a"), (4, "b"), (5, "|")]),
        ("-0--1|", [(1, "0"), (4, "1"), (5, "|")]),
        ("--🙈--|", [(2, "🙈"), (5, "|")]),
        ("10ms a", [(10, "a")]),
        ("a 10ms b", [(0, "a"), (11, "b")]),
        ("a  10ms  b", [(0, "a"), (11, "b")]),
        ("- 1s a", [(1001, "a")]),
        ("1.5s a", [(1500, "a")]),
        ("1m a", [(60_000, "a")]),
        ("0.5m a 2m |", [(30_000, "a"), (150_001, "|")]),
        ("10ms", []),
        ("- 10ms (a|)", [(11, "a"), (11, "|")]),
        ("5ms 5ms a", [(10, "a")]),
        # Exactly: none of these is a whole number once it is a float times a thousand.
        ("0.07s a", [(70, "a")]),
        ("1.001s a", [(1001, "a")]),
        ("4.35s a", [(4350, "a")]),
        ("0.001m a", [(60, "a")]),
        ("1s1", [(0, "1"), (1, "s"), (2, "1")]),
        ("-1m-", [(1, "1"), (2, "m")]),
        ("1 m", [(0, "1"), (1, "m")]),
        ("(5ms)", [(0, "5"), (0, "m"), (0, "s")]),
    ],
)
def test_values(text: str, marks: list[tuple[int, str]]) -> None:
    assert read_diagram(text) == Diagram(values(*marks))


def test_frames_count_from_the_subscription_point() -> None:
    assert read_diagram("---^---a---b---|") == Diagram(values((4, "a"), (8, "b"), (12, "|")), subscribed=3)
    assert read_diagram("a-^-b") == Diagram(values((-2, "a"), (2, "b")), subscribed=2)
    assert read_diagram("1s ^ 1s a") == Diagram(
        values(
            (1001, "a"),
        ),
        subscribed=1000,
    )
    assert read_diagram("--(^a)") == Diagram(values((0, "a")), subscribed=2)


def test_marks_know_their_place() -> None:
    assert [mark.place for mark in read_diagram("- 10ms (a b)|").marks] == [8, 10, 12]


@pytest.mark.parametrize(
    ("text", "subscribed", "unsubscribed"),
    [
        ("---^---!-", 3, 7),
        ("---^-", 3, None),
        ("---(^!)-", 3, 3),
        ("  - -  - -  ^ -   - !  -- -      ", 4, 7),
        ("10ms ^ 1.2s - 1m !", 10, 10 + 1 + 1200 + 1 + 60_000),
        ("^!", 0, 1),
        ("---!", None, 3),
        ("----", None, None),
        ("", None, None),
    ],
)
def test_subscriptions(text: str, subscribed: int | None, unsubscribed: int | None) -> None:
    assert read_subscription(text) == Diagram((), subscribed, unsubscribed)


@pytest.mark.parametrize(
    ("text", "place", "why"),
    [
        ("-(a-b)", 3, "no time passes inside a group"),
        ("-(a 10ms b)", 4, "no time passes inside a group"),
        ("-((a))", 2, "cannot be nested"),
        ("-a)", 2, "no group is open"),
        ("-(ab", 4, "is not closed"),
        ("-^-^", 3, "there is a ^ already"),
        ("-a-!", 3, "given as until="),
        ("-a-|b", 4, "nothing follows"),
        ("-a-#|", 4, "nothing follows"),
        ("(|a)", 2, "nothing follows"),
        ("a 0.5ms b", 2, "no whole number of milliseconds"),
        ("10.2ms a", 0, "no whole number of milliseconds"),
        ("0.0001s a", 0, "no whole number of milliseconds"),
        ("-10ms-", 1, "set off by spaces: ' 10ms '"),
        ("a 10msb", 2, "set off by spaces"),
    ],
)
def test_values_that_cannot_be_read(text: str, place: int, why: str) -> None:
    refused(lambda: read_diagram(text), text, place, why)


@pytest.mark.parametrize(
    ("text", "place", "why"),
    [
        ("---^-^-!-", 5, "there is a ^ already"),
        ("---^---!-!", 9, "there is a ! already"),
        ("--!--^", 2, "ends before it begins"),
        ("^-a-!", 2, "no values"),
        ("^---|", 4, "no values"),
        ("^--(!", 5, "is not closed"),
    ],
)
def test_subscriptions_that_cannot_be_read(text: str, place: int, why: str) -> None:
    refused(lambda: read_subscription(text), text, place, why)


def refused(read: object, text: str, place: int, why: str) -> None:
    assert callable(read)
    with pytest.raises(ValueError, match="\n") as caught:
        read()
    reason, shown, caret = str(caught.value).split("\n")
    assert why in reason
    assert shown == f"  {text}"
    assert caret == " " * (2 + place) + "^"


def test_the_pointer_stands_under_the_place_in_a_diagram_of_several_lines_too() -> None:
    with pytest.raises(ValueError, match="nothing follows") as caught:
        read_diagram("-a|\n\tb")
    assert str(caught.value).splitlines()[1:] == ["  -a|  b", "       ^"]


# -- drawing


@pytest.mark.parametrize(
    ("marks", "text"),
    [
        ([], ""),
        ([(1, "a"), (3, "b"), (5, "|")], "-a-b-|"),
        ([(0, "a"), (0, "b"), (4, "c")], "(ab)c"),
        ([(2, "a"), (2, "#")], "--(a#)"),
        ([(100, "a")], "100ms a"),
        ([(0, "a"), (101, "b")], "a 100ms b"),
        ([(0, "1"), (1, "m"), (2, "s")], "1 ms"),
    ],
)
def test_drawn(marks: list[tuple[int, str]], text: str) -> None:
    assert drawn_marks(values(*marks)) == text


@pytest.mark.parametrize(
    "marks", [[(0, "a"), (0, "b"), (3, "c")], [(0, "a"), (0, "b"), (1, "c")], [(3, "a"), (1, "b")]]
)
def test_what_no_diagram_can_show(marks: list[tuple[int, str]]) -> None:
    assert drawn_marks(values(*marks)) is None


LETTERS = st.one_of(st.sampled_from("0123456789.ms"), st.characters(exclude_categories=["Cs"]).filter(is_letter))


@st.composite
def streams(draw: st.DrawFn) -> list[Mark]:
    marks: list[Mark] = []
    frame = 0
    groups = draw(st.lists(st.tuples(st.one_of(st.just(0), st.integers(0, 90_000)), st.lists(LETTERS, min_size=1))))
    for gap, letters in groups:
        frame += gap
        marks += [Mark(frame, "next", letter) for letter in letters]
        frame += 1 if len(letters) == 1 else len(letters) + 2
    kinds: list[MarkKind | None] = [None, "completed", "error"]
    end = draw(st.sampled_from(kinds))
    return marks if end is None else [*marks, Mark(frame, end)]


@given(streams())
def test_reading_what_is_drawn_gives_the_marks_back(marks: list[Mark]) -> None:
    text = drawn_marks(marks)
    assert text is not None
    assert list(read_diagram(text).marks) == marks


@given(st.text(alphabet="-()^!|# ab0123456789.ms"))
def test_any_text_is_read_or_refused_with_a_place(text: str) -> None:
    for read in (read_diagram, read_subscription):
        try:
            read(text)
        except ValueError as error:
            _, shown, caret = str(error).split("\n")
            assert shown[2:] == text
            assert 0 <= caret.index("^") - 2 <= len(text)


@given(st.integers(0, 100_000), st.one_of(st.none(), st.integers(0, 100_000)))
def test_reading_a_drawn_subscription_gives_it_back(subscribed: int, lasted: int | None) -> None:
    unsubscribed = None if lasted is None else subscribed + lasted
    text = drawn_subscription(subscribed, unsubscribed)
    assert read_subscription(text) == Diagram((), subscribed, unsubscribed)


def test_drawn_subscriptions() -> None:
    assert drawn_subscription(0, 5) == "^----!"
    assert drawn_subscription(2) == "--^"
    assert drawn_subscription(2, 2) == "--(^!)"
    assert drawn_subscription(50, 150) == "50ms ^ 99ms !"


@pytest.mark.parametrize("text", ["a", "Z", "0", "?", "é", "🙈", "."])
def test_letters(text: str) -> None:
    assert is_letter(text)


@pytest.mark.parametrize("text", ["", "ab", "-", "(", ")", "^", "!", "|", "#", " ", "\n"])
def test_what_is_no_letter(text: str) -> None:
    assert not is_letter(text)
