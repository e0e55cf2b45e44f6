"""How many retries, when code and environment both have a say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["VARIABLES", "max_retries_from"]

VARIABLES: Final = ("RX_SAMPLER_MAX_RETRIES", "GROK_MAX_RETRIES")
"""The first of them that holds a whole number wins."""


def max_retries_from(configured: int, environ: Mapping[str, str]) -> int:
    """The number of retries: an explicit 0 in code, else the environment's, else `configured`."""
    if configured == 0:
        return 0
    for name in VARIABLES:
        value = environ.get(name, "").strip()
        if value.isascii() and value.isdigit() and len(value) < 10:
            return int(value)
    return configured
