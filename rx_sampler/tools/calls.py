"""One call of a tool, from what the model wrote to what it gets to read. Nothing that a tool does ends the stream."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from pydantic import ValidationError
from pydantic_core import from_json

from rx_sampler.conversation import ToolCall, ToolResultItem, ToolSpec
from rx_sampler.functions import in_words

from .function_tool import AnyTool, RunnableTool, runnable_tools
from .results import error_result, raised_in_words, result_of

__all__ = ["CallOutcome", "call_outcome", "run_call"]

_LISTED_NAMES: Final = 30


class CallOutcome(NamedTuple):
    """How a call ended: its result, and what was raised where that was an error."""

    result: ToolResultItem
    exception: BaseException | None = None


async def run_call(call: ToolCall, tools: Iterable[AnyTool], *, timeout_s: float | None = None) -> ToolResultItem:
    """The result of a call, to be sent back with the next request.

    A coroutine function runs on the event loop, anything else in a thread (`asyncio.to_thread`, so in the context of
    the caller). What the model can mend, and what it has to know, is a result with `is_error`: an unknown name, a call
    that is cut, arguments that do not fit, whatever the tool raises, a value that has no JSON, more than `timeout_s`
    seconds. It says in one line what went wrong and what would be right, and never where in the code; what looks like a
    credential is masked.

    Cancelling cancels a coroutine; a thread runs on, and what it gives is dropped. After `timeout_s` it is the same.
    Raises as `PythonFunction` does for a function that is no tool, and BaseExceptions of a tool, but a CancelledError
    of its own.
    """
    return (await call_outcome(call, runnable_tools(tools), timeout_s)).result


async def call_outcome(call: ToolCall, tools: Mapping[str, RunnableTool], timeout_s: float | None) -> CallOutcome:
    """As `run_call`, with the exception for whoever wants to see it."""

    def failed(words: str, error: BaseException | None = None) -> CallOutcome:
        return CallOutcome(error_result(call.id, words), error)

    tool = tools.get(call.name)
    if tool is None:
        return failed(f"no tool is called {call.name!r}; {_known(tools)}")
    if not call.complete:
        return failed(f"{call.name} was not run: {_cut(call.arguments)}; send {_wanted(tool.spec)}")
    try:
        bound = tool.bind(call.arguments)
    except ValidationError as error:
        return failed(f"{call.name} was not run: {in_words(error)}; send {_wanted(tool.spec)}", error)
    except ValueError as error:
        return failed(f"{call.name} was not run: {error}; send {_wanted(tool.spec)}", error)
    except Exception as error:  # a validator of the tool's own
        return failed(f"{call.name} was not run: {raised_in_words(error)}; send {_wanted(tool.spec)}", error)
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            value = await (_awaited(bound()) if tool.is_async else _in_thread(bound))
        return CallOutcome(result_of(call.id, value))
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return failed(f"{call.name} failed: it was cancelled", error)
    except Exception as error:
        if isinstance(error, TimeoutError) and limit.expired():
            return failed(f"{call.name} failed: it took longer than {timeout_s:g} s and was given up", error)
        return failed(f"{call.name} failed: {raised_in_words(error)}", error)


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def _in_thread(bound: Callable[[], Any]) -> Any:
    def guarded() -> tuple[Any, BaseException | None]:
        # A future takes no StopIteration, and whoever awaits it would wait for ever.
        try:
            return bound(), None
        except BaseException as error:
            return None, error

    value, error = await asyncio.to_thread(guarded)
    if isinstance(error, StopIteration):
        raise RuntimeError("StopIteration came out of it") from error
    if error is not None:
        raise error
    return await _awaited(value)


def _known(tools: Mapping[str, RunnableTool]) -> str:
    if not tools:
        return "there is none"
    more = f" and {len(tools) - _LISTED_NAMES} more" if len(tools) > _LISTED_NAMES else ""
    return f"there are {', '.join(list(tools)[:_LISTED_NAMES])}{more}"


def _cut(arguments: str) -> str:
    try:
        value = from_json(arguments, allow_inf_nan=False)
    except ValueError as error:
        return f"its arguments are no JSON ({error})"
    return "its arguments are cut off" if isinstance(value, dict) else "its arguments are no JSON object"


def _wanted(spec: ToolSpec) -> str:
    """What the arguments are, by name."""
    properties = spec.parameters.get("properties")
    required = spec.parameters.get("required")
    if not isinstance(properties, dict) or not properties:
        return "one JSON object that fits the tool's parameters" if properties is None else "{}"
    names = [
        f"{name} (required)" if isinstance(required, list) and name in required else str(name)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        for name in properties  # pyright: ignore[reportUnknownVariableType]
    ]
    more = f" and {len(names) - _LISTED_NAMES} more" if len(names) > _LISTED_NAMES else ""
    return f"one JSON object with {', '.join(names[:_LISTED_NAMES])}{more}"
