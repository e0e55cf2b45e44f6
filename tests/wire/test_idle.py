"""Limits in time, under virtual time: when each passes, and that nothing ticks on afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import reactivex as rx
from reactivex import Observable, abc, typing
from reactivex import operators as ops
from reactivex.notification import OnCompleted, OnError, OnNext
from reactivex.testing import ReactiveTest, TestScheduler
from reactivex.testing.recorded import Recorded

from rx_sampler.errors import SamplingError, SamplingErrorKind
from rx_sampler.scheduling import clock_of
from rx_sampler.wire.idle import ERROR_BODY_TIMEOUT_S, Limits, Pulse, watched
from rx_sampler.wire.transport import Connected, ResponseHead

subscribe = ReactiveTest.subscribe
K = SamplingErrorKind

SUBSCRIBED = 200
"""TestScheduler's own time of subscription; a tick is a second here."""

OK = ResponseHead(status=200, headers={})
REFUSED = ResponseHead(status=429, headers={})
TEXT, PING, STOP = b"text", b": ping", b"stop"
COMPLETED = "completed"

Items = Sequence[tuple[int, object]]
"""What comes when; at the end perhaps `COMPLETED` or an exception."""

STARTED: Items = [(205, Connected()), (210, OK)]


class Clockwork(TestScheduler):
    """A test scheduler that keeps account of timers (a hot source uses none) and may fire the first one early."""

    def __init__(self, early_s: float) -> None:
        super().__init__()
        self.armed = 0
        self.fired: list[float] = []
        self._early_s = early_s

    def schedule_relative(
        self, duetime: typing.RelativeTime, action: abc.ScheduledAction[Any], state: Any = None
    ) -> abc.DisposableBase:
        self.armed += 1

        def run(scheduler: abc.SchedulerBase, state: Any = None) -> abc.DisposableBase | None:
            self.fired.append(clock_of(self)())
            return action(scheduler, state)

        due = self.to_seconds(duetime) - (self._early_s if self.armed == 1 else 0.0)
        return super().schedule_relative(due, run, state)


@dataclass
class Run:
    """One subscription: what came when, how long the source was subscribed, how many timers there were."""

    items: Sequence[tuple[float, object]]
    subscriptions: list[Any]
    armed: int
    pulse: Pulse

    @property
    def end(self) -> tuple[float, object]:
        return self.items[-1]

    def before(self, at: float) -> Sequence[tuple[float, object]]:
        return [item for item in self.items if item[0] < at]


def recorded(at: int, item: object) -> Recorded[Any]:
    if item is COMPLETED:
        return Recorded(at, OnCompleted[Any]())
    return Recorded(at, OnError(item) if isinstance(item, Exception) else OnNext(item))


def run(limits: Limits, *items: tuple[int, object], disposed: float = 5000, early_s: float = 0.0) -> Run:
    """Watch a source of these items. `TEXT` is content, `STOP` completes the answer, anything else is neither."""
    scheduler = Clockwork(early_s)
    source = scheduler.create_hot_observable([recorded(*item) for item in items])
    seen: list[tuple[float, object]] = []
    pulses: list[Pulse] = []

    def note(item: object) -> None:
        pulse = pulses[0]
        seen.append((pulse.now, item))
        assert pulse.now == clock_of(scheduler)()
        if item == TEXT:
            pulse.content_at = pulse.now
        elif item == STOP:
            pulse.settle(True)

    def watch(given: abc.SchedulerBase) -> Observable[Any]:
        pulses.append(Pulse(clock_of(given)()))
        return source.pipe(watched(pulses[0], limits), ops.do_action(note, note, lambda: note(COMPLETED)))

    # Runs until nothing is scheduled any more: a timer that outlives the subscription fires after its end.
    scheduler.start(lambda: rx.defer(watch), disposed=disposed)
    ended = [at for at, item in seen if item is COMPLETED or isinstance(item, Exception)]
    assert all(at <= min([disposed, *ended]) for at in scheduler.fired)
    return Run(seen, source.subscriptions, scheduler.armed, pulses[0])


def every(step: int, item: bytes, start: int, stop: int) -> Items:
    return [(time, item) for time in range(start, stop, step)]


LIMITS: list[tuple[str, Limits, Items, int, SamplingErrorKind, str, bool, str]] = [
    ("no connection", Limits(connect_s=10), [], 210, K.HTTP, "connect_timeout", True, "no connection within 10 s"),
    (
        "no headers, counted from the connection",
        Limits(connect_s=10, header_s=30),
        [(205, Connected())],
        235,
        K.HTTP,
        "header_timeout",
        True,
        "no response headers came within 30 s",
    ),
    (
        "no bytes after the headers",
        Limits(connect_s=10, header_s=30, idle_s=50, content_idle_s=90),
        [*STARTED],
        260,
        K.IDLE_TIMEOUT,
        "idle",
        False,
        "no bytes came for 50 s",
    ),
    (
        "no bytes after some",
        Limits(idle_s=50, content_idle_s=90),
        [*STARTED, (230, TEXT), (255, PING)],
        305,
        K.IDLE_TIMEOUT,
        "idle",
        False,
        "no bytes came for 50 s",
    ),
    (
        "only pings after the headers",
        Limits(idle_s=50, content_idle_s=90),
        [*STARTED, *every(20, PING, 221, 900)],
        300,
        K.IDLE_TIMEOUT,
        "content_idle",
        False,
        "no content came for 90 s (pings do not count)",
    ),
    (
        "only pings after content",
        Limits(idle_s=50, content_idle_s=90),
        [*STARTED, (230, TEXT), *every(20, PING, 241, 900)],
        320,
        K.IDLE_TIMEOUT,
        "content_idle",
        False,
        "no content came for 90 s",
    ),
    (
        "nothing at all, both limits alike",
        Limits(idle_s=50, content_idle_s=50),
        [*STARTED],
        260,
        K.IDLE_TIMEOUT,
        "idle",
        False,
        "no bytes came",
    ),
    (
        "the deadline, in the middle of content",
        Limits(idle_s=50, deadline_s=105),
        [*STARTED, *every(10, TEXT, 220, 900)],
        305,
        K.IDLE_TIMEOUT,
        "deadline",
        False,
        "the deadline of 105 s passed",
    ),
    (
        "the deadline, while connecting",
        Limits(connect_s=10, deadline_s=4),
        [],
        204,
        K.IDLE_TIMEOUT,
        "deadline",
        False,
        "",
    ),
    (
        "the deadline, in the grace period",
        Limits(grace_s=60, deadline_s=100),
        [*STARTED, (250, STOP)],
        300,
        K.IDLE_TIMEOUT,
        "deadline",
        False,
        "",
    ),
    (
        "the deadline, in the body of a refusal",
        Limits(deadline_s=12),
        [(205, Connected()), (210, REFUSED)],
        212,
        K.IDLE_TIMEOUT,
        "deadline",
        False,
        "",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("limits", "items", "at", "kind", "code", "retryable", "words"),
    [case[1:] for case in LIMITS],
    ids=[case[0] for case in LIMITS],
)
def test_a_limit_that_passes_fails_the_stream_and_ends_the_source(
    limits: Limits,
    items: Items,
    at: int,
    kind: SamplingErrorKind,
    code: str,
    retryable: bool,
    words: str,
) -> None:
    seen = run(limits, *items)
    ended_at, error = seen.end
    assert ended_at == at
    assert seen.items[:-1] == [item for item in items if item[0] < at]
    assert isinstance(error, SamplingError)
    assert (error.info.kind, error.info.code, error.info.is_retryable) == (kind, code, retryable)
    assert words in error.info.message
    assert seen.subscriptions == [subscribe(SUBSCRIBED, at)]


QUIET_ENDS: list[tuple[str, Limits, Items, int]] = [
    ("the grace period after a whole answer", Limits(idle_s=50, grace_s=2), [*STARTED, (240, STOP)], 242),
    (
        "pings do not prolong it",
        Limits(idle_s=50, grace_s=5),
        [*STARTED, (240, STOP), *every(1, PING, 241, 260)],
        245,
    ),
    (
        "nor does a second stop",
        Limits(idle_s=50, grace_s=5),
        [*STARTED, (240, STOP), (243, STOP)],
        245,
    ),
    ("it may be none", Limits(idle_s=50, grace_s=0), [*STARTED, (240, STOP)], 240),
    ("the body of a refusal", Limits(idle_s=50), [(210, REFUSED)], 210 + int(ERROR_BODY_TIMEOUT_S)),
    (
        "even one that goes on",
        Limits(idle_s=50, grace_s=1),
        [(205, Connected()), (210, REFUSED), *every(1, b"x", 211, 260)],
        210 + int(ERROR_BODY_TIMEOUT_S),
    ),
]


@pytest.mark.parametrize(
    ("limits", "items", "at"), [case[1:] for case in QUIET_ENDS], ids=[case[0] for case in QUIET_ENDS]
)
def test_two_limits_end_the_stream_quietly(limits: Limits, items: Items, at: int) -> None:
    seen = run(limits, *items)
    assert seen.end == (at, COMPLETED)
    assert seen.before(at) == [item for item in items if item[0] < at]
    assert seen.subscriptions == [subscribe(SUBSCRIBED, at)]


IN_TIME: list[tuple[str, Limits, Items]] = [
    (
        "every limit kept",
        Limits(connect_s=6, header_s=6, idle_s=21, content_idle_s=41, grace_s=2, deadline_s=400),
        [*STARTED, *every(20, PING, 230, 250), *every(40, TEXT, 250, 500), *every(20, PING, 260, 500)],
    ),
    ("headers without the news of a connection", Limits(connect_s=10, header_s=10), [(205, OK)]),
    ("a connection without a limit for headers", Limits(connect_s=10), [(205, Connected())]),
    ("no limit at all", Limits(), [*STARTED, (4000, TEXT), (4100, STOP)]),
    ("the end announced within the grace period", Limits(grace_s=5), [*STARTED, (250, STOP)]),
    ("a refusal whose body ends", Limits(idle_s=1), [(210, REFUSED), (214, b"{}")]),
]


@pytest.mark.parametrize(("limits", "items"), [case[1:] for case in IN_TIME], ids=[case[0] for case in IN_TIME])
@pytest.mark.parametrize("failing", [False, True], ids=["end", "error"])
def test_a_source_in_time_passes_unchanged(limits: Limits, items: Items, failing: bool) -> None:
    items = sorted(items, key=lambda item: item[0])
    end = (items[-1][0] + 1, OSError("broken") if failing else COMPLETED)
    seen = run(limits, *items, end)
    assert seen.items == [*items, end]
    assert seen.subscriptions == [subscribe(SUBSCRIBED, end[0])]


@pytest.mark.parametrize("at", [202, 207, 220, 241])
def test_dispose_ends_source_and_timers_in_every_phase(at: int) -> None:
    limits = Limits(connect_s=10, header_s=10, idle_s=50, content_idle_s=50, grace_s=9, deadline_s=100)
    items = [*STARTED, (240, STOP)]
    seen = run(limits, *items, disposed=at)
    assert seen.items == [item for item in items if item[0] < at]
    assert seen.subscriptions == [subscribe(SUBSCRIBED, at)]


def test_no_limit_arms_no_timer() -> None:
    assert run(Limits(), *STARTED, *every(1, TEXT, 211, 300), (301, COMPLETED)).armed == 0


def test_a_chunk_costs_no_timer() -> None:
    chunks = every(1, TEXT, 211, 1211)
    seen = run(Limits(connect_s=10, header_s=10, idle_s=50, content_idle_s=50), *STARTED, *chunks)
    assert seen.end[0] == 1210 + 50
    # One each for connecting, headers and the start of the body; then the timer of 50 s is armed again when it fires.
    assert seen.armed <= 3 + 1050 // 50 + 1


def test_a_timer_that_fires_a_little_early_counts() -> None:
    seen = run(Limits(connect_s=10), early_s=0.0005)
    assert isinstance(seen.end[1], SamplingError)
    assert seen.armed == 1


def test_a_timer_that_fires_too_early_is_armed_again() -> None:
    seen = run(Limits(connect_s=10), (209, Connected()), (220, COMPLETED), early_s=2)
    assert seen.items == [(209, Connected()), (220, COMPLETED)]
    seen = run(Limits(connect_s=10), early_s=2)
    assert (seen.end[0], seen.armed) == (210, 2)


@pytest.mark.parametrize("end", [[(260, COMPLETED)], []], ids=["ended", "disposed"])
def test_a_late_word_that_the_answer_is_complete_starts_nothing(end: Items) -> None:
    scheduler = Clockwork(0)
    source = scheduler.create_hot_observable([recorded(*item) for item in [*STARTED, *end]])
    pulse = Pulse(200)
    ended: list[str] = []
    scheduler.start(
        lambda: source.pipe(watched(pulse, Limits(grace_s=3)), ops.do_action(on_completed=lambda: ended.append("x"))),
        disposed=265,
    )
    pulse.settle(True)
    scheduler.start()
    assert scheduler.fired == []
    assert ended == ["x" for _ in end]


def test_a_subscription_without_a_scheduler_is_a_bug_of_the_caller() -> None:
    with pytest.raises(RuntimeError, match="needs the scheduler"):
        rx.never().pipe(watched(Pulse(0.0), Limits())).subscribe()


def test_a_clock_that_goes_back_takes_no_arrival_with_it() -> None:
    scheduler = TestScheduler()
    source = scheduler.create_hot_observable([recorded(210, OK), recorded(220, TEXT), recorded(310, TEXT)])
    pulse = Pulse(300.0)
    times: list[float] = []
    scheduler.start(lambda: source.pipe(watched(pulse, Limits()), ops.do_action(lambda _: times.append(pulse.now))))
    assert times == [300.0, 300.0, 310.0]


def test_a_pulse_never_goes_back() -> None:
    pulse = Pulse(10.0)
    pulse.advance(12.0)
    pulse.advance(11.0)
    assert (pulse.now, pulse.submitted_at, pulse.content_at) == (12.0, 10.0, 10.0)


# -- time that the consumer takes


def paused(limits: Limits, items: Items, *, pause: int, resume: int) -> Run:
    """`pulse.pause` and `pulse.resume` at these times."""
    scheduler, pulse = Clockwork(0.0), Pulse(SUBSCRIBED)
    source = scheduler.create_hot_observable(*(recorded(at, item) for at, item in items))

    def at(when: int, act: Callable[[float], None]) -> None:
        def run(_scheduler: abc.SchedulerBase, _state: object = None) -> None:
            act(clock_of(scheduler)())

        scheduler.schedule_absolute(when, run)

    at(pause, pulse.pause)
    at(resume, pulse.resume)
    messages = scheduler.start(lambda: source.pipe(watched(pulse, limits)), disposed=100_000).messages
    told = [(float(message.time), kind(message.value)) for message in messages]
    return Run(told, source.subscriptions, scheduler.armed, pulse)


def kind(notification: object) -> object:
    if isinstance(notification, OnError):
        error = notification.exception
        assert isinstance(error, SamplingError)
        return error.info.code
    return COMPLETED if isinstance(notification, OnCompleted) else "item"


@pytest.mark.parametrize(
    ("limits", "items", "code", "at"),
    [
        # 5 s of 20 s of silence had passed at the pause; 15 more may pass after it
        (Limits(idle_s=20), STARTED, "idle", 1000 + 15),
        (Limits(content_idle_s=20), [*STARTED, (212, PING)], "content_idle", 1000 + 15),
        (Limits(header_s=20), [(205, Connected())], "header_timeout", 1000),
        (Limits(connect_s=20), [], "connect_timeout", 1000),
        (Limits(deadline_s=50), STARTED, "deadline", 1000),
    ],
)
def test_no_limit_passes_while_the_consumer_pauses_us(limits: Limits, items: Items, code: str, at: int) -> None:
    run = paused(limits, items, pause=215, resume=1000)
    assert run.end == (at, code)


def test_a_pause_shorter_than_the_timer_moves_it() -> None:
    run = paused(Limits(idle_s=20), STARTED, pause=215, resume=225)
    assert run.end == (210 + 20 + 10, "idle")


def test_a_consumer_that_blocks_is_no_silent_server() -> None:
    scheduler, pulse = Clockwork(0.0), Pulse(SUBSCRIBED)
    source = scheduler.create_hot_observable(*(recorded(at, item) for at, item in [*STARTED, (212, TEXT)]))
    ends: list[tuple[float, object]] = []

    def on_next(item: object) -> None:
        if item == TEXT:
            scheduler.sleep(500)  # as a breakpoint, or a slow disk, would

    def on_error(error: Exception) -> None:
        assert isinstance(error, SamplingError)
        ends.append((clock_of(scheduler)(), error.info.code))

    stream = source.pipe(watched(pulse, Limits(idle_s=20)))
    stream.subscribe(on_next, on_error, scheduler=scheduler)
    scheduler.start()
    assert ends == [(212 + 500 + 20, "idle")]
