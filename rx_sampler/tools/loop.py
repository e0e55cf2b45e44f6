"""The loop: ask, run what the model calls, tell it what came of that, ask again."""

from __future__ import annotations

import asyncio
import math
import uuid
from collections.abc import Iterable, Mapping
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import Any, Final

from reactivex import Observable, abc
from reactivex.disposable import SerialDisposable

from rx_sampler.actor import Question
from rx_sampler.conversation import FunctionChoice, SamplingRequest, SamplingResponse, ToolCall, ToolResultItem
from rx_sampler.demand import current_demand, demanding
from rx_sampler.events import ChannelToken, Completed, SamplingEvent, TokenDraft, ToolResultAdded
from rx_sampler.running import part_with
from rx_sampler.sampler import Sampler
from rx_sampler.scheduling import LoopTimeScheduler, clock_of, on_own_thread, request_scheduler

from .calls import call_outcome
from .function_tool import AnyTool, RunnableTool, runnable_tools

__all__ = ["run_tools"]

_CUT: Final = frozenset({"length", "content_filter"})
"""Ends of an answer after which its calls may be half of what was meant."""


def run_tools(
    sampler: Sampler,
    request: Question,
    tools: Iterable[AnyTool] = (),
    *,
    max_turns: int = 10,
    max_concurrency: int | None = None,
    tool_timeout_s: float | None = None,
    request_id: str | None = None,
) -> Observable[SamplingEvent]:
    """The events of a whole conversation with tools: of each request, and between them the results of the calls.

    With `t` for the pieces of a call, `T` for its result:

        run_tools  -S-tt-C---T-S-(Fa)-b-C-|
        turn        1----1   2----------2

    `tools` are functions, sync or async, told to the model by their hints and docstrings (`PythonFunction`), and
    `Tool`s. They are added to those of the request; a tool given here takes the place of one of its name there.

    Turn n is one request, `sampler.stream` with the id `{request_id}:{n}` (`request_id` is a new UUID where none is
    given), and its events say `turn=n`. After a `Completed` that calls tools, the calls run, all at once or
    `max_concurrency` at a time, as `run_call` says: what goes wrong with one is told to the model as its result. As
    each ends, a `ToolResultAdded` comes, with the id of the request that will bring the result; when all have, that
    request is made: the conversation so far, the answer, and the results in the order of the calls.

    The stream ends with the last request's terminal event: an answer without calls, or one that was cut (`length`,
    `content_filter`); `Failed`; the answer of turn `max_turns`, whose calls are not run, since nobody would hear what
    comes of them; an answer that calls a tool which the request declares and nobody here can run, which is then for the
    caller to run (none of its calls is run here). What the server ran by itself is no call of ours. A `tool_choice`
    that demands a call holds for the first turn only, and is `auto` from then on, or there would be no end.

    Cold: each subscription runs the whole loop anew. Runs on the running event loop; timers and stamps are those of
    the scheduler given at subscribe, else the sampler's. Who bounds what comes (`to_async_iterator`) holds back each
    request. Dispose closes the socket at once and cancels the tools that run; a thread runs on and what it gives is
    dropped; nothing more is emitted. `on_error` never comes for a failed request or tool, only for a bug: what a
    subscriber raises, and a BaseException of a tool. Memory: the conversation.

    Raises at call time ValueError for a limit below 1 or 0 s, two tools of one name, or a function without a schema,
    TypeError for what is no tool, pydantic's ValidationError for a question that is none; at subscribe RuntimeError
    without a running loop.
    """
    if max_turns < 1:
        raise ValueError(f"max_turns is {max_turns}; a conversation has 1 turn or more")
    if max_concurrency is not None and max_concurrency < 1:
        raise ValueError(f"max_concurrency is {max_concurrency}; give 1 or more, or None for all calls at once")
    if tool_timeout_s is not None and not 0 < tool_timeout_s < math.inf:
        raise ValueError(f"tool_timeout_s is {tool_timeout_s}; give seconds, more than 0, or None for no limit")
    runnable = runnable_tools(tools)
    asked = SamplingRequest.of(request)
    plan = _Plan(
        sampler=sampler,
        request=asked.with_tools(*(tool.spec for tool in runnable.values())) if runnable else asked,
        tools=runnable,
        max_turns=max_turns,
        max_concurrency=max_concurrency,
        tool_timeout_s=tool_timeout_s,
    )

    def subscribe(
        observer: abc.ObserverBase[SamplingEvent], scheduler: abc.SchedulerBase | None = None
    ) -> abc.DisposableBase:
        own = request_scheduler(scheduler or sampler.scheduler)
        loop = own.loop if isinstance(own, LoopTimeScheduler) else asyncio.get_running_loop()
        run = _Run(plan, request_id or str(uuid.uuid4()), observer, own, loop)
        run.ask()
        return run

    return Observable(subscribe)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    sampler: Sampler
    request: SamplingRequest
    tools: Mapping[str, RunnableTool]
    max_turns: int
    max_concurrency: int | None
    tool_timeout_s: float | None

    def calls_of(self, response: SamplingResponse) -> tuple[ToolCall, ...]:
        """The calls to be run after an answer; none if it ends the loop."""
        calls = response.tool_calls
        if response.stop_reason in _CUT:
            return ()
        declared = {tool.name for tool in self.request.tools}
        return () if any(call.name in declared and call.name not in self.tools for call in calls) else calls


class _Run(abc.DisposableBase):
    """The loop of one subscription. All on the thread of its event loop, but for `dispose`."""

    def __init__(
        self,
        plan: _Plan,
        run_id: str,
        observer: abc.ObserverBase[SamplingEvent],
        scheduler: abc.SchedulerBase,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._plan = plan
        self._run_id = run_id
        self._observer = observer
        self._scheduler = scheduler
        self._loop = loop
        self._clock = clock_of(scheduler)
        self._demand = current_demand()
        with demanding(None):  # what a tool subscribes to has nothing to do with who reads this stream
            self._context = copy_context()  # of whoever subscribes: what a tool looks up in it is theirs
        self._request = plan.request
        self._turn = 1
        self._response: SamplingResponse | None = None
        self._current = SerialDisposable()
        self._tasks: set[asyncio.Task[None]] = set()
        self._results: list[ToolResultItem | None] = []
        self._over = False

    def ask(self) -> None:
        """Begin the turn."""
        self._response = None
        with demanding(self._demand):
            self._current.disposable = self._plan.sampler.stream(
                self._request, request_id=self._request_id(self._turn)
            ).subscribe(self._on_next, self._on_error, self._on_completed, scheduler=self._scheduler)

    def dispose(self) -> None:
        if not self._over:
            self._over = True
            on_own_thread(self._scheduler, self._drop)

    def _drop(self) -> None:
        self._current.dispose()
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()

    def _request_id(self, turn: int) -> str:
        return f"{self._run_id}:{turn}"

    # -- the request of a turn

    def _on_next(self, event: SamplingEvent) -> None:
        if type(event) is Completed:
            self._response = event.response
        self._emit(_of_turn(event, self._turn))

    def _on_error(self, error: Exception) -> None:
        if not self._over:
            self._over = True
            self._observer.on_error(error)

    def _on_completed(self) -> None:
        if self._over:
            return
        response = self._response
        calls = self._plan.calls_of(response) if response is not None and self._turn < self._plan.max_turns else ()
        if not calls:
            self._over = True
            self._observer.on_completed()
            return
        self._results = [None] * len(calls)
        places = asyncio.Semaphore(self._plan.max_concurrency or len(calls))
        for place, call in enumerate(calls):
            context = self._context.copy()
            task = self._loop.create_task(self._run(place, call, places), context=context)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    # -- the calls between two turns

    async def _run(self, place: int, call: ToolCall, places: asyncio.Semaphore) -> None:
        try:
            async with places:
                began = self._clock()
                result, raised = await call_outcome(call, self._plan.tools, self._plan.tool_timeout_s)
                ended = self._clock()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._fail(error)
            if isinstance(error, SystemExit | KeyboardInterrupt):
                raise  # the loop knows what to do with these
            return
        self._results[place] = result
        added = ToolResultAdded(
            request_id=self._request_id(self._turn + 1),
            attempt=1,
            ts=ended,
            turn=self._turn + 1,
            tool_call_id=call.id,
            name=call.name,
            result=result,
            duration_ms=max(ended - began, 0.0) * 1e3,
            exception=raised,
        )
        self._tasks.discard(asyncio.current_task())  # pyright: ignore[reportArgumentType]  # this one, which is over
        self._emit(added)
        results = [one for one in self._results if one is not None]
        if not self._over and len(results) == len(self._results):
            self._go_on(results)

    def _go_on(self, results: list[ToolResultItem]) -> None:
        assert self._response is not None  # noqa: S101  # or there were no calls
        request = self._request.then(self._response, *results)
        if request.tool_choice == "required" or isinstance(request.tool_choice, FunctionChoice):
            request = request.model_copy(update={"tool_choice": "auto"})
        self._request = request
        self._turn += 1
        self.ask()

    # -- the end

    def _emit(self, event: SamplingEvent) -> None:
        if self._over:
            return
        try:
            self._observer.on_next(event)
        except (Exception, asyncio.CancelledError) as error:
            self.dispose()
            part_with(self._observer, error)

    def _fail(self, error: BaseException) -> None:
        if not self._over:
            self.dispose()
            part_with(self._observer, error)


def _of_turn(event: SamplingEvent, turn: int) -> SamplingEvent:
    """A copy that says of which turn it is: others may hold the event itself."""
    if type(event) is ChannelToken:
        draft: Any = TokenDraft(
            event.request_id, event.attempt, event.ts, event.channel, event.text, event.chunk_index, event.choice
        )
        draft.turn = turn
        draft.__class__ = ChannelToken
        return draft
    return replace(event, turn=turn)
