"""A server of chat completions on a loop in virtual time, and what a subscriber saw of a loop over tools."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from reactivex import Observable, abc
from reactivex.disposable import CompositeDisposable, Disposable
from wires import CHAT_USAGE, DONE, chat

from rx_sampler import Failed, RetryPolicy, Sampler, SamplerConfig, SamplingEvent
from rx_sampler.scheduling import LoopTimeScheduler
from rx_sampler.testing.grammar import check_events
from rx_sampler.testing.virtual_loop import run_virtual
from rx_sampler.wire.transport import Connected, HttpRequest, Prepare, ResponseHead, Wire

__all__ = ["END_S", "Seen", "Server", "by_request", "calling", "clock_of", "played", "saying", "watched"]

T = TypeVar("T")

END_S: Final = 1.0
"""How long an answer takes after its headers, which come 1 s after the request was made."""


def saying(text: str) -> list[bytes]:
    """An answer in words."""
    return [chat({"role": "assistant", "content": ""}), chat({"content": text}), chat({}, "stop"), CHAT_USAGE, DONE]


def calling(*calls: tuple[str, str], text: str = "", finish: str = "tool_calls") -> list[bytes]:
    """An answer that calls tools: name and arguments of each; their ids are c0, c1, ..."""
    deltas = [
        {"tool_calls": [{"index": i, "id": f"c{i}", "type": "function", "function": {"name": name, "arguments": said}}]}
        for i, (name, said) in enumerate(calls)
    ]
    words = [chat({"content": text})] if text else []
    return [
        chat({"role": "assistant", "content": ""}),
        *words,
        *map(chat, deltas),
        chat({}, finish),
        CHAT_USAGE,
        DONE,
    ]


class Server:
    """Plays an answer per request: headers after a second, its frames together `END_S` later; an error in their place.

    `requests` are the bodies that came, `open_count` how many exchanges are under way.
    """

    def __init__(self, *answers: Sequence[bytes] | Exception) -> None:
        self._answers = list(answers)
        self.requests: list[dict[str, Any]] = []
        self.open_count = 0

    def sampler(self, *, max_concurrency: int | None = None) -> Sampler:
        config = SamplerConfig(
            backend="chat_completions",
            base_url="http://api.test/v1",
            model="toy-1",
            retry=RetryPolicy(max_retries=0),
            max_concurrency=max_concurrency,
        )
        return Sampler(config, transport=self, scheduler=clock_of(asyncio.get_running_loop()))

    def post(self, prepare: Prepare, is_over: Callable[[], bool] = lambda: False) -> Observable[Wire]:
        del is_over

        def subscribe(
            observer: abc.ObserverBase[Wire], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            assert isinstance(scheduler, LoopTimeScheduler)
            self.open_count += 1
            disposables = CompositeDisposable(Disposable(self._closed))
            answer = self._answers.pop(0)

            def at(seconds: float, act: Callable[[], None]) -> None:
                def action(_scheduler: abc.SchedulerBase, _state: object = None) -> None:
                    act()

                disposables.add(scheduler.schedule_relative(seconds, action))

            def send() -> None:
                sent = _run(prepare)
                self.requests.append(json.loads(sent.body))
                observer.on_next(Connected())
                if isinstance(answer, Exception):
                    at(1.0, partial(observer.on_error, answer))
                    return
                frames = answer

                def arrive() -> None:
                    for frame in frames:
                        observer.on_next(frame)

                head = ResponseHead(status=200, headers={"content-type": "text/event-stream"}, host="api.test")
                at(1.0, lambda: observer.on_next(head))
                at(1.0 + END_S, arrive)

            at(0.0, send)
            return disposables

        return Observable(subscribe)

    def _closed(self) -> None:
        self.open_count -= 1

    def open(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


def clock_of(loop: asyncio.AbstractEventLoop) -> LoopTimeScheduler:
    """A scheduler whose clock begins at 0."""
    return LoopTimeScheduler(loop, epoch=loop.time())


def _run(prepare: Prepare) -> HttpRequest:
    step = prepare().__await__()
    try:
        next(step)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("nothing here waits")


def played(play: Callable[[], Awaitable[T]]) -> T:
    """What `play` returns, in virtual time; afterwards no task is left on the loop."""

    async def main() -> T:
        outcome = await play()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left
        return outcome

    return run_virtual(main())


class Seen:
    """What came to a subscriber, and how it ended."""

    def __init__(self) -> None:
        self.events: list[SamplingEvent] = []
        self.errors: list[Exception] = []
        self.completed = False
        self.subscription: abc.DisposableBase | None = None
        self._ended = asyncio.get_running_loop().create_future()

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    def on_next(self, event: SamplingEvent) -> None:
        assert not self.completed
        self.events.append(event)

    def on_error(self, error: Exception) -> None:
        self.errors.append(error)
        self._ended.set_result(None)

    def on_completed(self) -> None:
        self.completed = True
        self._ended.set_result(None)

    async def end(self) -> None:
        await self._ended

    def dispose(self) -> None:
        assert self.subscription is not None
        self.subscription.dispose()


async def watched(stream: Observable[SamplingEvent]) -> Seen:
    """Subscribe, and wait for the end, which is to be a completion of legal requests."""
    seen = Seen()
    seen.subscription = stream.subscribe(seen.on_next, seen.on_error, seen.on_completed)
    await seen.end()
    assert not seen.errors
    for events in by_request(seen.events):
        check_events(events)
    return seen


def by_request(events: Sequence[SamplingEvent]) -> list[list[SamplingEvent]]:
    """The events of each request, which follow one another."""
    found: dict[str, list[SamplingEvent]] = {}
    for event in events:
        found.setdefault(event.request_id, []).append(event)
    assert [event for one in found.values() for event in one] == list(events)
    assert all(not isinstance(one[-1], Failed) for one in list(found.values())[:-1])
    return list(found.values())
