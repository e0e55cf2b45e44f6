"""Each kind of expectation fails where it must, and says why."""

from __future__ import annotations

import pytest
import reactivex as rx
from reactivex import operators as ops

from rx_sampler.testing.made import reasoning
from rx_sampler.testing.marbles import Marbles


def failure(marbles: Marbles) -> list[str]:
    """The lines of what a failing check says, without the name of this file."""
    with pytest.raises(AssertionError) as caught:
        marbles.flush()
    where, _, said = str(caught.value).partition(": ")
    name, _, line = where.partition(":")
    assert name == "test_marble_expectation.py"
    assert int(line) > 0
    return said.splitlines()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("-a-b-|", "-a-c-|"),
        ("-a-b-|", "-a--b|"),
        ("-a-b-|", "-a-b--|"),
        ("-a-b-|", "-a-b-#"),
        ("-a-b-|", "-a-b-"),
        ("-a-b-|", "-a-|"),
        ("-a-b-|", ""),
        ("-a-b", "-a-b-|"),
        ("", "|"),
        ("-a-b-|", "-(ab)|"),
        ("-a", "a"),
        ("-a", "-(aa)"),
    ],
)
def test_to_be_fails(source: str, expected: str) -> None:
    marbles = Marbles()
    marbles.expect(marbles.cold(source)).to_be(expected)
    assert failure(marbles)[0].startswith("expected ")


def test_the_message_of_to_be() -> None:
    marbles = Marbles()
    source = marbles.cold("-a-b-|", {"a": 1, "b": 2})
    marbles.expect(source.pipe(ops.map(lambda number: number * 10))).to_be("-x-y-|", {"x": 10, "y": 21})
    assert failure(marbles) == [
        "expected value 21 at 3 ms; found value 20 at 3 ms",
        "expected  -x-y-|",
        "found     -x-a-|",
        "  x = 10",
        "  y = 21",
        "  a = 20",
    ]


def test_to_be_events_fails() -> None:
    for diagram in ("-S-(Fa)-C|", "-S-(Fa)--C|", "-S-(Fb)-b|", "-S-a-b-C|"):
        marbles = Marbles()
        marbles.expect(marbles.events("-S-(Fa)b-C|")).to_be_events(diagram)
        failure(marbles)
    marbles = Marbles()
    marbles.expect(marbles.events("-S-(Fa)b-C|")).to_be_events("-S-(Fa)b-C|", request_id="other")
    assert "in .request_id: expected 'other', found 'r'" in failure(marbles)
    marbles = Marbles()
    marbles.expect(marbles.events("-S-(Fa)b-C|")).to_be_events("-S-(Fa)b-C|", {"a": reasoning("a")})
    assert "in .channel: expected 'reasoning', found 'text'" in failure(marbles)


def test_the_message_of_to_be_events_keeps_the_letters() -> None:
    marbles = Marbles()
    marbles.expect(marbles.events("-S-(Fa)b|")).to_be_events("-S-(Fa)c|")
    _, part, expected, found, *legend = failure(marbles)
    assert part == "in .text: expected 'c', found 'b'"
    assert expected == "expected  -S-(Fa)c|"
    assert found == "found     -S-(Fa)b|"
    assert [line[:20] for line in legend] == [
        "  S = StreamStarted(",
        "  F = FirstToken(req",
        "  a = ChannelToken(r",
        "  c = ChannelToken(r",
        "  b = ChannelToken(r",
    ]


def test_to_equal_fails() -> None:
    for other in ("-a-c|", "-a--b|", "-a-b", ""):
        marbles = Marbles()
        marbles.expect(marbles.cold("-a-b|")).to_equal(marbles.cold(other))
        assert failure(marbles)[0].startswith("expected ")


def test_to_equal_subscribes_to_both_at_the_same_times() -> None:
    with Marbles() as marbles:
        source, other = marbles.cold("-a-b-c|"), marbles.cold("-a-b-c|")
        marbles.expect(source, until="--^---!").to_equal(other)
        marbles.expect_subscriptions(source).to_be("--^---!")
        marbles.expect_subscriptions(other).to_be("--^---!")


@pytest.mark.parametrize(
    ("diagrams", "said"),
    [
        (["^---!"], "subscription 1: expected from 0 ms to 4 ms; found from 0 ms to 3 ms"),
        (["-^-!"], "subscription 1: expected from 1 ms to 3 ms; found from 0 ms to 3 ms"),
        (["^"], "subscription 1: expected from 0 ms on; found from 0 ms to 3 ms"),
        ([], "subscription 1: expected none; found from 0 ms to 3 ms"),
        (["---"], "subscription 1: expected none; found from 0 ms to 3 ms"),
        (["^--!", "^--!"], "subscription 2: expected from 0 ms to 3 ms; found none"),
    ],
)
def test_expect_subscriptions_fails(diagrams: list[str], said: str) -> None:
    marbles = Marbles()
    source = marbles.cold("-a-|")
    marbles.expect(source).to_be("-a-|")
    marbles.expect_subscriptions(source).to_be(*diagrams)
    assert failure(marbles)[0] == said


def test_the_message_of_expect_subscriptions() -> None:
    marbles = Marbles()
    source = marbles.cold("-a-|")
    marbles.expect(source.pipe(ops.repeat(2))).to_be("-a--a-|")
    marbles.expect_subscriptions(source).to_be("^--!", "---(^!)")
    assert failure(marbles) == [
        "subscription 2: expected from 3 ms to 3 ms; found from 3 ms to 6 ms",
        "expected  ^--!",
        "expected  ---(^!)",
        "found     ^--!",
        "found     ---^--!",
    ]


def test_a_subscription_between_frames_is_told_in_words() -> None:
    marbles = Marbles()
    source = marbles.cold("-|")
    marbles.expect(rx.timer(0.0005).pipe(ops.flat_map(lambda _: source))).to_be("")
    marbles.expect_subscriptions(source).to_be("^")
    with pytest.raises(AssertionError, match=r"completion at 1\.5 ms"):
        marbles.flush()
    marbles.expect_subscriptions(source).to_be("^")
    assert failure(marbles) == [
        "subscription 1: expected from 0 ms on; found from 0.5 ms to 1.5 ms",
        "expected  ^",
        "found     from 0.5 ms to 1.5 ms",
    ]


def test_the_failure_names_the_line_of_its_expectation() -> None:
    marbles = Marbles()
    source = marbles.cold("-a|")
    marbles.expect(source).to_be("-a|")
    line = test_the_failure_names_the_line_of_its_expectation.__code__.co_firstlineno + 5
    marbles.expect(source).to_be("-b|")
    with pytest.raises(AssertionError, match=rf"^test_marble_expectation\.py:{line}: expected value 'b'"):
        marbles.flush()


def test_an_expectation_that_says_nothing_fails() -> None:
    marbles = Marbles()
    marbles.expect(rx.empty())
    assert failure(marbles) == ["expect(...) says nothing: call to_be, to_be_events or to_equal on it"]
    marbles.expect_subscriptions(marbles.cold("-"))
    assert failure(marbles) == ["expect_subscriptions(...) says nothing: call to_be on it"]


def test_an_expectation_is_said_once() -> None:
    marbles = Marbles()
    expectation = marbles.expect(marbles.cold("-a"))
    expectation.to_be("-b")
    for say in (
        lambda: expectation.to_be("-a"),
        lambda: expectation.to_equal(marbles.cold("-a")),
        lambda: expectation.to_be_events("-a"),
    ):
        with pytest.raises(ValueError, match="said already"):
            say()
    of_subscriptions = marbles.expect_subscriptions(marbles.cold("-a"))
    of_subscriptions.to_be("^")
    with pytest.raises(ValueError, match="said already"):
        of_subscriptions.to_be()
    assert failure(marbles)[0] == "expected value 'b' at 1 ms; found value 'a' at 1 ms"
