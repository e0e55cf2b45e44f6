"""The files that use every public name: complete, and right when they run."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import rx_sampler
import rx_sampler.flow

FOLDER: Final = Path(__file__).parent / "typing"

NAMES: Final = {
    "api.py": set(rx_sampler.__all__),
    "compose.py": {*rx_sampler.operators.__all__, *rx_sampler.flow.__all__},
}


@pytest.mark.parametrize("name", NAMES)
def test_it_uses_every_public_name(name: str) -> None:
    tree = ast.parse((FOLDER / name).read_text(encoding="utf-8"))
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    used |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert NAMES[name] - used == set()


@pytest.mark.parametrize("name", NAMES)
def test_it_runs(name: str) -> None:
    root = Path(rx_sampler.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-W", "error", str(FOLDER / name)],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(root)},
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "every public name was used\n"
