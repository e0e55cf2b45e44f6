"""The command `rx-sampler`: ask a model from a terminal, keep a local server or the simulator up.

Needs the extra `[cli]`; without it `main` says so in one line.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

__all__ = ["main"]

_NEEDED = ("typer", "rich")


def main() -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong options, 128 + N ended by signal N."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        print(f"rx-sampler needs {' and '.join(missing)}: pip install 'rx-sampler[cli]'", file=sys.stderr)
        raise SystemExit(1)
    try:
        from .app import run
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    run()
