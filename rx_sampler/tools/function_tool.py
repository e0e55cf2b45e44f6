"""What can be run when a model calls it: Python functions, and handlers of tools that are known only at run time."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from rx_sampler.conversation import JsonObject, ToolSpec, json_object
from rx_sampler.functions import PythonFunction

__all__ = ["AnyTool", "RunnableTool", "Tool", "runnable_tools"]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that no Python function describes, such as one that another server lists: a spec, and what runs it.

    `handler` gets the arguments as the dict that they are, unchecked, and returns the value or an awaitable of it. If
    it is no coroutine function, it is called in a thread.
    """

    spec: ToolSpec
    handler: Callable[[JsonObject], Any]


AnyTool = Tool | PythonFunction | Callable[..., Any]
"""A function, or anything else that `PythonFunction` takes; one with another name or description; a `Tool`."""


class RunnableTool(Protocol):
    """A tool in the form that calls are run in."""

    @property
    def spec(self) -> ToolSpec:
        """What the model is told."""
        ...

    @property
    def is_async(self) -> bool:
        """Whether a call belongs on the event loop; else into a thread."""
        ...

    def bind(self, arguments: str) -> Callable[[], Any]:
        """The call that the model asks for. Raises ValueError (pydantic's among them) for arguments that do not fit."""
        ...


def runnable_tools(tools: Iterable[AnyTool]) -> Mapping[str, RunnableTool]:
    """The tools by name. Raises ValueError for two of one name, TypeError for what cannot be run, and as
    `PythonFunction` does."""
    found: dict[str, RunnableTool] = {}
    for tool in _each(tools):
        made = _runnable(tool)
        if made.spec.name in found:
            raise ValueError(f"two tools are called {made.spec.name!r}; give one of them another name")
        found[made.spec.name] = made
    return found


def _each(tools: Iterable[AnyTool]) -> Iterator[AnyTool]:
    if callable(tools) or isinstance(tools, Tool | ToolSpec):
        raise TypeError(f"tools are a list of functions and Tools; give [{tools!r}]")
    yield from tools


def _runnable(tool: object) -> RunnableTool:
    if isinstance(tool, Tool):
        return _Handled(tool)
    if isinstance(tool, PythonFunction):
        return _Called(tool)
    if isinstance(tool, ToolSpec):
        raise TypeError(f"the spec of {tool.name!r} says nothing of how to run it; give Tool(spec, handler)")
    return _Called(PythonFunction(tool))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # it checks


class _Called:
    """A Python function."""

    def __init__(self, function: PythonFunction) -> None:
        self._function = function
        self.spec = ToolSpec.of(function)
        self.is_async = function.is_async
        self.bind = function.bind


class _Handled:
    """A handler of whatever arguments."""

    def __init__(self, tool: Tool) -> None:
        self._handler = tool.handler
        self.spec = tool.spec
        call = getattr(type(tool.handler), "__call__", None)  # noqa: B004  # not whether it is there, but of what kind
        self.is_async = inspect.iscoroutinefunction(tool.handler) or inspect.iscoroutinefunction(call)

    def bind(self, arguments: str) -> Callable[[], Any]:
        given = json_object(arguments)
        if given is None:
            raise ValueError("the arguments must be one JSON object")
        return partial(self._handler, given)
