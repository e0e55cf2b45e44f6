"""Streams that hypothesis makes: legal event sequences of each wire format, and what they say."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from rx_sampler.conversation import JsonObject

from .streams import CHAT, DONE, MESSAGES, PING, RESPONSES, STOP, adds, chat, closes, ended, ev, opens, started, stops


@dataclass(frozen=True, slots=True)
class Call:
    id: str
    name: str
    arguments: str


@dataclass(slots=True)
class Said:
    """What a stream says, as its maker knows it."""

    text: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list[Call])


Made = tuple[bytes, Said]

TEXTS = st.text(
    st.one_of(
        st.sampled_from('\r\n \u2028\x85\x00\\"{}[]:<>é東😀👩\u200d\ufeff\ufffd'),
        st.characters(codec="utf-8", max_codepoint=0x24F),
    ),
    min_size=1,
    max_size=24,
)
NAMES = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
NESTED: JsonObject = {"a": []}
ARGUMENTS = st.dictionaries(NAMES, st.one_of(TEXTS, st.integers(-9, 9), st.none(), st.just(NESTED)), max_size=3)


def pieces(draw: st.DrawFn, text: str) -> list[str]:
    """`text` in one to four deltas, cut between UTF-16 units as some servers do: a half pair may end a delta."""
    units = text.encode("utf-16-le", "surrogatepass")
    points = sorted(draw(st.lists(st.integers(0, len(units) // 2), max_size=3)))
    cuts = [0, *points, len(units) // 2]
    return [units[2 * a : 2 * b].decode("utf-16-le", "surrogatepass") for a, b in pairwise(cuts)]


def written(draw: st.DrawFn, events: Sequence[JsonObject | str], *, named: bool) -> bytes:
    """An event-stream body in one of the manners of servers: line ends, names, comments, ids, several data lines."""
    end = draw(st.sampled_from(["\n", "\n", "\r\n", "\r"]))
    noise = draw(st.sampled_from(["", "", ": keep-alive", ":", "id: 7", "retry: 10"]))
    space = draw(st.sampled_from([" ", " ", ""]))
    indent = draw(st.sampled_from([None, None, 1]))  # JSON over several data lines
    lines: list[str] = []
    for event in events:
        if noise:
            lines += [noise, ""] if draw(st.booleans()) else [noise]
        if isinstance(event, str):
            lines += [f"data:{space}{event}", ""]
            continue
        if named:
            lines.append(f"event: {event['type']}")
        # Plain characters where there are no half pairs, which only escapes can write.
        text = json.dumps(event, indent=indent, ensure_ascii=_has_half(event) or draw(st.booleans()))
        lines += [f"data:{space}{line}" for line in text.split("\n")]
        lines.append("")
    bom = draw(st.sampled_from(["", "", "\ufeff"]))
    return (bom + "".join(line + end for line in lines)).encode()


def _has_half(event: JsonObject) -> bool:
    try:
        json.dumps(event, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


@st.composite
def chat_streams(draw: st.DrawFn) -> Made:
    said = Said()
    events: list[JsonObject | str] = [chat({"role": "assistant", "content": draw(st.sampled_from(["", None]))})]
    thought = draw(st.sampled_from(["reasoning_content", "reasoning"]))
    for kind in draw(st.lists(st.sampled_from(["text", "reasoning"]), max_size=3)):
        whole = draw(TEXTS)
        if kind == "text":
            said.text += whole
        else:
            said.reasoning += whole
        events += [chat({"content" if kind == "text" else thought: piece}) for piece in pieces(draw, whole)]
    events += _chat_calls(draw, said)
    events.append(chat({}, "tool_calls" if said.calls else draw(st.sampled_from(["stop", "length", "novel"]))))
    if draw(st.booleans()):
        events.append({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}})
    events.append(DONE)
    return written(draw, events, named=False), said


def _chat_calls(draw: st.DrawFn, said: Said) -> list[JsonObject]:
    """Parallel calls whose fragments come in turns."""
    queues: list[list[JsonObject]] = []
    for index in range(draw(st.integers(0, 2))):
        call = _call(draw, said, index)
        first = {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        rest = [{"index": index, "function": {"arguments": piece}} for piece in pieces(draw, call.arguments)]
        queues.append([chat({"tool_calls": [fragment]}) for fragment in (first, *rest)])
    events = [queue.pop(0) for queue in queues]
    while any(queues):
        events.append(draw(st.sampled_from([queue for queue in queues if queue])).pop(0))
    return events


def _call(draw: st.DrawFn, said: Said, index: int) -> Call:
    arguments = json.dumps(draw(ARGUMENTS), ensure_ascii=draw(st.booleans()))
    call = Call(f"call_{index}", draw(NAMES), arguments)
    said.calls.append(call)
    return call


@st.composite
def responses_streams(draw: st.DrawFn) -> Made:
    said = Said()
    events: list[JsonObject | str] = [ev("created", response={"id": "resp-1", "model": "toy-1"})]
    output: list[JsonObject] = []
    for index, kind in enumerate(draw(st.lists(st.sampled_from(["reasoning", "message", "function"]), max_size=3))):
        maker = {"reasoning": _reasoning_item, "message": _message_item, "function": _function_item}[kind]
        opened, deltas, item = maker(draw, said, index)
        events.append(ev("output_item.added", output_index=index, item=opened))
        events += deltas
        if draw(st.booleans()):
            events.append({"type": "keepalive"})
        events.append(ev("output_item.done", output_index=index, item=item))
        output.append(item)
    events.append(ended(output=output if draw(st.booleans()) else []))
    for number, event in enumerate(events):
        if isinstance(event, dict):
            event["sequence_number"] = number
    return written(draw, events, named=draw(st.booleans())), said


Item = tuple[JsonObject, list[JsonObject], JsonObject]


def _reasoning_item(draw: st.DrawFn, said: Said, index: int) -> Item:
    parts: list[str] = draw(st.lists(TEXTS, min_size=1, max_size=2))
    deltas: list[JsonObject] = []
    for at, whole in enumerate(parts):
        said.reasoning += ("\n\n" if said.reasoning else "") + whole
        where: JsonObject = {"output_index": index, "item_id": f"rs-{index}", "summary_index": at}
        deltas += [ev("reasoning_summary_text.delta", delta=piece, **where) for piece in pieces(draw, whole)]
        deltas.append(ev("reasoning_summary_text.done", text=whole, **where))
    item: JsonObject = {"type": "reasoning", "id": f"rs-{index}"}
    summary = [{"type": "summary_text", "text": whole} for whole in parts]
    return item | {"summary": []}, deltas, item | {"summary": summary}


def _message_item(draw: st.DrawFn, said: Said, index: int) -> Item:
    parts: list[str] = draw(st.lists(TEXTS, min_size=1, max_size=2))
    deltas: list[JsonObject] = []
    for at, whole in enumerate(parts):
        said.text += whole
        where: JsonObject = {"output_index": index, "item_id": f"msg-{index}", "content_index": at}
        deltas += [ev("output_text.delta", delta=piece, **where) for piece in pieces(draw, whole)]
        deltas.append(ev("output_text.done", text=whole, **where))
    item: JsonObject = {"type": "message", "id": f"msg-{index}", "role": "assistant"}
    content: list[JsonObject] = [{"type": "output_text", "text": whole, "annotations": []} for whole in parts]
    return item | {"content": []}, deltas, item | {"content": content}


def _function_item(draw: st.DrawFn, said: Said, index: int) -> Item:
    call = _call(draw, said, index)
    item: JsonObject = {"type": "function_call", "id": f"fc-{index}", "call_id": call.id, "name": call.name}
    where: JsonObject = {"output_index": index, "item_id": f"fc-{index}"}
    cut = pieces(draw, call.arguments)
    deltas: list[JsonObject] = [ev("function_call_arguments.delta", delta=piece, **where) for piece in cut]
    deltas.append(ev("function_call_arguments.done", arguments=call.arguments, **where))
    return item | {"arguments": ""}, deltas, item | {"arguments": call.arguments}


@st.composite
def messages_streams(draw: st.DrawFn) -> Made:
    said = Said()
    events: list[JsonObject | str] = [started()]
    for index, kind in enumerate(draw(st.lists(st.sampled_from(["thinking", "text", "tool_use"]), max_size=3))):
        maker = {"thinking": _thinking_block, "text": _text_block, "tool_use": _tool_block}[kind]
        events += maker(draw, said, index)
        if draw(st.booleans()):
            events.append(PING)
        events.append(closes(index))
    events += [stops("tool_use" if said.calls else draw(st.sampled_from(["end_turn", "max_tokens"]))), STOP]
    return written(draw, events, named=draw(st.booleans())), said


def _thinking_block(draw: st.DrawFn, said: Said, index: int) -> list[JsonObject]:
    whole = draw(TEXTS)
    said.reasoning += whole
    return [
        opens(index, "thinking", thinking="", signature=""),
        *(adds(index, "thinking", thinking=piece) for piece in pieces(draw, whole)),
        adds(index, "signature", signature=f"sig-{index}"),
    ]


def _text_block(draw: st.DrawFn, said: Said, index: int) -> list[JsonObject]:
    whole = draw(TEXTS)
    said.text += whole
    return [opens(index, "text", text=""), *(adds(index, "text", text=piece) for piece in pieces(draw, whole))]


def _tool_block(draw: st.DrawFn, said: Said, index: int) -> list[JsonObject]:
    call = _call(draw, said, index)
    fragments: list[JsonObject] = [
        adds(index, "input_json", partial_json=piece) for piece in pieces(draw, call.arguments)
    ]
    return [opens(index, "tool_use", id=call.id, name=call.name, input={}), *fragments]


MADE: dict[str, Callable[[], st.SearchStrategy[Made]]] = {
    CHAT: chat_streams,
    RESPONSES: responses_streams,
    MESSAGES: messages_streams,
}


@st.composite
def cut_somewhere(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """`data` in reads of random sizes, some of them of a single byte."""
    points = draw(st.lists(st.integers(0, len(data)), max_size=12))
    close = [point + 1 for point in points if point < len(data) and draw(st.booleans())]
    cuts = sorted({0, len(data), *points, *close})
    return [data[a:b] for a, b in pairwise(cuts)] or [data]


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """`data` after one to four accidents: bytes or lines lost, doubled, swapped, overwritten, the end cut off."""
    for _ in range(draw(st.integers(1, 4))):
        data = draw(st.sampled_from(_ACCIDENTS))(draw, data)
    return data


def _lose(draw: st.DrawFn, data: bytes) -> bytes:
    at, size = draw(st.integers(0, len(data))), draw(st.integers(1, 40))
    return data[:at] + data[at + size :]


def _double(draw: st.DrawFn, data: bytes) -> bytes:
    at, size = draw(st.integers(0, len(data))), draw(st.integers(1, 200))
    return data[: at + size] + data[at:]


def _flip(draw: st.DrawFn, data: bytes) -> bytes:
    at = draw(st.integers(0, max(len(data) - 1, 0)))
    return data[:at] + bytes([draw(st.integers(0, 255))]) + data[at + 1 :]


def _truncate(draw: st.DrawFn, data: bytes) -> bytes:
    return data[: draw(st.integers(0, len(data)))]


def _lines(change: Callable[[st.DrawFn, list[bytes]], list[bytes]]) -> Callable[[st.DrawFn, bytes], bytes]:
    def accident(draw: st.DrawFn, data: bytes) -> bytes:
        return b"\n".join(change(draw, data.split(b"\n")))

    return accident


def _lose_line(draw: st.DrawFn, lines: list[bytes]) -> list[bytes]:
    at = draw(st.integers(0, len(lines) - 1))
    return lines[:at] + lines[at + 1 :]


def _swap_lines(draw: st.DrawFn, lines: list[bytes]) -> list[bytes]:
    a, b = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
    lines[a], lines[b] = lines[b], lines[a]
    return lines


def _spoil_value(draw: st.DrawFn, data: bytes) -> bytes:
    """One JSON value becomes one of another type."""
    at = data.find(b'":', draw(st.integers(0, len(data))))
    if at < 0:
        return data
    odd = draw(st.sampled_from([b"null", b"7", b"-1", b"true", b'"x"', b"[]", b"{}", b'{"a":1}', b"1e300"]))
    end = next((i for i in range(at + 2, len(data)) if data[i] in b",}]\n"), len(data))
    return data[: at + 2] + odd + data[end:]


_ACCIDENTS: list[Callable[[st.DrawFn, bytes], bytes]] = [
    _lose,
    _double,
    _flip,
    _truncate,
    _lines(_lose_line),
    _lines(_swap_lines),
    _spoil_value,
    _spoil_value,
]


def soups() -> st.SearchStrategy[bytes]:
    """Bytes out of the words of event streams, in any order."""
    words: list[bytes] = [b"data:", b"data: ", b"event: ", b"\n", b"\n\n", b"\r\n", b"\r", b"{", b"}", b'"', b":", b","]
    words += [b'"type"', b'"error"', b'"choices":[{"delta":{"content":"a"}}]', b"[DONE]", b"null", b"[", b"]"]
    words += [b'{"type":"message_stop"}', b'{"type":"content_block_delta","delta":{"text":"a"}}', b"\xff", b"\x00"]
    words += [b'{"type":"response.completed","response":{}}', b"\xef\xbb\xbf", b"error: {", b"id:", b"<html>"]
    return st.lists(st.one_of(st.sampled_from(words), st.binary(max_size=3)), max_size=30).map(b"".join)


def any_json() -> st.SearchStrategy[Any]:
    """JSON values of any shape, with the keys that wires use."""
    keys = st.sampled_from(["type", "index", "delta", "text", "id", "error", "choices", "content", "output", "x"])
    leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=6))
    return st.recursive(
        leaves,
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=3)),
        max_leaves=8,
    )
