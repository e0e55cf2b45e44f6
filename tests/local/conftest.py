"""A tiny model for the embedded server, made on the spot."""

import subprocess
import sys
from pathlib import Path

import pytest

GENERATOR = Path(__file__).parents[1] / "peers" / "tiny_gguf.py"


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("xllamacpp", reason="the extra [local] is not installed", exc_type=ImportError)
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    subprocess.run([sys.executable, GENERATOR, path], check=True)
    return path
