"""OpenAI and xAI responses, and compatible servers."""

from __future__ import annotations

from typing import Final, cast

from rx_sampler.backends.base import Backend
from rx_sampler.conversation import JsonObject

from .chunks import ResponsesChunk
from .request import PATH, encode
from .transform import ResponsesTransform

__all__ = ["BACKEND"]


_OVER: Final = frozenset({"completed", "incomplete", "failed", "cancelled"})


def _is_own_event(name: str) -> bool:
    return (name.startswith("response.") and name != "response.doom_loop_check") or name in ("message", "error")


def _unwrap(document: JsonObject) -> list[ResponsesChunk]:
    """A whole response as the two events that would have framed it; one that is not ready has no end yet."""
    start = {name: document.get(name) for name in ("id", "model")}
    chunks: list[JsonObject] = [{"type": "response.created", "response": start}]
    is_over = document.get("status") in _OVER or (document.get("status") is None and bool(document.get("output")))
    if is_over:
        chunks.append({"type": "response.completed", "response": document})
    return cast("list[ResponsesChunk]", chunks)


BACKEND: Backend[ResponsesChunk] = Backend(
    name="responses",
    path=PATH,
    chunk=ResponsesChunk,
    encode=encode,
    transform=ResponsesTransform,
    is_own_event=_is_own_event,
    unwrap=_unwrap,
)
