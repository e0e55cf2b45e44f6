"""`run_turn`: submit, do what the outcome asks for, submit again."""

from __future__ import annotations

import asyncio
import inspect
import random as random_module
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from reactivex import abc

from rx_sampler.actor import Question
from rx_sampler.conversation import SamplingRequest
from rx_sampler.errors import SamplingError
from rx_sampler.running import report
from rx_sampler.sampler import SamplingResult
from rx_sampler.scheduling import Clock, clock_of, request_scheduler

from .outcomes import (
    CompactAndResubmit,
    Fatal,
    FatalReason,
    RefreshAuthAndResubmit,
    Response,
    RetryTransient,
    TurnOutcome,
    context_window,
    turn_outcome,
)
from .schedule import TurnPolicy, TurnSchedule

__all__ = ["Collects", "Compact", "OnOutcome", "RefreshAuth", "run_turn"]

RefreshAuth = Callable[[RefreshAuthAndResubmit], bool | Awaitable[bool | None] | None]
Compact = Callable[[SamplingRequest, CompactAndResubmit], SamplingRequest | Awaitable[SamplingRequest | None] | None]
OnOutcome = Callable[[TurnOutcome, float], None]


class Collects(Protocol):
    """Whatever answers a request or raises `SamplingError`: a `Sampler`, or what stands in for one."""

    async def collect(self, question: SamplingRequest, /) -> SamplingResult:
        """The whole answer."""
        ...


async def run_turn(
    sampler: Collects,
    question: Question,
    *,
    refresh_auth: RefreshAuth | None = None,
    compact: Compact | None = None,
    policy: TurnPolicy | None = None,
    estimate_tokens: Callable[[SamplingRequest], int] | None = None,
    scheduler: abc.SchedulerBase | None = None,
    random: Callable[[], float] = random_module.random,
    on_outcome: OnOutcome | None = None,
    wall_clock: Clock = time.time,
    monotonic_clock: Callable[[], float] = time.monotonic,
) -> Response | Fatal:
    """The answer to `question`, submitted as often as `policy` allows (by default `TurnPolicy()`); or why not.

    Each submission is a `sampler.collect` of its own, with a request id, retries and events of its own.

    * `refresh_auth(outcome)`, after the wait, gets the sampler another credential (with `update_config`, or where its
      `bearer_resolver` looks), in the time it needs. False: it cannot.
    * `compact(request, outcome)` returns a shorter request, which is submitted at once. None, or the same again: it
      cannot.
    * `estimate_tokens(request)` is asked about a refused request where the server named the model's context window.
    * `on_outcome(outcome, wait_s)` is told of each outcome that something is done about, before the wait that it
      begins, and last of what is returned. If it raises, the event loop's exception handler is told.

    Handlers are functions or coroutine functions; what they raise is raised here. Without the handler that an outcome
    needs, it is `Fatal`. Raises pydantic's ValidationError for a question that is none. Waits are timers on
    `scheduler`, by default the running loop's time. Cancelling the task ends a wait, or the request on its way, at
    once. The two clocks (seconds) tell whether the machine was suspended.
    """
    scheduler = request_scheduler(scheduler)
    turn = _Turn(
        sampler=sampler,
        refresh_auth=refresh_auth,
        compact=compact,
        estimate_tokens=estimate_tokens,
        on_outcome=on_outcome,
        schedule=TurnSchedule(policy or TurnPolicy(), random),
        scheduler=scheduler,
        now=clock_of(scheduler),
        ahead_s=lambda: wall_clock() - monotonic_clock(),
    )
    return await turn.run(SamplingRequest.of(question))


@dataclass(kw_only=True)
class _Turn:
    sampler: Collects
    refresh_auth: RefreshAuth | None
    compact: Compact | None
    estimate_tokens: Callable[[SamplingRequest], int] | None
    on_outcome: OnOutcome | None
    schedule: TurnSchedule
    scheduler: abc.SchedulerBase
    now: Clock
    ahead_s: Callable[[], float]
    """How far the wall clock is ahead of the monotonic one."""

    async def run(self, request: SamplingRequest) -> Response | Fatal:
        ahead_at_first_s = self.ahead_s()
        while True:
            outcome = await self._submit(request)
            match outcome:
                case RefreshAuthAndResubmit():
                    step = await self._renew(outcome, request, self.ahead_s() - ahead_at_first_s)
                case CompactAndResubmit():
                    step = await self._shorten(outcome, request)
                case RetryTransient():
                    step = await self._wait_out(outcome, request)
                case Response() | Fatal():
                    self._tell(outcome)
                    return outcome
            if isinstance(step, str):
                end = Fatal(outcome.error, step)
                self._tell(end)
                return end
            request = step

    async def _submit(self, request: SamplingRequest) -> TurnOutcome:
        try:
            result = await self.sampler.collect(request)
        except SamplingError as error:
            tokens = None
            if self.estimate_tokens is not None and context_window(error.info) is not None:
                tokens = self.estimate_tokens(request)
            return turn_outcome(error, estimated_input_tokens=tokens)
        return Response(result.response, result.metrics, result.images_stripped)

    # Each of these gives the request to submit next, or why there is none.

    async def _renew(
        self, outcome: RefreshAuthAndResubmit, request: SamplingRequest, drift_s: float
    ) -> SamplingRequest | FatalReason:
        if self.refresh_auth is None:
            return "no_handler"
        wait_s = self.schedule.auth_wait_s(outcome.credential, drift_s)
        if wait_s is None:
            return "exhausted"
        await self._wait(outcome, wait_s)
        can = self.refresh_auth(outcome)
        if inspect.isawaitable(can):
            can = await can
        return "declined" if can is False else request

    async def _shorten(self, outcome: CompactAndResubmit, request: SamplingRequest) -> SamplingRequest | FatalReason:
        if self.compact is None:
            return "no_handler"
        if not self.schedule.may_compact():
            return "exhausted"
        await self._wait(outcome, 0.0)
        shorter = self.compact(request, outcome)
        if inspect.isawaitable(shorter):
            shorter = await shorter
        return "declined" if shorter is None or shorter == request else shorter

    async def _wait_out(self, outcome: RetryTransient, request: SamplingRequest) -> SamplingRequest | FatalReason:
        wait_s = self.schedule.transient_wait_s(outcome.retry_after_s, self.now())
        if wait_s is None:
            return "exhausted"
        await self._wait(outcome, wait_s)
        return request

    async def _wait(self, outcome: TurnOutcome, wait_s: float) -> None:
        self._tell(outcome, wait_s)
        if wait_s > 0:
            await _pause(self.scheduler, wait_s)

    def _tell(self, outcome: TurnOutcome, wait_s: float = 0.0) -> None:
        if self.on_outcome is not None:
            try:
                self.on_outcome(outcome, wait_s)
            except Exception as error:
                report(error)  # a display that fails is no reason to lose an answer


async def _pause(scheduler: abc.SchedulerBase, wait_s: float) -> None:
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()

    def end() -> None:
        if not over.done():
            over.set_result(None)

    def ring(_scheduler: abc.SchedulerBase, _state: object = None) -> None:
        loop.call_soon_threadsafe(end)  # a scheduler of the caller's may have a thread of its own

    timer = scheduler.schedule_relative(wait_s, ring)
    try:
        await over
    finally:
        timer.dispose()
