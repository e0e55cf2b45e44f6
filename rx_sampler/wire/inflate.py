"""Content codings that a server applies although we asked for none."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

from rx_sampler.errors import SamplingError, SamplingErrorKind

__all__ = ["Inflater", "inflater_for"]

_PIECE_BYTES: Final = 256 * 1024
"""Decoded bytes are handed on in pieces of this size, so that a gzip bomb meets the caps behind before memory ends."""


class Inflater:
    """Undoes `gzip` or `deflate`, piece by piece. Raises `SamplingError(http)` where the coding is corrupt."""

    def __init__(self, coding: str) -> None:
        self._gzip = coding in ("gzip", "x-gzip")
        self._inner = zlib.decompressobj(31) if self._gzip else None
        self._head = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._inner is None:
            data = self._head = self._head + data
            if len(data) < 2:
                return
            # RFC 9110 section 8.4.1.2: some send deflate without its zlib wrapper, whose two bytes RFC 1950 defines.
            wrapped = data[0] & 0x0F == 8 and int.from_bytes(data[:2]) % 31 == 0
            self._inner = zlib.decompressobj(15 if wrapped else -15)
        while data:
            try:
                piece = self._inner.decompress(data, _PIECE_BYTES)
            except zlib.error as error:
                raise SamplingError.of(
                    SamplingErrorKind.HTTP, f"the response's content coding is corrupt ({error})", is_retryable=True
                ) from error
            if piece:
                yield piece
            data = self._inner.unconsumed_tail
            if self._inner.eof:
                data = self._inner.unused_data
                if not (self._gzip and data):
                    return
                self._inner = zlib.decompressobj(31)  # RFC 1952: a file may be several members


def inflater_for(coding: str) -> Inflater | None:
    """The decoder of a `Content-Encoding`; None for none. Raises `SamplingError(http)` for one we cannot undo."""
    coding = coding.strip().lower()
    if coding in ("", "identity"):
        return None
    if coding in ("gzip", "x-gzip", "deflate"):
        return Inflater(coding)
    raise SamplingError.of(
        SamplingErrorKind.HTTP, f"the server sent content-encoding {coding[:40]!r} although identity was asked for"
    )
