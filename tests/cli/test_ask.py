"""One request driven to its exit code, in this process."""

import asyncio
import io
from collections.abc import Iterator

import pytest

from rx_sampler.cli.ask import Target, ask
from rx_sampler.cli.options import ServerOptions, UnusableError
from rx_sampler.cli.output import Output
from rx_sampler.cli.render import Piece, TextRenderer
from rx_sampler.cli.servers import Kind
from rx_sampler.config import RetryPolicy, SamplerConfig
from rx_sampler.conversation import SamplingRequest
from rx_sampler.events import SamplingEvent

from .harness import DONE, Reply, delta, scripted

QUESTION = SamplingRequest.of("Why?")


class Broken:
    """A renderer with a bug."""

    def feed(self, event: SamplingEvent) -> Iterator[Piece]:
        raise LookupError(event.kind)

    def cancelled(self) -> Iterator[Piece]:
        return iter(())


def output() -> tuple[Output, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    return Output(out, err), out, err


async def test_a_whole_answer_is_0() -> None:
    both, out, err = output()
    async with scripted(Reply([delta(content="Because."), delta("stop"), DONE])) as server:
        config = SamplerConfig(base_url=server.base_url, model="m")
        assert await ask(config, QUESTION, TextRenderer(interleaved=False), both) == 0
    assert out.getvalue() == "Because.\n"
    assert err.getvalue().endswith("stop: stop\n")


async def test_a_failed_one_is_1() -> None:
    both, out, err = output()
    async with scripted(Reply([b"{}"], status="503 Service Unavailable", content_type="application/json")) as server:
        config = SamplerConfig(base_url=server.base_url, model="m", retry=RetryPolicy(max_retries=0))
        assert await ask(config, QUESTION, TextRenderer(interleaved=False), both) == 1
    assert out.getvalue() == ""
    assert err.getvalue().startswith("error: ")


async def test_cancelling_hangs_up_and_sums_up() -> None:
    both, out, err = output()
    async with scripted(Reply([delta(content="Bec")], hold=True)) as server:
        config = SamplerConfig(base_url=server.base_url, model="m")
        task = asyncio.create_task(ask(config, QUESTION, TextRenderer(interleaved=False), both))
        await server.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.client_gone.wait()
    assert out.getvalue() in ("", "Bec\n")
    assert err.getvalue().endswith("cancelled\n")


async def test_a_bug_of_the_renderer_surfaces_and_hangs_up() -> None:
    async with scripted(Reply([delta(content="Bec")], hold=True)) as server:
        config = SamplerConfig(base_url=server.base_url, model="m")
        with pytest.raises(LookupError, match="stream_started"):
            await ask(config, QUESTION, Broken(), output()[0])
        await server.client_gone.wait()


async def test_an_unknown_backend_is_told() -> None:
    config = SamplerConfig(base_url="http://127.0.0.1:1/v1", model="m", backend="smoke")
    with pytest.raises(UnusableError, match="smoke"):
        await ask(config, QUESTION, Broken(), output()[0])


def test_the_target_is_what_was_named() -> None:
    target = Target.choose(ServerOptions(base_url="http://h/v1", model="m"), {}, None, deadline_s=2.0)
    assert target.config is not None
    assert (target.config.base_url, target.config.deadline_s) == ("http://h/v1", 2.0)
    assert target.config.retry.max_retries == 0
    patient = Target.choose(ServerOptions(base_url="http://h/v1", model="m"), {}, None, retries=3)
    assert patient.config is not None
    assert patient.config.retry.max_retries == 3


def test_a_forced_server_of_ours_wins_over_the_environment() -> None:
    environ = {"RX_SAMPLER_BASE_URL": "http://h/v1", "RX_SAMPLER_MODEL": "m"}
    target = Target.choose(ServerOptions(backend="messages"), environ, Kind.SIMULATOR)
    assert (target.config, target.kind, target.settings["backend"]) == (None, Kind.SIMULATOR, "messages")


def test_nothing_named_is_the_embedded_default() -> None:
    target = Target.choose(ServerOptions(), {}, None)
    assert (target.config, target.kind, target.settings["backend"]) == (None, Kind.ANY, "chat_completions")
    with pytest.raises(UnusableError, match="--backend smoke"):
        Target.choose(ServerOptions(backend="smoke"), {}, None)
