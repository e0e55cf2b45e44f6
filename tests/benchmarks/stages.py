"""Where the time of a delta goes, stage by stage, without a network.

    python tests/benchmarks/stages.py [--deltas 5000] [--per-read 64] [--rounds 15]

The same prepared answers as in `speed.py`, fed to more and more of a request's stages; the best of the rounds counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import reactivex as rx
from pydantic_core import from_json
from speed import ANSWERS

from rx_sampler.backends.assembly import Context
from rx_sampler.backends.base import ChunkDecoder, EventReader, get_backend
from rx_sampler.stage import through
from rx_sampler.wire.idle import Pulse
from rx_sampler.wire.sse import SseParser


def best_us(run: Callable[[], object], deltas: int, rounds: int) -> float:
    spent: list[float] = []
    for _ in range(rounds):
        before = time.process_time()
        run()
        spent.append(time.process_time() - before)
    return min(spent) / deltas * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deltas", type=int, default=5000)
    parser.add_argument("--per-read", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    print(f"{'us/delta':17s} {'frames':>7s} {'+ JSON':>7s} {'+ events':>9s} {'+ Rx':>7s}")
    for name, make in ANSWERS.items():
        frames = list(make([f" word{n % 1000}" for n in range(options.deltas)]))
        size = options.per_read
        reads = [b"".join(frames[at : at + size]) for at in range(0, len(frames), size)]

        def reader(name: str = name) -> EventReader:
            backend = get_backend(name)
            transform = backend.transform(Context(request_id="bench", pulse=Pulse(0.0)))
            transform.opening({})
            return EventReader(ChunkDecoder(backend), transform)

        def frame_all(reads: list[bytes] = reads) -> None:
            parser = SseParser()
            for read in reads:
                for _ in parser.feed(read):
                    pass

        def parse_all(reads: list[bytes] = reads) -> None:
            parser = SseParser()
            for read in reads:
                for frame in parser.feed(read):
                    if frame.data != b"[DONE]":
                        from_json(frame.data, cache_strings="keys")

        def read_all(reads: list[bytes] = reads, reader: Callable[[], EventReader] = reader) -> None:
            parser, machine = SseParser(), reader()
            for read in reads:
                for frame in parser.feed(read):
                    for _ in machine.feed(frame):
                        pass

        def deliver_all(reads: list[bytes] = reads, reader: Callable[[], EventReader] = reader) -> None:
            rx.from_iterable(reads).pipe(through(SseParser, reader)).subscribe(lambda _event: None)

        costs = [best_us(run, options.deltas, options.rounds) for run in (frame_all, parse_all, read_all, deliver_all)]
        print(f"{name:17s} {costs[0]:7.2f} {costs[1]:7.2f} {costs[2]:9.2f} {costs[3]:7.2f}")


if __name__ == "__main__":
    main()
