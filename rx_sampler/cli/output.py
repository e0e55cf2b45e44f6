"""Where pieces go: stdout and stderr, with colour where a terminal shows it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from io import TextIOWrapper
from typing import TYPE_CHECKING, TextIO

from .options import UnusableError
from .render import Piece, StyleName

if TYPE_CHECKING:
    from rich.color import ColorSystem
    from rich.style import Style

__all__ = ["Output"]

_STYLES: Mapping[StyleName, str] = {
    "text": "",
    "reasoning": "dim",
    "refusal": "yellow",
    "tool": "cyan",
    "label": "dim bold",
    "summary": "dim",
    "warning": "yellow",
    "error": "bold red",
}


class Output:
    """Writes pieces: the answer to `stdout`, notes to `stderr`, asides to stdout only if that is a terminal.

    So `... > file` leaves the answer alone in the file. Every write is flushed: a token is seen when it comes. Styles
    are put around each piece and follow `NO_COLOR`, `FORCE_COLOR` and `TERM` as rich reads them; text is written as
    it is, never parsed as markup, wrapped or aligned. Raises BrokenPipeError when the reader is gone, `UnusableError`
    when the output cannot be written for another reason, such as a full disk.
    """

    def __init__(self, stdout: TextIO | None = None, stderr: TextIO | None = None):
        self._stdout = stdout or sys.stdout
        self._stderr = stderr or sys.stderr
        self.interleaved: bool = self._stdout.isatty()
        """Whether answer and asides share one stream."""
        for stream in (self._stdout, self._stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # a token that the locale lacks must not end the answer
        self._colours = {stream: _colour_system(stream) for stream in (self._stdout, self._stderr)}
        self._styles = _parsed_styles() if any(self._colours.values()) else {}

    def write(self, pieces: Iterable[Piece]) -> None:
        """Write and flush the pieces, in order."""
        for piece in pieces:
            here = piece.sink == "answer" or (piece.sink == "aside" and self.interleaved)
            stream = self._stdout if here else self._stderr
            try:
                stream.write(self._styled(piece, stream))
                stream.flush()
            except OSError as error:
                _silence(stream)
                if isinstance(error, BrokenPipeError):
                    raise
                raise UnusableError(f"the output cannot be written: {error.strerror}") from error

    def note(self, text: str, style: StyleName = "summary") -> None:
        """Write one line about the run."""
        self.write([Piece("note", style, f"{text}\n")])

    def _styled(self, piece: Piece, stream: TextIO) -> str:
        colours = self._colours[stream]
        style = self._styles.get(piece.style)
        if colours is None or not style:
            return piece.text
        return style.render(piece.text, color_system=colours)


def _colour_system(stream: TextIO) -> ColorSystem | None:
    if not (stream.isatty() or os.environ.get("FORCE_COLOR")):
        return None  # without importing rich, which takes longer than a local model's first token
    from rich.color import ColorSystem
    from rich.console import Console

    console = Console(file=stream)
    if console.no_color or console.legacy_windows or console.color_system is None:
        return None
    names = {"standard": ColorSystem.STANDARD, "256": ColorSystem.EIGHT_BIT, "truecolor": ColorSystem.TRUECOLOR}
    return names.get(console.color_system)


def _parsed_styles() -> dict[StyleName, Style]:
    from rich.style import Style

    return {name: Style.parse(definition) for name, definition in _STYLES.items() if definition}


def _silence(stream: TextIO) -> None:
    """Let what is left of a stream go nowhere, so that the interpreter's last flush does not fail over it again."""
    with suppress(OSError, ValueError):  # a stream without a descriptor has no such end
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, stream.fileno())
        os.close(devnull)
