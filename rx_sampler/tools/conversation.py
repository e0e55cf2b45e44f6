"""The conversation that a loop over tools leaves behind, and the loop as one awaitable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from reactivex import Observable, abc

from rx_sampler.actor import Question
from rx_sampler.conversation import SamplingRequest, SamplingResponse, ToolResultItem, Usage
from rx_sampler.events import Completed, Failed, SamplingEvent, ToolResultAdded
from rx_sampler.metrics import LatencyMetrics
from rx_sampler.sampler import Sampler

from .function_tool import AnyTool
from .loop import run_tools

__all__ = ["ToolsResult", "Turn", "collect_tools", "conversation", "total_usage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One request of a loop: its answer, how long that took, and what came of the calls in it, in their order."""

    request_id: str
    response: SamplingResponse
    metrics: LatencyMetrics
    results: tuple[ToolResultItem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsResult:
    """What `collect_tools` gives.

    `response` is the last answer, `conversation` everything that was said, that answer included: what the user says
    next goes behind its items. `usage` is the sum over the turns, None where no turn told any; `cost_usd` likewise.
    """

    response: SamplingResponse
    conversation: SamplingRequest
    turns: tuple[Turn, ...]
    usage: Usage | None
    cost_usd: float | None


def conversation(request: Question) -> Callable[[Observable[SamplingEvent]], Observable[SamplingRequest]]:
    """The conversation as it grows: after each answer, and once more with the results of its calls.

        run_tools     -S-tt-C---T-U-S-(Fa)-b-C-|
        conversation  ------x-----y----------z-|

    In: the events of one `run_tools` of this `request`, in their order. Out: the request with the answer added, at each
    `Completed`; the request of the next turn, when the last result of an answer is there. So the last one is what a
    next user message is put behind. Tools are those of `request`; those given to `run_tools` are not in it.

    Synchronous, cold as its source, and as each subscription has state of its own; forwards the scheduler. Dispose
    disposes the source. Errors: pydantic's ValidationError at call time for a question that is none; by `on_error` the
    source's. Memory: the conversation.
    """
    asked = SamplingRequest.of(request)

    def operator(source: Observable[SamplingEvent]) -> Observable[SamplingRequest]:
        def subscribe(
            observer: abc.ObserverBase[SamplingRequest], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            grown = _Growing(asked)

            def on_next(event: SamplingEvent) -> None:
                try:
                    now = grown.feed(event)
                except Exception as error:
                    observer.on_error(error)
                    return
                if now is not None:
                    observer.on_next(now)

            return source.subscribe(on_next, observer.on_error, observer.on_completed, scheduler=scheduler)

        return Observable(subscribe)

    return operator


class _Growing:
    """A conversation, answer by answer."""

    def __init__(self, request: SamplingRequest) -> None:
        self.request = request
        """Up to the last answer, or the results that followed it."""
        self.turns: list[Turn] = []
        self._before = request
        self._results: dict[str, list[ToolResultItem]] = {}
        self._missing = 0

    def feed(self, event: SamplingEvent) -> SamplingRequest | None:
        if type(event) is Completed:
            response = event.response
            self._before = self.request
            self._results, self._missing = {}, len(response.tool_calls)
            self.turns.append(Turn(request_id=event.request_id, response=response, metrics=event.metrics))
            self.request = self._before.then(response)
            return self.request
        if type(event) is ToolResultAdded and self._missing:
            self._results.setdefault(event.tool_call_id, []).append(event.result)
            self._missing -= 1
            if not self._missing:
                return self._with_results()
        return None

    def _with_results(self) -> SamplingRequest:
        last = self.turns[-1]
        # Two calls of one id, which a server should not make, have their results as they came.
        results = tuple(self._results[call.id].pop(0) for call in last.response.tool_calls)
        self.turns[-1] = Turn(request_id=last.request_id, response=last.response, metrics=last.metrics, results=results)
        self.request = self._before.then(last.response, *results)
        return self.request


async def collect_tools(
    sampler: Sampler,
    request: Question,
    tools: Iterable[AnyTool] = (),
    *,
    max_turns: int = 10,
    max_concurrency: int | None = None,
    tool_timeout_s: float | None = None,
    request_id: str | None = None,
) -> ToolsResult:
    """The last answer of `run_tools`, whose parameters these are, and the conversation that led to it.

    Raises `SamplingError` if a request fails, with what streamed of its answer as `partial`; as `run_tools` does at
    call time; BaseExceptions of a tool. Cancelling the awaiting task disposes the stream.
    """
    asked = SamplingRequest.of(request)
    events = run_tools(
        sampler,
        asked,
        tools,
        max_turns=max_turns,
        max_concurrency=max_concurrency,
        tool_timeout_s=tool_timeout_s,
        request_id=request_id,
    )
    grown = _Growing(asked)
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_next(event: SamplingEvent) -> None:
        if isinstance(event, Failed):
            on_error(event.to_error())
        else:
            grown.feed(event)

    def on_error(error: Exception) -> None:
        if not ended.done():
            ended.set_exception(error)

    def on_completed() -> None:
        if not ended.done():
            ended.set_result(None)

    subscription = events.subscribe(on_next, on_error, on_completed)
    try:
        await ended
    finally:
        subscription.dispose()
    costs = [turn.response.cost_usd for turn in grown.turns if turn.response.cost_usd is not None]
    return ToolsResult(
        response=grown.turns[-1].response,
        conversation=grown.request,
        turns=tuple(grown.turns),
        usage=total_usage(turn.response.usage for turn in grown.turns),
        cost_usd=sum(costs) if costs else None,
    )


def total_usage(usages: Iterable[Usage | None]) -> Usage | None:
    """The token counts of several answers together; a count that none of them tells stays None, as the whole does."""
    known = [usage for usage in usages if usage is not None]
    if not known:
        return None

    def total(counts: Iterable[int | None]) -> int | None:
        told = [count for count in counts if count is not None]
        return sum(told) if told else None

    return Usage(
        input_tokens=sum(usage.input_tokens for usage in known),
        output_tokens=sum(usage.output_tokens for usage in known),
        total_tokens=sum(usage.total_tokens for usage in known),
        cached_input_tokens=total(usage.cached_input_tokens for usage in known),
        cache_creation_input_tokens=total(usage.cache_creation_input_tokens for usage in known),
        reasoning_tokens=total(usage.reasoning_tokens for usage in known),
    )
