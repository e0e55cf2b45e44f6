"""`rx-sampler ask` as a user runs it: a process, its pipes, signals and exit codes."""

import asyncio
import os
import signal
import socket
from pathlib import Path

import pytest

from rx_sampler.events import ChannelToken, Completed, ToolResultAdded, event_from_json

from .harness import DONE, Reply, delta, run, scripted, start, usage

ANSWER = [delta(role="assistant", content=""), delta(content="The sky"), delta(content=" is blue.")]
END = [delta("stop"), usage(12, 5), DONE]


def read_exactly(descriptor: int, size: int) -> bytes:
    with os.fdopen(os.dup(descriptor), "rb", buffering=0) as pipe:
        content = b""
        while len(content) < size and (piece := pipe.read(size - len(content))):
            content += piece
    return content


posix_only = pytest.mark.skipif(os.name != "posix", reason="POSIX signals and pipes")


async def test_the_answer_goes_to_stdout_and_the_rest_to_stderr() -> None:
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"up":true}'}}
    reply = Reply([delta(reasoning_content="Rayleigh"), *ANSWER, delta(tool_calls=[call]), *END])
    async with scripted(reply) as server:
        outcome = await run("ask", "Why?", *server.options)
    assert outcome.code == 0, outcome.err
    assert outcome.out == "The sky is blue.\n"
    reasoning, tool_call, summary = outcome.err.splitlines()
    assert reasoning == "reasoning: Rayleigh"
    assert tool_call == 'tool call look (call_1): {"up":true}'
    assert summary.startswith("m-1 | time to first token ")
    assert " | 12 input tokens, 5 output tokens | stop: " in summary


async def test_the_request_is_what_the_options_say() -> None:
    async with scripted(Reply([*ANSWER, *END])) as server:
        options = ["--system", "Be brief.", "--max-tokens", "7", "--temperature", "0"]
        outcome = await run(
            "ask", "-", *server.options, "--api-key-env", "MY_KEY", *options,
            env={"MY_KEY": "k-123"}, stdin=b"Why is the sky blue?\n",
        )  # fmt: skip
    assert outcome.code == 0, outcome.err
    head, body = server.heads[0], server.bodies[0]
    assert head.startswith("POST /v1/chat/completions ")
    assert "authorization: bearer k-123" in head.lower()
    assert body["model"] == "m"
    assert body["temperature"] == 0
    assert 7 in (body.get("max_tokens"), body.get("max_completion_tokens"))
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert "Why is the sky blue?" in str(body["messages"][1]["content"])


async def test_argument_and_stdin_are_one_prompt() -> None:
    async with scripted(Reply([*ANSWER, *END])) as server:
        await run("ask", "Sum up:", *server.options, stdin=b"some text")
    assert "Sum up:\n\nsome text" in repr(server.bodies[0]["messages"]).replace("\\n", "\n")


async def test_the_environment_names_the_server() -> None:
    async with scripted(Reply([*ANSWER, *END])) as server:
        environ = {"RX_SAMPLER_BASE_URL": server.base_url, "RX_SAMPLER_MODEL": "m-3"}
        outcome = await run("ask", "Why?", env=environ)
    assert outcome.out == "The sky is blue.\n"
    assert server.bodies[0]["model"] == "m-3"


async def test_events_are_lines_of_json_that_read_back() -> None:
    async with scripted(Reply([*ANSWER, *END])) as server:
        outcome = await run("ask", "Why?", *server.options, "--events")
    assert outcome.code == 0, outcome.err
    events = [event_from_json(line) for line in outcome.out.splitlines()]
    assert "".join(event.text for event in events if isinstance(event, ChannelToken)) == "The sky is blue."
    last = events[-1]
    assert isinstance(last, Completed)
    assert last.response.text == "The sky is blue."


async def test_escapes_in_an_answer_are_shown_even_when_cut() -> None:
    pieces = [delta(content="red: \x1b"), delta(content="[31m\u202e"), delta(content="\x9b2J [b]x[/b]")]
    async with scripted(Reply([*pieces, *END])) as server:
        outcome = await run("ask", "x", *server.options, env={"FORCE_COLOR": "1"})
        events = await run("ask", "x", *server.options, "--events")
    assert outcome.out == "red: \\x1b[31m\\u202e\\x9b2J [b]x[/b]\n"
    assert not {"\x1b", "\x9b", "\u202e"} & set(events.out)
    last = event_from_json(events.out.splitlines()[-1])
    assert isinstance(last, Completed)
    assert last.response.text == "red: \x1b[31m\u202e\x9b2J [b]x[/b]"


@pytest.mark.parametrize(
    ("status", "content_type", "body", "words"),
    [
        (
            "401 Unauthorized",
            "application/json",
            b'{"error":{"message":"Incorrect \\u001b[31mkey","type":"invalid_request_error","code":"invalid_api_key"}}',
            ["Incorrect", "no API key was sent"],
        ),
        (
            "404 Not Found",
            "application/json",
            b'{"error":{"message":"The model m does not exist","type":"invalid_request_error","code":null}}',
            ["The model m does not exist", "check the model's name"],
        ),
        ("200 OK", "text/html", b"<html><body>Please log in</body></html>", ["html", "web page"]),
        ("500 Internal Server Error", "text/plain", b"out of order", ["out of order"]),
    ],
)
async def test_a_refusal_of_the_server_is_one_line(
    status: str, content_type: str, body: bytes, words: list[str]
) -> None:
    async with scripted(Reply([body], status=status, content_type=content_type)) as server:
        outcome = await run("ask", "Why?", *server.options)
    assert outcome.code == 1
    assert outcome.out == ""
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1
    assert "\x1b" not in outcome.err
    for word in words:
        assert word in outcome.err
    assert len(server.bodies) == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_dead_server_is_one_line(host: str) -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))  # bound and not listening: refused, and nobody else can take the port
        outcome = await run("ask", "Why?", "--base-url", f"http://{host}:{unheard.getsockname()[1]}/v1", "-m", "m")
    assert outcome.code == 1
    assert outcome.out == ""
    assert outcome.err.count("\n") == 1
    assert "nothing listens there" in outcome.err


async def test_a_broken_stream_keeps_what_came() -> None:
    async with scripted(Reply(ANSWER)) as server:
        outcome = await run("ask", "Why?", *server.options)
    assert outcome.code == 1
    assert outcome.out == "The sky is blue.\n"
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1


async def test_a_deadline_ends_it() -> None:
    async with scripted(Reply(ANSWER, hold=True)) as server:
        outcome = await run("ask", "Why?", *server.options, "--timeout", "0.5")
        await server.client_gone.wait()
    assert outcome.code == 1
    assert outcome.err.startswith("error: ")


@posix_only
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_signal_closes_the_socket_and_keeps_what_came(number: signal.Signals, code: int) -> None:
    async with scripted(Reply(ANSWER, hold=True)) as server:
        process = await start("ask", "Why?", *server.options)
        assert process.stdout is not None
        assert await process.stdout.readexactly(16) == b"The sky is blue."
        process.send_signal(number)
        out, err = await process.communicate()
        await server.client_gone.wait()
    assert process.returncode == code
    assert out == b"\n"
    assert err.decode().endswith("2 chunks | cancelled\n")
    assert b"Traceback" not in err


@posix_only
async def test_a_signal_before_any_answer_ends_it_too() -> None:
    async with scripted(Reply(hold=True)) as server:
        process = await start("ask", "Why?", *server.options)
        await server.asked.wait()
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
        await server.client_gone.wait()
    assert (process.returncode, out) == (130, b"")
    assert err.decode().endswith("cancelled\n")


@posix_only
async def test_a_reader_that_leaves_early_ends_it_quietly() -> None:
    reply = Reply([delta(content="first\n"), delta(content="second\n")], hold=True, pause_before=1)
    read_end, write_end = os.pipe()
    async with scripted(reply) as server:
        process = await start("ask", "Why?", *server.options, stdout=write_end)
        os.close(write_end)
        assert await asyncio.to_thread(os.read, read_end, 100) == b"first\n"
        os.close(read_end)
        server.go.set()
        _, err = await process.communicate()
        await server.client_gone.wait()
    assert process.returncode == 141
    assert err == b""


@posix_only
async def test_a_signal_is_reported_even_if_the_reader_left_with_it() -> None:
    read_end, write_end = os.pipe()
    async with scripted(Reply(ANSWER, hold=True)) as server:
        process = await start("ask", "Why?", *server.options, stdout=write_end)
        os.close(write_end)
        assert await asyncio.to_thread(read_exactly, read_end, 16) == b"The sky is blue."
        os.close(read_end)
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
    assert process.returncode == 130
    assert err.decode().endswith("2 chunks | cancelled\n")
    assert err.count(b"\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
async def test_a_full_disk_is_one_line() -> None:
    async with scripted(Reply(ANSWER, hold=True)) as server:
        with Path("/dev/full").open("wb") as full:  # noqa: ASYNC230  # a device
            process = await start("ask", "Why?", *server.options, stdout=full.fileno())
        _, err = await process.communicate()
        await server.client_gone.wait()
    assert (process.returncode, err) == (1, b"error: the output cannot be written: No space left on device\n")


async def test_a_missing_extra_is_named() -> None:
    for package in ("typer", "rich"):
        code = f"import sys; sys.modules[{package!r}] = None; from rx_sampler.cli import main; main()"
        outcome = await run("ask", "x", code=code)
        assert (outcome.code, outcome.out) == (1, "")
        assert outcome.err.endswith("pip install 'rx-sampler[cli]'\n")
        assert outcome.err.count("\n") == 1


async def test_the_simulator_answers_on_each_backend_and_says_so() -> None:
    backends = ("chat_completions", "responses", "messages")
    outcomes = await asyncio.gather(*(run("ask", "Why?", "--simulate", "--backend", backend) for backend in backends))
    for outcome in outcomes:
        assert outcome.code == 0, outcome.err
        assert outcome.out.strip()
        assert "simulator" in outcome.err.splitlines()[0]
        assert "stop: stop" in outcome.err.splitlines()[-1]


TOOLS = '''
def weather(city: str, days: int = 1) -> dict[str, object]:
    """Tell the weather."""
    return {"city": city, "weather": "rain\\x1b[2J"}


async def fails(city: str) -> str:
    raise LookupError("no such city")
'''


async def test_a_function_of_the_current_directory_is_run_and_its_result_shown(tmp_path: Path) -> None:
    (tmp_path / "my_tools.py").write_text(TOOLS)
    # as the installed script: without the directory on its path
    code = "import sys; sys.path.remove(''); from rx_sampler.cli import main; main()"
    outcome = await run("ask", "Rain?", "--simulate", "--tool", "my_tools:weather", code=code, cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert outcome.out.strip()
    lines = [line for line in outcome.err.splitlines() if line.startswith("tool ")]
    assert lines[0].startswith("tool call weather (call_")
    assert lines[0].endswith('{"city":"simulated city"}')
    assert lines[1].startswith("tool weather finished in ")
    assert lines[1].endswith(r'ms: {"city":"simulated city","weather":"rain\u001b[2J"}')
    assert outcome.err.splitlines()[-1].endswith("stop: stop")


@pytest.mark.parametrize("backend", ["chat_completions", "responses", "messages"])
async def test_the_events_of_all_turns_are_lines_of_json(tmp_path: Path, backend: str) -> None:
    (tmp_path / "my_tools.py").write_text(TOOLS)
    outcome = await run(
        *("ask", "Rain?", "--simulate", "--events", "--backend", backend, "--tool", "my_tools:fails"),
        *("--max-tokens", "16"),
        cwd=tmp_path,
    )
    assert outcome.code == 0, outcome.err
    events = [event_from_json(line) for line in outcome.out.splitlines()]
    assert [(event.turn, event.kind) for event in events if event.kind in ("completed", "tool_result_added")] == [
        (1, "completed"),
        (2, "tool_result_added"),
        (2, "completed"),
    ]
    (added,) = [event for event in events if isinstance(event, ToolResultAdded)]
    assert added.result.content == "fails failed: LookupError: no such city"
    assert added.result.is_error


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("raise RuntimeError('half\\nway')", "importing my_tools raised RuntimeError: half\\nway"),
        ("import no_such_thing", "my_tools needs a module that is missing: no_such_thing"),
        ("def weather(city: Missing): ...", "the type hint of parameter 'city', Missing"),
    ],
)
async def test_a_module_that_is_of_no_use_is_one_line(tmp_path: Path, module: str, says: str) -> None:
    (tmp_path / "my_tools.py").write_text("from __future__ import annotations\n" + module)
    outcome = await run("ask", "Rain?", "--simulate", "--tool", "my_tools:weather", cwd=tmp_path)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith("error: --tool my_tools:weather: ")
    assert says.replace("Missing", "'Missing'") in outcome.err
    assert outcome.err.count("\n") == 1


async def test_without_a_local_model_the_simulator_answers_and_says_why() -> None:
    code = "import sys; sys.modules['xllamacpp'] = None; from rx_sampler.cli import main; main()"
    outcome = await run("ask", "Why?", code=code)
    assert outcome.code == 0, outcome.err
    first = outcome.err.splitlines()[0]
    assert first.startswith("no model configured; the built-in simulator answers")
    assert "xllamacpp" in first
    forced = await run("ask", "Why?", "--local", code=code)
    assert (forced.code, forced.out) == (1, "")
    assert forced.err.startswith("error: no local model: ")
