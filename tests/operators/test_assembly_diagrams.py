"""The marble diagrams of the operators that assemble an answer, as their docstrings draw them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reactivex import Observable
from reactivex import operators as ops

from rx_sampler.conversation import ReasoningItem, TextItem
from rx_sampler.errors import SamplingError
from rx_sampler.events import Completed, SamplingEvent
from rx_sampler.operators.accumulate import accumulate
from rx_sampler.operators.arguments import partial_arguments
from rx_sampler.operators.lines import lines, sentences
from rx_sampler.operators.outcome import commit_on, unwrap
from rx_sampler.operators.pacing import smooth
from rx_sampler.operators.structured import partial_json
from rx_sampler.operators.think_tags import split_think_tags
from rx_sampler.operators.tools import tool_calls
from rx_sampler.testing.made import completed, text, tool
from rx_sampler.testing.marbles import Marbles, diagram_of

from .assembling import call

Operator = Callable[[Observable[SamplingEvent]], Observable[Any]]


def shows(
    operator: Operator,
    rows: dict[str, str],
    name: str,
    events: dict[str, Any],
    values: dict[str, Any],
    view: Callable[[Any], object],
) -> None:
    """What comes out, looked at through `view`, is as the row of that name says."""
    with Marbles() as marbles:
        source = marbles.events(rows["source"], events)
        marbles.expect(source.pipe(operator, ops.map(view))).to_be(rows[name], values)


def brief(event: SamplingEvent) -> object:
    """An event in a word: its text with channel and number where it is a token."""
    if event.kind == "channel_token":
        return (event.text, event.channel, event.chunk_index)
    return event.kind


KINDS = {"S": "stream_started", "F": "first_token", "C": "completed", "R": "retrying", "X": "failed"}


def said(*tokens: str, channel: str = "text") -> list[tuple[str, str, int]]:
    return [(one, channel, number) for number, one in enumerate(tokens, 1)]


def test_accumulate() -> None:
    values = {"e": "", "x": "a", "y": "ab", "z": "c"}
    events = {"C": completed("c")}
    shows(accumulate(), diagram_of(accumulate), "accumulate", events, values, lambda one: one.text)


def test_tool_calls() -> None:
    whole = call('{"a":1}')
    events = {
        "t": tool(0, id="c", name="f", arguments='{"a":'),
        "u": tool(0, arguments="1}"),
        "C": completed(whole),
    }
    rows = diagram_of(tool_calls)
    shows(tool_calls(), rows, "tool_calls", events, {"x": whole}, lambda one: one.call)
    shows(tool_calls(early=True), rows, "early", events, {"x": whole}, lambda one: one.call)


def test_partial_arguments() -> None:
    events = {
        "s": tool(0, id="c", name="f", arguments='{"a": '),
        "t": tool(0, arguments="[1, 2"),
        "u": tool(0, arguments=", 3]}"),
        "C": completed(call('{"a": [1, 2, 3]}')),
    }
    values = {"x": ({"a": [1]}, False), "y": ({"a": [1, 2, 3]}, True)}
    rows = diagram_of(partial_arguments)
    shows(partial_arguments(), rows, "partial_arguments", events, values, lambda one: (one.arguments, one.complete))


def test_partial_json() -> None:
    events = {"a": text("[1,"), "b": text(" 2"), "c": text(", 3]"), "C": completed("[1, 2, 3]")}
    values = {"x": ([1], False), "y": ([1, 2, 3], False), "z": ([1, 2, 3], True)}
    rows = diagram_of(partial_json)
    shows(partial_json(list[int]), rows, "partial_json", events, values, lambda one: (one.value, one.complete))


def test_lines() -> None:
    events = {"x": text("a\nb"), "y": text("c\n"), "z": text("d"), "C": completed("a\nbc\nd")}
    one, two, three = said("a\n", "bc\n", "d")
    shows(lines(), diagram_of(lines), "lines", events, {**KINDS, "1": one, "2": two, "3": three}, brief)


def test_sentences() -> None:
    events = {"x": text("Yes. "), "y": text("No"), "z": text("!"), "C": completed("Yes. No!")}
    one, two = said("Yes. ", "No!")
    shows(sentences(), diagram_of(sentences), "sentences", events, {**KINDS, "1": one, "2": two}, brief)


def test_split_think_tags() -> None:
    whole = "<think>hm</think>Yes"
    events = {"x": text("<th"), "y": text("ink>hm</think>"), "z": text("Yes"), "C": completed(whole)}
    values = {**KINDS, "1": ("hm", "reasoning", 1), "z": ("Yes", "text", 2)}
    shows(split_think_tags(), diagram_of(split_think_tags), "split_think_tags", events, values, brief)
    items = (ReasoningItem(text="hm"), TextItem(text="Yes"))
    with Marbles() as marbles:
        source = marbles.events("(FxC|)", {"x": text(whole), "C": completed(whole)})
        ends = source.pipe(split_think_tags(), ops.map(lambda one: isinstance(one, Completed) and one.response.items))
        marbles.expect(ends).to_be("(FrtC|)", {"F": False, "r": False, "t": False, "C": items})


def test_smooth() -> None:
    letters = {letter: (letter, "text", number) for number, letter in enumerate("abcde", 1)}
    shows(smooth(0.005, 0.01), diagram_of(smooth), "smooth", {}, {**KINDS, **letters}, brief)


def test_unwrap() -> None:
    rows = diagram_of(unwrap)
    with Marbles() as marbles:
        source = marbles.events(rows["source"], {})
        marbles.expect(source.pipe(unwrap(), ops.map(brief))).to_be(
            rows["unwrap"], {**KINDS, "a": ("a", "text", 1)}, error=SamplingError
        )


def test_commit_on() -> None:
    shows(commit_on(), diagram_of(commit_on), "commit_on", {}, {**KINDS, "a": ("a", "text", 1)}, brief)
