"""The server's repetition check (xAI): frames beside the answer that label what the model repeats.

Opt-in by the request header `x-grok-doom-loop-check: {window}`. A frame of type `response.doom_loop_check` carries a
cumulative list of labels such as `tail_repetition:8@thinking`; the terminal response repeats it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, cast

__all__ = ["CHECK_EVENT", "CHECK_HEADER", "DoomLoopSignal", "merged_triggers", "parse_label"]

CHECK_EVENT: Final = "response.doom_loop_check"
CHECK_HEADER: Final = "x-grok-doom-loop-check"

_REPETITION: Final = re.compile(r"tail_repetition:(\d{1,10})", re.ASCII)
_MAX_TRIGGERS: Final = 256


@dataclass(frozen=True, slots=True)
class DoomLoopSignal:
    """A label, read: `kind` is `tail_repetition` (with `threshold`; lower is tighter), `low_logprob` or `unknown`."""

    raw: str
    kind: str
    channel: str
    threshold: int | None = None

    def is_confident(self, max_threshold: int) -> bool:
        """Whether the label alone is reason enough to drop the attempt: tight repetition in the thinking channel."""
        return (
            self.kind == "tail_repetition"
            and self.channel == "thinking"
            and self.threshold is not None
            and self.threshold <= max_threshold
        )


def parse_label(raw: str) -> DoomLoopSignal:
    """Read `head@channel`; never fails, since labels are the server's to add."""
    head, _, channel = raw.partition("@")
    if (match := _REPETITION.fullmatch(head)) and int(match[1]) < 2**32:
        return DoomLoopSignal(raw, "tail_repetition", channel, int(match[1]))
    return DoomLoopSignal(raw, "low_logprob" if head == "low_logprob" else "unknown", channel)


def merged_triggers(known: tuple[str, ...], check: object) -> tuple[str, ...]:
    """`known` and the labels of a `doom_loop_check` object, in the order first seen; what is no label is passed by."""
    triggers = cast("dict[str, object]", check).get("triggers") if isinstance(check, dict) else None
    if not isinstance(triggers, list):
        return known
    labels = [label for label in cast("list[object]", triggers) if isinstance(label, str)]
    return tuple(dict.fromkeys((*known, *labels)))[:_MAX_TRIGGERS]
