"""The second road into a chunk: it agrees with the first, and it takes anything whatever."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from rx_sampler.backends.base import get_backend
from rx_sampler.backends.chat_completions.chunks import ChatChunk
from rx_sampler.backends.lenient import MISSING, as_int, as_list, as_object, fitter, parse
from rx_sampler.conversation import JsonObject

from .laws import check_frame, check_json
from .made_streams import any_json
from .streams import (
    BACKENDS,
    CHAT,
    CREATED,
    MESSAGES,
    RESPONSES,
    STOP,
    adds,
    calling,
    chat,
    delta,
    ended,
    ev,
    function,
    message,
    opens,
    run,
    says,
    sse,
    started,
    stops,
    usage,
)

CHUNKS: dict[str, list[JsonObject]] = {
    CHAT: [
        says("hi"),
        says("", "stop"),
        chat({"role": "assistant", "content": None, "reasoning_content": "hm", "reasoning_details": [{"type": "x"}]}),
        chat({"content": [{"type": "text", "text": "x"}], "refusal": None, "annotations": [{"a": 1}], "images": []}),
        calling('{"a":1}', id="c1", name="f"),
        chat({"function_call": {"name": "f", "arguments": {"a": 1}}}),
        {"choices": [{"index": 0, "message": {"content": "whole"}, "finish_reason": "stop", "error": None}]},
        usage(1, 2),
        chat({}, "stop", x_groq={"usage": {"prompt_tokens": 1}}, citations=["u"], timings={"ms": 1.5}, usage=None),
    ],
    RESPONSES: [
        CREATED,
        ev("output_item.added", output_index=0, item=function("f", ""), sequence_number=4),
        ev("function_call_arguments.delta", output_index=0, item_id="i", call_id="c", delta="{}"),
        ev("output_item.done", output_index=0, item=message("x", annotations=[{"url": "u"}])),
        ev("reasoning_summary_text.delta", output_index=1, summary_index=0, delta="hm"),
        delta("x"),
        ev("content_part.done", output_index=0, content_index=0, part={"type": "output_text", "text": "x"}),
        ended(output=[message("x"), function("f", "{}")]),
    ],
    MESSAGES: [
        started({"input_tokens": 3, "output_tokens": 1, "service_tier": "x"}),
        opens(0, "text", text="", citations=None),
        adds(0, "text", text="x"),
        adds(0, "citations", citation={"cited_text": "x"}),
        opens(1, "tool_use", id="t", name="f", input={}),
        adds(1, "input_json", partial_json='{"a":1}'),
        stops("end_turn", {"output_tokens": 3}, stop_details={"explanation": "x"}),
        STOP,
    ],
}
ROWS = [(backend, chunk) for backend, chunks in CHUNKS.items() for chunk in chunks]
IDS = [f"{backend}-{at}" for backend, chunks in CHUNKS.items() for at in range(len(chunks))]


def without_nulls(value: object) -> object:
    """`value` without the null fields of objects that a chunk type declares; inside free JSON they stay."""
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return {name: without_nulls(inner) for name, inner in fields.items() if inner is not None}
    if isinstance(value, list):
        return [without_nulls(inner) for inner in cast("list[object]", value)]
    return value


@pytest.mark.parametrize(("backend", "chunk"), ROWS, ids=IDS)
def test_both_roads_agree_on_what_fits(backend: str, chunk: JsonObject) -> None:
    declared = get_backend(backend).chunk
    strict: object = TypeAdapter(declared).validate_json(json.dumps(chunk))
    assert without_nulls(fitter(declared)(chunk)) == without_nulls(strict)


ODD: list[object] = [
    None,
    True,
    7,
    -1,
    2.5,
    10**30,
    1e300,
    "x",
    "",
    "7",
    [],
    {},
    [None],
    [[]],
    [{}],
    {"x": None},
    {"type": 5},
    [5],
]


def places(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The path of every value inside `value`."""
    pairs: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        pairs = list(cast("dict[str | int, object]", value).items())
    elif isinstance(value, list):
        pairs = list(enumerate(cast("list[object]", value)))
    for name, inner in pairs:
        yield (*path, name)
        yield from places(inner, (*path, name))


def replaced(value: JsonObject, path: tuple[str | int, ...], odd: object) -> JsonObject:
    value = copy.deepcopy(value)
    inner: Any = value
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = odd
    return value


def dropped(value: JsonObject, path: tuple[str | int, ...]) -> JsonObject:
    value = copy.deepcopy(value)
    inner: Any = value
    for step in path[:-1]:
        inner = inner[step]
    del inner[path[-1]]
    return value


@pytest.mark.parametrize(("backend", "chunk"), ROWS, ids=IDS)
def test_each_field_may_be_anything_or_absent(backend: str, chunk: JsonObject) -> None:
    """Alone in a stream: it ends in one terminal event, whatever the field holds."""
    fit = fitter(get_backend(backend).chunk)
    for path in places(chunk):
        for variant in (dropped(chunk, path), *(replaced(chunk, path, odd) for odd in ODD)):
            fit(variant)
            events = run(backend, sse(variant))
            check_frame(events)
            check_json(events)


@pytest.mark.parametrize("backend", BACKENDS)
def test_half_a_character_anywhere_goes_through_json(backend: str) -> None:
    """In an id, a name, a model, a reason, a signature, a citation, a result: wherever a text stands."""
    for chunk in CHUNKS[backend]:
        for path in places(chunk):
            check_json(run(backend, sse(*CHUNKS[backend][:2], replaced(chunk, path, "half \ud83d"), *CHUNKS[backend])))


@pytest.mark.parametrize("backend", BACKENDS)
@given(data=st.data())
def test_any_json_fits_somehow(backend: str, data: st.DataObject) -> None:
    chunk = copy.deepcopy(data.draw(st.sampled_from(CHUNKS[backend])))
    for _ in range(data.draw(st.integers(1, 3))):
        found = list(places(chunk))
        if found:
            chunk = replaced(chunk, data.draw(st.sampled_from(found)), data.draw(any_json()))
    fitter(get_backend(backend).chunk)(chunk)
    check_frame(run(backend, sse(*CHUNKS[backend][:2], chunk, *CHUNKS[backend])))


def test_what_fits_of_a_chunk_is_kept() -> None:
    """One wrong field costs that field, not its neighbours."""
    chunk: JsonObject = {
        "id": 7,
        "model": ["no"],
        "choices": [
            None,
            {"index": "0", "delta": {"content": "kept", "refusal": {}, "tool_calls": [None, {"index": 1.0, "id": 3}]}},
        ],
        "usage": "none",
        "novel": 1,
    }
    assert fitter(ChatChunk)(chunk) == {
        "id": "7",
        "choices": [{"index": 0, "delta": {"content": "kept", "tool_calls": [{"index": 1, "id": "3"}]}}],
    }


@pytest.mark.parametrize("value", [None, 5, "x", [], True])
def test_what_is_no_object_is_no_chunk(value: object) -> None:
    assert fitter(ChatChunk)(value) is MISSING


def test_a_union_takes_the_first_that_fits() -> None:
    fit = fitter(str | list[Any] | None)
    assert fit("x") == "x"
    assert fit(["x", None]) == ["x"]
    assert fit({"x": 1}) is MISSING
    assert fit(None) is MISSING


def test_a_declaration_that_nobody_can_read_is_a_bug_of_ours() -> None:
    class Odd(TypedDict):
        field: complex

    with pytest.raises(TypeError, match="complex"):
        fitter(Odd)


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (5, 5),
        (0, 0),
        (-3, -3),
        (5.0, 5),
        ("5", 5),
        ("007", 7),
        (2**63 - 1, 2**63 - 1),
        (2**63, None),
        (-(2**63), None),
        (5.5, None),
        (1e300, None),
        (float("inf"), None),
        (float("nan"), None),
        ("5.0", None),
        ("-5", None),
        ("٣", None),
        ("", None),
        ("9" * 20, None),
        ("9" * 5000, None),
        (True, None),
        (None, None),
        ([5], None),
    ],
)
def test_as_int(value: object, count: int | None) -> None:
    found = as_int(value)
    assert found == count
    assert type(found) is type(count)


_OTHERS: list[object] = [{}, [], "x", None, 5]


def test_as_object_and_as_list() -> None:
    assert as_object({"a": 1}) == {"a": 1}
    assert [as_object(value) for value in _OTHERS if value != {}] == [None] * 4
    assert as_list([1]) == [1]
    assert [as_list(value) for value in _OTHERS if value != []] == [[]] * 4


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"a":"x\xffy"}', {"a": "x\ufffdy"}),
        (b'{"a":"\xed\xa0\xbd"}', {"a": "\ufffd\ufffd\ufffd"}),  # a surrogate in UTF-8 is three invalid bytes
        (b'{"a":"\xe6\x9d"}', {"a": "\ufffd"}),
        (b'{"a":"\\ud83d"}', {"a": "\ufffd"}),
        (b'{"delta":{"content":"\\ud83d","id":"\\ud83d"}}', {"delta": {"content": "\ud83d", "id": "\ufffd"}}),
        (b'{"a":NaN,"b":[-Infinity,1e999]}', {"a": None, "b": [None, None]}),
        (b'{"a":"\\ud83d\\ude00"}', {"a": "😀"}),
        (b' {"a": 1} ', {"a": 1}),
        (b'{"a":1,"a":2}', {"a": 2}),
        (b"1" * 400, int("1" * 400)),
        (b"null", None),
    ],
)
def test_parse(data: bytes, value: object) -> None:
    assert parse(data) == value


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b'{"a":}',
        b"{'a':1}",
        b'{"a":1}{"a":2}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b"1" * 5000,
        b"\xff\xfe",
        b'"\x00"',
    ],
    ids=lambda data: f"{data[:12]!r}x{len(data)}",
)
def test_what_is_no_json_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        parse(data)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["error", "delta", "choices", "response", "item", "message", "content_block", "usage"])
@pytest.mark.parametrize("depth", [150, 1_000, 100_000])
def test_absurd_nesting_ends_well(backend: str, name: str, depth: int) -> None:
    deep = b'{"%s":' % name.encode() + b'{"a":' * depth + b"1" + b"}" * depth + b"}"
    check_frame(run(backend, b"data: " + deep + b"\n\n"))
    check_frame(run(backend, deep))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("number", [b"1" * 400, b"-" + b"1" * 400, b"1" * 5000, b"1e400", b"-1e400", b"0.1e-400"])
def test_huge_numbers_end_well(backend: str, number: bytes) -> None:
    """In every place of a chunk that holds a number."""
    for chunk in CHUNKS[backend]:
        for path in places(chunk):
            text = json.dumps(replaced(chunk, path, "@")).replace('"@"', number.decode())
            check_frame(run(backend, f"data: {text}\n\n".encode()))
