"""Which stream a piece goes to, and when it is coloured."""

import io

import pytest

from rx_sampler.cli.output import Output
from rx_sampler.cli.render import Piece

PIECES = [
    Piece("answer", "text", "[bold]answer[/bold]\n"),
    Piece("aside", "reasoning", "aside [dim]\n"),
    Piece("note", "error", "note\n"),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]  # pytest calls it
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def test_a_pipe_gets_the_answer_alone() -> None:
    out, err = io.StringIO(), io.StringIO()
    Output(out, err).write(PIECES)
    assert out.getvalue() == "[bold]answer[/bold]\n"
    assert err.getvalue() == "aside [dim]\nnote\n"


def test_a_terminal_gets_answer_and_asides() -> None:
    out, err = Terminal(), io.StringIO()
    Output(out, err).write(PIECES)
    # SGR 2 is faint, SGR 0 resets (ECMA-48, 8.3.117)
    assert out.getvalue() == "[bold]answer[/bold]\n\x1b[2maside [dim]\n\x1b[0m"
    assert err.getvalue() == "note\n"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_no_colour_means_no_escape_at_all(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    out, err = Terminal(), Terminal()
    Output(out, err).write(PIECES)
    assert "\x1b" not in out.getvalue() + err.getvalue()


def test_forced_colour_reaches_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    out, err = io.StringIO(), io.StringIO()
    Output(out, err).write(PIECES)
    assert out.getvalue() == "[bold]answer[/bold]\n"
    assert "\x1b[" in err.getvalue()


def test_a_character_that_the_locale_lacks_is_shown_escaped() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    Output(out, io.StringIO()).write([Piece("answer", "text", "né")])
    assert raw.getvalue() == b"n\\xe9"
