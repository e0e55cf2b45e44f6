"""From one request to a turn that gets its answer: new credentials, a shorter conversation, another try later.

A `Sampler` repeats what time alone mends. What needs whoever holds credentials and history ends a request, and is
taken up here: `turn_outcome` says what the end of a request asks for, `run_turn` does it and submits again.
"""

from .outcomes import (
    CompactAndResubmit,
    Fatal,
    FatalReason,
    RefreshAuthAndResubmit,
    Response,
    RetryTransient,
    TurnOutcome,
    removable_image,
    turn_outcome,
)
from .schedule import TurnPolicy, TurnSchedule
from .turn import Collects, Compact, OnOutcome, RefreshAuth, run_turn

__all__ = [
    "Collects",
    "Compact",
    "CompactAndResubmit",
    "Fatal",
    "FatalReason",
    "OnOutcome",
    "RefreshAuth",
    "RefreshAuthAndResubmit",
    "Response",
    "RetryTransient",
    "TurnOutcome",
    "TurnPolicy",
    "TurnSchedule",
    "removable_image",
    "run_turn",
    "turn_outcome",
]
