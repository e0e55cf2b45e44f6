"""A conversation as servers want it: each call answered once, right behind its turn, under an id of its own.

Histories get broken between turns: a call was cut or cancelled before it ran, a result was recorded twice, or came
after the user had gone on; some servers give every call the same id, and each has rules for what an id may be. All
three wire formats refuse some of that, so it is put right here, the same way each time and looking only ahead to
results, so that the beginning of a conversation is encoded alike in every later turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2s
from typing import Final

from rx_sampler.conversation import (
    AssistantItem,
    Item,
    SystemItem,
    ToolCall,
    ToolResultItem,
    UserItem,
)
from rx_sampler.dialects import ToolIdRule

__all__ = ["NO_RESULT", "Placed", "settled_history"]

NO_RESULT: Final = "No result: this call was not run."
"""What a model is told of a call that was never answered."""

_DIGEST_CHARS: Final = 8
_NO_ID: Final = "call"

Placed = tuple[int, Item]
"""An item and where it stands, or its call, in the items of the request: for errors that name the place."""


def settled_history(items: Iterable[Item], rule: ToolIdRule) -> list[Placed]:
    """The items with every call answered and every id acceptable; untouched items are the same objects.

    The results of a turn's calls stand behind the turn in the order in which they came; of two for one call the last
    one counts. A result that came later, after a user item say, moves there; for a call without any, one is made up
    behind the others. A call that was cut before its name is left out, with its results. A result of no call stays
    where and as it is: the server may know the call.
    """
    return list(_History(rule).settle(items))


@dataclass(slots=True)
class _Results:
    """Where the results of the calls between two others stand: `made` from id on the wire to the place of the call."""

    made: dict[str, int] = field(default_factory=dict[str, int])
    come: dict[str, Placed] = field(default_factory=dict[str, Placed])

    def placed(self) -> Iterator[Placed]:
        yield from self.come.values()
        for wire_id, index in self.made.items():
            if wire_id not in self.come:
                yield index, ToolResultItem(tool_call_id=wire_id, content=NO_RESULT, is_error=True)


@dataclass(slots=True)
class _Calls:
    """The calls of a turn that share an id, and their results: one call, unless the server gives all the same id."""

    results: _Results
    wire_ids: list[str] = field(default_factory=list[str])
    answered: int = 0

    def next_answered(self) -> str:
        """The call that the next result is of: the first without one, else the last."""
        self.answered = min(self.answered + 1, len(self.wire_ids))
        return self.wire_ids[self.answered - 1]


class _History:
    def __init__(self, rule: ToolIdRule) -> None:
        self._ids = _ToolIds(rule)
        self._open = _Results()
        """Of the turn that is being read."""
        self._answering: dict[str, _Calls] = {}
        """By the id that results name, the newest calls of it."""
        self._renamed: dict[str, _Calls] = {}
        """By the id on the wire, calls that had another: a result may name them by it."""
        self._nameless: set[str] = set()

    def settle(self, items: Iterable[Item]) -> Iterator[Placed]:
        placed: list[Placed | _Results] = []
        for index, item in enumerate(items):
            match item:
                case ToolCall():
                    placed += [(index, self._call(item, index))] if item.name else self._left_out(item)
                case ToolResultItem():
                    self._close(placed)
                    self._take(placed, index, item)
                case AssistantItem():  # a whole turn, whatever stands before and behind it
                    self._close(placed)
                    placed.append((index, self._with_calls(item, index)))
                    self._close(placed)
                case UserItem() | SystemItem():
                    self._close(placed)
                    placed.append((index, item))
                case _:
                    placed.append((index, item))
        self._close(placed)
        for entry in placed:
            if isinstance(entry, _Results):
                yield from entry.placed()
            else:
                yield entry

    def _close(self, placed: list[Placed | _Results]) -> None:
        if self._open.made:
            placed.append(self._open)
            self._open = _Results()

    def _take(self, placed: list[Placed | _Results], index: int, item: ToolResultItem) -> None:
        calls = self._answering.get(item.tool_call_id) or self._renamed.get(item.tool_call_id)
        if calls is None:
            if item.tool_call_id not in self._nameless:
                placed.append((index, item))
            return
        wire_id = calls.next_answered()
        calls.results.come.pop(wire_id, None)  # the last one counts, in its own place
        if wire_id != item.tool_call_id:
            item = item.model_copy(update={"tool_call_id": wire_id})
        calls.results.come[wire_id] = (index, item)

    def _with_calls(self, item: AssistantItem, index: int) -> AssistantItem:
        for call in item.tool_calls:
            if not call.name:
                self._left_out(call)
        calls = tuple(self._call(call, index) for call in item.tool_calls if call.name)
        return item if calls == item.tool_calls else item.model_copy(update={"tool_calls": calls})

    def _call(self, call: ToolCall, index: int) -> ToolCall:
        wire_id = self._ids.new(call.id)
        self._open.made[wire_id] = index
        calls = self._answering.get(call.id)
        if calls is None or calls.results is not self._open:
            calls = self._answering[call.id] = _Calls(self._open)
        calls.wire_ids.append(wire_id)
        if wire_id != call.id:
            self._renamed[wire_id] = _Calls(self._open, [wire_id])
        self._nameless.discard(call.id)
        return call if wire_id == call.id else call.model_copy(update={"id": wire_id})

    def _left_out(self, call: ToolCall) -> list[Placed | _Results]:
        self._nameless.add(call.id)
        self._answering.pop(call.id, None)
        return []


class _ToolIds:
    """Ids as a server takes them, no two calls under one; the same calls in the same order get the same ids."""

    def __init__(self, rule: ToolIdRule) -> None:
        self._rule = rule
        self._foreign = re.compile(f"[^{rule.characters}]") if rule.characters else None
        self._uses: dict[str, int] = {}
        self._taken: set[str] = set()

    def new(self, call_id: str) -> str:
        plain = self._foreign.sub("_", call_id) if self._foreign else call_id
        plain = plain or _NO_ID
        wire_id = self._fitted(plain, call_id if plain != call_id else "")
        while wire_id in self._taken:
            uses = self._uses[plain] = self._uses.get(plain, 0) + 1
            wire_id = self._fitted(f"{plain}_{uses}", f"{call_id}_{uses}")
        self._taken.add(wire_id)
        return wire_id

    def _fitted(self, plain: str, whole: str) -> str:
        """The id in the length that the rule wants, told apart by a digest where it has to be cut."""
        length, most = self._rule.length, self._rule.max_length
        if length is not None:
            return plain if len(plain) == length else _digest(whole or plain, length)
        if most is not None and len(plain) > most:
            return f"{plain[: most - _DIGEST_CHARS - 1]}_{_digest(whole or plain, _DIGEST_CHARS)}"
        return plain


def _digest(text: str, length: int) -> str:
    return blake2s(text.encode(errors="surrogatepass")).hexdigest()[:length]
