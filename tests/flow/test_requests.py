"""Backpressure from the consumer to the socket, over loopback: the bound holds, nothing is lost, nobody times out."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from loopback import SSE, WAIT_S, Exchange, Handler, Loopback, answering
from reactivex import Observable, abc, operators
from reactivex.disposable import Disposable
from wires import BACKENDS, answer, chat, closing

from rx_sampler import (
    ChannelToken,
    Completed,
    Failed,
    RetryPolicy,
    Sampler,
    SamplerConfig,
    SamplingErrorKind,
    SamplingEvent,
    event_to_json,
)
from rx_sampler.flow import BoundedIterator, BufferOverflowError, Overflow, to_async_iterator
from rx_sampler.testing import run_virtual
from rx_sampler.wire.transport import Connected, HttpRequest, Prepare, ResponseHead, Wire

CAPACITY: Final = 64
PER_FRAME: Final = 8
"""More events than any frame brings here."""

RECORDINGS: Final = {
    f"{path.parent.name}/{path.stem}": (path.parent.name, path.read_bytes())
    for path in sorted((Path(__file__).parent.parent / "recordings").glob("*/*.sse"))
}


def config(base_url: str, backend: str = "chat_completions", **fields: Any) -> SamplerConfig:
    defaults = {"base_url": base_url, "backend": backend, "model": "m", "retry": RetryPolicy(max_retries=0)}
    return SamplerConfig.model_validate({**defaults, **fields})


@asynccontextmanager
async def sampler_at(*handlers: Handler, backend: str = "chat_completions") -> AsyncGenerator[tuple[Sampler, Loopback]]:
    async with Loopback(*handlers) as server, Sampler(config(server.base_url, backend)) as sampler:
        yield sampler, server


class Flood:
    """A server that has more to say than the kernel's buffers hold, and knows how much of it is gone."""

    PADDING: Final = "p" * 2000
    TOKENS: Final = 10_000

    def __init__(self) -> None:
        self.sent = 0
        frames = (chat({"content": f"{number} ", "pad": self.PADDING}) for number in range(self.TOKENS))
        self._frames = [*frames, *closing("chat_completions", "")]

    async def __call__(self, exchange: Exchange) -> None:
        await exchange.start()
        for at in range(0, len(self._frames), 20):
            await exchange.send(b"".join(self._frames[at : at + 20]))
            self.sent += 20
        await exchange.end()

    async def is_stuck(self) -> None:
        """Return once it has sent nothing for a thousand turns of the loop, each of which looks at the sockets."""
        async with asyncio.timeout(WAIT_S):
            before = -1
            while self.sent != before:
                before = self.sent
                for _ in range(1000):
                    await asyncio.sleep(0)


def numbers(events: list[SamplingEvent]) -> list[int]:
    return [int(event.text) for event in events if isinstance(event, ChannelToken)]


async def rest_of(events: BoundedIterator[SamplingEvent]) -> list[SamplingEvent]:
    async with asyncio.timeout(WAIT_S):
        return [event async for event in events]


async def taken(events: BoundedIterator[SamplingEvent], count: int) -> list[SamplingEvent]:
    async with asyncio.timeout(WAIT_S):
        return [await anext(events) for _ in range(count)]


async def test_a_consumer_that_stalls_stops_the_server_and_loses_nothing() -> None:
    flood = Flood()
    async with sampler_at(flood) as (sampler, _), sampler.iterate("Count.", capacity=CAPACITY) as events:
        first = await taken(events, 1000)
        await flood.is_stuck()
        assert flood.sent < flood.TOKENS
        assert events.waiting >= CAPACITY
        everything = first + await rest_of(events)
        assert numbers(everything) == list(range(flood.TOKENS))
        assert isinstance(everything[-1], Completed)
        assert CAPACITY <= events.high_water <= CAPACITY + PER_FRAME


async def test_consumers_of_one_request_each_have_their_own_way() -> None:
    flood = Flood()
    async with sampler_at(flood) as (sampler, server):
        request = sampler.submit("Count.")
        source = sampler.events_of(request)
        async with (
            to_async_iterator(source, CAPACITY) as patient,
            to_async_iterator(source, overflow="latest") as hasty,
            to_async_iterator(source, CAPACITY, "error") as strict,
        ):
            first = await taken(patient, 1)
            await flood.is_stuck()
            assert (hasty.waiting, strict.waiting) == (1, CAPACITY)
            assert hasty.dropped + 1 == len(first) + CAPACITY == len(first) + patient.waiting
            everything = first + await rest_of(patient)
            assert numbers(everything) == list(range(flood.TOKENS))
            assert patient.high_water <= CAPACITY + PER_FRAME
            last = await rest_of(hasty)
            assert last == everything[-1:]
            assert hasty.dropped == len(everything) - 1
            assert await strict.take() == everything[:CAPACITY]
            with pytest.raises(BufferOverflowError):
                await strict.take()
        assert len(server.exchanges) == 1


async def test_who_pauses_on_all_events_holds_every_request() -> None:
    floods = [Flood(), Flood()]
    async with sampler_at(*floods) as (sampler, _), to_async_iterator(sampler.events, CAPACITY) as events:
        ids = [sampler.submit("Count.") for _ in floods]
        for flood in floods:
            await flood.is_stuck()
            assert flood.sent < flood.TOKENS
        assert events.high_water <= CAPACITY + len(ids) * PER_FRAME
        seen: list[SamplingEvent] = []
        async with asyncio.timeout(WAIT_S):
            while sum(isinstance(event, Completed) for event in seen) < len(ids):
                seen += await events.take()
        for one in ids:
            assert numbers([event for event in seen if event.request_id == one]) == list(range(Flood.TOKENS))


async def test_who_leaves_holds_nobody_any_more() -> None:
    flood = Flood()
    async with sampler_at(flood) as (sampler, _):
        request = sampler.submit("Count.")
        async with to_async_iterator(sampler.events, CAPACITY), to_async_iterator(sampler.events_of(request), CAPACITY):
            await flood.is_stuck()
            assert flood.sent < flood.TOKENS
        async with to_async_iterator(sampler.events_of(request), overflow="latest") as end:
            assert isinstance((await rest_of(end))[-1], Completed)
        assert flood.sent >= flood.TOKENS


@pytest.mark.parametrize("finished", [False, True])
async def test_who_comes_late_and_pauses_gets_the_past_at_its_own_pace(finished: bool) -> None:
    pieces = [f"{number} " for number in range(500)]
    frames = answer("chat_completions", *pieces)

    async def handle(exchange: Exchange) -> None:
        await exchange.start()
        await exchange.send(*frames[:300])
        if finished:
            await exchange.send(*frames[300:])
            await exchange.end()
        else:
            await go_on.wait()
            await exchange.send(*frames[300:])
            await exchange.end()

    go_on = asyncio.Event()
    async with sampler_at(handle) as (sampler, _):
        request = sampler.submit("Count.")
        async with to_async_iterator(sampler.events_of(request), 1000) as early:
            seen = await taken(early, 200)
            if finished:
                seen += await rest_of(early)
            async with to_async_iterator(sampler.events_of(request), 10) as late:
                assert late.high_water == 10
                go_on.set()
                if not finished:
                    seen += await taken(early, early.waiting)
                assert await taken(late, 150) == seen[:150]
                remainder = await rest_of(late)
                seen += await rest_of(early)
                assert seen[150:] == remainder
                assert late.high_water <= 10 + PER_FRAME


@pytest.mark.parametrize("coding", ["identity", "gzip", "deflate"])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
async def test_the_bound_holds_however_the_body_is_written(coding: str, newline: bytes) -> None:
    frames = answer("messages", *(f"{number} " for number in range(2000)))
    body = b"".join(frames).replace(b"\n", newline)
    packed = {"identity": bytes, "gzip": gzip.compress, "deflate": zlib.compress}[coding](body)
    handler = answering([packed], headers={**SSE, "content-encoding": coding})
    async with (
        sampler_at(handler, backend="messages") as (sampler, _),
        sampler.iterate("Count.", capacity=CAPACITY) as events,
    ):
        seen = await rest_of(events)
        assert numbers(seen) == list(range(2000))
        assert events.high_water <= CAPACITY + PER_FRAME


@pytest.mark.parametrize("name", RECORDINGS)
async def test_a_watched_body_gives_the_same_events(name: str) -> None:
    def shown(event: SamplingEvent) -> dict[str, Any]:
        fields: dict[str, Any] = json.loads(event_to_json(event))
        return {name: value for name, value in fields.items() if name not in ("ts", "submitted_at", "metrics")}

    backend, body = RECORDINGS[name]
    async with sampler_at(answering([body]), backend=backend) as (sampler, _):
        seen: list[list[SamplingEvent]] = []
        for capacity in (None, 1):
            if capacity is None:
                seen.append(await sampler.stream("?", request_id="r").pipe(operators.to_list()))
            else:
                seen.append(await rest_of(sampler.iterate("?", capacity=capacity, request_id="r")))
        assert list(map(shown, seen[0])) == list(map(shown, seen[1]))


async def test_what_came_before_a_break_is_not_lost_on_a_paused_consumer() -> None:
    async def handle(exchange: Exchange) -> None:
        await exchange.start()
        await exchange.send(b"".join(chat({"content": f"{number} "}) for number in range(500)))
        exchange.reset()

    async with sampler_at(handle) as (sampler, _), sampler.iterate("Count.", capacity=10) as events:
        seen = await rest_of(events)
        assert isinstance(seen[-1], Failed)
        assert seen[-1].partial is not None
        assert seen[-1].partial.text == "".join(event.text for event in seen if isinstance(event, ChannelToken))


@pytest.mark.parametrize("how", ["leave", "cancel", "close the sampler"])
async def test_a_paused_request_ends_at_once_when_it_is_cancelled(how: str) -> None:
    flood = Flood()
    async with Loopback(flood) as server:
        sampler = Sampler(config(server.base_url))
        async with sampler:
            request = sampler.submit("Count.")
            async with to_async_iterator(sampler.events_of(request), CAPACITY) as events:
                await flood.is_stuck()
                if how == "cancel":
                    sampler.cancel(request)
                elif how == "close the sampler":
                    await sampler.aclose()
                else:
                    sampler.cancel(request)
                    events.close()
                if how != "leave":
                    seen = await rest_of(events)
                    assert isinstance(seen[-1], Failed)
                    assert seen[-1].error.kind is SamplingErrorKind.CANCELLED
                    assert numbers(seen) == list(range(len(numbers(seen))))
            await server.deserted()
        left = [task for task in asyncio.all_tasks() if "rx_sampler" in task.get_name()]
        await asyncio.gather(*left, return_exceptions=True)


async def test_a_request_made_inside_on_next_knows_nothing_of_the_outer_consumer() -> None:
    flood = Flood()
    inner: list[SamplingEvent] = []
    done = asyncio.Event()
    async with sampler_at(flood, answering(answer("chat_completions", "7"))) as (sampler, _):

        def also_ask(event: SamplingEvent) -> None:
            if isinstance(event, ChannelToken) and event.chunk_index == 5:
                sampler.stream("And?").subscribe(inner.append, on_completed=done.set)

        outer = sampler.stream("Count.").pipe(operators.do_action(also_ask))
        async with to_async_iterator(outer, 3) as events, asyncio.timeout(WAIT_S):
            await taken(events, 8)
            await done.wait()  # although nobody takes what the outer request brings
        assert numbers(inner) == [7]


# -- limits in time


class Waiting:
    """A transport that waits as the network does; a frame a second, and then silence or the end."""

    def __init__(self, frames: list[bytes], *, ends: bool = True) -> None:
        self._frames = frames
        self._ends = ends

    def post(self, prepare: Prepare, is_over: Callable[[], bool] = lambda: False) -> Observable[Wire]:  # noqa: ARG002
        async def play(observer: abc.ObserverBase[Wire]) -> None:
            request: HttpRequest = await prepare()
            passage = request.passage
            assert passage is not None
            observer.on_next(Connected())
            observer.on_next(ResponseHead(status=200, headers=SSE))
            for frame in self._frames:
                await asyncio.sleep(1)
                if passage.is_watched and passage.is_shut:
                    await passage.opened()
                observer.on_next(frame)
            if self._ends:
                observer.on_completed()

        def subscribe(
            observer: abc.ObserverBase[Wire], _scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            task = asyncio.get_running_loop().create_task(play(observer))

            def stop() -> None:
                task.cancel()

            return Disposable(stop)

        return Observable(subscribe)

    def open(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


def waiting_sampler(frames: list[bytes], *, ends: bool = True, **fields: Any) -> Sampler:
    limits: dict[str, Any] = {"idle_timeout_s": 10, "content_idle_timeout_s": 10, "terminal_grace_s": 2}
    return Sampler(config("http://api.test/v1", **{**limits, **fields}), transport=Waiting(frames, ends=ends))


FRAMES: Final = answer("chat_completions", *(f"{number} " for number in range(20)))


def test_paused_time_is_no_silence() -> None:
    async def main() -> None:
        async with waiting_sampler(FRAMES).iterate("Count.", capacity=4) as events:
            seen: list[SamplingEvent] = []
            while not (seen and isinstance(seen[-1], Completed | Failed)):
                await asyncio.sleep(3600)
                seen += await events.take()
            assert isinstance(seen[-1], Completed)
            assert numbers(seen) == list(range(20))

    run_virtual(main())


def test_silence_counts_on_from_where_the_pause_began() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with waiting_sampler(FRAMES[:6], ends=False).iterate("Count.", capacity=4) as events:
            await asyncio.sleep(1000)  # five events came by second 3, and the request waits since second 4 or 5
            seen = await events.take()
            seen += await rest_of_virtual(events)
            assert isinstance(seen[-1], Failed)
            assert seen[-1].error.kind is SamplingErrorKind.IDLE_TIMEOUT
            assert numbers(seen) == [0, 1, 2, 3, 4]
            assert 1000 < loop.time() <= 1000 + 10 + 6

    run_virtual(main())


async def rest_of_virtual(events: BoundedIterator[SamplingEvent]) -> list[SamplingEvent]:
    return [event async for event in events]


def test_a_deadline_passes_when_the_request_would_go_on() -> None:
    async def main() -> None:
        async with waiting_sampler(FRAMES, deadline_s=100).iterate("Count.", capacity=4) as events:
            await asyncio.sleep(1000)
            seen = await rest_of_virtual(events)
            assert isinstance(seen[-1], Failed)
            assert seen[-1].error.code == "deadline"
            assert len(numbers(seen)) < 20

    run_virtual(main())


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_consumer_that_keeps_up_changes_no_time(backend: str) -> None:
    async def main() -> None:
        frames = answer(backend, "a", "b")
        ends: list[list[tuple[str, float]]] = []
        for capacity in (None, 1):
            sampler = Sampler(config("http://api.test/v1", backend), transport=Waiting(frames))
            if capacity is None:
                seen = await sampler.stream("?").pipe(operators.to_list())
            else:
                seen = await rest_of_virtual(sampler.iterate("?", capacity=capacity))
            ends.append([(event.kind, round(event.ts - seen[0].ts, 6)) for event in seen])
        assert ends[0] == ends[1]

    run_virtual(main())


@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_newest", "error"])
async def test_a_consumer_that_keeps_up_loses_nothing_however_much_a_read_brings(overflow: Overflow) -> None:
    frames = answer("chat_completions", *(f"{number} " for number in range(2000)))
    async with sampler_at(answering([b"".join(frames)])) as (sampler, _):
        events = sampler.iterate("Count.", capacity=CAPACITY, overflow=overflow)
        assert numbers(await rest_of(events)) == list(range(2000))
        assert events.dropped == 0
