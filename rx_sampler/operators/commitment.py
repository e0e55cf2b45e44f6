"""Which content commits to an answer, by the names that `commit_on` and `fallback` take."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from rx_sampler.events import REASONING, REFUSAL, TEXT, ChannelToken, FirstToken, SamplingEvent, ToolCallDelta

__all__ = ["TOOL_CALL", "brings"]

TOOL_CALL: Final = "tool_call"
_NAMES: Final = (TEXT, REASONING, REFUSAL, TOOL_CALL)


def brings(names: Collection[str]) -> Callable[[SamplingEvent], bool]:
    """Whether an event brings content of one of `names`, or announces it. ValueError for a name that nothing has."""
    wanted = frozenset(names)
    if unknown := [name for name in names if name not in _NAMES]:
        raise ValueError(f"commit_on knows {', '.join(_NAMES)}, not {', '.join(map(repr, unknown))}")

    def is_brought(event: SamplingEvent) -> bool:
        match event:
            case ChannelToken() | FirstToken():
                return event.channel in wanted
            case ToolCallDelta():
                return TOOL_CALL in wanted
            case _:
                return False

    return is_brought
