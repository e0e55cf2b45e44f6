"""`<think>` tags inside text: local models and badly configured gateways mark reasoning so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rx_sampler.events import REASONING, TEXT

__all__ = ["ThinkTagSplitter"]

_OPEN: Final = "<think>"
_CLOSE: Final = "</think>"


class ThinkTagSplitter:
    """Parts text at think tags, however they are cut; holds back no more than what may be the start of a tag.

    A closing tag before any text (models whose template opened the tag in the prompt) is dropped; any other unmatched
    closing tag is text. `sinks` are the owner's buffers by channel, kept here for its convenience.
    """

    def __init__(self, sinks: Mapping[str, list[str]]) -> None:
        self.sinks = sinks
        self._inside = False
        self._begun = False
        self._held = ""

    def feed(self, text: str) -> list[tuple[str, str]]:
        """Pieces of `text` with their channel, in order; none empty."""
        pieces: list[tuple[str, str]] = []
        text, self._held = self._held + text, ""
        while text:
            at, tag = self._next_tag(text)
            if at < 0:
                keep = _partial_tag(text, self._tags())
                self._say(pieces, text[: len(text) - keep])
                self._held = text[len(text) - keep :]
                break
            self._say(pieces, text[:at])
            self._inside = tag == _OPEN
            text = text[at + len(tag) :]
        return pieces

    def finish(self) -> list[tuple[str, str]]:
        pieces: list[tuple[str, str]] = []
        self._say(pieces, self._held)
        self._held = ""
        return pieces

    def _tags(self) -> tuple[str, ...]:
        if self._inside:
            return (_CLOSE,)
        return (_OPEN,) if self._begun else (_OPEN, _CLOSE)

    def _next_tag(self, text: str) -> tuple[int, str]:
        found = [(at, tag) for tag in self._tags() if (at := text.find(tag)) >= 0]
        if not found:
            return -1, ""
        at, tag = min(found)
        if tag == _CLOSE and not self._inside and text[:at].strip():
            at = text.find(_OPEN)  # text came before it: an unmatched closing tag is text
            return at, _OPEN
        return at, tag

    def _say(self, pieces: list[tuple[str, str]], text: str) -> None:
        if text:
            self._begun = self._begun or bool(text.strip())
            pieces.append((REASONING if self._inside else TEXT, text))


def _partial_tag(text: str, tags: tuple[str, ...]) -> int:
    """How many characters at the end of `text` may be the start of a tag."""
    longest = max(map(len, tags)) - 1
    return next((n for n in range(min(longest, len(text)), 0, -1) if any(tag.startswith(text[-n:]) for tag in tags)), 0)
