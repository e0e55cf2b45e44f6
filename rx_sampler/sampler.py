"""The handle that users hold: one server, any number of requests."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from reactivex import Observable, abc
from reactivex.disposable import SingleAssignmentDisposable

from .attempt import attempt
from .backends.base import get_backend
from .config import SamplerConfig
from .conversation import Item, SamplingRequest, SamplingResponse
from .errors import SamplingError
from .events import Completed, Failed, SamplingEvent
from .metrics import LatencyMetrics
from .outcome import failed_event
from .scheduling import clock_of, request_scheduler
from .wire.transport import Transport

__all__ = ["Sampler", "SamplingResult"]

_log = logging.getLogger("rx_sampler")

Question = str | Sequence[Item] | SamplingRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingResult:
    """What `Sampler.collect` gives: the answer, its latency, and how many events of each kind led to it."""

    request_id: str
    response: SamplingResponse
    metrics: LatencyMetrics
    events_summary: Mapping[str, int]


class Sampler:
    """Asks one server for answers.

    As an async context manager it keeps connections between requests and closes them at its end; whatever still
    runs then fails with kind `cancelled`. Without it, each request has a connection of its own and leaves nothing.
    A sampler belongs to no loop: it may be used under several, one after the other.

    Raises ValueError at construction for a backend that is not known. `transport` replaces the network in tests.
    """

    def __init__(self, config: SamplerConfig, *, transport: Transport | None = None) -> None:
        self.config = config
        self._backend = get_backend(config.backend)
        if transport is None:
            # aiohttp is two thirds of the import time, and who replays recordings never needs it.
            from rx_sampler.wire.http import HttpTransport

            transport = HttpTransport(trust_env=config.trust_env)
        self._transport = transport

    async def __aenter__(self) -> Self:
        self._transport.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Cancel what runs and close the connections."""
        await self._transport.aclose()

    def stream(self, question: Question, *, request_id: str | None = None) -> Observable[SamplingEvent]:
        """The events of one request, from `StreamStarted` to a single `Completed` or `Failed`.

        `question` is a str (one user message), a sequence of items, or a `SamplingRequest`.

        Cold: each subscription sends the request once, with a new id unless one is given. Runs on the running event
        loop; timers and stamps come from the scheduler given at subscribe, by default one over that loop's time.
        Dispose closes the socket at once and nothing more is emitted. `on_error` never comes for a failed request,
        only for a bug. A subscriber that raises is disposed and its error told to the loop's exception handler.
        Raises pydantic's ValidationError at call time for a question that is none, RuntimeError at subscribe
        without a running loop.
        """
        request = SamplingRequest.of(question)

        def subscribe(
            observer: abc.ObserverBase[SamplingEvent], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            scheduler = request_scheduler(scheduler)
            identity = request_id or str(uuid.uuid4())
            events = attempt(request, self.config, self._backend, self._transport, request_id=identity)
            return _deliver(events, observer, scheduler, identity)

        return Observable(subscribe)

    async def collect(self, question: Question) -> SamplingResult:
        """The whole answer. Raises `SamplingError` if the request fails; cancelling the awaiting task cancels it."""
        done: asyncio.Future[Completed | Failed] = asyncio.get_running_loop().create_future()
        kinds: Counter[str] = Counter()

        def on_next(event: SamplingEvent) -> None:
            kinds[event.kind] += 1
            if isinstance(event, Completed | Failed) and not done.done():
                done.set_result(event)

        def on_error(error: Exception) -> None:
            if not done.done():
                done.set_exception(error)

        subscription = self.stream(question).subscribe(on_next, on_error)
        try:
            end = await done
        finally:
            subscription.dispose()
        if isinstance(end, Failed):
            raise end.to_error()
        return SamplingResult(
            request_id=end.request_id, response=end.response, metrics=end.metrics, events_summary=dict(kinds)
        )


def _deliver(
    source: Observable[SamplingEvent],
    observer: abc.ObserverBase[SamplingEvent],
    scheduler: abc.SchedulerBase,
    request_id: str,
) -> abc.DisposableBase:
    """The rim of a request: failures become `Failed`, and a subscriber's own error ends its subscription only."""
    subscription = SingleAssignmentDisposable()
    deliver = observer.on_next
    gone = False

    def on_next(event: SamplingEvent) -> None:
        nonlocal gone
        try:
            deliver(event)
        except (Exception, asyncio.CancelledError) as error:
            gone = True
            subscription.dispose()
            _report(error)

    def on_error(error: Exception) -> None:
        if not isinstance(error, SamplingError):
            observer.on_error(error)
            return
        on_next(failed_event(error, request_id, clock_of(scheduler)()))
        if not gone:
            observer.on_completed()

    subscription.disposable = source.subscribe(on_next, on_error, observer.on_completed, scheduler=scheduler)
    return subscription


def _report(error: BaseException) -> None:
    context: dict[str, Any] = {"message": "a subscriber of a sampling stream raised", "exception": error}
    try:
        asyncio.get_running_loop().call_exception_handler(context)
    except RuntimeError:  # virtual time: no loop is running
        _log.error("%s", context["message"], exc_info=error)
