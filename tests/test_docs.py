"""The documents run, their links lead somewhere, and the reference says what the code says."""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final, get_args

import docs_runner
import pytest
from docs_runner import Block, Chain
from pydantic import BaseModel, SecretStr, ValidationError

import rx_sampler
from rx_sampler import (
    PRESETS,
    DoomLoopPolicy,
    EmptyResponseContext,
    LatencyMetrics,
    LoopDetection,
    RateLimit,
    RetryBudget,
    RetryPolicy,
    SamplerConfig,
    SamplingErrorInfo,
    SamplingErrorKind,
    SamplingEvent,
    SamplingRequest,
    SamplingResponse,
    SamplingResult,
    Usage,
)
from rx_sampler.backends import base
from rx_sampler.config import ENVIRONMENT
from rx_sampler.conversation import ReasoningEffort
from rx_sampler.retry import TABLE
from rx_sampler.simulator import Chaos, Fault, Timing, Turn
from rx_sampler.vendor_headers import GrokHeaders

ROOT: Final = Path(__file__).parent.parent
DOCS: Final = ROOT / "docs"
REFERENCE: Final = DOCS / "reference"
PAGES: Final = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]

SHARED_FIELDS: Final = {"request_id", "attempt", "ts", "turn", "kind"}


def lines(text: str) -> list[str]:
    """Printed text without white space at the ends of lines, which editors strip from a page."""
    return [line.rstrip() for line in text.rstrip().splitlines()]


def all_chains() -> list[Chain]:
    return [chain for page in PAGES for chain in docs_runner.chains(page)]


def check(chain: Chain) -> None:
    for block, printed in docs_runner.run(chain):
        if block.output is not None:
            assert lines(printed) == lines(block.output), f"{block.path.name}:{block.line}"


# -- examples


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the import path, forgotten afterwards."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    base.get_backend.cache_clear()
    for name in [name for name, module in sys.modules.items() if _lies_in(module, tmp_path)]:
        del sys.modules[name]


def _lies_in(module: ModuleType, folder: Path) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and folder in Path(file).parents


@pytest.mark.parametrize("chain", all_chains(), ids=lambda chain: chain.name)
def test_examples_run_and_print_what_the_page_says(chain: Chain, packages: Path) -> None:
    docs_runner.install(chain.blocks[0].path, packages)
    check(chain)


def pytest_blocks() -> list[Block]:
    return [block for page in PAGES for block in docs_runner.blocks(page) if block.mark("pytest") is not None]


@pytest.mark.parametrize("block", pytest_blocks(), ids=lambda block: f"{block.path.name}:{block.line}")
def test_example_tests_pass(block: Block, tmp_path: Path) -> None:
    (tmp_path / "test_example.py").write_text(block.text, encoding="utf-8")
    # By name instead of by entry point: a checkout that is not installed has no entry points.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "rx_sampler.testing.pytest_plugin", str(tmp_path)]
    environ = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    passed = block.text.count("\ndef test_")
    assert passed > 0
    assert f"{passed} passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("backend", ["chat_completions", "responses"])
def test_the_example_of_the_readme_prints_the_same_on_the_other_wire_formats(backend: str) -> None:
    (first, *_) = docs_runner.chains(ROOT / "README.md")
    (block,) = first.blocks
    assert 'backend="messages"' in block.text
    check(Chain((dataclasses.replace(block, text=block.text.replace('"messages"', f'"{backend}"')),)))


def test_the_first_example_of_the_readme_has_an_output() -> None:
    assert docs_runner.blocks(ROOT / "README.md")[0].output is not None


@pytest.mark.parametrize("mark", ["main command", "test command"])
def test_the_readme_has_the_commands_that_ci_extracts(mark: str) -> None:
    (block,) = [block for block in docs_runner.blocks(ROOT / "README.md") if block.mark(mark) is not None]
    assert block.language == "sh"
    assert len(block.text.splitlines()) == 1
    assert block.text.startswith("python3 -m venv .venv && ")


def test_every_block_that_is_not_run_says_why() -> None:
    skipped = [
        (block, reason)
        for page in PAGES
        for block in docs_runner.blocks(page)
        if (reason := block.mark("not run")) is not None
    ]
    assert [f"{block.path.name}:{block.line}" for block, reason in skipped if not reason] == []


# -- links and paths


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    broken: list[str] = []
    for link in docs_runner.links(page):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if (
            not target.exists()
            or ROOT.resolve() not in target.resolve().parents
            or (anchor and anchor not in map(docs_runner.slug, docs_runner.headings(target)))
        ):
            broken.append(link)
    assert broken == []


def test_every_page_is_reached_from_the_index() -> None:
    index = DOCS / "index.md"
    reached = {(DOCS / link.partition("#")[0]).resolve() for link in docs_runner.links(index)}
    assert {page.resolve() for page in DOCS.rglob("*.md")} - reached == {index.resolve()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_names_a_path_of_some_machine(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert (
        re.findall(r"(?<![\w.:/])/(?:home|root|tmp|usr|var|work|opt|Users)\b[^\s)]*|file://\S*|[A-Z]:\\\S*", text) == []
    )


# -- the reference against the code


def code(cell: str) -> str:
    """What the first code span of a cell holds; the cell itself if it has none."""
    match = re.search(r"`([^`]*)`", cell)
    return match[1] if match else cell


def documented(page: str, heading: str) -> list[str]:
    """The names in the first column of the table below a heading."""
    return [code(row[0]) for row in docs_runner.table(REFERENCE / page, heading)]


def field_names(kind: type[Any]) -> list[str]:
    if issubclass(kind, BaseModel):
        return list(kind.model_fields)
    return [field.name for field in dataclasses.fields(kind)]


@pytest.mark.parametrize("event", get_args(SamplingEvent), ids=lambda event: event.__name__)
def test_events_have_the_fields_that_the_reference_lists(event: type[Any]) -> None:
    own = [name for name in field_names(event) if name not in SHARED_FIELDS]
    section = docs_runner.section(REFERENCE / "events.md", event.__name__)
    assert section.lstrip().startswith(f"`{event.__dataclass_fields__['kind'].default}`")
    assert (documented("events.md", event.__name__) if own else []) == own


def test_shared_fields_of_events() -> None:
    assert set(documented("events.md", "Fields of every event")) == SHARED_FIELDS


@pytest.mark.parametrize(
    ("page", "kind"),
    [
        ("events.md", RateLimit),
        ("errors.md", SamplingErrorInfo),
        ("errors.md", EmptyResponseContext),
        ("requests.md", SamplingRequest),
        ("responses-and-metrics.md", SamplingResponse),
        ("responses-and-metrics.md", Usage),
        ("responses-and-metrics.md", SamplingResult),
        ("responses-and-metrics.md", LatencyMetrics),
        ("stages.md", base.Backend),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_classes_have_the_fields_that_the_reference_lists(page: str, kind: type[Any]) -> None:
    assert documented(page, kind.__name__) == field_names(kind)


@pytest.mark.parametrize(
    ("heading", "kind"),
    [("Turns", Turn), ("Timing", Timing), ("Faults by chance", Chaos)],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_the_simulator_has_the_fields_that_the_guide_lists(heading: str, kind: type[BaseModel]) -> None:
    assert documented("../how-to/test-your-code.md", heading) == list(kind.model_fields)


FAULT_FIELDS: Final[dict[str, object]] = {
    "after_deltas": 1,
    "after_bytes": 1,
    "after_share": 0.5,
    "delay_s": 1.0,
    "status": 503,
    "headers": {},
    "body": "x",
    "type": "x",
    "code": "x",
    "message": "x",
    "triggers": [],
    "count": 1,
    "interval_s": 1.0,
}


def accepted(kind: str, field: str) -> bool:
    try:
        Fault.model_validate({"kind": kind, field: FAULT_FIELDS[field]})
    except ValidationError:
        return False
    return True


def test_the_simulator_has_the_faults_that_the_guide_lists() -> None:
    table = {
        code(row[0]): set(re.findall(r"`(\w+)`", row[2]))
        for row in docs_runner.table(DOCS / "how-to" / "test-your-code.md", "Faults")
    }
    assert set(FAULT_FIELDS) == set(Fault.model_fields) - {"kind"}
    assert set(table) == set(get_args(Fault.model_fields["kind"].annotation))
    for kind, fields in table.items():
        assert fields == {field for field in FAULT_FIELDS if accepted(kind, field)}, kind


@pytest.mark.parametrize(
    "kind",
    [SamplerConfig, RetryPolicy, RetryBudget, DoomLoopPolicy, LoopDetection, GrokHeaders],
    ids=lambda kind: kind.__name__,
)
def test_configuration_has_the_fields_and_defaults_that_the_reference_lists(kind: type[BaseModel]) -> None:
    rows = docs_runner.table(REFERENCE / "config.md", kind.__name__)
    assert [code(row[0]) for row in rows] == list(kind.model_fields)
    for name, default, unit, meaning in ((code(row[0]), *row[1:]) for row in rows):
        field = kind.model_fields[name]
        expected = "required" if field.is_required() else shown_default(field.default)
        assert code(default) == expected, name
        assert (unit == "s") == name.endswith("_s"), name
        assert (unit == "bytes") == name.endswith("_bytes"), name
        assert meaning, name


def shown_default(value: object) -> str:
    if isinstance(value, BaseModel):
        return f"{type(value).__name__}()"
    assert not isinstance(value, SecretStr)
    return f'"{value}"' if isinstance(value, str) else repr(value)


def test_the_readme_lists_the_presets() -> None:
    rows = docs_runner.table(ROOT / "README.md", "Providers")
    listed = {name: (row[1], row[2]) for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    assert list(listed) == list(PRESETS)
    for name, (wire_format, key) in listed.items():
        assert wire_format == PRESETS[name].backend.replace("_", " ")
        assert (code(key) if PRESETS[name].key_env else None) == PRESETS[name].key_env


def test_error_kinds() -> None:
    assert documented("errors.md", "SamplingErrorKind") == [kind.value for kind in SamplingErrorKind]


def test_every_code_of_our_own_is_listed() -> None:
    sources = [path for path in sources_of_the_package() if "simulator" not in path.parts and "cli" not in path.parts]
    found = {word for path in sources for word in re.findall(r'code="(\w+)"', path.read_text(encoding="utf-8"))}
    listed = {
        word
        for row in docs_runner.table(REFERENCE / "errors.md", "Codes of our own")
        for word in re.findall(r"`(\w+)`", row[0])
    }
    assert found, "the pattern finds the codes"
    assert found - listed == set()
    text = "".join(path.read_text(encoding="utf-8") for path in sources)
    assert {word for word in listed if f'"{word}"' not in text} == set()


def test_items_of_a_conversation() -> None:
    items = docs_runner.table(REFERENCE / "requests.md", "Items")
    parts = docs_runner.table(REFERENCE / "requests.md", "Parts")
    assert {code(row[0]) for row in items} == {item.__name__ for item in get_args(get_args(rx_sampler.Item)[0])}
    for name, type_name, fields, _ in [*items, *parts]:
        model: type[BaseModel] = getattr(rx_sampler, code(name))
        assert re.findall(r"`(\w+)`", fields) == [field for field in model.model_fields if field != "type"], name
        if type_name not in ("", "any"):
            assert model.model_fields["type"].default == code(type_name)


def test_reasoning_efforts() -> None:
    row = next(row for row in docs_runner.table(REFERENCE / "requests.md", "SamplingRequest") if "effort" in row[0])
    assert re.findall(r"`(\w+)`", row[2]) == list(get_args(ReasoningEffort))


def sources_of_the_package() -> Iterable[Path]:
    return Path(rx_sampler.__file__).parent.rglob("*.py")


def test_environment_variables() -> None:
    text = (REFERENCE / "environment.md").read_text(encoding="utf-8")
    known = {preset.key_env for preset in PRESETS.values()} | {preset.base_url_env for preset in PRESETS.values()}
    known |= {name for preset in PRESETS.values() for name in preset.other_key_envs} | set(ENVIRONMENT)
    for path in sources_of_the_package():
        known |= set(re.findall(r"\bRX_SAMPLER_[A-Z_]*[A-Z]\b", path.read_text(encoding="utf-8")))
        known |= set(re.findall(r'environ\.get\("(\w+)"', path.read_text(encoding="utf-8")))
    assert {name for name in known if name and f"`{name}`" not in text} == set()


def test_every_public_name_has_a_place_in_the_reference() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in REFERENCE.glob("*.md"))
    spans = {word for span in re.findall(r"`([^`\n]+)`", text) for word in re.findall(r"\w+", span)}
    spans |= {
        word for page in REFERENCE.glob("*.md") for heading in docs_runner.headings(page) for word in heading.split()
    }
    assert set(rx_sampler.__all__) - spans == set()


@pytest.mark.parametrize("name", ["ask", "local", "log", "simulate"])
def test_options_of_the_command_line(name: str) -> None:
    pytest.importorskip("typer")
    pytest.importorskip("rich")
    from typer.main import get_command

    app = vars(importlib.import_module("rx_sampler.cli.app"))["_app"]
    group: Any = get_command(app)
    options = [param.opts for param in group.commands[name].params if param.param_type_name == "option"]
    rows = docs_runner.table(REFERENCE / "cli.md", f"rx-sampler {name}")
    told = [re.findall(r"(?<![\w-])--?[a-z][a-z-]*", row[0]) for row in rows]
    assert sorted(map(sorted, told)) == sorted(sorted(opts) for opts in options)


def test_commands_of_the_command_line() -> None:
    pytest.importorskip("typer")
    pytest.importorskip("rich")
    from typer.main import get_command

    group: Any = get_command(vars(importlib.import_module("rx_sampler.cli.app"))["_app"])
    told = {
        heading.split()[1] for heading in docs_runner.headings(REFERENCE / "cli.md") if heading.startswith("rx-sam")
    }
    assert told == set(group.commands)


def test_the_decision_table_is_the_one_that_the_guide_shows() -> None:
    rows = docs_runner.table(DOCS / "how-to" / "handle-failures.md", "What is retried")
    assert [code(row[2]) for row in rows] == [rule.action.value for rule in TABLE]
