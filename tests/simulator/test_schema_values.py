"""Values made up from a JSON Schema."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from rx_sampler.simulator.schema_values import value_of_schema

Schema = dict[str, Any]


def made(schema: Schema) -> Any:
    return value_of_schema(schema, Random(7))


def test_required_properties_are_made_by_type() -> None:
    value = made(
        {
            "type": "object",
            "properties": {
                "city_name": {"type": "string"},
                "days": {"type": "integer", "minimum": 1, "maximum": 5},
                "exact": {"type": "boolean"},
                "share": {"type": "number", "minimum": 0, "maximum": 1},
                "nothing": {"type": "null"},
                "tags": {"type": "array", "items": {"type": "string"}},
                "unit": {"enum": ["celsius", "fahrenheit"]},
                "left_out": {"type": "string"},
            },
            "required": ["city_name", "days", "exact", "share", "nothing", "tags", "unit"],
        }
    )
    assert list(value) == ["city_name", "days", "exact", "share", "nothing", "tags", "unit"]
    assert value["city_name"] == "simulated city name"
    assert value["days"] in range(1, 6)
    assert isinstance(value["exact"], bool)
    assert 0 <= value["share"] <= 1
    assert value["nothing"] is None
    assert value["tags"] == ["simulated tags"]
    assert value["unit"] in ("celsius", "fahrenheit")


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"const": 3}, 3),
        ({"type": ["null", "boolean"], "enum": [True]}, True),
        ({"anyOf": [{"type": "null"}, {"const": "x"}]}, "x"),
        ({"oneOf": [{"type": "null"}]}, None),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"const": 1}}}, 1),
        ({"type": "array", "prefixItems": [{"const": 1}, {"const": 2}]}, [1, 2]),
        ({"type": "array", "items": {"const": 0}, "minItems": 3}, [0, 0, 0]),
        ({"type": "array", "items": {"const": 0}, "maxItems": 0}, []),
        ({"type": "string", "format": "date"}, "2026-01-01"),
        ({"type": "string", "maxLength": 4}, "simu"),
        ({"type": "string", "minLength": 18}, "simulated value..."),
        ({"type": "integer", "multipleOf": 5, "minimum": 7, "maximum": 11}, 10),
        ({"type": "integer", "exclusiveMinimum": 2, "exclusiveMaximum": 4}, 3),
        ({"type": "number", "multipleOf": 0.5, "minimum": 1.5, "maximum": 1.9}, 1.5),
        (
            {"allOf": [{"properties": {"a": {"const": 1}}, "required": ["a"]}, {"required": ["b"]}]},
            {"a": 1, "b": "simulated b"},
        ),
        ({}, "simulated value"),
    ],
)
def test_what_only_one_value_fits(schema: Schema, expected: object) -> None:
    assert made(schema) == expected


@pytest.mark.parametrize("seed", range(20))
def test_bounds_hold(seed: int) -> None:
    negative = value_of_schema({"type": "integer", "maximum": -3}, Random(seed))
    open_range = value_of_schema({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.1}, Random(seed))
    assert isinstance(negative, int)
    assert negative <= -3
    assert isinstance(open_range, float)
    assert 0 < open_range < 0.1


def test_a_schema_without_end_ends() -> None:
    tree: Schema = {"type": "object", "properties": {}, "required": ["left", "right"]}
    tree["properties"] = {"left": {"$ref": "#"}, "right": {"$ref": "#"}}
    assert set(made(tree)) == {"left", "right"}
    assert len(made({"type": "array", "minItems": 10**9})) <= 500
    assert len(made({"type": "string", "minLength": 10**9})) == 1000


def test_odd_schemas_are_survived() -> None:
    assert isinstance(made({"type": "decimal"}), str)
    assert made({"type": "object", "required": "city", "properties": 3}) == {}
    assert made({"$ref": "#/nowhere"}) == "simulated value"
    assert isinstance(made({"type": "integer", "minimum": "one", "maximum": float("inf")}), int)
