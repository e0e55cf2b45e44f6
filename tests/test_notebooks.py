"""The notebooks run from top to bottom, and what they keep of their last run is small and names no machine."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parent.parent
NOTEBOOKS: Final = sorted((ROOT / "notebooks").glob("*.ipynb"))

KERNEL_TIMEOUT_S: Final = 100
MAX_BYTES: Final = 200_000


def read(path: Path) -> dict[str, Any]:
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_there_is_a_notebook() -> None:
    assert [path.name for path in NOTEBOOKS] == ["event_timeline.ipynb"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_outputs_are_kept_and_small(path: Path) -> None:
    assert path.stat().st_size < MAX_BYTES
    cells = code_cells(read(path))
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert any(output for cell in cells for output in cell["outputs"])
    assert [
        output for cell in cells for output in cell["outputs"] if output["output_type"] in ("error", "stream")
    ] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_no_notebook_names_a_path_of_some_machine(path: Path) -> None:
    assert (
        re.findall(r"(?<![\w.:<])/(?:home|root|tmp|usr|var|work|opt|Users)/\S*", path.read_text(encoding="utf-8")) == []
    )


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_every_cell_runs(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nbformat: Any = pytest.importorskip("nbformat")
    nbclient: Any = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # the kernel is a process of its own
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    notebook: Any = nbformat.read(path, as_version=4)
    client: Any = nbclient.NotebookClient(notebook, timeout=KERNEL_TIMEOUT_S, kernel_name="python3")
    client.execute()  # raises where a cell does
    ran = code_cells(notebook)
    assert [cell["execution_count"] for cell in ran] == list(range(1, len(ran) + 1))
    assert [output for cell in ran for output in cell["outputs"] if output["output_type"] == "error"] == []
