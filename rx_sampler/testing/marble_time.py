"""Virtual time for marbles: whole microseconds, so that what is due at one time happens at one time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final, Generic, TypeVar

from reactivex import Observable, abc, typing
from reactivex.disposable import CompositeDisposable, Disposable
from reactivex.scheduler import VirtualTimeScheduler
from reactivex.scheduler.scheduleditem import ScheduledItem

from .marble_report import Notice

__all__ = ["EPOCH", "MAX_ACTIONS", "MarbleScheduler", "MarbleSource", "Subscription", "seconds_at"]

T = TypeVar("T")

EPOCH: Final = datetime.fromtimestamp(0, UTC)
"""Frame 0. Unix time 0, so that `ts` is a small number: differences of large ones are off in the fourth digit of a
millisecond."""

MAX_ACTIONS: Final = 100_000
"""Of one run, which lasts a few seconds then."""

_MICROSECOND: Final = timedelta(microseconds=1)


def seconds_at(frame: float) -> float:
    """The Unix time of a frame, as `clock_of(scheduler)` tells it there."""
    return timedelta(milliseconds=frame).total_seconds()


class MarbleScheduler(VirtualTimeScheduler):
    """Runs what is scheduled in order of time, then of scheduling; time passes only between actions."""

    def __init__(self, *, max_actions: int = MAX_ACTIONS) -> None:
        super().__init__(EPOCH)
        self._max_actions = max_actions
        self._due: list[tuple[datetime, bool, int, ScheduledItem]] = []
        self._numbers = count()

    @property
    def microseconds(self) -> int:
        """Since the epoch."""
        return (self.now - EPOCH) // _MICROSECOND

    @property
    def pending(self) -> int:
        """How many actions are scheduled and not cancelled."""
        return sum(1 for *_, item in self._due if not item.is_cancelled())

    def schedule_absolute(
        self, duetime: typing.AbsoluteTime, action: abc.ScheduledAction[Any], state: Any = None
    ) -> abc.DisposableBase:
        return self._schedule(self.to_datetime(duetime), action, state, later=True)

    def schedule_first(self, duetime: datetime, action: abc.ScheduledAction[Any]) -> abc.DisposableBase:
        """Before whatever else is due then, and behind what was scheduled so already."""
        return self._schedule(duetime, action, None, later=False)

    def _schedule(self, due: datetime, action: Any, state: object, *, later: bool) -> abc.DisposableBase:
        item = ScheduledItem(self, state, action, due)
        heappush(self._due, (due, later, next(self._numbers), item))
        return item.disposable

    def run(self) -> None:
        """Until nothing is scheduled any more. RuntimeError if that does not happen."""
        self._run(datetime.max.replace(tzinfo=UTC))

    def start(self) -> None:
        """As `run`."""
        self.run()

    def advance_to(self, time: typing.AbsoluteTime) -> None:
        """Run what is due up to then, and stand there. ValueError if that is in the past."""
        until = self.to_datetime(time)
        if until < self.now:
            raise ValueError(f"time does not go back, to {until} from {self.now}")
        self._run(until)
        self._clock = until

    def _run(self, until: datetime) -> None:
        if self._is_enabled:
            raise RuntimeError("time runs already: what runs in it cannot run it")
        self._is_enabled = True
        actions = 0
        try:
            while self._is_enabled and self._due and self._due[0][0] <= until:
                if actions == self._max_actions:
                    raise RuntimeError(
                        f"{actions:,} actions and no end: bound what repeats itself with until=, "
                        "or allow more with max_actions="
                    )
                item = heappop(self._due)[-1]
                if item.is_cancelled():
                    continue
                actions += 1
                if item.duetime > self.now:
                    self._clock = item.duetime
                item.invoke()
        finally:
            self._is_enabled = False


@dataclass(frozen=True, slots=True)
class Subscription:
    """From when to when, in milliseconds from time zero; None while it lasts."""

    subscribed_ms: float
    unsubscribed_ms: float | None = None


class MarbleSource(Observable[T], Generic[T]):
    """What a diagram of values becomes: an observable that keeps a log of its subscriptions.

    A hot one that has ended tells who comes later of its end, as a `Subject` does.
    """

    def __init__(self, scheduler: MarbleScheduler, notices: Sequence[Notice], *, hot: bool, zero_us: int = 0) -> None:
        super().__init__(self._begin)
        self._scheduler = scheduler
        self._notices = notices
        self._hot = hot
        self._zero_us = zero_us
        self._observers: list[abc.ObserverBase[T]] = []
        self._end: Notice | None = None
        self.subscriptions: list[Subscription] = []
        self.schedulers: list[abc.SchedulerBase | None] = []
        """Those that came with the subscriptions."""
        for notice in notices if hot else ():
            due = EPOCH + timedelta(microseconds=zero_us, milliseconds=notice.at_ms)
            if due >= scheduler.now and notice.at_ms >= 0:
                scheduler.schedule_absolute(due, self._tell_all(notice))
            elif notice.kind != "next":
                self._end = notice

    def _tell_all(self, notice: Notice) -> Callable[..., None]:
        def act(_scheduler: abc.SchedulerBase, _state: object = None) -> None:
            if notice.kind != "next":
                self._end = notice
            for observer in tuple(self._observers):
                _tell(observer, notice)  # one that has left meanwhile does not pass it on

        return act

    def _begin(self, observer: abc.ObserverBase[T], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        number = len(self.subscriptions)
        self.subscriptions.append(Subscription(self._now_ms()))
        self.schedulers.append(scheduler)
        self._observers.append(observer)
        timers = CompositeDisposable()

        def end() -> None:
            self.subscriptions[number] = Subscription(self.subscriptions[number].subscribed_ms, self._now_ms())
            self._observers.remove(observer)
            timers.dispose()

        for notice in () if self._hot else self._notices:
            wait = timedelta(milliseconds=notice.at_ms)
            timers.add(self._scheduler.schedule_relative(wait, _telling(observer, notice)))
        if self._end is not None:
            _tell(observer, self._end)
        return Disposable(end)

    def _now_ms(self) -> float:
        return (self._scheduler.microseconds - self._zero_us) / 1000


def _tell(observer: abc.ObserverBase[Any], notice: Notice) -> None:
    if notice.kind == "next":
        observer.on_next(notice.value)
    elif notice.kind == "error":
        observer.on_error(notice.value)
    else:
        observer.on_completed()


def _telling(observer: abc.ObserverBase[Any], notice: Notice) -> Callable[..., None]:
    def act(_scheduler: abc.SchedulerBase, _state: object = None) -> None:
        _tell(observer, notice)

    return act
