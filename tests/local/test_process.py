"""Starting and ending the child, with scripts that stand in for the real one."""

import asyncio
import os
from pathlib import Path

import pytest

from rx_sampler.local import LocalModelUnavailable, LocalServer, child
from rx_sampler.local.process import ServerProcess

SETTINGS: child.Settings = {
    "path": "/models/toy.gguf",
    "alias": "toy",
    "port": 0,
    "context_tokens": 1,
    "parallel": 1,
    "threads": 1,
    "chat_template": None,
    "stop": [],
    "sampling": {},
    "max_output_tokens": None,
}


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that is run as the child; write the stand-in there."""
    path = tmp_path / "child.py"
    monkeypatch.setattr(child, "__file__", str(path))
    return path


def test_the_settings_arrive_and_the_address_comes_back(script: Path, tmp_path: Path) -> None:
    script.write_text(
        "import sys, pathlib\n"
        f"pathlib.Path({str(tmp_path / 'got')!r}).write_text(sys.stdin.readline())\n"
        'print(\'{"url": "http://127.0.0.1:9"}\', flush=True)\n'
        "sys.stdin.read()\n"
    )
    process = ServerProcess()
    try:
        assert process.start(SETTINGS) == "http://127.0.0.1:9"
        assert '"path": "/models/toy.gguf"' in (tmp_path / "got").read_text()
    finally:
        process.stop()


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise SystemExit(3)", "its process ended with status 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "its process was ended by SIGKILL"),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGILL)",
            "this processor lacks an instruction that xllamacpp is built for",
        ),
        ("print('{\"error\": \"No module named \\'xllamacpp\\'\"}')", "No module named 'xllamacpp'"),
        (
            "import sys\n"
            "print('0.00.1 W srv          init: a warning', file=sys.stderr)\n"
            "print('0.00.2 E llama_model_load: error loading model: tensor is cut', file=sys.stderr)\n"
            "print('0.00.3 E srv    load_model: failed to load model', file=sys.stderr)\n"
            'print(\'{"error": "Failed to init server, please check the input params."}\')',
            "error loading model: tensor is cut",
        ),
    ],
    ids=["exit", "killed", "illegal instruction", "exception", "log"],
)
def test_a_child_that_does_not_start_says_why_in_one_line(script: Path, code: str, reason: str) -> None:
    script.write_text(code)

    with pytest.raises(LocalModelUnavailable) as caught:
        ServerProcess().start(SETTINGS)

    assert str(caught.value) == f"llama.cpp did not start with /models/toy.gguf: {reason}"


def test_stopping_twice_or_before_the_start_is_fine(script: Path) -> None:
    script.write_text('import sys\nprint(\'{"url": "u"}\', flush=True)\nsys.stdin.read()')
    process = ServerProcess()
    process.start(SETTINGS)
    pid = process.pid
    process.stop()
    process.stop()

    assert pid is not None
    with pytest.raises(ProcessLookupError):  # reaped as well: a zombie would still be found
        os.kill(pid, 0)

    never = ServerProcess()
    never.stop()
    with pytest.raises(LocalModelUnavailable, match="stopped before it started"):
        never.start(SETTINGS)


def test_a_process_that_cannot_be_made_is_a_reason_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")

    with pytest.raises(LocalModelUnavailable, match=r"cannot start a process for llama\.cpp: .*No such file.*python"):
        ServerProcess().start(SETTINGS)


@pytest.fixture
def held_pipe(script: Path, tmp_path: Path) -> Path:
    """A named pipe that the stand-in opens, writes a line to, and holds as long as it lives. It never answers."""
    if not hasattr(os, "mkfifo"):
        pytest.skip("needs a named pipe")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    script.write_text(
        f"import sys\nheld = open({str(fifo)!r}, 'w')\nheld.write('up\\n')\nheld.flush()\nsys.stdin.read()"
    )
    return fifo


async def test_cancelling_the_start_ends_the_child(
    held_pipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rx_sampler.local.server.require_engine", lambda: None)
    model = tmp_path / "toy.gguf"
    await asyncio.to_thread(model.write_bytes, b"GGUF")
    server = LocalServer(model)
    starting = asyncio.create_task(server.__aenter__())
    with await asyncio.to_thread(held_pipe.open) as pipe:
        assert await asyncio.to_thread(pipe.readline) == "up\n"
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

        assert await asyncio.to_thread(pipe.read) == ""  # its end: whoever held the other side is gone
    assert server.pid is None
    with pytest.raises(RuntimeError, match="is not running"):
        _ = server.base_url
