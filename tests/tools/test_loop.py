"""`run_tools` in virtual time: turns, results, limits, and every way in which a loop ends."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError
from reactivex import Observable, abc

from rx_sampler import Completed, Failed, Sampler, SamplerConfig, SamplingErrorKind, SamplingEvent, SamplingRequest
from rx_sampler.conversation import FunctionChoice, ToolResultItem, ToolSpec, UserItem
from rx_sampler.demand import Demand, current_demand, demanding
from rx_sampler.errors import SamplingError
from rx_sampler.events import ChannelToken, ToolCallDelta, ToolResultAdded
from rx_sampler.flow import to_async_iterator
from rx_sampler.tools import Tool, run_tools

from .plays import END_S, Seen, Server, by_request, calling, played, saying, watched

ASK_S = 1.0 + END_S
"""How long a turn takes."""


async def slow(seconds: float) -> str:
    """Wait."""
    await asyncio.sleep(seconds)
    return f"waited {seconds:g}"


def double(x: int) -> int:
    """Twice a number."""
    return 2 * x


def fail(x: int) -> int:
    """Never works."""
    raise LookupError(f"no {x} here")


def results(seen: Seen) -> list[ToolResultAdded]:
    return [event for event in seen.events if isinstance(event, ToolResultAdded)]


def texts(seen: Seen) -> str:
    return "".join(event.text for event in seen.events if isinstance(event, ChannelToken))


def tool_messages(body: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["tool_call_id"], one["content"]) for one in body["messages"] if one["role"] == "tool"]


def test_without_tools_it_is_one_request() -> None:
    async def play() -> Seen:
        server = Server(saying("hello"))
        seen = await watched(run_tools(server.sampler(), "hi", request_id="r"))
        assert "tools" not in server.requests[0]
        return seen

    seen = played(play)
    assert seen.kinds == ["stream_started", "response_started", "first_token", "channel_token", "completed"]
    assert {(event.request_id, event.turn) for event in seen.events} == {("r:1", 1)}


def test_a_call_is_run_and_the_model_told() -> None:
    async def play() -> tuple[Server, Seen]:
        server = Server(calling(("double", '{"x": 21}'), text="Let me see."), saying("It is 42."))
        return server, await watched(run_tools(server.sampler(), "What is twice 21?", [double], request_id="r"))

    server, seen = played(play)
    first, second = by_request(seen.events)
    assert [event.kind for event in first] == [
        *("stream_started", "response_started", "first_token", "channel_token"),
        *("tool_call_delta", "completed"),
    ]
    assert [event.kind for event in second] == [
        *("tool_result_added", "stream_started", "response_started", "first_token", "channel_token", "completed")
    ]
    assert {(event.request_id, event.turn) for event in first} == {("r:1", 1)}
    assert {(event.request_id, event.turn) for event in second} == {("r:2", 2)}
    assert texts(seen) == "Let me see.It is 42."
    (added,) = results(seen)
    assert added.result == ToolResultItem(tool_call_id="c0", content="42")
    assert (added.tool_call_id, added.name, added.attempt, added.exception) == ("c0", "double", 1, None)
    assert seen.completed

    (declared,) = server.requests[0]["tools"]
    assert declared["function"]["name"] == "double"
    assert declared["function"]["description"] == "Twice a number."
    assert declared["function"]["parameters"]["properties"] == {"x": {"type": "integer"}}
    assert server.requests[1]["tools"] == server.requests[0]["tools"]
    assert [message["role"] for message in server.requests[1]["messages"]] == ["user", "assistant", "tool"]
    assert tool_messages(server.requests[1]) == [("c0", "42")]


def test_calls_run_together_and_are_told_in_their_order() -> None:
    async def play() -> tuple[Server, Seen]:
        said = [("slow", '{"seconds": 5}'), ("slow", '{"seconds": 1}'), ("slow", '{"seconds": 3}')]
        server = Server(calling(*said), saying("done"))
        return server, await watched(run_tools(server.sampler(), "go", [slow]))

    server, seen = played(play)
    assert [(added.tool_call_id, added.ts, added.duration_ms) for added in results(seen)] == [
        ("c1", ASK_S + 1, 1000.0),
        ("c2", ASK_S + 3, 3000.0),
        ("c0", ASK_S + 5, 5000.0),
    ]
    assert tool_messages(server.requests[1]) == [("c0", "waited 5"), ("c1", "waited 1"), ("c2", "waited 3")]
    started = [event.ts for event in seen.events if event.kind == "stream_started"]
    assert started == [1.0, ASK_S + 5 + 1]


def test_max_concurrency_bounds_how_many_run() -> None:
    async def play() -> Seen:
        server = Server(calling(*[("slow", '{"seconds": 2}')] * 3), saying("done"))
        return await watched(run_tools(server.sampler(), "go", [slow], max_concurrency=2))

    assert [(added.ts, added.duration_ms) for added in results(played(play))] == [
        (ASK_S + 2, 2000.0),
        (ASK_S + 2, 2000.0),
        (ASK_S + 4, 2000.0),
    ]


def test_a_sync_function_blocks_no_loop_and_sees_the_subscribers_context() -> None:
    user: contextvars.ContextVar[str] = contextvars.ContextVar("user", default="nobody")
    met = threading.Barrier(2, timeout=30)

    def who() -> str:
        met.wait()  # both run at once, or neither goes on
        assert threading.current_thread() is not threading.main_thread()
        return user.get()

    async def play() -> Seen:
        server = Server(calling(("who", "{}"), ("who", "{}")), saying("done"))
        user.set("ann")
        stream = run_tools(server.sampler(), "go", [who])
        return await watched(stream)

    assert [added.result.content for added in results(played(play))] == ["ann", "ann"]


def test_errors_are_results_and_never_kill_the_stream() -> None:
    said = [("fail", '{"x": 1}'), ("double", '{"x": "one"}'), ("triple", "{}"), ("double", '{"x": 1'), ("double", "[]")]

    async def play() -> tuple[Server, Seen]:
        server = Server(calling(*said), saying("done"))
        return server, await watched(run_tools(server.sampler(), "go", [double, fail]))

    server, seen = played(play)
    by_id = {added.tool_call_id: added for added in results(seen)}
    assert all(added.result.is_error for added in by_id.values())
    assert isinstance(by_id["c0"].exception, LookupError)
    assert isinstance(by_id["c1"].exception, ValidationError)
    assert [content for _, content in tool_messages(server.requests[1])] == [
        by_id[f"c{place}"].result.content for place in range(5)
    ]
    assert by_id["c0"].result.content == "fail failed: LookupError: no 1 here"


def test_a_tool_that_takes_too_long_is_given_up() -> None:
    async def play() -> Seen:
        server = Server(calling(("slow", '{"seconds": 60}'), ("slow", '{"seconds": 1}')), saying("done"))
        return await watched(run_tools(server.sampler(), "go", [slow], tool_timeout_s=10))

    quick, late = results(played(play))
    assert (quick.result.content, quick.ts) == ("waited 1", ASK_S + 1)
    assert (late.result.content, late.ts) == (
        "slow failed: it took longer than 10 s and was given up",
        ASK_S + 10,
    )
    assert late.result.is_error
    assert isinstance(late.exception, TimeoutError)


def test_max_turns_ends_it_with_calls_that_nobody_runs() -> None:
    ran: list[int] = []

    def count(x: int) -> int:
        ran.append(x)
        return x

    async def play() -> tuple[Server, Seen]:
        server = Server(*[calling(("count", f'{{"x": {turn}}}')) for turn in (1, 2, 3)])
        return server, await watched(run_tools(server.sampler(), "go", [count], max_turns=2))

    server, seen = played(play)
    assert ran == [1]
    assert len(server.requests) == 2
    last = seen.events[-1]
    assert isinstance(last, Completed)
    assert [call.arguments for call in last.response.tool_calls] == ['{"x": 2}']
    assert last.turn == 2


@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_calls_of_an_answer_that_was_cut_are_not_run(finish: str) -> None:
    async def play() -> Seen:
        server = Server(calling(("double", '{"x": 1}'), ("double", '{"x"'), finish=finish))
        return await watched(run_tools(server.sampler(), "go", [double]))

    seen = played(play)
    assert not results(seen)
    assert seen.kinds[-1] == "completed"


def test_a_tool_of_the_callers_own_is_left_to_the_caller() -> None:
    ran: list[Any] = []
    asked = SamplingRequest.of("go").with_tools(ToolSpec(name="ask_the_user"))

    async def play() -> tuple[Server, Seen]:
        server = Server(calling(("count", "{}"), ("ask_the_user", "{}")))
        return server, await watched(run_tools(server.sampler(), asked, [Tool(ToolSpec(name="count"), ran.append)]))

    server, seen = played(play)
    assert [tool["function"]["name"] for tool in server.requests[0]["tools"]] == ["ask_the_user", "count"]
    assert ran == []
    assert seen.kinds[-1] == "completed"


def test_a_tool_given_here_takes_the_place_of_one_in_the_request() -> None:
    asked = SamplingRequest.of("go").with_tools(ToolSpec(name="double", description="old"), ToolSpec(name="other"))

    async def play() -> Server:
        server = Server(saying("done"))
        await watched(run_tools(server.sampler(), asked, [double]))
        return server

    tools = [tool["function"] for tool in played(play).requests[0]["tools"]]
    assert [(tool["name"], tool.get("description")) for tool in tools] == [
        ("double", "Twice a number."),
        ("other", None),
    ]


@pytest.mark.parametrize("choice", ["required", FunctionChoice(name="double")])
def test_a_demanded_call_is_demanded_once(choice: Any) -> None:
    asked = SamplingRequest(items=[UserItem(content="go")], tool_choice=choice)  # pyright: ignore[reportArgumentType]

    async def play() -> Server:
        server = Server(calling(("double", '{"x": 1}')), saying("done"))
        await watched(run_tools(server.sampler(), asked, [double]))
        return server

    first, second = played(play).requests
    assert first["tool_choice"] not in ("auto", None)
    assert second["tool_choice"] == "auto"


def test_a_failure_in_a_later_turn_ends_it() -> None:
    async def play() -> Seen:
        server = Server(
            calling(("double", '{"x": 1}')), SamplingError.of(SamplingErrorKind.HTTP, "the connection broke")
        )
        return await watched(run_tools(server.sampler(), "go", [double], request_id="r"))

    seen = played(play)
    last = seen.events[-1]
    assert isinstance(last, Failed)
    assert (last.request_id, last.turn, last.error.kind) == ("r:2", 2, SamplingErrorKind.HTTP)
    assert last.to_error().info == last.error
    assert seen.completed


def test_each_subscription_is_a_loop_of_its_own() -> None:
    async def play() -> tuple[Server, Seen, Seen]:
        server = Server(calling(("double", '{"x": 1}')), saying("a"), saying("b"))
        stream = run_tools(server.sampler(), "go", [double])
        assert not server.requests
        return server, await watched(stream), await watched(stream)

    server, first, second = played(play)
    assert [len(body["messages"]) for body in server.requests] == [1, 3, 1]
    assert first.events[0].request_id != second.events[0].request_id
    assert first.events[-1].request_id == first.events[0].request_id[:-2] + ":2"


def test_events_that_others_hold_stay_as_they_are() -> None:
    class Watch:
        def __init__(self) -> None:
            self.events: list[SamplingEvent] = []

        def request_made(self, facts: Any) -> Any:
            del facts
            return self

        def attempt_started(self, number: int, ts: float) -> None: ...

        def on_event(self, event: SamplingEvent) -> None:
            self.events.append(event)

        def dropped(self, ts: float) -> None: ...

    async def play() -> tuple[Watch, Seen]:
        server, watch = Server(saying("hello")), Watch()
        sampler = server.sampler()
        object.__setattr__(sampler._endpoint, "observer", watch)  # pyright: ignore[reportPrivateUsage]
        return watch, await watched(run_tools(sampler, "hi"))

    watch, seen = played(play)
    assert [event.turn for event in watch.events] == [None] * len(seen.events)
    assert [event.turn for event in seen.events] == [1] * len(seen.events)


# -- dispose


class Tracked:
    """A tool that waits, and knows how that ended."""

    def __init__(self) -> None:
        self.began = 0
        self.cancelled = 0

    async def __call__(self, seconds: float = 100) -> str:
        self.began += 1
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return "done"


@pytest.mark.parametrize(
    ("after_s", "began", "requests"),
    [(0.5, 0, 1), (1.5, 0, 1), (ASK_S + 0.5, 2, 1), (ASK_S + 100.5, 2, 2), (ASK_S + 101.5, 2, 2)],
    ids=["before headers", "before content", "while tools run", "second before headers", "second before content"],
)
def test_dispose_leaves_nothing_in_any_phase(after_s: float, began: int, requests: int) -> None:
    tool = Tracked()

    async def play() -> tuple[Server, Seen, int]:
        server, seen = Server(calling(("Tracked", "{}"), ("Tracked", "{}")), saying("done")), Seen()
        stream = run_tools(server.sampler(), "go", [tool])
        seen.subscription = stream.subscribe(seen.on_next, seen.on_error, seen.on_completed)
        await asyncio.sleep(after_s)
        count = len(seen.events)
        seen.dispose()
        assert server.open_count == 0  # at once
        await asyncio.sleep(1000)
        return server, seen, count

    server, seen, count = played(play)
    assert (tool.began, len(server.requests)) == (began, requests)
    assert tool.cancelled == (began if requests == 1 else 0)
    assert len(seen.events) == count
    assert not seen.completed
    assert not seen.errors


def test_dispose_on_a_result_ends_it() -> None:
    tool = Tracked()

    async def play() -> tuple[Server, Seen]:
        server, seen = Server(calling(("Tracked", '{"seconds": 1}'), ("Tracked", "{}"))), Seen()

        def on_next(event: SamplingEvent) -> None:
            seen.on_next(event)
            if isinstance(event, ToolResultAdded):
                seen.dispose()

        stream = run_tools(server.sampler(), "go", [tool])
        seen.subscription = stream.subscribe(on_next, seen.on_error, seen.on_completed)
        await asyncio.sleep(1000)
        return server, seen

    server, seen = played(play)
    assert seen.kinds[-1] == "tool_result_added"
    assert (tool.began, tool.cancelled, len(server.requests)) == (2, 1, 1)


def test_what_a_thread_gives_after_dispose_is_dropped() -> None:
    began, go_on = threading.Event(), threading.Event()

    def stuck() -> str:
        began.set()
        assert go_on.wait(30)
        return "late"

    async def play() -> Seen:
        server, seen = Server(calling(("stuck", "{}"))), Seen()
        stream = run_tools(server.sampler(), "go", [stuck])
        seen.subscription = stream.subscribe(seen.on_next, seen.on_error, seen.on_completed)
        await asyncio.sleep(ASK_S)
        await asyncio.to_thread(began.wait, 30)
        seen.dispose()
        go_on.set()
        await asyncio.sleep(10)
        return seen

    assert played(play).kinds[-1] == "completed"


def test_dispose_from_another_thread() -> None:
    tool = Tracked()

    async def play() -> Seen:
        server, seen = Server(calling(("Tracked", "{}"))), Seen()
        stream = run_tools(server.sampler(), "go", [tool])
        seen.subscription = stream.subscribe(seen.on_next, seen.on_error, seen.on_completed)
        await asyncio.sleep(ASK_S + 1)
        await asyncio.to_thread(seen.dispose)
        await asyncio.sleep(1000)
        return seen

    assert played(play).kinds[-1] == "completed"
    assert tool.cancelled == 1


# -- bugs


def test_a_subscriber_that_raises_ends_the_loop_and_hears_of_it() -> None:
    told: list[Any] = []

    async def play(on: str) -> tuple[Server, Seen]:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
        server, seen = Server(calling(("double", '{"x": 1}')), saying("done")), Seen()

        def on_next(event: SamplingEvent) -> None:
            seen.on_next(event)
            if event.kind == on:
                raise ZeroDivisionError

        run_tools(server.sampler(), "go", [double]).subscribe(on_next, seen.on_error, seen.on_completed)
        await asyncio.sleep(1000)
        assert server.open_count == 0
        return server, seen

    for on in ("tool_call_delta", "tool_result_added"):
        told.clear()
        server, seen = played(lambda on=on: play(on))
        assert seen.kinds[-1] == on
        assert len(server.requests) == 1
        assert [type(error) for error in told] == [ZeroDivisionError]
        assert seen.errors == told
        assert not seen.completed


class Alarm(BaseException):
    pass


@pytest.mark.parametrize("is_async", [True, False])
def test_a_base_exception_of_a_tool_is_a_bug(is_async: bool) -> None:
    told: list[Any] = []

    async def alarm_async() -> None:
        raise Alarm

    def alarm() -> None:
        raise Alarm

    tool = Tracked()

    async def play() -> Seen:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
        name = "alarm_async" if is_async else "alarm"
        server = Server(calling((name, "{}"), ("Tracked", "{}")), saying("done"))
        seen = Seen()
        tools: list[Callable[..., Any]] = [alarm_async, alarm, tool]
        run_tools(server.sampler(), "go", tools).subscribe(seen.on_next, seen.on_error, seen.on_completed)
        await seen.end()
        await asyncio.sleep(1000)
        return seen

    seen = played(play)
    assert [type(error) for error in seen.errors] == [Alarm]
    assert [type(error) for error in told] == [Alarm]
    assert not results(seen)
    assert tool.cancelled == tool.began


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"max_turns": 0}, "max_turns is 0"),
        ({"max_concurrency": 0}, "max_concurrency is 0"),
        ({"tool_timeout_s": 0}, "tool_timeout_s is 0"),
        ({"tool_timeout_s": float("inf")}, "tool_timeout_s is inf"),
        ({"tools": [double, double]}, "two tools are called 'double'"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_call_time(limits: dict[str, Any], words: str) -> None:
    async def play() -> None:
        with pytest.raises(ValueError, match=words):
            run_tools(Server().sampler(), "go", **limits)

    played(play)


def test_a_list_of_tools_is_a_list() -> None:
    async def play() -> None:
        sampler = Server().sampler()
        with pytest.raises(TypeError, match="tools are a list"):
            run_tools(sampler, "go", double)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        with pytest.raises(TypeError, match=r"give Tool\(spec, handler\)"):
            run_tools(sampler, "go", [ToolSpec(name="x")])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]

    played(play)


def test_a_subscription_needs_a_loop() -> None:
    sampler = Sampler(SamplerConfig(base_url="http://127.0.0.1:9/v1", model="m"))
    raised: list[Exception] = []
    run_tools(sampler, "go").subscribe(on_error=raised.append)
    (error,) = raised
    assert isinstance(error, RuntimeError)
    assert "needs a running asyncio event loop" in str(error)


# -- who reads slowly


def test_a_sampler_with_one_place_runs_a_whole_loop() -> None:
    async def play() -> list[Seen]:
        server = Server(*[calling(("slow", '{"seconds": 1}'))] * 2, *[saying("done")] * 2)
        sampler = server.sampler(max_concurrency=1)
        return await asyncio.gather(*(watched(run_tools(sampler, "go", [slow])) for _ in range(2)))

    # a place is free while tools run
    assert [seen.events[-1].ts for seen in played(play)] == [3 * ASK_S, 4 * ASK_S]


def test_a_bounded_reader_holds_back_every_turn_and_no_tool() -> None:
    held: list[Any] = []

    async def play() -> list[str]:
        server = Server(calling(("double", '{"x": 1}'), text="abc"), saying("done"))
        kinds: list[str] = []
        async for event in to_async_iterator(run_tools(server.sampler(), "go", [double]), capacity=1):
            kinds.append(event.kind)
            held.append(event.turn)
            await asyncio.sleep(1)
        return kinds

    assert played(play)[-1] == "completed"
    assert held == sorted(held)
    assert set(held) == {1, 2}


def test_the_demand_of_the_reader_reaches_each_request() -> None:
    met: list[tuple[str, Demand | None]] = []

    def look() -> str:
        met.append(("tool", current_demand()))
        return "x"

    async def play() -> Demand:
        server = Server(calling(("look", "{}")), saying("done"))
        sampler = server.sampler()
        plain = sampler.stream

        def stream(question: Any, *, request_id: str | None = None) -> Any:
            inner = plain(question, request_id=request_id)

            def subscribe(
                observer: abc.ObserverBase[SamplingEvent], scheduler: abc.SchedulerBase | None = None
            ) -> abc.DisposableBase:
                met.append(("request", current_demand()))
                return inner.subscribe(observer, scheduler=scheduler)

            return Observable[SamplingEvent](subscribe)

        sampler.stream = stream  # type: ignore[method-assign]
        demand = Demand()
        seen = Seen()
        with demanding(demand):
            run_tools(sampler, "go", [look]).subscribe(seen.on_next, seen.on_error, seen.on_completed)
        await seen.end()
        return demand

    demand = played(play)
    assert met == [("request", demand), ("tool", None), ("request", demand)]


def test_a_copy_says_all_that_the_event_says() -> None:
    from rx_sampler.tools.loop import _of_turn  # pyright: ignore[reportPrivateUsage]

    token = ChannelToken(request_id="r", attempt=2, ts=1.5, channel="text", text="x", chunk_index=3, choice=1)
    assert _of_turn(token, 4) == ChannelToken(
        request_id="r", attempt=2, ts=1.5, channel="text", text="x", chunk_index=3, choice=1, turn=4
    )
    delta = ToolCallDelta(request_id="r", attempt=1, ts=1.5, tool_index=0, id="c")
    assert _of_turn(delta, 4).turn == 4
    assert (token.turn, delta.turn) == (None, None)
