"""Messages chunks to events."""

from __future__ import annotations

import json
from typing import Any, Final

from rx_sampler.backends.assembly import DONE, Context, Transform, stop_with_calls
from rx_sampler.backends.lenient import as_int, as_list, as_object
from rx_sampler.conversation import JsonObject, SamplingResponse, StopReason, Usage
from rx_sampler.events import (
    REASONING,
    TEXT,
    AnnotationAdded,
    BackendToolCallCompleted,
    BackendToolCallStarted,
    ReasoningCompleted,
    SamplingEvent,
)

from .blocks import SERVER_TOOL_USES, Block, result_name
from .chunks import MessagesChunk, MessagesDelta

__all__ = ["MessagesTransform"]

_STOPS: Final[dict[str, StopReason]] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
"""Stop reasons that are not a plain stop; `end_turn`, `stop_sequence`, `pause_turn` and whatever comes next are."""

_KIND_OF_DELTA: Final = {
    "text_delta": "text",
    "citations_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
    "input_json_delta": "tool_use",
}
_COUNTS: Final = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


class MessagesTransform(Transform[MessagesChunk]):
    """Completes on `message_stop`, or at the end of the body once a stop reason came."""

    ended_early = "the stream ended without a stop reason and without message_stop"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._blocks: list[Block] = []
        self._by_index: dict[int, Block] = {}
        self._strayed: dict[tuple[int, str], Block] = {}
        self._open: Block | None = None
        self._server_tools: dict[str, str] = {}
        self._finished_tools: set[str] = set()
        self._message: JsonObject = {}
        self._usage: JsonObject = {}
        self._stop: MessagesDelta = {}

    def quick(self, document: Any) -> list[SamplingEvent] | None:
        try:
            delta = document["delta"]
            text = delta["text"]
            if delta["type"] != "text_delta" or document["type"] != "content_block_delta" or len(delta) != 2:
                return None
            if document.get("error"):
                return None
            block = self._by_index[document["index"]]
        except (KeyError, TypeError, AttributeError):
            return None
        if block.kind != "text" or type(text) is not str:
            return None
        out: list[SamplingEvent] = []
        self.token(out, block.sinks[TEXT], TEXT, text)
        return out

    def feed(self, item: MessagesChunk) -> list[SamplingEvent]:
        kind = item.get("type")
        out: list[SamplingEvent] = []
        if kind == "content_block_delta":
            delta = item.get("delta")
            if delta:
                self._read_delta(out, item.get("index") or 0, delta)
        elif kind == "content_block_start":
            self._start(out, item)
        elif kind == "content_block_stop":
            block = self._by_index.get(item.get("index") or 0)
            if block is not None:
                self.progress()
                self._close(out, block)
        elif kind == "message_delta":
            self._read_message_delta(item)
        elif kind == "message_start":
            self._read_message_start(out, item.get("message") or {})
        elif kind == "message_stop":
            return self.complete()
        elif item is DONE:
            return self.finish()
        elif kind is None:
            self.note_damage(item)
        return out

    def has_content(self) -> bool:
        return super().has_content() or bool(self._blocks)

    def _read_message_start(self, out: list[SamplingEvent], message: JsonObject) -> None:
        self.progress()
        self._message = {name: value for name, value in message.items() if value is not None} | self._message
        self._count(as_object(message.get("usage")) or {})
        self.announce(
            out,
            message_id=_text(message.get("id")),
            model=_text(message.get("model")),
            input_tokens=as_int(self._usage.get("input_tokens")),
            cache_read_input_tokens=as_int(self._usage.get("cache_read_input_tokens")),
            cache_creation_input_tokens=as_int(self._usage.get("cache_creation_input_tokens")),
        )

    def _read_message_delta(self, chunk: MessagesChunk) -> None:
        self._count(chunk.get("usage") or {})
        delta = chunk.get("delta") or {}
        # A later delta without a reason does not take the reason back.
        self._stop |= MessagesDelta(**{name: value for name, value in delta.items() if value is not None})  # type: ignore[typeddict-item]
        if delta.get("stop_reason"):
            self.progress()
            self.settle(True)

    def _count(self, usage: JsonObject) -> None:
        # Cumulative: the last value wins. Some servers send zeros first, some zeros last; neither is news.
        for name, value in usage.items():
            if value is not None and (value != 0 or name not in _COUNTS or not self._usage.get(name)):
                self._usage[name] = value

    # -- blocks

    def _start(self, out: list[SamplingEvent], chunk: MessagesChunk) -> None:
        self.progress()
        if self._open is not None:
            self._close(out, self._open)  # some servers never send content_block_stop
        start = chunk.get("content_block") or {}
        block = self._new_block(_text(start.get("type")) or "text", start)
        self._by_index[chunk.get("index") or 0] = self._open = block
        if block.kind == "tool_use":
            self._open_tool(out, block)
        elif block.kind in SERVER_TOOL_USES:
            call_id, name = _text(start.get("id")) or "", _text(start.get("name")) or ""
            if call_id not in self._server_tools:
                self._server_tools[call_id] = name
                out.append(BackendToolCallStarted(**self.stamp(), call_id=call_id, name=name))
        elif (tool := result_name(block.kind)) is not None:
            self._finish_server_tool(out, start, tool)
        for delta in _deltas_of(start):
            self._read_block_delta(out, block, delta)

    def _new_block(self, kind: str, start: JsonObject) -> Block:
        block = Block(kind, start)
        self._blocks.append(block)
        return block

    def _open_tool(self, out: list[SamplingEvent], block: Block) -> None:
        slot = self.new_slot(id=_text(block.start.get("id")), name=_text(block.start.get("name")))
        slot.id = slot.id or f"toolu_{self._message.get('id') or self.context.request_id}_{slot.index}"
        block.slot = slot
        self.open_tool(out, slot, id=slot.id, name=slot.name)

    def _finish_server_tool(self, out: list[SamplingEvent], result: JsonObject, tool: str) -> None:
        call_id = _text(result.get("tool_use_id")) or ""
        if call_id not in self._server_tools:
            self._server_tools[call_id] = tool
            out.append(BackendToolCallStarted(**self.stamp(), call_id=call_id, name=tool))
        if call_id not in self._finished_tools:
            self._finished_tools.add(call_id)
            name = self._server_tools[call_id]
            out.append(BackendToolCallCompleted(**self.stamp(), call_id=call_id, name=name, result=result))

    def _close(self, out: list[SamplingEvent], block: Block) -> None:
        if self._open is block:
            self._open = None
        slot = block.slot
        self.end_text(out, block.sinks)
        if slot is not None:
            whole = block.start.get("input")
            if not slot.closed and not slot.fragments and whole:
                self.tool_delta(out, slot, json.dumps(whole, ensure_ascii=False))
            slot.closed = True
        elif block.kind == "thinking" and block.signature and not block.announced:
            block.announced = True
            out.append(ReasoningCompleted(**self.stamp(), signature=block.signature))

    # -- deltas

    def _read_delta(self, out: list[SamplingEvent], index: int, delta: MessagesDelta) -> None:
        block = self._by_index.get(index)
        kind = _KIND_OF_DELTA.get(delta.get("type") or "")
        if block is None or (kind is not None and not _takes(block, kind)):
            block = self._stray(out, index, block, kind)
        self._read_block_delta(out, block, delta)

    def _stray(self, out: list[SamplingEvent], index: int, owner: Block | None, kind: str | None) -> Block:
        """The block for a delta that was sent to none, or to one of another type: the delta's type decides."""
        key = (index, kind or "")
        block = self._strayed.get(key)
        if block is None:
            block = self._strayed[key] = self._new_block(kind or "opaque", {"type": kind or "opaque"})
            if owner is None:
                self._by_index[index] = block
            if kind == "tool_use":
                self._open_tool(out, block)
        return block

    def _read_block_delta(self, out: list[SamplingEvent], block: Block, delta: MessagesDelta) -> None:
        kind = delta.get("type")
        if kind == "text_delta":
            self.text(out, block.sinks, delta.get("text") or "")
        elif kind == "thinking_delta":
            self.token(out, block.sinks[REASONING], REASONING, delta.get("thinking") or "")
        elif kind == "input_json_delta":
            self._read_input(out, block, delta.get("partial_json") or "")
        elif kind == "citations_delta":
            if citation := delta.get("citation"):
                self.progress()
                block.citations.append(citation)
                out.append(AnnotationAdded(**self.stamp(), annotation=citation, offset=self.text_chars))
        elif kind != "signature_delta":
            for name, value in delta.items():
                if name != "type" and isinstance(value, str):
                    self.progress()
                    block.strays.setdefault(name, []).append(value)
            return
        if signature := delta.get("signature"):  # on a thinking_delta too, from some bridges
            self.progress()
            block.signature = signature
        elif kind == "signature_delta" and block.signature is None:
            block.signature = ""  # of llama.cpp, which has none and takes the thought back all the same

    def _read_input(self, out: list[SamplingEvent], block: Block, fragment: str) -> None:
        if block.slot is not None:
            self.tool_delta(out, block.slot, fragment)
        elif fragment:
            self.progress()
            block.fragments.append(fragment)

    # -- the end

    def settle_content(self) -> list[SamplingEvent]:
        out: list[SamplingEvent] = []
        if self.done:  # else a failure: what was open stays unfinished
            for block in self._blocks:
                self._close(out, block)
        return out

    def response(self, *, cut: bool) -> SamplingResponse:
        reason = self._stop.get("stop_reason")
        stop = None if cut else stop_with_calls(_STOPS.get(reason or "", "stop"), bool(self.slots()))
        unfinished = cut or stop == "length"
        last = self._blocks[-1].slot if self._blocks else None
        if unfinished and last is not None and not last.arguments.strip():
            last.closed = False  # the limit hit before its first argument, whatever the closing event says
        details = self._stop.get("stop_details") or {}
        return SamplingResponse(
            items=tuple(item for block in self._blocks for item in block.items(cut=unfinished)),
            stop_reason=stop,
            raw_stop_reason=reason,
            stop_sequence=self._stop.get("stop_sequence"),
            stop_message=_text(details.get("explanation")),
            usage=_normalised(self._usage),
            model=_text(self._message.get("model")) or self.context.default_model,
            message_id=_text(self._message.get("id")),
            extras=self._extras(),
        )

    def _extras(self) -> JsonObject:
        extras = {name: self._message[name] for name in ("container", "context_management") if name in self._message}
        if details := self._stop.get("stop_details"):  # its explanation is `stop_message`; the rest is kept here
            extras["stop_details"] = details
        return extras


def _takes(block: Block, kind: str) -> bool:
    return block.kind == kind or (kind == "tool_use" and (block.slot is not None or block.kind in SERVER_TOOL_USES))


def _deltas_of(start: JsonObject) -> list[MessagesDelta]:
    """What a block's opening object already says, as the deltas it stands for."""
    kind = start.get("type")
    deltas: list[MessagesDelta] = []
    if kind == "text" and isinstance(text := start.get("text"), str) and text:
        deltas.append({"type": "text_delta", "text": text})
    if kind == "text":
        found = [citation for entry in as_list(start.get("citations")) if (citation := as_object(entry))]
        deltas += [MessagesDelta(type="citations_delta", citation=citation) for citation in found]
    if kind == "thinking" and isinstance(thought := start.get("thinking"), str) and thought:
        deltas.append({"type": "thinking_delta", "thinking": thought})
    if kind == "thinking" and isinstance(signature := start.get("signature"), str) and signature:
        deltas.append({"type": "signature_delta", "signature": signature})
    return deltas


def _normalised(wire: JsonObject) -> Usage | None:
    """The provider counts the prompt in three parts: uncached, read from the cache, written to it."""
    fresh, output, read, written = (as_int(wire.get(name)) for name in _COUNTS)
    prompt = (fresh or 0) + (read or 0) + (written or 0)
    if not prompt and not output:
        return None
    return Usage(
        input_tokens=prompt,
        output_tokens=output or 0,
        total_tokens=prompt + (output or 0),
        cached_input_tokens=read,
        cache_creation_input_tokens=written,
        wire=wire,
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
