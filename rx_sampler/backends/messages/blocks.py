"""The content blocks of a message while they stream."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

from rx_sampler.backends.assembly import ToolSlot
from rx_sampler.conversation import BackendToolCallItem, JsonObject, OpaqueItem, ReasoningItem, ResponseItem, TextItem
from rx_sampler.events import REASONING, TEXT

__all__ = ["SERVER_TOOL_USES", "Block", "result_name"]

SERVER_TOOL_USES: Final = frozenset({"server_tool_use", "mcp_tool_use"})


def result_name(kind: str) -> str | None:
    """The tool whose result a block of type `kind` is; None if it is none."""
    return kind.removesuffix("_tool_result") if kind.endswith("_tool_result") else None


@dataclass(slots=True)
class Block:
    """One block: its type, the object that opened it, and what streamed since."""

    kind: str
    start: JsonObject
    sinks: dict[str, list[str]] = field(default_factory=lambda: {TEXT: [], REASONING: []})
    citations: list[JsonObject] = field(default_factory=list[JsonObject])
    signature: str | None = None
    """Empty where the server says that it has none."""
    announced: bool = False
    """`ReasoningCompleted` was given."""
    slot: ToolSlot | None = None
    fragments: list[str] = field(default_factory=list[str])
    """Input of a server tool."""
    strays: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """String fields that unknown delta types brought."""

    def items(self, *, cut: bool) -> list[ResponseItem]:
        """The block as items of a response; think tags may have parted its text in two."""
        reasoning, text = "".join(self.sinks[REASONING]), "".join(self.sinks[TEXT])
        if self.slot is not None:
            return [self.slot.call(cut=cut)]
        if self.kind == "redacted_thinking":
            return [ReasoningItem(redacted_data=_text(self.start.get("data")))]
        if self.kind == "thinking":
            return [ReasoningItem(text=reasoning, signature=self.signature)] if reasoning or self.signature else []
        if self.kind == "text":
            items: list[ResponseItem] = [ReasoningItem(text=reasoning)] if reasoning else []
            if text or self.citations:
                items.append(TextItem(text=text, annotations=tuple(self.citations)))
            return items
        if self.kind in SERVER_TOOL_USES:
            return [
                BackendToolCallItem(
                    call_id=_text(self.start.get("id")) or "",
                    name=_text(self.start.get("name")) or "",
                    wire=(self._use(),),
                )
            ]
        return [
            OpaqueItem(
                wire=self.start | {name: "".join(parts) for name, parts in self.strays.items()}, backend="messages"
            )
        ]

    def _use(self) -> JsonObject:
        # The input streams as JSON text and goes back as an object.
        text = "".join(self.fragments)
        try:
            value: Any = json.loads(text) if text.strip() else self.start.get("input") or {}
        except (ValueError, RecursionError):
            value = {}
        return self.start | {"input": value}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
