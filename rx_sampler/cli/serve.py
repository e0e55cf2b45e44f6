"""Servers of our own that stay up until a signal: the local model and the simulator."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NoReturn

from .options import UnusableError
from .servers import BACKENDS, SIMULATED_MODEL, curl_lines

__all__ = ["serve_local", "serve_simulator"]


async def serve_local(*, model: Path | None, port: int, thinking: bool) -> int:
    """Keep the local model up until cancelled. Raises `UnusableError` where there is none."""
    from rx_sampler.local import LocalModelUnavailable, LocalServer

    wanted: dict[str, Any] = {"port": port} if port else {}  # a free one unless told otherwise
    try:
        async with LocalServer(model, thinking=thinking, **wanted) as server:
            await _announce_and_wait(server.base_url, server.model, f"llama.cpp serves {server.model}")
    except LocalModelUnavailable as reason:
        raise UnusableError(f"no local model: {reason}") from None


async def serve_simulator(
    *, port: int, seed: int, ttft_ms: float, tokens_per_second: float, jitter: float, script: Path | None
) -> int:
    """Keep the simulator up until cancelled. Raises `UnusableError` for a script that is none."""
    from rx_sampler.simulator import Simulator, Timing, load_script

    timing = Timing(time_to_first_token_s=ttft_ms / 1e3, tokens_per_second=tokens_per_second or None, jitter=jitter)
    try:
        turns = () if script is None else load_script(script.read_bytes())  # noqa: ASYNC240  # nothing else runs yet
    except OSError as error:
        raise UnusableError(f"script {script}: {error.strerror}") from None
    except ValueError as error:
        raise UnusableError(f"script {script}: {'; '.join(str(error).splitlines())}") from None
    async with AsyncExitStack() as stack:
        try:
            simulator = await stack.enter_async_context(Simulator(seed=seed, timing=timing, script=turns, port=port))
        except OSError as error:
            raise UnusableError(f"port {port}: {error.strerror}") from None
        await _announce_and_wait(simulator.base_url, SIMULATED_MODEL, "this is a simulation: no model answers here")


async def _announce_and_wait(base_url: str, model: str, what: str) -> NoReturn:
    lines = [
        f"{what}; Ctrl-C ends it",
        f"base URL: {base_url} (backends {', '.join(BACKENDS)})",
        *curl_lines(base_url, model),
        f"rx-sampler ask --base-url {base_url} --model {model} 'What is the capital of France?'",
    ]
    print("\n".join(lines), flush=True)
    await asyncio.get_running_loop().create_future()
    raise AssertionError  # nobody completes that future
