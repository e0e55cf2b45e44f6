"""OpenAI chat completions, and every server that speaks them."""

from __future__ import annotations

from rx_sampler.backends.base import Backend

from .chunks import ChatChunk
from .request import PATH, encode
from .transform import ChatTransform

__all__ = ["BACKEND"]

BACKEND: Backend[ChatChunk] = Backend(
    name="chat_completions", path=PATH, chunk=ChatChunk, encode=encode, transform=ChatTransform
)
