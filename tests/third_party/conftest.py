"""The example package, installed the way an installer would do it."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from rx_sampler import Backend, get_backend
from rx_sampler.backends import base

PROJECT: Final = Path(__file__).parent / "rx_sampler_gemini"


def install(project: Path, folder: Path) -> None:
    """Write what pip writes of a project's `pyproject.toml`, for `importlib.metadata` to find in `folder`."""
    metadata = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    info = folder / f"{metadata['name'].replace('-', '_')}-{metadata['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {metadata['name']}\nVersion: {metadata['version']}\n", encoding="utf-8"
    )
    lines: list[str] = []
    for group, points in metadata["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package can be imported, and its entry point is found."""
    install(PROJECT, tmp_path)
    monkeypatch.setattr(sys, "path", [str(PROJECT), str(tmp_path), *sys.path])
    base.get_backend.cache_clear()
    yield
    base.get_backend.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "rx_sampler_gemini"]:
        del sys.modules[name]


@pytest.fixture
def gemini(installed: None) -> Backend[Any]:  # noqa: ARG001  # what it does is what counts
    return get_backend("gemini")
