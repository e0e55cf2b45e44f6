"""`GET /v1/models` and `/v1/models/{id}`, as OpenAI and as Anthropic list them.

Shapes: https://platform.openai.com/docs/api-reference/models and https://platform.claude.com/docs/en/api/models.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from urllib.parse import unquote

from .json_tools import JsonObject
from .messages import Messages
from .wire_format import WireFormat

__all__ = ["models_document"]


def models_document(path: str, models: Sequence[str], now: int, dialect: WireFormat) -> JsonObject | None:
    """The list, or the entry of one model; None where the path asks for neither or the model is not listed."""
    describe = _anthropic_entry if isinstance(dialect, Messages) else _openai_entry
    if path == "/models":
        entries = [describe(model, now) for model in models]
        if isinstance(dialect, Messages):
            ends = {"first_id": models[0], "last_id": models[-1]} if models else {"first_id": None, "last_id": None}
            return {"data": entries, "has_more": False, **ends}
        return {"object": "list", "data": entries}
    model = unquote(path.removeprefix("/models/"))
    return describe(model, now) if path.startswith("/models/") and model in models else None


def _openai_entry(model: str, now: int) -> JsonObject:
    return {"id": model, "object": "model", "created": now, "owned_by": "rx-sampler-simulator"}


def _anthropic_entry(model: str, now: int) -> JsonObject:
    created = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": "model", "id": model, "display_name": model, "created_at": created}
