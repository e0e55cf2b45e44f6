"""Servers that others wrote, one of each kind for the whole run of this folder."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from rx_sampler.local import LocalServer

from .tiny_gguf import PLAIN_TEMPLATE, THINKING_TEMPLATE, TOOLS_TEMPLATE, write_tiny_gguf


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GGUF that answers as `tiny_gguf.SCRIPTS` says."""
    pytest.importorskip("xllamacpp", reason="the extra [local] is not installed", exc_type=ImportError)
    return write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(scope="session")
def plain(tiny_model: Path) -> Generator[LocalServer]:
    with LocalServer(tiny_model, chat_template=PLAIN_TEMPLATE, context=512) as server:
        yield server


@pytest.fixture(scope="session")
def thinking(tiny_model: Path) -> Generator[LocalServer]:
    with LocalServer(tiny_model, chat_template=THINKING_TEMPLATE, context=512) as server:
        yield server


@pytest.fixture(scope="session")
def tools(tiny_model: Path) -> Generator[LocalServer]:
    with LocalServer(tiny_model, chat_template=TOOLS_TEMPLATE, context=1024) as server:
        yield server
