"""`Marbles`: sources and expectations in virtual time; that each kind of expectation fails where it must."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import reactivex as rx
from reactivex import Observable
from reactivex import operators as ops
from reactivex.subject import Subject

from rx_sampler import sampling_events, sse_frames, typed_chunks
from rx_sampler.errors import SamplingError, SamplingErrorKind
from rx_sampler.events import ChannelToken, SamplingEvent, StreamStarted
from rx_sampler.scheduling import clock_of
from rx_sampler.testing import marbles as module
from rx_sampler.testing.made import text
from rx_sampler.testing.marble_report import Notice
from rx_sampler.testing.marble_time import EPOCH, Subscription
from rx_sampler.testing.marbles import MarbleError, Marbles, diagram_of, drawn


def failure(marbles: Marbles) -> list[str]:
    """The lines of what a failing check says, without the name of this file."""
    with pytest.raises(AssertionError) as caught:
        marbles.flush()
    where, _, said = str(caught.value).partition(": ")
    name, _, line = where.partition(":")
    assert name == "test_marbles.py"
    assert int(line) > 0
    return said.splitlines()


# -- expectations hold


def test_values_and_subscriptions() -> None:
    with Marbles() as marbles:
        source = marbles.cold("-a-b-|", {"a": 1, "b": 2})
        marbles.expect(source.pipe(ops.map(str))).to_be("-x-y-|", {"x": "1", "y": "2"})
        marbles.expect_subscriptions(source).to_be("^----!")


def test_letters_stand_for_themselves() -> None:
    with Marbles() as marbles:
        marbles.expect(marbles.cold("-a-b-|", {"b": "c"})).to_be("-a-c-|")


def test_time_groups_and_operators_with_timers() -> None:
    with Marbles() as marbles:
        source = marbles.cold("-a-b-c|")
        delayed = source.pipe(ops.concat_map(lambda value: rx.of(value).pipe(ops.delay(0.010))))
        marbles.expect(delayed).to_be("-- 9ms a 9ms b 9ms (c|)")
        marbles.expect_subscriptions(source).to_be("^-----!")
        marbles.expect(marbles.cold("-a-b-c--------|").pipe(ops.debounce(0.005))).to_be("----------c---|")
        marbles.expect(marbles.cold("-a|").pipe(ops.delay(10.0))).to_be("- 10s a|")


def test_hours_pass_in_no_time_and_exactly() -> None:
    with Marbles() as marbles:
        marbles.expect(rx.timer(86_400.0)).to_be("1440m (0|)", {"0": 0})


def test_hundreds_of_values_at_one_time() -> None:
    with Marbles() as marbles:
        many = marbles.cold("-a|").pipe(ops.flat_map(lambda _: rx.from_iterable(range(500))))
        same = marbles.cold(f"-({'a' * 500})")
        marbles.expect(many.pipe(ops.count())).to_be("--(n|)", {"n": 500})
        marbles.expect(same.pipe(ops.delay(0.001), ops.map(lambda _: clock_of(marbles.scheduler)()))).to_be(
            f"--({'t' * 500})", {"t": 0.002}
        )


def test_hot_and_cold_merged_and_twice_subscribed() -> None:
    with Marbles() as marbles:
        cold, hot = marbles.cold("-a-c-e|"), marbles.hot("^-b-d-f|")
        merged = rx.merge(cold, hot)
        marbles.expect(merged).to_be("-abcdef|")
        marbles.expect(merged).to_equal(marbles.cold("-abcdef|"))
        marbles.expect_subscriptions(cold).to_be("^-----!", "^-----!")
        marbles.expect_subscriptions(hot).to_be("^------!", "^------!")


def test_hot_frames_count_from_the_subscription_point() -> None:
    with Marbles() as marbles:
        marbles.expect(marbles.hot("-a-^-b-c|")).to_be("--b-c|")
        marbles.expect(marbles.hot("--a--b|"), until="---^").to_be("-----b|")
        marbles.expect(marbles.hot("a|-^--")).to_be("|")
        marbles.expect(marbles.hot("--#-^", error=OSError("x"))).to_be("#", error=OSError("x"))


def test_an_event_at_time_zero_is_seen() -> None:
    with Marbles() as marbles:
        marbles.expect(marbles.hot("a-b|")).to_be("a-b|")
        marbles.expect(marbles.cold("(ab|)")).to_be("(ab|)")
        marbles.expect(marbles.hot("--a-|"), until="--^").to_be("--a-|")


@pytest.mark.parametrize("kind", ["cold", "hot"])
def test_unsubscription_comes_before_what_happens_at_that_time(kind: str) -> None:
    with Marbles() as marbles:
        source: Any = getattr(marbles, kind)("-a-b-c-|")
        marbles.expect(source, until="^--!").to_be("-a")
        marbles.expect(source, until="^---!").to_be("-a-b")
        marbles.expect_subscriptions(source).to_be("^--!", "^---!")


def test_a_late_subscription_is_seen_at_its_times() -> None:
    with Marbles() as marbles:
        source = marbles.cold("-a-b|")
        marbles.expect(source, until="---^").to_be("----a-b|")
        marbles.expect(source, until="---^--!").to_be("----a")
        marbles.expect(source, until="-(^!)").to_be("-")
        marbles.expect_subscriptions(source).to_be("-(^!)", "---^---!", "---^--!")


def test_what_repeats_itself_is_bounded_by_until() -> None:
    with Marbles() as marbles:
        marbles.expect(rx.interval(0.002), until="^------!").to_be("--0-1-2", {"0": 0, "1": 1, "2": 2})


def test_no_subscription() -> None:
    with Marbles() as marbles:
        source = marbles.cold("-a|")
        marbles.expect(rx.empty()).to_be("|")
        marbles.expect_subscriptions(source).to_be()
        marbles.expect_subscriptions(source).to_be("")
        marbles.expect_subscriptions(source).to_be("-----")


def test_several_expectations_on_one_source() -> None:
    with Marbles() as marbles:
        source = marbles.cold("-a-b|", {"a": 1, "b": 2})
        marbles.expect(source.pipe(ops.sum())).to_be("----(s|)", {"s": 3})
        marbles.expect(source.pipe(ops.first())).to_be("-(a|)", {"a": 1})
        marbles.expect_subscriptions(source).to_be("^---!", "^!")


def test_what_is_expected_is_subscribed_to_with_the_scheduler() -> None:
    with Marbles() as marbles:
        cold, hot = marbles.cold("-a|"), marbles.hot("-a|")
        marbles.expect(rx.concat(cold, hot)).to_be("-a|")
    assert cold.schedulers == hot.schedulers == [marbles.scheduler]


def test_no_thread_is_started() -> None:
    before = set(threading.enumerate())
    with Marbles() as marbles:
        timed = marbles.cold("-a---b|").pipe(ops.delay(0.001), ops.timeout(1.0), ops.debounce(0.001), ops.timestamp())
        marbles.expect(timed.pipe(ops.map(lambda stamped: stamped.timestamp - EPOCH))).to_be(
            "---a---(b|)", {"a": timedelta(milliseconds=3), "b": timedelta(milliseconds=7)}
        )
    assert set(threading.enumerate()) == before


# -- errors


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        SamplingError.of(SamplingErrorKind.HTTP, "cut", is_retryable=True),
        ValueError,
    ],
)
def test_errors(error: Any) -> None:
    with Marbles() as marbles:
        marbles.expect(marbles.cold("-#", error=error)).to_be("-#", error=error)


def test_the_error_of_no_name() -> None:
    with Marbles() as marbles:
        marbles.expect(marbles.cold("-#")).to_be("-#")
        marbles.expect(marbles.hot("-#")).to_be("-#", error=MarbleError)
        marbles.expect(marbles.cold("-#", error=KeyError)).to_be("-#", error=KeyError())


def test_an_error_by_its_type() -> None:
    with Marbles() as marbles:
        source = marbles.cold("-a").pipe(ops.map(lambda _: int("no number")))
        marbles.expect(source).to_be("-#", error=ValueError)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("x"), TypeError("x")),
        (ValueError("x"), ValueError("y")),
        (ValueError("x"), TypeError),
        (ValueError("x"), None),
        (None, ValueError),
        (SamplingError.of(SamplingErrorKind.HTTP, "x"), SamplingError.of(SamplingErrorKind.API, "x")),
    ],
)
def test_another_error_is_a_difference(error: Any, expected: Any) -> None:
    marbles = Marbles()
    marbles.expect(marbles.cold("-#", error=error)).to_be("-#", error=expected)
    assert failure(marbles)[0].startswith("expected error ")


def test_an_error_that_no_sign_stands_for_is_refused() -> None:
    marbles = Marbles()
    for draw in (marbles.cold, marbles.hot, marbles.events, marbles.hot_events):
        with pytest.raises(ValueError, match="has no #"):
            draw("-a-|", error=OSError())
    with pytest.raises(ValueError, match="has no #"):
        marbles.expect(rx.never()).to_be("-a-|", error=OSError)
    with pytest.raises(ValueError, match="has no #"):
        marbles.expect(rx.never()).to_be_events("-a-|", error=OSError)
    with pytest.raises(ValueError, match="has no #"):
        marbles.wire("-a-|", {"a": b""}, error=OSError())


# -- the block, flush and record


def test_the_block_checks_at_its_end() -> None:
    with pytest.raises(AssertionError, match="expected value 'b'"), Marbles() as marbles:
        marbles.expect(marbles.cold("-a|")).to_be("-b|")


def test_an_exception_in_the_block_is_not_masked() -> None:
    bug = KeyError("bug")
    with pytest.raises(KeyError) as caught, Marbles() as marbles:  # noqa: PT012
        marbles.expect(marbles.cold("-a|")).to_be("-b|")
        marbles.expect(rx.empty())
        raise bug
    assert caught.value is bug
    assert caught.value.__context__ is None


def test_what_an_observer_raises_comes_out_of_flush() -> None:
    marbles = Marbles()
    bug = KeyError("bug")

    def breaks(_: Any) -> None:
        raise bug

    subject = Subject[str]()
    subject.subscribe(breaks)
    marbles.expect(marbles.cold("-a|").pipe(ops.do_action(subject.on_next))).to_be("-#", error=KeyError("bug"))
    marbles.cold("-a").subscribe(breaks)
    with pytest.raises(KeyError) as caught:
        marbles.flush()
    assert caught.value is bug


def test_what_never_ends_is_an_error() -> None:
    marbles = Marbles(max_actions=500)
    marbles.expect(rx.interval(0.001)).to_be("")
    with pytest.raises(RuntimeError, match="until="):
        marbles.flush()


def test_flush_twice_checks_each_expectation_once() -> None:
    marbles = Marbles()
    marbles.expect(marbles.cold("-a|")).to_be("-b|")
    failure(marbles)
    marbles.flush()
    marbles.expect(marbles.cold("-a|")).to_be("-b|")
    failure(marbles)


def test_after_a_flush_everything_counts_from_the_time_it_came_to() -> None:
    with Marbles() as marbles:
        marbles.expect(marbles.cold("---a|")).to_be("---a|")
        marbles.flush()
        assert marbles.scheduler.microseconds == 4_000
        cold, hot = marbles.cold("-a-|"), marbles.hot("a-b-|")
        marbles.expect(cold, until="^-!").to_be("-a")
        marbles.expect(hot, until="--^").to_be("--b-|")
        marbles.expect(hot).to_equal(marbles.cold("a-b-|"))
        marbles.expect_subscriptions(cold).to_be("^-!")
        marbles.expect_subscriptions(hot).to_be("^---!", "--^-!")
        now = marbles.events("-a-b|").pipe(ops.map(lambda event: event.ts - clock_of(marbles.scheduler)()))
        marbles.expect(now).to_be("-z-z|", {"z": 0.0})
        marbles.expect(marbles.events("-a-b|")).to_be_events("-a-b|")


def test_record_gives_what_came() -> None:
    marbles = Marbles()
    source = marbles.cold("-a-b-|", {"a": 1, "b": 2})
    assert marbles.record(source) == [Notice(1, "next", 1), Notice(3, "next", 2), Notice(5, "completed")]
    assert marbles.record(source, until="-^-!") == [Notice(2, "next", 1)]
    assert marbles.record(rx.throw(ValueError("x")))[0].kind == "error"
    marbles.expect_subscriptions(source).to_be("^----!", "------^-!")
    marbles.flush()


def test_record_leaves_the_checks_to_flush() -> None:
    marbles = Marbles()
    marbles.expect(marbles.cold("-a|")).to_be("-b|")
    marbles.record(rx.never())
    assert failure(marbles)[0] == "expected value 'b' at 1 ms; found value 'a' at 1 ms"


def test_time_can_be_stepped_by_hand() -> None:
    with Marbles() as marbles:
        hot = marbles.hot("-a-b-c|")
        latest: list[str] = []
        hot.subscribe(latest.append)
        marbles.scheduler.advance_by(0.003)
        assert latest == ["a", "b"]
        marbles.expect(hot).to_be("-----c|")
        assert hot.subscriptions == [Subscription(0)]


def test_a_source_made_while_time_runs() -> None:
    with Marbles() as marbles:
        late = rx.timer(0.002).pipe(ops.flat_map(lambda _: marbles.cold("-a|")))
        missed = rx.timer(0.002).pipe(ops.flat_map(lambda _: marbles.hot("-a--b|")))
        marbles.expect(late).to_be("---a|")
        marbles.expect(missed).to_be("----b|")


# -- diagrams that are refused


@pytest.mark.parametrize("draw", ["cold", "events"])
def test_a_cold_diagram_has_no_subscription_point(draw: str) -> None:
    with pytest.raises(ValueError, match=r"belongs into a hot diagram") as caught:
        getattr(Marbles(), draw)("-a-^-b")
    assert str(caught.value).splitlines()[1:] == ["  -a-^-b", "     ^"]


def test_names_that_no_diagram_can_have() -> None:
    marbles = Marbles()
    for name in ("ab", "-", ""):
        with pytest.raises(ValueError, match="a name is one character"):
            marbles.cold("-a-", {name: 1})
        with pytest.raises(ValueError, match="a name is one character"):
            marbles.expect(rx.never()).to_be("-a-", {name: 1})


def test_what_cannot_be_read_is_an_error_at_once() -> None:
    marbles = Marbles()
    nothing: Observable[Any] = rx.never()
    reads: list[Callable[[], object]] = [
        lambda: marbles.cold("-a)"),
        lambda: marbles.hot("-a)"),
        lambda: marbles.events("-a)"),
        lambda: marbles.hot_events("-a)"),
        lambda: marbles.wire("-a)", {}),
        lambda: marbles.expect(nothing).to_be("-a)"),
        lambda: marbles.expect(nothing).to_be_events("-a)"),
        lambda: marbles.expect(nothing, until="^-)"),
        lambda: marbles.record(nothing, until="^-)"),
        lambda: marbles.expect_subscriptions(marbles.cold("-")).to_be("^-)"),
    ]
    for read in reads:
        with pytest.raises(ValueError, match="no group is open") as caught:
            read()
        assert str(caught.value).splitlines()[-1] == "    ^"


def test_an_unsubscription_of_nobody() -> None:
    marbles = Marbles()
    with pytest.raises(ValueError, match="draw \\^ where it was") as caught:
        marbles.expect_subscriptions(marbles.cold("-")).to_be("---!")
    assert str(caught.value).splitlines()[1:] == ["  ---!", "     ^"]


# -- events and bytes


@pytest.mark.parametrize(
    ("draw", "diagram", "expected"),
    [
        ("events", "-S-(Fa)- 1.5s b-C|", "-S-(Fa)- 1.5s b-C|"),
        ("hot_events", "-S-(Fa)- 1.5s b-C|", "-S-(Fa)- 1.5s b-C|"),
        ("hot_events", "x-^-S-(Fa)- 1.5s b-C|", "--S-(Fa)- 1.5s b-C|"),
    ],
)
def test_the_clock_agrees_with_the_times_of_events(draw: str, diagram: str, expected: str) -> None:
    kinds = {"S": "stream_started", "F": "first_token", "a": "channel_token", "b": "channel_token", "C": "completed"}
    with Marbles() as marbles:
        clock = clock_of(marbles.scheduler)
        source: Observable[SamplingEvent] = getattr(marbles, draw)(diagram)
        seen = source.pipe(ops.map(lambda event: (event.kind, event.ts - clock())))
        marbles.expect(seen).to_be(expected, {letter: (kind, 0.0) for letter, kind in kinds.items()})


def test_the_times_of_events_are_exact_to_the_millisecond() -> None:
    assert [event.ts for event in drawn("--S-(Fa)- 1.5s b-C|")] == [0.002, 0.004, 0.004, 1.509, 1.511]


def test_events_that_were_drawn_are_those_that_come() -> None:
    with Marbles() as marbles:
        source = marbles.events("-S-(Fa)-b-C|", {"a": text("Hel"), "b": text("lo")}, request_id="x")
        marbles.expect(source).to_be_events("-S-(Fa)-b-C|", {"a": text("Hel"), "b": text("lo")}, request_id="x")
        said = source.pipe(ops.map(lambda event: event.text if isinstance(event, ChannelToken) else event.kind))
        names = {"S": "stream_started", "F": "first_token", "a": "Hel", "b": "lo", "C": "completed"}
        marbles.expect(said).to_be("-S-(Fa)-b-C|", names)
        made = drawn("-S-(Fa)-b-C|", {"a": text("Hel"), "b": text("lo")}, request_id="x")
        marbles.expect(source).to_be("-S-(Fa)-b-C|", dict(zip("SFabC", made, strict=True)))


def test_events_can_break_off() -> None:
    with Marbles() as marbles:
        broken = marbles.events("-S-(Fa)-#", error=SamplingError.of(SamplingErrorKind.HTTP, "cut"))
        expected = SamplingError.of(SamplingErrorKind.HTTP, "cut")
        marbles.expect(broken).to_be_events("-S-(Fa)-#", error=expected)


def test_hot_events_have_begun_before_the_subscription() -> None:
    marbles = Marbles()
    source: Observable[SamplingEvent] = marbles.hot_events("-S-(Fa)-^-b-C|")
    notices = marbles.record(source)
    assert [(notice.at_ms, getattr(notice.value, "kind", "")) for notice in notices] == [
        (2, "channel_token"),
        (4, "completed"),
        (5, ""),
    ]
    assert notices[0].value.chunk_index == 2
    assert notices[1].value.response.text == "ab"
    assert notices[1].value.metrics.time_to_stream_started_ms == pytest.approx(1.0)
    assert notices[1].value.metrics.time_to_first_token_ms == pytest.approx(2.0)


def test_a_late_subscription_gets_the_same_events() -> None:
    marbles = Marbles()
    source = marbles.events("-S|")
    first, second = marbles.record(source), marbles.record(source)
    assert first == second
    assert isinstance(first[0].value, StreamStarted)


def test_what_announces_nothing_is_shown() -> None:
    for diagram, place, what in (("-SF-C", 2, "completed"), ("-SF|", 2, "nothing"), ("-S(FF)a", 3, "nothing")):
        with pytest.raises(ValueError, match=f"F announces the token behind it, and {what}") as caught:
            Marbles().events(diagram)
        assert str(caught.value).splitlines()[1:] == [f"  {diagram}", f"{' ' * (place + 2)}^"]


WIRE = b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n'
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def test_bytes_off_the_wire_become_events_at_their_times() -> None:
    with Marbles() as marbles:
        first = WIRE % b"Hel"
        reads = marbles.wire("-a--b-c|", {"a": [first[:9], first[9:]], "b": WIRE % b"lo", "c": END})
        events = reads.pipe(sse_frames(), typed_chunks("chat_completions"), sampling_events("chat_completions"))
        tokens = events.pipe(ops.filter(lambda event: isinstance(event, ChannelToken)))
        brief = tokens.pipe(ops.map(lambda token: (getattr(token, "text", ""), token.ts)))
        marbles.expect(brief).to_be("-a--b-|", {"a": ("Hel", 0.001), "b": ("lo", 0.004)})


def test_reads_at_one_time_and_a_broken_connection() -> None:
    with Marbles() as marbles:
        reads = marbles.wire("-a-(bc)-#", {"a": b"1", "b": [b"2", b"3"], "c": []}, error=OSError("reset"))
        marbles.expect(reads).to_be("-1-(23)-#", {"1": b"1", "2": b"2", "3": b"3"}, error=OSError("reset"))


def test_a_letter_without_bytes() -> None:
    for reads, known in (({"a": b"x"}, "'a'"), ({}, "nothing")):
        with pytest.raises(ValueError, match=f"reads has {known}"):
            Marbles().wire("-b-|" if reads else "-a-|", reads)
    with pytest.raises(ValueError, match="no bytes for 'b'") as caught:
        Marbles().wire("-a-b|", {"a": b"x"})
    assert str(caught.value).splitlines()[1:] == ["  -a-b|", "     ^"]


def test_the_reader_of_docstrings_is_at_hand() -> None:
    assert module.diagram_of is diagram_of
