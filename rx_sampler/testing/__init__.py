"""What tests of streaming clients need: a scripted server on a loopback port, and every way to cut a stream of bytes.

Importable without pytest; the pytest plugin is a module of its own.
"""

from .server import Answer, End, ReceivedRequest, ScriptedServer, Wait
from .splits import every_split, random_splits

__all__ = ["Answer", "End", "ReceivedRequest", "ScriptedServer", "Wait", "every_split", "random_splits"]
