"""The pages about backends: what one quotes stands in the example package, what the other builds keeps the laws."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import docs_runner
import pytest

from rx_sampler.backends import base
from rx_sampler.testing.backend_check import check_backend

HERE: Final = Path(__file__).parent
PAGE: Final = HERE.parents[1] / "docs" / "how-to" / "ship-a-backend.md"
PIECES: Final = [block for block in docs_runner.blocks(PAGE) if (block.mark("not run") or "").startswith("a piece of ")]


@pytest.mark.parametrize("block", PIECES, ids=lambda block: f"{block.line}")
def test_what_is_quoted_stands_in_the_package(block: docs_runner.Block) -> None:
    name = (block.mark("not run") or "").removeprefix("a piece of ")
    (file,) = [path for path in HERE.rglob("*.py") if path.as_posix().endswith(f"/{name}")]
    assert block.text in file.read_text(encoding="utf-8")


def test_every_module_of_the_package_is_quoted() -> None:
    quoted = {(block.mark("not run") or "").rpartition("/")[2] for block in PIECES}
    assert {path.name for path in (HERE / "rx_sampler_gemini").rglob("*.py")} <= quoted


def test_the_format_that_a_page_builds_keeps_the_laws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # One JSON object a line: a framing of its own.
    docs_runner.install(PAGE.with_name("add-a-wire-format.md"), tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    base.get_backend.cache_clear()
    transcript = (
        b'{"model":"gemma","message":{"role":"assistant","content":"It is"},"done":false}\n'
        b'{"model":"gemma","message":{"role":"assistant","content":" bl\xc3\xbce."},"done":false}\n'
        b'{"model":"gemma","done":true,"done_reason":"stop","prompt_eval_count":9,"eval_count":4}\n'
    )
    check_backend("ollama_chat", [transcript])
    base.get_backend.cache_clear()
    del sys.modules["rx_sampler_ollama"]
