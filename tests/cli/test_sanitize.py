"""Untrusted text shown without its control characters."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rx_sampler.cli.sanitize import visible, visible_json, visible_line

# ECMA-48 C0 and C1 and DEL without tab and newline; the bidirectional controls of UAX #9, section 2; surrogates.
DANGEROUS = {
    *(chr(code) for code in range(0x20) if code not in (0x09, 0x0A)),
    *(chr(code) for code in range(0x7F, 0xA0)),
    *(chr(code) for code in range(0x202A, 0x202F)),
    *(chr(code) for code in range(0x2066, 0x206A)),
    chr(0xD800),
    chr(0xDFFF),
}


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b2J", "\\x9b2J"),
        ("a\rb", "a\\rb"),
        ("back\x08space", "back\\x08space"),
        ("\x7f", "\\x7f"),
        ("a\u202eb\u2066c", "a\\u202eb\\u2066c"),
        ("\ud83d", "\\ud83d"),
        ("line\n\tindented", "line\n\tindented"),
        ("[bold]não 漢字 🎉[/bold]", "[bold]não 漢字 🎉[/bold]"),
    ],
)
def test_shows_what_could_drive_a_terminal_as_an_escape(raw: str, shown: str) -> None:
    assert visible(raw) == shown


@pytest.mark.parametrize("char", sorted(DANGEROUS))
def test_no_dangerous_character_passes(char: str) -> None:
    assert char not in visible(f"a{char}b")
    assert char not in visible_line(f"a{char}b")
    assert char not in visible_json(json.dumps(char, ensure_ascii=False))


@given(st.lists(st.text(st.characters())))
def test_a_sequence_cut_into_pieces_is_shown_as_the_whole(pieces: list[str]) -> None:
    assert "".join(map(visible, pieces)) == visible("".join(pieces))


@given(st.text(st.characters(blacklist_characters="".join(DANGEROUS), blacklist_categories=["Cs"])))
def test_harmless_text_is_left_alone(text: str) -> None:
    assert visible(text) is text


def test_a_line_has_no_line_ends() -> None:
    assert visible_line("a\nb\tc\u2028d") == "a\\nb\\tc\\u2028d"


@given(st.text(st.characters(codec="utf-8")))
def test_json_keeps_its_value(text: str) -> None:
    assert json.loads(visible_json(json.dumps({"text": text}, ensure_ascii=False))) == {"text": text}
