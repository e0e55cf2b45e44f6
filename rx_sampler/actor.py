"""Many requests at once: commands go in, one hot stream of events comes out.

All state is touched on one thread, that of the home loop; a command from elsewhere is handed over to it.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from reactivex import Observable, abc
from reactivex.disposable import Disposable
from reactivex.subject import Subject

from .conversation import Item, SamplingRequest
from .demand import Demand, current_demand
from .errors import SamplingError, SamplingErrorKind
from .events import Completed, Failed, SamplingEvent
from .feeds import Feed, Observers, RequestId
from .outcome import failed_event
from .running import RunningRequest, cancelled, part_with, report
from .scheduling import LoopTimeScheduler, clock_of, on_own_thread, request_scheduler, running_loop

__all__ = ["Question", "SamplerActor", "StartRequest"]

Question = str | Sequence[Item] | SamplingRequest
"""What can be asked: one user message, the items of a conversation, or a request with everything."""

KEPT_EVENTS: Final = 16_384
KEPT_REQUESTS: Final = 256
"""What is kept of finished requests for late subscribers: so many of them, with so many events in all."""

StartRequest = Callable[[SamplingRequest, str, abc.ObserverBase[SamplingEvent], abc.SchedulerBase], RunningRequest]
"""Makes a request run, told to an observer."""


@dataclass(frozen=True, slots=True)
class _Submit:
    feed: Feed
    request: SamplingRequest


@dataclass(frozen=True, slots=True)
class _Cancel:
    request_id: str
    error: SamplingError = field(default_factory=lambda: cancelled("the request was cancelled"))
    feed: Feed | None = None
    """Only if this is the request of that id."""


class SamplerActor:
    """Runs submitted requests and multiplexes their events.

    Every request ends in exactly one terminal event, also where it is cancelled, replaced by another of its id, or cut
    off by `close`. Events are delivered one at a time: what happens inside `on_next` is delivered to everybody after
    the event in hand. A subscriber that raises loses its subscription: its `on_error` and the loop's exception handler
    get what it raised, and nobody else notices. `submit`, `cancel`, `is_active` and `active_count` may be called from
    any thread.
    """

    def __init__(self, start: StartRequest, *, scheduler: abc.SchedulerBase | None = None) -> None:
        self._start = start
        self._home = scheduler
        self._fixed_home = scheduler is not None
        self._commands: Subject[_Submit | _Cancel] = Subject()
        self._commands.subscribe(self._handle)
        self._pending: dict[Feed, SamplingError | None] = {}
        """Submitted and not yet begun (another thread's take a moment); with an error, if they shall not begin."""
        self._active: dict[str, Feed] = {}
        self._finished: OrderedDict[str, Feed] = OrderedDict()
        self._kept = 0
        self._observers = Observers()
        self._demands: dict[Demand, None] = {}
        """Of those who listen to all requests."""
        self._backlog: deque[tuple[Feed, SamplingEvent]] = deque()
        self._delivering = False
        self._handles = 0
        self._lock = threading.Lock()

    # -- handles

    def acquire(self) -> None:
        """Somebody holds the actor."""
        with self._lock:
            self._handles += 1

    def release(self) -> None:
        """Somebody lets go of it; the last one closes it."""
        with self._lock:
            self._handles -= 1
            last = self._handles == 0
        if last:
            self.close()

    # -- commands, from any thread

    def submit(self, request: SamplingRequest, request_id: str | None = None) -> RequestId:
        """Send the request once, whatever the number of observers. Returns at once.

        An active request of the same id is cancelled first. Raises RuntimeError where no loop is known yet and none
        runs in this thread.
        """
        return self.send(request, request_id).request_id

    def send(self, request: SamplingRequest, request_id: str | None = None) -> Feed:
        """`submit`, for whoever wants the feed itself."""
        self.bind()
        feed = Feed(str(uuid.uuid4()) if request_id is None else request_id, self._take, self._break)
        self._pending[feed] = None
        self._command(_Submit(feed, request))
        return feed

    def cancel(self, request_id: str) -> None:
        """End the request in `Failed(cancelled)`, with what it had as `partial`. No effect on an id that is not active.

        On another thread than the loop's it takes effect soon, not at once.
        """
        if self._home is not None:
            self._command(_Cancel(request_id))

    def cancel_feed(self, feed: Feed, error: SamplingError) -> None:
        """The same for one request, which another may have replaced under its id."""
        self._command(_Cancel(feed.request_id, error, feed))

    def is_active(self, request_id: str) -> bool:
        """Whether a request of that id was submitted and has not ended."""
        return request_id in self._active or any(feed.request_id == request_id for feed in list(self._pending))

    def active_count(self) -> int:
        """How many requests were submitted and have not ended."""
        return len({*self._active, *(feed.request_id for feed in list(self._pending))})

    def close(self) -> None:
        """Cancel what was submitted, each with its terminal event; then complete `events`.

        What is submitted later runs, as if the actor were new.
        """
        if running_loop() is not None:
            self.bind()
        self.on_home(self._close)

    def on_home(self, act: Callable[[], None]) -> None:
        """Do `act` on the home loop, or here as long as there is none."""
        if self._home is None:
            act()
        else:
            on_own_thread(self._home, act)

    def bind(self) -> abc.SchedulerBase:
        """The scheduler of the home loop; the running loop becomes home where there is none, or none that lives."""
        home = self._home
        here = running_loop()
        if not self._fixed_home and (
            home is None
            or (
                isinstance(home, LoopTimeScheduler)
                and here is not home.loop
                and (home.loop.is_closed() or (here is not None and not home.loop.is_running()))
            )
        ):
            self._forget_dead_loop()
            home = self._home = request_scheduler(None)
        assert home is not None  # noqa: S101  # a fixed home is never None
        return home

    # -- streams

    @property
    def events(self) -> Observable[SamplingEvent]:
        """All events of all submitted requests, from the subscription on; completes when the actor is closed.

        Hot. Delivered on the home loop, after the subscribers of the one request. A bounded consumer that pauses
        (`flow`) makes all active requests wait. Dispose from any thread.
        """

        def subscribe(
            observer: abc.ObserverBase[SamplingEvent], _scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            demand = current_demand()
            self._observers.add(observer)
            if demand is None:
                return Disposable(lambda: self._observers.remove(observer))
            self.on_home(lambda: self._heed(demand))

            def leave() -> None:
                self._observers.remove(observer)
                self.on_home(lambda: self._ignore(demand))

            return Disposable(leave)

        return Observable(subscribe)

    def events_of(self, request_id: str) -> Observable[SamplingEvent]:
        """The events of one submitted request, from its start whenever one subscribes to its terminal one.

        The latest request of that id at the time of the subscription. What came before is delivered at once (on the
        home loop), as fast as a bounded consumer that pauses (`flow`) will have it, who also makes the request itself
        wait; of more than `replay.VERBATIM` events, neighbouring tokens of a channel are joined. Finished
        requests are remembered, the last `KEPT_EVENTS` events of them; for an id that is not known `on_error` gives a
        LookupError.
        """

        def subscribe(
            observer: abc.ObserverBase[SamplingEvent], _scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            listening = _Listening(self, observer, current_demand())
            self.on_home(lambda: listening.join(request_id))
            return listening

        return Observable(subscribe)

    def find(self, request_id: str) -> Feed | None:
        """The latest request of that id, if it runs or is still remembered."""
        return self._active.get(request_id) or self._finished.get(request_id)

    # -- on the home loop

    def _command(self, command: _Submit | _Cancel) -> None:
        on_own_thread(self.bind(), lambda: self._commands.on_next(command))

    def _handle(self, command: _Submit | _Cancel) -> None:
        if isinstance(command, _Submit):
            self._begin(command.feed, command.request)
            return
        for waiting in self._pending:
            if waiting.request_id == command.request_id and command.feed in (None, waiting):
                self._pending[waiting] = command.error
        feed = self._active.get(command.request_id)
        if feed is not None and command.feed in (None, feed):
            self._abort(feed, command.error)

    def _begin(self, feed: Feed, request: SamplingRequest) -> None:
        if feed not in self._pending:  # its loop had been taken for dead
            return
        error = self._pending.pop(feed)
        if (old := self._active.get(feed.request_id)) is not None:
            self._abort(old, cancelled("another request was submitted under the same id"))
        self._active[feed.request_id] = feed
        if error is not None:
            self._abort(feed, error)
            return
        try:
            feed.run = run = self._start(request, feed.request_id, feed, self.bind())
            for demand in self._demands:
                run.gate.attach(demand)
            run.start()
        except Exception as bug:
            self._break(feed, bug)

    def _heed(self, demand: Demand) -> None:
        self._demands[demand] = None
        for feed in self._active.values():
            if feed.run is not None:
                feed.run.gate.attach(demand)

    def _ignore(self, demand: Demand) -> None:
        self._demands.pop(demand, None)
        for feed in self._active.values():
            if feed.run is not None:
                feed.run.gate.detach(demand)

    def _abort(self, feed: Feed, error: SamplingError) -> None:
        if (run := feed.run) is not None:
            run.abort(error)
            run.dispose()
        if not feed.over:
            self._take(feed, failed_event(error, feed.request_id, clock_of(self._home)()))

    def _break(self, feed: Feed, bug: Exception) -> None:
        """A request ended in what is no failure of a request. Nobody may wait for its end for ever."""
        report(bug)
        error = SamplingError.of(SamplingErrorKind.API, f"a bug: {type(bug).__name__}", code="internal_error")
        error.__cause__ = bug
        self._abort(feed, error)

    def _take(self, feed: Feed, event: SamplingEvent) -> None:
        """An event of a request: noted at once, delivered when those before it are."""
        if isinstance(event, Completed | Failed):
            feed.over = True
            if self._active.get(feed.request_id) is feed:
                del self._active[feed.request_id]
            if (older := self._finished.pop(feed.request_id, None)) is not None:
                self._kept -= older.kept
            self._finished[feed.request_id] = feed
        if self._delivering:
            self._backlog.append((feed, event))
            return
        self._delivering = True
        try:
            self._deliver(feed, event)
            if self._backlog:
                self._deliver_backlog()
        finally:
            self._delivering = False

    def serially(self, act: Callable[[], None]) -> None:
        """Do what tells observers something; what happens meanwhile is told to everybody after it."""
        if self._delivering:
            act()
            return
        self._delivering = True
        try:
            act()
            self._deliver_backlog()
        finally:
            self._delivering = False

    def _deliver_backlog(self) -> None:
        while self._backlog:
            self._deliver(*self._backlog.popleft())

    def _deliver(self, feed: Feed, event: SamplingEvent) -> None:
        feed.history.append(event)
        if feed.observers.all:
            feed.observers.tell(event)
        if self._observers.all:
            self._observers.tell(event)
        if feed.over and isinstance(event, Completed | Failed):
            self._retire(feed)

    def _retire(self, feed: Feed) -> None:
        feed.closed = True
        feed.run = None
        feed.observers.complete()
        if self._finished.get(feed.request_id) is not feed:
            return
        feed.kept = len(feed.history)
        self._kept += feed.kept
        while len(self._finished) > 1 and (self._kept > KEPT_EVENTS or len(self._finished) > KEPT_REQUESTS):
            _, oldest = self._finished.popitem(last=False)
            self._kept -= oldest.kept

    def _close(self) -> None:
        self._pending = dict.fromkeys(self._pending, _closed())
        for feed in list(self._active.values()):
            self._abort(feed, _closed())
        self._observers.complete()

    def _forget_dead_loop(self) -> None:
        """What ran on a loop that is no more cannot end by itself."""
        self._delivering = False
        waiting, self._pending = list(self._pending), {}
        for feed in [*waiting, *self._active.values()]:
            self._take(feed, failed_event(cancelled("its event loop is gone"), feed.request_id, clock_of(self._home)()))


def _closed() -> SamplingError:
    return cancelled("the sampler was closed")


class _Listening(abc.ObserverBase[SamplingEvent], abc.DisposableBase):
    """One subscription to the events of one request: first what was said before, then what is said."""

    def __init__(self, actor: SamplerActor, observer: abc.ObserverBase[SamplingEvent], demand: Demand | None) -> None:
        self._actor = actor
        self._observer = observer
        self._demand = demand
        self._forget_demand: Callable[[], None] | None = None
        self._feed: Feed | None = None
        self._behind: deque[SamplingEvent] = deque()
        """What was said and is not delivered yet: a consumer that wants no more holds it back."""
        self._over = False
        self._disposed = False

    def join(self, request_id: str) -> None:
        if self._disposed:
            return
        feed = self._feed = self._actor.find(request_id)
        if feed is None:
            message = f"no request {request_id!r} is known: it was never submitted, or is finished and forgotten"
            self._observer.on_error(LookupError(message))
            return
        if self._demand is not None:
            self._forget_demand = self._demand.on_release(lambda: self._actor.serially(self._catch_up))
            if feed.run is not None:
                feed.run.gate.attach(self._demand)
        self._actor.serially(lambda: self._replay(feed))

    def _replay(self, feed: Feed) -> None:
        self._behind.extend(feed.history)
        self._catch_up()
        if self._disposed:
            return
        feed.observers.add(self)
        if feed.closed:
            feed.observers.complete()

    def _catch_up(self) -> None:
        behind, demand = self._behind, self._demand
        try:
            while behind and not self._disposed and (demand is None or demand.wants):
                self._observer.on_next(behind.popleft())
        except (Exception, asyncio.CancelledError) as error:
            self.dispose()
            part_with(self._observer, error)
        if self._over and not behind and not self._disposed:
            self.dispose()
            self._observer.on_completed()

    def on_next(self, value: SamplingEvent) -> None:
        if self._behind:
            self._behind.append(value)
        else:
            self._observer.on_next(value)

    def on_error(self, error: Exception) -> None:  # its own, which it raised
        self.dispose()
        self._observer.on_error(error)

    def on_completed(self) -> None:
        self._over = True
        if not self._behind:
            self.dispose()
            self._observer.on_completed()

    def dispose(self) -> None:
        self._disposed = True
        self._behind.clear()
        if self._feed is not None:
            self._feed.observers.remove(self)
        if self._demand is not None:
            self._actor.on_home(self._let_go)

    def _let_go(self) -> None:
        demand, self._demand = self._demand, None
        if self._forget_demand is not None:
            self._forget_demand()
        if self._feed is not None and self._feed.run is not None:
            self._feed.run.gate.detach(demand)
