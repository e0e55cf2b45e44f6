"""`by_request`: groups that end with their requests, and the source that lasts as long as anybody listens."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, assert_type

import reactivex as rx
from reactivex import GroupedObservable, Observable, abc
from reactivex import operators as ops
from reactivex.disposable import Disposable
from reactivex.subject import Subject

from rx_sampler.events import ChannelToken, Completed, SamplingEvent
from rx_sampler.operators import by_request
from rx_sampler.testing.diagrams import diagram_of
from rx_sampler.testing.made import completed, failed, text
from rx_sampler.testing.marbles import MarbleError, Marbles, drawn

OTHER = {"x": text("x", of="s"), "y": text("y", of="s"), "Y": completed(of="s"), "Z": failed(of="s")}


def one_group(source: Observable[SamplingEvent], key: str) -> Observable[SamplingEvent]:
    """The first group with this key."""

    def subscribe(
        observer: abc.ObserverBase[SamplingEvent], scheduler: abc.SchedulerBase | None = None
    ) -> abc.DisposableBase:
        def on_group(group: GroupedObservable[str, SamplingEvent]) -> None:
            if group.key == key:
                group.subscribe(observer, scheduler=scheduler)

        return source.pipe(by_request()).subscribe(on_group, lambda _error: None, scheduler=scheduler)

    return Observable(subscribe)


def listening(
    on_event: Callable[[SamplingEvent], None] = lambda _event: None,
) -> Callable[[GroupedObservable[str, SamplingEvent]], None]:
    """A subscriber of every group."""

    def on_group(group: GroupedObservable[str, SamplingEvent]) -> None:
        group.subscribe(on_event)

    return on_group


def logged(source: Observable[SamplingEvent]) -> list[str]:
    """What comes of all groups, and of the stream of groups, as one list of words."""
    log: list[str] = []

    def on_group(group: GroupedObservable[str, SamplingEvent]) -> None:
        log.append(f"group {group.key}")
        group.subscribe(
            lambda event: log.append(f"{group.key} {event.kind}"),
            lambda error: log.append(f"{group.key} {error!r}"),
            lambda: log.append(f"{group.key} |"),
        )

    source.pipe(by_request()).subscribe(on_group, lambda error: log.append(repr(error)), lambda: log.append("|"))
    return log


def test_the_diagram() -> None:
    rows = diagram_of(by_request)
    with Marbles() as marbles:
        source = marbles.events(rows["source"], OTHER)
        keys = source.pipe(by_request(), ops.map(lambda group: group.key))
        marbles.expect(keys).to_be(rows["by_request"], {"g": "r", "h": "s"})
        marbles.expect(one_group(source, "r")).to_be_events(rows["first"], OTHER)
        marbles.expect(one_group(source, "s")).to_be_events(rows["second"], OTHER)


def test_the_type_of_a_group() -> None:
    source: Observable[SamplingEvent] = rx.empty()
    assert_type(source.pipe(by_request()), Observable[GroupedObservable[str, SamplingEvent]])


def test_a_group_has_everything_from_the_first_event_to_the_last() -> None:
    assert logged(rx.from_iterable(drawn("S(Fa)xRYC", OTHER))) == [
        "group r",
        "r stream_started",
        "r first_token",
        "r channel_token",
        "group s",
        "s channel_token",
        "r retrying",
        "s completed",
        "s |",
        "r completed",
        "r |",
        "|",
    ]


def test_a_request_of_one_event_is_a_group_too() -> None:
    assert logged(rx.from_iterable(drawn("Z", OTHER))) == ["group s", "s failed", "s |", "|"]


def test_a_later_request_of_the_same_id_is_a_new_group() -> None:
    assert logged(rx.from_iterable(drawn("SCSX"))) == [
        *("group r", "r stream_started", "r completed", "r |"),
        *("group r", "r stream_started", "r failed", "r |"),
        "|",
    ]


def test_a_request_that_begins_inside_the_end_of_its_namesake_is_a_new_group() -> None:
    subject: Subject[SamplingEvent] = Subject()
    stream = drawn("SC")
    log: list[str] = []

    def on_group(group: GroupedObservable[str, SamplingEvent]) -> None:
        log.append("group")

        def on_event(event: SamplingEvent) -> None:
            log.append(event.kind)
            if isinstance(event, Completed) and log.count("group") == 1:
                subject.on_next(stream[0])

        group.subscribe(on_event)

    subject.pipe(by_request()).subscribe(on_group)
    for event in stream:
        subject.on_next(event)
    assert log == ["group", "stream_started", "completed", "group", "stream_started"]


def test_groups_are_hot() -> None:
    subject: Subject[SamplingEvent] = Subject()
    groups: list[GroupedObservable[str, SamplingEvent]] = []
    subject.pipe(by_request()).subscribe(groups.append)
    stream = drawn("S(Fa)C")
    late: list[Any] = []
    for event in stream[:2]:
        subject.on_next(event)
    groups[0].subscribe(late.append)
    for event in stream[2:]:
        subject.on_next(event)
    assert late == stream[2:]
    groups[0].subscribe(on_completed=lambda: late.append("|"))
    assert late[-1] == "|"


def test_finished_requests_leave_nothing_behind() -> None:
    def groups() -> int:
        gc.collect()
        return sum(issubclass(type(one), GroupedObservable) for one in gc.get_objects())

    subject: Subject[SamplingEvent] = Subject()
    before = groups()
    subscription = subject.pipe(by_request()).subscribe(listening())
    for number in range(200):
        for event in drawn("S(Fa)C", request_id=f"r-{number}"):
            subject.on_next(event)
    assert groups() == before
    subject.on_next(drawn("S", request_id="open")[0])
    assert groups() == before + 1
    subscription.dispose()


def test_an_error_goes_to_the_open_groups_and_then_on() -> None:
    broken = OSError("broken")
    source = rx.concat(rx.from_iterable(drawn("SxCS", OTHER)), rx.throw(broken))
    assert logged(source)[-3:] == [f"s {broken!r}", f"r {broken!r}", repr(broken)]


def test_the_end_of_the_source_ends_the_open_groups_first() -> None:
    assert logged(rx.from_iterable(drawn("SxC", OTHER)))[-2:] == ["s |", "|"]


def test_an_error_in_time() -> None:
    with Marbles() as marbles:
        source = marbles.events("-S-x-C-#", OTHER)
        keys = source.pipe(by_request(), ops.map(lambda group: group.key))
        marbles.expect(keys).to_be("-g-h---#", {"g": "r", "h": "s"}, error=MarbleError)
        marbles.expect(one_group(source, "r")).to_be_events("-S---(C|)")
        marbles.expect(one_group(source, "s")).to_be_events("---x---#", OTHER, error=MarbleError)


def test_the_source_lasts_while_a_group_is_subscribed_to() -> None:
    ended: list[bool] = []
    subject: Subject[SamplingEvent] = Subject()

    def begin(
        observer: abc.ObserverBase[SamplingEvent], scheduler: abc.SchedulerBase | None = None
    ) -> abc.DisposableBase:
        inner = subject.subscribe(observer, scheduler=scheduler)

        def end() -> None:
            ended.append(True)
            inner.dispose()

        return Disposable(end)

    groups: list[str] = []
    seen: list[SamplingEvent] = []
    held: list[abc.DisposableBase] = []

    def on_group(group: GroupedObservable[str, SamplingEvent]) -> None:
        groups.append(group.key)
        held.append(group.subscribe(seen.append))

    outer = Observable(begin).pipe(by_request()).subscribe(on_group)
    stream = drawn("S(Fa)b")
    subject.on_next(stream[0])
    outer.dispose()
    assert not ended
    subject.on_next(stream[2])
    subject.on_next(drawn("x", OTHER)[0])  # of a request that nobody is told of any more
    assert seen == [stream[0], stream[2]]
    assert groups == ["r"]
    held[0].dispose()
    assert ended == [True]
    subject.on_next(stream[3])
    assert len(seen) == 2


def test_the_source_is_let_go_of_with_the_last_group_that_ends() -> None:
    subject: Subject[SamplingEvent] = Subject()
    outer = subject.pipe(by_request()).subscribe(listening())
    stream = drawn("S(Fa)C")
    subject.on_next(stream[0])
    outer.dispose()
    assert subject.observers
    subject.on_next(stream[-1])
    assert not subject.observers


def test_what_a_subscriber_of_a_group_raises_reaches_the_producer() -> None:
    bug = KeyError("bug")
    subject: Subject[SamplingEvent] = Subject()

    def raising(event: SamplingEvent) -> None:
        if isinstance(event, ChannelToken):
            raise bug

    raised: list[Exception] = []
    subject.pipe(by_request()).subscribe(listening(raising))
    for event in drawn("S(Fa)"):
        try:
            subject.on_next(event)
        except KeyError as error:
            raised.append(error)
    assert raised == [bug]
