"""Python functions as tools of a model, and the loop that runs what it calls."""

from __future__ import annotations

from rx_sampler.functions import PythonFunction

from .calls import run_call
from .conversation import ToolsResult, Turn, collect_tools, conversation, total_usage
from .function_tool import AnyTool, Tool
from .loop import run_tools

__all__ = [
    "AnyTool",
    "PythonFunction",
    "Tool",
    "ToolsResult",
    "Turn",
    "collect_tools",
    "conversation",
    "run_call",
    "run_tools",
    "total_usage",
]
