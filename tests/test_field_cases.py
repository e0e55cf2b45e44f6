"""Cases that users of other clients met: stale connections, replay from a tape, secrets, memory, hostile refusals."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import time
import tracemalloc
import weakref
import zlib
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from loopback import SSE, WAIT_S, Exchange, Handler, Loopback, answering
from reactivex import Observable
from scripted_transport import run
from tape import Player, Recorder
from wires import BACKENDS, answer, closing, opening, text

from rx_sampler import (
    ChannelToken,
    Completed,
    Failed,
    RetryPolicy,
    Sampler,
    SamplerConfig,
    SamplingEvent,
    SamplingRequest,
    event_to_json,
)
from rx_sampler.telemetry import SamplingLog
from rx_sampler.wire.http import HttpTransport

RECORDINGS: Final = sorted((Path(__file__).parent / "recordings").rglob("*.sse"))
CHAT: Final = "chat_completions"
SOON: Final = RetryPolicy(initial_backoff_s=0.001, max_backoff_s=0.001, jitter=0)
NEVER: Final = RetryPolicy(max_retries=0)
MIB: Final = 2**20


def config(base_url: str, backend: str = CHAT, **fields: Any) -> SamplerConfig:
    return SamplerConfig.model_validate({"base_url": base_url, "backend": backend, "model": "m", **fields})


async def all_of(stream: Observable[SamplingEvent]) -> list[SamplingEvent]:
    """The events of a stream, once it has completed."""
    events: list[SamplingEvent] = []
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    stream.subscribe(events.append, done.set_exception, lambda: done.set_result(None))
    async with asyncio.timeout(WAIT_S):
        await done
    return events


async def exchanges_over() -> None:
    """Return once connections that may be used again are back in the pool."""
    running = [task for task in asyncio.all_tasks() if task.get_name() == "rx_sampler exchange"]
    await asyncio.gather(*running)


# -- a kept connection that the server closes when the next request arrives on it


async def hangs_up(_exchange: Exchange) -> None:
    """The connection is closed without a byte."""


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_kept_connection_that_closes_under_the_second_request_costs_one_retry(backend: str) -> None:
    answers = answering(answer(backend, "a"))
    image = {"type": "image", "url": "data:image/png;base64,AAAA"}
    request = SamplingRequest.model_validate({"items": [{"type": "user", "content": [image]}]})
    async with (
        Loopback(answers, hangs_up, answers) as server,
        Sampler(config(server.base_url, backend, retry=SOON)) as sampler,
    ):
        assert (await all_of(sampler.stream(request)))[-1].kind == "completed"
        await exchanges_over()
        events = await all_of(sampler.stream(request))
        assert (len(server.exchanges), server.connections_made) == (3, 2)  # the second came over the first's
    told = [event.kind for event in events if event.kind != "response_started"]
    # no images_stripped: a connection that had been idle says nothing about what was sent over it
    assert told == ["retrying", "stream_started", "first_token", "channel_token", "completed"]
    end = events[-1]
    assert isinstance(end, Completed)
    assert end.metrics.attempts == 2


# -- what the network did, on a tape, and the same again without a network


def without_times(event: SamplingEvent) -> dict[str, Any]:
    """An event as JSON has it, but for what a clock says."""
    found: dict[str, Any] = json.loads(event_to_json(event))
    del found["ts"]
    found.pop("submitted_at", None)
    if "metrics" in found:
        found["metrics"] = {name: found["metrics"][name] for name in ("chunk_count", "attempts")}
    return found


def recorded(backend: str, retry: RetryPolicy, *handlers: Handler) -> tuple[list[str], list[SamplingEvent]]:
    """The tape of one request over a socket, and its events."""

    async def ask() -> tuple[list[str], list[SamplingEvent]]:
        async with Loopback(*handlers) as server:
            recorder = Recorder(HttpTransport())
            sampler = Sampler(config(server.base_url, backend, retry=retry), transport=recorder)
            return recorder.tape, await all_of(sampler.stream("hi", request_id="r"))

    return asyncio.run(ask())


def replayed(backend: str, retry: RetryPolicy, tape: list[str]) -> list[SamplingEvent]:
    sampler = Sampler(config("http://192.0.2.1/v1", backend, retry=retry), transport=Player(tape))
    return run(lambda: sampler.stream("hi", request_id="r")).events


def ending(body: bytes, how: str) -> Handler:
    """Sends a body in pieces of 1000 bytes, to its end or half of it, and leaves the connection as `how` says."""

    async def handle(exchange: Exchange) -> None:
        await exchange.start()
        sent = body if how == "whole" else body[: len(body) // 2]
        await exchange.send(*(sent[at : at + 1000] for at in range(0, len(sent), 1000)))
        if how in ("whole", "ended early"):
            await exchange.end()
        elif how == "reset":
            exchange.reset()

    return handle


@pytest.fixture
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From the call on, making a socket is an error."""

    def forbidden(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("a socket was made")

    return lambda: monkeypatch.setattr(socket, "socket", forbidden)


@pytest.mark.parametrize("how", ["whole", "ended early", "cut", "reset"])
@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_replayed_tape_gives_the_events_of_the_network(path: Path, how: str, no_sockets: Callable[[], None]) -> None:
    backend = path.parent.name
    tape, live = recorded(backend, NEVER, ending(path.read_bytes(), how))
    assert any('"read"' in line for line in tape) or how == "reset"  # which may overtake what was sent
    no_sockets()
    assert [*map(without_times, replayed(backend, NEVER, tape))] == [*map(without_times, live)]
    assert isinstance(live[-1], Completed | Failed)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_replayed_tape_repeats_the_retries_too(backend: str, no_sockets: Callable[[], None]) -> None:
    refused = answering([b'{"error": {"message": "busy"}}'], status=503, headers={"content-type": "application/json"})
    body = b"".join(answer(backend, "ok"))
    tape, live = recorded(backend, SOON, refused, ending(body, "reset"), ending(body, "whole"))
    no_sockets()
    assert [*map(without_times, replayed(backend, SOON, tape))] == [*map(without_times, live)]
    assert [event.kind for event in live].count("retrying") == 2


# -- secrets


SECRETS: Final = {"key": "SECRET-1", "query": "SECRET-2", "cookie": "SECRET-3"}


def echoing(status: int, backend: str) -> Handler:
    """Quotes the key that it was given, in a refusal or inside the stream, and sets a cookie."""

    async def handle(exchange: Exchange) -> None:
        sent = exchange.headers.get("authorization", "") + exchange.headers.get("x-api-key", "")
        error = json.dumps({"error": {"type": "api_error", "message": f"odd: {sent} {exchange.target}", "code": sent}})
        await exchange.start(status, {**SSE, "set-cookie": f"session={SECRETS['cookie']}; Path=/"})
        if status == 200:
            await exchange.send(*opening(backend), f"event: error\ndata: {error}\n\n".encode())
        else:
            await exchange.send(error.encode())
        await exchange.end()

    return handle


@pytest.mark.parametrize("content", [False, True], ids=["log", "log with content"])
@pytest.mark.parametrize("last", ["an answer", "401", "an error in the stream"])
@pytest.mark.parametrize("backend", BACKENDS)
async def test_no_secret_is_in_events_or_in_the_sampling_log(
    backend: str, last: str, content: bool, tmp_path: Path
) -> None:
    cookie = {**SSE, "set-cookie": f"session={SECRETS['cookie']}; Path=/"}
    ends = {
        "an answer": answering(answer(backend, "ok"), headers=cookie),
        "401": echoing(401, backend),
        "an error in the stream": echoing(200, backend),
    }
    policy = SOON.model_copy(update={"max_retries": 1})
    settings: dict[str, Any] = {
        "api_key": SECRETS["key"],
        "query_params": {"token": SECRETS["query"]},
        "retry": policy,
    }
    events: list[SamplingEvent] = []
    with SamplingLog(tmp_path / "log.jsonl", content=content) as log:
        async with (
            Loopback(echoing(500, backend), ends[last]) as server,
            Sampler(config(server.base_url, backend, **settings), observer=log) as sampler,
        ):
            sampler.events.subscribe(events.append)
            await all_of(sampler.events_of(sampler.submit("hi")))
        sent = server.exchanges[-1]
    assert SECRETS["key"] in str(sent.headers)  # both were sent, or the test shows nothing
    assert SECRETS["query"] in sent.target
    kinds = [event.kind for event in events]
    assert (kinds[0], kinds[-1]) == ("retrying", "completed" if last == "an answer" else "failed")
    written = (tmp_path / "log.jsonl").read_text("utf-8")
    assert '"retrying"' in written
    told = "".join(map(event_to_json, events)) + written + "".join(map(repr, events))
    assert "odd: " in told  # the rest of the message was kept
    assert [name for name, secret in SECRETS.items() if secret in told] == []


# -- consumers that are slow, or gone


TOKENS: Final = 2000
WARM_UP, MEASURED = 18, 18
"""The case has 1000 requests and allows 20 MiB. Here memory is measured once what is kept of finished requests is at
its limit (17 of this size): from then on each request shows in full what it leaves, and may leave as many bytes a token
as in the case. One that was kept would be ten times as much."""
BYTES_PER_TOKEN: Final = 20 * MIB / (1000 * TOKENS)


class SlowDashboard:
    """Blocks now and then, and checks the order of what it is told."""

    def __init__(self) -> None:
        self.chunks: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()
        self.disorder: list[SamplingEvent] = []

    def note(self, event: SamplingEvent) -> None:
        name = event.request_id
        if isinstance(event, ChannelToken):
            self.chunks[name] += 1
            if event.chunk_index != self.chunks[name] or name in self.ends:
                self.disorder.append(event)
            if self.chunks.total() % 5000 == 0:
                time.sleep(0.001)  # a view that takes its time: the loop stands still meanwhile
        elif isinstance(event, Completed | Failed):
            self.ends[name] += 1


class Leaver:
    """Somebody whose subscription nobody holds and nobody disposes of."""

    count = 0

    def note(self, _event: SamplingEvent) -> None:
        self.count += 1


def traced_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@asynccontextmanager
async def streaming_at_length() -> AsyncGenerator[Sampler]:
    body = b"".join([*opening(CHAT), *[text(CHAT, "word ")] * TOKENS, *closing(CHAT, "")])
    pieces = [body[at : at + 16_384] for at in range(0, len(body), 16_384)]
    async with Loopback(answering(pieces)) as server, Sampler(config(server.base_url)) as sampler:
        yield sampler


async def test_a_slow_subscriber_and_one_that_left_cost_no_memory_and_no_event() -> None:
    slow, leaver = SlowDashboard(), Leaver()
    gone = weakref.ref(leaver)

    async def ask(names: list[str]) -> None:
        for name in names:
            sampler.submit("hi", name)
        await asyncio.gather(*(all_ended(sampler.events_of(name)) for name in names))
        await exchanges_over()

    tracemalloc.start()
    try:
        async with streaming_at_length() as sampler:
            sampler.events.subscribe(slow.note)
            sampler.events.subscribe(leaver.note)
            del leaver
            await ask([f"warm-up {number}" for number in range(WARM_UP)])
            before = traced_bytes()
            await ask([f"measured {number}" for number in range(MEASURED)])
            grown = traced_bytes() - before
    finally:
        tracemalloc.stop()
    assert grown <= BYTES_PER_TOKEN * MEASURED * TOKENS
    assert slow.disorder == []
    assert set(slow.chunks.values()) == {TOKENS}
    assert (len(slow.ends), set(slow.ends.values())) == (WARM_UP + MEASURED, {1})
    gc.collect()
    assert gone() is None  # a sampler that is closed holds nobody


async def all_ended(stream: Observable[SamplingEvent]) -> None:
    """Return once a stream has completed; keeps nothing of it."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    stream.subscribe(on_error=done.set_exception, on_completed=lambda: done.set_result(None))
    async with asyncio.timeout(WAIT_S):
        await done


# -- a refusal that unpacks to far more than it is


def packed_zeros(size: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join([*(packer.compress(bytes(MIB)) for _ in range(size // MIB)), packer.flush()])


async def test_a_compressed_bomb_of_a_refusal_is_neither_unpacked_nor_shown() -> None:
    bomb = packed_zeros(200 * MIB)
    packed: Mapping[str, str] = {"content-type": "application/json", "content-encoding": "gzip"}
    async with Loopback(answering([bomb], status=400, headers=packed)) as server:
        sampler = Sampler(config(server.base_url, retry=NEVER))
        tracemalloc.start()
        try:
            end = (await all_of(sampler.stream("hi")))[-1]
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        await server.deserted()
    assert isinstance(end, Failed)
    assert (end.error.kind, end.error.status, end.error.is_retryable) == ("api", 400, False)
    assert len(end.error.message) <= 600
    assert peak < 20 * MIB
