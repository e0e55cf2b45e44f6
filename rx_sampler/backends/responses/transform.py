"""Responses chunks to events.

Text and arguments come three times on this wire: in deltas, in the closing events of part and item, and in the
terminal event. Deltas are what streams; the others reconcile, and say only what has not been said.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from rx_sampler.backends.assembly import DONE, Context, Transform, stop_with_calls
from rx_sampler.backends.chat_completions.usage import cost_usd
from rx_sampler.backends.lenient import as_list, as_object
from rx_sampler.conversation import JsonObject, SamplingResponse, StopReason
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
from .usage import responses_usage

__all__ = ["ResponsesTransform"]


class _Speech(NamedTuple):
    """What a family of text events is about: item type, list of the item that the part stands in, channel."""

    kind: str
    family: str
    channel: str
    whole: str
    """The field of the closing event that repeats the text."""


_SPEECH: Final = {
    "response.output_text": _Speech("message", "content", TEXT, "text"),
    "response.refusal": _Speech("message", "content", REFUSAL, "refusal"),
    "response.reasoning_text": _Speech("reasoning", "content", REASONING, "text"),
    "response.reasoning_summary_text": _Speech("reasoning", "summary", REASONING, "text"),
}
_PARTS: Final = {"output_text": "response.output_text", "refusal": "response.refusal"}
_TOOLS: Final = {
    "response.function_call_arguments": ("function_call", "arguments"),
    "response.custom_tool_call_input": ("custom_tool_call", "input"),
}
_NOWHERE: Final[tuple[object, object]] = (object(), object())  # equal to nothing that a wire can say
_CLIENT_TOOLS: Final = frozenset({"function_call", "custom_tool_call"})
_TERMINAL: Final = frozenset(f"response.{word}" for word in ("completed", "incomplete", "failed", "cancelled", "done"))
_NO_PROGRESS: Final = frozenset({"response.in_progress", "response.queued", "keepalive", "ping"})
_EXTRAS: Final = ("service_tier", "incomplete_details", "conversation", "metadata")


class ResponsesTransform(Transform[ResponsesChunk]):
    """Completes on the terminal event only: on this wire nothing else says that an answer is whole."""

    ended_early = "the stream ended without response.completed or another terminal event"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._output = Output()
        self._call_ids: set[str] = set()
        self._spoken: Part | None = None  # the part that spoke last on the reasoning channel
        self._writing = Part(TEXT)  # where the last text delta went, and what it said about where
        self._writing_at = _NOWHERE
        self._last: tuple[int | None, str, object] = (None, "", None)
        self._created: JsonObject = {}
        self._final: JsonObject | None = None

    def quick(self, document: Any) -> list[SamplingEvent] | None:
        try:
            if document["type"] != "response.output_text.delta":
                return None
            delta, number = document["delta"], document["sequence_number"]
            if type(delta) is not str or type(number) is not int or number == self._last[0] or not delta:
                return None
            if document["output_index"] != self._writing_at[0] or document["content_index"] != self._writing_at[1]:
                return None
            if document.get("error"):
                return None
        except (KeyError, TypeError, AttributeError):
            return None
        self._last = (number, "response.output_text.delta", delta)
        part = self._writing
        part.wire.append(delta)
        part.wire_chars += len(delta)
        out: list[SamplingEvent] = []
        self.token(out, part.sinks[TEXT], TEXT, delta)
        return out

    def feed(self, item: ResponsesChunk) -> list[SamplingEvent]:
        if item is DONE:
            return self.finish()
        kind = item.get("type") or ""
        if self._is_repeated(kind, item):
            return []
        out: list[SamplingEvent] = []
        family, _, phase = kind.rpartition(".")
        if (speech := _SPEECH.get(family)) and phase in ("delta", "done"):
            self._read_speech(out, speech, phase, item)
        elif (tool := _TOOLS.get(family)) and phase in ("delta", "done"):
            self._read_tool(out, *tool, phase, item)
        elif kind in _TERMINAL:
            self._read_end(out, kind, item.get("response") or {})
        else:
            self._read_other(out, kind, item)
        if self._final is not None and not self.done:
            out += self.complete()
        return out

    def has_content(self) -> bool:
        return super().has_content() or bool(self._output.items)

    def _is_repeated(self, kind: str, chunk: ResponsesChunk) -> bool:
        """Sent twice in a row, as some proxies do; a repeated number alone means nothing."""
        number = chunk.get("sequence_number")
        if number is None:
            return False
        last, self._last = self._last, (number, kind, chunk.get("delta") or chunk)
        return number == last[0] and self._last == last

    def _read_other(self, out: list[SamplingEvent], kind: str, chunk: ResponsesChunk) -> None:
        match kind:
            case "response.output_item.added":
                self._read_item_added(out, chunk, chunk.get("item") or {})
            case "response.output_item.done":
                self.progress()
                self._reconcile(out, chunk, chunk.get("item") or {})
            case "response.content_part.done":
                part = chunk.get("part") or {}
                if (family := _PARTS.get(str(part.get("type")))) is not None:
                    speech = _SPEECH[family]
                    self._tail(out, self._part(out, speech, chunk), part.get(speech.whole))
            case "response.output_text.annotation.added":
                self._annotate(out, self._part(out, _SPEECH["response.output_text"], chunk), chunk.get("annotation"))
            case "response.created":
                self._read_created(out, chunk.get("response") or {})
            case _ if kind == CHECK_EVENT:
                self.note_doom_loop(out, chunk.get("doom_loop_check"))
            case _ if kind not in _NO_PROGRESS:
                self._read_hosted(out, kind, chunk)
            case _:
                pass

    # -- text

    def _read_speech(self, out: list[SamplingEvent], speech: _Speech, phase: str, chunk: ResponsesChunk) -> None:
        part = self._part(out, speech, chunk)
        if phase == "done":
            self._tail(out, part, chunk.get("text") if speech.whole == "text" else chunk.get("refusal"))
            return
        index, content = chunk.get("output_index"), chunk.get("content_index")
        self._writing = part
        known = index is not None and content is not None and speech.channel == TEXT
        self._writing_at = (index, content) if known else _NOWHERE
        self._say(out, part, chunk.get("delta"))

    def _part(self, out: list[SamplingEvent], speech: _Speech, chunk: ResponsesChunk) -> Part:
        item = self._output.find(chunk, speech.kind) or self._open(out, speech.kind, chunk, {})
        index = chunk.get("summary_index" if speech.family == "summary" else "content_index")
        return item.part(speech.family, index or 0, speech.channel)

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

    def _tail(self, out: list[SamplingEvent], part: Part, whole: object) -> None:
        """What `whole` says beyond what streamed; a text that does not go on where the stream stopped adds nothing."""
        if isinstance(whole, str) and len(whole) > part.wire_chars and whole.startswith(part.said):
            self._say(out, part, whole[part.wire_chars :])

    def _annotate(self, out: list[SamplingEvent], part: Part, raw: object) -> None:
        annotation = as_object(raw)
        if annotation is not None and self.is_new(annotation):
            self.progress()
            part.annotations.append(annotation)
            out.append(AnnotationAdded(**self.stamp(), annotation=annotation, offset=self.text_chars))

    # -- the client's tools

    def _read_tool(self, out: list[SamplingEvent], kind: str, whole: str, phase: str, chunk: ResponsesChunk) -> None:
        item = self._output.find(chunk, kind) or self._open(out, kind, chunk, {})
        if phase == "done":
            self.progress()
            self._reconcile_tool(
                out, item, chunk.get("name"), chunk.get("arguments" if whole == "arguments" else "input")
            )
            return
        delta = chunk.get("delta")
        if not isinstance(delta, str) or not delta:
            return
        if item.slot is not None:
            self.tool_delta(out, item.slot, delta)
        else:  # a hosted search, or a call whose name is still to come
            self.progress()
            item.part("arguments", 0, "arguments").wire.append(delta)

    def _reconcile_tool(self, out: list[SamplingEvent], item: OutputItem, name: object, whole: object) -> None:
        if item.slot is None and isinstance(name, str) and name:
            self._name_tool(out, item, name)
        slot = item.slot
        if slot is None or whole is None:
            return
        if not isinstance(whole, str):
            whole = json.dumps(whole, ensure_ascii=False)
        if len(whole) > slot.chars and whole.startswith(slot.arguments):
            self.tool_delta(out, slot, whole[slot.chars :])

    # -- items

    def _open(self, out: list[SamplingEvent], kind: str, chunk: ResponsesChunk, wire: JsonObject) -> OutputItem:
        item = self._output.open(kind, index=chunk.get("output_index"), wire=wire, item_id=chunk.get("item_id"))
        item.hosted = hosted_name(kind, wire, self.context.declared_tools)
        item.call_id = str(wire.get("id") or chunk.get("item_id") or wire.get("call_id") or f"item_{item.order}")
        if item.call_id in self._call_ids:
            item.call_id = f"{item.call_id}_{item.order}"  # two places, one id: still two calls
        self._call_ids.add(item.call_id)
        item.tool_id = str(wire.get("call_id") or chunk.get("call_id") or wire.get("id") or item.call_id)
        if wire.get("name"):
            self._name_tool(out, item, str(wire["name"]))
        return item

    def _name_tool(self, out: list[SamplingEvent], item: OutputItem, name: str | None) -> None:
        """A call of the client's tool is shown once its name is known (or never will be): it may be a hosted one."""
        if item.kind not in _CLIENT_TOOLS or item.slot is not None or item.started:
            return
        item.hosted = hosted_name(item.kind, {"name": name}, self.context.declared_tools)
        if item.hosted is None:
            slot = item.slot = self.new_slot(id=item.tool_id, name=name, custom=item.kind == "custom_tool_call")
            held = item.parts.pop(("arguments", 0), None)
            self.open_tool(out, slot, id=slot.id, name=name, arguments=held.said if held else "")

    def _read_item_added(self, out: list[SamplingEvent], chunk: ResponsesChunk, wire: JsonObject) -> None:
        self.progress()
        item = self._output.find_wire(wire, chunk.get("output_index"))
        if item is None:
            item = self._open(out, str(wire.get("type") or ""), chunk, wire)
        else:
            item.wire = item.wire | wire
            item.tool_id = str(wire.get("call_id") or item.tool_id)
            self._reconcile_tool(out, item, wire.get("name"), None)
        self._start_hosted(out, item)

    def _reconcile(self, out: list[SamplingEvent], chunk: ResponsesChunk, wire: JsonObject) -> None:
        """Take a whole item for what has not streamed of it."""
        kind = str(wire.get("type") or "")
        item = self._output.find_wire(wire, chunk.get("output_index"))
        if item is None and (newest := self._output.find(chunk, kind)) and not newest.completed and not newest.wire:
            item = newest  # opened by a delta that named nothing
        self._complete_item(out, item or self._open(out, kind, chunk, wire), wire)

    def _complete_item(self, out: list[SamplingEvent], item: OutputItem, wire: JsonObject) -> None:
        item.wire = wire
        item.tool_id = str(wire.get("call_id") or item.tool_id)
        self._output.learn(item, wire)
        self._reconcile_tool(out, item, wire.get("name"), None)
        if item.hosted is not None:
            self._finish_hosted(out, item)
        elif item.slot is not None:
            if item.slot.id != item.tool_id:
                item.slot.id = item.tool_id
                self.open_tool(out, item.slot, id=item.tool_id, name=None)
            self._reconcile_tool(out, item, wire.get("name"), wire.get("input" if item.slot.custom else "arguments"))
            item.slot.closed = wire.get("status") != "incomplete"
        elif item.kind in ("message", "reasoning"):
            self._reconcile_parts(out, item, wire)
        item.completed = True

    def _reconcile_parts(self, out: list[SamplingEvent], item: OutputItem, wire: JsonObject) -> None:
        reasoning = item.kind == "reasoning"
        for family, index, text, raw in wire_parts(wire):
            if reasoning and (family, index) not in item.parts and item.has_said(text):
                continue  # some servers repeat a reasoning text as its own summary
            channel = REASONING if reasoning else REFUSAL if raw.get("type") == "refusal" else TEXT
            part = item.part(family, index, channel)
            self._tail(out, part, text)
            for annotation in as_list(raw.get("annotations")):
                self._annotate(out, part, annotation)
        encrypted = wire.get("encrypted_content")
        if isinstance(encrypted, str) and encrypted and not item.signed:
            item.signed = True
            out.append(ReasoningCompleted(**self.stamp(), signature=encrypted))

    # -- the server's own tools

    def _read_hosted(self, out: list[SamplingEvent], kind: str, chunk: ResponsesChunk) -> None:
        """Events of hosted tools (`response.web_search_call.searching`), and types that nobody has heard of."""
        family = kind.split(".")[1] if kind.startswith("response.") else ""
        if not family:
            self.note_damage(chunk)
            return
        self.progress()
        if family.endswith("_call") and hosted_name(family, {}, self.context.declared_tools) is not None:
            self._start_hosted(out, self._output.find(chunk, family) or self._open(out, family, chunk, {}))

    def settle_content(self) -> list[SamplingEvent]:
        out: list[SamplingEvent] = []
        for item in self._output.items:
            if ("arguments", 0) in item.parts and item.hosted is None:
                self._name_tool(out, item, None)
        return out

    def _start_hosted(self, out: list[SamplingEvent], item: OutputItem) -> None:
        if not item.started and item.hosted is not None:
            item.started = True
            out.append(BackendToolCallStarted(**self.stamp(), call_id=item.call_id, name=item.hosted))

    def _finish_hosted(self, out: list[SamplingEvent], item: OutputItem) -> None:
        self._start_hosted(out, item)
        if not item.completed and item.hosted is not None:
            out.append(
                BackendToolCallCompleted(**self.stamp(), call_id=item.call_id, name=item.hosted, result=item.wire)
            )

    # -- beginning and end

    def _read_created(self, out: list[SamplingEvent], created: JsonObject) -> None:
        self._created = created
        identity, model = _text(created.get("id")), _text(created.get("model"))
        if identity or model:
            self.announce(out, message_id=identity, model=model)

    def _read_end(self, out: list[SamplingEvent], kind: str, final: JsonObject) -> None:
        self.progress()
        wires = [as_object(entry) for entry in as_list(final.get("output"))]
        for item, wire, index in self._output.match(wires):
            self._complete_item(out, item or self._open(out, str(wire.get("type") or ""), index, wire), wire)
        if self.context.notes_doom_loops:  # judged with the whole answer
            self.doom_loop_triggers = merged_triggers(self.doom_loop_triggers, final.get("doom_loop_check"))
        word = kind.removeprefix("response.")
        status = word if word in ("incomplete", "failed", "cancelled") else _text(final.get("status")) or word
        if status == "failed":
            self.done, self.error = True, refusal(read_error(final.get("error")))
        elif status in ("cancelled", "canceled"):
            message = "the response was cancelled by server"
            self.done, self.error = True, SamplingError.of(SamplingErrorKind.API, message, code="cancelled")
        else:
            self._final = {**final, "status": status}
        if self._final is None:
            self._created = self._created | {name: value for name, value in final.items() if value is not None}

    def response(self, *, cut: bool) -> SamplingResponse:
        final = self._final or self._created
        usage = as_object(final.get("usage")) or {}
        reason = self._raw_reason()
        stop = self._stop_reason(reason) if self._final is not None else None
        unfinished = cut or stop == "length"
        return SamplingResponse(
            items=tuple(item for output in self._output.in_order() for item in output.items(cut=unfinished)),
            stop_reason=stop,
            raw_stop_reason=reason,
            usage=responses_usage(usage),
            cost_usd=cost_usd(usage),
            model=_text(final.get("model")) or _text(self._created.get("model")) or self.context.default_model,
            message_id=_text(final.get("id")) or _text(self._created.get("id")),
            doom_loop_triggers=self.doom_loop_triggers,
            extras={name: final[name] for name in _EXTRAS if final.get(name)},
        )

    def _raw_reason(self) -> str | None:
        """The reason of an incomplete response, else its status."""
        final = self._final or {}
        status = _text(final.get("status"))
        details = as_object(final.get("incomplete_details")) or {}
        return _text(details.get("reason")) or status if status == "incomplete" else status

    def _stop_reason(self, reason: str | None) -> StopReason:
        if self._final is not None and self._final.get("status") == "incomplete":
            return "content_filter" if reason == "content_filter" else "length"
        refused = any(part.sinks[REFUSAL] for item in self._output.items for part in item.parts.values())
        return "content_filter" if refused else stop_with_calls("stop", bool(self.slots()))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
