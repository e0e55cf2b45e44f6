"""`check_operator`: each rule by an operator that breaks it, and those that keep all of them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import pytest
from reactivex import Observable, abc
from reactivex import operators as ops
from reactivex.disposable import CompositeDisposable, Disposable
from reactivex.scheduler import NewThreadScheduler

from rx_sampler.errors import SamplingError
from rx_sampler.events import Completed, Failed, Retrying, SamplingEvent
from rx_sampler.stage import Machine, through
from rx_sampler.testing.grammar import check_events
from rx_sampler.testing.operator_check import SAMPLE_STREAMS, check_operator

Operator = Callable[[Observable[Any]], Observable[Any]]


def built(
    subscribe: Callable[[Observable[Any], abc.ObserverBase[Any], abc.SchedulerBase | None], abc.DisposableBase],
) -> Operator:
    """An operator by hand, with as many mistakes as one likes."""
    return lambda source: Observable(lambda observer, scheduler=None: subscribe(source, observer, scheduler))


class Bare(Observable[Any]):
    """Subscribes as told, without Rx's own care for what comes behind an end or a dispose."""

    def __init__(self, source: Observable[Any], subscribe: Callable[..., abc.DisposableBase]) -> None:
        super().__init__()
        self._source = source
        self._told = subscribe

    def subscribe(
        self, on_next: Any = None, on_error: Any = None, on_completed: Any = None, *, scheduler: Any = None
    ) -> Any:
        return self._told(self._source, on_next, on_error, on_completed, scheduler)


def bare(subscribe: Callable[[Observable[Any], Any, Any, Any, Any], abc.DisposableBase]) -> Operator:
    return lambda source: Bare(source, subscribe)


def doing(act: Callable[[], None]) -> Callable[..., None]:
    """What a scheduler calls."""

    def happen(_scheduler: abc.SchedulerBase, _state: object = None) -> None:
        act()

    return happen


def refused(make: Callable[[], Operator], why: str, **options: Any) -> None:
    with pytest.raises(AssertionError, match=why):
        check_operator(make, **options)


def test_the_sample_streams_are_legal() -> None:
    for stream in SAMPLE_STREAMS:
        check_events(stream)


def test_operators_that_keep_the_rules() -> None:
    keeping: list[Callable[[], Operator]] = [
        lambda: ops.map(str),
        lambda: ops.filter(lambda value: not isinstance(value, Retrying)),
        lambda: ops.concat(),
    ]
    for make in keeping:
        check_operator(make)


def test_values_of_any_kind() -> None:
    check_operator(lambda: ops.scan(lambda total, value: total + value, 0), [[1, 2, 3], []], per_request=False)


def test_outputs_that_cannot_be_compared_are_looked_at_through_a_view() -> None:
    refused(lambda: ops.map(lambda _value: object()), "gives something else than alone")
    check_operator(lambda: ops.map(lambda _value: object()), view=lambda _output: "an object")


def test_it_must_not_subscribe_before_it_is_subscribed_to() -> None:
    def eager(source: Observable[Any]) -> Observable[Any]:
        source.subscribe(print, print)
        return source

    refused(lambda: eager, "before anybody subscribes to it")


def test_it_must_subscribe() -> None:
    refused(lambda: lambda _source: Observable(lambda observer, _scheduler=None: Disposable()), "does not subscribe")  # noqa: ARG005


def test_the_scheduler_is_to_be_handed_on() -> None:
    refused(lambda: built(lambda source, observer, _scheduler: source.subscribe(observer)), "hand the scheduler on")


@pytest.mark.parametrize("level", ["of the module", "of the operator", "of the observable"])
def test_state_belongs_to_the_subscription(level: str) -> None:
    everybodys: list[int] = []

    def counting(seen: list[int]) -> Callable[[Any], tuple[int, Any]]:
        def count(value: Any) -> tuple[int, Any]:
            seen.append(1)
            return len(seen), value

        return count

    def make() -> Operator:
        mine: list[int] = []

        def operator(source: Observable[Any]) -> Observable[Any]:
            of_the_observable: list[int] = []
            seen = {"of the module": everybodys, "of the operator": mine, "of the observable": of_the_observable}[level]
            return source.pipe(ops.map(counting(seen)))

        return operator

    refused(make, "subscribed to a second time, it gives something else than alone", per_request=False, restarts=False)


def test_a_second_application_knows_nothing_of_the_first() -> None:
    def make() -> Operator:
        applied = 0

        def operator(source: Observable[Any]) -> Observable[Any]:
            nonlocal applied
            applied += 1
            number = applied
            return source.pipe(ops.map(lambda value: (number, value)))

        return operator

    refused(make, "applied to its second source, it gives something else than alone", streams=[[1]])


@pytest.mark.parametrize(
    ("reset_at", "noticed"),
    [("its beginning", "subscribed to twice at a time"), ("its end", "subscribed to while another subscription runs")],
)
def test_two_subscriptions_at_a_time(reset_at: str, noticed: str) -> None:
    def make() -> Operator:
        count = 0

        def subscribe(source: Observable[Any], observer: abc.ObserverBase[Any], scheduler: Any) -> abc.DisposableBase:
            def on_next(value: Any) -> None:
                nonlocal count
                count += 1
                observer.on_next((count, value))

            def on_completed() -> None:
                nonlocal count
                if reset_at == "its end":
                    count = 0
                observer.on_completed()

            nonlocal count
            if reset_at == "its beginning":
                count = 0
            return source.subscribe(on_next, observer.on_error, on_completed, scheduler=scheduler)

        return built(subscribe)

    refused(make, f"{noticed}, it gives something else than alone", streams=[[1, 2, 3]], per_request=False)


def test_dispose_reaches_the_source() -> None:
    def leaking(source: Observable[Any], observer: abc.ObserverBase[Any], scheduler: Any) -> abc.DisposableBase:
        source.subscribe(observer, scheduler=scheduler)
        return Disposable()

    refused(lambda: built(leaking), "holds on to its source")


def test_dispose_removes_timers() -> None:
    def late(source: Observable[Any], observer: abc.ObserverBase[Any], scheduler: Any) -> abc.DisposableBase:
        def on_next(value: Any) -> None:
            scheduler.schedule_relative(0.002, doing(lambda: observer.on_next(value)))

        def on_completed() -> None:
            scheduler.schedule_relative(0.002, doing(observer.on_completed))

        return source.subscribe(on_next, observer.on_error, on_completed, scheduler=scheduler)

    refused(lambda: built(late), "leaves . timers behind")


@pytest.mark.parametrize("times", [0, 2])
def test_it_ends_once(times: int) -> None:
    def silent(
        source: Observable[Any], on_next: Any, on_error: Any, on_completed: Any, scheduler: Any
    ) -> abc.DisposableBase:
        """Its observers are not kept from hearing things twice."""

        def end() -> None:
            for _ in range(times):
                on_completed()

        return source.subscribe(on_next, on_error, end, scheduler=scheduler)

    refused(lambda: bare(silent), "does not end once, and last")


def test_errors_are_passed_on_as_they_are() -> None:
    def wrapping(source: Observable[Any], observer: abc.ObserverBase[Any], scheduler: Any) -> abc.DisposableBase:
        def on_error(error: Exception) -> None:
            observer.on_error(OSError(str(error)))

        return source.subscribe(observer.on_next, on_error, observer.on_completed, scheduler=scheduler)

    def swallowing(source: Observable[Any], observer: abc.ObserverBase[Any], scheduler: Any) -> abc.DisposableBase:
        return source.subscribe(
            observer.on_next, lambda _error: observer.on_completed(), observer.on_completed, scheduler=scheduler
        )

    refused(lambda: built(wrapping), "its source failed with SourceError.* and what comes is error OSError")
    check_operator(lambda: built(wrapping), passes_errors=False)
    refused(lambda: built(swallowing), "its source failed with SourceError.* and what comes is completion")


def test_no_thread_is_started() -> None:
    def threaded(source: Observable[Any], observer: abc.ObserverBase[Any], scheduler: Any) -> abc.DisposableBase:
        timer = NewThreadScheduler().schedule_relative(3600, doing(lambda: None))
        threads.append(timer)
        return source.subscribe(observer, scheduler=scheduler)

    threads: list[abc.DisposableBase] = []
    try:
        refused(lambda: built(threaded), "it started Thread", streams=[[1]])
    finally:
        CompositeDisposable(threads).dispose()


def test_what_a_subscriber_raises_is_not_caught() -> None:
    def guarding(source: Observable[Any], observer: abc.ObserverBase[Any], scheduler: Any) -> abc.DisposableBase:
        def on_next(value: Any) -> None:
            with contextlib.suppress(KeyError):
                observer.on_next(value)

        return source.subscribe(on_next, observer.on_error, observer.on_completed, scheduler=scheduler)

    refused(lambda: built(guarding), "a subscriber raised at output 1, and the producer was told")
    check_operator(lambda: built(guarding), guards_subscribers=True)


class Numbering(Machine[SamplingEvent, tuple[int, SamplingEvent]]):
    """Numbers events, and may forget to tell requests or attempts apart."""

    def __init__(self, *, by_request: bool, restarts: bool) -> None:
        self._by_request = by_request
        self._restarts = restarts
        self._counts: dict[str, int] = {}

    def feed(self, item: SamplingEvent) -> Iterable[tuple[int, SamplingEvent]]:
        key = item.request_id if self._by_request else ""
        self._counts[key] = number = self._counts.get(key, 0) + 1
        if (self._restarts and isinstance(item, Retrying)) or isinstance(item, Completed | Failed):
            self._counts[key] = 0
        return ((number, item),)


def test_requests_are_told_apart_and_attempts_start_anew() -> None:
    check_operator(lambda: through(lambda: Numbering(by_request=True, restarts=True)))
    refused(
        lambda: through(lambda: Numbering(by_request=False, restarts=True)),
        "among others, at . ms",
    )
    refused(
        lambda: through(lambda: Numbering(by_request=True, restarts=False)),
        "what was before a Retrying makes a difference behind it",
    )
    careless = lambda: through(lambda: Numbering(by_request=False, restarts=False))  # noqa: E731
    check_operator(careless, per_request=False, restarts=False)


def test_events_of_one_request_keep_their_order_among_others() -> None:
    class Swapping(Machine[SamplingEvent, SamplingEvent]):
        """Turns round two events in a row, whosever they are."""

        held: SamplingEvent | None = None

        def feed(self, item: SamplingEvent) -> Iterable[SamplingEvent]:
            held, self.held = self.held, item if self.held is None else None
            return (item, held) if held is not None else ()

        def finish(self) -> Iterable[SamplingEvent]:
            return (self.held,) if self.held is not None else ()

    refused(lambda: through(Swapping), "among others, at . ms", restarts=False)


def test_completion_is_passed_as_completion() -> None:
    def failing(source: Observable[Any], observer: abc.ObserverBase[Any], scheduler: Any) -> abc.DisposableBase:
        end = lambda: observer.on_error(OSError("over"))  # noqa: E731
        return source.subscribe(observer.on_next, observer.on_error, end, scheduler=scheduler)

    refused(lambda: built(failing), "its source completed, and what comes is error OSError.*'over'")
    check_operator(lambda: ops.map(str), [[]])  # an empty stream completes


def test_errors_of_its_own_are_to_be_told() -> None:
    def unless_failed(value: SamplingEvent) -> SamplingEvent:
        if isinstance(value, Failed):
            raise value.to_error()
        return value

    def of_no_event(value: Any) -> Any:
        return value.no_such_field

    refused(lambda: ops.map(of_no_event), "its source completed, and what comes is error AttributeError.* at 1 ms")
    refused(lambda: ops.map(unless_failed), "its source completed, and what comes is error SamplingError")
    refused(lambda: ops.map(of_no_event), "what comes is error AttributeError", own_errors=SamplingError)
    check_operator(lambda: ops.map(unless_failed), per_request=False, own_errors=(KeyError, SamplingError))


def test_it_raises_nothing_into_its_source() -> None:
    def careless(source: Observable[Any], observer: abc.ObserverBase[Any], scheduler: Any) -> abc.DisposableBase:
        def on_next(value: Any) -> None:
            observer.on_next(value.no_such_field)

        return source.subscribe(on_next, observer.on_error, observer.on_completed, scheduler=scheduler)

    refused(lambda: built(careless), r"it raises AttributeError\(.*\) into its source")


def test_its_timers_go_when_it_is_over() -> None:
    def forgetful(source: Observable[Any], observer: abc.ObserverBase[Any], scheduler: Any) -> abc.DisposableBase:
        scheduler.schedule_relative(1.0, doing(lambda: None))
        return source.subscribe(observer, scheduler=scheduler)

    def orderly(source: Observable[Any], observer: abc.ObserverBase[Any], scheduler: Any) -> abc.DisposableBase:
        return CompositeDisposable(
            scheduler.schedule_relative(1.0, doing(lambda: None)), source.subscribe(observer, scheduler=scheduler)
        )

    refused(lambda: built(forgetful), "it is over at 9 ms, and a timer of its runs at 1000 ms")
    check_operator(lambda: built(orderly))  # Rx disposes what an operator returns when it is over


def test_two_sources_at_a_time() -> None:
    def make() -> Operator:
        counts: dict[int, int] = {}

        def operator(source: Observable[Any]) -> Observable[Any]:
            begun = 0

            def subscribe(observer: abc.ObserverBase[Any], scheduler: Any = None) -> abc.DisposableBase:
                def on_next(value: Any) -> None:
                    counts[number] += 1
                    observer.on_next((counts[number], value))

                nonlocal begun
                begun = number = begun + 1
                counts[number] = 0  # its own among those of this source, but not among those of another
                return source.subscribe(on_next, observer.on_error, observer.on_completed, scheduler=scheduler)

            return Observable(subscribe)

        return operator

    refused(make, "applied to two sources at a time", streams=[[1, 2, 3]], per_request=False)


def test_a_source_that_says_all_at_once_loses_nothing() -> None:
    def late(source: Observable[Any], observer: abc.ObserverBase[Any], scheduler: Any) -> abc.DisposableBase:
        ready = False

        def on_next(value: Any) -> None:
            if ready:
                observer.on_next(value)

        listening = source.subscribe(on_next, observer.on_error, observer.on_completed, scheduler=scheduler)
        ready = True
        return listening

    refused(lambda: built(late), "from a source that says all while it is subscribed to, it gives something else")


def test_a_thread_that_is_over_was_started_too() -> None:
    def brief(source: Observable[Any], observer: abc.ObserverBase[Any], scheduler: Any) -> abc.DisposableBase:
        thread = threading.Thread(target=lambda: None, name="a short one")
        thread.start()
        thread.join()
        return source.subscribe(observer, scheduler=scheduler)

    def elsewhere(source: Observable[Any], observer: abc.ObserverBase[Any], scheduler: Any) -> abc.DisposableBase:
        def on_next(value: Any) -> None:
            thread = threading.Thread(target=lambda: values.append(value), name="another")
            thread.start()
            thread.join()

        values: list[Any] = []
        return source.subscribe(on_next, observer.on_error, observer.on_completed, scheduler=scheduler)

    refused(lambda: built(brief), "it started a short one; time is the scheduler's", streams=[[1]])
    refused(lambda: built(elsewhere), "it started another; time is the scheduler's", streams=[[1]])
    start = threading.Thread.start
    check_operator(lambda: ops.map(str), [[1]])
    assert threading.Thread.start is start


def test_threads_of_others_are_no_fault_of_the_operator() -> None:
    stop = threading.Event()

    def elsewhere() -> None:
        while not stop.is_set():
            thread = threading.Thread(target=lambda: None)
            thread.start()
            thread.join()

    other = threading.Thread(target=elsewhere)
    other.start()
    try:
        check_operator(lambda: ops.map(str))
    finally:
        stop.set()
        other.join()


def test_what_a_subscriber_raises_at_completion_is_not_caught() -> None:
    def guarding(source: Observable[Any], observer: abc.ObserverBase[Any], scheduler: Any) -> abc.DisposableBase:
        def on_completed() -> None:
            with contextlib.suppress(KeyError):
                observer.on_completed()

        return source.subscribe(observer.on_next, observer.on_error, on_completed, scheduler=scheduler)

    refused(lambda: built(guarding), r"a subscriber raised at completion, and the producer was told \[\]")


def test_what_a_subscriber_raises_is_not_told_to_it_as_an_error() -> None:
    def telling(
        source: Observable[Any], on_next: Any, on_error: Any, on_completed: Any, scheduler: Any
    ) -> abc.DisposableBase:
        """Its observers hear of what they raised themselves."""

        def telling(value: Any) -> None:
            try:
                on_next(value)
            except KeyError as error:
                on_error(error)
                raise

        return source.subscribe(telling, on_error, on_completed, scheduler=scheduler)

    refused(lambda: bare(telling), "a subscriber raised at output 1, and got its own error by on_error")


def test_dispose_says_nothing_more() -> None:
    def talking(
        source: Observable[Any], on_next: Any, on_error: Any, on_completed: Any, scheduler: Any
    ) -> abc.DisposableBase:
        """Says goodbye to who has gone."""

        listening = source.subscribe(on_next, on_error, on_completed, scheduler=scheduler)

        def leave() -> None:
            listening.dispose()
            on_next("goodbye")

        return Disposable(leave)

    refused(lambda: bare(talking), "disposed after value 0, it still says\n.*'goodbye' at 0.5 ms")


def test_dispose_inside_on_next_is_the_last_that_is_said() -> None:
    def insisting(
        source: Observable[Any], on_next: Any, on_error: Any, on_completed: Any, scheduler: Any
    ) -> abc.DisposableBase:
        """Says all that a value brings, whoever is still there."""

        def twice(value: Any) -> None:
            on_next(value)
            on_next(value)

        return source.subscribe(twice, on_error, on_completed, scheduler=scheduler)

    refused(lambda: bare(insisting), "disposed inside on_next of output 1, it gives 2", streams=[[1]])


def test_an_error_leaves_nothing_behind() -> None:
    def late(
        source: Observable[Any], on_next: Any, on_error: Any, on_completed: Any, scheduler: Any
    ) -> abc.DisposableBase:
        """Passes the error, and has something to say later."""

        def failed(error: Exception) -> None:
            on_error(error)
            scheduler.schedule_relative(0.005, doing(lambda: None))

        return source.subscribe(on_next, failed, on_completed, scheduler=scheduler)

    refused(lambda: bare(late), "its source failed after value 0, it is over at 1 ms, and a timer of its runs at 6 ms")


def test_times_among_others_are_those_alone() -> None:
    def paced(source: Observable[Any], observer: abc.ObserverBase[Any], scheduler: Any) -> abc.DisposableBase:
        """Nothing within two milliseconds of what came before, whosever that was: a pace that all share."""
        timers = CompositeDisposable()
        free_at = scheduler.now

        def say(act: Callable[[], None]) -> None:
            nonlocal free_at
            free_at = max(scheduler.now, free_at + timedelta(milliseconds=2))
            timers.add(scheduler.schedule_absolute(free_at, doing(act)))

        listening = source.subscribe(
            lambda value: say(lambda: observer.on_next(value)),
            lambda error: say(lambda: observer.on_error(error)),
            lambda: say(observer.on_completed),
            scheduler=scheduler,
        )
        return CompositeDisposable(listening, timers)

    streams = [[1, 2], [10, 20]]
    refused(lambda: built(paced), "among others", streams=streams)
    check_operator(lambda: built(paced), streams, per_request=False)


def test_outputs_without_an_id_are_told_apart_by_when_they_come() -> None:
    class Sums(Machine[int, int]):
        """Tens and units are two requests, and it takes them for one."""

        total = 0

        def feed(self, item: int) -> Iterable[int]:
            self.total += item
            return (self.total,)

    class Turned(Machine[int, int]):
        """What one value brings comes in one order alone, and in the other once both have been."""

        def __init__(self) -> None:
            self._seen: set[bool] = set()

        def feed(self, item: int) -> Iterable[int]:
            self._seen.add(item < 10)
            return (item, -item) if len(self._seen) == 1 else (-item, item)

    streams = [[1, 2, 3], [10, 20, 30]]
    refused(lambda: through(Sums), "among others", streams=streams)
    refused(lambda: through(Turned), "among others", streams=streams)
    check_operator(lambda: ops.map(str), streams)
    check_operator(lambda: ops.map(str), [[1, 2], [1, 2], [2, 1]])  # equal values of several streams


def test_the_stream_is_named() -> None:
    with pytest.raises(AssertionError) as failure:
        check_operator(lambda: ops.map(lambda value: value if value != "a" else object()), [[1, 2], ["a"]])
    assert failure.value.__notes__ == ["on stream 2: 'a'"]


def test_timers_go_even_if_the_source_ended_before_they_were_known() -> None:
    def late(source: Observable[Any], observer: abc.ObserverBase[Any], scheduler: Any) -> abc.DisposableBase:
        def on_completed() -> None:
            for timer in timers:
                timer.dispose()
            observer.on_completed()

        timers: list[abc.DisposableBase] = []
        listening = source.subscribe(observer.on_next, observer.on_error, on_completed, scheduler=scheduler)
        timers.append(scheduler.schedule_relative(1.0, doing(lambda: None)))
        return listening

    refused(lambda: built(late), "says all while it is subscribed to, it is over at 0 ms, and a timer")


def test_dispose_inside_on_next_reaches_the_source() -> None:
    def busy(
        source: Observable[Any], on_next: Any, on_error: Any, on_completed: Any, scheduler: Any
    ) -> abc.DisposableBase:
        """Says nothing to who has gone, but forgets to go itself if it was saying something."""
        saying = gone = False

        def say(value: Any) -> None:
            nonlocal saying
            if not gone:
                saying = True
                on_next(value)
                saying = False

        def leave() -> None:
            nonlocal gone
            gone = True
            if not saying:
                listening.dispose()

        def end() -> None:
            if not gone:
                on_completed()

        listening = source.subscribe(say, on_error, end, scheduler=scheduler)
        return Disposable(leave)

    refused(lambda: bare(busy), "disposed inside on_next of output 1, it holds on to its source")


def test_dispose_inside_on_next_removes_timers() -> None:
    def busy(source: Observable[Any], observer: abc.ObserverBase[Any], scheduler: Any) -> abc.DisposableBase:
        """Sets a timer behind what it says, even if nobody is there any more."""

        def on_next(value: Any) -> None:
            observer.on_next(value)
            late.append(scheduler.schedule_relative(0.5, doing(lambda: None)))

        def on_completed() -> None:
            for timer in late:
                timer.dispose()
            observer.on_completed()

        def leave() -> None:
            listening.dispose()
            for timer in late:
                timer.dispose()

        late: list[abc.DisposableBase] = []
        listening = source.subscribe(on_next, observer.on_error, on_completed, scheduler=scheduler)
        return Disposable(leave)

    refused(lambda: built(busy), "disposed inside on_next of output 1, it leaves timers behind")


def test_an_end_before_that_of_the_source_disposes_it() -> None:
    def first(
        source: Observable[Any], on_next: Any, on_error: Any, on_completed: Any, scheduler: Any
    ) -> abc.DisposableBase:
        over = False

        def one(value: Any) -> None:
            nonlocal over
            if not over:
                over = True
                on_next(value)
                on_completed()

        def end() -> None:
            if not over:
                on_completed()

        return source.subscribe(one, on_error, end, scheduler=scheduler)

    refused(lambda: bare(first), "it is over at 1 ms, but holds on to its source")
    check_operator(lambda: ops.take(1), per_request=False, restarts=False)
