"""Structured output: the schema that is asked for, and the value that the answer's text is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from rx_sampler.errors import SamplingError, SamplingErrorKind
from rx_sampler.functions import in_words

from .model import JsonObject

__all__ = ["output_schema", "parsed_arguments", "parsed_text"]

M = TypeVar("M")

_FENCED: Final = re.compile(r"```[a-zA-Z]*\s*\n(.*)\n\s*```", re.DOTALL)
"""A text that is one fenced block, as models write that know no structured output."""

_TOLD_IN_WORDS: Final = (
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "uniqueItems",
)
"""Limits that servers refuse in a schema which they hold the model to: the model is told of them instead."""

_NAMED_SCHEMAS: Final = ("properties", "$defs", "definitions")
_SCHEMAS: Final = ("items", "anyOf", "allOf", "oneOf", "prefixItems", "not")


@lru_cache(maxsize=128)
def _adapter(model: Any) -> TypeAdapter[Any]:
    return TypeAdapter(model)


def adapter_of(model: type[M]) -> TypeAdapter[M]:
    """The adapter of a type, made once where the type can be remembered."""
    try:
        return cast("TypeAdapter[M]", _adapter(model))
    except TypeError:  # cannot be hashed
        return TypeAdapter(model)


def output_schema(model: Any) -> JsonObject:
    """The JSON Schema of a type as servers want it that hold the model to it, the same each time.

    Every object is closed and all of its properties are required, defaults are left out: what OpenAI calls strict,
    which Anthropic wants as well. Limits (`minimum`, `maxLength`, ...) move into the descriptions; validation holds the
    answer to them all the same. Raises ValueError for a type whose JSON is no object.
    """
    schema = _strict(adapter_of(model).json_schema())
    root = schema
    while "$ref" in root:  # a model that refers to itself
        root = _strict(_resolved(root, schema))
        schema = {**root, "$defs": schema["$defs"]}
    if root.get("type") != "object":
        name = getattr(model, "__name__", model)
        raise ValueError(f"{name} is written as JSON of type {root.get('type')!r}: servers want an object, so wrap it")
    return schema


def parsed_text(model: type[M], text: str, *, instead: str | None) -> M:
    """The text of an answer as `model`; `instead` says what came in its place, if something did.

    A text that is one fenced block counts as what the fence holds. Raises `SamplingError`.
    """
    fenced = _FENCED.fullmatch(text.strip())
    try:
        return adapter_of(model).validate_json(fenced[1] if fenced else text)
    except ValidationError as error:
        reason = instead or in_words(error)
        raise _refused(f"the answer is no {_name(model)}: {reason}") from error


def parsed_arguments(model: type[M], name: str, arguments: str, *, complete: bool) -> M:
    """The arguments of a call as `model`. Raises `SamplingError`."""
    try:
        if complete:
            return adapter_of(model).validate_json(arguments or "{}")
        reason, cause = "they were cut, or are not one JSON object", None
    except ValidationError as error:
        reason, cause = in_words(error), error
    raise _refused(f"the arguments of {name} are no {_name(model)}: {reason}") from cause


def _refused(message: str) -> SamplingError:
    return SamplingError.of(SamplingErrorKind.SERIALIZATION, message, code="invalid_output")


def _name(model: Any) -> str:
    return getattr(model, "__name__", None) or str(model)


def _resolved(schema: JsonObject, root: JsonObject) -> JsonObject:
    found: Any = root
    for step in schema["$ref"].removeprefix("#/").split("/"):
        found = found[step]
    return found


def _strict(schema: JsonObject) -> JsonObject:
    strict = {key: _inner(key, value) for key, value in schema.items() if key not in ("default", *_TOLD_IN_WORDS)}
    if "oneOf" in strict:  # pydantic's tagged unions: `anyOf` says the same where the tags differ
        strict["anyOf"] = strict.pop("oneOf")
        strict.pop("discriminator", None)
    if limits := ", ".join(f"{key}: {schema[key]}" for key in _TOLD_IN_WORDS if key in schema):
        strict["description"] = f"{schema['description']} ({limits})" if "description" in schema else limits
    if "properties" in strict:
        strict |= {"additionalProperties": False, "required": list(strict["properties"])}
    elif strict.get("type") == "object" and "additionalProperties" not in strict:
        strict |= {"properties": {}, "additionalProperties": False, "required": []}
    return {"$ref": strict["$ref"]} if "$ref" in strict and "$defs" not in strict else strict


def _inner(key: str, value: Any) -> Any:
    if key in _NAMED_SCHEMAS and isinstance(value, Mapping):
        return {name: _strict(inner) for name, inner in cast("JsonObject", value).items()}
    if key in (*_SCHEMAS, "additionalProperties"):
        if isinstance(value, list):
            return [_strict(inner) for inner in cast("list[JsonObject]", value)]
        return _strict(cast("JsonObject", value)) if isinstance(value, dict) else value
    return value
