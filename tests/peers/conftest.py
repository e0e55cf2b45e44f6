"""Servers that others wrote, one of each kind for the whole run of this folder."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from rx_sampler.local import LocalServer, child, process

from . import seeing_child
from .tiny_gguf import PLAIN_TEMPLATE, THINKING_TEMPLATE, TOOLS_TEMPLATE, TURNS_TEMPLATE, write_tiny_gguf
from .tiny_mmproj import write_tiny_mmproj


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


@pytest.fixture(scope="session")
def turns(tiny_model: Path) -> Generator[LocalServer]:
    """One that tells what it was prompted with: see `tool_turns.prompt_of`."""
    with ExitStack() as running:
        with pytest.MonkeyPatch.context() as patch:
            server = running.enter_context(_telling(tiny_model, patch))
        yield server


@pytest.fixture(scope="session")
def seeing(tiny_model: Path) -> Generator[LocalServer]:
    """One that also takes images."""
    with ExitStack() as running:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TINY_MMPROJ", str(write_tiny_mmproj(tiny_model.with_name("tiny-mmproj.gguf"))))
            patch.setenv("TINY_CHILD", child.__file__)
            patch.setattr(process, "child", SimpleNamespace(__file__=seeing_child.__file__))
            server = running.enter_context(_telling(tiny_model, patch))
        yield server


def _telling(model: Path, patch: pytest.MonkeyPatch) -> LocalServer:
    patch.setenv("LLAMA_SERVER_SLOTS_DEBUG", "1")
    return LocalServer(model, chat_template=TURNS_TEMPLATE, context=2048, parallel=1)
