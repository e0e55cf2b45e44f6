"""Google's native Gemini stream as a backend of rx_sampler: `POST /models/{model}:streamGenerateContent?alt=sse`."""

from __future__ import annotations

from rx_sampler import Backend

from .chunks import GeminiChunk
from .request import encode, path
from .transform import GeminiTransform

__all__ = ["BACKEND"]

BACKEND: Backend[GeminiChunk] = Backend(
    name="gemini",
    path=path,
    chunk=GeminiChunk,
    encode=encode,
    transform=GeminiTransform,
    auth_scheme="x_goog_api_key",
    answer_keys=("candidates", "promptFeedback"),
)
