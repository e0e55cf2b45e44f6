"""JSON that is still being written: where its text stands, and what it says so far."""

from __future__ import annotations

import re
from typing import Final

from pydantic_core import from_json

__all__ = ["MISSING", "GrowingJson"]

MISSING: Final = object()
"""Stands for "nothing to read yet", which None, a JSON value, cannot."""

EAGER_CHARS: Final = 256
"""Up to this length a text is parsed whenever it has grown."""
GROWTH: Final = 32
"""Beyond, when it has grown by one part in so many: all parses together read some `GROWTH + 1` times the text."""

_SPACE: Final = " \t\n\r"
_MAY_CLOSE: Final = frozenset(("", *"}]", *_SPACE))
_IN_NUMBERS: Final = "0123456789+-.eE"
_IN_STRING: Final = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
"""What a string holds, up to its end or to a lone backslash."""
_MARK: Final = re.compile(rf'[{{}}\[\]]|"{_IN_STRING.pattern}(?:"|\\?\Z)', re.DOTALL)
"""A bracket, or a string as far as it goes."""


class GrowingJson:
    """The text of one JSON value, fed in pieces.

    Where it stands is found out when somebody asks, from the pieces that came since he last did.
    """

    __slots__ = (
        "_depth",
        "_followed",
        "_followed_chars",
        "_in_string",
        "_is_escaped",
        "_last",
        "_new_chars",
        "_opener",
        "_parsed_chars",
        "_pieces",
        "_string_began",
        "add",
    )

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self.add = self._pieces.append
        """Take the next piece, where nobody cares when it is time to parse."""
        self._followed = 0
        """How many of the pieces have been looked at; 0 also where it is a part of the first."""
        self._followed_chars = 0
        self._opener = ""
        self._last = ""
        """The first and the last character that are no white space."""
        self._depth = 0
        self._in_string = False
        self._string_began = 0
        self._is_escaped = False
        self._parsed_chars = 0
        self._new_chars = 0

    @property
    def text(self) -> str:
        if len(self._pieces) > 1:
            self._followed = 1 if self._followed == len(self._pieces) else 0
            self._pieces[:] = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    @property
    def in_string(self) -> bool:
        """Whether the text ends inside a string."""
        self._follow()
        return self._in_string

    @property
    def string_began(self) -> int:
        """Where the string began that it ends in."""
        self._follow()
        return self._string_began

    @property
    def closed(self) -> bool:
        """Whether an object or array is closed, and nothing but white space stands behind it."""
        if self._pieces and self._pieces[-1][-1:] not in _MAY_CLOSE:
            return False
        self._follow()
        return self._depth == 0 and self._last in ("}", "]") and self._opener in "{[" and not self._in_string

    @property
    def is_object(self) -> bool:
        """Whether it is an object if it is JSON at all."""
        self._follow()
        return self._opener == "{"

    def feed(self, piece: str) -> bool:
        """Take the next piece; whether it is time to parse: the text is short, has grown enough, or is all there is."""
        self._pieces.append(piece)
        new = self._new_chars = self._new_chars + len(piece)
        if new * GROWTH >= self._parsed_chars or new + self._parsed_chars <= EAGER_CHARS:
            return True
        return ("}" in piece or "]" in piece) and self.closed

    def prefix(self) -> str:
        """The text without a number that it ends in, of which more digits may come; notes that it is parsed."""
        text = self.text
        self._parsed_chars, self._new_chars = len(text), 0
        stem = text.rstrip(_IN_NUMBERS)
        if len(stem) == len(text) or text[len(stem) :] == "e" or self.in_string:  # "e" ends `true` and `false`
            return text
        return stem

    def partial(self) -> object:
        """What the text says so far; MISSING where it says nothing, or what no JSON starts with."""
        try:
            return from_json(self.prefix(), allow_partial="trailing-strings", allow_inf_nan=False)
        except ValueError:
            return MISSING

    def _follow(self) -> None:
        if self._followed == len(self._pieces):
            return
        if self._followed:
            text = "".join(self._pieces[self._followed :])
        else:
            text = "".join([self._pieces[0][self._followed_chars :], *self._pieces[1:]])
        self._followed = len(self._pieces)
        if not text:
            return
        if stripped := text.strip(_SPACE):
            self._opener = self._opener or stripped[0]
            self._last = stripped[-1]
        at, end = 0, len(text)
        before = self._followed_chars
        self._followed_chars += end
        if self._is_escaped:
            self._is_escaped, at = False, 1
        if self._in_string:
            at = _end_of_string(text, at)
            self._in_string = text[at : at + 1] != '"'
            self._is_escaped = self._in_string and at < end
            at += 1
        marks = _MARK.findall(text, at)
        if not marks:
            return
        self._depth += marks.count("{") + marks.count("[") - marks.count("}") - marks.count("]")
        string = marks[-1]
        if string[0] == '"':
            inside = _end_of_string(string, 1)
            if string[inside:] != '"':
                self._in_string, self._string_began = True, before + end - len(string)
                self._is_escaped = inside < len(string)


def _end_of_string(text: str, at: int) -> int:
    """Where the string ends that `text[at:]` lies in: at its quote, a lone backslash, or the end of the text."""
    inside = _IN_STRING.match(text, at)
    return inside.end() if inside is not None else at
