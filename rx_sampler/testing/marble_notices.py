"""What a diagram stands for: what an observer is told, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rx_sampler.events import SamplingEvent

from .made import Drawing, Template
from .marble_report import Notice
from .marble_syntax import Diagram, Mark, is_letter, pointed, read_diagram
from .marble_time import seconds_at

__all__ = ["Error", "MarbleError", "Templates", "event_notices", "notices_of", "read_cold"]

Error = Exception | type[Exception] | None
Templates = Mapping[str, Template | SamplingEvent]


class MarbleError(Exception):
    """What `#` stands for where no other error is given."""


def read_cold(diagram: str) -> Diagram:
    """The marks of a cold diagram, which has no `^`. Raises ValueError that points at what cannot be read."""
    found = read_diagram(diagram)
    if found.subscribed is not None:
        raise pointed(diagram, diagram.index("^"), "^ belongs into a hot diagram; a cold one begins when subscribed to")
    return found


def notices_of(diagram: str, found: Diagram, values: Mapping[str, Any] | None, error: Error) -> list[Notice]:
    """What `found`, which is `diagram` read, tells of `values`. ValueError for names that no letter can be."""
    values = values or {}
    for name in values:
        if not is_letter(name):
            raise ValueError(f"{name!r} names no value: a name is one character, and none of - ( ) ^ ! | #")
    return [
        _notice(mark, values.get(mark.letter, mark.letter), error) for mark in _with_error(diagram, found.marks, error)
    ]


def event_notices(
    diagram: str, found: Diagram, templates: Templates | None, request_id: str, error: Error, zero_us: int = 0
) -> list[Notice]:
    """What it tells of sampling events, whose times count from `zero_us`. ValueError for an `F` without its token."""
    zero = zero_us / 1000
    begun_at = seconds_at(zero - (found.subscribed or 0))
    drawing = Drawing(templates or {}, request_id=request_id, begun_at=begun_at)
    notices: list[Notice] = []
    marks = _with_error(diagram, found.marks, error)
    for mark, after in zip(marks, [*marks[1:], None], strict=True):
        value = None
        if mark.kind == "next":
            following = after.letter if after is not None and after.kind == "next" else None
            try:
                value = drawing.event(mark.letter, seconds_at(zero + mark.frame), following)
            except ValueError as wrong:
                raise pointed(diagram, mark.place, str(wrong)) from wrong
        notices.append(_notice(mark, value, error))
    return notices


def _with_error(diagram: str, marks: Sequence[Mark], error: Error) -> Sequence[Mark]:
    if error is not None and not any(mark.kind == "error" for mark in marks):
        raise ValueError(f"error is given, but {diagram!r} has no # to stand for it")
    return marks


def _notice(mark: Mark, value: object, error: Error) -> Notice:
    if mark.kind == "next":
        return Notice(mark.frame, "next", value, mark.letter)
    if mark.kind == "error":
        return Notice(mark.frame, "error", MarbleError() if error is None else error)
    return Notice(mark.frame, "completed")
