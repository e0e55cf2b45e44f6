"""What a docstring says for a model to read: what the function does, and what each of its arguments is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = ["DocText", "doc_text"]

_ARGUMENTS: Final = ("args", "arguments", "parameters", "params", "keyword args", "keyword arguments")
_OTHERS: Final = ("returns", "return", "yields", "raises", "attributes", "example", "examples", "note", "notes")
_HEADING: Final = re.compile(rf"({'|'.join((*_ARGUMENTS, *_OTHERS))})(:?)\s*", re.IGNORECASE)
_UNDERLINE: Final = re.compile(r"-{3,}\s*")
_FIELD: Final = re.compile(
    r":(?:(?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?\*{0,2}(\w+)|\w[^:]*):\s*(.*)"
)
_ENTRY: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)")


class DocText(NamedTuple):
    """`summary` is what stands before the first section, None where nothing does; `arguments` by parameter name."""

    summary: str | None
    arguments: dict[str, str]


def doc_text(doc: str | None) -> DocText:
    """Read a docstring whose indentation was taken off (`inspect.getdoc`).

    The summary ends where a section begins: a heading of Google style (`Args:`) or of numpy style (underlined), or a
    field of Sphinx style (`:param name:`). Descriptions of arguments are read from Google's and Sphinx's.
    """
    lines = (doc or "").splitlines()
    began = next((place for place in range(len(lines)) if _begins_section(lines, place)), len(lines))
    summary = "\n".join(lines[:began]).strip()
    return DocText(summary or None, {name: text for name, text in _arguments(lines[began:]) if name and text})


def _begins_section(lines: list[str], place: int) -> bool:
    line = lines[place]
    if _FIELD.fullmatch(line):
        return True
    heading = _HEADING.fullmatch(line)
    if heading is None:
        return False
    below = lines[place + 1] if place + 1 < len(lines) else ""
    # A colon alone does not make a section of a sentence's last word: what belongs to it stands further in.
    return below.startswith((" ", "\t")) if heading[2] else _UNDERLINE.fullmatch(below) is not None


def _arguments(lines: list[str]) -> Iterator[tuple[str, str]]:
    name, words = "", list[str]()
    in_section, indent = False, 0
    for line in lines:
        text, depth = line.strip(), len(line) - len(line.lstrip())
        if not text:
            continue
        if depth == 0:
            yield name, " ".join(words)
            field = _FIELD.fullmatch(text)
            heading = _HEADING.fullmatch(text)
            in_section, indent = heading is not None and heading[1].lower() in _ARGUMENTS, 0
            name, words = (field[1] or "", [field[2]]) if field else ("", [])
        elif in_section and depth <= (indent or depth):
            yield name, " ".join(words)
            indent = depth
            entry = _ENTRY.fullmatch(text)
            name, words = (entry[1], [entry[2]]) if entry else ("", [])
        else:
            words.append(text)
    yield name, " ".join(words)
