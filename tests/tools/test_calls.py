"""One call: what the model gets to read of every value, and of everything that goes wrong."""

from __future__ import annotations

import asyncio
import contextvars
import json
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel

from rx_sampler.conversation import ImagePart, TextPart, ToolCall, ToolResultItem, ToolSpec
from rx_sampler.functions import PythonFunction
from rx_sampler.tools import AnyTool, Tool, run_call

IMAGE = ImagePart(url="https://img.test/a.png")
PIXEL = ImagePart(url="data:image/png;base64,aGk=")


def call(name: str, arguments: str = "{}", *, complete: bool = True) -> ToolCall:
    return ToolCall(id="c", name=name, arguments=arguments, complete=complete)


def giving(value: Any) -> Callable[[], Any]:
    def give() -> Any:
        return value

    return give


async def given(value: Any) -> ToolResultItem:
    return await run_call(call("give"), [giving(value)])


class Colour(Enum):
    RED = "red"


class Place(BaseModel):
    name: str


@dataclass
class Point:
    x: int
    at: date


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("as it is\n\x1b[2J", "as it is\n\x1b[2J"),
        ("", ""),
        (None, "null"),
        (True, "true"),
        (3.5, "3.5"),
        (math.nan, '"NaN"'),
        ({"name": "Zürich", "n": [1, None]}, '{"name":"Zürich","n":[1,null]}'),
        (["a", Place(name="b")], '["a",{"name":"b"}]'),
        (Place(name="☂"), '{"name":"☂"}'),
        (Point(1, date(2026, 3, 5)), '{"x":1,"at":"2026-03-05"}'),
        (Colour.RED, '"red"'),
        ((), "[]"),
        (TextPart(text="words"), "words"),
        ("half \ud800", "half \ufffd"),
    ],
)
async def test_a_value_becomes_text(value: Any, content: str) -> None:
    assert await given(value) == ToolResultItem(tool_call_id="c", content=content)


async def test_images_follow_the_text() -> None:
    assert await given(IMAGE) == ToolResultItem(tool_call_id="c", content="", images=(IMAGE,))
    mixed = ["a chart", IMAGE, {"points": 3}, PIXEL, TextPart(text="and a pixel")]
    assert await given(mixed) == ToolResultItem(
        tool_call_id="c", content='a chart\n{"points":3}\nand a pixel', images=(IMAGE, PIXEL)
    )
    assert await given(tuple(mixed)) == await given(mixed)


async def test_a_result_is_itself_under_the_id_of_the_call() -> None:
    own = ToolResultItem(tool_call_id="of another", content="x", images=(IMAGE,), is_error=True)
    assert await given(own) == ToolResultItem(tool_call_id="c", content="x", images=(IMAGE,), is_error=True)


# -- what goes wrong


def weather(city: str, days: int = 1) -> str:
    return f"{city} {days}"


async def wrong(one: ToolCall, *tools: AnyTool, timeout_s: float | None = None) -> str:
    result = await run_call(one, tools, timeout_s=timeout_s)
    assert result.is_error
    assert result.tool_call_id == "c"
    assert "\n" not in result.content
    return result.content


async def test_an_unknown_name_is_told_the_known_ones() -> None:
    assert await wrong(call("wether"), weather, giving(1)) == "no tool is called 'wether'; there are weather, give"
    assert await wrong(call("wether")) == "no tool is called 'wether'; there is none"
    many = [PythonFunction(weather, name=f"t{number}") for number in range(40)]
    assert (await wrong(call("wether"), *many)).endswith(", t28, t29 and 10 more")


@pytest.mark.parametrize(
    ("arguments", "complete", "why"),
    [
        ('{"city": "B', False, "its arguments are no JSON (EOF while parsing a string at line 1 column 11)"),
        ("[1]", False, "its arguments are no JSON object"),
        ("{}", False, "its arguments are cut off"),
        ('{"days": "many"}', True, None),
        ("[]", True, "the arguments must be one JSON object, not '[]'"),
    ],
)
async def test_arguments_that_will_not_do_are_told_what_would(arguments: str, complete: bool, why: str | None) -> None:
    expected = why or (
        "city: Missing required argument; days: Input should be a valid integer, unable to parse string as an integer"
    )
    said = await wrong(call("weather", arguments, complete=complete), weather)
    assert said == f"weather was not run: {expected}; send one JSON object with city (required), days"


class WordlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


async def test_what_a_tool_raises_is_told_without_where() -> None:
    def fail(how: str) -> None:
        if how == "nested":
            Place.model_validate({"name": 3})
        if how == "wordless":
            raise WordlessError
        if how == "bare":
            raise KeyError
        if how == "stop":
            raise StopIteration(3)
        raise OSError(f"disk\nfull \x1b[2J {'x' * 3000}")

    async def failing(how: str) -> str:
        return await wrong(call("fail", json.dumps({"how": how})), fail)

    assert await failing("nested") == "fail failed: ValidationError: name: Input should be a valid string"
    assert await failing("wordless") == "fail failed: WordlessError"
    assert await failing("bare") == "fail failed: KeyError"
    assert await failing("stop") == "fail failed: RuntimeError: StopIteration came out of it"
    long = await failing("long")
    assert long.startswith("fail failed: OSError: disk full \\x1b[2J xxx")
    assert len(long) == 2000


@pytest.mark.parametrize(
    "secret",
    [
        "Authorization: Bearer {}",
        "sk-{}",
        "https://api.test/?api_key={}&x=1",
        "postgres://ann:{}@db.test/",
        '{{"password": "{}"}}',
    ],
)
async def test_what_looks_like_a_credential_is_masked(secret: str) -> None:
    async def fail() -> None:
        raise OSError("cannot open " + secret.format("Abc123def456ghi789"))

    said = await wrong(call("fail"), fail)
    assert "Abc123" not in said
    assert "***" in said


async def test_a_value_that_has_no_json_is_an_error_of_the_tool() -> None:
    said = await wrong(call("give"), giving(object()))
    assert said.startswith("give failed: TypeError: a object came back, which has no JSON (")
    circle: list[Any] = []
    circle.append(circle)
    assert (await wrong(call("give"), giving(circle))).startswith("give failed: TypeError: a list came back")


async def test_a_tool_that_cancels_itself_is_an_error_and_no_end() -> None:
    async def quit_early() -> None:
        raise asyncio.CancelledError

    async def times_out() -> None:
        raise TimeoutError("the database is slow")

    assert await wrong(call("quit_early"), quit_early) == "quit_early failed: it was cancelled"
    said = await wrong(call("times_out"), times_out, timeout_s=60)
    assert said == "times_out failed: TimeoutError: the database is slow"


async def test_cancelling_the_caller_cancels_the_tool() -> None:
    began = asyncio.Event()
    ended: list[str] = []

    async def wait() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    task = asyncio.create_task(run_call(call("wait"), [wait], timeout_s=60))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["cancelled"]


# -- where it runs


async def test_a_function_that_gives_an_awaitable_is_awaited_on_the_loop() -> None:
    loop = asyncio.get_running_loop()

    async def inner() -> str:
        assert asyncio.get_running_loop() is loop
        return "done"

    def outer() -> Any:
        assert threading.current_thread() is not threading.main_thread()
        return inner()

    assert (await run_call(call("outer"), [outer])).content == "done"


async def test_a_thread_sees_the_context_of_the_caller() -> None:
    user: contextvars.ContextVar[str] = contextvars.ContextVar("user")
    user.set("ann")

    def who() -> str:
        return user.get()

    assert (await run_call(call("who"), [who])).content == "ann"


# -- tools known only at run time


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_tool_hands_its_arguments_on_as_they_are(is_async: bool) -> None:
    came: list[Any] = []

    def handle(arguments: dict[str, Any]) -> dict[str, Any]:
        came.append(arguments)
        return {"got": len(arguments)}

    async def handle_async(arguments: dict[str, Any]) -> dict[str, Any]:
        return handle(arguments)

    schema = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    tool = Tool(ToolSpec(name="find", parameters=schema), handle_async if is_async else handle)
    assert (await run_call(call("find", '{"q": "x", "n": [1]}'), [tool])).content == '{"got":2}'
    assert came == [{"q": "x", "n": [1]}]
    assert await wrong(call("find", "[]"), tool) == (
        "find was not run: the arguments must be one JSON object; send one JSON object with q (required)"
    )
