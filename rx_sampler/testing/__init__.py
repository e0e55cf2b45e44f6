"""What tests of streaming clients need: a scripted server, cut bytes, virtual time, marbles, and conformance kits.

Importable without pytest; the pytest plugin is a module of its own.
"""

from rx_sampler.scheduling import LoopTimeScheduler

from .backend_check import BackendError, check_backend
from .diagrams import diagram_of
from .grammar import EventGrammar, GrammarError, check_all_events, check_events, checked_events
from .made import (
    annotation,
    backend_tool_completed,
    backend_tool_started,
    completed,
    failed,
    first_token,
    images_stripped,
    metadata,
    reasoning,
    reasoning_completed,
    refusal,
    response_started,
    retrying,
    signals,
    started,
    text,
    token,
    tool,
)
from .marbles import MarbleError, Marbles, drawn
from .operator_check import SAMPLE_STREAMS, check_operator
from .server import Answer, End, ReceivedRequest, ScriptedServer, Wait
from .splits import every_split, random_splits
from .virtual_loop import DeadlockError, VirtualTimeLoop, run_virtual

__all__ = [
    "SAMPLE_STREAMS",
    "Answer",
    "BackendError",
    "DeadlockError",
    "End",
    "EventGrammar",
    "GrammarError",
    "LoopTimeScheduler",
    "MarbleError",
    "Marbles",
    "ReceivedRequest",
    "ScriptedServer",
    "VirtualTimeLoop",
    "Wait",
    "annotation",
    "backend_tool_completed",
    "backend_tool_started",
    "check_all_events",
    "check_backend",
    "check_events",
    "check_operator",
    "checked_events",
    "completed",
    "diagram_of",
    "drawn",
    "every_split",
    "failed",
    "first_token",
    "images_stripped",
    "metadata",
    "random_splits",
    "reasoning",
    "reasoning_completed",
    "refusal",
    "response_started",
    "retrying",
    "run_virtual",
    "signals",
    "started",
    "text",
    "token",
    "tool",
]
