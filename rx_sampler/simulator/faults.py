"""An answer and a fault as the steps that a server takes: what to send, and where it goes wrong. No I/O here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .answers import Answer
from .asks import Ask
from .frames import Comment, Frame, encode, encode_broken
from .responses import doom_loop_frame
from .script import Fault
from .wire_format import WireFormat

__all__ = ["Cut", "Hold", "Pause", "Reset", "Send", "Step", "document_steps", "stream_steps", "strikes_before_headers"]


@dataclass(frozen=True, slots=True)
class Send:
    """These bytes; content is paced."""

    data: bytes
    is_delta: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """Send nothing for this long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Hold:
    """Send nothing more and keep the socket open."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Announce a chunk of these bytes, send half of it (nothing, if there are none) and drop the connection."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Reset:
    """Reset the connection."""


Step = Send | Pause | Hold | Cut | Reset


def strikes_before_headers(fault: Fault) -> bool:
    """Whether the fault is there before any header is."""
    return fault.kind in ("status", "silent") or (fault.kind == "reset" and fault.after_deltas == 0)


def stream_steps(
    frames: Sequence[Frame], fault: Fault | None, *, wire: WireFormat, ask: Ask, answer: Answer
) -> Iterator[Step]:
    """The steps of a streamed answer, whose frames are these; the body ends cleanly after the last."""
    strike = _strike(frames, fault)
    script = _Numbering()
    checks = _cumulative(answer.doom_triggers)
    checking = False
    for index, frame in enumerate(frames):
        if fault is not None and index == strike:
            match fault.kind:
                case "stall":
                    yield Hold()
                case "cut":
                    yield Cut(script.encode(frame))
                case "reset":
                    yield Reset()
                case "error":
                    for failure in wire.error_frames(fault, ask, answer):
                        yield Send(script.encode(failure))
                case "keepalive":
                    yield from _keepalives(wire, fault, script)
                case "doom_loop":
                    checking = True
                case _:
                    pass
            if fault.kind in ("stall", "cut", "reset", "error", "early_end"):
                return
        if checking and (check := next(checks, None)) is not None:
            yield Send(script.encode(check))
        if fault is not None and fault.kind == "truncated_json" and index == strike:
            yield Send(script.encode(frame, broken=True), is_delta=frame.is_delta)
        else:
            yield Send(script.encode(frame), is_delta=frame.is_delta)


def document_steps(body: bytes, fault: Fault | None) -> tuple[int | None, tuple[Step, ...]]:
    """The length to declare for an answer without streaming (None: chunked), and its steps: half of it, in a fault."""
    half = body[: len(body) // 2]
    match fault.kind if fault else None:
        case "stall":
            return len(body), (Send(half), Hold())
        case "cut":
            return len(body), (Send(half), Cut(b""))
        case "reset":
            return len(body), (Send(half), Reset())
        case "early_end":
            return None, (Send(half),)
        case "truncated_json":
            return len(half), (Send(half),)
        case _:
            return len(body), (Send(body),)


class _Numbering:
    """Encodes frames and counts them: the events that a fault puts in between take numbers of their own."""

    def __init__(self) -> None:
        self._sent = 0

    def encode(self, frame: Frame | Comment, *, broken: bool = False) -> bytes:
        number = self._sent
        if isinstance(frame, Comment):
            return encode(frame, number)
        self._sent += 1
        return encode_broken(frame, number) if broken else encode(frame, number)


def _strike(frames: Sequence[Frame], fault: Fault | None) -> int | None:
    """The index of the frame before which the fault strikes: after its n deltas, or after the last there are."""
    if fault is None:
        return None
    places = [0, *(index + 1 for index, frame in enumerate(frames) if frame.is_delta)]
    if fault.kind == "doom_loop" and fault.after_deltas >= len(places):
        return None  # the answer ended first: the labels are in its terminal event only
    return places[min(fault.after_deltas, len(places) - 1)]


def _cumulative(triggers: tuple[str, ...]) -> Iterator[Frame]:
    for seen in range(1, len(triggers) + 1):
        yield doom_loop_frame(triggers[:seen])


def _keepalives(wire: WireFormat, fault: Fault, script: _Numbering) -> Iterator[Step]:
    sent = 0
    while fault.count is None or sent < fault.count:
        yield Send(script.encode(wire.keepalive()))
        yield Pause(fault.interval_s)
        sent += 1
