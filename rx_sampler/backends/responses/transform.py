"""Responses chunks to events."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from rx_sampler.backends.assembly import DONE, Context, Transform, stop_with_calls
from rx_sampler.backends.chat_completions.usage import cost_usd
from rx_sampler.backends.lenient import as_int, as_list, as_object
from rx_sampler.conversation import JsonObject, SamplingResponse, StopReason, Usage
from rx_sampler.errors import SamplingError, SamplingErrorKind
from rx_sampler.events import (
    REASONING,
    REFUSAL,
    TEXT,
    AnnotationAdded,
    BackendToolCallCompleted,
    BackendToolCallStarted,
    ReasoningCompleted,
    SamplingEvent,
)
from rx_sampler.wire.doom_loop import CHECK_EVENT, merged_triggers
from rx_sampler.wire.error_bodies import read_error, refusal

from .chunks import ResponsesChunk
from .items import Output, OutputItem, Part, hosted_name, wire_parts

__all__ = ["ResponsesTransform"]

_NO_PROGRESS: Final = frozenset({"response.created", "response.in_progress", "response.queued", "keepalive", "ping"})

_EXTRAS: Final = ("service_tier", "incomplete_details", "conversation", "metadata")


class ResponsesTransform(Transform[ResponsesChunk]):
    """Completes on the terminal event only: on this wire nothing else says that an answer is whole."""

    ended_early = "the stream ended without response.completed or another terminal event"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._output = Output()
        self._spoken: Part | None = None  # the part that spoke last on the reasoning channel
        self._writing = Part(TEXT)  # where the last text delta went, and what it said about where
        self._writing_at: tuple[int | None, int | None] | None = None
        self._final: JsonObject = {}
        self._named_by: JsonObject = {}
        self._last: tuple[int | None, str, object] = (None, "", None)
        self._handlers: dict[str, Callable[[list[SamplingEvent], ResponsesChunk], None]] = {
            "response.output_text.delta": self._text_delta,
            "response.reasoning_text.delta": self._reasoning_delta,
            "response.reasoning_summary_text.delta": self._summary_delta,
            "response.refusal.delta": self._refusal_delta,
            "response.function_call_arguments.delta": self._arguments_delta,
            "response.custom_tool_call_input.delta": self._input_delta,
            "response.output_text.done": self._text_done,
            "response.reasoning_text.done": self._reasoning_done,
            "response.reasoning_summary_text.done": self._summary_done,
            "response.refusal.done": self._refusal_done,
            "response.content_part.done": self._part_done,
            "response.function_call_arguments.done": self._arguments_done,
            "response.custom_tool_call_input.done": self._input_done,
            "response.output_item.added": self._item_added,
            "response.output_item.done": self._item_done,
            "response.output_text.annotation.added": self._annotation_added,
            "response.created": self._created,
            "response.completed": self._ended,
            "response.incomplete": self._ended,
            "response.done": self._ended,
            "response.failed": self._ended,
            "response.cancelled": self._ended,
            CHECK_EVENT: self._doom_loop_check,
        }

    def quick(self, document: Any) -> list[SamplingEvent] | None:
        try:
            kind, delta, number = document["type"], document["delta"], document.get("sequence_number")
            if kind != "response.output_text.delta" or type(delta) is not str or number == self._last[0]:
                return None
            if (document["output_index"], document["content_index"]) != self._writing_at:
                return None
        except (KeyError, TypeError, AttributeError):
            return None
        if number is not None:
            self._last = (number, kind, delta)
        out: list[SamplingEvent] = []
        self._say(out, self._writing, delta)
        return out

    def feed(self, item: ResponsesChunk) -> list[SamplingEvent]:
        if item is DONE:
            return self.finish()
        out: list[SamplingEvent] = []
        kind = item.get("type") or ""
        number = item.get("sequence_number")
        if number is not None:
            last, self._last = self._last, (number, kind, item.get("delta") or item)
            if number == last[0] and self._last == last:
                return out  # sent twice by a proxy; a repeated number alone means nothing
        handler = self._handlers.get(kind)
        if handler is not None:
            handler(out, item)
        elif kind not in _NO_PROGRESS:
            self._other(out, kind, item)
        if self._final and not self.done:
            out += self.complete()
        return out

    def has_content(self) -> bool:
        return super().has_content() or bool(self._output.items)

    # -- deltas

    def _text_delta(self, out: list[SamplingEvent], chunk: ResponsesChunk) -> None:
        part = self._part(out, chunk, "message", "content", TEXT)
        where = (chunk.get("output_index"), chunk.get("content_index"))
        self._writing, self._writing_at = part, where if None not in where else None
        self._say(out, part, chunk.get("delta"))

    def _refusal_delta(self, out: list[SamplingEvent], chunk: ResponsesChunk) -> None:
        part = self._part(out, chunk, "message", "content", REFUSAL)
        self._say(out, part, chunk.get("delta"))

    def _reasoning_delta(self, out: list[SamplingEvent], chunk: ResponsesChunk) -> None:
        part = self._part(out, chunk, "reasoning", "content", REASONING)
        self._say(out, part, chunk.get("delta"))

    def _summary_delta(self, out: list[SamplingEvent], chunk: ResponsesChunk) -> None:
        part = self._part(out, chunk, "reasoning", "summary", REASONING)
        self._say(out, part, chunk.get("delta"))

    def _part(self, out: list[SamplingEvent], chunk: ResponsesChunk, kind: str, family: str, channel: str) -> Part:
        item = self._output.find(chunk, kind)
        if item is None:
            item = self._open(out, kind, chunk, {})
        index = chunk.get("summary_index" if family == "summary" else "content_index") or 0
        return self._part_of(item, family, index, channel)

    @staticmethod
    def _part_of(item: OutputItem, family: str, index: int, channel: str) -> Part:
        part = item.parts.get((family, index))
        if part is None:
            part = item.parts[family, index] = Part(channel)
        part.channel = channel
        return part

    def _say(self, out: list[SamplingEvent], part: Part, delta: object) -> None:
        if not isinstance(delta, str) or not delta:
            return
        part.wire.append(delta)
        part.wire_chars += len(delta)
        if part.channel == TEXT:
            self.text(out, part.sinks, delta)
            return
        if part.channel == REASONING and part is not self._spoken:
            if self._spoken is not None:  # summary parts have no separator on the wire
                delta = "\n\n" + delta
            self._spoken = part
        self.token(out, part.sinks[part.channel], part.channel, delta)

    def _arguments_delta(self, out: list[SamplingEvent], chunk: ResponsesChunk) -> None:
        self._tool_delta(out, chunk, "function_call")

    def _input_delta(self, out: list[SamplingEvent], chunk: ResponsesChunk) -> None:
        self._tool_delta(out, chunk, "custom_tool_call")

    def _tool_delta(self, out: list[SamplingEvent], chunk: ResponsesChunk, kind: str) -> None:
        item = self._output.find(chunk, kind) or self._open(out, kind, chunk, {})
        delta = chunk.get("delta")
        if not isinstance(delta, str) or not delta:
            return
        if item.slot is not None and item.slot.name is not None:
            self.tool_delta(out, item.slot, delta)
        else:  # a hosted search, or a call whose name comes with its closing event
            self.progress()
            self._part_of(item, "arguments", 0, "arguments").wire.append(delta)

    # -- closing events: they reconcile, and say only what has not streamed

    def _text_done(self, out: list[SamplingEvent], chunk: ResponsesChunk) -> None:
        self._tail(out, self._part(out, chunk, "message", "content", TEXT), chunk.get("text"))

    def _refusal_done(self, out: list[SamplingEvent], chunk: ResponsesChunk) -> None:
        self._tail(out, self._part(out, chunk, "message", "content", REFUSAL), chunk.get("refusal"))

    def _reasoning_done(self, out: list[SamplingEvent], chunk: ResponsesChunk) -> None:
        self._tail(out, self._part(out, chunk, "reasoning", "content", REASONING), chunk.get("text"))

    def _summary_done(self, out: list[SamplingEvent], chunk: ResponsesChunk) -> None:
        self._tail(out, self._part(out, chunk, "reasoning", "summary", REASONING), chunk.get("text"))

    def _part_done(self, out: list[SamplingEvent], chunk: ResponsesChunk) -> None:
        part = chunk.get("part") or {}
        if part.get("type") == "output_text":
            self._tail(out, self._part(out, chunk, "message", "content", TEXT), part.get("text"))
        elif part.get("type") == "refusal":
            self._tail(out, self._part(out, chunk, "message", "content", REFUSAL), part.get("refusal"))

    def _tail(self, out: list[SamplingEvent], part: Part, whole: object) -> None:
        if isinstance(whole, str) and len(whole) > part.wire_chars and whole.startswith(part.said):
            self._say(out, part, whole[part.wire_chars :])

    def _arguments_done(self, out: list[SamplingEvent], chunk: ResponsesChunk) -> None:
        self._close_tool(out, chunk, "function_call", chunk.get("arguments"))

    def _input_done(self, out: list[SamplingEvent], chunk: ResponsesChunk) -> None:
        self._close_tool(out, chunk, "custom_tool_call", chunk.get("input"))

    def _close_tool(self, out: list[SamplingEvent], chunk: ResponsesChunk, kind: str, whole: object) -> None:
        self.progress()
        item = self._output.find(chunk, kind) or self._open(out, kind, chunk, {})
        self._reconcile_tool(out, item, chunk.get("name"), whole)

    def _reconcile_tool(self, out: list[SamplingEvent], item: OutputItem, name: object, whole: object) -> None:
        slot = item.slot
        if slot is None:
            return
        if slot.name is None and isinstance(name, str) and name:
            slot.name = name
            held = item.parts.pop(("arguments", 0), None)
            self.open_tool(out, slot, id=slot.id, name=name, arguments=held.said if held else "")
        if slot.name is None or whole is None:
            return
        if not isinstance(whole, str):
            whole = json.dumps(whole, ensure_ascii=False)
        said = slot.arguments
        if len(whole) > len(said) and whole.startswith(said):
            self.tool_delta(out, slot, whole[len(said) :])

    # -- items

    def _open(self, out: list[SamplingEvent], kind: str, chunk: ResponsesChunk, wire: JsonObject) -> OutputItem:
        item = self._output.open(kind, index=chunk.get("output_index"), wire=wire, item_id=chunk.get("item_id"))
        item.hosted = hosted_name(kind, wire, self.context.declared_tools)
        name = wire.get("id") or chunk.get("item_id") or wire.get("call_id") or f"item_{item.order}"
        item.call_id = str(name)
        if kind in ("function_call", "custom_tool_call") and item.hosted is None:
            call_id = wire.get("call_id") or chunk.get("call_id") or wire.get("id") or item.call_id
            slot = item.slot = self.new_slot(id=str(call_id), custom=kind == "custom_tool_call")
            if wire.get("name"):
                slot.name = str(wire["name"])
                self.open_tool(out, slot, id=slot.id, name=slot.name)
        return item

    def _item_added(self, out: list[SamplingEvent], chunk: ResponsesChunk) -> None:
        self.progress()
        wire = chunk.get("item") or {}
        item = self._output.find_wire(wire, chunk.get("output_index"))
        if item is None:
            item = self._open(out, str(wire.get("type") or ""), chunk, wire)
        else:
            item.wire = item.wire | wire
        if item.hosted is not None:
            self._start_hosted(out, item)

    def _item_done(self, out: list[SamplingEvent], chunk: ResponsesChunk) -> None:
        self.progress()
        wire = chunk.get("item") or {}
        self._reconcile(out, chunk, wire)

    def _reconcile(self, out: list[SamplingEvent], chunk: ResponsesChunk, wire: JsonObject) -> None:
        """Take a whole item for what has not streamed of it."""
        kind = str(wire.get("type") or "")
        item = self._output.find_wire(wire, chunk.get("output_index"))
        if item is None and (newest := self._output.find(chunk, kind)) and not newest.completed and not newest.wire:
            item = newest  # opened by a delta that named nothing
        if item is None:
            item = self._open(out, kind, chunk, wire)
        item.wire = wire
        self._output.learn(item, wire)
        if item.hosted is not None:
            self._finish_hosted(out, item)
        elif item.slot is not None:
            if wire.get("call_id"):
                item.slot.id = str(wire["call_id"])
            self._reconcile_tool(out, item, wire.get("name"), wire.get("input" if item.slot.custom else "arguments"))
            item.slot.closed = wire.get("status") != "incomplete"
        elif kind in ("message", "reasoning"):
            self._reconcile_parts(out, item, kind, wire)
        item.completed = True

    def _reconcile_parts(self, out: list[SamplingEvent], item: OutputItem, kind: str, wire: JsonObject) -> None:
        for family, index, text, raw in wire_parts(wire):
            channel = REASONING if kind == "reasoning" else REFUSAL if raw.get("type") == "refusal" else TEXT
            if kind == "reasoning" and (family, index) not in item.parts and self._was_said(item, text):
                continue
            part = self._part_of(item, family, index, channel)
            self._tail(out, part, text)
            for annotation in as_list(raw.get("annotations")):
                self._annotate(out, part, annotation)
        encrypted = wire.get("encrypted_content")
        if isinstance(encrypted, str) and encrypted and not item.signed:
            item.signed = True
            out.append(ReasoningCompleted(**self.stamp(), signature=encrypted))

    @staticmethod
    def _was_said(item: OutputItem, text: str) -> bool:
        """Some servers repeat a reasoning text as its own summary."""
        return any(part.wire_chars == len(text) and part.said == text for part in item.parts.values())

    def _annotation_added(self, out: list[SamplingEvent], chunk: ResponsesChunk) -> None:
        self._annotate(out, self._part(out, chunk, "message", "content", TEXT), chunk.get("annotation"))

    def _annotate(self, out: list[SamplingEvent], part: Part, raw: object) -> None:
        annotation = as_object(raw)
        if annotation is not None and annotation not in part.annotations:
            self.progress()
            part.annotations.append(annotation)
            out.append(AnnotationAdded(**self.stamp(), annotation=annotation, offset=self.text_chars))

    # -- the server's own tools

    def _other(self, out: list[SamplingEvent], kind: str, chunk: ResponsesChunk) -> None:
        """Events of hosted tools (`response.web_search_call.searching`), and types that nobody has heard of."""
        family = kind.split(".")[1] if kind.startswith("response.") else ""
        if not family:
            self.note_damage(chunk)
            return
        self.progress()
        if family.endswith("_call") and hosted_name(family, {}, self.context.declared_tools) is not None:
            item = self._output.find(chunk, family) or self._open(out, family, chunk, {})
            self._start_hosted(out, item)

    def _start_hosted(self, out: list[SamplingEvent], item: OutputItem) -> None:
        if not item.started and item.hosted is not None:
            item.started = True
            out.append(BackendToolCallStarted(**self.stamp(), call_id=item.call_id, name=item.hosted))

    def _finish_hosted(self, out: list[SamplingEvent], item: OutputItem) -> None:
        self._start_hosted(out, item)
        if not item.completed and item.hosted is not None:
            item.completed = True
            out.append(
                BackendToolCallCompleted(**self.stamp(), call_id=item.call_id, name=item.hosted, result=item.wire)
            )

    def _doom_loop_check(self, _out: list[SamplingEvent], chunk: ResponsesChunk) -> None:
        self.doom_loop_triggers = merged_triggers(self.doom_loop_triggers, chunk.get("doom_loop_check"))

    # -- beginning and end

    def _created(self, out: list[SamplingEvent], chunk: ResponsesChunk) -> None:
        self._named_by = chunk.get("response") or {}
        identity, model = (_text(self._named_by.get(name)) for name in ("id", "model"))
        if identity or model:
            self.announce(out, message_id=identity, model=model)

    def _ended(self, out: list[SamplingEvent], chunk: ResponsesChunk) -> None:
        self.progress()
        final = chunk.get("response") or {}
        kind = chunk.get("type") or ""
        status = _text(final.get("status")) or kind.removeprefix("response.")
        for index, raw in enumerate(as_list(final.get("output"))):
            if wire := as_object(raw):
                self._reconcile_final(out, wire, index)
        self.doom_loop_triggers = merged_triggers(self.doom_loop_triggers, final.get("doom_loop_check"))
        if kind == "response.failed" or status == "failed":
            self._fail_with(refusal(read_error(final.get("error"))), final)
        elif kind == "response.cancelled" or status in ("cancelled", "canceled"):
            self._fail_with(
                SamplingError.of(SamplingErrorKind.API, "the response was cancelled by server", code="cancelled"), final
            )
        else:
            self._final = {**final, "status": "incomplete" if kind == "response.incomplete" else status}

    def _fail_with(self, error: SamplingError, final: JsonObject) -> None:
        self._named_by = {**self._named_by, **{k: v for k, v in final.items() if v is not None}}
        self.done, self.error = True, error

    def _reconcile_final(self, out: list[SamplingEvent], wire: JsonObject, index: int) -> None:
        item = self._output.find_wire(wire, index)
        if item is None or item.kind != wire.get("type"):
            # Without indexes and ids on the events, the nth item of its type is the nth that streamed.
            item = next(
                (i for i in self._output.items if i.kind == wire.get("type") and i.index is None and not i.completed),
                item if item is not None and item.kind == wire.get("type") else None,
            )
        if item is None:
            known = {i.index for i in self._output.items}
            self._reconcile(out, {"output_index": index} if index not in known else {}, wire)
        else:
            hosted_done = item.completed
            self._reconcile(
                out, {"output_index": item.index} if item.index is not None else {}, wire | {"id": wire.get("id")}
            )
            item.completed = item.completed or hosted_done

    def response(self, *, cut: bool) -> SamplingResponse:
        final = self._final or self._named_by
        usage = as_object(final.get("usage")) or {}
        reason = self._raw_reason()
        stop = None if cut and not self._final else self._stop_reason(reason)
        unfinished = cut or stop == "length"
        return SamplingResponse(
            items=tuple(item for output in self._output.in_order() for item in output.items(cut=unfinished)),
            stop_reason=stop,
            raw_stop_reason=reason,
            usage=_normalised(usage),
            cost_usd=cost_usd(usage),
            model=_text(final.get("model")) or _text(self._named_by.get("model")) or self.context.default_model,
            message_id=_text(final.get("id")) or _text(self._named_by.get("id")),
            doom_loop_triggers=self.doom_loop_triggers,
            extras={name: final[name] for name in _EXTRAS if final.get(name)},
        )

    def _raw_reason(self) -> str | None:
        """The reason of an incomplete response, else its status."""
        status = _text(self._final.get("status"))
        if status != "incomplete":
            return status
        return _text((as_object(self._final.get("incomplete_details")) or {}).get("reason")) or status

    def _stop_reason(self, reason: str | None) -> StopReason:
        if self._final.get("status") == "incomplete":
            return "content_filter" if reason == "content_filter" else "length"
        refused = any(part.sinks[REFUSAL] for item in self._output.items for part in item.parts.values())
        return "content_filter" if refused else stop_with_calls("stop", bool(self.slots()))


def _normalised(wire: JsonObject) -> Usage | None:
    prompt, output, total = (as_int(wire.get(name)) for name in ("input_tokens", "output_tokens", "total_tokens"))
    if not prompt and not output and not total:
        return None
    # xAI bills all server turns together; context_details tells the length of the conversation.
    context = as_object(wire.get("context_details")) or {}
    live = [as_int(context.get(name)) for name in ("input_tokens", "output_tokens")]
    if live[0] is not None and live[1] is not None:
        total = live[0] + live[1]
    return Usage(
        input_tokens=prompt or 0,
        output_tokens=output or 0,
        total_tokens=total if total is not None else (prompt or 0) + (output or 0),
        cached_input_tokens=as_int((as_object(wire.get("input_tokens_details")) or {}).get("cached_tokens")),
        reasoning_tokens=as_int((as_object(wire.get("output_tokens_details")) or {}).get("reasoning_tokens")),
        wire=wire,
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
