"""One request as it runs: queue, attempts, and the rim where failures become events.

What is cold becomes live here. `Sampler.stream` gives it a subscriber for an observer, the actor gives it a feed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from reactivex import abc
from reactivex.disposable import SerialDisposable

from .admission import Admission, Place
from .attempt import attempt
from .backends.base import Backend
from .config import DoomLoopPolicy, SamplerConfig, shown_url
from .conversation import SamplingRequest
from .course import Course
from .demand import Demand, Gate, demanding
from .errors import SamplingError, SamplingErrorKind
from .events import Completed, Failed, SamplingEvent
from .images import image_urls
from .observing import RequestFacts, RequestWatch, SamplerObserver
from .outcome import failed_event
from .outgoing import credential_header
from .retry import SharedLimits, joined_attempts
from .scheduling import LoopTimeScheduler, clock_of, on_own_thread, running_loop
from .wire.idle import deadline_passed
from .wire.transport import Transport

__all__ = ["Endpoint", "RunningRequest", "cancelled", "part_with", "report"]

_log = logging.getLogger("rx_sampler")

_CREDENTIAL_HEADERS: Final = ("authorization", "x-api-key", "api-key")


def cancelled(message: str) -> SamplingError:
    """The error of a request that somebody broke off."""
    return SamplingError.of(SamplingErrorKind.CANCELLED, message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where and how requests are made: the configuration of the moment, and what the requests of a sampler share."""

    config: SamplerConfig
    backend: Backend[Any]
    transport: Transport
    admission: Admission
    limits: SharedLimits
    observer: SamplerObserver | None
    random: Callable[[], float]

    def lane(self, request: SamplingRequest) -> Hashable:
        """Whom a 429 concerns: the host, and the credential that is sent to it."""
        config = self.config
        headers = {**config.extra_headers, **request.extra_headers}
        names = {*_CREDENTIAL_HEADERS, credential_header(self.backend, config)}
        by_header = tuple(value for name, value in headers.items() if name.lower() in names)
        return urlsplit(config.base_url).netloc, config.api_key, id(config.bearer_resolver), by_header


class RunningRequest(abc.ObserverBase[SamplingEvent], abc.DisposableBase):
    """A request on its way, told to one observer; it observes its own attempts.

    The observer gets the events of all attempts and exactly one terminal event. What it raises ends the request: see
    `part_with`. Everything happens on the scheduler's thread; `dispose` may be called on any.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        request: SamplingRequest,
        request_id: str,
        observer: abc.ObserverBase[SamplingEvent],
        scheduler: abc.SchedulerBase,
        on_gone: Callable[[RunningRequest], None] = lambda _gone: None,
        demand: Demand | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._request = request
        self._observer = observer
        self._deliver = observer.on_next
        self.scheduler = scheduler
        self._clock = clock_of(scheduler)
        self._on_gone = on_gone
        self._current = SerialDisposable()
        self._begun = False
        self._over = False
        self._place: Place | None = None
        now, config = self._clock(), endpoint.config
        self._watch = _Guarded(endpoint.observer, self._facts(request_id, now)) if endpoint.observer else None
        self._course = Course(
            request_id, now, deadline_s=config.deadline_s, lane=endpoint.lane(request), watch=self._watch
        )
        self._course.gate.attach(demand)

    def start(self) -> RunningRequest:
        """Queue for a place, and begin when there is one."""
        self._place = place = self._endpoint.admission.enter(self._begin)
        if self._over:
            place.dispose()
        elif not self._begun and (deadline_s := self._course.deadline_s) is not None:

            def pass_deadline(_scheduler: abc.SchedulerBase, _state: object = None) -> None:
                self.abort(deadline_passed(deadline_s))

            self._current.disposable = self.scheduler.schedule_relative(deadline_s, pass_deadline)
        return self

    def abort(self, error: SamplingError) -> None:
        """End the request in `error`, as its failure; what it had stays with it. On the scheduler's thread."""
        if self._over:
            return
        if self._begun:
            self._course.abort(error)
        if not self._over:  # it queues, or nobody knows how to break it off
            self._current.dispose()
            self.on_error(self._course.stamped(error, self._clock()))

    def dispose(self) -> None:
        """End the request without a word; its socket closes."""
        if not self._over:
            self._over = True
            on_own_thread(self.scheduler, self.drop)

    @property
    def gate(self) -> Gate:
        """Where those who listen can make it wait."""
        return self._course.gate

    @property
    def is_stranded(self) -> bool:
        """Its event loop is closed: nothing of it can happen any more."""
        return isinstance(self.scheduler, LoopTimeScheduler) and self.scheduler.loop.is_closed()

    def silence(self) -> None:
        """Tell nothing more, whatever still happens."""
        self._over = True

    def drop(self) -> None:
        """Let go of whatever it holds: timers, its socket, its place."""
        self._current.dispose()
        if self._watch is not None:
            self._watch.dropped(self._clock())
        self._leave()

    def _begin(self) -> None:
        if self._over:
            return
        self._begun = True
        endpoint, course = self._endpoint, self._course
        config = endpoint.config
        doom_loop = config.doom_loop
        if doom_loop is None and config.detect_loops is not None:
            doom_loop = DoomLoopPolicy()
        with demanding(None):
            self._current.disposable = joined_attempts(
                attempt(self._request, config, endpoint.backend, endpoint.transport, course),
                course,
                config.retry,
                self,
                self.scheduler,
                doom_loop=doom_loop,
                limits=endpoint.limits,
                random=endpoint.random,
                images=image_urls(self._request),
            )

    def on_next(self, value: SamplingEvent) -> None:
        if self._watch is not None:
            self._watch.on_event(value)
            if isinstance(value, Completed | Failed):
                self._watch = None  # it has heard everything
        try:
            self._deliver(value)
        except (Exception, asyncio.CancelledError) as error:
            self.dispose()
            part_with(self._observer, error)

    def on_error(self, error: Exception) -> None:
        if self._over:
            return
        if isinstance(error, SamplingError):
            self.on_next(failed_event(error, self._course.request_id, self._clock()))
            self.on_completed()
        else:
            self._over = True
            self._leave()
            try:
                self._observer.on_error(error)
            except (Exception, asyncio.CancelledError) as unheard:
                report(unheard)

    def on_completed(self) -> None:
        if not self._over:
            self._over = True
            self._leave()
            try:
                self._observer.on_completed()
            except (Exception, asyncio.CancelledError) as error:
                report(error)

    def _leave(self) -> None:
        self._course.gate.close()
        if self._place is not None:
            self._place.dispose()
        self._on_gone(self)

    def _facts(self, request_id: str, now: float) -> RequestFacts:
        config, request = self._endpoint.config, self._request
        return RequestFacts(
            request_id=request_id,
            ts=now,
            backend=config.backend,
            model=request.model or config.model,
            base_url=shown_url(config.base_url),
            reasoning_effort=request.reasoning_effort or config.reasoning_effort,
            request=request,
        )


class _Guarded:
    """An observer's watch over one request: what it raises is reported, and it is told no more of the request."""

    def __init__(self, observer: SamplerObserver, facts: RequestFacts) -> None:
        self._watch: RequestWatch | None = None
        try:
            self._watch = observer.request_made(facts)
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._watch = None
        report(error, "an observer of a sampler raised")

    def attempt_started(self, number: int, ts: float) -> None:
        try:
            if self._watch is not None:
                self._watch.attempt_started(number, ts)
        except Exception as error:
            self._give_up(error)

    def on_event(self, event: SamplingEvent) -> None:
        try:
            if self._watch is not None:
                self._watch.on_event(event)
        except Exception as error:
            self._give_up(error)

    def dropped(self, ts: float) -> None:
        try:
            if self._watch is not None:
                self._watch.dropped(ts)
        except Exception as error:
            self._give_up(error)


def part_with(observer: abc.ObserverBase[Any], error: BaseException) -> None:
    """A subscriber raised: the loop's exception handler is told, and so is the subscriber, which gets nothing more.

    Its own `on_error`, so that whoever waits for its end does not wait for ever.
    """
    report(error)
    try:
        observer.on_error(error)  # pyright: ignore[reportArgumentType]  # a cancellation of its own is no Exception
    except (Exception, asyncio.CancelledError) as another:
        if another is not error:  # without an on_error, Rx raises what it is given
            report(another)


def report(error: BaseException, what: str = "a subscriber of a sampling stream raised") -> None:
    """Tell whoever runs the loop of an error that is nobody's to handle."""
    context: dict[str, Any] = {"message": what, "exception": error}
    loop = running_loop()
    if loop is not None:
        loop.call_exception_handler(context)
    else:  # virtual time
        _log.error("%s", context["message"], exc_info=error)
