"""What `import rx_sampler` costs, as a multiple of importing reactivex, aiohttp and pydantic together.

Run it as a script. All are measured in fresh interpreters, in turns, so that a busy moment of the machine hits all;
the figure of an interpreter that imports nothing is subtracted. The project's limit is 1.25.

`import pydantic` loads next to nothing until a name is taken from it, so a second ratio is printed to the
dependencies with the three names that every user of pydantic takes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

LIMIT: Final = 1.25
STATEMENTS: Final = {
    "nothing": "pass",
    "dependencies": "import reactivex, aiohttp, pydantic",
    "names taken": "import reactivex, aiohttp; from pydantic import BaseModel, Field, TypeAdapter",
    "rx_sampler": "import rx_sampler",
}


def seconds(statement: str) -> float:
    """Wall time of a fresh interpreter that runs `statement`."""
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))}
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True, env=environment)
    return time.perf_counter() - begun


def measured(rounds: int) -> dict[str, float]:
    """Median seconds of each statement over `rounds` interleaved rounds, after one that fills the caches."""
    times: dict[str, list[float]] = {name: [] for name in STATEMENTS}
    for number in range(rounds + 1):
        for name, statement in STATEMENTS.items():
            taken = seconds(statement)
            if number:
                times[name].append(taken)
    return {name: statistics.median(each) for name, each in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="fresh interpreters per statement (default: 15)")
    medians = measured(parser.parse_args().rounds)
    base, ours = medians["nothing"], medians["rx_sampler"]
    for name, value in medians.items():
        print(f"{name:>12}: {value * 1e3:7.1f} ms")
    for name in ("dependencies", "names taken"):
        print(f"rx_sampler / {name:<12}: {(ours - base) / (medians[name] - base):5.2f}   (limit {LIMIT})")


if __name__ == "__main__":
    main()
