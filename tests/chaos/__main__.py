"""The long form: `python -m tests.chaos [--requests 2000] [--at-once 200] [--seed 1 2 3] [--only NUMBER ...]`.

For each seed a round of so many requests to warm up, and another. Prints what happened, and each fault with the
request's script and events; exits 1 if there were any. `--only` repeats single requests, by the number in their name.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import warnings

from .storm import storm

SHOWN_FAULTS = 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--at-once", type=int, default=200)
    parser.add_argument("--seed", type=int, nargs="+", default=[1])
    parser.add_argument("--only", type=int, nargs="+")
    args = parser.parse_args()
    warnings.simplefilter("error")
    failed = False
    for seed in args.seed:
        report = asyncio.run(storm(seed, args.requests, args.at_once, args.only))
        for fault in report.faults[:SHOWN_FAULTS]:
            print(fault)
        if (more := len(report.faults) - SHOWN_FAULTS) > 0:
            print(f"... and {more} more")
        print(report, flush=True)
        failed |= bool(report.faults)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
