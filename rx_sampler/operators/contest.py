"""Several streams of which one is followed: what `race`, `hedge` and `fallback` have in common."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from reactivex import Observable, abc
from reactivex.disposable import SerialDisposable, SingleAssignmentDisposable

from rx_sampler.demand import current_demand, demanding
from rx_sampler.errors import SamplingErrorKind
from rx_sampler.events import ChannelToken, Completed, Failed, FirstToken, SamplingEvent, ToolCallDelta

__all__ = ["MAX_HELD", "Contest", "RaceOutcome", "has_content", "helps_elsewhere"]

MAX_HELD: Final = 16_384
"""How many events of a stream wait for the decision; the stream that fills this is followed, content or not.

Before content there are a handful per attempt. The long case is an answer whose reasoning does not commit `fallback`:
this holds most of them whole, in a few megabytes.
"""


@dataclass(frozen=True, slots=True)
class RaceOutcome:
    """How a race between streams went; positions count from 0, which is the source.

    `winner` is the one that is followed, None where all failed. `cancelled` are those that were broken off, in order; a
    stream that had not begun is not among them. `failed` are the failures until then, in the order they came.
    """

    winner: int | None
    cancelled: tuple[int, ...]
    failed: tuple[Failed, ...]

    @property
    def started(self) -> int:
        """How many streams were begun, without those that just ended: 1 where a hedge was not needed."""
        return len(self.cancelled) + len(self.failed) + (self.winner is not None)


def has_content(event: SamplingEvent) -> bool:
    """Whether it shows that the model answers: a token, a fragment of a tool call, or the whole answer."""
    return isinstance(event, FirstToken | ChannelToken | ToolCallDelta | Completed)


def helps_elsewhere(failed: Failed) -> bool:
    """Whether another stream may do better: not for who cancelled, nor with a request that cannot be sent."""
    return failed.error.kind not in (SamplingErrorKind.CANCELLED, SamplingErrorKind.INVALID_REQUEST)


class Contest(abc.DisposableBase):
    """Streams of one request each, begun as `start` says, of which the first that commits is followed to its end.

    A stream is out when it fails (or ends without a word) before: then the next begins, unless `moves_on` refuses or
    enough of them run. The last one that is out is followed all the same: its failure is that of the whole. `on_error`
    of any of them is a bug and ends everything.
    """

    def __init__(
        self,
        streams: Sequence[Observable[SamplingEvent]],
        observer: abc.ObserverBase[SamplingEvent],
        scheduler: abc.SchedulerBase | None,
        *,
        commits: Callable[[SamplingEvent], bool] = has_content,
        moves_on: Callable[[Failed], bool] = helps_elsewhere,
        on_decided: Callable[[RaceOutcome], None] | None = None,
    ) -> None:
        self.commits = commits
        self.observer = observer
        self.demand = current_demand()
        self.alarm = SerialDisposable()
        """What may start a stream later; disposed as soon as that is not wanted any more."""
        self._streams = streams
        self._scheduler = scheduler
        self._moves_on = moves_on
        self._on_decided = on_decided or _ignore
        self._begun = 0
        self._due = 0
        self._starting = False
        self._running: dict[int, _Runner] = {}
        self._failed: list[Failed] = []

    def start(self, count: int) -> None:
        """Begin the next `count` streams; one that fails meanwhile leaves it to this loop to begin the one after it."""
        self._due += count
        if self._starting:
            return
        self._starting = True
        try:
            while self._due:
                self._due -= 1
                stream = self._streams[self._begun]
                runner = self._running[self._begun] = _Runner(self, self._begun)
                self._begun += 1
                with demanding(self.demand):
                    runner.subscription.disposable = stream.subscribe(runner, scheduler=self._scheduler)
        finally:
            self._starting = False

    def dispose(self) -> None:
        """Let go of all streams, and begin no more."""
        self._due = 0
        self.alarm.dispose()
        running, self._running = self._running, {}
        for runner in running.values():
            runner.drop()

    def follow(self, runner: _Runner, winner: int | None) -> None:
        """Let this one speak; the others go."""
        del self._running[runner.position]
        cancelled = tuple(self._running)
        self.dispose()
        self._running[runner.position] = runner
        outcome = RaceOutcome(winner, cancelled, tuple(self._failed))
        runner.speak(lambda: self._on_decided(outcome))

    def out(self, runner: _Runner, failed: Failed | None) -> None:
        """This one failed before it committed, or ended without its terminal event."""
        if failed is not None:
            self._failed.append(failed)
        try:
            begins_next = self._begun + self._due < len(self._streams) and (failed is None or self._moves_on(failed))
        except Exception as error:
            self.fail(error)
            return
        if not begins_next and not self._due and len(self._running) == 1:
            self.follow(runner, None)
            return
        del self._running[runner.position]
        runner.drop()
        if begins_next:
            self.alarm.dispose()
            self.start(1)

    def fail(self, error: Exception) -> None:
        """A bug: nothing of it all can be trusted."""
        self.dispose()
        self.observer.on_error(error)


class _Runner(abc.ObserverBase[SamplingEvent]):
    """One of the streams: judged while it holds back what it says, then it speaks, or is dropped."""

    __slots__ = ("_close", "_contest", "_end", "_held", "_push", "_take", "position", "subscription")

    def __init__(self, contest: Contest, position: int) -> None:
        self.position = position
        self.subscription = SingleAssignmentDisposable()
        self._contest = contest
        self._push = contest.observer.on_next
        self._held: deque[SamplingEvent] = deque()
        self._end: Callable[[], None] = _nothing
        self._take: Callable[[SamplingEvent], object] = self._judge
        self._close: Callable[[Exception | None], None] = self._close_unheard

    def on_next(self, value: SamplingEvent) -> None:
        self._take(value)

    def on_error(self, error: Exception) -> None:
        self._close(error)

    def on_completed(self) -> None:
        self._close(None)

    def speak(self, announce: Callable[[], None]) -> None:
        """Say what was held back, after `announce`; what comes while it is said waits its turn behind it."""
        held, push = self._held, self._push
        self._take, self._close = held.append, self._close_later
        try:
            announce()
            while held:
                push(held.popleft())
        finally:
            self._take, self._close = push, self._close_now
            self._end()

    def drop(self) -> None:
        """Say nothing any more; the subscription is disposed."""
        self._take = self._close = _ignore
        self._held.clear()
        self.subscription.dispose()

    def _judge(self, event: SamplingEvent) -> None:
        self._held.append(event)
        contest = self._contest
        if isinstance(event, Failed):
            contest.out(self, event)
        elif contest.commits(event) or len(self._held) >= MAX_HELD:
            contest.follow(self, self.position)

    def _close_unheard(self, error: Exception | None) -> None:
        if error is None:
            self._close_later(None)
            self._contest.out(self, None)
        else:
            self._contest.fail(error)

    def _close_later(self, error: Exception | None) -> None:
        self._end = lambda: self._close_now(error)

    def _close_now(self, error: Exception | None) -> None:
        if error is None:
            self._contest.observer.on_completed()
        else:
            self._contest.observer.on_error(error)


def _nothing() -> None:
    pass


def _ignore(_what: object) -> None:
    pass
