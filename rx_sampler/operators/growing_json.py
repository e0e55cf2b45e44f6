"""JSON that is still being written: where its text stands, and what it says so far."""

from __future__ import annotations

import re
from typing import Final

from pydantic_core import from_json

__all__ = [
    "EAGER_CHARS",
    "GROWTH",
    "MISSING",
    "SHOWING_NOTHING",
    "GrowingJson",
    "in_short",
    "partial",
    "without_number",
]

MISSING: Final = object()
"""Stands for "nothing to read yet", which None, a JSON value, cannot."""

EAGER_CHARS: Final = 256
"""Up to this length a text is worth a look whenever it has grown."""
GROWTH: Final = 32
"""Beyond, when it has grown by one part in so many: all looks together read some `GROWTH + 1` times the text."""

_SHOWN_CHARS: Final = 80
"""How much of a value a repr shows."""

_SPACE: Final = " \t\n\r"
_NUMERALS: Final = "0123456789+.-"
SHOWING_NOTHING: Final = f"{_SPACE}{_NUMERALS}"
"""What shows nothing by itself, in most places."""
_IN_NUMBERS: Final = f"eE{_NUMERALS}"
_NO_MARKS: Final = bytes(set(range(256)) - set(b'"[]{}'))
_NEVER: Final = float("inf")

_STRING: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_BEGINNING: Final = re.compile(
    rf'[{_SPACE}]*+(?:"[^"\\]|(?:\[|\{{[{_SPACE}]*+{_STRING}[{_SPACE}]*+:)[{_SPACE}]*+'
    rf'(?:["\[{{]|true|false|null|[-0-9][{_IN_NUMBERS}]*+[^{_IN_NUMBERS}]))',
    re.DOTALL,
)
"""A text that says something: a character of a string, or a first item or member as far as it may be shown."""


def _without_escapes(text: str) -> str:
    """The text with something else, as long, for each backslash that is escaped and each quote that is."""
    return text.replace("\\\\", "..").replace('\\"', "..") if "\\" in text else text


def without_number(text: str) -> tuple[str, int]:
    """The text without a number that it ends in, of which more digits may come; and where the string began that the
    text ends in, -1 if it ends in none."""
    plain = _without_escapes(text)
    if plain.count('"') % 2:
        return text, plain.rindex('"')
    stem = text.rstrip(_IN_NUMBERS)
    return (text if text[len(stem) :] == "e" else stem), -1  # "e" ends `true` and `false`


def partial(text: str) -> object:
    """What a text says so far; MISSING where it says nothing, or what no JSON starts with."""
    if text[-1:] in _IN_NUMBERS:
        text, _ = without_number(text)
    try:
        return from_json(text, allow_partial="trailing-strings", allow_inf_nan=False)
    except ValueError:
        return MISSING


def in_short(value: object) -> str:
    """The repr of a value, shortened."""
    shown = repr(value)
    return shown if len(shown) <= _SHOWN_CHARS else f"{shown[:_SHOWN_CHARS]}..."


class GrowingJson:
    """The text of one JSON value, fed in pieces; nothing is parsed.

    Where it stands is found out when somebody asks, from the pieces that came since he last did.
    """

    __slots__ = (
        "_depth",
        "_followed",
        "_half",
        "_in_string",
        "_last",
        "_may_open",
        "_opener",
        "chars",
        "closer",
        "due",
        "is_over",
        "looked",
        "pieces",
        "says",
    )

    def __init__(self, may_open: str = '{["') -> None:
        # Who adds a piece appends it here and adds to `chars`: a call per piece would cost as much as all the rest.
        self.pieces: list[str] = []
        """Only ever added to."""
        self.chars = 0
        """How long they are, where somebody asks `is_time`."""
        self.looked = 0
        """How long they were when it was last time to look."""
        self.due: float = 0
        """How long they are when it is time again."""
        self.says = False
        """Whether it is known that the text says something."""
        self.is_over = False
        """Whether no more is worth a look: it has closed, or began with what it may not."""
        self._may_open = may_open
        self._followed = 0
        """How many of the pieces have been followed."""
        self._opener = ""
        self._last = ""
        """The first and the last character that are no white space."""
        self.closer = ""
        """What closes it; until its opener is known, what is in every piece."""
        self._depth = 0
        """How many more openers than closers there are outside of strings; other brackets need not be counted."""
        self._in_string = False
        self._half = ""
        """The backslash of an escape of which no more has come."""

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def closed(self) -> bool:
        """Whether an object or array is closed if it is JSON at all, and nothing but white space stands behind it."""
        self._follow()
        return self._depth == 0 and not self._in_string and self._last == self.closer != ""

    @property
    def is_unseen(self) -> bool:
        """Whether what came since it was last time to look would be worth a look."""
        return self.looked < self.chars and not self.is_over and self.says_something()

    def says_something(self) -> bool:
        """Whether there is more to show than nothing, an empty string, object or array, if it is JSON at all."""
        if not self.says:
            self.says = _BEGINNING.match(self.text) is not None
        return self.says

    def is_time(self, piece: str) -> bool:
        """Whether it is time to look at the text, after its last piece was added.

        That is: an object or array has just closed; or it says something, is short or has grown enough, and the piece
        can have changed what it says. White space and digits come with the piece after them: most show nothing.
        Need not be asked before `due` of a piece without `closer`.
        """
        if self.closer in piece and self.ends_with(piece):
            return True
        if self.chars < self.due:
            return False
        if self.chars >= EAGER_CHARS:
            self.due = self.chars + self.chars // GROWTH
        elif not piece.strip(SHOWING_NOTHING):
            return False
        if not self.says and not self.says_something():
            return False
        self.looked = self.chars
        return True

    def ends_with(self, piece: str) -> bool:
        """Whether an object or array has closed for the first time with the last piece."""
        if not self._opener:
            self._follow()
        if self.is_over or piece.rstrip(_SPACE)[-1:] != self.closer or not self.closed:
            return False
        self._end()
        return True

    def _end(self) -> None:
        self.is_over = True
        self.due = _NEVER

    def _follow(self) -> None:
        if self._followed == len(self.pieces):
            return
        text = "".join(self.pieces[self._followed :])
        self._followed = len(self.pieces)
        if not self._opener and (begun := text.lstrip(_SPACE)):
            self._opener = begun[0]
            self.closer = "]" if self._opener == "[" else "}"
            if self._opener not in self._may_open:
                self._end()
        plain = _without_escapes(self._half + text)
        self._half = "\\" if plain[-1:] == "\\" else ""
        # Of quotes and brackets alone, pairs of quotes can go: an even number of them stands before the same brackets.
        marks = plain.encode(errors="replace").translate(None, _NO_MARKS).replace(b'""', b"").decode().split('"')
        outside = "".join(marks[self._in_string :: 2])
        if self.closer:
            self._depth += outside.count("[" if self.closer == "]" else "{") - outside.count(self.closer)
        self._in_string ^= len(marks) % 2 == 0
        if tail := text.rstrip(_SPACE):
            self._last = tail[-1]
