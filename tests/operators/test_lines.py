"""`lines` and `sentences`: where they cut, however the text came, and at what cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from counted_calls import calls_during
from hypothesis import given
from hypothesis import strategies as st

from rx_sampler.events import SamplingEvent
from rx_sampler.operators.lines import lines, sentences

from .assembling import MOST, answer, check_legal, completed, every_cut, run, texts, token
from .test_tools import cut_at

LINES: list[tuple[str, list[str]]] = [
    ("", []),
    ("abc", ["abc"]),
    ("a\n", ["a\n"]),
    ("a\nb", ["a\n", "b"]),
    ("a\r\nb\rc\n\nd", ["a\r\n", "b\r", "c\n", "\n", "d"]),
    ("\n\r\r\n\r", ["\n", "\r", "\r\n", "\r"]),
    # Only the three ends of lines: not all that str.splitlines takes for one.
    ("a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g", ["a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g"]),
]


@pytest.mark.parametrize(("text", "expected"), LINES)
def test_lines_however_the_text_is_cut(text: str, expected: list[str]) -> None:
    for pieces in every_cut(text) if text else [[]]:
        out = run(lines(), answer(pieces))
        assert texts(out) == expected
        check_legal(out)


SENTENCES: list[tuple[str, list[str]]] = [
    ("", []),
    ("Hello", ["Hello"]),
    ("One. Two! Three?", ["One. ", "Two! ", "Three?"]),
    ("One.\n Two", ["One.\n ", "Two"]),
    ("Well\u2026 yes. So... no", ["Well\u2026 ", "yes. ", "So... ", "no"]),
    ("What?! Yes!! No", ["What?! ", "Yes!! ", "No"]),
    # Closing quotes and brackets belong to it, opening ones to the next.
    ('"Go." (He went.) "No!" [1.] x', ['"Go." ', "(He went.) ", '"No!" ', "[1.] ", "x"]),
    ("He said \u201cno.\u201d Then \u00bbja.\u00ab", ["He said \u201cno.\u201d ", "Then \u00bbja.\u00ab"]),
    ('She said "no!". Then', ['She said "no!". ', "Then"]),
    # No white space, no end.
    ("3.14 is pi.e", ["3.14 is pi.e"]),
    ("a.b!c?d", ["a.b!c?d"]),
    # CJK needs none, and takes it where it is.
    ("\u4f60\u597d\u3002\u5417\uff1f\u597d\uff01 x", ["\u4f60\u597d\u3002", "\u5417\uff1f", "\u597d\uff01 ", "x"]),
    ("\u300c\u597d\u3002\u300d\u4ed6\u8bf4", ["\u300c\u597d\u3002\u300d", "\u4ed6\u8bf4"]),
    # A blank line ends what has no stop; one line end does not.
    ("# Title\n\nText\nmore\n \t\nend", ["# Title\n\n", "Text\nmore\n \t\n", "end"]),
    ("Title\r\n\r\nText", ["Title\r\n\r\n", "Text"]),
    ("Title\n\n(x) y", ["Title\n\n", "(x) y"]),
    ("a\n) b\nc", ["a\n) b\nc"]),
    ("Title\n\n...and", ["Title\n\n", "...and"]),
    ("End. ...and on", ["End. ", "...and on"]),
    # Nothing but white space is no sentence.
    ("\n\n  Hello. x", ["\n\n  Hello. ", "x"]),
    (" \n\n ", [" \n\n "]),
    # Known limits, as documented.
    ("Dr. Who", ["Dr. ", "Who"]),
]


@pytest.mark.parametrize(("text", "expected"), SENTENCES)
def test_sentences_however_the_text_is_cut(text: str, expected: list[str]) -> None:
    for pieces in every_cut(text) if text else [[]]:
        out = run(sentences(), answer(pieces))
        assert texts(out) == expected
        check_legal(out)


ALPHABET = 'ab \n\r.!?"\u300d\u3002\uff01(\u2026\t'


@pytest.mark.parametrize("operator", [lines(), sentences()], ids=["lines", "sentences"])
@given(text=st.text(ALPHABET, max_size=40), places=st.lists(st.integers(0, 40), max_size=12))
def test_the_text_is_unchanged_and_its_cuts_do_not_matter(operator: Any, text: str, places: list[int]) -> None:
    whole = run(operator, answer([text] if text else []))
    cut = run(operator, answer(cut_at(text, places)))
    assert texts(cut) == texts(whole)
    assert "".join(texts(cut)) == text
    check_legal(whole)
    check_legal(cut)


def test_times_are_those_of_the_event_that_completed_the_piece() -> None:
    out = run(lines(), answer(["a", "b\r", "\nc", "d"]))
    assert [(one.text, one.ts) for one in out if one.kind == "channel_token"] == [("ab\r\n", 3.0), ("cd", 5.0)]
    out = run(sentences(), answer(["A.", " ", "B", "."]))
    assert [(one.text, one.ts) for one in out if one.kind == "channel_token"] == [("A. ", 3.0), ("B.", 5.0)]


@pytest.mark.parametrize("make", [lines, sentences])
def test_another_channel(make: Callable[[str], Any]) -> None:
    events = [token("a. ", 1, channel="reasoning"), token("b.\nc", 2, channel="reasoning"), token("d", 3)]
    out = run(make("reasoning"), [*events, token("e. f", 4), completed("de. f", ts=5.0)])
    assert texts(out) == ["d", "e. f"]
    assert texts(out, "reasoning") == (["a. b.\n", "c"] if make is lines else ["a. ", "b.\n", "c"])


@pytest.mark.parametrize("make", [lines, sentences])
@pytest.mark.parametrize("piece", ["x", " ", ".", '."', "\n", "\r", "x. ", "\u3002"])
def test_calls_are_linear_in_the_tokens(make: Callable[[], Any], piece: str) -> None:
    def work(n: int) -> Callable[[], object]:
        events = answer([piece] * n)
        return lambda: run(make(), events)

    work(3)()
    few, many = (calls_during(work(n)) for n in (200, 2000))
    assert many <= MOST * few


class CountingText(str):
    """A text that counts how many of its characters are sliced out."""

    copied = 0

    def __getitem__(self, key: Any) -> str:
        piece = super().__getitem__(key)
        CountingText.copied += len(piece)
        return piece


@pytest.mark.parametrize("make", [lines, sentences])
@pytest.mark.parametrize("piece", ["x. ", "x\n", "\n", ". "])
def test_many_ends_in_one_token(make: Callable[[], Any], piece: str) -> None:
    totals: list[int] = []
    for n in (300, 3000):
        CountingText.copied = 0
        events: list[SamplingEvent] = [token(CountingText(piece * n), 1)]
        run(make(), events)
        totals.append(CountingText.copied)
    assert totals[1] <= MOST * totals[0]
