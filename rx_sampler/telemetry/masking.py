"""Content kept out of what should hold none: quotations in error messages, and images inside of content.

Servers quote what they complain about: FastAPI's 422, for one, echoes the body that it could not validate. A log
that promises to hold no content has to take such quotations out again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, cast

from pydantic import BaseModel

__all__ = ["masked", "texts_of", "with_short_images"]

MASK: Final = "[...]"

_BLOCK_CHARS: Final = 16
"""Any passage of twice this length holds one whole block, wherever it starts; shorter ones are everyday words."""

_SHORTEST_WHOLE_TEXT_CHARS: Final = 8

_NAMES: Final = frozenset({"type", "id", "call_id", "tool_call_id", "name"})
"""Fields that tell items apart; nobody's words."""

_IMAGE_START_CHARS: Final = 256
"""Enough of a `data:` URI to recognise it in a message; the rest would be searched for nothing."""

_DATA_URI: Final = re.compile(r"(data:[\w.+/;=-]{0,128},)([^\s\"'<>()]+)")


def masked(message: str, texts: Iterable[str]) -> str:
    """`message` with `[...]` for what it quotes of `texts`.

    A quotation is a whole text of 8 characters or more, or a passage of one. Every passage of 31 characters is found,
    none of fewer than 16. Cost: some thirty substring searches per text, for a message of 500 characters.
    """
    spans: list[tuple[int, int]] = []
    for text in texts:
        spans.extend(_quotations(message, text))
    pieces: list[str] = []
    end = 0
    for start, stop in sorted(spans):
        if start >= end:
            pieces += (message[end:start], MASK)
        end = max(end, stop)
    return "".join((*pieces, message[end:]))


def _quotations(message: str, text: str) -> Iterator[tuple[int, int]]:
    if _SHORTEST_WHOLE_TEXT_CHARS <= len(text) <= len(message):
        start = message.find(text)
        while start >= 0:
            yield start, start + len(text)
            start = message.find(text, start + len(text))
    if len(text) < _BLOCK_CHARS:
        return
    start = 0
    while start + _BLOCK_CHARS <= len(message):
        stop = start + _BLOCK_CHARS
        if message[start:stop] in text:
            before, after = _extent(message, start, stop, text)
            yield start - before, stop + after
            start += after // _BLOCK_CHARS * _BLOCK_CHARS
        start += _BLOCK_CHARS


def _extent(message: str, start: int, stop: int, text: str) -> tuple[int, int]:
    """How many characters more, before and after, `text` shares with the message."""
    before = _furthest(start, lambda more: message[start - more : stop] in text)
    return before, _furthest(len(message) - stop, lambda more: message[start : stop + more] in text)


def _furthest(most: int, holds: Callable[[int], bool]) -> int:
    """The greatest number up to `most` for which `holds`, which holds for 0 and stops holding once."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def texts_of(value: object) -> Iterator[str]:
    """Every text inside items of a conversation, names and ids aside; of a `data:` URI its start."""
    if isinstance(value, str):
        yield value[:_IMAGE_START_CHARS] if value.startswith("data:") else value
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            if name not in _NAMES:
                yield from texts_of(getattr(value, name))
    elif isinstance(value, Mapping):
        for name, inner in cast("Mapping[object, object]", value).items():  # JSON: what is inside is looked at next
            if name not in _NAMES:
                yield from texts_of(inner)
    elif isinstance(value, Sequence):
        for inner in cast("Sequence[object]", value):
            yield from texts_of(inner)


def with_short_images(value: object) -> object:
    """JSON with every `data:` URI cut to its head and the number of its characters."""
    if isinstance(value, str):
        return _DATA_URI.sub(_shortened, value) if "data:" in value else value
    if isinstance(value, dict):
        return {name: with_short_images(inner) for name, inner in cast("dict[str, object]", value).items()}
    if isinstance(value, list | tuple):
        return [with_short_images(inner) for inner in cast("Sequence[object]", value)]
    return value


def _shortened(uri: re.Match[str]) -> str:
    return f"{uri[1]}...({len(uri[2])} characters)"
