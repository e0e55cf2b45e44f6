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
        self._inner = zlib.decompressobj(31 if self._gzip else 15)
        self._raw_deflate = not self._gzip

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            try:
                piece = self._inner.decompress(data, _PIECE_BYTES)
            except zlib.error as error:
                if self._raw_deflate:  # RFC 9110 section 8.4.1.2: some send the stream without its zlib wrapper
                    self._raw_deflate = False
                    self._inner = zlib.decompressobj(-15)
                    continue
                raise SamplingError.of(
                    SamplingErrorKind.HTTP, f"the response's content coding is corrupt ({error})", is_retryable=True
                ) from error
            self._raw_deflate = False
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
