"""Request bodies as plain objects: reading them leniently, writing answers as providers do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NoReturn, cast

__all__ = ["JsonObject", "all_strings", "as_list", "as_object", "as_text", "dumps", "objects_in", "read_object"]

JsonObject = dict[str, Any]


def read_object(raw: bytes) -> JsonObject | None:
    """The JSON object that the bytes are; None for anything else (other JSON, NaN, nesting that Python cannot hold)."""
    try:
        return as_object(json.loads(raw, parse_constant=_refuse_constant))
    except (ValueError, RecursionError):
        return None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def dumps(value: object) -> str:
    """Compact JSON in insertion order, characters as they are; a lone surrogate, which UTF-8 cannot carry, is `?`."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def as_object(value: object) -> JsonObject | None:
    """The value if it is an object; JSON's keys are strings, which the type checker cannot know."""
    return cast("JsonObject", value) if isinstance(value, dict) else None


def as_list(value: object) -> list[Any] | None:
    """The value if it is an array."""
    return cast("list[Any]", value) if isinstance(value, list) else None


def as_text(value: object) -> str | None:
    """The value if it is a string."""
    return value if isinstance(value, str) else None


def objects_in(value: object) -> list[JsonObject]:
    """The objects of an array; [] for anything that is none."""
    return [entry for entry in map(as_object, as_list(value) or ()) if entry is not None]


def all_strings(value: object) -> Iterator[str]:
    """Every string value below `value`, keys not counted; not recursive, so depth costs nothing."""
    pending: list[object] = [value]
    while pending:
        here = pending.pop()
        if isinstance(here, str):
            yield here
        elif (entries := as_list(here)) is not None:
            pending.extend(entries)
        elif (members := as_object(here)) is not None:
            pending.extend(members.values())
