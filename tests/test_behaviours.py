"""The tables of behaviours and hazards are whole, and every test that they name exists; behaviours' say the number."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import docs_runner
import pytest

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = ROOT / "docs" / "reference" / "behaviours.md"
COUNT: Final = 298
HAZARDS: Final = "Hazards of the original"
HAZARD_COUNT: Final = 24
FIELD: Final = "Cases from the field"

_TEST: Final = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")
_TESTS_ALONE: Final = re.compile(r"`tests/[^`]+`(, `tests/[^`]+`)*")
_REASON: Final = re.compile(r"differs: \S")


class Row(NamedTuple):
    number: str
    what: str
    tested_by: str
    notes: str

    def tests(self) -> list[tuple[str, str]]:
        """File and name (`function` or `Class::function`) of the tests that the row names."""
        return _TEST.findall(f"{self.tested_by} {self.notes}")


def rows() -> list[Row]:
    tables = [heading for heading in docs_runner.headings(PAGE) if heading not in ("Behaviours", HAZARDS, FIELD)]
    return [Row(*cells) for heading in tables for cells in docs_runner.table(PAGE, heading)]


class Shown(NamedTuple):
    """A row of the two other tables: what it is about, and where it is shown."""

    name: str
    what: str
    tests: list[tuple[str, str]]
    named: int
    """How often it names a file of tests."""


def shown(heading: str, tests_in: int) -> list[Shown]:
    found = docs_runner.table(PAGE, heading)
    return [
        Shown(cells[0], cells[1], _TEST.findall(cells[tests_in]), cells[tests_in].count("`tests/")) for cells in found
    ]


ROWS: Final = rows()
HAZARD_ROWS: Final = shown(HAZARDS, 3)
FIELD_ROWS: Final = shown(FIELD, 1)


@cache
def parsed(path: str) -> tuple[ast.Module, list[str]]:
    text = (ROOT / path).read_text(encoding="utf-8")
    return ast.parse(text), text.splitlines()


def source_of(path: str, name: str) -> str:
    """The text of a test, decorators included; "" if there is no such test."""
    if not (ROOT / path).is_file():
        return ""
    module, lines = parsed(path)
    body: list[ast.stmt] = module.body
    found: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | None = None
    for part in name.split("::"):
        named = (n for n in body if isinstance(n, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef))
        found = next((node for node in named if node.name == part), None)
        if found is None:
            return ""
        body = found.body
    if found is None or isinstance(found, ast.ClassDef):
        return ""
    first = min([found.lineno, *(decorator.lineno for decorator in found.decorator_list)])
    return "\n".join(lines[first - 1 : found.end_lineno])


def test_every_behaviour_is_there_once_and_in_order() -> None:
    assert [row.number for row in ROWS] == [f"B{number:03}" for number in range(1, COUNT + 1)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.number)
def test_a_row_says_what_it_is_about_and_where_it_is_tested_or_why_not(row: Row) -> None:
    assert row.what
    assert "TODO" not in row
    assert _TESTS_ALONE.fullmatch(row.tested_by) or _REASON.match(row.tested_by), row.tested_by


@pytest.mark.parametrize("row", [row for row in ROWS if "tests/" in row.tested_by + row.notes], ids=lambda r: r.number)
def test_the_tests_that_a_row_names_exist_and_one_says_its_number(row: Row) -> None:
    tests = row.tests()
    assert len(tests) == row.tested_by.count("`tests/") + row.notes.count("`tests/")  # none is written amiss
    sources = {f"{path}::{name}": source_of(path, name) for path, name in tests}
    assert [test for test, source in sources.items() if not source] == []
    assert all("::test_" in test for test in sources)
    assert any(row.number in source.upper() for source in sources.values()), f"{row.number} is in none of {[*sources]}"


def test_every_hazard_is_there_once_and_in_order() -> None:
    assert [row.name for row in HAZARD_ROWS] == [f"H{number}" for number in range(1, HAZARD_COUNT + 1)]


@pytest.mark.parametrize("row", [*HAZARD_ROWS, *FIELD_ROWS], ids=lambda row: row.name)
def test_the_tests_that_show_a_hazard_or_a_case_exist(row: Shown) -> None:
    assert row.name
    assert row.what
    assert len(row.tests) == row.named > 0  # none is written amiss
    assert all("::test_" in f"::{name}" for _, name in row.tests)
    assert [f"{path}::{name}" for path, name in row.tests if not source_of(path, name)] == []


def test_a_test_of_a_hazard_stands_beside_its_number() -> None:
    for number, row in enumerate(HAZARD_ROWS, 1):
        of_a_hazard = [name for path, name in row.tests if path == "tests/test_hazards.py"]
        assert all(name.startswith(f"test_h{number}_") for name in of_a_hazard), row.name


@pytest.mark.parametrize("path", ["tests/test_hazards.py", "tests/test_field_cases.py"])
def test_every_test_of_a_hazard_or_a_case_is_in_its_table(path: str) -> None:
    listed = {name for row in (*HAZARD_ROWS, *FIELD_ROWS) for file, name in row.tests if file == path}
    functions = [n for n in parsed(path)[0].body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert {function.name for function in functions if function.name.startswith("test_")} == listed


def test_a_test_that_does_not_exist_would_be_noticed() -> None:
    assert source_of("tests/test_behaviours.py", "test_every_behaviour_is_there_once_and_in_order")
    assert not source_of("tests/test_behaviours.py", "test_nothing")
    assert not source_of("tests/test_behaviours.py", "Row")
    assert not source_of("tests/test_behaviours.py", "Row::test_nothing")
    assert not source_of("tests/test_nothing.py", "test_nothing")
