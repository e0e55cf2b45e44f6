"""What the simulator may import: it stands beside the core, neither below nor above it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import rx_sampler.simulator as package

FOLDER = Path(package.__file__).parent
ALLOWED = {"aiohttp", "pydantic"} | set(sys.stdlib_module_names)


def imported_by(path: Path) -> Iterator[tuple[int, str]]:
    """The level (0: absolute) and name of every module that a file imports, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.level, node.module or ""
            yield from ((node.level, f"{node.module or ''}.{alias.name}".strip(".")) for alias in node.names)


def test_it_imports_aiohttp_pydantic_and_the_standard_library_only() -> None:
    for path in FOLDER.glob("*.py"):
        for level, name in imported_by(path):
            assert level == 1 or (level == 0 and name.split(".")[0] in ALLOWED), (path.name, name)


def test_the_core_does_not_import_it() -> None:
    around = {"simulator", "testing", "cli", "local", "dashboard", "telemetry", "bulk", "timeline"}
    for path in FOLDER.parent.rglob("*.py"):
        if path.relative_to(FOLDER.parent).parts[0] not in around:
            assert not [name for _, name in imported_by(path) if "simulator" in name.split(".")], path
