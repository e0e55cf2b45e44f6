"""Functions of the user's, named on the command line, as tools."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .options import UnusableError

if TYPE_CHECKING:
    from rx_sampler.tools import AnyTool

__all__ = ["load_tools"]


def load_tools(names: Iterable[str]) -> tuple[AnyTool, ...]:
    """The functions that `MODULE:FUNCTION` names, modules of the current directory first.

    Raises `UnusableError` for what is no such name, cannot be imported, or is no tool.
    """
    listed = tuple(names)
    if listed and (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    return tuple(_checked(listed))


def _checked(names: Iterable[str]) -> Iterator[AnyTool]:
    from rx_sampler.functions import PythonFunction
    from rx_sampler.tools import Tool

    seen: dict[str, str] = {}
    for name in names:
        found = _imported(name)
        try:
            tool = found if isinstance(found, Tool | PythonFunction) else PythonFunction(found)
            called = tool.spec.name if isinstance(tool, Tool) else tool.name
            if isinstance(tool, PythonFunction):
                _ = tool.parameters  # now, rather than with the first request
        except (TypeError, ValueError) as error:
            raise UnusableError(f"--tool {name}: {error}") from None
        if called in seen:
            raise UnusableError(f"--tool {name}: {seen[called]} is called {called!r} already")
        seen[called] = name
        yield tool


def _imported(name: str) -> Any:
    module_name, colon, path = name.partition(":")
    if not (module_name and colon and path):
        raise UnusableError(f"--tool {name}: give MODULE:FUNCTION, such as my_tools:weather")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise UnusableError(f"--tool {name}: there is no module {error.name}, here or installed") from None
        raise UnusableError(f"--tool {name}: {module_name} needs a module that is missing: {error.name}") from None
    except Exception as error:  # whatever a module does when it is imported
        raise UnusableError(f"--tool {name}: importing {module_name} raised {type(error).__name__}: {error}") from None
    for part in path.split("."):
        if not hasattr(found, part):
            raise UnusableError(f"--tool {name}: {module_name} has no {path}")
        found = getattr(found, part)
    return found
