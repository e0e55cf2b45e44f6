"""How machines become operators: one alone, and several as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import reactivex as rx
from hypothesis import given
from hypothesis import strategies as st
from reactivex import Observable, abc
from reactivex.disposable import Disposable
from reactivex.subject import Subject
from reactivex.testing import ReactiveTest, TestScheduler

from rx_sampler.stage import Machine, connect, through

on_next, on_error, on_completed = ReactiveTest.on_next, ReactiveTest.on_error, ReactiveTest.on_completed
subscribe = ReactiveTest.subscribe


class Pairs(Machine[int, tuple[int, int]]):
    """Every two numbers; -1 raises, 0 ends the stream, 99 ends it in an error."""

    def __init__(self) -> None:
        self.held: list[int] = []

    def feed(self, item: int) -> Iterable[tuple[int, int]]:
        if item == -1:
            raise ValueError("minus one")
        if item in (0, 99):
            self.done = True
            self.error = LookupError("ninety-nine") if item else None
            return [(item, item)]
        self.held.append(item)
        if len(self.held) < 2:
            return ()
        pair = (self.held[0], self.held[1])
        self.held.clear()
        return (pair,)

    def finish(self) -> Iterable[tuple[int, int]]:
        if self.held == [7]:
            raise ValueError("seven is left")
        if self.held == [8]:
            self.error = LookupError("eight is left")
        return [(left, 0) for left in self.held]

    def spill(self) -> Iterable[tuple[int, int]]:
        return [(left, -1) for left in self.held]

    def fail(self, error: Exception) -> Exception:
        return KnownError(error)


class KnownError(Exception):
    """What `Pairs.fail` makes of an error."""

    def __init__(self, inner: Exception) -> None:
        super().__init__(str(inner))
        self.inner = inner


class Double(Machine[int, int]):
    def feed(self, item: int) -> Iterator[int]:
        yield item
        yield item


@dataclass
class Outcome:
    items: list[Any]
    end: str


def outcome(source: Observable[Any]) -> Outcome:
    """What a synchronous source gives, and how it ends."""
    seen = Outcome([], "open")

    def end(how: str) -> None:
        assert seen.end == "open"
        seen.end = how

    def item(value: Any) -> None:
        assert seen.end == "open"
        seen.items.append(value)

    source.subscribe(item, lambda error: end(repr(error)), lambda: end("completed"))
    return seen


def pairs_of(*numbers: int, then: Exception | None = None) -> Outcome:
    rest = rx.throw(then) if then else rx.empty()
    return outcome(rx.concat(rx.from_iterable(numbers), rest).pipe(through(Pairs)))


@pytest.mark.parametrize(
    ("numbers", "items", "end"),
    [
        ((), [], "completed"),
        ((1, 2, 3, 4), [(1, 2), (3, 4)], "completed"),
        ((1, 2, 3), [(1, 2), (3, 0)], "completed"),
        ((1, 2, 3, -1, 4, 5), [(1, 2), (3, -1)], "KnownError('minus one')"),
        ((1, 0, 2, 3), [(0, 0)], "completed"),
        ((1, 99, 2, 3), [(99, 99), (1, -1)], "KnownError('ninety-nine')"),
        ((1, 2, 7), [(1, 2), (7, -1)], "KnownError('seven is left')"),
        ((1, 2, 8), [(1, 2), (8, 0), (8, -1)], "KnownError('eight is left')"),
    ],
)
def test_what_a_machine_returns_and_how_it_ends(numbers: tuple[int, ...], items: list[Any], end: str) -> None:
    assert pairs_of(*numbers) == Outcome(items, end)


def test_an_error_of_the_source_comes_after_what_was_held_back_and_through_the_machine() -> None:
    broken = OSError("broken")
    assert pairs_of(1, 2, 3, then=broken) == Outcome([(1, 2), (3, -1)], "KnownError('broken')")
    errors: list[Exception] = []
    rx.throw(broken).pipe(through(Pairs)).subscribe(on_error=errors.append)
    (error,) = errors
    assert isinstance(error, KnownError)
    assert error.inner is broken


def test_by_default_nothing_is_held_back_and_errors_pass() -> None:
    errors: list[Exception] = []
    broken = OSError("broken")
    rx.concat(rx.of(1), rx.throw(broken)).pipe(through(Double)).subscribe(on_error=errors.append)
    assert errors == [broken]
    assert outcome(rx.of(1, 2).pipe(through(Double))) == Outcome([1, 1, 2, 2], "completed")


def test_a_machine_without_feed_is_told_as_an_error() -> None:
    nothing: Callable[[], Machine[int, int]] = Machine
    assert outcome(rx.of(1).pipe(through(nothing))).end == "NotImplementedError()"


def test_times_subscriptions_and_fresh_state_per_subscription() -> None:
    scheduler = TestScheduler()
    source = scheduler.create_cold_observable(on_next(10, 1), on_next(20, 2), on_next(30, 3), on_completed(40))
    made: list[Pairs] = []

    def make() -> Pairs:
        made.append(Pairs())
        return made[-1]

    piped = source.pipe(through(make))
    assert made == []
    first = scheduler.start(lambda: piped, disposed=225)
    assert first.messages == [on_next(220, (1, 2))]
    again: list[tuple[int, int]] = []
    piped.subscribe(again.append, scheduler=scheduler)
    scheduler.start()
    assert again == [(1, 2), (3, 0)]
    assert len(made) == 2
    assert source.subscriptions == [subscribe(200, 225), subscribe(240, 280)]  # the clock runs on to 240


@pytest.mark.parametrize(
    ("item", "last"),
    [
        (0, on_completed(220)),
        (99, on_error(220, KnownError(LookupError("ninety-nine")))),
        (-1, on_error(220, KnownError(ValueError("minus one")))),
    ],
)
def test_a_machine_that_ends_disposes_the_source(item: int, last: Any) -> None:
    scheduler = TestScheduler()
    source = scheduler.create_hot_observable(on_next(210, 1), on_next(220, item), on_next(230, 2), on_next(240, 3))
    seen = scheduler.start(lambda: source.pipe(through(Pairs, Record)))
    assert seen.messages[-1] == last
    assert source.subscriptions == [subscribe(200, 220)]


class Record(Machine[Any, Any]):
    def feed(self, item: Any) -> Iterable[Any]:
        return (item,)


def test_the_scheduler_is_forwarded() -> None:
    given_schedulers: list[abc.SchedulerBase | None] = []

    def subscribe_to(observer: abc.ObserverBase[int], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        given_schedulers.append(scheduler)
        observer.on_completed()
        return Disposable()

    scheduler = TestScheduler()
    source = Observable(subscribe_to)
    source.pipe(through(Pairs)).subscribe(scheduler=scheduler)
    source.pipe(through(Record, Pairs, Record)).subscribe(scheduler=scheduler)
    assert given_schedulers == [scheduler, scheduler]


@pytest.mark.parametrize("ending", [0, 99, -1])
def test_a_source_that_does_not_stop_is_not_heard_after_the_end(ending: int) -> None:
    fed: list[int] = []

    class Counting(Pairs):
        def feed(self, item: int) -> Iterable[tuple[int, int]]:
            fed.append(item)
            return super().feed(item)

    class Deaf(Observable[int]):
        """Emits as it likes, ends or no ends, past Rx's own guard against that."""

        def subscribe(self, on_next: Any = None, on_error: Any = None, on_completed: Any = None, **_: Any) -> Any:
            for item in (1, 2, ending, 3, 4):
                on_next(item)
            on_error(OSError("late"))
            on_completed()
            return Disposable()

    seen = outcome(Deaf().pipe(through(Counting)))
    assert seen.items[:1] == [(1, 2)]
    assert fed == [1, 2, ending]


def test_what_a_subscriber_raises_is_not_the_machines_error() -> None:
    failed: list[Exception] = []

    class Watchful(Record):
        def fail(self, error: Exception) -> Exception:
            failed.append(error)
            return error

    def raising(_item: int) -> None:
        raise LookupError("of a subscriber")

    errors: list[Exception] = []
    source: Subject[int] = Subject()
    source.pipe(through(Watchful)).subscribe(raising, errors.append)
    with pytest.raises(LookupError, match="of a subscriber"):
        source.on_next(1)
    assert (failed, errors) == ([], [])


def test_dispose_inside_an_item_ends_the_stream_there() -> None:
    scheduler = TestScheduler()
    source = scheduler.create_hot_observable(on_next(210, 1), on_next(220, 2))
    seen: list[int] = []

    def once(item: int) -> None:
        seen.append(item)
        subscription.dispose()

    subscription = source.pipe(through(Double, Record)).subscribe(once, scheduler=scheduler)
    scheduler.start()
    assert seen == [1]
    assert source.subscriptions == [subscribe(0, 210)]


# --- several machines as one


@dataclass(frozen=True)
class Script:
    """What a machine does: one step per item, then nothing in particular."""

    steps: tuple[str, ...]
    finish: str
    spill: int
    ends_on_spill: bool


class Scripted(Machine[Any, Any]):
    """Follows a script. Its items name it and what they were made of; so do its errors."""

    def __init__(self, name: str, script: Script) -> None:
        self._name = name
        self._script = script
        self._steps = iter(script.steps)

    def feed(self, item: Any) -> Iterable[Any]:
        if not self._script.ends_on_spill and "spill" in str(item):
            return [f"{self._name}({item})"]
        return self._do(next(self._steps, "one"), item)

    def finish(self) -> Iterable[Any]:
        return self._do(self._script.finish, "finish")

    def spill(self) -> Iterable[Any]:
        return [f"{self._name}.spill{i}" for i in range(self._script.spill)]

    def fail(self, error: Exception) -> Exception:
        return ValueError(f"{error} via {self._name}")

    def _do(self, step: str, item: Any) -> Iterable[Any]:
        if step == "raise":
            raise ValueError(f"raised by {self._name}")
        if step.startswith("done"):
            self.done = True
        if step.endswith("error"):
            self.error = ValueError(f"error of {self._name}")
        return [f"{self._name}{i}({item})" for i in range({"none": 0, "two": 2}.get(step, 1))]


STEPS = st.sampled_from(["none", "one", "one", "two", "two", "done", "done_error", "raise"])
FINISHES = st.sampled_from(["none", "one", "two", "raise", "error", "done", "done_error"])
SCRIPTS = st.builds(
    Script,
    steps=st.lists(STEPS, max_size=6).map(tuple),
    finish=FINISHES,
    spill=st.integers(0, 2),
    ends_on_spill=st.booleans(),
)
SOURCES = st.tuples(st.integers(0, 6), st.sampled_from(["completes", "fails", "stays open"]))


def source_of(count: int, end: str) -> Observable[Any]:
    rest = {"completes": rx.empty(), "fails": rx.throw(ValueError("of the source")), "stays open": rx.never()}[end]
    return rx.concat(rx.from_iterable(range(count)), rest)


@given(SCRIPTS, SCRIPTS, SCRIPTS, SOURCES)
def test_machines_in_one_operator_give_what_one_operator_each_gives(
    a: Script, b: Script, c: Script, source: tuple[int, str]
) -> None:
    def make(name: str, script: Script) -> Callable[[], Machine[Any, Any]]:
        return lambda: Scripted(name, script)

    makers = make("a", a), make("b", b), make("c", c)
    apart = source_of(*source).pipe(*(through(maker) for maker in makers))
    together = source_of(*source).pipe(through(*makers))
    expected = outcome(apart)
    assert outcome(together) == expected
    assert outcome(together) == expected  # and again: nothing is left over


def test_two_machines_by_hand() -> None:
    makers = (lambda: Scripted("a", Script(("two", "done_error"), "none", 1, True)), lambda: Scripted("b", PLAIN))
    assert outcome(rx.of(1, 2, 3).pipe(through(*makers))) == Outcome(
        ["b0(a0(1))", "b0(a1(1))", "b0(a0(2))", "b0(a.spill0)", "b.spill0"], "ValueError('error of a via a via b')"
    )


PLAIN = Script((), "none", 1, True)


def test_a_machine_in_the_middle_that_is_done_completes_those_behind_and_disposes_the_source() -> None:
    scheduler = TestScheduler()
    source = scheduler.create_hot_observable(on_next(210, 1), on_next(220, 2), on_next(230, 3))
    stages = (
        lambda: Scripted("a", PLAIN),
        lambda: Scripted("b", Script(("one", "done"), "one", 1, True)),
        lambda: Scripted("c", Script((), "one", 1, True)),
    )
    seen = scheduler.start(lambda: source.pipe(through(*stages)))
    assert seen.messages == [
        on_next(210, "c0(b0(a0(1)))"),
        on_next(220, "c0(b0(a0(2)))"),
        on_next(220, "c0(finish)"),
        on_completed(220),
    ]
    assert source.subscriptions == [subscribe(200, 220)]


def test_connect_runs_the_given_machines_and_dispose_ends_the_source() -> None:
    scheduler = TestScheduler()
    source = scheduler.create_hot_observable(on_next(210, 1), on_next(220, 2), on_next(230, 3))
    observer = scheduler.create_observer()
    machine = Pairs()
    subscription = connect(source, [machine, Record()], observer, scheduler)

    def leave(_scheduler: abc.SchedulerBase, _state: object = None) -> None:
        subscription.dispose()

    scheduler.schedule_absolute(225.0, leave)
    scheduler.start()
    assert observer.messages == [on_next(220, (1, 2))]
    assert machine.held == []
    assert source.subscriptions == [subscribe(0, 225)]
