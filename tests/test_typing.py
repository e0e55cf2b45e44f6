"""The file that uses every public name: complete, and right when it runs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Final

import rx_sampler

API: Final = Path(__file__).parent / "typing" / "api.py"


def test_it_uses_every_public_name() -> None:
    tree = ast.parse(API.read_text(encoding="utf-8"))
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert set(rx_sampler.__all__) - used == set()


def test_it_runs() -> None:
    root = Path(rx_sampler.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-W", "error", str(API)],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(root)},
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "every public name was used\n"
