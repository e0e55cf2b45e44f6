"""Which call a tool fragment of the chat wire belongs to.

Indexes are missing, all zero, or reused; ids are empty, change, or never come; names come whole, in pieces, in every
chunk, or late. The rules, by server, are those of the wire: a new id opens a call, unless only the id changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final

from rx_sampler.backends.assembly import ToolSlot, Transform
from rx_sampler.backends.lenient import as_int, as_object
from rx_sampler.events import SamplingEvent

from .chunks import ChatChunk, FunctionDelta, ToolCallChunk

__all__ = ["ToolSlots"]


class ToolSlots:
    """The tool calls of one choice."""

    def __init__(self, transform: Transform[ChatChunk], choice: int, made_up_id: Callable[[int], str]) -> None:
        self._transform = transform
        self._choice = choice
        self._made_up_id = made_up_id
        self._by_index: dict[int, ToolSlot] = {}
        self._by_id: dict[str, ToolSlot] = {}
        self._newest: ToolSlot | None = None
        self._depths: dict[int, _Depth] = {}
        self._held: dict[int, list[str]] = {}  # arguments of calls whose name has not come, by slot index

    def feed(self, out: list[SamplingEvent], delta: ToolCallChunk) -> None:
        function: FunctionDelta = delta.get("function") or {}
        name = function.get("name") or None
        arguments = function.get("arguments")
        if arguments is not None and not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        index, call_id = as_int(delta.get("index")), delta.get("id") or None
        slot = self._find(index, call_id, name)
        if slot is None:
            slot = self._transform.new_slot(self._choice)
            self._held[slot.index] = []
        if index is not None:
            self._by_index[index] = slot
        self._newest = slot
        if extra := as_object(delta.get("extra_content")):
            slot.extra_content |= extra
        self._write(out, slot, call_id, name, arguments or "")

    def finish(self, out: list[SamplingEvent]) -> None:
        """Show the calls whose name never came."""
        for index, held in list(self._held.items()):
            self._show(out, self._transform.slots(self._choice)[index], held)

    def _find(self, index: int | None, call_id: str | None, name: str | None) -> ToolSlot | None:
        if index is None:
            if call_id is not None:
                return self._by_id.get(call_id)
            slot = self._newest
        else:
            slot = self._by_index.get(index)
        if slot is None:
            return None
        if call_id is not None and slot.id is not None and call_id != slot.id and not self._is_made_up(slot):
            return None if name is not None else slot
        # Without ids only a name tells calls apart: another one where there is no index, any after whole arguments.
        names_one = call_id is None and name is not None and slot.name is not None and bool(slot.fragments)
        if names_one and ((index is None and name != slot.name) or self._is_whole(slot)):
            return None
        return slot

    def _is_whole(self, slot: ToolSlot) -> bool:
        return self._depths.setdefault(slot.index, _Depth()).closes(slot.fragments)

    def _is_made_up(self, slot: ToolSlot) -> bool:
        return slot.id == self._made_up_id(slot.index)

    def _write(
        self, out: list[SamplingEvent], slot: ToolSlot, call_id: str | None, name: str | None, arguments: str
    ) -> None:
        shown = slot.index not in self._held
        news_id = call_id if call_id is not None and call_id != slot.id else None
        if news_id is not None:
            slot.id = news_id
            self._by_id[news_id] = slot
        news_name = self._rename(slot, name)
        if not shown:
            held = self._held[slot.index]
            if arguments:
                held.append(arguments)
                if not arguments.isspace():
                    self._transform.progress()
            if slot.name is not None:
                self._show(out, slot, held)
            return
        if news_id is not None or news_name:
            self._transform.open_tool(out, slot, id=news_id, name=slot.name if news_name else None, arguments=arguments)
        else:
            self._transform.tool_delta(out, slot, arguments)

    def _rename(self, slot: ToolSlot, name: str | None) -> bool:
        """Take a name or a piece of one; frozen once arguments came. True if the name changed."""
        if name is None or name == slot.name:
            return False
        if slot.name is None:
            slot.name = name
        elif slot.fragments:
            return False
        else:
            slot.name = name if name.startswith(slot.name) else slot.name + name
        return True

    def _show(self, out: list[SamplingEvent], slot: ToolSlot, held: list[str]) -> None:
        del self._held[slot.index]
        if slot.id is None:
            slot.id = self._made_up_id(slot.index)
        self._transform.open_tool(out, slot, id=slot.id, name=slot.name, arguments="".join(held))


class _Depth:
    """Whether the JSON value in growing fragments is closed; each fragment is looked at once."""

    def __init__(self) -> None:
        self._seen = 0
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._opened = False

    def closes(self, fragments: list[str]) -> bool:
        for fragment in fragments[self._seen :]:
            for mark in _MARKS.finditer(fragment):
                self._read(mark[0])
        self._seen = len(fragments)
        return self._opened and self._depth == 0

    def _read(self, mark: str) -> None:
        if self._escaped:
            self._escaped = False
        elif mark == "\\":
            self._escaped = self._in_string
        elif mark == '"':
            self._in_string = not self._in_string
        elif not self._in_string and mark in "{[":
            self._depth, self._opened = self._depth + 1, True
        elif not self._in_string and mark in "}]":
            self._depth -= 1


_MARKS: Final = re.compile(r'\\.?|["{}\[\]]', re.DOTALL)
