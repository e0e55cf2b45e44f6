"""Chat completion chunks to events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, cast

from rx_sampler.backends.assembly import DONE, Context, Transform, stop_with_calls
from rx_sampler.backends.lenient import as_list, as_object
from rx_sampler.conversation import (
    JsonObject,
    ReasoningItem,
    RefusalItem,
    ResponseItem,
    SamplingResponse,
    StopReason,
    TextItem,
)
from rx_sampler.errors import SamplingError, SamplingErrorKind
from rx_sampler.events import REASONING, REFUSAL, TEXT, AnnotationAdded, SamplingEvent
from rx_sampler.wire.error_bodies import read_error, refusal

from .chunks import ChatChunk, Choice, Delta
from .tool_slots import ToolSlots
from .usage import chat_usage, cost_usd, merge_usage

__all__ = ["ChatTransform"]

_STOPS: Final[dict[str, StopReason]] = {
    "stop": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}
"""Finish reasons; the set is open, and what is not here stops the answer like `stop` does."""

_EXTRAS: Final = ("citations", "search_results", "service_tier", "system_fingerprint", "provider", "timings")


class _Choice:
    """What one choice has said."""

    def __init__(self, index: int, tools: ToolSlots) -> None:
        self.index = index
        self.tools = tools
        self.sinks: dict[str, list[str]] = {TEXT: [], REASONING: [], REFUSAL: []}
        self.details: list[JsonObject] = []
        self.annotations: list[JsonObject] = []
        self.finish_reason: str | None = None
        self.whole_message: Delta | None = None
        self.has_delta = False


class ChatTransform(Transform[ChatChunk]):
    """Completes on `[DONE]`, or at the end of the body once a finish reason came."""

    ended_early = "the stream ended without a finish reason and without [DONE]"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._choices: dict[int, _Choice] = {}
        self._id: str | None = None
        self._model: str | None = None
        self._is_known = False
        self._usage: JsonObject = {}
        self._extras: JsonObject = {}

    def quick(self, document: Any) -> list[SamplingEvent] | None:
        try:
            (choice,) = document["choices"]
            delta = choice["delta"]
            text = delta["content"]
            state = self._choices[choice["index"]]
            if len(delta) != 1 or type(text) is not str or choice.get("finish_reason") or not self._is_known:
                return None
            if document.get("usage") or document.get("error") or choice.get("error") or "base_resp" in document:
                return None
            if document.get("type") == "error" or state.finish_reason:
                return None
        except (KeyError, TypeError, ValueError, AttributeError):
            return None
        state.has_delta = True
        out: list[SamplingEvent] = []
        self.token(out, state.sinks[TEXT], TEXT, text, state.index)
        return out

    def feed(self, item: ChatChunk) -> list[SamplingEvent]:
        if item is DONE:
            return self.complete()
        out: list[SamplingEvent] = []
        choices = item.get("choices") or ()
        plain = self._is_known and bool(choices)
        if not plain:
            self._name(out, item)
        for choice in choices:
            if not self._read_choice(out, choice):
                plain = False
        if item.get("usage") or not plain:
            self._read_rest(item)
        return out

    def _name(self, out: list[SamplingEvent], chunk: ChatChunk) -> None:
        self._id = self._id or _text(chunk.get("id"))
        self._model = self._model or _text(chunk.get("model"))
        self._is_known = bool(self._id and self._model)
        if self._is_known or (chunk.get("choices") and (self._id or self._model)):
            self.announce(out, message_id=self._id, model=self._model)

    def _read_rest(self, chunk: ChatChunk) -> None:
        if not chunk:
            self.note_damage(chunk)
        if usage := chunk.get("usage"):
            self._usage = merge_usage(self._usage, usage)
        elif (groq := chunk.get("x_groq")) and (usage := as_object(groq.get("usage"))) and not self._usage:
            self._usage = usage
        for name in _EXTRAS:
            value = cast("JsonObject", chunk).get(name)
            if value is not None:
                self._extras[name] = value

    def _choice(self, index: int) -> _Choice:
        choice = self._choices[index] = _Choice(index, ToolSlots(self, index, self._id_maker(index)))
        self.settle(False)
        return choice

    def _id_maker(self, choice: int) -> Callable[[int], str]:
        # Stable for the call, unlike those of the other turns of a conversation, and the same however reads were cut.
        return lambda slot: f"call_{self._id or self.context.request_id}_{choice}_{slot}"

    def _read_choice(self, out: list[SamplingEvent], wire: Choice) -> bool:
        """Whether it was a plain piece of text, as nearly all are: such chunks bring nothing else worth a look."""
        index = wire.get("index") or 0
        state = self._choices.get(index) or self._choice(index)
        delta = wire.get("delta")
        if delta:
            state.has_delta = True
            content = delta.get("content")
            if len(delta) == 1 and type(content) is str:
                self.text(out, state.sinks, content, index)
                if not wire.get("finish_reason") and not wire.get("error") and not state.finish_reason:
                    return True
            else:
                self._read_delta(out, state, delta)
        elif not state.has_delta and (message := wire.get("message")):
            state.whole_message = message
        reason = wire.get("finish_reason")
        if reason:
            self._stop(state, wire, reason)
        if wire.get("error") and self.error is None:
            self.done, self.error = True, refusal(read_error(wire.get("error")))
        return False

    def _stop(self, state: _Choice, wire: Choice, reason: str) -> None:
        self.progress()
        state.finish_reason = reason
        if reason == "error" and self._damage is None and not wire.get("error"):
            self._damage = _stopped_by_error()  # unless an error object, beside it or after it, says more
        if len(self._choices) >= self.context.choices and all(c.finish_reason for c in self._choices.values()):
            self.settle(True)

    def _read_delta(self, out: list[SamplingEvent], state: _Choice, delta: Delta) -> None:
        self._read_reasoning(out, state, delta)
        content = delta.get("content")
        if isinstance(content, str):
            self.text(out, state.sinks, content, state.index)
        elif content:
            for channel, text in _blocks(content):
                self.token(out, state.sinks[channel], channel, text, state.index)
        if words := delta.get("refusal"):
            self.token(out, state.sinks[REFUSAL], REFUSAL, words, state.index)
        for annotation in delta.get("annotations") or ():
            self._annotate(out, state, annotation)
        if images := delta.get("images"):
            self.progress()
            self._extras.setdefault("images", []).extend(images)
        for fragment in delta.get("tool_calls") or ():
            state.tools.feed(out, fragment)
        if function := delta.get("function_call"):
            state.tools.feed(out, {"index": 0, "function": function})

    def _read_reasoning(self, out: list[SamplingEvent], state: _Choice, delta: Delta) -> None:
        details = [detail for d in delta.get("reasoning_details") or () if (detail := as_object(d)) is not None]
        text = delta.get("reasoning_content") or delta.get("reasoning")
        if not text and details:
            words = [d.get("text") or d.get("summary") for d in details]
            text = "".join(word for word in words if isinstance(word, str))
        if text:
            self.token(out, state.sinks[REASONING], REASONING, text, state.index)
        if details:
            self.progress()
            state.details += details

    def _annotate(self, out: list[SamplingEvent], state: _Choice, raw: Any) -> None:
        annotation = as_object(raw)
        if annotation is None or not self.is_new(annotation):
            return
        state.annotations.append(annotation)
        if state.index == 0:
            out.append(AnnotationAdded(**self.stamp(), annotation=annotation, offset=self.text_chars))

    def settle_content(self) -> list[SamplingEvent]:
        out: list[SamplingEvent] = []
        for state in self._choices.values():
            if state.whole_message and not state.has_delta:
                state.has_delta = True
                self._read_delta(out, state, state.whole_message)
            state.tools.finish(out)
        return out

    def response(self, *, cut: bool) -> SamplingResponse:
        state = self._choices.get(0) or _Choice(0, ToolSlots(self, 0, self._id_maker(0)))
        reason = state.finish_reason
        stop = None if cut or reason == "error" else self._stop_reason(state)
        slots = self.slots()
        calls = [slot.call(cut=(cut or stop == "length") and slot is slots[-1]) for slot in slots]
        reasoning, text, words = ("".join(state.sinks[channel]) for channel in (REASONING, TEXT, REFUSAL))
        items: list[ResponseItem] = []
        if reasoning or state.details:
            items.append(ReasoningItem(text=reasoning, details=tuple(_merged(state.details))))
        if text or state.annotations:
            items.append(TextItem(text=text, annotations=tuple(state.annotations)))
        if words:
            items.append(RefusalItem(text=words))
        return SamplingResponse(
            items=(*items, *calls),
            stop_reason=stop,
            raw_stop_reason=reason,
            usage=chat_usage(self._usage),
            cost_usd=cost_usd(self._usage),
            model=self._model or self.context.default_model,
            message_id=self._id,
            extras=self._extras,
        )

    def _stop_reason(self, state: _Choice) -> StopReason:
        stop = _STOPS.get(state.finish_reason or "stop", "stop")
        if stop != "length" and state.sinks[REFUSAL]:
            return "content_filter"
        return stop_with_calls(stop, bool(self.slots()))


def _blocks(content: list[Any]) -> Iterator[tuple[str, str]]:
    """Channel and text of Mistral's typed content blocks; unknown types are passed by."""
    for raw in content:
        block = as_object(raw)
        if block is None:
            if isinstance(raw, str):
                yield TEXT, raw
        elif block.get("type") == "thinking":
            inner = block.get("thinking")
            for part in as_list(inner) or [inner]:
                text = part if isinstance(part, str) else (as_object(part) or {}).get("text")
                if isinstance(text, str):
                    yield REASONING, text
        elif isinstance(text := block.get("text"), str):
            yield TEXT, text


def _merged(details: list[JsonObject]) -> list[JsonObject]:
    """Reasoning details with the fragments of one block joined, as OpenRouter wants them back."""
    merged: list[JsonObject] = []
    pieces: list[str] = []
    for detail in details:
        kind = {"reasoning.text": "text", "reasoning.summary": "summary"}.get(str(detail.get("type")))
        said = str(detail.get(kind) or "") if kind else ""
        last = merged[-1] if merged else None
        if kind and last and _goes_on(last, detail, said):
            pieces.append(said)
            last |= {name: value for name, value in detail.items() if value not in (None, "") and name != kind}
            continue
        _close(merged, pieces)
        merged.append(dict(detail))
        pieces = [said] if kind else []
    _close(merged, pieces)
    return merged


def _goes_on(last: JsonObject, detail: JsonObject, said: str) -> bool:
    """Whether a fragment is of the block before it; a signature is the last of a block."""
    if any(last.get(name) != detail.get(name) for name in ("type", "index")):
        return False
    if last.get("id") and detail.get("id") and last["id"] != detail["id"]:
        return False
    signature = detail.get("signature")
    return not last.get("signature") or not (said or (signature and signature != last["signature"]))


def _close(merged: list[JsonObject], pieces: list[str]) -> None:
    if merged and len(pieces) > 1:
        merged[-1]["summary" if merged[-1].get("type") == "reasoning.summary" else "text"] = "".join(pieces)


def _stopped_by_error() -> SamplingError:
    return SamplingError.of(
        SamplingErrorKind.API, "the server stopped the answer with an error", code="error", is_retryable=True
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
