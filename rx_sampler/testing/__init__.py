"""What tests of streaming clients need: a scripted server, every way to cut a stream of bytes, and virtual time.

Importable without pytest; the pytest plugin is a module of its own.
"""

from .server import Answer, End, ReceivedRequest, ScriptedServer, Wait
from .splits import every_split, random_splits
from .virtual_loop import DeadlockError, VirtualTimeLoop, run_virtual

__all__ = [
    "Answer",
    "DeadlockError",
    "End",
    "ReceivedRequest",
    "ScriptedServer",
    "VirtualTimeLoop",
    "Wait",
    "every_split",
    "random_splits",
    "run_virtual",
]
