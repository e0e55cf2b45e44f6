"""The second road into a chunk: plain JSON, fields looked up one by one.

Frames are validated by pydantic, which is fast and exact. What does not fit (invalid UTF-8, half surrogate pairs, a
number where a string belongs) comes here before it may fail a stream: `fitter` makes, from the same `TypedDict`,
a function that keeps each field whose value can be understood and drops the others.
"""

from __future__ import annotations

import json
import math
import re
import types
from collections.abc import Callable
from typing import Any, Final, Union, cast, get_args, get_origin, get_type_hints

from typing_extensions import is_typeddict

from rx_sampler.conversation import JsonObject

__all__ = ["MISSING", "as_int", "as_list", "as_object", "fitter", "parse"]


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()
Fit = Callable[[object], object]


def parse(data: bytes) -> object:
    """JSON as Python's own parser reads it: U+FFFD for invalid UTF-8, null for NaN and Infinity.

    Half surrogate pairs stay where deltas stream, since the other half may come in the next; anywhere else they become
    U+FFFD. Raises ValueError for anything that is no JSON, absurd nesting included.
    """
    try:
        document: object = json.loads(data.decode("utf-8", "replace"), parse_constant=lambda _name: None)
        return _sound(document, _TOP)
    except RecursionError:
        raise ValueError("nested too deeply") from None


_TOP: Final = frozenset({"delta"})
_IN_DELTA: Final = frozenset(
    {"content", "text", "thinking", "partial_json", "reasoning_content", "reasoning", "refusal"}
)
_BELOW: Final = {"delta": _IN_DELTA, "function": frozenset({"arguments"})}
_HALF_PAIR: Final = re.compile("[\ud800-\udfff]")


def _sound(value: object, streams: frozenset[str]) -> object:
    """`value` with every text whole and every number finite; texts under the keys `streams` stay as they are."""
    if isinstance(value, str):
        return value if value.isascii() else _HALF_PAIR.sub("\ufffd", value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_sound(entry, frozenset()) for entry in cast("list[object]", value)]
    if isinstance(value, dict):
        return {
            _HALF_PAIR.sub("\ufffd", key): entry
            if key in streams and isinstance(entry, str)
            else _sound(entry, _BELOW.get(key, frozenset()))
            for key, entry in cast("dict[str, object]", value).items()
        }
    return value


def as_int(value: object) -> int | None:
    """A count, however the server wrote it: 5, 5.0, "5"; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if abs(value) < 2**63 else None
    if isinstance(value, float):
        return int(value) if math.isfinite(value) and value.is_integer() and abs(value) < 2**63 else None
    if isinstance(value, str) and len(value) <= 19 and value.isascii() and value.isdigit():
        return int(value)
    return None


def as_object(value: object) -> JsonObject | None:
    """`value` if it is a JSON object."""
    return cast("JsonObject", value) if isinstance(value, dict) else None


def as_list(value: object) -> list[object]:
    """`value` if it is a JSON array, else an empty list."""
    return cast("list[object]", value) if isinstance(value, list) else []


def fitter(annotation: object) -> Fit:
    """A function that returns what of a value fits `annotation`, or `MISSING`. Null counts as missing."""
    origin = get_origin(annotation)
    if annotation is Any:
        return _fit_any
    if annotation is str:
        return _fit_str
    if annotation is int:
        return _fit_int
    if is_typeddict(annotation):
        config: dict[str, object] = getattr(annotation, "__pydantic_config__", {})
        hints = get_type_hints(annotation)
        return _fit_fields({name: fitter(hint) for name, hint in hints.items()}, config.get("extra") == "allow")
    if origin in (Union, types.UnionType):
        return _fit_first([fitter(option) for option in get_args(annotation) if option is not type(None)])
    if origin is list:
        return _fit_items(fitter(get_args(annotation)[0]))
    if origin is dict or annotation is dict:
        return _fit_dict
    raise TypeError(f"chunks cannot have fields of type {annotation!r}")


def _fit_any(value: object) -> object:
    return MISSING if value is None else value


def _fit_str(value: object) -> object:
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else MISSING


def _fit_int(value: object) -> object:
    number = as_int(value)
    return MISSING if number is None else number


def _fit_dict(value: object) -> object:
    return value if isinstance(value, dict) else MISSING  # pyright: ignore[reportUnknownVariableType]


def _fit_first(options: list[Fit]) -> Fit:
    def fit(value: object) -> object:
        return next((fitted for option in options if (fitted := option(value)) is not MISSING), MISSING)

    return fit if len(options) > 1 else options[0]


def _fit_items(item: Fit) -> Fit:
    def fit(value: object) -> object:
        if not isinstance(value, list):
            return MISSING
        return [fitted for entry in cast("list[object]", value) if (fitted := item(entry)) is not MISSING]

    return fit


def _fit_fields(fields: dict[str, Fit], keeps_others: bool) -> Fit:
    def fit(value: object) -> object:
        if not isinstance(value, dict):
            return MISSING
        given = cast("dict[str, object]", value)
        others = {name: raw for name, raw in given.items() if name not in fields} if keeps_others else {}
        return others | {
            name: fitted
            for name, field in fields.items()
            if (raw := given.get(name)) is not None and (fitted := field(raw)) is not MISSING
        }

    return fit
