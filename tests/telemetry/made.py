"""Requests and events made by hand, and the log read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from rx_sampler import SamplingRequest
from rx_sampler.observing import RequestFacts
from rx_sampler.telemetry.notes import Notes

SUBMITTED_AT: Final = 1_769_851_800.0
"""2026-01-31T09:30:00Z: `date -u -d 2026-01-31T09:30:00Z +%s`."""


def facts(request_id: str = "r-1", request: SamplingRequest | None = None, **fields: Any) -> RequestFacts:
    known: dict[str, Any] = {
        "ts": SUBMITTED_AT,
        "backend": "messages",
        "model": "toy-1",
        "base_url": "https://api.test/v1",
    }
    return RequestFacts(request_id=request_id, request=request or SamplingRequest.of("Hello?"), **{**known, **fields})


def notes(request: SamplingRequest | None = None, *, content: bool = False) -> Notes:
    return Notes(facts(request=request), content)


def stamp(after_s: float = 0.0, attempt: int = 1, request_id: str = "r-1") -> dict[str, Any]:
    """The fields of every event."""
    return {"request_id": request_id, "attempt": attempt, "ts": SUBMITTED_AT + after_s}


def records(path: Path) -> list[dict[str, Any]]:
    """The records of a file, each of which must be a whole line."""
    text = path.read_text(encoding="ascii")
    assert text == "" or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]
