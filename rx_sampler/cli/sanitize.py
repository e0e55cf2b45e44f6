"""Untrusted text made safe to print: whatever could drive a terminal is shown as an escape instead.

Each character is judged by itself, so a sequence that arrives in pieces is caught however it was cut. Text that is
already safe comes back as the same object.
"""

from __future__ import annotations

import re

__all__ = ["visible", "visible_json", "visible_line"]

# C0 and C1 controls (ECMA-48: ESC, CSI, OSC, DCS live there) and DEL; the bidirectional embeddings, overrides and
# isolates (UAX #9, section 2), which reorder what a reader sees; lone surrogates, which no output encoding takes.
_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f"
_REORDERING = "\u202a-\u202e\u2066-\u2069"
_SURROGATES = "\ud800-\udfff"
_UNSAFE = re.compile(f"[{_CONTROLS}{_REORDERING}{_SURROGATES}]")
_UNSAFE_IN_A_LINE = re.compile(f"[\t\n\u2028\u2029{_CONTROLS}{_REORDERING}{_SURROGATES}]")
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


def _escaped(match: re.Match[str]) -> str:
    char = match.group()
    return _SHORT.get(char) or (f"\\x{ord(char):02x}" if ord(char) < 0x100 else f"\\u{ord(char):04x}")


def visible(text: str) -> str:
    """`text` with its control characters shown as `\\x1b`, `\\r` or `\\u202e`; newline and tab stay what they are."""
    return _UNSAFE.sub(_escaped, text)


def visible_line(text: str) -> str:
    """As `visible`, on one line: newline, tab and the Unicode line separators are shown as escapes too."""
    return _UNSAFE_IN_A_LINE.sub(_escaped, text)


def visible_json(document: str) -> str:
    """JSON text with the same value whose strings hold no raw control, bidirectional or surrogate character.

    JSON allows DEL, C1 controls and bidirectional controls unescaped in strings, and nowhere else: as `\\uXXXX` they
    mean the same to a parser and nothing to a terminal.
    """
    return _UNSAFE.sub(lambda match: f"\\u{ord(match.group()):04x}", document)
