"""`accumulate`: snapshots that stay as they are, what they say, and what they cost."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from counted_calls import calls_during

from rx_sampler.conversation import ReasoningItem, RefusalItem, TextItem, ToolCall
from rx_sampler.events import AnnotationAdded, SamplingEvent
from rx_sampler.operators.accumulate import Snapshot, accumulate

from .assembling import MOST, answer, call, completed, delta, failed, retrying, run, started, token


def shown(events: list[SamplingEvent]) -> list[Snapshot]:
    return run(accumulate(), events)


def test_each_snapshot_says_what_had_come_by_then() -> None:
    events = [
        started(),
        token("th", 1, channel="reasoning"),
        token("a", 2),
        token("ink", 3, channel="reasoning"),
        token("b", 4),
        token("no", 5, channel="refusal"),
        token("c", 6),
    ]
    snapshots = shown([*events])
    # Asked from the last to the first and then once more, so that no answer may lean on the order of questions.
    for _ in range(2):
        assert [one.text for one in reversed(snapshots)] == ["abc", "ab", "ab", "a", "a", "", ""]
        assert [one.reasoning for one in snapshots] == ["", "th", "th", "think", "think", "think", "think"]
    assert [one.refusal for one in snapshots] == ["", "", "", "", "", "no", "no"]
    assert [one.chunk_count for one in snapshots] == [0, 1, 2, 3, 4, 5, 6]
    assert [one.event for one in snapshots] == events
    assert {(one.request_id, one.attempt, one.is_over, one.response) for one in snapshots} == {("r", 1, False, None)}


def test_choices_and_channels_of_any_name() -> None:
    last = shown([token("a", 1), token("x", 2, choice=1), token("b", 3), token("!", 4, channel="audio", choice=1)])[-1]
    assert last.text == "ab"
    assert last.channel("text", choice=1) == "x"
    assert last.channel("audio", choice=1) == "!"
    assert last.channel("audio") == ""


def test_retrying_begins_anew_and_leaves_old_snapshots_alone() -> None:
    old, void, new = shown([token("old", 1), retrying(), token("new", 1, attempt=2)])
    assert (old.text, old.attempt, old.chunk_count) == ("old", 1, 1)
    assert (void.text, void.chunk_count, void.event) == ("", 0, retrying())
    assert (new.text, new.attempt, new.chunk_count) == ("new", 2, 1)


def test_retrying_as_the_first_event() -> None:
    (only,) = shown([retrying()])
    assert (only.text, only.tool_calls, only.annotations, only.is_over) == ("", (), (), False)


def test_two_requests_interleaved() -> None:
    snapshots = shown([token("a", 1), token("x", 1, of="s"), token("b", 2), retrying(of="s"), token("c", 3)])
    assert [(one.request_id, one.text) for one in snapshots] == [
        ("r", "a"),
        ("s", "x"),
        ("r", "ab"),
        ("s", ""),
        ("r", "abc"),
    ]


def test_a_terminal_event_ends_the_state_of_its_request() -> None:
    snapshots = shown([token("a", 1), completed("a"), token("b", 1)])
    assert [one.text for one in snapshots] == ["a", "a", "b"]
    assert [one.is_over for one in snapshots] == [False, True, False]


def test_at_the_end_it_says_what_the_response_says() -> None:
    items = (
        ReasoningItem(text="hm"),
        TextItem(text="yes", annotations=({"url": "u"},)),
        RefusalItem(text="no"),
        call('{"a":1}'),
    )
    last = shown([completed(*items)])[-1]
    assert last.response is not None
    assert last.response.items == items
    assert (last.text, last.reasoning, last.refusal) == ("yes", "hm", "no")
    assert last.tool_calls == (call('{"a":1}'),)
    assert last.annotations == ({"url": "u"},)
    assert last.is_over


def test_a_failure_with_and_without_a_partial_response() -> None:
    assert shown([token("a", 1), failed("a")])[-1].response == failed("a").partial
    last = shown([token("a", 1), failed()])[-1]
    assert (last.response, last.text, last.is_over) == (None, "a", True)


def test_tool_calls_as_they_stand() -> None:
    snapshots = shown(
        [
            delta(id="c0", name="f"),
            delta('{"a"'),
            delta(id="c1", name="g", index=1),
            delta(":1}"),
            delta("x", index=0, choice=1),
            delta(id="c9", index=1, arguments="{"),
        ]
    )

    def open_call(id_: str, name: str, arguments: str) -> ToolCall:
        return ToolCall(id=id_, name=name, arguments=arguments, complete=False)

    assert [one.tool_calls for one in snapshots] == [
        (open_call("c0", "f", ""),),
        (open_call("c0", "f", '{"a"'),),
        (open_call("c0", "f", '{"a"'), open_call("c1", "g", "")),
        (open_call("c0", "f", '{"a":1}'), open_call("c1", "g", "")),
        (open_call("c0", "f", '{"a":1}'), open_call("c1", "g", "")),
        (open_call("c0", "f", '{"a":1}'), open_call("c9", "g", "{")),
    ]


def test_annotations_as_they_come() -> None:
    def note(url: str) -> AnnotationAdded:
        return AnnotationAdded(request_id="r", attempt=1, ts=0.0, annotation={"url": url})

    snapshots = shown([note("a"), token("x", 1), note("b")])
    assert [one.annotations for one in snapshots] == [({"url": "a"},), ({"url": "a"},), ({"url": "a"}, {"url": "b"})]


def test_equality_is_that_of_the_events_so_far() -> None:
    one, two = shown([token("a", 1), token("b", 2)]), shown([token("a", 1), token("c", 2)])
    assert one[0] == two[0]
    assert hash(one[0]) == hash(two[0])
    assert one[1] != two[1]
    assert one[0] != one[1]
    assert one[1] == one[1]
    assert one[0] != "a"


def test_a_snapshot_cannot_be_changed() -> None:
    (one,) = shown([token("a", 1)])
    with pytest.raises(AttributeError):
        one.event = token("b", 1)  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(AttributeError):
        one.note = "b"  # pyright: ignore[reportAttributeAccessIssue]


def test_the_repr_is_bounded_and_printable() -> None:
    (one,) = shown([token("a\x1b[31m", 1)])
    assert repr(one) == "Snapshot('r', attempt=1, after channel_token, chunk_count=1, text='a\\x1b[31m')"
    (one,) = shown([token("x" * 100_000, 1)])
    assert len(repr(one)) < 250
    assert "(100000 characters)" in repr(one)


def _stream(n: int) -> list[SamplingEvent]:
    return answer(["tok "] * n)


QUESTIONS: dict[str, Callable[[Snapshot], object]] = {
    "nothing": lambda _: None,
    "text": lambda one: one.text,
    "chunk_count": lambda one: one.chunk_count,
    "annotations": lambda one: one.annotations,
}


@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS.keys())
def test_cost_is_linear_in_the_tokens(ask: Callable[[Snapshot], object]) -> None:
    def work(n: int) -> Callable[[], object]:
        events = _stream(n)

        def ask_each() -> None:
            for one in run(accumulate(), events):
                ask(one)

        return ask_each

    few, many = (calls_during(work(n)) for n in (200, 2000))
    assert many <= MOST * few


def test_a_question_at_each_event_reads_each_event_once() -> None:
    # Calls do not show the length of a loop: count what is looked at.
    class Counting(list[SamplingEvent]):
        read = 0

        def __getitem__(self, key: object) -> SamplingEvent:  # type: ignore[override]
            Counting.read += 1
            return super().__getitem__(key)  # type: ignore[index]

    snapshots = shown(_stream(500))
    log = snapshots[0]._log  # pyright: ignore[reportPrivateUsage]
    log.events = Counting(log.events)
    assert [one.text for one in snapshots[:-1]][-1] == "tok " * 500
    # Each is sorted in once, and looked at once or twice per question for the snapshot's own event.
    assert Counting.read <= 4 * len(snapshots)
