"""Gemini chunks to events."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Final, Literal

from rx_sampler import (
    AnnotationAdded,
    BackendToolCallCompleted,
    BackendToolCallItem,
    BackendToolCallStarted,
    OpaqueItem,
    ReasoningCompleted,
    ReasoningItem,
    SamplingEvent,
    SamplingResponse,
    TextItem,
    Usage,
)
from rx_sampler.backends.assembly import Context, ToolSlot, Transform, stop_with_calls
from rx_sampler.backends.lenient import as_int, as_list, as_object
from rx_sampler.conversation import ResponseItem, StopReason
from rx_sampler.events import REASONING, TEXT

from .chunks import Candidate, FunctionCall, GeminiChunk, Json, Part

__all__ = ["GeminiTransform"]

_STOPS: Final[dict[str, StopReason]] = {
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
}
"""Finish reasons that are not a plain stop; the set is open."""

_CODE: Final = "code_execution"
_KINDS: Final = ("functionCall", "executableCode", "codeExecutionResult")

Kind = Literal["text", "thought", "call", "code", "opaque"]


@dataclass(slots=True)
class _Block:
    """What becomes one item: parts of text that follow each other, or one part of another kind."""

    kind: Kind
    sinks: dict[str, list[str]] = field(default_factory=lambda: {TEXT: [], REASONING: []})
    signature: str | None = None
    annotations: list[Json] = field(default_factory=list[Json])
    slot: ToolSlot | None = None
    call_id: str = ""
    wire: list[Json] = field(default_factory=list[Json])

    def items(self, *, cut: bool) -> list[ResponseItem]:
        text, thought = "".join(self.sinks[TEXT]), "".join(self.sinks[REASONING])
        if self.kind == "thought":
            return [ReasoningItem(text=thought, signature=self.signature)] if thought or self.signature else []
        # An item has no place for a signature but reasoning: it stands before what it belongs to.
        items: list[ResponseItem] = [ReasoningItem(signature=self.signature)] if self.signature else []
        if self.slot is not None:
            return [*items, self.slot.call(cut=cut)]
        if self.kind == "code":
            return [*items, BackendToolCallItem(call_id=self.call_id, name=_CODE, wire=tuple(self.wire))]
        if self.kind == "opaque":
            return [OpaqueItem(wire=wire) for wire in self.wire]
        if thought:  # think tags may have parted the text
            items.append(ReasoningItem(text=thought))
        if text or self.annotations:
            items.append(TextItem(text=text, annotations=tuple(self.annotations)))
        return items


@dataclass(slots=True)
class _Answer:
    """One candidate."""

    index: int
    blocks: list[_Block] = field(default_factory=list[_Block])
    finish_reason: str | None = None
    finish_message: str | None = None


class GeminiTransform(Transform[GeminiChunk]):
    """Completes at the end of the body, once every candidate has a finish reason: nothing else announces the end."""

    ended_early = "the stream ended without a finish reason"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._answers: dict[int, _Answer] = {}
        self._id: str | None = None
        self._model: str | None = None
        self._usage: Json = {}
        self._blocked: tuple[str, str | None] | None = None

    def feed(self, item: GeminiChunk) -> list[SamplingEvent]:
        out: list[SamplingEvent] = []
        if not item:
            self.note_damage(item)
            return out
        self._name(out, item)
        if usage := item.get("usageMetadata"):
            self._usage |= {name: value for name, value in usage.items() if value is not None}
        for candidate in item.get("candidates") or ():
            self._read_candidate(out, candidate)
        feedback = item.get("promptFeedback") or {}
        if reason := feedback.get("blockReason"):
            self._blocked = reason, feedback.get("blockReasonMessage")
        stopped = len(self._answers) >= self.context.choices and all(a.finish_reason for a in self._answers.values())
        self.settle(stopped or self._blocked is not None)
        return out

    def has_content(self) -> bool:
        return super().has_content() or any(answer.blocks for answer in self._answers.values())

    def _name(self, out: list[SamplingEvent], chunk: GeminiChunk) -> None:
        self._id = self._id or chunk.get("responseId") or None
        self._model = self._model or chunk.get("modelVersion") or None
        if self._id or self._model:
            self.announce(out, message_id=self._id, model=self._model)

    def _read_candidate(self, out: list[SamplingEvent], candidate: Candidate) -> None:
        index = candidate.get("index") or 0
        answer = self._answers.setdefault(index, _Answer(index))
        for part in (candidate.get("content") or {}).get("parts") or ():
            self._read_part(out, answer, part)
        self._cite(out, answer, candidate)
        if reason := candidate.get("finishReason"):
            self.progress()
            answer.finish_reason = reason
            answer.finish_message = candidate.get("finishMessage") or answer.finish_message

    # -- parts

    def _read_part(self, out: list[SamplingEvent], answer: _Answer, part: Part) -> None:
        text, signature = part.get("text"), part.get("thoughtSignature") or None
        if call := part.get("functionCall"):
            block = self._call(out, answer, call)
        elif part.get("executableCode") or part.get("codeExecutionResult"):
            self._run_code(out, answer, part)
            return
        elif text is not None or not _is_opaque(part):
            block = self._speak(out, answer, text or "", signature, is_thought=part.get("thought") is True)
        else:
            self.progress()
            answer.blocks.append(_Block("opaque", wire=[dict(part)]))
            return
        if signature and block is not None:
            self.progress()
            block.signature = signature
            if answer.index == 0:
                out.append(ReasoningCompleted(**self.stamp(), signature=signature))

    def _speak(
        self, out: list[SamplingEvent], answer: _Answer, text: str, signature: str | None, *, is_thought: bool
    ) -> _Block | None:
        if not text and not signature:
            return None
        kind: Kind = "thought" if is_thought else "text"
        last = answer.blocks[-1] if answer.blocks else None
        # A part with a signature has to go back as it came, so nothing is joined to it. The thoughts before it are its
        # own, though: their signature comes with the last of them.
        joins = last is not None and last.kind == kind and not last.signature and (is_thought or not signature)
        block = last if joins and last is not None else _Block(kind)
        if block is not last:
            answer.blocks.append(block)
        if is_thought:
            self.token(out, block.sinks[REASONING], REASONING, text, answer.index)
        else:
            self.text(out, block.sinks, text, answer.index)
        return block

    def _call(self, out: list[SamplingEvent], answer: _Answer, call: FunctionCall) -> _Block:
        slot = self.new_slot(answer.index, name=call.get("name") or None)
        slot.id = call.get("id") or f"call_{self._id or self.context.request_id}_{answer.index}_{slot.index}"
        arguments = json.dumps(call.get("args") or {}, ensure_ascii=False)
        self.open_tool(out, slot, id=slot.id, name=slot.name, arguments=arguments)
        slot.closed = True
        answer.blocks.append(block := _Block("call", slot=slot))
        return block

    def _run_code(self, out: list[SamplingEvent], answer: _Answer, part: Part) -> None:
        """The server's own interpreter: a part with the code, then one with what it printed."""
        self.progress()
        last = answer.blocks[-1] if answer.blocks else None
        wire: Json = {name: value for name, value in part.items() if value is not None}
        is_result = not part.get("executableCode")
        if is_result and last is not None and last.kind == "code" and len(last.wire) == 1:
            block = last
            block.wire.append(wire)
        else:
            count = sum(block.kind == "code" for block in answer.blocks)
            answer.blocks.append(block := _Block("code", call_id=f"{_CODE}_{count}", wire=[wire]))
            if answer.index == 0:
                out.append(BackendToolCallStarted(**self.stamp(), call_id=block.call_id, name=_CODE))
        if is_result and answer.index == 0:
            out.append(BackendToolCallCompleted(**self.stamp(), call_id=block.call_id, name=_CODE, result=wire))

    # -- citations

    def _cite(self, out: list[SamplingEvent], answer: _Answer, candidate: Candidate) -> None:
        found = _grounding(candidate.get("groundingMetadata") or {})
        citations = candidate.get("citationMetadata") or {}
        found += [
            c for c in map(as_object, as_list(citations.get("citationSources") or citations.get("citations"))) if c
        ]
        for annotation in found:
            if answer.index != 0 or not self.is_new(annotation):
                continue
            self.progress()
            self._cited(answer).annotations.append(annotation)
            out.append(AnnotationAdded(**self.stamp(), annotation=annotation, offset=self.text_chars))

    def _cited(self, answer: _Answer) -> _Block:
        for block in reversed(answer.blocks):
            if block.kind == "text":
                return block
        answer.blocks.append(block := _Block("text"))
        return block

    # -- the answer

    def response(self, *, cut: bool) -> SamplingResponse:
        answer = self._answers.get(0) or _Answer(0)
        reason, message = answer.finish_reason, answer.finish_message
        stop = stop_with_calls(_STOPS.get(reason or "", "stop"), bool(self.slots()))
        if reason is None and self._blocked is not None:
            (reason, message), stop = self._blocked, "content_filter"
        return SamplingResponse(
            items=tuple(item for block in answer.blocks for item in block.items(cut=cut)),
            stop_reason=None if cut else stop,
            raw_stop_reason=reason,
            stop_message=message,
            usage=_counts(self._usage),
            model=self._model or self.context.default_model,
            message_id=self._id,
        )


def _is_opaque(part: Part) -> bool:
    """Whether the part is of a kind that has no meaning here: an image that was painted, a call of tomorrow's tools."""
    known = {"text", "thought", "thoughtSignature", *_KINDS}
    return any(value is not None for name, value in part.items() if name not in known)


def _grounding(metadata: Json) -> list[Json]:
    """Citations: stretches of the text (`segment`, in bytes) with their sources, or the sources alone."""
    sources = [as_object(chunk) or {} for chunk in as_list(metadata.get("groundingChunks"))]
    supports = [support for entry in as_list(metadata.get("groundingSupports")) if (support := as_object(entry))]
    if not supports:
        return [source for source in sources if source]
    return [{**support, "groundingChunks": _cited_sources(support, sources)} for support in supports]


def _cited_sources(support: Json, sources: list[Json]) -> list[Json]:
    numbers = [as_int(number) for number in as_list(support.get("groundingChunkIndices"))]
    return [sources[number] for number in numbers if number is not None and 0 <= number < len(sources)]


def _counts(wire: Json) -> Usage | None:
    """The prompt counts what came from the cache, the candidates do not count the thoughts."""
    if not wire:
        return None

    def count(name: str) -> int | None:
        return as_int(wire.get(name))

    prompt = (count("promptTokenCount") or 0) + (count("toolUsePromptTokenCount") or 0)
    output = (count("candidatesTokenCount") or 0) + (count("thoughtsTokenCount") or 0)
    return Usage(
        input_tokens=prompt,
        output_tokens=output,
        total_tokens=count("totalTokenCount") or prompt + output,
        cached_input_tokens=count("cachedContentTokenCount"),
        reasoning_tokens=count("thoughtsTokenCount"),
        wire=wire,
    )
