"""Imports run one way: vocabulary, wire, backends, request; and what stands around the core is never needed by it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

import rx_sampler

PACKAGE: Final = Path(rx_sampler.__file__).parent
AROUND: Final = frozenset({"bulk", "cli", "dashboard", "local", "simulator", "telemetry", "testing", "timeline"})
"""What stands around the core: it may use the core, the core must not know it."""

VOCABULARY: Final = (
    "addresses",
    "config",
    "conversation",
    "dialects",
    "docstrings",
    "errors",
    "events",
    "functions",
    "metrics",
    "policies",
    "providers",
    "vendor_headers",
)

REQUESTS: Final = (
    "actor",
    "admission",
    "attempt",
    "bridge",
    "course",
    "demand",
    "feeds",
    "flow",
    "handles",
    "observing",
    "operators",
    "outcome",
    "outgoing",
    "portal",
    "replay",
    "retry",
    "running",
    "sampler",
    "tools",
)
"""What makes requests out of the stages: neither those nor a wire format know it."""


BORROWED: Final = {("responses", "rx_sampler.backends.chat_completions.usage")}
"""What one wire format takes from another's folder, and why: both quote costs in the same words of one vendor."""


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports_of(path: Path, *, at_run_time_only: bool = False) -> tuple[str, ...]:
    """The absolute names of the modules that a file imports, anywhere in it."""
    return tuple(_imports_of(path, at_run_time_only))


def _imports_of(path: Path, at_run_time_only: bool) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped: set[int] = set()
    if at_run_time_only:
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
                skipped |= {id(inner) for inner in ast.walk(node)}
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            origin = ".".join(filter(None, (base, node.module)))
            # `from package import module` imports the module as much as `import package.module` does
            names = [f"{origin}.{alias.name}" for alias in node.names]
            yield from [name for name in names if name in ALL] or [origin]


FILES: Final = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
ALL: Final = frozenset(FILES)
CORE: Final = {name: path for name, path in FILES.items() if name.partition(".")[2].partition(".")[0] not in AROUND}


def within(name: str, *layers: str) -> bool:
    return any(name == layer or name.startswith(layer + ".") for layer in layers)


def test_the_reader_of_imports_sees_relative_ones() -> None:
    # or all that follows would pass for want of imports
    assert {"rx_sampler.config", "rx_sampler.wire.idle"} <= set(imports_of(FILES["rx_sampler.attempt"]))
    assert "rx_sampler.wire.transport" in set(imports_of(FILES["rx_sampler.wire.idle"]))
    assert "aiohttp" in set(imports_of(FILES["rx_sampler.wire.http"]))
    assert len(CORE) > 25


@pytest.mark.parametrize("name", CORE)
def test_the_core_does_not_know_what_stands_around_it(name: str) -> None:
    around = [f"rx_sampler.{part}" for part in AROUND]
    assert [one for one in imports_of(FILES[name]) if within(one, *around)] == []


@pytest.mark.parametrize("name", [name for name in CORE if within(name, *(f"rx_sampler.{one}" for one in VOCABULARY))])
def test_the_vocabulary_knows_only_itself(name: str) -> None:
    known = [f"rx_sampler.{module}" for module in VOCABULARY]
    assert [one for one in imports_of(FILES[name]) if within(one, "rx_sampler") and not within(one, *known)] == []
    assert not [one for one in imports_of(FILES[name]) if within(one, "aiohttp", "reactivex")]


@pytest.mark.parametrize(
    "name", [name for name in CORE if within(name, "rx_sampler.wire", "rx_sampler.stage", "rx_sampler.scheduling")]
)
def test_stages_and_wire_know_no_backend_and_no_request(name: str) -> None:
    later = ("backends", *REQUESTS)
    assert [one for one in imports_of(FILES[name]) if within(one, *(f"rx_sampler.{part}" for part in later))] == []


@pytest.mark.parametrize("name", [name for name in CORE if within(name, "rx_sampler.backends")])
def test_backends_know_no_request_and_not_each_other(name: str) -> None:
    later = REQUESTS
    found = set(imports_of(FILES[name]))
    assert not [one for one in found if within(one, *(f"rx_sampler.{part}" for part in later))]
    parts = name.split(".")
    folders = {"chat_completions", "responses", "messages"}
    own = parts[2] if len(parts) > 2 and parts[2] in folders else ""
    others = [f"rx_sampler.backends.{folder}" for folder in folders - {own}]
    strangers = {one for one in found if within(one, *others)}
    assert {(own, one) for one in strangers} <= BORROWED


def test_what_is_borrowed_is_really_borrowed() -> None:
    for folder, module in BORROWED:
        files = [path for name, path in FILES.items() if within(name, f"rx_sampler.backends.{folder}")]
        assert any(module in set(imports_of(path)) for path in files), "take it off the list"


NETWORK: Final = (
    "rx_sampler.wire.http",
    "rx_sampler.wire.network_errors",
    "rx_sampler.wire.connection_loss",
    "rx_sampler.wire.tls",
)
"""The module that touches the network, what it needs to say what goes wrong there, and whom it trusts."""


@pytest.mark.parametrize("name", CORE)
def test_one_module_of_the_core_touches_the_network(name: str) -> None:
    network = ("aiohttp", "socket", "ssl", "http.client", "urllib.request")
    if name not in NETWORK:
        assert not [one for one in imports_of(FILES[name]) if within(one, *network)]


@pytest.mark.parametrize("name", CORE)
def test_the_core_needs_nothing_but_its_four_dependencies(name: str) -> None:
    # typing_extensions comes with pydantic, whose TypedDicts need it before Python 3.12, and with reactivex
    allowed = {"rx_sampler", "aiohttp", "backoff", "pydantic", "pydantic_core", "reactivex", "typing_extensions"}
    allowed |= sys.stdlib_module_names
    assert {one.partition(".")[0] for one in imports_of(FILES[name])} <= allowed


def test_no_imports_go_round_in_a_circle() -> None:
    graph = {
        name: {one for one in imports_of(path, at_run_time_only=True) if one in ALL and one != name}
        for name, path in FILES.items()
    }
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join([*trail[trail.index(name) :], name])
        if name not in done:
            for one in sorted(graph[name]):
                visit(one, (*trail, name))
            done.add(name)

    for name in CORE:
        visit(name, ())


@cache
def _loaded_by(statement: str) -> frozenset[str]:
    script = f"{statement}\nimport sys\nprint('\\n'.join(sys.modules))"
    environment = {"PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment, timeout=60
    )
    assert done.stderr == ""
    return frozenset(done.stdout.split())


def test_importing_the_package_loads_nothing_that_it_does_not_need() -> None:
    loaded = _loaded_by("import rx_sampler")
    unwanted = (
        "typer",
        "rich",
        "click",
        "aiohttp.web",
        "xllamacpp",
        "pytest",
        "openai",
        "anthropic",
        "numpy",
        "pandas",
    )
    assert not [name for name in loaded if within(name, *unwanted)]
    assert not [name for name in loaded if within(name, *(f"rx_sampler.{part}" for part in AROUND))]
    assert "rx_sampler.sampler" in loaded


def test_the_network_is_loaded_with_the_first_sampler() -> None:
    # whoever reads recordings needs none
    assert "aiohttp" not in _loaded_by("import rx_sampler")
    config = "rx_sampler.SamplerConfig(base_url='http://127.0.0.1:9')"
    assert "aiohttp" in _loaded_by(f"import rx_sampler; rx_sampler.Sampler({config})")


@pytest.mark.parametrize("backend", ["chat_completions", "responses", "messages"])
def test_a_backend_is_loaded_when_it_is_asked_for(backend: str) -> None:
    loaded = _loaded_by("import rx_sampler")
    assert f"rx_sampler.backends.{backend}" not in loaded
    assert f"rx_sampler.backends.{backend}" in _loaded_by(f"import rx_sampler; rx_sampler.get_backend({backend!r})")


@pytest.mark.parametrize("module", ["rx_sampler.simulator", "rx_sampler.testing"])
def test_the_command_line_is_loaded_by_itself_only(module: str) -> None:
    loaded = _loaded_by(f"import {module}")
    assert not [name for name in loaded if within(name, "typer", "rich", "rx_sampler.cli")]


def test_every_file_is_a_module_one_can_read() -> None:
    # a page or two each; where one grows past that, look again
    long = {name: lines for name, path in CORE.items() if (lines := len(path.read_text().splitlines())) > 450}
    assert not long


@pytest.mark.parametrize("name", [name for name in CORE if within(name, "rx_sampler.retry")])
def test_retry_knows_no_request_but_its_course(name: str) -> None:
    later = [f"rx_sampler.{part}" for part in REQUESTS if part not in ("course", "demand", "retry")]
    assert [one for one in imports_of(FILES[name]) if within(one, *later, "rx_sampler.backends")] == []


def test_nothing_below_the_bridge_knows_it() -> None:
    below = [name for name in CORE if not within(name, "rx_sampler.bridge")]
    assert [name for name in below if any(within(one, "rx_sampler.bridge") for one in imports_of(FILES[name]))] == []
