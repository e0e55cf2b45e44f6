"""`tool_calls`: which calls, when, each once, and at what cost."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from counted_calls import calls_during
from hypothesis import given
from hypothesis import strategies as st

from rx_sampler.conversation import JsonObject
from rx_sampler.events import SamplingEvent
from rx_sampler.operators import tools
from rx_sampler.operators.open_calls import whole_object
from rx_sampler.operators.tools import FinishedToolCall, tool_calls

from .assembling import MOST, call, completed, delta, every_cut, failed, retrying, run, token


def numbered(out: list[FinishedToolCall]) -> list[tuple[int, int, str]]:
    return [(one.choice, one.tool_index, one.call.arguments) for one in out]


# -- when the answer is whole


def test_the_complete_calls_of_the_response() -> None:
    whole, cut = call('{"a":1}', id="c0"), call('{"a"', id="c1", complete=False)
    free = call("do it", id="c2", custom=True)
    events = [
        delta(id="c0", name="f"),
        delta('{"a":1}'),
        delta(id="c1", name="f", index=1),
        completed(whole, cut, free),
    ]
    assert run(tool_calls(), events) == [
        FinishedToolCall("r", 1, 0, 0, whole),
        FinishedToolCall("r", 1, 2, 0, free),
    ]


@pytest.mark.parametrize("early", [False, True])
def test_nothing_of_a_failed_request_or_a_voided_attempt(early: bool) -> None:
    opened = [delta(id="c", name="f"), delta('{"a"')]
    assert run(tool_calls(early), [*opened, failed(call('{"a":1}'))]) == []
    assert run(tool_calls(early), [*opened, retrying(), completed("no call", attempt=2)]) == []


def test_the_index_is_that_of_the_deltas_where_ids_tell_it() -> None:
    # A response whose items stand in another order than the calls began.
    events = [delta(id="a", name="f"), delta(id="b", name="f", index=1)]
    out = run(tool_calls(), [*events, completed(call("{}", id="b"), call("{}", id="a"))])
    assert [(one.tool_index, one.call.id) for one in out] == [(1, "b"), (0, "a")]


@pytest.mark.parametrize(
    ("opened", "answered"),
    [(("x", "x"), ("x", "x")), (("x", "y"), ("x", "z")), (("", ""), ("", "")), (("x", "x"), ("x",))],
)
def test_the_index_is_the_place_where_ids_do_not_tell_it(opened: tuple[str, ...], answered: tuple[str, ...]) -> None:
    events = [delta(id=one, name="f", index=index) for index, one in enumerate(opened)]
    out = run(tool_calls(), [*events, completed(*(call("{}", id=one) for one in answered))])
    assert [one.tool_index for one in out] == list(range(len(answered)))


# -- early


def test_a_call_comes_with_the_fragment_that_closes_it_and_once() -> None:
    operator = tool_calls(early=True)
    events: list[SamplingEvent] = [
        delta(id="c0", name="f"),
        delta('{"a": "}'),
        delta('\\"}"'),
        delta(id="c1", name="g", index=1),
        delta("}"),
        delta(" {}  ", index=1),
        delta(" \n"),
    ]
    arguments = '{"a": "}\\"}"}'
    whole = [call(arguments + " \n", id="c0"), call(" {}  ", id="c1", name="g")]
    assert [numbered(run(operator, events[:n]))[-1:] for n in range(4, 8)] == [
        [],
        [(0, 0, arguments)],
        [(0, 1, " {}  ")],
        [(0, 1, " {}  ")],
    ]
    out = run(operator, [*events, completed(*whole)])
    assert [one.call for one in out] == [call(arguments, id="c0"), call(" {}  ", id="c1", name="g")]


def test_calls_without_arguments_and_of_custom_tools_come_at_the_end() -> None:
    none, free = call("{}", id="c0"), call("rm -rf", id="c1", custom=True)
    opened = [delta(id="c0", name="f"), delta(id="c1", name="f", index=1), delta("rm -rf", index=1)]
    assert run(tool_calls(early=True), opened) == []
    out = run(tool_calls(early=True), [*opened, completed(none, free)])
    assert [one.call for one in out] == [none, free]


@pytest.mark.parametrize(
    "arguments",
    ['{"a":1} and more', '{"a":1}{"b":2}', "[1]", "{a:1}", '{"a":NaN}', '{"a":1]', "}{", "]}", '"{}"', "nu{}ll"],
)
def test_what_is_not_one_object_never_comes_early(arguments: str) -> None:
    for pieces in ([arguments],) if arguments.startswith('{"a":1}') else every_cut(arguments):
        events = [delta(id="c", name="f"), *(delta(piece) for piece in pieces)]
        assert run(tool_calls(early=True), events) == []


def test_escapes_and_quotes_however_they_are_cut() -> None:
    arguments = '{"a": "\\"}\\\\", "{\\u0022": ["]"]}'
    for pieces in every_cut(arguments):
        events = [delta(id="c", name="f"), *(delta(piece) for piece in pieces)]
        assert run(tool_calls(early=True), events[:-1]) == []
        assert numbered(run(tool_calls(early=True), events)) == [(0, 0, arguments)]


def test_a_call_waits_for_its_name() -> None:
    events = [delta('{"a":1}', id="c"), delta(name="f")]
    assert run(tool_calls(early=True), events[:1]) == []
    (one,) = run(tool_calls(early=True), events)
    assert one.call == call('{"a":1}')


def test_calls_of_further_choices_come_early_or_not_at_all() -> None:
    events = [delta('{"a":1}', id="c", name="f", choice=1), delta('{"b":', id="d", name="f", choice=2)]
    (one,) = run(tool_calls(early=True), [*events, completed("choice 0")])
    assert (one.choice, one.tool_index, one.call.arguments) == (1, 0, '{"a":1}')


def test_after_a_retry_a_call_may_come_again() -> None:
    def opened(attempt: int) -> list[SamplingEvent]:
        return [delta(id="c", name="f", attempt=attempt), delta('{"a":1}', attempt=attempt)]

    end = completed(call('{"a":1}'), attempt=2)
    out = run(tool_calls(early=True), [*opened(1), retrying(), *opened(2), end])
    assert [(one.attempt, one.call.id) for one in out] == [(1, "c"), (2, "c")]


def test_two_requests_interleaved() -> None:
    events = [
        delta('{"a":', id="c", name="f"),
        delta('{"b":', id="c", name="f", of="s"),
        delta("1}"),
        delta("2}", of="s"),
    ]
    out = run(tool_calls(early=True), events)
    assert [(one.request_id, one.call.arguments) for one in out] == [("r", '{"a":1}'), ("s", '{"b":2}')]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=4), JSON, max_size=4)


def cut_at(text: str, places: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[start:end] for start, end in pairwise(edges)]


@given(OBJECTS, st.booleans(), st.lists(st.integers(0, 1000), max_size=12))
def test_any_object_cut_anywhere_comes_with_its_last_brace(value: JsonObject, escaped: bool, places: list[int]) -> None:
    text = json.dumps(value, ensure_ascii=escaped)
    events = [delta(id="c", name="f"), *(delta(piece) for piece in cut_at(text, places))]
    assert run(tool_calls(early=True), events[:-1]) == []
    assert numbered(run(tool_calls(early=True), events)) == [(0, 0, text)]


# -- cost


def _arguments(n: int, fragment: str = 'x","') -> list[SamplingEvent]:
    return [delta(id="c", name="f"), *[delta('{"a":["')], *[delta(fragment)] * n, delta('"]}')]


@pytest.mark.parametrize("fragment", ['x","', '",{"b":1},"', "}", '\\"}'])
@pytest.mark.parametrize("early", [False, True])
def test_calls_are_linear_in_the_fragments(early: bool, fragment: str) -> None:
    run(tool_calls(early), _arguments(3, fragment))
    few, many = (calls_during(lambda n=n: run(tool_calls(early), _arguments(n, fragment))) for n in (1000, 10_000))
    assert many <= MOST * few


def test_early_arguments_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def counting(text: str) -> JsonObject | None:
        parsed.append(text)
        return whole_object(text)

    monkeypatch.setattr(tools, "whole_object", counting)
    events = [delta(id="c", name="f"), delta('{"a":{'), *[delta('"b":{},')] * 50, delta('"c":{}}}')]
    assert len(run(tool_calls(early=True), [token("x", 1), *events, *[delta(" ")] * 50])) == 1
    assert len(parsed) == 1
