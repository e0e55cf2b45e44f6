"""Which certificate authorities a connection trusts."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

__all__ = ["trusting"]

MAX_BUNDLE_BYTES: Final = 1024 * 1024
"""All public authorities together are a quarter of it; what is larger is another file."""


def trusting(ca_bundle: Path | str) -> ssl.SSLContext:
    """A context for clients that trusts the system's authorities and those in a PEM file.

    Raises ValueError, naming the file, where it cannot be read, is too large or holds no certificate.
    """
    try:
        with Path(ca_bundle).open("rb") as file:
            data = file.read(MAX_BUNDLE_BYTES + 1)
    except OSError as error:
        raise ValueError(f"ca_bundle {ca_bundle} cannot be read: {error.strerror}") from error
    if not data.strip():
        raise ValueError(f"ca_bundle {ca_bundle} is empty; it should hold PEM certificates")
    if len(data) > MAX_BUNDLE_BYTES:
        raise ValueError(f"ca_bundle {ca_bundle} is larger than {MAX_BUNDLE_BYTES} bytes")
    context = ssl.create_default_context()
    context.set_alpn_protocols(("http/1.1",))  # all that aiohttp speaks
    try:
        # Bundles name the authorities in comments, in any language.
        context.load_verify_locations(cadata=data.decode("ascii", "ignore"))
    except ssl.SSLError as error:
        raise ValueError(f"ca_bundle {ca_bundle} holds no PEM certificate that can be read") from error
    return context
