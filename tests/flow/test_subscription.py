"""`subscribe_with_demand`: never more than was asked for, and nothing lost."""

from __future__ import annotations

import math

import pytest
import reactivex as rx
from hypothesis import given
from hypothesis import strategies as st
from reactivex import Observable, abc
from reactivex.disposable import Disposable

from rx_sampler.demand import Gate, current_demand
from rx_sampler.flow import DemandSubscription, subscribe_with_demand


class Frames:
    """A source that brings several values at a time, and waits where its gate is shut."""

    def __init__(self, *frames: list[int]) -> None:
        self.frames = list(frames)
        self.gate = Gate()
        self.disposed = False
        self._observer: abc.ObserverBase[int] | None = None

    def observable(self) -> Observable[int]:
        def subscribe(
            observer: abc.ObserverBase[int], _scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            self._observer = observer
            self.gate.attach(current_demand())
            return Disposable(self.dispose)

        return Observable(subscribe)

    def dispose(self) -> None:
        self.disposed = True

    def run(self) -> None:
        """Bring frames for as long as somebody wants them."""
        assert self._observer is not None
        while self.frames and not self.gate.is_shut and not self.disposed:
            for value in self.frames.pop(0):
                self._observer.on_next(value)
            if not self.frames:
                self._observer.on_completed()


def test_nothing_comes_before_it_is_asked_for() -> None:
    source, seen, ends = Frames([1, 2, 3], [4], [5, 6]), list[int](), list[bool]()
    subscription = subscribe_with_demand(source.observable(), seen.append, on_completed=lambda: ends.append(True))
    source.run()
    assert seen == []
    subscription.request(2)
    source.run()
    assert (seen, subscription.waiting, len(source.frames)) == ([1, 2], 1, 2)
    subscription.request(1)
    source.run()
    assert (seen, subscription.waiting, len(source.frames)) == ([1, 2, 3], 0, 2)
    subscription.request(2)
    source.run()
    assert (seen, subscription.waiting, ends) == ([1, 2, 3, 4, 5], 1, [])
    subscription.request(1)
    assert (seen, ends) == ([1, 2, 3, 4, 5, 6], [True])


def test_on_next_may_itself_request() -> None:
    seen: list[int] = []
    ended: list[bool] = []

    def on_next(value: int) -> None:
        seen.append(value)
        subscription.request(1)

    subscription = subscribe_with_demand(
        rx.from_iterable(range(10_000)), on_next, on_completed=lambda: ended.append(True)
    )
    subscription.request(1)  # and no recursion
    assert seen == list(range(10_000))
    assert ended == [True]


def test_all_of_it() -> None:
    seen: list[int] = []
    subscribe_with_demand(rx.from_iterable(range(5)), seen.append).request(math.inf)
    assert seen == [0, 1, 2, 3, 4]


def test_ends_need_no_request_but_come_behind_the_values() -> None:
    ends: list[object] = []
    subscribe_with_demand(rx.empty(), print, on_completed=lambda: ends.append("completed"))
    broken = OSError("broken")
    subscribe_with_demand(rx.throw(broken), print, ends.append)
    assert ends == ["completed", broken]
    late: list[object] = []
    subscription = subscribe_with_demand(rx.concat(rx.just(1), rx.throw(broken)), late.append, late.append)
    assert late == []
    subscription.request(1)
    assert late == [1, broken]


@pytest.mark.parametrize("inside", [False, True])
def test_dispose_ends_it_whatever_was_requested(inside: bool) -> None:
    source, seen = Frames([1, 2, 3], [4]), list[int]()
    subscription: DemandSubscription[int]

    def on_next(value: int) -> None:
        seen.append(value)
        if inside and value == 2:
            subscription.dispose()

    subscription = subscribe_with_demand(source.observable(), on_next)
    subscription.request(10 if inside else 2)
    source.run()
    subscription.dispose()
    subscription.request(5)
    assert seen == [1, 2]
    assert source.disposed
    assert not source.gate.is_watched


@pytest.mark.parametrize("n", [0, -1, math.nan])
def test_a_request_for_nothing(n: float) -> None:
    subscription = subscribe_with_demand(rx.never(), print)
    with pytest.raises(ValueError, match="request at least 1 value"):
        subscription.request(n)


@given(st.lists(st.lists(st.integers(), min_size=1, max_size=4), max_size=8), st.lists(st.integers(1, 5), max_size=12))
def test_never_more_than_asked_for_and_nothing_lost(frames: list[list[int]], requests: list[int]) -> None:
    whole = [value for frame in frames for value in frame]
    source, seen = Frames(*frames), list[int]()
    subscription = subscribe_with_demand(source.observable(), seen.append)
    asked = 0
    for n in requests:
        asked += n
        subscription.request(n)
        source.run()
        assert seen == whole[: min(asked, len(whole))]
        assert subscription.waiting <= 3  # what a frame brought on top
    subscription.request(math.inf)
    source.run()
    assert seen == whole
