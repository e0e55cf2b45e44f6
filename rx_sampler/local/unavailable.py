"""Whether llama.cpp can run here, and in one line why not."""

from __future__ import annotations

import platform
import re
from importlib.util import find_spec
from pathlib import Path

__all__ = ["INSTALL_HINT", "LocalModelUnavailable", "cpu_problem", "require_engine"]

INSTALL_HINT = "pip install 'rx-sampler[local]'"

_CPU_INFO = Path("/proc/cpuinfo")
# What the x86-64 wheels of xllamacpp are compiled for; without one of them the process dies of SIGILL.
_NEEDED_X86_FEATURES = ("avx2", "fma", "bmi2")


class LocalModelUnavailable(Exception):  # noqa: N818  # it names a state of the machine, not a mistake
    """No local model can be had; `str()` is the reason, one line for people."""


def require_engine() -> None:
    """Return if the llama.cpp binding is installed and the processor can run it.

    Raises LocalModelUnavailable. Imports nothing: the binding is loaded by the child process alone.
    """
    if find_spec("xllamacpp") is None:
        raise LocalModelUnavailable(f"the package xllamacpp is not installed ({INSTALL_HINT})")
    if _CPU_INFO.exists() and (problem := cpu_problem(platform.machine(), _CPU_INFO.read_text(errors="replace"))):
        raise LocalModelUnavailable(problem)


def cpu_problem(machine: str, cpu_info: str) -> str | None:
    """What the processor lacks, None if nothing or if `cpu_info` (the text of /proc/cpuinfo) does not tell."""
    flags = re.search(r"^flags\s*:(.*)$", cpu_info, re.MULTILINE)
    if machine.lower() not in ("x86_64", "amd64") or flags is None:
        return None
    lacking = [feature.upper() for feature in _NEEDED_X86_FEATURES if feature not in flags[1].split()]
    return f"this processor lacks {', '.join(lacking)}, which xllamacpp is built for" if lacking else None
