"""The output items of a response: reasoning, message and function calls, whole and as the events that build them.

Shapes: https://platform.openai.com/docs/api-reference/responses-streaming.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .answers import Answer, Choice
from .asks import Ask
from .frames import Frame, Padding
from .json_tools import JsonObject, as_list

__all__ = ["INCOMPLETE_REASONS", "Item", "event", "item_events", "items_of"]

INCOMPLETE_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""The stop reasons that leave a response incomplete, and what it says of them."""


def event(kind: str, *, is_delta: bool = False, **fields: object) -> Frame:
    """An event of the stream: named by its type, numbered when it is encoded."""
    return Frame(data={"type": kind, **fields}, event=kind, is_delta=is_delta, is_numbered=True)


@dataclass(frozen=True, slots=True)
class Item:
    """An output item as it stands at the end, and the deltas that each of its parts is streamed in."""

    wire: JsonObject
    deltas: tuple[tuple[str, ...], ...]


def items_of(ask: Ask, answer: Answer) -> list[Item]:
    """The output of a response, in order; the last item of an answer that was cut is incomplete."""
    choice, derivation = answer.choices[0], answer.derivation
    items: list[Item] = []
    if choice.reasoning:
        reasoning: JsonObject = {"id": f"rs_{derivation.hexadecimal('reasoning', 48)}", "type": "reasoning"}
        if "reasoning.encrypted_content" in (as_list(ask.body.get("include")) or ()):
            reasoning["encrypted_content"] = f"gAAAAAB{derivation.identifier('encrypted reasoning', 128)}="
        shown = [{"type": "summary_text", "text": choice.whole_reasoning}] if choice.shows_reasoning else []
        items.append(Item({**reasoning, "summary": shown}, (choice.reasoning,) if shown else ()))
    if parts := _content_parts(choice):
        message: JsonObject = {
            "id": f"msg_{derivation.hexadecimal('message', 48)}",
            "type": "message",
            "status": "completed",
            "content": [part for part, _ in parts],
            "role": "assistant",
        }
        items.append(Item(message, tuple(deltas for _, deltas in parts)))
    for slot, call in enumerate(choice.calls):
        function_call: JsonObject = {
            "id": f"fc_{derivation.hexadecimal(f'call item {slot}', 48)}",
            "type": "function_call",
            "status": "completed",
            "arguments": call.arguments,
            "call_id": call.id or f"call_{derivation.identifier(f'call 0 {slot}', 24)}",
            "name": call.name,
        }
        items.append(Item(function_call, (call.deltas,)))
    if items and "status" in items[-1].wire and choice.stop_reason in INCOMPLETE_REASONS:
        items[-1].wire["status"] = "incomplete"
    return items


def _content_parts(choice: Choice) -> list[tuple[JsonObject, tuple[str, ...]]]:
    """The parts of the message. An answer of nothing but tool calls, or cut while reasoning, has no message."""
    parts: list[tuple[JsonObject, tuple[str, ...]]] = []
    says_nothing = not (choice.text or choice.refusal)
    is_empty_message = says_nothing and not choice.calls and not (choice.reasoning and choice.stop_reason == "length")
    if choice.text or is_empty_message:
        annotations = list(choice.annotations)
        text: JsonObject = {
            "type": "output_text",
            "annotations": annotations,
            "logprobs": [],
            "text": choice.whole_text,
        }
        parts.append((text, choice.text))
    if choice.refusal:
        parts.append(({"type": "refusal", "refusal": choice.whole_refusal}, choice.refusal))
    return parts


def _reasoning_events(item: Item, index: int, padding: Padding) -> Iterator[Frame]:
    yield event("response.output_item.added", item={**item.wire, "summary": []}, output_index=index)
    for number, (part, deltas) in enumerate(zip(item.wire["summary"], item.deltas, strict=True)):
        place: JsonObject = {"item_id": item.wire["id"], "output_index": index, "summary_index": number}
        yield event("response.reasoning_summary_part.added", **place, part={**part, "text": ""})
        for delta in deltas:
            fields = {**place, "delta": delta, **padding.of(delta)}
            yield event("response.reasoning_summary_text.delta", is_delta=True, **fields)
        yield event("response.reasoning_summary_text.done", **place, text=part["text"])
        yield event("response.reasoning_summary_part.done", **place, part=part)
    yield event("response.output_item.done", item=item.wire, output_index=index)


def _message_events(item: Item, index: int, padding: Padding) -> Iterator[Frame]:
    added: JsonObject = {**item.wire, "status": "in_progress", "content": []}
    yield event("response.output_item.added", item=added, output_index=index)
    for number, (part, deltas) in enumerate(zip(item.wire["content"], item.deltas, strict=True)):
        place: JsonObject = {"item_id": item.wire["id"], "output_index": index, "content_index": number}
        if part["type"] == "refusal":
            yield event("response.content_part.added", **place, part={**part, "refusal": ""})
            for delta in deltas:
                yield event("response.refusal.delta", is_delta=True, **place, delta=delta, **padding.of(delta))
            yield event("response.refusal.done", **place, refusal=part["refusal"])
        else:
            yield event("response.content_part.added", **place, part={**part, "annotations": [], "text": ""})
            for delta in deltas:
                fields: JsonObject = {**place, "delta": delta, "logprobs": [], **padding.of(delta)}
                yield event("response.output_text.delta", is_delta=True, **fields)
            for annotation_index, annotation in enumerate(part["annotations"]):
                fields = {**place, "annotation": annotation, "annotation_index": annotation_index}
                yield event("response.output_text.annotation.added", **fields)
            yield event("response.output_text.done", **place, logprobs=[], text=part["text"])
        yield event("response.content_part.done", **place, part=part)
    yield event("response.output_item.done", item=item.wire, output_index=index)


def _call_events(item: Item, index: int, padding: Padding) -> Iterator[Frame]:
    added = {**item.wire, "status": "in_progress", "arguments": ""}
    yield event("response.output_item.added", item=added, output_index=index)
    place: JsonObject = {"item_id": item.wire["id"], "output_index": index}
    (deltas,) = item.deltas
    for delta in deltas:
        fields = {**place, "delta": delta, **padding.of(delta)}
        yield event("response.function_call_arguments.delta", is_delta=True, **fields)
    yield event("response.function_call_arguments.done", **place, arguments=item.wire["arguments"])
    yield event("response.output_item.done", item=item.wire, output_index=index)


_ITEM_EVENTS: dict[str, Callable[[Item, int, Padding], Iterator[Frame]]] = {
    "reasoning": _reasoning_events,
    "message": _message_events,
    "function_call": _call_events,
}


def item_events(item: Item, index: int, padding: Padding) -> Iterator[Frame]:
    """The events that open, fill and close the item at this output index."""
    yield from _ITEM_EVENTS[item.wire["type"]](item, index, padding)
