"""OpenAI chat completions, and every server that speaks them."""

from __future__ import annotations

from typing import cast

from rx_sampler.backends.assembly import DONE
from rx_sampler.backends.base import Backend
from rx_sampler.conversation import JsonObject

from .chunks import ChatChunk
from .request import PATH, encode
from .transform import ChatTransform

__all__ = ["BACKEND"]


def _unwrap(document: JsonObject) -> list[ChatChunk]:
    """A whole completion, and the end that it is."""
    return [cast("ChatChunk", document), DONE] if document.get("choices") else [cast("ChatChunk", document)]


BACKEND: Backend[ChatChunk] = Backend(
    name="chat_completions", path=PATH, chunk=ChatChunk, encode=encode, transform=ChatTransform, unwrap=_unwrap
)
