"""`rx-sampler local` and `rx-sampler simulate`: up until a signal."""

import json
import os
import signal
import socket
from asyncio.subprocess import Process
from pathlib import Path

import pytest

from .harness import run, start

pytestmark = pytest.mark.skipif(os.name != "posix", reason="POSIX signals")

FAKE_LOCAL = """
from rx_sampler import local
from rx_sampler.cli import main
class Fake:
    def __init__(self, model, *, thinking, port=0):
        self.base_url = f"http://127.0.0.1:{port}/v1"
        self.model = f"{model.stem}, thinking: {thinking}"
    async def __aenter__(self):
        return self
    async def __aexit__(self, *_):
        print("down", flush=True)
local.LocalServer = Fake
main()
"""
QUICK = ("--ttft-ms", "0", "--tokens-per-second", "0")


async def base_url(process: Process) -> str:
    assert process.stdout is not None
    while line := await process.stdout.readline():
        if line.startswith(b"base URL: "):
            return line.split()[2].decode()
    raise AssertionError("no base URL was printed")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_local_serves_until_a_signal(number: signal.Signals) -> None:
    process = await start("local", "--model", "mine.gguf", "--thinking", "--port", "8123", code=FAKE_LOCAL)
    assert process.stdout is not None
    assert b"mine, thinking: True" in await process.stdout.readline()
    assert await base_url(process) == "http://127.0.0.1:8123/v1"
    process.send_signal(number)
    out, err = await process.communicate()
    assert out.decode().count("curl -N http://127.0.0.1:8123/v1/") == 3
    assert out.endswith(b"down\n")
    assert (process.returncode, err) == (0, b"")


async def test_simulate_answers_the_same_for_the_same_seed_and_says_what_it_is() -> None:
    process = await start("simulate", "--seed", "7", *QUICK)
    assert process.stdout is not None
    assert b"simulation" in await process.stdout.readline()
    ask = ["ask", "Why?", "--base-url", await base_url(process), "--backend", "messages", "--model", "any"]
    first, second = await run(*ask), await run(*ask)
    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert first.code == 0, first.err
    assert first.out == second.out != "\n"


async def test_a_script_says_what_each_request_gets(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"text": "As scripted."}, {"fault": {"kind": "status", "status": 401}}]))
    process = await start("simulate", "--script", str(script), *QUICK)
    ask = ["ask", "Why?", "--base-url", await base_url(process), "--model", "any"]
    first, second = await run(*ask), await run(*ask)
    process.send_signal(signal.SIGTERM)
    await process.communicate()
    assert (first.code, first.out) == (0, "As scripted.\n")
    assert (second.code, second.out) == (1, "")
    assert "no API key was sent" in second.err


async def test_a_script_that_is_none_and_a_taken_port_are_one_line(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('[{"txt": "typo"}]')
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for arguments, says in ((["--script", str(script)], "txt"), (["--port", port], f"port {port}: ")):
            outcome = await run("simulate", *arguments)
            assert (outcome.code, outcome.out) == (1, "")
            assert outcome.err.startswith("error: ")
            assert outcome.err.count("\n") == 1
            assert says in outcome.err
