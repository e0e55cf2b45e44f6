"""A value that fits a JSON Schema, made up from a seeded generator: the arguments of simulated tool calls.

Only what a schema requires is made; the value fits type, enum, const, bounds and lengths, and takes the first branch
of alternatives that is not null. Patterns are not honoured. Size and depth are bounded, so a schema that refers to
itself, or asks for a million elements, ends too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Final

from .json_tools import JsonObject, as_list, as_object, as_text, objects_in

__all__ = ["value_of_schema"]

_DEEPEST: Final = 12
_MOST_VALUES: Final = 500
_LONGEST_TEXT: Final = 1000
_DEFAULT_SPAN: Final = 9
_FORMATS: Final = {
    "date": "2026-01-01",
    "date-time": "2026-01-01T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "someone@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/simulated",
    "url": "https://example.com/simulated",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def value_of_schema(schema: JsonObject, random: Random, *, name: str = "value") -> object:
    """A JSON value for the schema; `name` is what a plain string says it simulates."""
    return _Generator(schema, random).value(schema, name, 0)


class _Generator:
    def __init__(self, root: JsonObject, random: Random) -> None:
        self._root = root
        self._random = random
        self._values_left = _MOST_VALUES
        self._makers: dict[str, Callable[[JsonObject, str, int], object]] = {
            "object": self._object,
            "array": self._array,
            "string": self._string,
            "integer": self._integer,
            "number": self._number,
            "boolean": lambda _schema, _name, _depth: self._random.random() < 0.5,
            "null": lambda _schema, _name, _depth: None,
        }

    def value(self, schema: JsonObject, name: str, depth: int) -> object:
        self._values_left -= 1
        if depth > _DEEPEST or self._values_left < 0:
            return None
        if "const" in schema:
            return schema["const"]
        if choices := as_list(schema.get("enum")):
            return self._random.choice(choices)
        if (reference := as_text(schema.get("$ref"))) is not None:
            return self.value(self._resolved(reference), name, depth + 1)
        if parts := objects_in(schema.get("allOf")):
            return self.value(_merged([{k: v for k, v in schema.items() if k != "allOf"}, *parts]), name, depth + 1)
        for alternatives in ("anyOf", "oneOf"):
            if branches := objects_in(schema.get(alternatives)):
                wanted = [branch for branch in branches if branch.get("type") != "null"]
                return self.value((wanted or branches)[0], name, depth + 1)
        return self._makers.get(_type_of(schema), self._string)(schema, name, depth)

    def _resolved(self, reference: str) -> JsonObject:
        """What a local reference (`#/$defs/City`) points to; an empty schema where that is nothing."""
        here: JsonObject | None = self._root
        for step in reference.removeprefix("#").strip("/").split("/"):
            if step:
                here = as_object((here or {}).get(step.replace("~1", "/").replace("~0", "~")))
        return here or {}

    def _object(self, schema: JsonObject, _name: str, depth: int) -> object:
        properties = as_object(schema.get("properties")) or {}
        required = [entry for entry in as_list(schema.get("required")) or () if isinstance(entry, str)]
        return {key: self.value(as_object(properties.get(key)) or {}, key, depth + 1) for key in required}

    def _array(self, schema: JsonObject, name: str, depth: int) -> object:
        fixed = objects_in(schema.get("prefixItems"))
        least = max(_as_whole(schema.get("minItems"), 0), 1 if not fixed else 0)
        most = _as_whole(schema.get("maxItems"), max(least, len(fixed)))
        shapes = fixed + [as_object(schema.get("items")) or {}] * min(max(least - len(fixed), 0), _MOST_VALUES)
        return [self.value(shape, name, depth + 1) for shape in shapes[:most] if self._values_left > 0]

    def _string(self, schema: JsonObject, name: str, _depth: int) -> object:
        text = _FORMATS.get(as_text(schema.get("format")) or "", f"simulated {name.replace('_', ' ')}")
        least = min(_as_whole(schema.get("minLength"), 0), _LONGEST_TEXT)
        return text.ljust(least, ".")[: max(_as_whole(schema.get("maxLength"), _LONGEST_TEXT), 0)]

    def _integer(self, schema: JsonObject, _name: str, _depth: int) -> object:
        above, below = _as_number(schema.get("exclusiveMinimum")), _as_number(schema.get("exclusiveMaximum"))
        low, high = _interval(
            math.floor(above) + 1 if above is not None else _as_number(schema.get("minimum")),
            math.ceil(below) - 1 if below is not None else _as_number(schema.get("maximum")),
        )
        step = max(math.ceil(_as_number(schema.get("multipleOf")) or 1), 1)
        first, last = math.ceil(low / step), math.floor(high / step)
        return self._random.randint(first, max(first, last)) * step

    def _number(self, schema: JsonObject, _name: str, _depth: int) -> object:
        above, below = _as_number(schema.get("exclusiveMinimum")), _as_number(schema.get("exclusiveMaximum"))
        low, high = _interval(
            above if above is not None else _as_number(schema.get("minimum")),
            below if below is not None else _as_number(schema.get("maximum")),
        )
        if step := _as_number(schema.get("multipleOf")):
            return math.ceil(low / step) * step
        return low + (high - low) * self._random.choice((0.25, 0.5, 0.75))


def _type_of(schema: JsonObject) -> str:
    declared = schema.get("type")
    if (several := as_list(declared)) is not None:
        named = [entry for entry in several if isinstance(entry, str)]
        return next((entry for entry in named if entry != "null"), "null")
    if isinstance(declared, str):
        return declared
    return "object" if "properties" in schema else "string"


def _merged(schemas: list[JsonObject]) -> JsonObject:
    """`allOf` as one schema: properties and required joined, for the rest the later one wins."""
    merged: JsonObject = {}
    properties: JsonObject = {}
    required: list[object] = []
    for schema in schemas:
        merged.update(schema)
        properties.update(as_object(schema.get("properties")) or {})
        required.extend(as_list(schema.get("required")) or ())
    if properties or required:
        merged.update(properties=properties, required=required)
    return merged


def _interval(low: float | None, high: float | None) -> tuple[float, float]:
    """Both ends of a range of which a schema may give neither: small numbers from 1 on unless it says otherwise."""
    if low is None:
        low = 1.0 if high is None or high >= 1 else high - _DEFAULT_SPAN
    return low, max(low, low + _DEFAULT_SPAN if high is None else high)


def _as_number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def _as_whole(value: object, default: int) -> int:
    number = _as_number(value)
    return default if number is None else int(number)
