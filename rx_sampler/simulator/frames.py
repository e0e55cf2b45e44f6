"""Server-sent events as the providers frame them, before they are bytes."""

from __future__ import annotations

from dataclasses import dataclass

from .answers import ALPHANUMERIC, Derivation
from .json_tools import JsonObject, dumps

__all__ = ["Comment", "Frame", "Padding", "encode", "encode_broken"]

_PADDED_TO_CHARS = 16
"""OpenAI pads a delta's event to a multiple of this many characters, so that lengths tell nothing about the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One event: its JSON (or a literal such as `[DONE]`), under a name if the format names its events.

    `is_delta` marks content, which is paced and counted; `is_numbered` events get their `sequence_number` when they
    are encoded, because a fault may put others in between.
    """

    data: JsonObject | str
    event: str | None = None
    is_delta: bool = False
    is_numbered: bool = False


@dataclass(frozen=True, slots=True)
class Comment:
    """A line that every client ignores, apart from being alive."""

    text: str


def encode(frame: Frame | Comment, number: int) -> bytes:
    """The bytes of a frame; `number` is how many frames went before it."""
    if isinstance(frame, Comment):
        return f": {frame.text}\n\n".encode()
    return _event(frame, _payload(frame, number))


def encode_broken(frame: Frame, number: int) -> bytes:
    """The same event with half its JSON: well framed, not parseable."""
    payload = _payload(frame, number)
    return _event(frame, payload[: max(len(payload) // 2, 1)])


def _payload(frame: Frame, number: int) -> str:
    if isinstance(frame.data, str):
        return frame.data
    return dumps({**frame.data, "sequence_number": number} if frame.is_numbered else frame.data)


def _event(frame: Frame, payload: str) -> bytes:
    name = f"event: {frame.event}\n" if frame.event is not None else ""
    return f"{name}data: {payload}\n\n".encode()


class Padding:
    """OpenAI's `obfuscation` field; absent when the request switches it off (`stream_options.include_obfuscation`)."""

    def __init__(self, derivation: Derivation, *, is_on: bool) -> None:
        self._random = derivation.random("obfuscation")
        self._is_on = is_on

    def of(self, delta: str) -> JsonObject:
        """The field for an event that carries this delta, or nothing."""
        if not self._is_on:
            return {}
        length = -len(delta) % _PADDED_TO_CHARS
        return {"obfuscation": "".join(self._random.choices(ALPHANUMERIC, k=length))}
