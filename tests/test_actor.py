"""The actor: submit, cancel, replay, isolation, order, threads, shutdown. H1 and so on are hazards of the original."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from loopback import WAIT_S, Exchange, Handler, Loopback, answering
from reactivex import Observable
from reactivex.abc import DisposableBase
from reactivex.testing import TestScheduler
from scripted_transport import ScriptedTransport, Step, arriving, head
from wires import answer, closing, opening, text

from rx_sampler import (
    Completed,
    Failed,
    RetryPolicy,
    Sampler,
    SamplerConfig,
    SamplingError,
    SamplingErrorKind,
    SamplingEvent,
    SamplingRequest,
)
from rx_sampler.actor import KEPT_EVENTS, KEPT_REQUESTS
from rx_sampler.wire.transport import Connected

CHAT = "chat_completions"


def config(base_url: str = "http://api.test/v1", **fields: Any) -> SamplerConfig:
    given = {"base_url": base_url, "model": "m", "retry": RetryPolicy(max_retries=0)}
    return SamplerConfig.model_validate({**given, **fields})


class Virtual:
    """A sampler in virtual time, its requests answered by scripts in the order of arrival."""

    def __init__(self, *scripts: list[Step], **fields: Any) -> None:
        self.scheduler = TestScheduler()
        self.transport = ScriptedTransport(*scripts)
        self.sampler = Sampler(config(**fields), transport=self.transport, scheduler=self.scheduler)
        self.seen: list[SamplingEvent] = []
        self.sampler.events.subscribe(self.seen.append)

    def until(self, when: float) -> None:
        self.scheduler.advance_to(when)

    def told(self) -> list[tuple[str, str]]:
        return [(event.request_id, event.kind) for event in self.seen]


def talk(*words: str, every: float = 1) -> list[Step]:
    return arriving(answer(CHAT, *words), every=every)


def forever() -> list[Step]:
    return arriving([*opening(CHAT), text(CHAT, "on")])


class Kept:
    """A subscriber that keeps what it is told."""

    def __init__(self, stream: Observable[SamplingEvent], act: Callable[[SamplingEvent], object] | None = None) -> None:
        self.events: list[SamplingEvent] = []
        self.errors: list[Exception] = []
        self.completions = 0
        self._act = act
        self._arrived = asyncio.Event()
        self.subscription: DisposableBase = stream.subscribe(self._on_next, self.errors.append, self._on_completed)

    def _on_next(self, event: SamplingEvent) -> None:
        self.events.append(event)
        self._arrived.set()
        if self._act is not None:
            self._act(event)

    def _on_completed(self) -> None:
        self.completions += 1

    async def until(self, predicate: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not predicate():
                self._arrived.clear()
                await self._arrived.wait()

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


# -- submit and its streams


def test_b213_a_fresh_actor_is_idle() -> None:
    virtual = Virtual()
    virtual.sampler.cancel("nobody")
    assert (virtual.sampler.active_count(), virtual.sampler.is_active("nobody"), virtual.seen) == (0, False, [])


def test_b214_a_submitted_request_is_told_to_all() -> None:
    virtual = Virtual(talk("hello ", "world"))
    request_id = virtual.sampler.submit("hi")
    assert (len(request_id), virtual.sampler.is_active(request_id), virtual.sampler.active_count()) == (36, True, 1)
    own = Kept(virtual.sampler.events_of(request_id))
    virtual.scheduler.start()
    assert own.events == virtual.seen
    assert (own.kinds[0], own.kinds[2], own.kinds[-1], own.completions) == (
        "stream_started",
        "first_token",
        "completed",
        1,
    )
    assert {event.request_id for event in own.events} == {request_id}
    end = own.events[-1]
    assert isinstance(end, Completed)
    assert end.response.text == "hello world"
    assert (virtual.sampler.active_count(), virtual.sampler.is_active(request_id)) == (0, False)


def test_a_request_is_sent_once_whatever_the_number_of_observers() -> None:
    virtual = Virtual(talk("a"))
    request_id = virtual.sampler.submit("hi")
    observers = [Kept(virtual.sampler.events_of(request_id)) for _ in range(3)]
    virtual.scheduler.start()
    assert len(virtual.transport.requests) == 1
    assert all(one.events == virtual.seen for one in observers)
    unobserved = Virtual(talk("a"))
    unobserved.sampler.submit("hi")
    unobserved.scheduler.start()
    assert len(unobserved.transport.requests) == 1


@pytest.mark.parametrize("when", [0, 1, 2, 3, 5, 9, 100])
def test_who_comes_late_sees_the_request_from_its_start(when: float) -> None:
    virtual = Virtual(talk("a", "b", "c"))
    request_id = virtual.sampler.submit("hi")
    virtual.until(when)
    late = Kept(virtual.sampler.events_of(request_id))
    already = len(late.events)
    assert late.events == virtual.seen
    virtual.scheduler.start()
    assert late.events == virtual.seen
    assert (late.completions, late.kinds[-1]) == (1, "completed")
    assert already <= len(late.events)


def test_the_bus_tells_nothing_of_the_past() -> None:
    virtual = Virtual(talk("a", "b"))
    virtual.sampler.submit("hi")
    virtual.until(4)
    late = Kept(virtual.sampler.events)
    virtual.scheduler.start()
    assert 0 < len(late.events) < len(virtual.seen)
    assert late.events == virtual.seen[-len(late.events) :]
    assert late.completions == 0


def test_an_id_that_is_not_known_is_an_error() -> None:
    virtual = Virtual()
    lost = Kept(virtual.sampler.events_of("nobody"))
    assert [type(error) for error in lost.errors] == [LookupError]
    assert "nobody" in str(lost.errors[0])


def test_b217_requests_run_side_by_side_under_their_own_ids() -> None:
    virtual = Virtual(talk("a"), talk("b"))
    assert [virtual.sampler.submit("hi", name) for name in ("one", "two")] == ["one", "two"]
    assert virtual.sampler.active_count() == 2
    virtual.scheduler.start()
    ends = {event.request_id: event for event in virtual.seen if isinstance(event, Completed)}
    assert {name: end.response.text for name, end in ends.items()} == {"one": "a", "two": "b"}


def test_b220_a_later_request_takes_the_later_configuration() -> None:
    virtual = Virtual(talk("a"), talk("b"))
    virtual.sampler.submit("hi")
    virtual.sampler.update_config(config(model="model-b"))
    virtual.sampler.submit("hi")
    virtual.scheduler.start()
    assert [b'"model-b"' in request.body for request in virtual.transport.requests] == [False, True]
    assert virtual.sampler.config.model == "model-b"


def test_what_cannot_be_changed_says_so() -> None:
    virtual = Virtual()
    changes: tuple[dict[str, Any], ...] = (
        {"trust_env": True},
        {"proxy": "http://proxy.test:3128"},
        {"ca_bundle": "/etc/authorities.pem"},
    )
    for change in changes:
        (field,) = change
        with pytest.raises(ValueError, match=f"{field} cannot be changed; make another Sampler"):
            virtual.sampler.update_config(config(**change))
    with pytest.raises(ValueError, match="backend 'smoke' is not known"):
        virtual.sampler.update_config(config(backend="smoke"))


def test_a_question_that_is_none_is_refused_at_once() -> None:
    virtual = Virtual()
    with pytest.raises(ValueError, match="items"):
        virtual.sampler.submit([])
    assert virtual.sampler.active_count() == 0


def test_b226_a_key_that_no_header_can_carry() -> None:
    virtual = Virtual(talk("a"), api_key="two\nlines")
    virtual.sampler.submit("hi", "r")
    virtual.scheduler.start()
    assert virtual.told() == [("r", "failed")]
    assert isinstance(virtual.seen[0], Failed)
    assert virtual.seen[0].error.kind == "auth"


# -- cancel


@pytest.mark.parametrize("when", [0, 0.5, 1.5, 2.5, 3.5])
def test_b216_b225_h1_cancel_is_heard_in_every_phase(when: float) -> None:
    # before the connection, before the headers, after them, after the first words
    virtual = Virtual(arriving([*opening(CHAT), text(CHAT, "on")], at=1, every=1))
    virtual.sampler.submit("hi", "r")
    virtual.until(when)
    virtual.sampler.cancel("r")
    assert virtual.sampler.active_count() == 0
    end = virtual.seen[-1]
    assert isinstance(end, Failed)
    assert (end.error.kind, end.error.is_retryable, end.error.status) == ("cancelled", False, None)
    assert "cancelled" in end.error.message
    if when == 3.5:
        assert end.partial is not None
        assert end.partial.text == "on"  # nothing that streamed is lost
    said = len(virtual.seen)
    virtual.scheduler.start()
    assert len(virtual.seen) == said
    assert len(virtual.transport.closed_at) == len(virtual.transport.over)
    assert not any(virtual.transport.over)


def test_cancel_in_the_midst_of_a_refusal_brings_no_retry() -> None:
    # the status is known, the body that explains it still comes
    virtual = Virtual([(0, Connected()), (1, head(503, {}))], retry=RetryPolicy(jitter=0))
    virtual.sampler.submit("hi", "r")
    virtual.until(2)
    virtual.sampler.cancel("r")
    assert virtual.told() == [("r", "failed")]


def test_b224_cancel_ends_a_wait() -> None:
    virtual = Virtual(
        [(0, SamplingError.of(SamplingErrorKind.HTTP, "gone", is_retryable=True))], retry=RetryPolicy(jitter=0)
    )
    virtual.sampler.submit("hi", "r")
    virtual.until(1)
    virtual.sampler.cancel("r")
    assert virtual.told() == [("r", "retrying"), ("r", "failed")]
    end = virtual.seen[-1]
    assert isinstance(end, Failed)
    assert (end.attempt, end.metrics.attempts, end.metrics.queued_ms) == (2, 1, 0)
    virtual.scheduler.start()
    assert (len(virtual.seen), len(virtual.transport.requests)) == (2, 1)


def test_cancel_while_queued() -> None:
    virtual = Virtual(talk("a"), max_concurrency=1)
    virtual.sampler.submit("hi", "first")
    virtual.sampler.submit("hi", "second")
    virtual.until(0.5)
    virtual.sampler.cancel("second")
    end = virtual.seen[-1]
    assert isinstance(end, Failed)
    assert (end.metrics.attempts, end.metrics.queued_ms) == (0, 500)
    virtual.scheduler.start()
    assert virtual.told()[0] == ("second", "failed")
    assert virtual.told()[-1] == ("first", "completed")
    assert len(virtual.transport.requests) == 1


def test_cancel_of_what_is_over_changes_nothing() -> None:
    virtual = Virtual(talk("a"))
    virtual.sampler.submit("hi", "r")
    virtual.scheduler.start()
    said = virtual.told()
    virtual.sampler.cancel("r")
    assert virtual.told() == said


# -- the same id twice


def test_b218_b219_h2_a_second_submit_of_an_id_replaces_the_first() -> None:
    virtual = Virtual(forever(), talk("b"))
    virtual.sampler.submit("hi", "r")
    first = Kept(virtual.sampler.events_of("r"))
    virtual.until(4)
    virtual.sampler.submit("hi", "r")
    second = Kept(virtual.sampler.events_of("r"))
    assert (first.kinds[-1], first.completions, second.events) == ("failed", 1, [])
    assert virtual.sampler.is_active("r")  # B219: the end of the first says nothing about the second
    virtual.scheduler.start()
    assert second.kinds[-1] == "completed"
    assert [kind for _, kind in virtual.told()].count("failed") == 1
    assert first.kinds[-1] == "failed"
    ends = [kind for _, kind in virtual.told() if kind in ("failed", "completed")]
    assert ends == ["failed", "completed"]


def test_b219_the_second_can_be_cancelled() -> None:
    virtual = Virtual(forever(), forever())
    virtual.sampler.submit("hi", "r")
    virtual.until(4)
    virtual.sampler.submit("hi", "r")
    virtual.until(8)
    virtual.sampler.cancel("r")
    assert [kind for _, kind in virtual.told()].count("failed") == 2
    assert virtual.sampler.active_count() == 0


def test_an_id_can_be_used_again_when_its_request_is_over() -> None:
    virtual = Virtual(talk("a"), talk("b"))
    for word in "ab":
        virtual.sampler.submit("hi", "r")
        virtual.scheduler.start()
        end = Kept(virtual.sampler.events_of("r")).events[-1]
        assert isinstance(end, Completed)
        assert end.response.text == word


# -- order, and who raises


def test_reentrant_commands_keep_the_order_for_everyone() -> None:
    virtual = Virtual(talk("a"), talk("c"))  # the second is cancelled before it is sent

    def meddle(event: SamplingEvent) -> None:
        if (event.request_id, event.kind) == ("one", "channel_token"):
            virtual.sampler.submit("hi", "two")
            virtual.sampler.cancel("two")
            virtual.sampler.submit("hi", "three")
            assert virtual.sampler.is_active("three")

    meddler = Kept(virtual.sampler.events, meddle)
    witness = Kept(virtual.sampler.events)
    virtual.sampler.submit("hi", "one")
    virtual.scheduler.start()
    assert virtual.seen == meddler.events == witness.events
    told = virtual.told()
    assert told.index(("two", "failed")) == told.index(("one", "channel_token")) + 1
    assert ("three", "completed") in told


def test_cancelling_from_inside_an_event_ends_the_request_after_it() -> None:
    virtual = Virtual(talk("a", "b"))

    def cancel(event: SamplingEvent) -> None:
        if event.kind == "channel_token":
            virtual.sampler.cancel("r")

    virtual.sampler.submit("hi", "r")
    own = Kept(virtual.sampler.events_of("r"), cancel)
    virtual.scheduler.start()
    assert own.kinds == ["stream_started", "response_started", "first_token", "channel_token", "failed"]
    assert virtual.seen == own.events


def test_subscribing_from_inside_an_event_sees_each_event_once() -> None:
    virtual = Virtual(talk("a", "b"))
    late: list[Kept] = []

    def join(event: SamplingEvent) -> None:
        if event.kind == "first_token":
            late.append(Kept(virtual.sampler.events_of("r")))

    Kept(virtual.sampler.events, join)
    virtual.sampler.submit("hi", "r")
    virtual.scheduler.start()
    assert late[0].events == virtual.seen


def test_a_subscriber_that_acts_during_its_replay_misses_nothing() -> None:
    virtual = Virtual(forever())
    virtual.sampler.submit("hi", "r")
    virtual.until(5)

    def cancel(event: SamplingEvent) -> None:
        if event.kind == "first_token":
            virtual.sampler.cancel("r")

    late = Kept(virtual.sampler.events_of("r"), cancel)
    assert late.events == virtual.seen
    assert (late.kinds[-1], late.completions) == ("failed", 1)


def test_the_end_can_be_looked_up_from_inside_the_event_before_it() -> None:
    virtual = Virtual(forever())
    late: list[Kept] = []

    def act(event: SamplingEvent) -> None:
        if event.kind == "channel_token":
            virtual.sampler.cancel("r")
            late.append(Kept(virtual.sampler.events_of("r")))

    Kept(virtual.sampler.events, act)
    virtual.sampler.submit("hi", "r")
    virtual.scheduler.start()
    assert late[0].events == virtual.seen
    assert late[0].kinds[-1] == "failed"


def test_the_last_event_can_submit_the_next_request() -> None:
    virtual = Virtual(talk("a"), talk("b"))

    def chain(event: SamplingEvent) -> None:
        if event.kind == "completed" and len(virtual.transport.requests) == 1:
            assert virtual.sampler.active_count() == 0
            virtual.sampler.submit("more", "r")

    Kept(virtual.sampler.events, chain)
    virtual.sampler.submit("hi", "r")
    virtual.scheduler.start()
    assert [kind for _, kind in virtual.told()].count("completed") == 2


@contextlib.contextmanager
def reports() -> Generator[list[BaseException]]:
    """What the loop's exception handler is told."""
    told: list[BaseException] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: told.append(context["exception"]))
    try:
        yield told
    finally:
        loop.set_exception_handler(None)


class Loud:
    """Raises at the given event of the given request, and counts what it is told."""

    def __init__(self, error: BaseException, request_id: str, nth: int) -> None:
        self.count = 0
        self._error, self._id, self._left = error, request_id, nth

    def __call__(self, event: SamplingEvent) -> None:
        self.count += 1
        if event.request_id == self._id:
            self._left -= 1
            if not self._left:
                raise self._error


@pytest.mark.parametrize("error", [ValueError("mine"), asyncio.CancelledError()], ids=["an error", "a cancellation"])
async def test_one_subscriber_that_raises_harms_nobody(error: BaseException) -> None:
    # after the field case: three subscribers of the bus, the first raises at the second event of A
    virtual = Virtual(talk("a"), talk("b"))
    loud = Loud(error, "A", 2)
    with reports() as told:
        virtual.sampler.events.subscribe(loud)
        others = [Kept(virtual.sampler.events) for _ in range(2)]
        for name in "AB":
            virtual.sampler.submit("hi", name)
        virtual.scheduler.start()
    assert told == [error]
    assert loud.count == 3  # A's, B's and A's second event: it is disposed of then
    for other in others:
        assert other.events == virtual.seen
        assert {event.request_id for event in other.events if event.kind == "completed"} == {"A", "B"}


async def test_a_subscriber_of_one_request_that_raises_harms_nobody() -> None:
    virtual = Virtual(talk("a"))
    error = ValueError("mine")
    with reports() as told:
        virtual.sampler.submit("hi", "A")
        virtual.sampler.events_of("A").subscribe(Loud(error, "A", 1))
        other = Kept(virtual.sampler.events_of("A"))
        virtual.scheduler.start()
        assert told == [error]
        virtual.sampler.events_of("A").subscribe(Loud(error, "A", 1))  # in its replay too
    assert told == [error, error]
    assert other.kinds[-1] == "completed"


async def test_who_raises_at_its_end_is_told_that_it_is_over() -> None:
    # or whoever waits for that end waits for ever
    virtual = Virtual(forever())
    error, errors = ValueError("mine"), list[Exception]()
    with reports() as told:
        virtual.sampler.submit("hi", "A")
        virtual.sampler.events_of("A").subscribe(Loud(error, "A", 1), errors.append)
        virtual.sampler.cancel("A")
    assert (errors, told) == ([error], [error])


async def test_a_subscriber_that_raises_when_it_is_completed_harms_nobody() -> None:
    virtual = Virtual(talk("a"))
    error = ValueError("mine")

    def raises() -> None:
        raise error

    with reports() as told:
        virtual.sampler.submit("hi", "A")
        virtual.sampler.events_of("A").subscribe(on_completed=raises)
        other = Kept(virtual.sampler.events_of("A"))
        virtual.scheduler.start()
    assert (told, other.completions) == ([error], 1)


# -- memory


def test_finished_requests_are_remembered_within_bounds() -> None:
    count = KEPT_REQUESTS + 50
    virtual = Virtual(*[arriving([b"".join(answer(CHAT, "a"))], at=0, every=0) for _ in range(count)])
    for number in range(count):
        virtual.sampler.submit("hi", str(number))
    virtual.scheduler.start()
    remembered = [not Kept(virtual.sampler.events_of(str(number))).errors for number in range(count)]
    assert remembered == [False] * 50 + [True] * KEPT_REQUESTS


def test_their_events_are_bounded_too() -> None:
    words = ["a"] * 1000
    count = 2 * KEPT_EVENTS // len(words)
    virtual = Virtual(*[arriving([b"".join(answer(CHAT, *words))], at=0, every=0) for _ in range(count)])
    for number in range(count):
        virtual.sampler.submit("hi", str(number))
    virtual.scheduler.start()
    kept = [Kept(virtual.sampler.events_of(str(number))) for number in range(count)]
    assert not kept[-1].errors
    assert 0 < sum(len(one.events) for one in kept) <= KEPT_EVENTS


# -- real loops and threads


@asynccontextmanager
async def serving(*handlers: Handler, **fields: Any) -> AsyncGenerator[tuple[Loopback, Sampler]]:
    async with Loopback(*handlers) as server, Sampler(config(server.base_url, **fields)) as sampler:
        yield server, sampler


def streaming(*words: str) -> Handler:
    return answering([*opening(CHAT), *(text(CHAT, word) for word in words)], ends=False)


async def end_of(stream: Observable[SamplingEvent]) -> SamplingEvent:
    async with asyncio.timeout(WAIT_S):
        return await stream


async def test_b215_collect_flows_on_the_bus_too() -> None:
    async with serving(answering(answer(CHAT, "a", "b"))) as (_, sampler):
        bus = Kept(sampler.events)
        result = await sampler.collect("hi")
        assert (result.response.text, result.retries) == ("ab", ())
        assert {event.request_id for event in bus.events} == {result.request_id}
        assert result.events_summary == {kind: bus.kinds.count(kind) for kind in bus.kinds}


async def test_b222_who_stops_awaiting_cancels() -> None:
    async with serving(streaming("on")) as (server, sampler):
        bus = Kept(sampler.events)
        task = asyncio.create_task(sampler.collect("hi"))
        await server.received(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (bus.kinds[-1], sampler.active_count()) == ("failed", 0)
        await server.deserted()


async def test_h3_a_collect_that_is_over_cancels_nothing() -> None:
    async with serving(answering(answer(CHAT, "a")), streaming("on")) as (_, sampler):
        result = await sampler.collect("hi")
        sampler.submit("hi", result.request_id)
        await asyncio.sleep(0)
        assert sampler.is_active(result.request_id)


async def test_collect_tells_what_happened_on_the_way() -> None:
    busy = answering([], status=500)
    async with serving(
        busy, answering(answer(CHAT, "a")), retry=RetryPolicy(initial_backoff_s=0.001, max_backoff_s=0.001)
    ) as (_, sampler):
        result = await sampler.collect("hi")
    assert [event.error_kind for event in result.retries] == ["api"]
    assert (result.metrics.attempts, result.images_stripped, result.doom_loop_triggers) == (2, (), ())


async def test_submit_from_another_thread() -> None:
    async with serving(streaming("on")) as (_, sampler):
        known: list[tuple[bool, int]] = []

        def work() -> str:
            request_id = sampler.submit("hi")
            known.append((sampler.is_active(request_id), sampler.active_count()))
            sampler.cancel(request_id)
            return request_id

        end = await end_of(sampler.events_of(await asyncio.to_thread(work)))
        assert isinstance(end, Failed)
        assert (end.error.kind, known) == ("cancelled", [(True, 1)])


async def test_the_loop_is_woken_for_a_command_from_another_thread() -> None:
    # after the field case: the loop sleeps in a timer of 60 s, and a worker submits
    loop = asyncio.get_running_loop()
    async with serving(answering(answer(CHAT, "a"))) as (server, sampler):
        timer = loop.call_later(60, lambda: None)
        worker = threading.Thread(target=sampler.submit, args=("hi",))
        worker.start()
        await server.received(1)  # nothing else would have woken it
        timer.cancel()
        await asyncio.to_thread(worker.join)


async def test_cancel_and_dispose_from_another_thread() -> None:
    async with serving(streaming("on")) as (server, sampler):
        own = Kept(sampler.events_of(sampler.submit("hi", "a")))
        end = asyncio.ensure_future(end_of(sampler.events_of("a")))
        await server.received(1)
        await asyncio.to_thread(own.subscription.dispose)
        await asyncio.to_thread(sampler.cancel, "a")
        assert (await end).kind == "failed"
        assert "failed" not in own.kinds
        await server.deserted()


async def test_a_subscriber_from_another_thread_is_told_on_the_loop() -> None:
    async with serving(answering(answer(CHAT, "a"))) as (_, sampler):
        request_id = sampler.submit("hi")
        threads: set[int] = set()
        done = asyncio.Event()
        late = await asyncio.to_thread(
            lambda: sampler.events_of(request_id).subscribe(
                lambda _event: threads.add(threading.get_ident()), on_completed=done.set
            )
        )
        async with asyncio.timeout(WAIT_S):
            await done.wait()
        late.dispose()
        assert threads == {threading.get_ident()}


def test_submit_without_a_loop_says_what_is_missing() -> None:
    sampler = Sampler(config())
    with pytest.raises(RuntimeError, match="event loop"):
        sampler.submit("hi")
    sampler.cancel("nobody")
    assert sampler.active_count() == 0


def test_requests_of_a_loop_that_is_gone_end_and_hold_no_place() -> None:
    sampler = Sampler(config("http://127.0.0.1:1/v1", max_concurrency=1, retry=RetryPolicy(initial_backoff_s=60)))

    async def leave() -> Kept:
        # the connection is refused, the request waits for its retry, and the loop closes under it
        sampler.submit("hi", "r")
        waiting = Kept(sampler.events_of("r"))
        await waiting.until(lambda: bool(waiting.events))
        return waiting

    left = asyncio.run(leave())
    assert left.kinds == ["retrying"]

    async def come() -> SamplingEvent:
        async with Loopback(answering(answer(CHAT, "a"))) as server:
            sampler.update_config(config(server.base_url, max_concurrency=1))
            return await end_of(sampler.events_of(sampler.submit("hi", "r")))

    assert asyncio.run(come()).kind == "completed"
    assert (left.kinds, left.completions) == (["retrying", "failed"], 1)


# -- shutdown


async def test_closing_ends_everything_with_its_terminal_event() -> None:
    async with Loopback(streaming("on"), streaming("on")) as server:
        async with Sampler(config(server.base_url, max_concurrency=2)) as sampler:
            bus = Kept(sampler.events)
            for name in ("a", "b", "queued"):
                sampler.submit("hi", name)
            stream = Kept(sampler.stream("hi"))
            await server.received(2)
        await server.deserted()
    ends = {event.request_id: event for event in bus.events if isinstance(event, Failed)}
    assert {name: end.error.kind for name, end in ends.items()} == dict.fromkeys(("a", "b", "queued"), "cancelled")
    assert (bus.completions, stream.kinds[-1:], sampler.active_count()) == (1, ["failed"], 0)


async def test_requests_that_wait_for_a_retry_are_closed_too() -> None:
    dead = config("http://127.0.0.1:1/v1", retry=RetryPolicy(initial_backoff_s=60))
    async with Sampler(dead) as sampler:
        sampler.submit("hi", "r")
        bus, stream = Kept(sampler.events), Kept(sampler.stream("hi"))
        await bus.until(lambda: "retrying" in bus.kinds)
        await stream.until(lambda: "retrying" in stream.kinds)
    assert (bus.kinds, stream.kinds) == (["retrying", "failed"], ["retrying", "failed"])
    assert len(asyncio.all_tasks()) == 1


async def test_b227_the_last_handle_closes_the_actor() -> None:
    async with Loopback(streaming("on")) as server:
        sampler = Sampler(config(server.base_url))
        first, second = sampler.handle(), sampler.handle()
        bus = Kept(first.events)
        request_id = second.submit("hi")
        await server.received(1)
        second.close()
        second.close()
        assert (first.is_active(request_id), first.active_count()) == (True, 1)
        first.close()
        assert (bus.kinds[-1], bus.completions, sampler.active_count()) == ("failed", 1, 0)
        await server.deserted()


async def test_b223_a_closed_handle_does_nothing() -> None:
    sampler = Sampler(config())
    with sampler.handle() as handle:
        pass
    handle.cancel("r")
    assert (handle.is_active("r"), handle.active_count()) == (False, 0)
    with pytest.raises(RuntimeError, match="closed"):
        handle.submit("hi")


async def test_handles_come_and_go_while_the_sampler_is_open() -> None:
    async with serving(answering(answer(CHAT, "a"))) as (_, sampler):
        with sampler.handle() as handle:
            request_id = handle.submit("hi")
        assert (await end_of(sampler.events_of(request_id))).kind == "completed"


async def test_two_hundred_cancelled_requests_leave_room_for_one_more() -> None:
    # after the field case: cancelled before the headers, in them and in the body
    async def answer_once_asked(exchange: Exchange) -> None:
        if b"last" in exchange.body:
            await answering(answer(CHAT, "done"))(exchange)
        else:
            await streaming("on", "and on")(exchange)

    async with Loopback(answer_once_asked) as server:
        async with Sampler(config(server.base_url, max_concurrency=2)) as sampler:
            for number in range(200):
                request_id = sampler.submit(f"question {number}")
                for _ in range(number % 7):
                    await asyncio.sleep(0)
                sampler.cancel(request_id)
            end = await end_of(sampler.events_of(sampler.submit("the last")))
            assert isinstance(end, Completed)
            assert end.response.text == "done"
            assert sampler.active_count() == 0
        await server.deserted()


def test_a_bug_inside_ends_the_request_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(ScriptedTransport):
        def post(self, *_args: Any, **_kwargs: Any) -> Observable[Any]:
            import reactivex

            return reactivex.throw(ZeroDivisionError("a bug"))

    scheduler = TestScheduler()
    sampler = Sampler(config(), transport=Broken(), scheduler=scheduler)
    bus = Kept(sampler.events)
    sampler.submit("hi")
    scheduler.start()
    end = bus.events[-1]
    assert isinstance(end, Failed)
    assert (end.error.code, sampler.active_count(), len(caplog.records)) == ("internal_error", 0, 1)


def test_a_whole_request_can_be_submitted() -> None:
    virtual = Virtual(talk("a"))
    request = SamplingRequest.model_validate({"items": [{"type": "user", "content": "hi"}], "temperature": 0.5})
    virtual.sampler.submit(request, "r")
    virtual.scheduler.start()
    assert b'"temperature":0.5' in virtual.transport.requests[0].body
    assert virtual.told()[-1] == ("r", "completed")


async def test_what_is_raised_at_the_end_of_a_stream_is_reported() -> None:
    # also where the exchange is torn down by the very end that is told
    error = ValueError("mine")

    def raises() -> None:
        raise error

    async with Loopback(answering([], status=400)) as server:
        with reports() as told:
            Sampler(config(server.base_url)).stream("hi").subscribe(on_completed=raises)
            await server.received(1)
            await server.deserted()
        assert told == [error]


def test_a_silent_server_and_nobody_who_listens() -> None:
    virtual = Virtual([(0, Connected())], header_timeout_s=5)
    virtual.sampler.submit("hi", "r")
    virtual.scheduler.start()
    assert virtual.told() == [("r", "failed")]


def test_frames_behind_a_cancel_are_not_told() -> None:
    # one read brings several tokens; the first is answered with a cancel
    frames = b"".join([*opening(CHAT), text(CHAT, "a"), text(CHAT, "b"), *closing(CHAT, "ab")])
    virtual = Virtual(arriving([frames]))

    def cancel(event: SamplingEvent) -> None:
        if event.kind == "channel_token":
            virtual.sampler.cancel("r")

    Kept(virtual.sampler.events, cancel)
    virtual.sampler.submit("hi", "r")
    virtual.scheduler.start()
    assert [kind for _, kind in virtual.told()][-2:] == ["channel_token", "failed"]
    assert [kind for _, kind in virtual.told()].count("channel_token") == 1
