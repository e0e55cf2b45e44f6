"""Marble diagrams as RxJS writes them, read and drawn. A frame is a millisecond."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, Literal

__all__ = [
    "Diagram",
    "Mark",
    "MarkKind",
    "drawn_marks",
    "drawn_subscription",
    "is_letter",
    "pointed",
    "read_diagram",
    "read_subscription",
]

MarkKind = Literal["next", "completed", "error"]

_NUMBER: Final = r"([0-9]+(?:\.[0-9]+)?)"
_TIME: Final = re.compile(_NUMBER + r"(ms|s|m)(?=\s|$)")
_TIME_NOT_SET_OFF: Final = re.compile(_NUMBER + "ms")
_FRAMES: Final = {"ms": 1, "s": 1_000, "m": 60_000}
_SIGNS: Final[dict[str, MarkKind]] = {"|": "completed", "#": "error"}
_RESERVED: Final = frozenset("-()^!|#")
_MOST_DASHES: Final = 40


@dataclass(frozen=True, slots=True)
class Mark:
    """What a diagram shows at one place: a value by its letter, or an end."""

    frame: int
    kind: MarkKind
    letter: str = ""
    place: int = field(default=0, compare=False, repr=False)
    """Where it stands in the text."""


@dataclass(frozen=True, slots=True)
class Diagram:
    """A diagram read: its marks in order; frames count from `^` where there is one, else from its beginning."""

    marks: tuple[Mark, ...]
    subscribed: int | None = None
    """The frame of `^`, from the beginning."""
    unsubscribed: int | None = None


def read_diagram(text: str) -> Diagram:
    """The marks of a diagram of values. Raises ValueError that points at what cannot be read."""
    reader = _Reader(text, "values")
    reader.read()
    zero = reader.subscribed or 0
    marks = tuple(Mark(mark.frame - zero, mark.kind, mark.letter, mark.place) for mark in reader.marks)
    return Diagram(marks, reader.subscribed)


def read_subscription(text: str) -> Diagram:
    """When a subscription begins (`^`) and ends (`!`); None for what is not drawn. Raises ValueError likewise."""
    reader = _Reader(text, "subscription")
    reader.read()
    begun, ended = reader.subscribed, reader.unsubscribed
    if begun is not None and ended is not None and ended < begun:
        raise pointed(text, text.index("!"), "it ends before it begins; put ^ before !")
    return Diagram((), begun, ended)


def pointed(text: str, place: int, why: str) -> ValueError:
    """An error that shows where in `text` something is wrong."""
    line = "".join(" " if letter.isspace() else letter for letter in text)
    return ValueError(f"{why}\n  {line}\n  {' ' * place}^")


class _Reader:
    def __init__(self, text: str, what: Literal["values", "subscription"]) -> None:
        self._text = text
        self._what = what
        self._place = 0
        self._frame = 0
        self._group: int | None = None
        """The frame of the group that is open."""
        self._ended = False
        self.marks: list[Mark] = []
        self.subscribed: int | None = None
        self.unsubscribed: int | None = None

    def read(self) -> None:
        text = self._text
        while self._place < len(text):
            letter = text[self._place]
            if letter.isspace():
                self._place += 1
            elif self._is_set_off() and (time := _TIME.match(text, self._place)):
                self._pass(time)
            else:
                self._one(letter)
                self._frame += 1
                self._place += 1
        if self._group is not None:
            raise self._wrong("the group ( is not closed; write ) behind it")

    def _is_set_off(self) -> bool:
        return self._place == 0 or self._text[self._place - 1].isspace()

    def _pass(self, time: re.Match[str]) -> None:
        if self._group is not None:
            raise self._wrong("no time passes inside a group; close it with ) first")
        frames = Fraction(time[1]) * _FRAMES[time[2]]
        if frames.denominator != 1:
            raise self._wrong(f"{time[0]} is no whole number of milliseconds, which are the frames")
        self._frame += int(frames)
        self._place = time.end()

    def _one(self, letter: str) -> None:
        now = self._frame if self._group is None else self._group
        if letter == "-":
            if self._group is not None:
                raise self._wrong("no time passes inside a group; close it with ) first")
        elif letter == "(":
            if self._group is not None:
                raise self._wrong("groups cannot be nested; close the first with )")
            self._group = self._frame
        elif letter == ")":
            if self._group is None:
                raise self._wrong("no group is open; write ( before it")
            self._group = None
        elif letter == "^":
            if self.subscribed is not None:
                raise self._wrong("there is a ^ already; a diagram has one")
            self.subscribed = now
        elif letter == "!":
            if self._what == "values":
                raise self._wrong("! belongs into the diagram of a subscription, given as until=")
            if self.unsubscribed is not None:
                raise self._wrong("there is a ! already; a diagram has one")
            self.unsubscribed = now
        else:
            self._mark(now, letter)

    def _mark(self, now: int, letter: str) -> None:
        if self._what == "subscription":
            raise self._wrong("a subscription has ^, !, - and times, no values")
        # RxJS reads letters here; nobody means them.
        if self._group is None and (time := _TIME_NOT_SET_OFF.match(self._text, self._place)):
            raise self._wrong(f"a time is set off by spaces: ' {time[0]} '; letters that look like one, by spaces too")
        if self._ended:
            raise self._wrong("nothing follows | or #")
        kind = _SIGNS.get(letter, "next")
        self._ended = kind != "next"
        self.marks.append(Mark(now, kind, letter if kind == "next" else "", self._place))

    def _wrong(self, why: str) -> ValueError:
        return pointed(self._text, self._place, why)


def drawn_marks(marks: Sequence[Mark]) -> str | None:
    """The diagram that shows these marks; None if no diagram can, because a group would cover the marks behind it."""
    out: list[str] = []
    frame = 0
    for at in dict.fromkeys(mark.frame for mark in marks):
        if at < frame:
            return None
        signs = "".join(_sign(mark) for mark in marks if mark.frame == at)
        group = signs if len(signs) == 1 else f"({signs})"
        # `1m` would be a minute, `1 m` is two letters.
        between = " " if out and out[-1][-1:].isdigit() and group in ("m", "s") else ""
        out += [part for part in (_gap(at - frame), between + group) if part]
        frame = at + len(group)
    return "".join(out).strip()


def drawn_subscription(subscribed: int, unsubscribed: int | None = None) -> str:
    """The diagram of a subscription."""
    if unsubscribed == subscribed:
        return f"{_gap(subscribed)}(^!)".strip()
    end = "" if unsubscribed is None else f"{_gap(unsubscribed - subscribed - 1)}!"
    return f"{_gap(subscribed)}^{end}".strip()


def _gap(frames: int) -> str:
    return "-" * frames if frames <= _MOST_DASHES else f" {frames}ms "


def _sign(mark: Mark) -> str:
    return {"completed": "|", "error": "#"}.get(mark.kind, mark.letter)


def is_letter(text: str) -> bool:
    """Whether `text` can name a value in a diagram."""
    return len(text) == 1 and text not in _RESERVED and not text.isspace()
