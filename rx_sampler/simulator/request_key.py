"""How the attempts of one request are known: by a key that a retry does not change, not even one without images."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from typing import Final

from .json_tools import JsonObject, as_list, as_object, as_text

__all__ = ["request_key"]

_IMAGE_PARTS: Final = frozenset({"image_url", "input_image", "image"})
"""The types of an image part in chat completions, responses and messages."""
_TEXT_PARTS: Final = frozenset({"text", "input_text"})

_IMAGE_NOTE: Final = re.compile(r"\[(?:invalid )?image\b[^\]]*\]", re.IGNORECASE)
"""What clients write where an image stood: `[image removed: ...]`, `[Image: ...]`."""

_KEY_CHARS: Final = 32


def request_key(path: str, body: JsonObject | None, raw: bytes) -> str:
    """32 hexadecimal digits for the endpoint and the body as it is without its images; `raw` where it is no object.

    Not part of it: image parts, lines that are nothing but a note about an image, `cache_control`, and whether text
    came as a string, as a list of texts, or as one text per line.
    """
    try:
        content = raw if body is None else json.dumps(_imageless(body), sort_keys=True).encode()
    except RecursionError:  # nested more deeply than Python holds; such a body has no images to lose
        content = raw
    return sha256(path.encode() + b"|" + content).hexdigest()[:_KEY_CHARS]


def _imageless(value: object) -> object:
    if isinstance(value, str):
        return _without_notes(value)
    if (entries := as_list(value)) is not None:
        return _imageless_list(entries)
    if (members := as_object(value)) is None:
        return value
    if as_text(members.get("type")) in _TEXT_PARTS and (text := as_text(members.get("text"))) is not None:
        return _without_notes(text)
    return {name: _imageless(member) for name, member in members.items() if name != "cache_control"}


def _imageless_list(entries: list[object]) -> object:
    kept = [_imageless(entry) for entry in entries if not _is_image(entry)]
    texts = [entry for entry in kept if isinstance(entry, str)]
    return "\n".join(filter(None, texts)) if len(texts) == len(kept) else kept


def _is_image(entry: object) -> bool:
    # `in` on a set needs something hashable, and a body may say anything.
    return as_text((as_object(entry) or {}).get("type")) in _IMAGE_PARTS


def _without_notes(text: str) -> str:
    if "[" not in text:
        return text
    return "\n".join(line for line in text.split("\n") if not _IMAGE_NOTE.fullmatch(line.strip()))
