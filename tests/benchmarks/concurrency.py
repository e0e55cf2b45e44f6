"""A thousand answers at once: CPU per delta and memory per open stream, of a bare loop, `stream()` and `submit()`.

    python tests/benchmarks/concurrency.py [--streams 1000] [--deltas 100] [--rounds 5]

A server in another process answers each connection with chat completion chunks. CPU: the clients take turns in one
process, medians of process time. Memory: each client in a fresh process, with all streams open and all deltas
received; resident memory above what it had before, per stream. The bare loop (aiohttp, one connection each, split at
blank lines, parse JSON) is the floor.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from speed import HEAD, chat_answer

Client = Callable[[str, int, int, "asyncio.Event | None"], Coroutine[Any, Any, None]]
"""Base URL, number of streams, deltas in each; with an event: set when all deltas are there, and hold from then on."""


async def serve(deltas: int, hold: bool) -> None:
    frames = list(chat_answer([f" word{n % 1000}" for n in range(deltas)]))
    body = frames[: deltas + 1] if hold else frames  # held before its finish reason
    blobs = [b"".join(body[at : at + 4]) for at in range(0, len(body), 4)]
    writes = [b"%x\r\n%s\r\n" % (len(blob), blob) for blob in blobs]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = next((line for line in head.split("\r\n") if line.startswith("content-length:")), ":0")
                await reader.readexactly(int(length.split(":")[1]))
                writer.write(HEAD)
                for blob in writes:
                    writer.write(blob)
                    await writer.drain()
                if hold:
                    await reader.read()
                writer.write(b"0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


class Tally:
    """Counts deltas, and tells when all of them are there."""

    def __init__(self, expected: int, told: asyncio.Event | None) -> None:
        self._left = expected
        self._told = told

    def count(self) -> None:
        self._left -= 1
        if not self._left and self._told is not None:
            self._told.set()

    def check(self) -> None:
        if self._left:
            raise SystemExit(f"{self._left} deltas are missing")


async def floor(base_url: str, streams: int, deltas: int, told: asyncio.Event | None) -> None:
    import aiohttp
    from pydantic_core import from_json

    tally = Tally(streams * deltas, told)

    async def one() -> None:
        rest = b""
        async with aiohttp.ClientSession() as session, session.post(f"{base_url}/chat", json={}) as response:
            async for read in response.content.iter_any():
                *events, rest = (rest + read).split(b"\n\n")
                for event in events:
                    data = event[event.index(b"data: ") + 6 :]
                    if (
                        data != b"[DONE]"
                        and (choices := from_json(data)["choices"])
                        and choices[0]["delta"].get("content")
                    ):
                        tally.count()

    await asyncio.gather(*(one() for _ in range(streams)))
    tally.check()


def ours(how: str) -> Client:
    async def run(base_url: str, streams: int, deltas: int, told: asyncio.Event | None) -> None:
        from rx_sampler import ChannelToken, Sampler, SamplerConfig, SamplingEvent

        tally = Tally(streams * deltas, told)
        loop = asyncio.get_running_loop()

        def on_next(event: SamplingEvent) -> None:
            if type(event) is ChannelToken:
                tally.count()

        async with Sampler(SamplerConfig(base_url=base_url, model="bench-1", api_key="none")) as sampler:
            waits: list[asyncio.Future[None]] = []
            for _ in range(streams):
                source = sampler.stream("hello") if how == "stream" else sampler.events_of(sampler.submit("hello"))
                done: asyncio.Future[None] = loop.create_future()
                source.subscribe(on_next, done.set_exception, lambda done=done: done.set_result(None))
                waits.append(done)
            await asyncio.gather(*waits)
        tally.check()

    return run


CLIENTS: dict[str, Client] = {"floor": floor, "stream": ours("stream"), "submit": ours("submit")}


def resident_kib() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024


async def memory(client: str, base_url: str, streams: int, deltas: int) -> None:
    """Print the KiB per open stream, in this process, which has done nothing else; then end it."""
    warm, told = asyncio.Event(), asyncio.Event()
    first = asyncio.create_task(CLIENTS[client](base_url, 1, deltas, warm))
    await warm.wait()  # imports, and the first of everything
    before = resident_kib()
    others = asyncio.create_task(CLIENTS[client](base_url, streams, deltas, told))
    await told.wait()
    print(f"{(resident_kib() - before) / streams:.2f}", flush=True)
    os._exit(0 if not (first.done() or others.done()) else 1)  # the server holds the streams for ever


async def cpu(base_url: str, streams: int, deltas: int, rounds: int) -> dict[str, float]:
    spent: dict[str, list[float]] = {name: [] for name in CLIENTS}
    for round_number in range(rounds + 1):
        for name, client in CLIENTS.items():
            gc.collect()
            begun = time.process_time()
            await client(base_url, streams, deltas, None)
            if round_number:  # the first is for imports and caches
                spent[name].append((time.process_time() - begun) / (streams * deltas) * 1e6)
    return {name: statistics.median(values) for name, values in spent.items()}


def with_server(deltas: int, hold: bool, act: Callable[[str], None]) -> None:
    command = [sys.executable, __file__, "--serve", "--deltas", str(deltas), *(["--hold"] if hold else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            act(f"http://127.0.0.1:{int(server.stdout.readline())}/v1")
        finally:
            server.terminate()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--deltas", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--hold", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    parser.add_argument("--at", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        asyncio.run(serve(args.deltas, args.hold))
    elif args.memory_of:
        asyncio.run(memory(args.memory_of, args.at, args.streams, args.deltas))
    else:
        with_server(
            args.deltas, False, lambda url: print_cpu(asyncio.run(cpu(url, args.streams, args.deltas, args.rounds)))
        )
        with_server(args.deltas, True, lambda url: print_memory(url, args.streams, args.deltas))


def print_cpu(spent: dict[str, float]) -> None:
    print("CPU per delta:", ", ".join(f"{name} {value:.2f} us" for name, value in spent.items()))
    shares = {name: spent[name] / spent["floor"] for name in ("stream", "submit")}
    print("  times the floor:", ", ".join(f"{name} {value:.2f}" for name, value in shares.items()))
    print(f"  submit is {spent['submit'] / spent['stream']:.2f} times stream")


def print_memory(url: str, streams: int, deltas: int) -> None:
    figures: dict[str, float] = {}
    for name in CLIENTS:
        command = [sys.executable, __file__, "--memory-of", name, "--at", url]
        command += ["--streams", str(streams), "--deltas", str(deltas)]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        figures[name] = float(out)
    print("memory per open stream:", ", ".join(f"{name} {value:.1f} KiB" for name, value in figures.items()))
    above = {name: figures[name] - figures["floor"] for name in ("stream", "submit")}
    print("  above the floor:", ", ".join(f"{name} {value:+.1f} KiB" for name, value in above.items()))


if __name__ == "__main__":
    main()
