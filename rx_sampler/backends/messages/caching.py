"""Where the messages API may cache: the marks on blocks (`cache_control`)."""

from __future__ import annotations

from rx_sampler.conversation import JsonObject

__all__ = ["mark_for_cache"]

_NEVER_MARKED = frozenset({"thinking", "redacted_thinking"})
"""Block types that the API refuses a mark on."""


def mark_for_cache(system: list[JsonObject], messages: list[JsonObject]) -> None:
    """Mark the last block of the system, of the conversation, and of the user before the last answer, in place.

    A marked block is a copy: blocks may be shared with the request.
    """
    _mark_last(system)
    tip = next((index for index in reversed(range(len(messages))) if _mark_last(messages[index]["content"])), 0)
    answer = next((index for index in reversed(range(tip)) if messages[index]["role"] == "assistant"), 0)
    for index in reversed(range(answer)):
        if messages[index]["role"] == "user" and _mark_last(messages[index]["content"]):
            break


def _mark_last(blocks: list[JsonObject]) -> bool:
    for index in reversed(range(len(blocks))):
        if blocks[index].get("type") not in _NEVER_MARKED:
            blocks[index] = {**blocks[index], "cache_control": {"type": "ephemeral"}}
            return True
    return False
