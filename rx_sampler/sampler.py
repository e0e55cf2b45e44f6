"""The handle that users hold: one server, any number of requests."""

from __future__ import annotations

import asyncio
import os
import random as random_module
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self

from reactivex import Observable, abc

from .actor import Question, SamplerActor
from .admission import Admission
from .backends.base import get_backend
from .config import SamplerConfig
from .conversation import SamplingRequest, SamplingResponse
from .demand import Demand, current_demand
from .events import Completed, DoomLoopSignals, Failed, ImagesStripped, Retrying, SamplingEvent
from .feeds import RequestId
from .flow import BoundedIterator, Overflow, to_async_iterator
from .handles import SamplerHandle
from .metrics import LatencyMetrics
from .observing import SamplerObserver, observer_from_environment
from .retry import RetryTokens, SharedLimits
from .running import Endpoint, RunningRequest, cancelled
from .scheduling import LoopTimeScheduler, on_own_thread, request_scheduler
from .wire.transport import Transport

__all__ = ["Sampler", "SamplingResult"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingResult:
    """What `Sampler.collect` gives: the answer, its latency, and what happened on the way to it.

    `events_summary` counts the events by kind. `doom_loop_triggers` are the labels of all attempts, each once, in the
    order first reported.
    """

    request_id: str
    response: SamplingResponse
    metrics: LatencyMetrics
    events_summary: Mapping[str, int]
    retries: tuple[Retrying, ...] = ()
    images_stripped: tuple[ImagesStripped, ...] = ()
    doom_loop_triggers: tuple[str, ...] = ()


class Sampler:
    """Asks one server for answers: one at a time (`stream`, `collect`), or many at once (`submit`).

    Failed attempts are repeated as `config.retry` says. The requests of a sampler share its retry budget, its places
    (`max_concurrency`) and the waits that the server asks for.

    As an async context manager it keeps connections between requests and closes them at its end; whatever still
    runs then fails with kind `cancelled`, and `events` completes. Without it, each request has a connection of its own
    and leaves nothing. A sampler belongs to no loop: it may be used under several, one after the other.

    `observer` is told of every request: a `telemetry.SamplingLog`, for instance, which `RX_SAMPLER_LOG` in the
    environment switches on where no observer is given. `transport` replaces the network, `scheduler` the running loop's
    time and `random` the jitter (values from 0 up to 1), for tests.

    Raises ValueError at construction for a backend that is not known, and for a `ca_bundle` that cannot be used.
    """

    def __init__(
        self,
        config: SamplerConfig,
        *,
        transport: Transport | None = None,
        observer: SamplerObserver | None = None,
        scheduler: abc.SchedulerBase | None = None,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        if transport is None:
            # aiohttp is two thirds of the import time, and who replays recordings never needs it.
            from rx_sampler.wire.http import HttpTransport

            transport = HttpTransport(
                trust_env=config.trust_env, proxy=config.reveal_proxy(), ca_bundle=config.ca_bundle
            )
        self._transport = transport
        self._scheduler = scheduler
        self._entered = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: dict[RunningRequest, None] = {}
        self._actor = SamplerActor(self._start, scheduler=scheduler)
        self._endpoint = Endpoint(
            config=config,
            backend=get_backend(config.backend),
            transport=transport,
            admission=Admission(config.max_concurrency),
            limits=SharedLimits(config.retry_budget),
            observer=observer if observer is not None else observer_from_environment(os.environ),
            random=random,
        )

    async def __aenter__(self) -> Self:
        self._transport.open()
        self._actor.bind()
        self._actor.acquire()
        self._entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Cancel what runs, each with its terminal event; complete `events`; close the connections."""
        if self._entered:
            self._entered = False
            self._actor.release()
        self._actor.close()
        for request in list(self._running):
            on_own_thread(request.scheduler, partial(request.abort, cancelled("the sampler was closed")))
        await self._transport.aclose()

    @property
    def config(self) -> SamplerConfig:
        """What the next request is made with."""
        return self._endpoint.config

    @property
    def scheduler(self) -> abc.SchedulerBase | None:
        """The one given at construction, for what runs beside the sampler's requests and shares their clock."""
        return self._scheduler

    def update_config(self, config: SamplerConfig) -> None:
        """Make later requests with `config`; those on their way keep what they began with, retries included.

        Raises ValueError for a backend that is not known, or another `trust_env`, `proxy` or `ca_bundle`: those belong
        to the connections.
        """
        old = self._endpoint
        for field in ("trust_env", "proxy", "ca_bundle"):
            if getattr(config, field) != getattr(old.config, field):
                raise ValueError(f"{field} cannot be changed; make another Sampler")
        backend = get_backend(config.backend)
        if config.retry_budget != old.config.retry_budget:
            old.limits.tokens = RetryTokens(config.retry_budget)
        self._endpoint = Endpoint(
            config=config,
            backend=backend,
            transport=old.transport,
            admission=old.admission,
            limits=old.limits,
            observer=old.observer,
            random=old.random,
        )
        self._actor.on_home(lambda: old.admission.resize(config.max_concurrency))

    # -- one request

    def stream(self, question: Question, *, request_id: str | None = None) -> Observable[SamplingEvent]:
        """The events of one request, from `StreamStarted` to a single `Completed` or `Failed`.

        `question` is a str (one user message), a sequence of items, or a `SamplingRequest`.

        Cold: each subscription sends the request once, with a new id unless one is given. Runs on the running event
        loop; timers and stamps come from the scheduler given at subscribe, by default one over that loop's time.
        Dispose closes the socket at once and nothing more is emitted. `on_error` never comes for a failed request,
        only for a bug. What a subscriber raises is one: it ends the request, and both its `on_error` and the loop's
        exception handler get it.
        Raises pydantic's ValidationError at call time for a question that is none, RuntimeError at subscribe
        without a running loop.
        """
        request = SamplingRequest.of(question)

        def subscribe(
            observer: abc.ObserverBase[SamplingEvent], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            scheduler = request_scheduler(scheduler or self._scheduler)
            identity = request_id or str(uuid.uuid4())
            return self._start(request, identity, observer, scheduler, current_demand()).start()

        return Observable(subscribe)

    def iterate(
        self,
        question: Question,
        *,
        capacity: int = 1024,
        overflow: Overflow = "pause",
        request_id: str | None = None,
    ) -> BoundedIterator[SamplingEvent]:
        """The events of one request for `async for`: `stream` through `flow.to_async_iterator`, whose rules hold.

            async for event in sampler.iterate("Why is the sky blue?"):
                print(event)

        The request is sent when the iteration begins; whoever leaves it early (`break`, `aclose`) cancels it. Raises at
        call time as `stream` and `to_async_iterator` do.
        """
        return to_async_iterator(self.stream(question, request_id=request_id), capacity, overflow)

    async def collect(self, question: Question) -> SamplingResult:
        """The whole answer; its events flow on `events` as those of any submitted request.

        Raises `SamplingError` if the request fails. Cancelling the awaiting task cancels the request.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Completed | Failed] = loop.create_future()
        kinds: Counter[str] = Counter()
        retries: list[Retrying] = []
        stripped: list[ImagesStripped] = []
        triggers: dict[str, None] = {}

        def settle(event: Completed | Failed) -> None:
            if not done.done():
                done.set_result(event)

        def on_next(event: SamplingEvent) -> None:
            kinds[event.kind] += 1
            match event:
                case Retrying():
                    retries.append(event)
                case ImagesStripped():
                    stripped.append(event)
                case DoomLoopSignals():
                    triggers.update(dict.fromkeys(event.triggers))
                case Completed() | Failed():
                    loop.call_soon_threadsafe(settle, event)
                case _:
                    pass

        feed = self._actor.send(SamplingRequest.of(question))
        subscription = self._actor.events_of(feed.request_id).subscribe(on_next)
        try:
            end = await done
        except asyncio.CancelledError:
            self._actor.cancel_feed(feed, cancelled("the task that awaited the answer was cancelled"))
            raise
        finally:
            subscription.dispose()
        if isinstance(end, Failed):
            raise end.to_error()
        return SamplingResult(
            request_id=end.request_id,
            response=end.response,
            metrics=end.metrics,
            events_summary=dict(kinds),
            retries=tuple(retries),
            images_stripped=tuple(stripped),
            doom_loop_triggers=tuple(triggers),
        )

    # -- many requests

    def submit(self, question: Question, request_id: str | None = None) -> RequestId:
        """Send a request once, whatever the number of its observers; its events arrive on `events` and `events_of`.

        Returns its id at once: the given one, or a new UUID. An active request of the same id is cancelled first. From
        any thread. Raises pydantic's ValidationError for a question that is none, RuntimeError where no event loop is
        known yet and none runs here.
        """
        return self._actor.submit(SamplingRequest.of(question), request_id)

    @property
    def events(self) -> Observable[SamplingEvent]:
        """All events of all submitted requests: see `SamplerActor.events`."""
        return self._actor.events

    def events_of(self, request_id: str) -> Observable[SamplingEvent]:
        """The events of one submitted request, from its start: see `SamplerActor.events_of`."""
        return self._actor.events_of(request_id)

    def cancel(self, request_id: str) -> None:
        """End a submitted request in `Failed(cancelled)`: see `SamplerActor.cancel`."""
        self._actor.cancel(request_id)

    def is_active(self, request_id: str) -> bool:
        """Whether a request was submitted under that id and has not ended."""
        return self._actor.is_active(request_id)

    def active_count(self) -> int:
        """How many submitted requests have not ended."""
        return self._actor.active_count()

    def handle(self) -> SamplerHandle:
        """A share in the sampler's actor, for another thread or owner. The last share closes the actor.

        `async with` holds one of its own, so that handles may come and go meanwhile.
        """
        return SamplerHandle(self._actor)

    def _start(
        self,
        request: SamplingRequest,
        request_id: str,
        observer: abc.ObserverBase[SamplingEvent],
        scheduler: abc.SchedulerBase,
        demand: Demand | None = None,
    ) -> RunningRequest:
        if isinstance(scheduler, LoopTimeScheduler) and scheduler.loop is not self._loop:
            self._loop = scheduler.loop
            self._drop_stranded()
        running = RunningRequest(
            self._endpoint,
            request,
            request_id,
            observer,
            scheduler,
            lambda gone: self._running.pop(gone, None),
            demand,
        )
        self._running[running] = None
        return running

    def _drop_stranded(self) -> None:
        """Let go of requests whose loops were closed under them: they hold places that those who come now wait for."""
        stranded = [one for one in self._running if one.is_stranded]
        for one in stranded:  # first all of them, or one would make room for the next
            one.silence()
        for one in stranded:
            one.drop()
