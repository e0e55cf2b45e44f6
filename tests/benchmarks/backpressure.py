"""What a stalled consumer costs: how much the server could send, what waited here, what was lost, what memory grew.

    python tests/benchmarks/backpressure.py [--stall 5] [--capacity 256]

A loopback server wants to send an answer of 200,000 deltas, 52 MB; the consumer takes 1,000 events, stalls, and then
takes the rest. One line for each overflow policy, each in a process of its own, and one for three subscribers of one
request, each with a policy of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from reactivex import Observable

from rx_sampler import ChannelToken, Completed, Sampler, SamplerConfig, SamplingEvent
from rx_sampler.flow import BoundedIterator, BufferOverflowError, Overflow, to_async_iterator

DELTAS: Final = 200_000
PADDING: Final = "p" * 120
POLICIES: Final[tuple[Overflow, ...]] = ("pause", "drop_oldest", "drop_newest", "latest", "error")
HEADER: Final = (
    f"{'policy':12s} {'server MB':>9s} {'memory MiB':>10s} {'high water':>10s} {'dropped':>8s} {'tokens':>7s}  end"
)


def resident_mib() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Server:
    """Sends as fast as it may, fifty deltas to a write."""

    def __init__(self) -> None:
        self.sent_bytes = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.partition(b":")[2]))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
            for start in range(0, DELTAS, 50):
                await self._send(writer, b"".join(_delta(number) for number in range(start, start + 50)))
            await self._send(
                writer, b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
            )
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def _send(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(data)
        await writer.drain()
        self.sent_bytes += len(data)


def _delta(number: int) -> bytes:
    choice = {"index": 0, "delta": {"content": f"{number} "}, "finish_reason": None}
    chunk = {"id": "c", "object": "chat.completion.chunk", "model": "m", "pad": PADDING, "choices": [choice]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


async def consumed(events: BoundedIterator[SamplingEvent], first: int, stall_s: float) -> tuple[list[int], str]:
    """The numbers of the tokens, in order, and how it ended."""
    numbers: list[int] = []
    end = "none"
    try:
        async for event in events:
            if isinstance(event, ChannelToken):
                numbers.append(int(event.text))
                if len(numbers) == first:
                    await asyncio.sleep(stall_s)
            elif isinstance(event, Completed):
                end = event.kind
    except BufferOverflowError:
        end = "BufferOverflowError"
    return numbers, end


async def measure(policies: tuple[Overflow, ...], capacity: int, stall_s: float) -> None:
    server = Server()
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    config = SamplerConfig(
        base_url=f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1", model="m", idle_timeout_s=stall_s / 2
    )
    async with Sampler(config) as sampler:
        before_mib = resident_mib()
        source: Observable[SamplingEvent] = sampler.events_of(sampler.submit("Count."))
        iterators = [to_async_iterator(source, capacity, policy) for policy in policies]
        tasks = [asyncio.create_task(consumed(events, 1000, stall_s)) for events in iterators]
        await asyncio.sleep(stall_s * 0.8)
        sent_mb, grown_mib = server.sent_bytes / 1e6, resident_mib() - before_mib
        for policy, events, task in zip(policies, iterators, tasks, strict=True):
            numbers, end = await task
            if numbers != sorted(set(numbers)) or (policy == "pause" and numbers != list(range(DELTAS))):
                end += ", OUT OF ORDER OR LOST"
            name = policy if len(policies) == 1 else f"+ {policy}"
            print(
                f"{name:12s} {sent_mb:9.1f} {grown_mib:10.1f} {events.high_water:10d} {events.dropped:8d} "
                f"{len(numbers):7d}  {end}"
            )
    listener.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stall", type=float, default=5.0)
    parser.add_argument("--capacity", type=int, default=256)
    parser.add_argument("--policy", nargs="*", choices=POLICIES)
    options = parser.parse_args()
    if options.policy:
        asyncio.run(measure(tuple(options.policy), options.capacity, options.stall))
        return
    print(HEADER)
    for policies in (*((policy,) for policy in POLICIES), ("pause", "latest", "error")):
        command = [sys.executable, __file__, "--stall", str(options.stall), "--capacity", str(options.capacity)]
        subprocess.run([*command, "--policy", *policies], check=True)


if __name__ == "__main__":
    main()
