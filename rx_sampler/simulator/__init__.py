"""A simulated model server: a real socket that answers in all three wire formats, and says that it is a simulation.

    async with Simulator(seed=7) as simulator:
        config = SamplerConfig(backend="messages", base_url=simulator.base_url, model="any")

The same seed and request give the same bytes. Faults, tool calls and words can be scripted with `Turn`, from Python
or as JSON, attempt by attempt for requests that are retried; `Chaos` draws faults by chance. `SimulatorThread` is the
same for callers without an event loop, and the pytest fixture `simulator` is one.
"""

from __future__ import annotations

from .chaos import Chaos
from .faults import Fault, FaultKind
from .received import ReceivedRequest
from .script import (
    ScriptError,
    StopReason,
    Timing,
    ToolCall,
    Turn,
    Usage,
    dump_script,
    load_script,
    load_turn,
)
from .server import Simulator
from .thread import SimulatorThread

__all__ = [
    "Chaos",
    "Fault",
    "FaultKind",
    "ReceivedRequest",
    "ScriptError",
    "Simulator",
    "SimulatorThread",
    "StopReason",
    "Timing",
    "ToolCall",
    "Turn",
    "Usage",
    "dump_script",
    "load_script",
    "load_turn",
]
