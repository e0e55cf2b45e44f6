"""One run of an operator in virtual time, from a source that knows how it was treated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from reactivex import Observable, abc
from reactivex.disposable import CompositeDisposable, Disposable

from .marble_report import Notice
from .marble_time import MarbleScheduler

__all__ = ["Probe", "Run", "Script", "SourceError", "scripted"]


class SourceError(Exception):
    """What a source fails with in a check."""


@dataclass(frozen=True, slots=True)
class Script:
    """What a source says, and when: in milliseconds from its subscription, in order."""

    values: tuple[tuple[int, Any], ...]
    ends_at_ms: int
    error: Exception | None = None
    inside_subscribe: bool = False
    """Whether all of it is said before `subscribe` returns, whatever the times."""


def scripted(values: Sequence[Any], error: Exception | None = None) -> Script:
    """A value each millisecond, from the first on, then the end."""
    return Script(tuple(enumerate(values, 1)), len(values) + 1, error)


class Probe(Observable[Any]):
    """A cold source that plays a script."""

    def __init__(self, scheduler: MarbleScheduler, script: Script) -> None:
        super().__init__(self._begin)
        self._scheduler = scheduler
        self._script = script
        self.schedulers: list[abc.SchedulerBase | None] = []
        """Those that came with the subscriptions."""
        self.active = 0
        """How many subscriptions last."""
        self.spoke_at_ms = 0.0
        """When it last said something, whether or not anybody listened."""
        self.raised: list[BaseException] = []
        """What observers raised into it."""

    def _begin(self, observer: abc.ObserverBase[Any], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        self.schedulers.append(scheduler)
        self.active += 1
        timers = CompositeDisposable()
        error = self._script.error
        acts: list[tuple[int, Callable[[], None]]] = [
            (ms, _saying(observer, value)) for ms, value in self._script.values
        ]
        acts.append((self._script.ends_at_ms, observer.on_completed if error is None else _failing(observer, error)))

        def due(act: Callable[[], None]) -> Callable[..., None]:
            def happen(_scheduler: abc.SchedulerBase, _state: object = None) -> None:
                self.spoke_at_ms = self._scheduler.microseconds / 1000
                try:
                    act()
                except Exception as raised:
                    self.raised.append(raised)
                    timers.dispose()

            return happen

        def end() -> None:
            self.active -= 1
            timers.dispose()

        for ms, act in acts:
            if self._script.inside_subscribe:
                act()
            else:
                timers.add(self._scheduler.schedule_relative(ms / 1000, due(act)))
        return Disposable(end)


def _saying(observer: abc.ObserverBase[Any], value: Any) -> Callable[[], None]:
    return lambda: observer.on_next(value)


def _failing(observer: abc.ObserverBase[Any], error: Exception) -> Callable[[], None]:
    return lambda: observer.on_error(error)


class Run:
    """An operator applied to a probe; `notices` is what came of the latest subscription."""

    def __init__(
        self,
        operator: Callable[[Observable[Any]], Observable[Any]],
        script: Script,
        *,
        view: Callable[[Any], Any] = lambda value: value,
        act: Callable[[Notice], None] = lambda _notice: None,
        scheduler: MarbleScheduler | None = None,
    ) -> None:
        self.scheduler = MarbleScheduler() if scheduler is None else scheduler
        self.probe = Probe(self.scheduler, script)
        self.stream = operator(self.probe)
        self._view = view
        self._act = act
        self.notices: list[Notice] = []
        self.subscription: abc.DisposableBase = Disposable()

    def subscribe(self) -> Run:
        self.watch()
        return self

    def watch(self) -> list[Notice]:
        """Subscribe once more; what comes is noted with the time since then."""
        notices = self.notices = []
        begun = self.scheduler.microseconds

        def note(kind: Any, value: Any = None) -> None:
            notice = Notice((self.scheduler.microseconds - begun) / 1000, kind, value)
            notices.append(notice)
            self._act(notice)

        self.subscription = self.stream.subscribe(
            lambda value: note("next", self._view(value)),
            lambda error: note("error", error),
            lambda: note("completed"),
            scheduler=self.scheduler,
        )
        return notices

    def at(self, ms: float, act: Callable[[], object]) -> Run:
        """Do something at that time, behind whatever else is due then."""

        def happen(_scheduler: abc.SchedulerBase, _state: object = None) -> None:
            act()

        self.scheduler.schedule_relative(ms / 1000, happen)
        return self

    def to_the_end(self) -> Run:
        self.scheduler.run()
        return self

    @property
    def now_ms(self) -> float:
        """Once it ran to its end: when the last thing happened."""
        return self.scheduler.microseconds / 1000

    @property
    def ends(self) -> list[Notice]:
        return [notice for notice in self.notices if notice.kind != "next"]
