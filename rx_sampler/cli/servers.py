"""The embedded default: a server of our own where no other is configured."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from enum import Enum

from .options import UnusableError

__all__ = ["BACKENDS", "SIMULATED_MODEL", "Embedded", "Kind", "curl_lines", "embedded_server"]

BACKENDS = ("chat_completions", "responses", "messages")
"""The wire formats that our own servers speak."""
SIMULATED_MODEL = "simulated-model"


class Kind(Enum):
    """Which of our servers: the local model, the simulator, or the first of them that can be had."""

    ANY = "any"
    LOCAL = "local"
    SIMULATOR = "simulator"


@dataclass(frozen=True, slots=True)
class Embedded:
    """A running server of ours; `notice` says in one line what answers, and why."""

    base_url: str
    model: str
    notice: str


@asynccontextmanager
async def embedded_server(kind: Kind, *, thinking: bool = False) -> AsyncGenerator[Embedded]:
    """A server that runs until the block ends.

    Raises `UnusableError` for `Kind.LOCAL` where there is no local model.
    """
    async with AsyncExitStack() as stack:
        because = ""
        if kind is not Kind.SIMULATOR:
            from rx_sampler.local import LocalModelUnavailable, LocalServer

            try:
                local = await stack.enter_async_context(LocalServer(thinking=thinking))
            except LocalModelUnavailable as reason:
                if kind is Kind.LOCAL:
                    raise UnusableError(f"no local model: {reason}") from None
                because = f", because there is no local model: {reason}"
            else:
                small = f"the small model {local.model} answers from llama.cpp on this machine"
                yield Embedded(local.base_url, local.model, _notice(kind, small))
                return
        from rx_sampler.simulator import Simulator

        simulator = await stack.enter_async_context(Simulator())
        what = f"the built-in simulator answers, which is no model{because}"
        yield Embedded(simulator.base_url, SIMULATED_MODEL, _notice(kind, what))


def _notice(kind: Kind, what: str) -> str:
    return f"no model configured; {what}" if kind is Kind.ANY else what


def curl_lines(base_url: str, model: str) -> list[str]:
    """A command for each endpoint that streams an answer, to paste into a shell."""
    turn = '"messages":[{"role":"user","content":"What is the capital of France?"}]'
    bodies = {
        "chat/completions": turn,
        "responses": '"input":"What is the capital of France?"',
        "messages": f'"max_tokens":256,{turn}',
    }
    return [
        f"curl -N {base_url}/{path} -H 'content-type: application/json' "
        f'-d \'{{"model":"{model}","stream":true,{body}}}\''
        for path, body in bodies.items()
    ]
