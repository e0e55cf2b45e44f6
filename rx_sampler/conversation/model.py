"""What all models of a conversation are: frozen, strict about names, and sparing with what is not set."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    model_serializer,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import core_schema

__all__ = ["Frozen", "JsonObject", "Many", "Sparse", "json_object"]

JsonObject = dict[str, Any]

T = TypeVar("T")
Many = Annotated[Sequence[T], AfterValidator(tuple)]
"""A field that is given as any sequence and held as a tuple."""


class Frozen(BaseModel):
    """A value: compared by its fields, never changed."""

    # Built at first use: the schemas of all models cost as much as the import of a library.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Sparse(Frozen):
    """A value that leaves the fields in `_sparse` out of its JSON while they are empty."""

    _sparse: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _without_empty(self, handler: SerializerFunctionWrapHandler) -> Any:
        data = handler(self)
        for name in self._sparse:
            if data.get(name) in (None, [], (), {}, ""):
                data.pop(name, None)
        return data

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        # pydantic does not look behind a serializer: show it the fields, of which some may be absent
        fields = {key: value for key, value in core_schema.items() if key != "serialization"}
        schema = handler.resolve_ref_schema(handler(cast("core_schema.CoreSchema", fields)))
        if "required" in schema:
            schema["required"] = [name for name in schema["required"] if name not in cls._sparse]
        return schema


def json_object(text: str) -> JsonObject | None:
    """The JSON object that `text` is, by RFC 8259; None if it is none, or has a number that no float can hold."""
    try:
        value: object = json.loads(text, parse_constant=_no_json, parse_float=_finite)
    except (ValueError, RecursionError):
        return None
    return cast("JsonObject", value) if isinstance(value, dict) else None


def _finite(number: str) -> float:
    value = float(number)
    if math.isinf(value):
        raise ValueError(f"{number} is beyond what a float can hold")
    return value


def _no_json(constant: str) -> object:
    raise ValueError(f"{constant} is not JSON")
