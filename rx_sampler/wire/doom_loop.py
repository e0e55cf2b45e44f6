"""The server's repetition check (xAI): frames beside the answer that label what the model repeats.

Opt-in by the request header `x-grok-doom-loop-check: {window}`. A frame of type `response.doom_loop_check` carries a
cumulative list of labels such as `tail_repetition:8@thinking`; the terminal response repeats it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

__all__ = ["CHECK_EVENT", "CHECK_HEADER", "DoomLoopSignal", "merged_triggers", "parse_label", "tightest"]

CHECK_EVENT: Final = "response.doom_loop_check"
CHECK_HEADER: Final = "x-grok-doom-loop-check"

_REPETITION: Final = re.compile(r"tail_repetition:(\d{1,10})", re.ASCII)
_EXACT: Final = re.compile(r"exact_repetition:\d{1,10}x\d{1,10}", re.ASCII)
_MAX_TRIGGERS: Final = 256
_MAX_LABEL_CHARS: Final = 256


@dataclass(frozen=True, slots=True)
class DoomLoopSignal:
    """A label, read. `threshold` is that of a `tail_repetition`; lower is tighter.

    The other kinds are `exact_repetition`, `low_logprob` and `unknown`.
    """

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
    if _EXACT.fullmatch(head):
        return DoomLoopSignal(raw, "exact_repetition", channel)
    return DoomLoopSignal(raw, "low_logprob" if head == "low_logprob" else "unknown", channel)


def tightest(labels: Sequence[str]) -> str | None:
    """The label to name where there is room for one: the lowest `tail_repetition` of any channel, else the first.

    None if there are no labels.
    """

    def rank(label: str) -> int:
        threshold = parse_label(label).threshold
        return 2**32 if threshold is None else threshold

    return min(labels, key=rank, default=None)


def merged_triggers(known: tuple[str, ...], check: object) -> tuple[str, ...]:
    """`known` and the labels of a `doom_loop_check` object, in the order first seen; what is no label is passed by."""
    triggers = cast("dict[str, object]", check).get("triggers") if isinstance(check, dict) else None
    if not isinstance(triggers, list):
        return known
    labels = [label[:_MAX_LABEL_CHARS] for label in cast("list[object]", triggers) if isinstance(label, str)]
    return tuple(dict.fromkeys((*known, *labels)))[:_MAX_TRIGGERS]
