"""What encoding a long conversation costs: memory beside the body, and how the time grows.

    python tests/benchmarks/encoding.py [--rounds 20]

`peak` is the most that encoding takes at a time (tracemalloc, body included) beside the body that it gives, for 1,000
items with 20 images of 1 MiB. `us per item` is the CPU time for 1,000 items without images, the best round, and `x 2`
what 2,000 cost beside 1,000.
"""

from __future__ import annotations

import argparse
import math
import time
import tracemalloc
from base64 import b64encode
from random import Random
from typing import Final

from rx_sampler import ImagePart, Item, SamplerConfig, SamplingRequest, TextItem, ToolCall, ToolResultItem, UserItem
from rx_sampler.backends.base import get_backend
from rx_sampler.backends.encoding import body_bytes
from rx_sampler.conversation import TextPart

BACKENDS: Final = ("chat_completions", "responses", "messages")
IMAGE_BYTES: Final = 2**20


def conversation(count: int, images: int = 0) -> SamplingRequest:
    """Turns of a question, a call, its result and an answer; some of the questions show an image."""
    random = Random(7)
    items: list[Item] = []
    while len(items) < count:
        turn = len(items) // 4
        parts: list[TextPart | ImagePart] = [TextPart(text=f"Question {turn}. " * 4)]
        if turn < images:
            parts.append(ImagePart(url="data:image/png;base64," + b64encode(random.randbytes(IMAGE_BYTES)).decode()))
        call = ToolCall(id=f"call_{turn}", name="look", arguments='{"where": "here"}')
        result = ToolResultItem(tool_call_id=call.id, content="Nothing to see. " * 4)
        items += [UserItem(content=parts), call, result, TextItem(text="So be it. " * 8)]
    return SamplingRequest(items=items[:count])


def encoded(request: SamplingRequest, backend: str) -> bytes:
    config = SamplerConfig(base_url="http://127.0.0.1:1/v1", backend=backend, model="m")
    return body_bytes(get_backend(backend).encode(request, config))


def best_s(request: SamplingRequest, backend: str, rounds: int) -> float:
    best = math.inf
    for _ in range(rounds):
        began = time.process_time()
        encoded(request, backend)
        best = min(best, time.process_time() - began)
    return best


def peak_times(request: SamplingRequest, backend: str) -> float:
    tracemalloc.start()
    size = len(encoded(request, backend))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak / size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    shown, some, many = conversation(1000, images=20), conversation(1000), conversation(2000)
    print(f"{'':18s} {'peak':>6s} {'us per item':>12s} {'x 2':>6s}")
    for backend in BACKENDS:
        once_s = best_s(some, backend, rounds)
        grown = best_s(many, backend, rounds) / once_s
        print(f"{backend:18s} {peak_times(shown, backend):6.2f} {once_s / 1000 * 1e6:12.1f} {grown:6.2f}")


if __name__ == "__main__":
    main()
