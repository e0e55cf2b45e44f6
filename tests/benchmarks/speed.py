"""CPU per delta of a whole streamed answer: a bare read-and-parse loop, rx_sampler, and the vendors' clients.

    python tests/benchmarks/speed.py [--deltas 5000] [--per-write 4] [--rounds 7]

A server in another process sends one prepared answer per request, `--per-write` deltas to a write. The clients take
turns in one process, so that a ratio holds where the machine's speed does not; figures are medians of process time.
The bare loop (aiohttp, split at blank lines, parse JSON) is the floor. Vendors' clients that are not installed are left
out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

PATHS = {"chat_completions": "chat/completions", "responses": "responses", "messages": "messages"}
HELLO: Any = [{"role": "user", "content": "hello"}]
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
Client = Callable[[str], Awaitable[int]]


def frame(name: str | None, **fields: Any) -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(fields, separators=(',', ':'))}\n\n".encode()


def chat_answer(words: list[str]) -> Iterator[bytes]:
    base: dict[str, Any] = {
        "id": "chatcmpl-bench",
        "object": "chat.completion.chunk",
        "created": 1_767_225_600,
        "model": "bench-1",
        "system_fingerprint": "fp_bench",
    }

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return frame(None, **base, choices=[choice], usage=None)

    yield chunk({"role": "assistant", "content": ""})
    yield from (chunk({"content": word}) for word in words)
    yield chunk({}, "stop")
    counts = {"prompt_tokens": 5, "completion_tokens": len(words), "total_tokens": len(words) + 5}
    yield frame(None, **base, choices=[], usage=counts)
    yield b"data: [DONE]\n\n"


def responses_answer(words: list[str]) -> Iterator[bytes]:
    numbers = iter(range(10**9))

    def event(kind: str, **fields: Any) -> bytes:
        return frame(f"response.{kind}", type=f"response.{kind}", sequence_number=next(numbers), **fields)

    place: dict[str, Any] = {"item_id": "msg_bench", "output_index": 0, "content_index": 0}
    item: dict[str, Any] = {"id": "msg_bench", "type": "message", "role": "assistant", "status": "in_progress"}
    answer: dict[str, Any] = {
        "id": "resp_bench", "object": "response", "created_at": 1_767_225_600, "model": "bench-1", "output": [],
        "status": "in_progress", "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    }  # fmt: skip
    part: dict[str, Any] = {"type": "output_text", "text": "".join(words), "annotations": []}
    yield event("created", response=answer)
    yield event("output_item.added", output_index=0, item={**item, "content": []})
    yield event("content_part.added", **place, part={**part, "text": ""})
    yield from (event("output_text.delta", **place, delta=word, logprobs=[]) for word in words)
    yield event("output_text.done", **place, text=part["text"])
    done: dict[str, Any] = {**item, "status": "completed", "content": [part]}
    yield event("output_item.done", output_index=0, item=done)
    usage = {"input_tokens": 5, "output_tokens": len(words), "total_tokens": len(words) + 5}
    yield event("completed", response={**answer, "status": "completed", "output": [done], "usage": usage})


def messages_answer(words: list[str]) -> Iterator[bytes]:
    def event(kind: str, **fields: Any) -> bytes:
        return frame(kind, type=kind, **fields)

    yield event(
        "message_start",
        message={
            "id": "msg_bench", "type": "message", "role": "assistant", "model": "bench-1", "content": [],
            "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 5, "output_tokens": 1},
        },
    )  # fmt: skip
    yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    for word in words:
        yield event("content_block_delta", index=0, delta={"type": "text_delta", "text": word})
    yield event("content_block_stop", index=0)
    stop = {"stop_reason": "end_turn", "stop_sequence": None}
    yield event("message_delta", delta=stop, usage={"output_tokens": len(words)})
    yield event("message_stop")


ANSWERS = {"chat_completions": chat_answer, "responses": responses_answer, "messages": messages_answer}


async def serve(deltas: int, per_write: int) -> None:
    words = [f" word{n % 1000}" for n in range(deltas)]
    writes: dict[str, list[bytes]] = {}
    for backend, make in ANSWERS.items():
        frames = list(make(words))
        blobs = [b"".join(frames[at : at + per_write]) for at in range(0, len(frames), per_write)]
        writes[PATHS[backend]] = [b"%x\r\n%s\r\n" % (len(blob), blob) for blob in blobs]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = next((line for line in head.split("\r\n") if line.startswith("content-length:")), ":0")
                await reader.readexactly(int(length.split(":")[1]))
                path = next(path for path in writes if path in head.split("\r\n", 1)[0])
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
                )
                for blob in writes[path]:
                    writer.write(blob)
                    await writer.drain()
                writer.write(b"0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def floor(backend: str) -> Client:
    async def run(base_url: str) -> int:
        import aiohttp
        from pydantic_core import from_json

        seen, rest = 0, b""
        url = f"{base_url}/{PATHS[backend]}"
        async with aiohttp.ClientSession() as session, session.post(url, json={}) as response:
            async for read in response.content.iter_any():
                *events, rest = (rest + read).split(b"\n\n")
                for event in events:
                    data = event[event.index(b"data: ") + 6 :]
                    if data != b"[DONE]":
                        from_json(data)
                        seen += 1
        return seen

    return run


def ours(backend: str) -> Client:
    async def run(base_url: str) -> int:
        from reactivex import operators as ops

        from rx_sampler import ChannelToken, Completed, Sampler, SamplerConfig, SamplingEvent

        seen = 0

        def count(event: SamplingEvent) -> None:
            nonlocal seen
            seen += type(event) is ChannelToken

        config = SamplerConfig(backend=backend, base_url=base_url, model="bench-1", api_key="none")
        async with Sampler(config) as sampler:
            end = await sampler.stream("hello").pipe(ops.do_action(count))
        if not isinstance(end, Completed):
            raise SystemExit(f"{backend}: {end}")
        return seen

    return run


async def openai_chat(base_url: str) -> int:
    import openai

    async with openai.AsyncOpenAI(api_key="none", base_url=base_url, max_retries=0) as client:
        stream = await client.chat.completions.create(model="bench-1", messages=HELLO, stream=True)
        return sum([bool(chunk.choices and chunk.choices[0].delta.content) async for chunk in stream])


async def openai_responses(base_url: str) -> int:
    import openai

    async with openai.AsyncOpenAI(api_key="none", base_url=base_url, max_retries=0) as client:
        stream = await client.responses.create(model="bench-1", input="hello", stream=True)
        return sum([event.type == "response.output_text.delta" async for event in stream])


async def anthropic_events(base_url: str) -> int:
    import anthropic

    root = base_url.removesuffix("/v1")
    async with anthropic.AsyncAnthropic(api_key="none", base_url=root, max_retries=0) as client:
        stream = await client.messages.create(model="bench-1", max_tokens=9, messages=HELLO, stream=True)
        return sum([event.type == "content_block_delta" async for event in stream])


async def anthropic_helper(base_url: str) -> int:
    import anthropic

    root = base_url.removesuffix("/v1")
    async with (
        anthropic.AsyncAnthropic(api_key="none", base_url=root, max_retries=0) as client,
        client.messages.stream(model="bench-1", max_tokens=9, messages=HELLO) as stream,
    ):
        return sum([event.type == "text" async for event in stream])


VENDORS: dict[str, dict[str, Client]] = {
    "chat_completions": {"openai": openai_chat},
    "responses": {"openai": openai_responses},
    "messages": {"anthropic": anthropic_events, "anthropic.stream": anthropic_helper},
}


async def measure(base_url: str, deltas: int, rounds: int) -> None:
    print(f"{'backend':17s} {'client':17s} {'us/delta':>9s} {'x floor':>8s} {'x rx_sampler':>13s}")
    for backend in PATHS:
        clients = {"floor": floor(backend), "rx_sampler": ours(backend), **VENDORS[backend]}
        spent: dict[str, list[float]] = {}
        for label, client in list(clients.items()):
            try:
                await client(base_url)  # imports and caches
            except ImportError:
                del clients[label]
        for _ in range(rounds):
            for label, client in clients.items():
                before = time.process_time()
                seen = await client(base_url)
                spent.setdefault(label, []).append((time.process_time() - before) / deltas * 1e6)
                if seen < deltas:
                    raise SystemExit(f"{label} saw {seen} of {deltas} deltas")
        medians = {label: statistics.median(times) for label, times in spent.items()}
        for label, median in medians.items():
            shares = f"{median / medians['floor']:8.2f} {median / medians['rx_sampler']:13.2f}"
            print(f"{backend:17s} {label:17s} {median:9.2f} {shares}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deltas", type=int, default=5000)
    parser.add_argument("--per-write", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.deltas, options.per_write))
        return
    command = [
        sys.executable,
        __file__,
        "--serve",
        "--deltas",
        str(options.deltas),
        "--per-write",
        str(options.per_write),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        try:
            asyncio.run(measure(f"http://127.0.0.1:{port}/v1", options.deltas, options.rounds))
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
