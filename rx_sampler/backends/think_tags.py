"""`<think>` tags inside text: local models and badly configured gateways mark reasoning so."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from rx_sampler.events import REASONING, TEXT

__all__ = ["ThinkTagSplitter"]

_OPEN: Final = "<think>"
_CLOSE: Final = "</think>"
_FIRST_CLOSE: Final = re.compile(r"\s*</think>")


class ThinkTagSplitter:
    """Parts text at think tags, however they are cut; holds back no more than what may be the start of a tag.

    A closing tag before any text (models whose template opened the tag in the prompt) is dropped; any other unmatched
    closing tag is text. `sinks` are the owner's buffers by channel, kept here for its convenience.
    """

    def __init__(self, sinks: Mapping[str, list[str]]) -> None:
        self.sinks = sinks
        self._inside = False
        self._begun = False
        self._held: str = ""

    def feed(self, text: str) -> list[tuple[str, str]]:
        """Pieces of `text` with their channel, in order; none empty."""
        pieces: list[tuple[str, str]] = []
        text, self._held = self._held + text, ""
        start = 0
        while start < len(text):
            at, tag = self._next_tag(text, start)
            if at < 0:
                keep = len(text) - self._held_back(text, start)
                self._say(pieces, text[start:keep])
                self._held = text[keep:]
                break
            self._say(pieces, text[start:at])
            self._inside = tag == _OPEN
            start = at + len(tag)
        return pieces

    def finish(self) -> list[tuple[str, str]]:
        pieces: list[tuple[str, str]] = []
        self._say(pieces, self._held)
        self._held = ""
        return pieces

    def _held_back(self, text: str, start: int) -> int:
        """How many characters at the end of `text[start:]` may be the start of a tag that would mean something."""
        if self._inside:
            return _partial(text, start, _CLOSE)
        held = _partial(text, start, _OPEN)
        if not self._begun:
            orphan = _partial(text, start, _CLOSE)
            if orphan > held and not text[start : len(text) - orphan].strip():
                return orphan
        return held

    def _next_tag(self, text: str, start: int) -> tuple[int, str]:
        if self._inside:
            return text.find(_CLOSE, start), _CLOSE
        match = _FIRST_CLOSE.match(text, start) if not self._begun else None
        return (match.end() - len(_CLOSE), _CLOSE) if match else (text.find(_OPEN, start), _OPEN)

    def _say(self, pieces: list[tuple[str, str]], text: str) -> None:
        if text:
            self._begun = self._begun or bool(text.strip())
            pieces.append((REASONING if self._inside else TEXT, text))


def _partial(text: str, start: int, tag: str) -> int:
    """The length of the longest proper prefix of `tag` that `text[start:]` ends in."""
    longest = min(len(tag) - 1, len(text) - start)
    return next((n for n in range(longest, 0, -1) if text.endswith(tag[:n])), 0)
