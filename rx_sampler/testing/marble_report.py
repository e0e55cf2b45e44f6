"""Where what came differs from what was expected, in diagrams and words."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import takewhile
from typing import Any, Final, cast

from pydantic import BaseModel

from rx_sampler.errors import SamplingError

from .marble_syntax import Mark, MarkKind, drawn_marks, is_letter

__all__ = ["Notice", "difference", "same_error", "unlike_part"]

_SHOWN_CHARS: Final = 300
_LETTERS: Final = string.ascii_lowercase + string.ascii_uppercase + string.digits
_MISSING: Final = "nothing"


@dataclass(frozen=True, slots=True)
class Notice:
    """What an observer was told, and when: milliseconds from time zero."""

    at_ms: float
    kind: MarkKind
    value: Any = None
    letter: str = field(default="", compare=False, repr=False)
    """What a diagram calls the value."""

    def __str__(self) -> str:
        what = {"next": f"value {shown(self.value)}", "error": f"error {shown(self.value)}"}
        return f"{what.get(self.kind, 'completion')} at {self.at_ms:g} ms"


def difference(expected: Sequence[Notice], seen: Sequence[Notice], letters: Mapping[str, Any]) -> str | None:
    """What is different, if something is: the first of it in words, then both in diagrams and what the letters mean."""
    place = next((at for at, pair in enumerate(zip(expected, seen, strict=False)) if not _same(*pair)), None)
    if place is None:
        if len(expected) == len(seen):
            return None
        place = min(len(expected), len(seen))
    one = expected[place] if place < len(expected) else None
    other = seen[place] if place < len(seen) else None
    words = f"expected {one or 'nothing more'}; found {other or 'nothing more'}"
    if (
        one is not None
        and other is not None
        and one.kind == other.kind
        and (part := unlike_part(one.value, other.value))
    ):
        words += f"\nin {part}"
    names = _Names(expected, letters)
    rows = [names.row("expected", expected), names.row("found", seen)]
    return "\n".join([words, *rows, *names.legend()])


def _same(one: Notice, other: Notice) -> bool:
    if (one.at_ms, one.kind) != (other.at_ms, other.kind):
        return False
    return same_error(one.value, other.value) if one.kind == "error" else bool(one.value == other.value)


def same_error(expected: object, found: object) -> bool:
    """Whether the errors are of one type and say the same; a type is like any error of it."""
    if isinstance(expected, type):
        return isinstance(found, expected)
    if type(expected) is not type(found):
        return False
    if isinstance(expected, SamplingError) and isinstance(found, SamplingError):
        return expected.info == found.info
    return isinstance(expected, Exception) and isinstance(found, Exception) and _content(expected) == _content(found)


def _content(error: Exception) -> tuple[object, ...]:
    """What an error says: its arguments, its words, and what it was given besides."""
    own = {name: value for name, value in vars(error).items() if name != "__notes__"}
    return error.args, str(error), own


def unlike_part(expected: object, found: object) -> str:
    """Which part of two values of one class differs, where they have parts: `.text: expected 'a', found 'b'`."""
    path, one, other = _descend("", expected, found)
    if not path:
        return ""
    if isinstance(one, str) and isinstance(other, str):
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
        if max(len(one), len(other)) > _SHOWN_CHARS and same:
            path, one, other = f"{path}[{same}:]", one[same:], other[same:]
    return f"{path}: expected {shown(one)}, found {shown(other)}"


def _descend(path: str, expected: object, found: object) -> tuple[str, object, object]:
    if type(expected) is type(found):
        mine, yours = _parts(expected), _parts(found)
        for name in dict.fromkeys([*mine, *yours]):
            if name not in mine or name not in yours:
                return path + name, mine.get(name, _MISSING), yours.get(name, _MISSING)
            if mine[name] != yours[name]:
                return _descend(path + name, mine[name], yours[name])
    return path, expected, found


def _parts(value: object) -> dict[str, object]:
    if isinstance(value, SamplingError):
        return {".info": value.info}
    if isinstance(value, BaseModel):
        return {f".{name}": getattr(value, name) for name in type(value).model_fields}
    if is_dataclass(value) and not isinstance(value, type):
        return {f".{one.name}": getattr(value, one.name) for one in fields(value) if one.compare}
    if isinstance(value, dict):
        return {f"[{key!r}]": part for key, part in cast("dict[object, object]", value).items()}
    names: Sequence[str] | None = getattr(value, "_fields", None)  # of a NamedTuple
    if isinstance(value, list | tuple):
        parts: Sequence[object] = cast("Any", value)
        return {f"[{at}]" if names is None else f".{names[at]}": part for at, part in enumerate(parts)}
    return {}


class _Names:
    """Letters for values, the same for equal ones."""

    def __init__(self, expected: Sequence[Notice], letters: Mapping[str, Any]) -> None:
        self._named = [*letters.items(), *((one.letter, one.value) for one in expected if one.letter)]
        self._used: list[tuple[str, Any]] = []

    def row(self, title: str, notices: Sequence[Notice]) -> str:
        marks = [Mark(int(one.at_ms), one.kind, self._letter(one) if one.kind == "next" else "") for one in notices]
        whole = all(one.at_ms == int(one.at_ms) for one in notices)
        diagram = drawn_marks(marks) if whole else None
        if diagram is None:  # what no diagram can show
            diagram = ", ".join(
                f"{mark.letter or mark.kind} {one.at_ms:g} ms" for mark, one in zip(marks, notices, strict=True)
            )
        return f"{title:9s} {diagram}".rstrip()

    def legend(self) -> list[str]:
        return [
            f"  {letter} = {shown(value)}"
            for letter, value in self._used
            if not (isinstance(value, str) and value == letter)
        ]

    def _letter(self, notice: Notice) -> str:
        letter = notice.letter or self._known(notice.value) or self._new(notice.value)
        if not any(used == letter and _equal(value, notice.value) for used, value in self._used):
            self._used.append((letter, notice.value))
        return letter

    def _known(self, value: Any) -> str | None:
        return next((letter for letter, known in self._named if _equal(known, value)), None)

    def _new(self, value: Any) -> str:
        taken = {letter for letter, _ in self._named}
        if isinstance(value, str) and is_letter(value) and value not in taken:
            letter = value
        else:
            letter = next((one for one in _LETTERS if one not in taken), "?")
        self._named.append((letter, value))
        return letter


def _equal(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def shown(value: Any) -> str:
    """The value's repr, cut where it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}... ({len(text)} characters)"
