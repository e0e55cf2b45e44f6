"""`each_request`, and what all operators that assemble an answer keep: state, errors, disposal, scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import pytest
from reactivex import Observable, abc
from reactivex.disposable import Disposable
from reactivex.subject import Subject
from reactivex.testing import ReactiveTest, TestScheduler

from rx_sampler.events import SamplingEvent
from rx_sampler.operators.accumulate import accumulate
from rx_sampler.operators.arguments import partial_arguments
from rx_sampler.operators.lines import lines, sentences
from rx_sampler.operators.outcome import commit_on, unwrap
from rx_sampler.operators.pacing import smooth
from rx_sampler.operators.per_request import each_request
from rx_sampler.operators.structured import partial_json
from rx_sampler.operators.think_tags import split_think_tags
from rx_sampler.operators.tools import tool_calls
from rx_sampler.stage import Machine

from .assembling import completed, failed, run, started, token


class Collecting(Machine[SamplingEvent, str]):
    """Holds texts back, and tells them at the end."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def feed(self, item: SamplingEvent) -> Iterable[str]:
        if item.kind == "channel_token":
            if item.text == "bad":
                raise ValueError(item.text)
            self._texts.append(item.text)
            return ()
        return self._told() if item.kind in ("completed", "failed") else ()

    def finish(self) -> Iterable[str]:
        return [*self._told(), "finished"]

    def spill(self) -> Iterable[str]:
        return [*self._told(), "spilt"]

    def _told(self) -> list[str]:
        return ["+".join(self._texts)]


collecting = each_request(Collecting)


def test_a_machine_for_each_request_until_its_terminal_event() -> None:
    events = [
        token("a", 1),
        token("x", 1, of="s"),
        token("b", 2),
        completed("ab"),
        failed(of="s"),
        token("new", 1),
        token("other", 1, of="t"),
    ]
    assert run(collecting, events) == ["a+b", "x", "new", "finished", "other", "finished"]


def test_an_error_of_the_source_or_of_a_machine_spills_what_was_held() -> None:
    for last, error_type in ((OSError("broken"), OSError), (token("bad", 2), ValueError)):
        source: Subject[SamplingEvent] = Subject()
        seen: list[Any] = []
        source.pipe(collecting).subscribe(seen.append, lambda error, seen=seen: seen.append(type(error)))
        source.on_next(token("a", 1))
        source.on_next(token("x", 1, of="s"))
        if isinstance(last, OSError):
            source.on_error(last)
        else:
            source.on_next(last)
            assert not source.observers
        assert seen == ["a", "spilt", "x", "spilt", error_type]


class Passing(Collecting):
    """Lets reasoning pass as it is."""

    def feed(self, item: SamplingEvent) -> Any:
        return item if item.kind == "channel_token" and item.channel == "reasoning" else super().feed(item)


def test_an_event_that_is_returned_itself_passes() -> None:
    hm = token("hm", 2, channel="reasoning")
    out: list[Any] = run(each_request(Passing), [token("a", 1), hm, completed("a")])
    assert out == [hm, "a"]
    assert out[0] is hm


def test_what_a_subscriber_raises_is_not_caught() -> None:
    source: Subject[SamplingEvent] = Subject()
    errors: list[Exception] = []

    def fail(text: str) -> None:
        raise LookupError(text)

    source.pipe(collecting).subscribe(fail, errors.append)
    with pytest.raises(LookupError):
        source.on_next(completed())
    assert errors == []


# -- all of them

OPERATORS: Final[dict[str, Callable[[], Callable[[Observable[SamplingEvent]], Observable[Any]]]]] = {
    "accumulate": accumulate,
    "tool_calls": tool_calls,
    "tool_calls early": lambda: tool_calls(early=True),
    "partial_arguments": partial_arguments,
    "partial_json": lambda: partial_json(list[int]),
    "lines": lines,
    "sentences": sentences,
    "split_think_tags": split_think_tags,
    "smooth": smooth,
    "unwrap": unwrap,
    "commit_on": commit_on,
}
ALL: Final = pytest.mark.parametrize("make", OPERATORS.values(), ids=OPERATORS.keys())
Make = Callable[[], Callable[[Observable[SamplingEvent]], Observable[Any]]]


@ALL
def test_the_scheduler_is_forwarded(make: Make) -> None:
    given: list[abc.SchedulerBase | None] = []

    def subscribe(
        _observer: abc.ObserverBase[SamplingEvent], scheduler: abc.SchedulerBase | None = None
    ) -> abc.DisposableBase:
        given.append(scheduler)
        return Disposable()

    clock = TestScheduler()
    Observable(subscribe).pipe(make()).subscribe(scheduler=clock)
    assert given == [clock]


@ALL
def test_the_end_and_the_error_of_the_source_are_passed(make: Make) -> None:
    broken = OSError("broken")
    ended: list[object] = []
    for finish in ("on_completed", "on_error"):
        subject: Subject[SamplingEvent] = Subject()
        subject.pipe(make()).subscribe(None, ended.append, lambda: ended.append("|"), scheduler=TestScheduler())
        subject.on_next(started())
        getattr(subject, finish)(*([broken] if finish == "on_error" else []))
        assert not subject.observers
    assert ended == ["|", broken]


@ALL
def test_dispose_disposes_the_source_in_midstream(make: Make) -> None:
    clock = TestScheduler()
    source: Any = clock.create_hot_observable(
        ReactiveTest.on_next(210, token("[1,", 1)), ReactiveTest.on_next(230, token(" 2]", 2))
    )
    seen = clock.start(lambda: source.pipe(make()), disposed=225)
    assert all(message.time <= 225 for message in seen.messages)
    assert source.subscriptions == [ReactiveTest.subscribe(200, 225)]


@ALL
def test_subscriptions_share_nothing(make: Make) -> None:
    # The first half to one subscription and the whole to the next: as if the first had not been.
    source: Subject[SamplingEvent] = Subject()
    events = [started(), token("[1,\n", 1), token(" 2]. <think>", 2), completed("[1,\n 2]. <think>")]
    operator = source.pipe(make())
    operator.subscribe(scheduler=TestScheduler())
    for event in events[:2]:
        source.on_next(event)
    again: list[Any] = []
    clock = TestScheduler()
    operator.subscribe(again.append, scheduler=clock)
    alone: list[Any] = []
    other: Subject[SamplingEvent] = Subject()
    other_clock = TestScheduler()
    other.pipe(make()).subscribe(alone.append, scheduler=other_clock)
    for event in events:
        source.on_next(event)
        other.on_next(event)
    clock.start()
    other_clock.start()
    assert again == alone
    assert alone or make in (OPERATORS["tool_calls"], OPERATORS["tool_calls early"], OPERATORS["partial_arguments"])
