"""What goes wrong with one answer: `Fault`, a kind, a place, and the details that this kind has."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator

from .strict import FROM_LIST, HeaderName, HeaderValue, StrictModel

__all__ = ["Fault", "FaultKind", "spares_the_answer", "strikes_before_headers"]

FaultKind = Literal[
    "status",
    "silent",
    "close",
    "upload_reset",
    "slow_headers",
    "stall",
    "cut",
    "early_end",
    "reset",
    "error",
    "truncated_json",
    "doom_loop",
    "keepalive",
]

_PLACES: Final = frozenset({"after_deltas", "after_bytes", "after_share"})
"""Three ways to say where in the answer; one of them at a time."""

_FAULT_FIELDS: Final[dict[FaultKind, frozenset[str]]] = {
    "status": frozenset({"status", "headers", "body", "type", "code", "message"}),
    "silent": frozenset(),
    "close": frozenset(),
    "upload_reset": frozenset({"after_bytes"}),
    "slow_headers": frozenset({"delay_s"}),
    "stall": _PLACES,
    "cut": _PLACES,
    "early_end": _PLACES,
    "reset": _PLACES,
    "error": _PLACES | {"type", "code", "message"},
    "truncated_json": _PLACES,
    "doom_loop": frozenset({"after_deltas", "triggers"}),
    "keepalive": _PLACES | {"count", "interval_s"},
}
"""Which fields mean something for which kind; a script that sets another one is refused rather than half obeyed."""


class Fault(StrictModel):
    """What goes wrong with an answer, and where.

    The place is one of three, and the start of the answer where none is given:

    * `after_deltas` counts frames with content (text, reasoning, refusal, arguments): the fault strikes right after
      the n-th, or before the closing frames of a shorter answer; at 0 it strikes directly after the headers.
    * `after_bytes` counts the bytes of the body, HTTP's chunk sizes not among them: the fault strikes after the n-th,
      inside a frame or a character, or after the last byte of a shorter answer, before the body's end is told.
    * `after_share` is the same as a share of this answer's bytes, from 0 to 1.

    `error`, `truncated_json` and `keepalive` strike between frames: before the one that holds the next byte, at the
    latest before the last.

    * `status`: this HTTP status instead of an answer, with these `headers` and this `body` (text as it stands, as
      text/html if it starts with `<`; an object as JSON; absent: the provider's own error shape, with `type`, `code`
      and `message` where given). A proxy's page is `status=200, body="<html>..."`.
    * `silent`: no headers, ever; the socket stays open.
    * `close`: the connection is closed cleanly (FIN) without a single byte of answer, as by a server that gives up a
      kept connection just when it is used again.
    * `upload_reset`: the connection is reset (RST) once `after_bytes` of the request's body were read, at the latest
      one byte before its end; no answer.
    * `slow_headers`: headers only after `delay_s` seconds, then the answer as ever.
    * `stall`: nothing more is sent; the socket stays open.
    * `cut`: the connection is dropped in the middle of a chunk; the chunked body is unfinished.
    * `early_end`: the body ends cleanly, without finish reason or terminal event.
    * `reset`: the connection is reset (RST); without a place, or at `after_deltas=0`, before any header.
    * `error`: the provider's in-stream error event; a request without streaming gets it as an HTTP error. `code` may
      be a number, for the servers that put the status there.
    * `truncated_json`: the next frame holds half its JSON; the stream then goes on.
    * `doom_loop`: xAI's check frames with cumulative `triggers`, one more before each frame that follows, and all of
      them in the terminal event (only there, if the answer ends before `after_deltas`); on streamed responses of a
      client that sent `x-grok-doom-loop-check`, nothing elsewhere.
    * `keepalive`: comments or pings, `count` of them (None: for ever) every `interval_s`, then the answer goes on.

    Without streaming, `stall`, `cut`, `early_end`, `reset` and `truncated_json` strike in the middle of the body, or
    at the given byte, at the latest one byte before the end.
    """

    kind: FaultKind
    after_deltas: Annotated[int, Field(ge=0)] = 0
    after_bytes: Annotated[int, Field(ge=0)] | None = None
    after_share: Annotated[float, Field(ge=0, le=1)] | None = None
    delay_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    status: Annotated[int, Field(ge=200, le=599)] = 500
    headers: dict[HeaderName, HeaderValue] = Field(default_factory=dict)
    body: str | dict[str, Any] | None = None
    type: str | None = None
    code: str | int | None = None
    message: str | None = None
    triggers: Annotated[tuple[str, ...], FROM_LIST] = ("tail_repetition:8@thinking",)
    count: Annotated[int, Field(ge=0)] | None = None
    interval_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0

    @model_validator(mode="after")
    def _fields_fit_the_kind(self) -> Fault:
        known = _FAULT_FIELDS[self.kind]
        for name in sorted(self.model_fields_set - known - {"kind"}):
            fitting = ", ".join(sorted(known)) or "no other field"
            raise ValueError(f"{name} means nothing for kind={self.kind!r}, which takes {fitting}")
        places = sorted(self.model_fields_set & _PLACES)
        if len(places) > 1:
            raise ValueError(f"{' and '.join(places)} are {len(places)} places for one fault, give one of them")
        return self

    def byte_of(self, total_bytes: int) -> int | None:
        """The place as a number of bytes of an answer this long; None where the place is counted in deltas."""
        if self.after_share is not None:
            return int(self.after_share * total_bytes)
        return None if self.after_bytes is None else min(self.after_bytes, total_bytes)


def strikes_before_headers(fault: Fault) -> bool:
    """Whether the fault is there before any header is."""
    if fault.kind == "reset":
        return fault.after_deltas == 0 and fault.after_bytes is None and fault.after_share is None
    return fault.kind in ("status", "silent", "close", "upload_reset")


def spares_the_answer(fault: Fault | None) -> bool:
    """Whether the answer comes whole and right all the same, if later."""
    return fault is None or fault.kind in ("slow_headers", "keepalive")
