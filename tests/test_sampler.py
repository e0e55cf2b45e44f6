"""The handle that users hold, over real sockets: each law of the design by a test that would fail without it."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import socket
import threading
import traceback
import weakref
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final

import pytest
from loopback import SSE, WAIT_S, Exchange, Handler, Loopback, answering
from pydantic import ValidationError
from reactivex import Observable, operators
from reactivex.abc import DisposableBase
from wires import BACKENDS, DONE, IDS, PATHS, answer, chat, closing, opening, text

from rx_sampler import (
    ChannelToken,
    Completed,
    Failed,
    RequestFacts,
    RequestWatch,
    RetryPolicy,
    Sampler,
    SamplerConfig,
    SamplingError,
    SamplingErrorKind,
    SamplingEvent,
    SamplingRequest,
    StreamStarted,
    event_to_json,
)
from rx_sampler.simulator import Fault, Simulator, Timing, ToolCall, Turn

KEY: Final = "sk-live-7f3d9c2b1a"


def config(base_url: str, backend: str = "chat_completions", **fields: Any) -> SamplerConfig:
    defaults = {"base_url": base_url, "backend": backend, "model": "m", "retry": RetryPolicy(max_retries=0)}
    return SamplerConfig.model_validate({**defaults, **fields})


class Watcher:
    """A subscriber that keeps everything and can be waited for."""

    def __init__(self, stream: Observable[SamplingEvent], act: Callable[[SamplingEvent], object] | None = None) -> None:
        self.events: list[SamplingEvent] = []
        self.errors: list[Exception] = []
        self.completions = 0
        self._act = act
        self._change = asyncio.Condition()
        self._arrived = asyncio.Event()
        self.subscription: DisposableBase = stream.subscribe(self._on_next, self._on_error, self._on_completed)

    def _on_next(self, event: SamplingEvent) -> None:
        self.events.append(event)
        self._arrived.set()
        if self._act is not None:
            self._act(event)

    def _on_error(self, error: Exception) -> None:
        self.errors.append(error)
        self._arrived.set()

    def _on_completed(self) -> None:
        self.completions += 1
        self._arrived.set()

    async def until(self, predicate: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not predicate():
                self._arrived.clear()
                await self._arrived.wait()

    async def has(self, kind: str) -> None:
        await self.until(lambda: any(event.kind == kind for event in self.events))

    async def end(self) -> SamplingEvent:
        """The terminal event, after the check that it is one, and the last."""
        await self.until(lambda: bool(self.completions or self.errors))
        assert not self.errors, self.errors
        check_grammar(self.events)
        assert self.completions == 1
        return self.events[-1]

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


def check_grammar(events: list[SamplingEvent]) -> None:
    assert [isinstance(event, Completed | Failed) for event in events] == [False] * (len(events) - 1) + [True]
    assert len({event.request_id for event in events}) == 1
    assert {event.attempt for event in events} == {1}
    assert [event.ts for event in events] == sorted(event.ts for event in events)
    tokens = [event for event in events if isinstance(event, ChannelToken)]
    assert [token.chunk_index for token in tokens] == list(range(1, len(tokens) + 1))
    if len(events) > 1:
        assert isinstance(events[0], StreamStarted)


def other_tasks() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}


def ours() -> set[asyncio.Task[Any]]:
    return {task for task in other_tasks() if "rx_sampler" in task.get_name()}


async def nothing_left() -> None:
    """No task of a request is left once the loop has turned a few times."""
    async with asyncio.timeout(WAIT_S):
        while ours():
            await asyncio.wait(ours())
        await asyncio.sleep(0)  # a task is done a turn before it is forgotten


@contextmanager
def complaints() -> Generator[list[dict[str, Any]]]:
    """What the loop's exception handler is told."""
    loop = asyncio.get_running_loop()
    told: list[dict[str, Any]] = []
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _loop, context: told.append(context))
    try:
        yield told
    finally:
        loop.set_exception_handler(before)


def streaming(backend: str = "chat_completions", *pieces: str) -> Handler:
    """An answer that begins and never ends."""
    return answering([*opening(backend), *(text(backend, piece) for piece in pieces or ("a",))], ends=False)


async def silent(exchange: Exchange) -> None:
    """No headers, ever."""
    await exchange.closed()


async def headers_only(exchange: Exchange) -> None:
    await exchange.start()
    await exchange.closed()


@asynccontextmanager
async def asking(
    *handlers: Handler, backend: str = "chat_completions", **fields: Any
) -> AsyncGenerator[tuple[Loopback, Sampler]]:
    async with Loopback(*handlers) as server, Sampler(config(server.base_url, backend, **fields)) as sampler:
        yield server, sampler


# -- terminal


async def _answers_then_resets(exchange: Exchange) -> None:
    await exchange.start()
    await exchange.send(*opening("chat_completions"), text("chat_completions", "half"))
    exchange.reset()


async def _resets(exchange: Exchange) -> None:
    exchange.reset()


async def _closes(_: Exchange) -> None:
    pass


async def _talks_nonsense(exchange: Exchange) -> None:
    await exchange.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")


async def _cuts(exchange: Exchange) -> None:
    await exchange.start()
    await exchange.send(*opening("chat_completions"), text("chat_completions", "half"))
    await exchange.write(b"ff\r\nda")  # a chunk of the body that is not all there


async def _sends_an_unknown_coding(exchange: Exchange) -> None:
    await exchange.start(200, {**SSE, "content-encoding": "br"})
    await exchange.closed()


async def _sends_headers_without_end(exchange: Exchange) -> None:
    await exchange.write(b"HTTP/1.1 200 OK\r\nx-a: " + b"b" * 200_000)
    await exchange.closed()


ENDINGS: Final[dict[str, tuple[Handler, str, str, bool]]] = {
    # handler, kind, what streamed, retryable
    "refused": (answering([b'{"error": {"message": "no"}}'], status=400), "api", "", False),
    "unterminated": (answering([*opening("chat_completions"), text("chat_completions", "half")]), "http", "half", True),
    "reset": (_answers_then_resets, "http", "half", True),
    "reset before headers": (_resets, "http", "", True),
    "closed before headers": (_closes, "http", "", True),
    "cut in a chunk": (_cuts, "http", "half", True),
    "no HTTP": (_talks_nonsense, "http", "", True),
    "unknown coding": (_sends_an_unknown_coding, "http", "", False),
    "endless headers": (_sends_headers_without_end, "http", "", True),
    "garbage": (answering([b"\x00\xff\xfe garbage"]), "http", "", True),
    "empty": (answering([]), "http", "", True),
    "page": (answering([b"<html>"], headers={"content-type": "text/html"}), "api", "", False),
}


@pytest.mark.parametrize("name", ENDINGS)
async def test_every_failure_is_one_terminal_event_and_keeps_what_streamed(name: str) -> None:
    handler, kind, streamed, retryable = ENDINGS[name]
    async with asking(handler) as (server, sampler):
        watcher = Watcher(sampler.stream("hi"))
        event = await watcher.end()
        assert isinstance(event, Failed)
        assert (event.error.kind, event.error.is_retryable) == (kind, retryable)
        assert (event.partial.text if event.partial else "") == streamed
        assert isinstance(event.exception, SamplingError)
        await nothing_left()
        assert len(server.exchanges) == 1  # and it was sent once


@pytest.mark.parametrize("backend", BACKENDS)
async def test_an_answer_is_one_terminal_event(backend: str) -> None:
    async with asking(answering(answer(backend, "Hel", "lo")), backend=backend) as (server, sampler):
        watcher = Watcher(sampler.stream("hi"))
        event = await watcher.end()
        assert isinstance(event, Completed)
        assert (event.response.text, event.response.message_id) == ("Hello", IDS[backend])
        assert server.exchanges[0].target == "/v1" + PATHS[backend]


async def test_a_server_that_is_not_there() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        event = await Watcher(Sampler(config(f"http://127.0.0.1:{port}/v1")).stream("hi")).end()
    assert isinstance(event, Failed)
    assert (event.error.kind, event.error.status, event.error.is_retryable) == ("http", None, True)
    assert f"127.0.0.1:{port}" in event.error.message
    assert isinstance(event.exception, SamplingError)
    assert isinstance(event.exception.__cause__, OSError)


async def test_a_name_that_does_not_resolve() -> None:
    # RFC 6761: .invalid never exists
    event = await Watcher(Sampler(config("http://no-such-host.invalid/v1")).stream("hi")).end()
    assert isinstance(event, Failed)
    assert event.error.kind == "http"
    assert "no-such-host.invalid" in event.error.message


async def test_a_server_that_does_not_speak_tls() -> None:
    def answer_plainly(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer_plainly, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        event = await Watcher(Sampler(config(f"https://127.0.0.1:{port}/v1")).stream("hi")).end()
    assert isinstance(event, Failed)
    assert (event.error.kind, event.error.is_retryable) == ("http", False)
    assert "TLS" in event.error.message


async def test_the_end_does_not_wait_for_the_socket() -> None:
    async def lingers(exchange: Exchange) -> None:
        await exchange.start()
        await exchange.send(*answer("chat_completions", "a"))
        await exchange.closed()

    async with asking(lingers) as (server, sampler):
        event = await Watcher(sampler.stream("hi")).end()
        assert isinstance(event, Completed)
        await server.deserted()  # it drains for a moment, then closes
        await nothing_left()


# -- cold


async def test_nothing_is_sent_before_a_subscription() -> None:
    async with asking(answering(answer("chat_completions", "a"))) as (server, sampler):
        stream = sampler.stream("hi")
        await asyncio.sleep(0)
        assert (server.connections_made, ours()) == (0, set())
        first, second = Watcher(stream), Watcher(stream)
        await first.end()
        await second.end()
        assert len(server.exchanges) == 2  # one request each
        assert first.events[0].request_id != second.events[0].request_id
        await Watcher(sampler.stream("hi")).end()
        assert len(server.exchanges) == 3


async def test_a_given_id_is_kept() -> None:
    async with asking(answering(answer("chat_completions", "a"))) as (_, sampler):
        watcher = Watcher(sampler.stream("hi", request_id="mine"))
        await watcher.end()
        assert {event.request_id for event in watcher.events} == {"mine"}


async def test_connections_are_used_again_within_a_session_only() -> None:
    async with Loopback(answering(answer("chat_completions", "a"))) as server:
        async with Sampler(config(server.base_url)) as sampler:
            for _ in range(3):
                await sampler.collect("hi")
                await nothing_left()
            assert server.connections_made == 1
        await server.deserted()
        sampler = Sampler(config(server.base_url))
        for _ in range(3):
            await sampler.collect("hi")
            await nothing_left()
        assert server.connections_made == 4


# -- disposal


async def _phases(server: Loopback, watcher: Watcher, phase: str) -> None:
    """Wait until the request is in that phase."""
    if phase == "subscribed":
        return
    await server.received(1)
    if phase == "headers awaited":
        return
    await watcher.has("stream_started")
    if phase == "tokens":
        await watcher.has("channel_token")


PHASES: Final = {
    "subscribed": silent,
    "headers awaited": silent,
    "headers accepted": headers_only,
    "tokens": streaming("chat_completions", "a", "b"),
}


@pytest.mark.parametrize("in_session", [True, False], ids=["session", "single"])
@pytest.mark.parametrize("phase", PHASES)
async def test_dispose_closes_the_socket_and_leaves_nothing(phase: str, in_session: bool) -> None:
    async with Loopback(PHASES[phase]) as server:
        sampler = Sampler(config(server.base_url))
        if in_session:
            await sampler.__aenter__()
        try:
            before = other_tasks()
            watcher = Watcher(sampler.stream("hi"))
            await _phases(server, watcher, phase)
            seen = list(watcher.events)
            watcher.subscription.dispose()
            await server.deserted()
            await nothing_left()
            assert watcher.events == seen
            assert (watcher.completions, watcher.errors) == (0, [])
            watcher.subscription.dispose()  # again is nothing
            assert ours() <= before
            if phase == "subscribed":
                assert server.exchanges == []  # nothing was sent
        finally:
            await sampler.aclose()


async def test_dispose_while_connecting() -> None:
    # a listener whose queue is full leaves connects hanging, as a silent firewall does
    with socket.socket() as listener, _full(listener) as port:
        watcher = Watcher(Sampler(config(f"http://127.0.0.1:{port}/v1")).stream("hi"))
        for _ in range(20):
            await asyncio.sleep(0)
        (task,) = ours()
        assert not task.done()
        watcher.subscription.dispose()
        await nothing_left()
        assert (watcher.events, watcher.completions, watcher.errors) == ([], 0, [])


@contextmanager
def _full(listener: socket.socket) -> Generator[int]:
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    port = listener.getsockname()[1]
    fillers: list[socket.socket] = []
    try:
        for _ in range(4):
            filler = socket.socket()
            fillers.append(filler)
            filler.setblocking(False)
            with suppress(BlockingIOError):
                filler.connect(("127.0.0.1", port))
        yield port
    finally:
        for filler in fillers:
            filler.close()


async def test_dispose_while_a_resolver_is_asked() -> None:
    asked = asyncio.Event()
    cancelled: list[bool] = []

    async def resolver() -> str:
        asked.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        return "never"

    async with asking(silent, bearer_resolver=resolver) as (server, sampler):
        watcher = Watcher(sampler.stream("hi"))
        await asked.wait()
        watcher.subscription.dispose()
        await nothing_left()
        assert cancelled == [True]
        assert server.connections_made == 0
        assert watcher.events == []


async def test_dispose_while_a_refusal_is_read() -> None:
    arrived = asyncio.Event()

    async def refuses_slowly(exchange: Exchange) -> None:
        await exchange.start(500)
        await exchange.send(b"{")
        arrived.set()
        await exchange.closed()

    async with asking(refuses_slowly) as (server, sampler):
        watcher = Watcher(sampler.stream("hi"))
        await arrived.wait()
        watcher.subscription.dispose()
        await server.deserted()
        await nothing_left()
        assert watcher.events == []


@pytest.mark.parametrize("kind", ["stream_started", "first_token", "channel_token"])
async def test_a_subscriber_may_dispose_from_within(kind: str) -> None:
    # all events come in one read: the ones behind must not follow
    async with asking(answering([b"".join(answer("chat_completions", *"abcdef"))], ends=False)) as (server, sampler):
        watcher: Watcher

        def act(event: SamplingEvent) -> None:
            if event.kind == kind:
                watcher.subscription.dispose()

        watcher = Watcher(sampler.stream("hi"), act)
        await server.received(1)
        await server.deserted()
        await nothing_left()
        assert watcher.kinds[-1] == kind
        assert watcher.kinds.count(kind) == 1
        assert (watcher.completions, watcher.errors) == (0, [])


async def test_operators_that_take_a_part_close_the_socket() -> None:
    async with asking(streaming("chat_completions", *"abcdef")) as (server, sampler):
        got: list[SamplingEvent] = []
        ended = asyncio.Event()
        sampler.stream("hi").pipe(operators.take(3)).subscribe(got.append, on_completed=ended.set)
        await ended.wait()
        await server.deserted()
        await nothing_left()
        assert len(got) == 3


async def test_dispose_from_another_thread() -> None:
    async with asking(streaming()) as (server, sampler):
        watcher = Watcher(sampler.stream("hi"))
        await watcher.has("channel_token")
        thread = threading.Thread(target=watcher.subscription.dispose)
        thread.start()
        await server.deserted()
        await nothing_left()
        thread.join()
        assert (watcher.completions, watcher.errors) == (0, [])


async def test_dispose_after_the_end_changes_nothing() -> None:
    async with asking(answering(answer("chat_completions", "a"))) as (server, sampler):
        watcher = Watcher(sampler.stream("hi"))
        await watcher.end()
        watcher.subscription.dispose()
        await nothing_left()
        assert (await sampler.collect("again")).response.text == "a"
        assert server.connections_made == 1  # the connection was given back, not dropped
        assert watcher.completions == 1


@pytest.mark.parametrize("how", ["completed", "failed", "disposed"])
async def test_nothing_keeps_a_finished_request_alive(how: str) -> None:
    # a timer of five minutes that survived would hold the subscriber, and all that it holds
    handler = {
        "completed": answering(answer("chat_completions", "a")),
        "failed": answering([], status=500),
        "disposed": streaming(),
    }[how]
    async with asking(handler) as (server, sampler):
        watcher = Watcher(sampler.stream("hi"))
        if how == "disposed":
            await watcher.has("channel_token")
            watcher.subscription.dispose()
            await server.deserted()
        else:
            await watcher.end()
        await nothing_left()
        alive = weakref.ref(watcher)
        del watcher
        gc.collect()
        assert alive() is None


async def test_two_hundred_disposed_streams_leave_room_for_one_more() -> None:
    handlers = [silent, headers_only, streaming()]

    async def mixed(exchange: Exchange) -> None:
        if exchange.headers.get("x-last"):
            await answering(answer("chat_completions", "done"))(exchange)
        else:
            await handlers[len(exchange.body) % 3](exchange)

    async with asking(mixed) as (server, sampler):
        watchers = [Watcher(sampler.stream("x" * number)) for number in range(200)]
        await server.received(200)
        for watcher in watchers:
            watcher.subscription.dispose()
        await server.deserted()
        await nothing_left()
        last = SamplingRequest.of("last").model_copy(update={"extra_headers": {"x-last": "1"}})
        assert (await sampler.collect(last)).response.text == "done"
        assert not any(isinstance(event, Completed | Failed) for w in watchers for event in w.events)


# -- isolation


class SubscriberError(Exception):
    """What the subscribers of these tests raise."""


@pytest.mark.parametrize(
    "error", [SubscriberError("mine"), asyncio.CancelledError("mine"), ValueError("mine"), OSError("mine")]
)
@pytest.mark.parametrize("kind", ["stream_started", "channel_token", "completed"])
async def test_a_subscriber_that_raises_is_disposed_and_reported_and_harms_nobody(
    error: BaseException, kind: str
) -> None:
    go_on = asyncio.Event()

    async def waits(exchange: Exchange) -> None:
        frames = answer("chat_completions", "a", "b")
        await exchange.start()
        await exchange.send(*frames[:2])
        await go_on.wait()
        await exchange.send(*frames[2:])
        await exchange.end()

    def act(event: SamplingEvent) -> None:
        if event.kind == kind:
            raise error

    async with asking(waits) as (_, sampler):
        with complaints() as told:
            faulty, healthy = Watcher(sampler.stream("hi"), act), Watcher(sampler.stream("hi"))
            await healthy.has("channel_token")
            go_on.set()
            assert isinstance(await healthy.end(), Completed)
            await faulty.has(kind)
            await nothing_left()
        assert [context["exception"] for context in told] == [error]
        assert faulty.kinds.count(kind) == 1
        assert faulty.kinds[-1] == kind  # disposed: nothing more
        assert (faulty.completions, faulty.errors) == (0, [error])
        assert (await sampler.collect("again")).response.text == "ab"  # the sampler itself is well


async def test_a_subscriber_that_raises_on_a_failure_is_done_too() -> None:
    error = SubscriberError("mine")

    def act(event: SamplingEvent) -> None:
        if isinstance(event, Failed):
            raise error

    async with asking(answering([], status=500)) as (_, sampler):
        with complaints() as told:
            watcher = Watcher(sampler.stream("hi"), act)
            await watcher.has("failed")
            await nothing_left()
        assert [context["exception"] for context in told] == [error]
        assert (watcher.kinds, watcher.completions, watcher.errors) == (["failed"], 0, [error])


async def test_a_subscriber_may_dispose_on_a_failure() -> None:
    async with asking(answering([], status=500)) as (_, sampler):
        watcher: Watcher

        def act(_: SamplingEvent) -> None:
            watcher.subscription.dispose()

        watcher = Watcher(sampler.stream("hi"), act)
        await watcher.has("failed")
        await nothing_left()
        assert (watcher.kinds, watcher.completions, watcher.errors) == (["failed"], 0, [])


async def test_a_subscriber_that_raises_while_the_stream_goes_on_closes_its_socket() -> None:
    def act(event: SamplingEvent) -> None:
        if event.kind == "channel_token":
            raise SubscriberError

    async with asking(streaming()) as (server, sampler):
        with complaints() as told:
            Watcher(sampler.stream("hi"), act)
            await server.received(1)
            await server.deserted()
            await nothing_left()
        assert len(told) == 1


def _raising(error: Exception) -> Callable[..., None]:
    def act(*_: object) -> None:
        raise error

    return act


@pytest.mark.parametrize(
    "error",
    [
        SubscriberError("mine"),
        ValueError("mine"),
        OSError("mine"),
        SamplingError.of(SamplingErrorKind.API, "mine"),
    ],
    ids=lambda e: type(e).__name__,
)
async def test_an_error_in_on_completed_is_reported(error: Exception) -> None:
    async with asking(answering(answer("chat_completions", "a"))) as (_, sampler):
        with complaints() as told:
            got: list[SamplingEvent] = []
            failures: list[Exception] = []
            sampler.stream("hi").subscribe(got.append, failures.append, _raising(error))
            assert ours()
            await nothing_left()
        assert [context["exception"] for context in told] == [error]
        assert failures == []
        check_grammar(got)


async def test_an_error_in_an_operator_of_the_users_is_the_users() -> None:
    async with asking(streaming("chat_completions", "a", "b")) as (server, sampler):
        error = SubscriberError("mine")
        failures: list[Exception] = []
        sampler.stream("hi").pipe(operators.map(_raising(error))).subscribe(on_error=failures.append)
        await server.received(1)
        await server.deserted()
        await nothing_left()
        assert failures == [error]


# -- without a session, without a loop, under several loops


def test_a_subscription_without_a_loop_says_so() -> None:
    with pytest.raises(RuntimeError, match="running asyncio event loop"):
        Sampler(config("http://127.0.0.1:9")).stream("hi").subscribe(lambda _event: None)


def test_one_sampler_serves_two_loops_and_a_running_one(recwarn: pytest.WarningsRecorder) -> None:
    samplers: list[Sampler] = []

    async def use() -> str:
        async with Loopback(answering(answer("chat_completions", "a"))) as server:
            if not samplers:
                samplers.append(Sampler(config(server.base_url)))
            sampler = samplers[0]
            sampler.update_config(config(server.base_url))  # only the port differs between the runs
            texts = [(await sampler.collect("hi")).response.text]
            async with sampler:
                texts.append((await sampler.collect("hi")).response.text)
            texts.append((await sampler.collect("hi")).response.text)
            await nothing_left()
        return "".join(texts)

    assert [asyncio.run(use()), asyncio.run(use())] == ["aaa", "aaa"]
    gc.collect()
    assert not [warning for warning in recwarn if "nclosed" in str(warning.message)]


def test_a_stream_that_is_open_when_its_loop_ends_is_cancelled(recwarn: pytest.WarningsRecorder) -> None:
    seen: list[SamplingEvent] = []

    async def leave() -> None:
        async with Loopback(streaming()) as server:
            watcher = Watcher(Sampler(config(server.base_url)).stream("hi"))
            watcher.events = seen
            await watcher.has("channel_token")

    asyncio.run(leave())
    gc.collect()
    last = seen[-1]
    assert isinstance(last, Failed)
    assert last.error.kind in ("cancelled", "http")  # the server went away first, or the loop did
    assert not [warning for warning in recwarn if "nclosed" in str(warning.message)]


async def test_a_sampler_may_be_asked_from_another_loop_while_it_is_open_in_this_one() -> None:
    async with asking(answering(answer("chat_completions", "a"))) as (server, sampler):

        async def streamed() -> str:
            end = await sampler.stream("hi")
            assert isinstance(end, Completed)
            return end.response.text

        async def collected() -> str:
            return (await sampler.collect("hi")).response.text

        here, there = await asyncio.gather(streamed(), asyncio.to_thread(asyncio.run, streamed()))
        assert (here, there) == ("a", "a")
        assert server.connections_made == 2  # the pool belongs to this loop
        assert await asyncio.to_thread(asyncio.run, collected()) == "a"  # which does the work of whoever collects


async def test_dispose_after_the_loop_has_gone_is_nothing() -> None:
    subscriptions: list[DisposableBase] = []

    async def leave() -> None:
        async with Loopback(streaming()) as server:
            watcher = Watcher(Sampler(config(server.base_url)).stream("hi"))
            await watcher.has("channel_token")
            subscriptions.append(watcher.subscription)

    await asyncio.to_thread(asyncio.run, leave())
    subscriptions[0].dispose()


# -- closing


@pytest.mark.parametrize(
    "phase",
    [
        "subscribed",
        "headers awaited",
        "headers accepted",
        "tokens",
    ],
)
async def test_closing_the_sampler_cancels_what_runs(phase: str) -> None:
    async with Loopback(PHASES[phase]) as server:
        sampler = Sampler(config(server.base_url, connect_timeout_s=1))
        async with sampler:
            watcher = Watcher(sampler.stream("hi"))
            await _phases(server, watcher, phase)
        event = await watcher.end()
        assert isinstance(event, Failed)
        assert (event.error.kind, event.error.is_retryable) == ("cancelled", False)
        assert (event.partial.text if event.partial else "") == ("ab" if phase == "tokens" else "")
        await server.deserted()
        assert not ours()


async def test_closing_twice_or_unopened_is_nothing() -> None:
    sampler = Sampler(config("http://127.0.0.1:9"))
    await sampler.aclose()
    async with sampler:
        await sampler.aclose()
    await sampler.aclose()


async def test_a_closed_sampler_can_be_asked_again() -> None:
    async with asking(answering(answer("chat_completions", "a"))) as (server, sampler):
        await sampler.aclose()
        assert (await sampler.collect("hi")).response.text == "a"
        await nothing_left()
        await server.deserted()  # nothing was kept


async def test_entering_twice_leaves_no_session_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    import aiohttp

    made: list[aiohttp.ClientSession] = []
    real = aiohttp.ClientSession.__init__

    def init(self: aiohttp.ClientSession, *arguments: Any, **keywords: Any) -> None:
        made.append(self)
        real(self, *arguments, **keywords)

    monkeypatch.setattr(aiohttp.ClientSession, "__init__", init)
    sampler = Sampler(config("http://127.0.0.1:9"))
    try:
        async with sampler, sampler:
            pass
        assert [session.closed for session in made] == [True] * len(made)
    finally:
        for session in made:
            await session.close()


# -- collect


@pytest.mark.parametrize("backend", BACKENDS)
async def test_collect_gives_the_whole_answer(backend: str) -> None:
    async with asking(answering(answer(backend, "Hel", "lo")), backend=backend) as (_, sampler):
        result = await sampler.collect("hi")
        assert (result.response.text, result.response.stop_reason) == ("Hello", "stop")
        assert result.metrics.chunk_count == 2
        assert result.metrics.time_to_first_token_ms is not None
        assert result.request_id
        assert result.events_summary == {
            "stream_started": 1,
            "response_started": 1,
            "first_token": 1,
            "channel_token": 2,
            "completed": 1,
        }
        assert KEY not in repr(result)


async def test_collect_raises_the_rich_error() -> None:
    async with asking(_answers_then_resets) as (_, sampler):
        with pytest.raises(SamplingError) as caught:
            await sampler.collect("hi")
        error = caught.value
        assert (error.kind, error.info.is_retryable) == (SamplingErrorKind.HTTP, True)
        assert error.partial is not None
        assert error.partial.text == "half"
        assert error.metrics is not None
        assert error.metrics.chunk_count == 1
        assert error.__cause__ is not None
        await nothing_left()


@pytest.mark.parametrize("phase", PHASES)
async def test_cancelling_who_awaits_cancels_the_request(phase: str) -> None:
    async with asking(PHASES[phase]) as (server, sampler):
        task = asyncio.create_task(sampler.collect("hi"))
        if phase != "subscribed":
            await server.received(1)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.deserted()
        await nothing_left()


async def test_collect_under_a_timeout() -> None:
    async with asking(silent) as (server, sampler):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await sampler.collect("hi")
        await server.deserted()
        await nothing_left()


@pytest.mark.parametrize("question", [5, None, [], b"x"])
async def test_a_question_that_is_none_is_refused_where_it_is_asked(question: Any) -> None:
    sampler = Sampler(config("http://127.0.0.1:9"))
    with pytest.raises((ValidationError, TypeError)):
        sampler.stream(question)
    with pytest.raises((ValidationError, TypeError)):
        await sampler.collect(question)


def test_an_unknown_backend_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"chat_completion'.*chat_completions, responses, messages"):
        Sampler(config("http://127.0.0.1:9", "chat_completion"))


# -- many at once


async def test_a_thousand_streams_at_once() -> None:
    count = 1000
    everyone = asyncio.Event()

    async def together(exchange: Exchange) -> None:
        own = json.loads(exchange.body)["messages"][0]["content"]
        if len(server.exchanges) == count:
            everyone.set()
        await exchange.start()
        await exchange.send(*opening("chat_completions"))
        await everyone.wait()  # all are open at the same time
        await exchange.send(text("chat_completions", own), *closing("chat_completions", own))
        await exchange.end()

    async with Loopback(together) as server, Sampler(config(server.base_url)) as sampler:
        results = await asyncio.gather(*(sampler.collect(f"number {number}") for number in range(count)))
        assert [result.response.text for result in results] == [f"number {number}" for number in range(count)]
        assert len({result.request_id for result in results}) == count
        await nothing_left()


# -- redirects: nothing reaches the second server


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("scheme", ["bearer", "x_api_key"])
async def test_a_key_does_not_follow_a_redirect(status: int, scheme: str) -> None:
    async with Loopback(answering(answer("chat_completions", "stolen"))) as second:
        away = answering([], status=status, headers={"location": f"{second.base_url}/chat/completions"})
        async with asking(away, api_key=KEY, auth_scheme=scheme) as (first, sampler):
            with pytest.raises(SamplingError) as caught:
                await sampler.collect("hi")
        assert (caught.value.kind, caught.value.info.status) == (SamplingErrorKind.API, status)
        assert not caught.value.info.is_retryable
        assert len(first.exchanges) == 1
        assert second.connections_made == 0


async def test_cookies_do_not_travel_between_requests() -> None:
    baked = answering(answer("chat_completions", "a"), headers={**SSE, "set-cookie": "session=1; Path=/"})
    async with Loopback(baked) as server, Sampler(config(f"http://localhost:{server.port}/v1")) as sampler:
        # by name: aiohttp's jar keeps no cookies of numeric addresses anyway
        await sampler.collect("hi")
        await sampler.collect("hi")
        assert len(server.exchanges) == 2
        assert not any("cookie" in exchange.headers for exchange in server.exchanges)


async def test_proxies_of_the_environment_are_not_used_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Loopback(answering([], status=502)) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        async with asking(answering(answer("chat_completions", "a"))) as (server, sampler):
            await sampler.collect("hi")
            assert (len(server.exchanges), proxy.connections_made) == (1, 0)
        async with asking(answering(answer("chat_completions", "a")), trust_env=True) as (server, sampler):
            with pytest.raises(SamplingError):
                await sampler.collect("hi")
            assert (len(server.exchanges), len(proxy.exchanges)) == (0, 1)


# -- secrets


SECRET_PLACES: Final[dict[str, dict[str, Any]]] = {
    "key": {"api_key": KEY},
    "x-api-key": {"api_key": KEY, "auth_scheme": "x_api_key"},
    "resolver": {"bearer_resolver": lambda: KEY},
    "header": {"extra_headers": {"x-token": KEY}},
    "query": {"query_params": {"key": KEY}},
}


def _told(watcher: Watcher, caplog: pytest.LogCaptureFixture) -> str:
    """All that anybody is told of a request: events, reprs, errors, logs."""
    parts = [caplog.text, *(record.getMessage() for record in caplog.records)]
    for event in watcher.events:
        parts += [event_to_json(event), repr(event), str(event)]
        if isinstance(event, Failed):
            error = event.to_error()
            parts += [str(error), repr(error), *traceback.format_exception(error)]
    return "\n".join(parts)


@pytest.mark.parametrize("place", SECRET_PLACES)
@pytest.mark.parametrize(
    "name", ["refused", "reset", "closed before headers", "page", "unterminated", "cut in a chunk"]
)
async def test_no_secret_is_told(place: str, name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    handler, *_ = ENDINGS[name]
    async with asking(handler, **SECRET_PLACES[place]) as (server, sampler):
        watcher = Watcher(sampler.stream("hi"))
        await watcher.end()
        sent = server.exchanges[0]
        assert KEY in sent.target + str(sent.headers)  # it was sent, or the test shows nothing
        assert KEY not in _told(watcher, caplog)


async def test_no_secret_is_told_of_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with asking(answering(answer("chat_completions", "a")), api_key=KEY, query_params={"key": KEY}) as (
        _,
        sampler,
    ):
        watcher = Watcher(sampler.stream("hi"))
        await watcher.end()
        assert KEY not in _told(watcher, caplog)
        assert KEY not in repr(sampler)


@pytest.mark.parametrize("place", ["key", "query"])
async def test_no_secret_is_told_by_the_loop_in_debug_mode(place: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    asyncio.get_running_loop().set_debug(True)  # which logs slow callbacks with their arguments' reprs
    asyncio.get_running_loop().slow_callback_duration = 0.0
    async with asking(answering(answer("chat_completions", "a")), **SECRET_PLACES[place]) as (_, sampler):
        watcher = Watcher(sampler.stream("hi"))
        await watcher.end()
        tasks = "".join(map(repr, asyncio.all_tasks()))
    assert "rx_sampler" in caplog.text  # such logs were written
    assert KEY not in caplog.text + tasks


async def test_a_traceback_shows_no_key_of_the_query() -> None:
    async with asking(_talks_nonsense, query_params={"key": KEY}) as (_, sampler):
        with pytest.raises(SamplingError) as caught:
            await sampler.collect("hi")
    assert KEY not in "".join(traceback.format_exception(caught.value))


async def test_the_repr_of_the_cause_shows_no_key() -> None:
    # error trackers and structured logs take reprs of exceptions and of their causes
    async with asking(_talks_nonsense, api_key=KEY) as (_, sampler):
        with pytest.raises(SamplingError) as caught:
            await sampler.collect("hi")
    assert KEY not in repr(caught.value.__cause__)


async def test_a_report_about_a_subscriber_shows_no_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    def act(_: SamplingEvent) -> None:
        raise SubscriberError

    async with asking(streaming(), api_key=KEY) as (server, sampler):
        Watcher(sampler.stream("hi"), act)
        await server.received(1)
        await server.deserted()
        await nothing_left()
    assert "SubscriberError" in caplog.text  # the loop's own handler logs it
    assert KEY not in caplog.text


# -- nothing lost, bounded


async def test_bytes_that_came_before_a_break_are_not_lost() -> None:
    # the frames and the break are in the client's buffers together
    async def breaks(exchange: Exchange) -> None:
        await exchange.start()
        body = b"".join([*opening("chat_completions"), *[text("chat_completions", "x")] * 500])
        await exchange.write(b"%x\r\n%s" % (len(body) + 99, body))  # and the connection closes inside the chunk

    async with asking(breaks) as (_, sampler):
        event = await Watcher(sampler.stream("hi")).end()
        assert isinstance(event, Failed)
        assert event.error.kind == "http"
        assert event.partial is not None
        assert event.partial.text == "x" * 500


async def test_broken_chunk_framing_is_a_broken_connection() -> None:
    async def breaks(exchange: Exchange) -> None:
        await exchange.start()
        await exchange.send(*opening("chat_completions"), text("chat_completions", "half"))
        await read.wait()  # the headers were handed out: what follows concerns the body alone
        await exchange.write(b"zz\r\n")  # no chunk size

    read = asyncio.Event()
    async with asking(breaks, idle_timeout_s=1) as (_, sampler):
        watcher = Watcher(sampler.stream("hi"))
        await watcher.has("channel_token")
        read.set()
        event = await watcher.end()
        assert isinstance(event, Failed)
        assert (event.error.kind, event.error.is_retryable) == ("http", True)
        assert event.partial is not None
        assert event.partial.text == "half"


async def test_a_cut_call_cannot_be_run() -> None:
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": "'}}
    async with asking(answering([chat({"tool_calls": [call]})])) as (_, sampler):
        event = await Watcher(sampler.stream("hi")).end()
        assert isinstance(event, Failed)
        assert event.partial is not None
        (cut,) = event.partial.tool_calls
        assert (cut.id, cut.arguments, cut.complete, cut.arguments_json) == ("call_1", '{"a": "', False, None)


async def test_an_endless_refusal_is_left() -> None:
    async def endless(exchange: Exchange) -> None:
        await exchange.start(500, {"content-type": "application/json"})
        while True:
            await exchange.send(b"x" * 16_384)

    async with asking(endless) as (server, sampler):
        event = await Watcher(sampler.stream("hi")).end()
        assert isinstance(event, Failed)
        assert (event.error.status, event.error.is_retryable) == (500, True)
        await server.deserted()
        await nothing_left()


async def test_headers_larger_than_usual_are_read() -> None:
    large = {**SSE, "x-policy": "p" * 30_000}
    async with asking(answering(answer("chat_completions", "a"), headers=large)) as (_, sampler):
        assert (await sampler.collect("hi")).response.text == "a"


@pytest.mark.parametrize("content_type", ["text/event-stream", "text/plain", "application/octet-stream", None])
async def test_the_content_type_is_not_believed(content_type: str | None) -> None:
    headers = {"content-type": content_type} if content_type else {}
    async with asking(answering(answer("chat_completions", "a"), headers=headers)) as (_, sampler):
        assert (await sampler.collect("hi")).response.text == "a"


async def test_a_frame_is_delivered_as_soon_as_it_is_there() -> None:
    # interactive use: nothing may wait for more bytes, whichever line end a server uses
    for ending in (b"\n\n", b"\r\n\r\n", b"\r\r"):
        go_on = asyncio.Event()

        async def waits(exchange: Exchange, ending: bytes = ending, go_on: asyncio.Event = go_on) -> None:
            await exchange.start()
            frame = text("chat_completions", "now").rstrip(b"\n") + ending
            await exchange.send(frame)
            await go_on.wait()
            await exchange.send(text("chat_completions", " then"), chat({}, "stop"), DONE)
            await exchange.end()

        async with asking(waits) as (_, sampler):
            watcher = Watcher(sampler.stream("hi"))
            await watcher.has("channel_token")  # before the server goes on
            go_on.set()
            event = await watcher.end()
            assert isinstance(event, Completed)
            assert event.response.text == "now then"


# -- the sampler's own clock


@pytest.mark.parametrize("step_s", [-3600, 3600])
async def test_stamps_are_unix_time_and_the_wall_clock_may_step(step_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    real = time.time
    begun = real()
    async with asking(answering(answer("chat_completions", *"abc"))) as (_, sampler):

        def act(event: SamplingEvent) -> None:
            if event.kind == "stream_started":
                monkeypatch.setattr(time, "time", lambda: real() + step_s)  # somebody sets the clock

        watcher = Watcher(sampler.stream("hi"), act)
        event = await watcher.end()
        assert begun - 1 <= event.ts <= begun + WAIT_S + 1
        assert isinstance(event, Completed)
        assert event.metrics.time_to_last_byte_ms is not None
        assert 0 <= event.metrics.time_to_last_byte_ms <= (WAIT_S + 1) * 1e3


# -- against the simulator


@pytest.mark.parametrize("backend", BACKENDS)
async def test_the_simulator_is_answered_in_full(backend: str) -> None:
    call = ToolCall(name="weather", arguments={"city": "Zürich"})
    turn = Turn(text="one moment", reasoning="I must look", tool_calls=(call,))
    request = SamplingRequest.model_validate(
        {
            "items": [{"type": "user", "content": "how is the weather?"}],
            "tools": [{"name": "weather", "description": "d"}],
            "reasoning_effort": "low",
        }
    )
    async with Simulator(timing=Timing.instant(), script=[turn]) as simulator:
        async with Sampler(config(simulator.base_url, backend, api_key=KEY)) as sampler:
            watcher = Watcher(sampler.stream(request))
            event = await watcher.end()
            assert isinstance(event, Completed)
            response = event.response
            assert (response.text, response.reasoning) == ("one moment", "I must look")
            assert [(c.name, c.arguments_json, c.complete) for c in response.tool_calls] == [
                ("weather", {"city": "Zürich"}, True)
            ]
            assert response.stop_reason == "tool_calls"
            for channel, whole in (("text", response.text), ("reasoning", response.reasoning)):
                tokens = [e for e in watcher.events if isinstance(e, ChannelToken) and e.channel == channel]
                assert "".join(token.text for token in tokens) == whole
            # and the turn can go on with what came
            following = SamplingRequest.model_validate(
                {
                    "items": [
                        *request.items,
                        *response.items,
                        {"type": "tool_result", "tool_call_id": response.tool_calls[0].id, "content": "rain"},
                    ],
                    "tools": request.tools,
                }
            )
            assert (await sampler.collect(following)).response.text
        assert len(simulator.requests) == 2


FAULTS: Final = {
    "status": (Fault(kind="status", status=503), "api", True),
    "cut": (Fault(kind="cut", after_deltas=2), "http", True),
    "early_end": (Fault(kind="early_end", after_deltas=2), "http", True),
    "reset": (Fault(kind="reset", after_deltas=2), "http", True),
    "reset at once": (Fault(kind="reset"), "http", True),
    "truncated_json": (Fault(kind="truncated_json", after_deltas=2), "serialization", False),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", FAULTS)
async def test_the_simulators_faults_are_failures(backend: str, name: str) -> None:
    fault, kind, retryable = FAULTS[name]
    turn = Turn(text="one two three four", fault=fault)
    async with Simulator(timing=Timing.instant(), script=[turn]) as simulator:
        async with Sampler(config(simulator.base_url, backend)) as sampler:
            watcher = Watcher(sampler.stream("hi"))
            event = await watcher.end()
        assert isinstance(event, Failed)
        assert (event.error.kind, event.error.is_retryable) == (kind, retryable)
        tokens = "".join(e.text for e in watcher.events if isinstance(e, ChannelToken))
        assert (event.partial.text if event.partial else "") == tokens
        if fault.after_deltas:
            assert tokens
        assert len(simulator.requests) == 1


async def test_streams_of_all_backends_at_once_do_not_mix() -> None:
    async with Simulator(seed=3, timing=Timing.instant()) as simulator:
        samplers = [Sampler(config(simulator.base_url, backend)) for backend in BACKENDS]

        async def answers(sampler: Sampler) -> list[str]:
            results: list[Awaitable[Any]] = [sampler.collect(f"question {number}") for number in range(20)]
            return [result.response.text for result in await asyncio.gather(*results)]

        together = await asyncio.gather(*map(answers, samplers))
        alone = [[(await s.collect(f"question {n}")).response.text for n in range(20)] for s in samplers]
        assert together == alone
        assert Counter(map(len, together)) == {20: 3}


# -- observers


class Noting:
    """An observer that notes what it is told, and raises where it is asked to."""

    def __init__(self, raises_at: str | None = None) -> None:
        self.told: list[str] = []
        self._raises_at = raises_at

    def _note(self, what: str) -> None:
        self.told.append(what)
        if what == self._raises_at:
            raise SubscriberError(what)

    def request_made(self, facts: RequestFacts) -> RequestWatch:
        self._note(f"made {facts.request_id}")
        return self

    def attempt_started(self, number: int, ts: float) -> None:
        assert ts > 0
        self._note(f"attempt {number}")

    def on_event(self, event: SamplingEvent) -> None:
        self._note(event.kind)

    def dropped(self, ts: float) -> None:
        assert ts > 0
        self._note("dropped")


async def test_an_observer_hears_the_life_of_a_request() -> None:
    async with Loopback(answering([], status=500), answering(answer("chat_completions", "a"))) as server:
        noting, soon = Noting(), RetryPolicy(initial_backoff_s=0, jitter=0)
        async with Sampler(config(server.base_url, retry=soon), observer=noting) as sampler:
            await sampler.stream("hi", request_id="r")
    assert noting.told == [
        "made r",
        "attempt 1",
        "retrying",
        "attempt 2",
        "stream_started",
        "response_started",
        "first_token",
        "channel_token",
        "completed",
    ]


async def test_an_observer_hears_of_who_leaves_and_not_after_the_end() -> None:
    async with Loopback(streaming(), answering(answer("chat_completions", "a"))) as server:
        noting = Noting()
        async with Sampler(config(server.base_url), observer=noting) as sampler:
            watcher = Watcher(sampler.stream("hi", request_id="r"))
            await watcher.has("channel_token")
            watcher.subscription.dispose()
            assert noting.told[-1] == "dropped"
            late = Watcher(
                sampler.stream("hi", request_id="s"),
                lambda event: late.subscription.dispose() if event.kind == "completed" else None,
            )
            await late.has("completed")
            assert noting.told[-1] == "completed"


@pytest.mark.parametrize("where", ["made r", "attempt 1", "channel_token", "completed"])
@pytest.mark.parametrize("how", ["stream", "submit"])
async def test_an_observer_that_raises_harms_nobody(where: str, how: str) -> None:
    async with Loopback(answering(answer("chat_completions", "a"))) as server:
        noting = Noting(where)
        async with Sampler(config(server.base_url), observer=noting) as sampler:
            with complaints() as told:
                if how == "stream":
                    end = await sampler.stream("hi", request_id="r")
                else:
                    end = await sampler.events_of(sampler.submit("hi", "r"))
            assert isinstance(end, Completed)
    assert [str(context["exception"]) for context in told] == [where]
    assert noting.told[-1] == where
