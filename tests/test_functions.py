"""Python functions as tools: name, description, schema of the arguments, and the way back to a call."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import pytest
from pydantic import BaseModel, Field, ValidationError

import rx_sampler
from rx_sampler.functions import PythonFunction, in_words


class Unit(Enum):
    CELSIUS = "C"
    FAHRENHEIT = "F"


class Place(BaseModel):
    """A town."""

    name: str
    country: str = Field(default="CH", description="ISO 3166.")


def weather(
    place: Place,
    days: Annotated[int, Field(ge=1, le=7, description="How many days.")] = 1,
    unit: Unit = Unit.CELSIUS,
    *,
    since: Optional[date] = None,  # noqa: UP045  # what users write
    detail: Literal["low", "high"] = "low",
) -> str:
    """Tell the weather.

    Args:
        place: Where.
        days: Overruled by the hint.
    """
    return f"{place.name} {place.country} {days} {unit} {since} {detail}"


def test_the_schema_says_all_that_the_hints_and_the_docstring_say() -> None:
    tool = PythonFunction(weather)
    assert (tool.name, tool.description, tool.is_async) == ("weather", "Tell the weather.", False)
    assert tool.parameters == {
        "type": "object",
        "properties": {
            "place": {"$ref": "#/$defs/Place", "description": "Where."},
            "days": {"type": "integer", "minimum": 1, "maximum": 7, "default": 1, "description": "How many days."},
            "unit": {"$ref": "#/$defs/Unit", "default": "C"},
            "since": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}], "default": None},
            "detail": {"type": "string", "enum": ["low", "high"], "default": "low"},
        },
        "required": ["place"],
        "additionalProperties": False,
        "$defs": {
            "Place": {
                "title": "Place",
                "description": "A town.",
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "country": {"type": "string", "default": "CH", "description": "ISO 3166."},
                },
                "required": ["name"],
            },
            "Unit": {"title": "Unit", "type": "string", "enum": ["C", "F"]},
        },
    }


def test_bound_arguments_are_the_values_that_the_hints_ask_for() -> None:
    call = PythonFunction(weather).bind('{"place": {"name": "Chur"}, "unit": "F", "since": "2026-03-05"}')
    assert call() == "Chur CH 1 Unit.FAHRENHEIT 2026-03-05 low"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('{"days": 9}', "place: Missing required argument; days: Input should be less than or equal to 7"),
        ('{"place": {"name": "B"}, "day": 2}', "day: Unexpected argument"),
        ('{"place": {"name": 3}}', "place.name: Input should be a valid string"),
        ('{"place": {"name": "B"}, "detail": "x"}', "detail: Input should be 'low' or 'high'"),
        ('{"place": ', "the arguments: Invalid JSON: EOF while parsing a value at line 1 column 10"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_in_words(arguments: str, words: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        PythonFunction(weather).bind(arguments)
    assert in_words(refusal.value) == words


@pytest.mark.parametrize("arguments", ["[1]", '"x"', "", "   ", "null"])
def test_arguments_that_are_no_object_are_refused(arguments: str) -> None:
    with pytest.raises(ValueError, match=r"must be one JSON object, not"):
        PythonFunction(weather).bind(arguments)


def test_words_are_one_short_line() -> None:
    def wide(**numbers: int) -> None: ...

    given = json.dumps({f"{'n' * 70}{i}\n": "x" for i in range(20)})
    with pytest.raises(ValidationError) as refusal:
        PythonFunction(wide).bind(given)
    words = in_words(refusal.value, max_chars=300)
    assert len(words) == 301
    assert "\n" not in words
    assert in_words(refusal.value, max_chars=5000).endswith("; and 12 more")


def test_names_that_pydantic_keeps_for_itself_are_names_like_others() -> None:
    def odd(schema: int, copy: str, model_config: bool, self: int, cls: int, args: str, _x: int) -> tuple[Any, ...]:
        return schema, copy, model_config, self, cls, args, _x

    tool = PythonFunction(odd)
    given = {"schema": 1, "copy": "c", "model_config": True, "self": 2, "cls": 3, "args": "a", "_x": 4}
    assert list(tool.parameters["properties"]) == list(given)
    assert tool.parameters["required"] == list(given)
    assert tool.bind(json.dumps(given))() == (1, "c", True, 2, 3, "a", 4)


def test_parameters_without_hints_take_anything() -> None:
    def free(a, b=2):  # type: ignore[no-untyped-def]  # pyright: ignore
        return a, b  # pyright: ignore

    tool = PythonFunction(free)  # pyright: ignore
    assert tool.parameters == {
        "type": "object",
        "properties": {"a": {}, "b": {"default": 2}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert tool.bind('{"a": [1]}')() == ([1], 2)


def test_a_function_without_parameters() -> None:
    def now() -> str:
        return "noon"

    tool = PythonFunction(now)
    assert tool.description is None
    assert tool.parameters == {"type": "object", "properties": {}, "additionalProperties": False}
    assert tool.bind("{}")() == "noon"


def test_double_star_opens_the_schema() -> None:
    def tags(**values: int) -> dict[str, int]:
        return values

    def anything(**values: Any) -> dict[str, Any]:
        return values

    assert PythonFunction(tags).parameters["additionalProperties"] == {"type": "integer"}
    assert PythonFunction(anything).parameters["additionalProperties"] is True
    assert PythonFunction(tags).bind('{"a": 1, "b": 2}')() == {"a": 1, "b": 2}


def test_a_default_of_field_is_resolved_and_a_mutable_one_is_new_each_time() -> None:
    def collect(to: list[int] = Field(default_factory=list[int], description="Where to.")) -> list[int]:  # noqa: B008
        to.append(1)
        return to

    tool = PythonFunction(collect)
    assert tool.parameters["properties"]["to"] == {
        "type": "array",
        "items": {"type": "integer"},
        "description": "Where to.",
    }
    assert [tool.bind("{}")(), tool.bind("{}")()] == [[1], [1]]


def test_an_alias_is_the_name_that_the_model_says() -> None:
    def mail(from_: Annotated[str, Field(alias="from")]) -> str:
        """Mail.

        Args:
            from_: The sender.
        """
        return from_

    tool = PythonFunction(mail)
    assert tool.parameters["properties"] == {"from": {"type": "string", "description": "The sender."}}
    assert tool.bind('{"from": "me"}')() == "me"


# -- what can be called


class Office:
    """Where people work."""

    def open(self, hour: int) -> int:
        """Open the office."""
        return hour

    @classmethod
    def where(cls, floor: int) -> str:
        """Where it is."""
        return f"{cls.__name__} {floor}"

    async def close(self, hour: int) -> int:
        return hour


class Caller:
    """Calls."""

    def __call__(self, number: str) -> str:
        return number


class AsyncCaller:
    async def __call__(self, number: str) -> str:
        """Call somebody."""
        return number


def test_a_bound_method_has_no_self() -> None:
    tool = PythonFunction(Office().open)
    assert (tool.name, tool.description) == ("open", "Open the office.")
    assert tool.parameters["required"] == ["hour"]
    assert tool.bind('{"hour": 8}')() == 8
    assert PythonFunction(Office.where).bind('{"floor": 2}')() == "Office 2"


def test_an_object_that_can_be_called_is_named_by_its_class() -> None:
    tool = PythonFunction(Caller())
    assert (tool.name, tool.description) == ("Caller", "Calls.")
    assert tool.bind('{"number": "117"}')() == "117"
    assert PythonFunction(AsyncCaller()).description == "Call somebody."


def test_what_a_partial_fixes_is_not_the_models_to_say() -> None:
    def read(user: str, path: str, *, key: str, lines: int = 3) -> str:
        """Read a file."""
        return f"{user} {path} {key} {lines}"

    tool = PythonFunction(functools.partial(functools.partial(read, "ann"), key="secret"))
    assert (tool.name, tool.description) == ("read", "Read a file.")
    assert list(tool.parameters["properties"]) == ["path", "lines"]
    assert "secret" not in json.dumps(tool.parameters)
    assert tool.bind('{"path": "p"}')() == "ann p secret 3"
    with pytest.raises(ValidationError):
        tool.bind('{"path": "p", "key": "k"}')


def test_a_wrapped_function_shows_what_it_wraps_and_is_called_as_the_wrapper() -> None:
    def inner(day: date) -> date:
        """A day."""
        return day

    @functools.wraps(inner)
    def outer(*args: Any, **named: Any) -> Any:
        return ("wrapped", inner(*args, **named))

    tool = PythonFunction(outer)
    assert (tool.name, tool.description) == ("inner", "A day.")
    assert tool.bind('{"day": "2026-03-05"}')() == ("wrapped", date(2026, 3, 5))


@pytest.mark.parametrize(
    ("function", "is_async"),
    [
        (Office().close, True),
        (functools.partial(Office().close), True),
        (AsyncCaller(), True),
        (Office().open, False),
        (Caller(), False),
        (Place, False),
    ],
)
def test_async_is_known_without_a_call(function: Callable[..., Any], is_async: bool) -> None:
    assert PythonFunction(function, name="f").is_async is is_async


def test_a_class_is_a_tool_that_makes_one() -> None:
    tool = PythonFunction(Place)
    assert tool.bind('{"name": "Chur"}')() == Place(name="Chur")
    assert tool.description == "A town."


def test_hints_may_name_what_the_function_closes_over() -> None:
    class Local(BaseModel):
        x: int

    def outer(value: Local) -> Local:
        return Local(x=value.x + 1)

    assert PythonFunction(outer).bind('{"value": {"x": "3"}}')() == Local(x=4)


def test_what_a_base_class_says_of_itself_is_no_description() -> None:
    class Silent(BaseModel):
        x: int

    assert PythonFunction(Silent).description is None


def test_name_and_description_can_be_given() -> None:
    tool = PythonFunction(lambda x: x, name="same", description="")  # pyright: ignore
    assert (tool.name, tool.description, repr(tool)) == ("same", "", "PythonFunction('same')")


# -- what is no tool


def positional(a: int, /) -> None:
    del a


def starred(*values: int) -> None:
    del values


def test_parameters_without_a_name_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^positional: parameter 'a' is positional-only, and"):
        PythonFunction(positional)
    with pytest.raises(ValueError, match=r"^starred: parameter 'values' is a \* parameter, and"):
        PythonFunction(starred)
    assert PythonFunction(functools.partial(positional, 1)).parameters["properties"] == {}


@pytest.mark.parametrize("name", ["<lambda>", "", "a b", "x" * 65, "é", "a\n"])
def test_a_name_that_providers_refuse_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"^the name of a tool is 1 to 64 of A-Z a-z 0-9 _ -, not "):
        PythonFunction(weather, name=name)


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^a tool is a function or another callable, not 3$"):
        PythonFunction(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"^max: its parameters cannot be read: "):
        PythonFunction(max)


class Opaque:
    pass


def unknown(a: int, b: Missing) -> None:  # noqa: F821  # pyright: ignore
    del a, b  # pyright: ignore


def nested(a: int, b: list["Missing"]) -> None:  # noqa: F821, UP037  # pyright: ignore
    del a, b  # pyright: ignore


def without_schema(a: int, b: Opaque) -> None:
    del a, b


def without_json(a: int, b: dict[str, Callable[[], int]]) -> None:
    del a, b


@pytest.mark.parametrize(
    ("function", "hint", "why"),
    [  # pyright: ignore[reportUnknownArgumentType]
        (unknown, "'Missing'", "NameError: name 'Missing' is not defined"),
        (nested, "\"list['Missing']\"", "NameError: name 'Missing' is not defined"),
        (without_schema, "'Opaque'", "Unable to generate pydantic-core schema"),
        (without_json, "'dict[str, Callable[[], int]]'", "Cannot generate a JsonSchema"),
    ],
)
def test_a_hint_that_makes_no_schema_is_named(function: Callable[..., Any], hint: str, why: str) -> None:
    with pytest.raises(ValueError, match=r"makes no JSON Schema") as refusal:
        _ = PythonFunction(function).parameters
    said = str(refusal.value)
    assert said.startswith(f"{function.__name__}: the type hint of parameter 'b', {hint}, ")
    assert why in said


# -- the same every time


def test_the_schema_is_made_once_per_function_and_belongs_to_who_asks() -> None:
    made = 0

    class Counted(BaseModel):
        @classmethod
        def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> Any:
            nonlocal made
            made += 1
            return handler(schema)

    def count(value: Counted) -> Counted:
        return Counted() if value is None else value  # pyright: ignore[reportUnnecessaryComparison]

    first = PythonFunction(count)
    assert made == 0
    first.parameters["properties"].clear()
    assert PythonFunction(count, name="other").parameters["required"] == ["value"]
    assert list(PythonFunction(count).parameters["properties"]) == ["value"]
    assert made == 1


def test_a_set_as_default_is_written_in_one_order_whatever_the_hash_seed() -> None:
    script = (
        "import json\nfrom rx_sampler.functions import PythonFunction\n"
        "def f(tags: set[str] = {'a', 'b', 'c', 'd', 'e'}): ...\n"
        "print(json.dumps(PythonFunction(f).parameters['properties']['tags']['default']))"
    )
    for seed in ("1", "2", "3"):
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(rx_sampler.__file__).parents[1])},
            timeout=60,
        )
        assert done.stdout == '["a", "b", "c", "d", "e"]\n'


def test_a_default_that_is_no_json_is_left_out() -> None:
    def wait(until: Any = object()) -> Any:  # noqa: B008
        return until

    assert PythonFunction(wait).parameters["properties"] == {"until": {}}
