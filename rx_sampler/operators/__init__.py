"""Operators over `SamplingEvent`s, for `pipe`."""

from .loops import detect_loop

__all__ = ["detect_loop"]
