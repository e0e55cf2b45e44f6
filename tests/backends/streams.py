"""Wire bytes of the three formats, built from small pieces, and the offline pipeline that reads them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import reactivex as rx
from reactivex import Observable
from reactivex.scheduler import ImmediateScheduler

from rx_sampler import (
    ChannelToken,
    Completed,
    Failed,
    SamplingEvent,
    SamplingResponse,
    ToolCallDelta,
    failures_as_events,
    get_backend,
    sampling_events,
    sse_frames,
    through,
    typed_chunks,
)
from rx_sampler.backends.assembly import Context
from rx_sampler.backends.base import ChunkDecoder, EventReader
from rx_sampler.conversation import JsonObject
from rx_sampler.wire.idle import Pulse
from rx_sampler.wire.sse import SseParser

CHAT: Final = "chat_completions"
RESPONSES: Final = "responses"
MESSAGES: Final = "messages"
BACKENDS: Final = (CHAT, RESPONSES, MESSAGES)


class StillTime(ImmediateScheduler):
    """Runs everything at once, at one moment: events of two runs are then equal by value, stamps included."""

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(1_000, UTC)


def run(
    backend: str,
    reads: bytes | Iterable[bytes],
    *,
    split_think_tags: bool = False,
    request_id: str = "r-1",
    both_roads: bool = True,
) -> list[SamplingEvent]:
    """The events of a body, read offline through the public operators. Fails on anything that is not an event.

    A request reads its body by a shorter road; that both give the same events is checked here, for every stream
    (`both_roads=False` where the same stream was checked before, cut otherwise).
    """
    reads = [reads] if isinstance(reads, bytes) else list(reads)
    events = _collect(
        rx.from_iterable(reads).pipe(
            sse_frames(),
            typed_chunks(backend),
            sampling_events(backend, request_id=request_id, split_think_tags=split_think_tags),
        ),
        request_id,
    )
    if not both_roads:
        return events
    wire_format = get_backend(backend)
    context = Context(request_id=request_id, pulse=Pulse(1_000.0), split_think_tags=split_think_tags)
    transform = wire_format.transform(context)
    of_a_request = transform.opening({})
    of_a_request += _collect(
        rx.from_iterable(reads).pipe(
            through(SseParser, lambda: EventReader(ChunkDecoder(wire_format), transform)),
        ),
        request_id,
    )
    assert of_a_request == events, "a request reads this stream differently"
    return events


def _collect(source: Observable[SamplingEvent], request_id: str) -> list[SamplingEvent]:
    events: list[SamplingEvent] = []
    errors: list[Exception] = []
    ends: list[None] = []
    source.pipe(failures_as_events(request_id=request_id)).subscribe(
        events.append, errors.append, lambda: ends.append(None), scheduler=StillTime()
    )
    assert not errors, f"on_error: {errors[0]!r}"
    assert len(ends) == 1, "a stream of events completes once"
    return events


def completed(events: Sequence[SamplingEvent]) -> SamplingResponse:
    """The response at the end of `events`, which must be a success."""
    end = events[-1]
    assert isinstance(end, Completed), end
    return end.response


def failed(events: Sequence[SamplingEvent]) -> Failed:
    end = events[-1]
    assert isinstance(end, Failed), end
    return end


def tokens(events: Iterable[SamplingEvent]) -> list[tuple[str, str]]:
    """Channel and text of every token, in order."""
    return [(event.channel, event.text) for event in events if isinstance(event, ChannelToken)]


def tool_deltas(events: Iterable[SamplingEvent]) -> list[tuple[int, str | None, str | None, str | None]]:
    """Index, id, name and fragment of every tool call delta, in order."""
    return [
        (event.tool_index, event.id, event.name, event.arguments_delta)
        for event in events
        if isinstance(event, ToolCallDelta)
    ]


def calls(response: SamplingResponse | None) -> list[tuple[str, str, str, bool]]:
    """Id, name, arguments and completeness of every call."""
    assert response is not None
    return [(call.id, call.name, call.arguments, call.complete) for call in response.tool_calls]


def kinds(events: Iterable[SamplingEvent]) -> list[str]:
    return [event.kind for event in events]


# -- frames

Frame = JsonObject | str | bytes | tuple[str, JsonObject | str]


def sse(*frames: Frame) -> bytes:
    """An event-stream body. A dict or str is the data of an event, a pair has its name before it, bytes go as is."""
    return b"".join(map(_frame, frames))


def _frame(frame: Frame) -> bytes:
    if isinstance(frame, bytes):
        return frame
    if isinstance(frame, tuple):
        return f"event: {frame[0]}\n".encode() + _frame(frame[1])
    text = frame if isinstance(frame, str) else json.dumps(frame)
    return f"data: {text}\n\n".encode()


DONE: Final = "[DONE]"

# -- chat completions


def chat(delta: JsonObject | None = None, finish: str | None = None, *, index: int = 0, **top: Any) -> JsonObject:
    """A chunk with one choice; `top` are fields beside `choices`."""
    return {
        "id": "cmpl-1",
        "object": "chat.completion.chunk",
        "model": "toy-1",
        "choices": [{"index": index, "delta": {} if delta is None else delta, "finish_reason": finish}],
        **top,
    }


def says(text: str, finish: str | None = None, *, index: int = 0) -> JsonObject:
    return chat({"content": text}, finish, index=index)


def usage(prompt: int, completion: int, **more: Any) -> JsonObject:
    """The extra chunk that carries the counts."""
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return {"id": "cmpl-1", "model": "toy-1", "choices": [], "usage": {**counts, **more}}


def calling(
    arguments: Any = None,
    *,
    index: int | None = 0,
    id: str | None = None,  # noqa: A002  # the wire's own word
    name: str | None = None,
    finish: str | None = None,
    choice: int = 0,
) -> JsonObject:
    """A chunk with one tool call fragment; what is None is absent."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    fragment: JsonObject = {"function": function}
    if index is not None:
        fragment["index"] = index
    if id is not None:
        fragment["id"] = id
    return chat({"tool_calls": [fragment]}, finish, index=choice)


# -- responses


def ev(name: str, **fields: Any) -> JsonObject:
    """An event of type `response.{name}`."""
    return {"type": f"response.{name}", **fields}


CREATED: Final[JsonObject] = ev("created", response={"id": "resp-1", "model": "toy-1", "output": []})


def ended(name: str = "completed", output: Sequence[JsonObject] = (), **fields: Any) -> JsonObject:
    """A terminal event with usage 5 + 3."""
    response = {
        "id": "resp-1",
        "model": "toy-1",
        "status": name,
        "output": list(output),
        "usage": {"input_tokens": 5, "output_tokens": 3, "total_tokens": 8},
        **fields,
    }
    return ev(name, response=response)


def message(text: str, *, id: str = "msg-1", annotations: Sequence[JsonObject] = ()) -> JsonObject:  # noqa: A002
    part = {"type": "output_text", "text": text, "annotations": list(annotations)}
    return {"type": "message", "id": id, "role": "assistant", "status": "completed", "content": [part]}


def function(name: str, arguments: str, *, call_id: str = "call-1", **more: Any) -> JsonObject:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **more}


def delta(text: str, *, output: int | None = 0, content: int | None = 0, **more: Any) -> JsonObject:
    """A piece of output text."""
    where = {"output_index": output, "content_index": content}
    return ev("output_text.delta", delta=text, **{k: v for k, v in where.items() if v is not None}, **more)


# -- messages


def started(usage: JsonObject | None = None, **fields: Any) -> JsonObject:
    """`message_start` with usage 9 + 1 unless said otherwise."""
    counts = {"input_tokens": 9, "output_tokens": 1} if usage is None else usage
    body: JsonObject = {"id": "msg-1", "type": "message", "model": "toy-1", "content": [], "usage": counts, **fields}
    return {"type": "message_start", "message": body}


def opens(index: int, kind: str, **fields: Any) -> JsonObject:
    return {"type": "content_block_start", "index": index, "content_block": {"type": kind, **fields}}


def adds(index: int, kind: str, **fields: Any) -> JsonObject:
    return {"type": "content_block_delta", "index": index, "delta": {"type": f"{kind}_delta", **fields}}


def closes(index: int) -> JsonObject:
    return {"type": "content_block_stop", "index": index}


def text_block(index: int, *texts: str) -> list[JsonObject]:
    return [opens(index, "text", text=""), *(adds(index, "text", text=text) for text in texts), closes(index)]


def stops(reason: str | None, usage: JsonObject | None = None, **fields: Any) -> JsonObject:
    """`message_delta` with 7 output tokens unless said otherwise."""
    counts = {"output_tokens": 7} if usage is None else usage
    stop = {"stop_reason": reason, "stop_sequence": None, **fields}
    return {"type": "message_delta", "delta": stop, "usage": counts}


STOP: Final[JsonObject] = {"type": "message_stop"}
PING: Final[JsonObject] = {"type": "ping"}
