"""Names: what each module says it exports exists, is sorted and documented, and the package hands out the contract."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pkgutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

import rx_sampler

PACKAGE: Final = Path(rx_sampler.__file__).parent

EXTRAS: Final = {
    # what these parts of the package need beyond the core
    "rx_sampler.cli": ("typer", "rich"),
    "rx_sampler.testing.pytest_plugin": ("pytest",),
}

MODULES: Final = sorted(
    info.name
    for info in pkgutil.walk_packages([str(PACKAGE)], "rx_sampler.")
    if not any(part.startswith("_") for part in info.name.split("."))
)

CONTRACT: Final = frozenset(
    {
        "Sampler",
        "SamplerConfig",
        "SamplingRequest",
        "SamplingResponse",
        "LatencyMetrics",
        "SamplingEvent",
        "StreamStarted",
        "ResponseStarted",
        "ModelMetadata",
        "FirstToken",
        "ChannelToken",
        "ReasoningCompleted",
        "ToolCallDelta",
        "BackendToolCallStarted",
        "BackendToolCallCompleted",
        "AnnotationAdded",
        "ImagesStripped",
        "DoomLoopSignals",
        "Retrying",
        "Completed",
        "Failed",
        "SamplingError",
        "SamplingErrorInfo",
        "SamplingErrorKind",
        "RetryPolicy",
        "DoomLoopPolicy",
        "sse_frames",
        "typed_chunks",
        "sampling_events",
        "failures_as_events",
        "event_to_json",
        "event_from_json",
    }
)
"""The names that users rely on."""


def imported(name: str) -> ModuleType:
    for extra, needed in EXTRAS.items():
        if name == extra or name.startswith(extra + "."):
            for module in needed:
                pytest.importorskip(module)
    return importlib.import_module(name)


def sort_key(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest, each in alphabetical order: the order that ruff keeps."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2, name)


def defined_here(module: ModuleType) -> set[str]:
    """Public classes and functions that the module's own text defines.

    None of a program or a pytest plugin, which nobody imports from.
    """
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    if module.__name__.endswith(".pytest_plugin") or any(
        isinstance(node, ast.If) and "'__main__'" in ast.dump(node.test) for node in tree.body
    ):
        return set()
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in tree.body if isinstance(node, kinds) and not node.name.startswith("_")}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_lists_what_it_exports(name: str) -> None:
    module = imported(name)
    if not defined_here(module) and not hasattr(module, "__all__"):
        return  # an empty package, or a module that only runs
    exported: list[str] = module.__all__
    assert exported == sorted(set(exported), key=sort_key)
    missing = [one for one in exported if not hasattr(module, one)]
    assert not missing


@pytest.mark.parametrize("name", MODULES)
def test_a_module_and_what_it_exports_is_documented(name: str) -> None:
    module = imported(name)
    exported: list[str] = getattr(module, "__all__", [])
    if exported:
        assert module.__doc__, name
    for one in exported:
        thing = getattr(module, one)
        if (inspect.isclass(thing) or inspect.isfunction(thing)) and thing.__module__ == name:
            assert own_doc(thing), f"{name}.{one}"


def own_doc(thing: Any) -> str | None:
    """The docstring that was written, not the one that a dataclass or its base makes up."""
    doc = thing.__doc__
    if dataclasses.is_dataclass(thing) and doc and doc.startswith(f"{getattr(thing, '__name__', '')}("):
        return None
    return doc if not inspect.isclass(thing) or "__doc__" in vars(thing) else None


def test_the_package_exports_the_contract() -> None:
    assert not CONTRACT - set(rx_sampler.__all__)


def test_the_package_lists_its_names_in_order_and_has_them() -> None:
    assert rx_sampler.__all__ == sorted(set(rx_sampler.__all__), key=sort_key)
    for name in rx_sampler.__all__:
        assert getattr(rx_sampler, name, None) is not None, name


def test_the_package_lists_every_name_it_imports() -> None:
    present = {
        name
        for name, value in vars(rx_sampler).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert present == set(rx_sampler.__all__) - {
        n for n in rx_sampler.__all__ if isinstance(vars(rx_sampler)[n], ModuleType)
    }


def test_every_public_class_and_function_has_a_docstring() -> None:
    for name in rx_sampler.__all__:
        thing = getattr(rx_sampler, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            doc = own_doc(thing)
            assert doc, name
            assert doc.strip().splitlines()[0], name


@pytest.mark.parametrize(
    ("name", "method"),
    [
        (name, method)
        for name in rx_sampler.__all__
        if inspect.isclass(thing := getattr(rx_sampler, name)) and thing.__module__.startswith("rx_sampler")
        for method, value in vars(thing).items()
        if inspect.isfunction(value) and not method.startswith("_") and value.__module__.startswith("rx_sampler")
    ],
)
def test_every_public_method_has_a_docstring(name: str, method: str) -> None:
    owner: Any = getattr(rx_sampler, name)
    function: Any = owner.__dict__[method]
    overridden = [base for base in getattr(rx_sampler, name).__mro__[1:] if method in vars(base)]
    assert function.__doc__ or overridden


def test_a_star_import_brings_the_listed_names_and_no_others() -> None:
    namespace: dict[str, Any] = {}
    exec("from rx_sampler import *", namespace)  # noqa: S102  # the only way to star-import outside of a module's top
    assert {name for name in namespace if name != "__builtins__"} == set(rx_sampler.__all__)


def test_names_of_the_package_are_those_of_their_modules() -> None:
    for name in rx_sampler.__all__:
        thing = getattr(rx_sampler, name)
        home = sys.modules.get(getattr(thing, "__module__", ""))
        if (inspect.isclass(thing) or inspect.isfunction(thing)) and home is not None and home is not rx_sampler:
            assert name in getattr(home, "__all__", ()), f"{name} is not in __all__ of {home.__name__}"


def test_the_package_is_marked_as_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()
