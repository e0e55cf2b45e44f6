"""The embedded default: which of our servers is taken, and what is said about it."""

import json
import shlex
from typing import Self

import aiohttp
import pytest

from rx_sampler import local
from rx_sampler.cli.options import UnusableError
from rx_sampler.cli.servers import Kind, curl_lines, embedded_server
from rx_sampler.simulator import Simulator, Timing


class FakeLocalServer:
    """Up at once, and remembers whether it was left."""

    up = 0
    model = "tiny"
    base_url = "http://127.0.0.1:1/v1"

    def __init__(self, *, thinking: bool) -> None:
        assert not thinking

    async def __aenter__(self) -> Self:
        FakeLocalServer.up += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        FakeLocalServer.up -= 1


class NoLocalServer(FakeLocalServer):
    async def __aenter__(self) -> Self:
        raise local.LocalModelUnavailable("no such package")


async def test_the_local_model_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "LocalServer", FakeLocalServer)
    async with embedded_server(Kind.ANY) as server:
        assert (server.base_url, server.model, FakeLocalServer.up) == ("http://127.0.0.1:1/v1", "tiny", 1)
        assert server.notice == "no model configured; the small model tiny answers from llama.cpp on this machine"
    assert FakeLocalServer.up == 0


async def test_without_it_the_simulator_answers_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "LocalServer", NoLocalServer)
    async with embedded_server(Kind.ANY) as server, aiohttp.ClientSession() as session:
        assert server.notice == (
            "no model configured; the built-in simulator answers, which is no model, "
            "because there is no local model: no such package"
        )
        async with session.get(f"{server.base_url}/models") as response:
            assert server.model in await response.text()


async def test_a_forced_kind_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "LocalServer", NoLocalServer)
    with pytest.raises(UnusableError, match="no local model: no such package"):
        async with embedded_server(Kind.LOCAL):
            pass
    monkeypatch.setattr(local, "LocalServer", FakeLocalServer)
    async with embedded_server(Kind.SIMULATOR) as server:
        assert server.notice == "the built-in simulator answers, which is no model"


async def test_the_curl_lines_are_requests_that_stream() -> None:
    async with Simulator(timing=Timing.instant()) as simulator, aiohttp.ClientSession() as session:
        lines = curl_lines(simulator.base_url, "m")
        assert len(lines) == 3
        for line in lines:
            _curl, _no_buffer, url, _header, content_type, _data, body = shlex.split(line)
            name, _, value = content_type.partition(": ")
            assert json.loads(body)["stream"] is True
            async with session.post(url, data=body, headers={name: value}) as response:
                assert response.status == 200, await response.text()
                assert response.content_type == "text/event-stream"
