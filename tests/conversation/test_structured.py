"""Structured output: the schema that is asked for, the value that comes back, and the words when it does not."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal, cast

import pytest
from openai.lib._pydantic import to_strict_json_schema  # pyright: ignore[reportPrivateImportUsage]
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from rx_sampler.conversation import (
    RefusalItem,
    SamplingRequest,
    SamplingResponse,
    TextItem,
    ToolCall,
    output_schema,
)
from rx_sampler.errors import SamplingError, SamplingErrorKind


class City(BaseModel):
    name: str
    inhabitants: Annotated[int, Field(ge=0, description="How many live there.")]


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"


class Trip(BaseModel):
    cities: list[City]
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    note: str | None = None


class Tree(BaseModel):
    value: int
    branches: list[Tree] = []


class Point(TypedDict):
    x: int


@dataclasses.dataclass
class Pair:
    left: int
    right: int = 2


def answer(text: str, **fields: Any) -> SamplingResponse:
    return SamplingResponse(items=(TextItem(text=text),) if text else (), **fields)


def refused(response: SamplingResponse, model: Any = City) -> str:
    with pytest.raises(SamplingError) as caught:
        response.parsed(model)
    error = caught.value
    assert (error.kind, error.info.code) == (SamplingErrorKind.SERIALIZATION, "invalid_output")
    assert not error.info.is_retryable
    assert error.partial == response
    return error.info.message


class TestParsed:
    def test_models_dataclasses_and_typed_dicts(self) -> None:
        assert answer('{"name": "Oslo", "inhabitants": 7}').parsed(City) == City(name="Oslo", inhabitants=7)
        assert answer('{"left": 1}').parsed(Pair) == Pair(1)
        assert answer('{"x": 1}').parsed(Point) == {"x": 1}
        assert answer("[1, 2]").parsed(list[int]) == [1, 2]

    @pytest.mark.parametrize("text", ['```json\n{"x": 1}\n```', ' ```\n{"x": 1}\n``` \n', '\n{"x": 1}\n'])
    def test_a_fence_around_it_all_is_no_harm(self, text: str) -> None:
        assert answer(text).parsed(Point) == {"x": 1}

    def test_each_field_is_named(self) -> None:
        message = refused(answer('{"inhabitants": -1}'))
        assert message.startswith("the answer is no City: ")
        assert "name: Field required" in message
        assert "inhabitants: Input should be greater than or equal to 0" in message

    def test_words_are_no_json(self) -> None:
        assert "Invalid JSON" in refused(answer("Oslo is a city."))

    def test_what_came_instead(self) -> None:
        assert refused(answer('{"name": "Os', stop_reason="length")).endswith("cut at the token limit")
        assert refused(SamplingResponse(items=(RefusalItem(text="I cannot."),))).endswith(
            "the model refused: I cannot."
        )
        assert refused(answer("", stop_reason="content_filter")).endswith("a content filter ended the answer")
        calls = (ToolCall(id="1", name="look", arguments="{}"), ToolCall(id="2", name="see", arguments="{}"))
        assert refused(SamplingResponse(items=calls)).endswith("the answer has no text, it calls look, see")
        assert refused(SamplingResponse()).endswith("the answer has no text")

    def test_a_whole_value_counts_even_if_the_answer_was_cut_behind_it(self) -> None:
        assert answer('{"x": 1}', stop_reason="length").parsed(Point) == {"x": 1}


class TestParsedArguments:
    def test_a_model(self) -> None:
        call = ToolCall(id="c", name="visit", arguments='{"name": "Oslo", "inhabitants": 7}')
        assert call.parsed(City) == City(name="Oslo", inhabitants=7)

    @pytest.mark.parametrize(
        ("call", "words"),
        [
            (
                ToolCall(id="c", name="visit", arguments="{}"),
                "the arguments of visit are no City: name: Field required",
            ),
            (ToolCall(id="c", name="visit", arguments='{"na', complete=False), "they were cut, or are not one JSON"),
        ],
    )
    def test_errors_name_the_call(self, call: ToolCall, words: str) -> None:
        with pytest.raises(SamplingError) as caught:
            call.parsed(City)
        assert words in caught.value.info.message


class TestSchema:
    @pytest.mark.parametrize("model", [City, Trip, Tree])
    def test_every_object_is_closed_and_all_is_required(self, model: type[BaseModel]) -> None:
        schema = output_schema(model)
        for one in objects_of(schema):
            assert one["additionalProperties"] is False
            assert one["required"] == list(one["properties"])
        assert "default" not in repr(schema)

    @pytest.mark.parametrize("model", [City, Tree])
    def test_openais_own_client_would_not_change_it_further(self, model: type[BaseModel]) -> None:
        theirs = to_strict_json_schema(model)
        assert {one["title"]: one["required"] for one in objects_of(output_schema(model))} == {
            one["title"]: one["required"] for one in objects_of(theirs)
        }

    def test_limits_are_told_in_words(self) -> None:
        schema = output_schema(City)
        assert schema["properties"]["inhabitants"] == {
            "description": "How many live there. (minimum: 0)",
            "title": "Inhabitants",
            "type": "integer",
        }

    def test_a_tagged_union_is_any_of_them(self) -> None:
        pet = output_schema(Trip)["properties"]["pet"]
        assert pet["anyOf"] == [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]
        assert pet.keys() <= {"anyOf", "title"}

    def test_a_type_whose_json_is_no_object_is_refused(self) -> None:
        with pytest.raises(ValueError, match="JSON of type 'array': servers want an object"):
            output_schema(list[int])

    def test_it_goes_with_a_request_the_same_each_time(self) -> None:
        request = SamplingRequest.user("hi").with_output(Trip)
        assert request.json_schema == output_schema(Trip) == output_schema(Trip)
        assert SamplingRequest.model_validate_json(request.model_dump_json()) == request


def objects_of(schema: object) -> list[dict[str, Any]]:
    """Every schema of an object in a schema."""
    if isinstance(schema, list):
        return [one for inner in cast("list[object]", schema) for one in objects_of(inner)]
    if not isinstance(schema, dict):
        return []
    known = cast("dict[str, Any]", schema)
    own = [known] if known.get("type") == "object" else []
    return own + [one for inner in known.values() for one in objects_of(inner)]
