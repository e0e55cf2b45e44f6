"""A real model on this machine: llama.cpp's own server, in a child process that never outlives this one.

Needs the extra `[local]`; importing this package does not. `LocalServer` raises `LocalModelUnavailable`, with a reason
in one line, where the extra cannot be used.
"""

from .server import LocalServer
from .unavailable import LocalModelUnavailable

__all__ = ["LocalModelUnavailable", "LocalServer"]
