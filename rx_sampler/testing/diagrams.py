"""The marble diagram of a docstring, to be the diagram of a test."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, Final

__all__ = ["diagram_of"]

_ROW: Final = re.compile(r"( *)(\w+)  +(\S.*)")
_INDENT: Final = 4


def diagram_of(function: Callable[..., Any]) -> dict[str, str]:
    """The rows of the first marble diagram in the function's docstring: name and marbles.

        source  -a-b-|
        text    -x-y-|

    A diagram is a run of indented lines, each a name, two spaces or more, and marbles. Raises ValueError if there is
    none, or if two rows have one name.
    """
    rows: dict[str, str] = {}
    lines = (inspect.getdoc(function) or "").splitlines()
    # Where a docstring has nothing else below its first line, its cleaned form has lost the indentation.
    matches = [_ROW.fullmatch(line) for line in lines[1:] if line.strip()]
    indent = 0 if all(row is not None and not row[1] for row in matches) else _INDENT
    for line in lines[1:]:
        row = _ROW.fullmatch(line.rstrip())
        if row is not None and len(row[1]) >= indent:
            if row[2] in rows:
                raise ValueError(f"the diagram in the docstring of {_name(function)} has two rows {row[2]!r}")
            rows[row[2]] = row[3]
        elif rows:
            break
    if not rows:
        raise ValueError(f"the docstring of {_name(function)} has no marble diagram")
    return rows


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))
