"""The output items of a response while they stream, and how events find theirs."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from rx_sampler.backends.assembly import ToolSlot, mended
from rx_sampler.backends.lenient import as_list, as_object
from rx_sampler.conversation import (
    BackendToolCallItem,
    JsonObject,
    OpaqueItem,
    ReasoningItem,
    RefusalItem,
    ResponseItem,
    TextItem,
)
from rx_sampler.events import REASONING, REFUSAL, TEXT

from .chunks import ResponsesChunk

__all__ = ["Output", "OutputItem", "Part", "hosted_name"]

_CLIENT_RUN: Final = frozenset(
    {"function_call", "custom_tool_call", "apply_patch_call", "local_shell_call", "shell_call"}
)
"""Call types whose work is the client's."""

_XAI_SEARCH: Final = re.compile(r"x_\w*(search|fetch|thread)\w*", re.ASCII)


def hosted_name(kind: str, item: JsonObject, declared_tools: frozenset[str]) -> str | None:
    """The name of the server's own tool that an item is a call of; None if it is none.

    xAI's searches on X come as custom tool calls named `x_*`; a tool of that name that the client declared is the
    client's.
    """
    if kind == "custom_tool_call":
        name = str(item.get("name") or "")
        return "x_search" if _XAI_SEARCH.fullmatch(name) and name not in declared_tools else None
    return kind.removesuffix("_call") if kind.endswith("_call") and kind not in _CLIENT_RUN else None


@dataclass(slots=True)
class Part:
    """A stretch of text: an output text, a refusal, a summary part, a reasoning text."""

    channel: str
    sinks: dict[str, list[str]] = field(default_factory=lambda: {TEXT: [], REASONING: [], REFUSAL: []})
    wire: list[str] = field(default_factory=list[str])
    """The deltas as they came, before think tags or separators."""
    wire_chars: int = 0
    annotations: list[JsonObject] = field(default_factory=list[JsonObject])

    @property
    def said(self) -> str:
        self.wire[:] = ["".join(self.wire)]
        return self.wire[0]


@dataclass(slots=True)
class OutputItem:
    """One item: the newest wire object of it, and what streamed."""

    kind: str
    order: int
    index: int | None = None
    wire: JsonObject = field(default_factory=dict[str, object])
    parts: dict[tuple[str, int], Part] = field(default_factory=dict[tuple[str, int], Part])
    thoughts: list[str] = field(default_factory=list[str])
    """What a reasoning item said, whatever its parts."""
    slot: ToolSlot | None = None
    hosted: str | None = None
    call_id: str = ""
    tool_id: str = ""
    """What a result must name: the call id, where the wire gives one."""
    started: bool = False
    completed: bool = False
    signed: bool = False

    def part(self, family: str, index: int, channel: str) -> Part:
        """The stretch of text at a place of the item, begun if it is new."""
        part = self.parts.get((family, index))
        if part is None:
            part = self.parts[family, index] = Part(channel)
            if self.kind == "reasoning":  # one text, in the order in which it streamed
                part.sinks[REASONING] = self.thoughts
        part.channel = channel
        return part

    def has_said(self, text: str) -> bool:
        return any(part.wire_chars == len(text) and part.said == text for part in self.parts.values())

    def items(self, *, cut: bool) -> list[ResponseItem]:
        """The item as items of a response, a message one per part."""
        if self.slot is not None:
            return [self.slot.call(cut=cut)]
        if self.hosted is not None:
            return [BackendToolCallItem(call_id=self.call_id, name=self.hosted, wire=(self.wire,) if self.wire else ())]
        parts = [part for _, part in sorted(self.parts.items(), key=lambda entry: entry[0][1])]
        if self.kind == "reasoning":
            return self._reasoning()
        if self.kind == "message":
            return [item for part in parts for item in _message_items(part)]
        return [OpaqueItem(wire=self.wire, backend="responses")] if self.wire else []

    def _reasoning(self) -> list[ResponseItem]:
        encrypted = self.wire.get("encrypted_content")
        text = "".join(self.thoughts)
        identity = self.wire.get("id")
        if not text and not encrypted and not identity:
            return []
        return [
            ReasoningItem(
                text=text,
                id=identity if isinstance(identity, str) else None,
                summary=tuple(mended(part.said) for (name, _), part in self.parts.items() if name == "summary"),
                content=tuple(mended(part.said) for (name, _), part in self.parts.items() if name == "content"),
                encrypted_content=encrypted if isinstance(encrypted, str) else None,
            )
        ]


def _message_items(part: Part) -> list[ResponseItem]:
    reasoning, text, refusal = ("".join(part.sinks[channel]) for channel in (REASONING, TEXT, REFUSAL))
    items: list[ResponseItem] = [ReasoningItem(text=reasoning)] if reasoning else []
    if text or part.annotations:
        items.append(TextItem(text=text, annotations=tuple(part.annotations)))
    if refusal:
        items.append(RefusalItem(text=refusal))
    return items


class Output:
    """All items, found by output index, then item id, then call id, then by being the only candidate.

    Some servers give every event another item id (GitHub Copilot), some no index (llama.cpp), some neither.
    """

    def __init__(self) -> None:
        self.items: list[OutputItem] = []
        self._by_index: dict[int, OutputItem] = {}
        self._beside: dict[tuple[int, str], OutputItem] = {}
        self._by_id: dict[str, OutputItem] = {}
        self._newest: dict[str, OutputItem] = {}

    def find(self, chunk: ResponsesChunk, kind: str) -> OutputItem | None:
        """The item that an event about an item of `kind` means."""
        index = chunk.get("output_index")
        if index is not None and (item := self._by_index.get(index)):
            # An event of another kind than its item means a thing of its own: the kind decides.
            return item if item.kind == kind else self._beside.get((index, kind))
        for name in (chunk.get("item_id"), chunk.get("call_id")):
            if name and (item := self._by_id.get(name)) and (index is None or self._takes(item, kind, index)):
                return item
        return self._newest.get(kind) if index is None else None

    def _takes(self, item: OutputItem, kind: str, index: int) -> bool:
        """Whether the item is of that kind and was opened without an index, which it then gets."""
        if item.kind != kind or item.index is not None:
            return False
        item.index, self._by_index[index] = index, item
        return True

    def find_wire(self, wire: JsonObject, index: int | None) -> OutputItem | None:
        """The item that a whole wire object is."""
        kind = str(wire.get("type") or "")
        if index is not None and (item := self._by_index.get(index)):
            if item.kind == kind:
                return item
            if (item := self._beside.get((index, kind))) is not None:
                return item
        for name in (wire.get("id"), wire.get("call_id")):
            if isinstance(name, str) and (item := self._by_id.get(name)) and item.kind == kind:
                return item
        return None

    def open(self, kind: str, *, index: int | None, wire: JsonObject, item_id: str | None = None) -> OutputItem:
        item = OutputItem(kind=kind, order=len(self.items), index=index, wire=wire)
        self.items.append(item)
        if index is not None and self._by_index.setdefault(index, item) is not item:
            self._beside[index, kind] = item
        self.learn(item, wire, item_id)
        self._newest[kind] = item
        return item

    def learn(self, item: OutputItem, wire: JsonObject, item_id: str | None = None) -> None:
        """Remember the names that an item goes by."""
        for name in (wire.get("id"), wire.get("call_id"), item_id):
            if isinstance(name, str) and name:
                self._by_id[name] = item

    def match(self, wires: list[JsonObject | None]) -> list[tuple[OutputItem | None, JsonObject, ResponsesChunk]]:
        """The items that the output of a terminal event repeats, with where to open those that never streamed.

        By index and names; without either, the nth item of its type is the nth of that type that streamed.
        """
        nameless: dict[str, deque[OutputItem]] = {}
        for item in self.items:
            if item.index is None and not item.completed:
                nameless.setdefault(item.kind, deque()).append(item)
        found: list[tuple[OutputItem | None, JsonObject, ResponsesChunk]] = []
        for index, wire in enumerate(wires):
            if wire is None:
                continue
            item = self.find_wire(wire, index)
            kind = wire.get("type")
            if item is None or item.kind != kind:
                queue = nameless.get(str(kind))
                item = queue.popleft() if queue else None
            found.append((item, wire, {} if index in self._by_index else {"output_index": index}))
        return found

    def in_order(self) -> list[OutputItem]:
        """By output index where all have one, else in order of appearance."""
        if all(item.index is not None for item in self.items):
            return sorted(self.items, key=lambda item: (item.index or 0, item.order))
        return self.items


def wire_parts(wire: JsonObject) -> list[tuple[str, int, str, JsonObject]]:
    """The text parts of a whole item: family (`content` or `summary`), index, text, part."""
    found: list[tuple[str, int, str, JsonObject]] = []
    for family in ("summary", "content"):
        for at, raw in enumerate(as_list(wire.get(family))):
            part = as_object(raw)
            if part is None:
                continue
            text = part.get("refusal") if part.get("type") == "refusal" else part.get("text")
            found.append((family, at, text if isinstance(text, str) else "", part))
    return found
