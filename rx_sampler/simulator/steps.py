"""An answer and a fault as the steps that a server takes: what to send, and where it goes wrong. No I/O here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .answers import Answer
from .asks import Ask
from .faults import Fault
from .frames import Comment, Frame, encode, encode_broken
from .responses import doom_loop_frame
from .wire_format import WireFormat

__all__ = ["Cut", "Hold", "Pause", "Reset", "Send", "Step", "document_steps", "stream_steps"]


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
    """Announce a chunk of these bytes (none, if there are none), send that many of them and drop the connection."""

    data: bytes
    sent_bytes: int


@dataclass(frozen=True, slots=True)
class Reset:
    """Reset the connection."""


Step = Send | Pause | Hold | Cut | Reset


def stream_steps(
    frames: Sequence[Frame], fault: Fault | None, *, wire: WireFormat, ask: Ask, answer: Answer
) -> Iterator[Step]:
    """The steps of a streamed answer, whose frames are these; the body ends cleanly after the last."""
    place = _place(frames, fault)
    script = _Numbering()
    checks = _cumulative(answer.doom_triggers)
    checking = False
    for index, frame in enumerate(frames):
        struck = fault if index == place.index else None
        match struck:
            case Fault(kind="stall" | "cut" | "reset" | "early_end"):
                yield from _broken_off(struck, script.encode(frame), place.offset_bytes, is_delta=frame.is_delta)
                return
            case Fault(kind="error"):
                for failure in wire.error_frames(struck, ask, answer):
                    yield Send(script.encode(failure))
                return
            case Fault(kind="keepalive"):
                yield from _keepalives(wire, struck, script)
            case Fault(kind="doom_loop"):
                checking = True
            case _:
                pass
        if checking and (check := next(checks, None)) is not None:
            yield Send(script.encode(check))
        is_broken = struck is not None and struck.kind == "truncated_json"
        yield Send(script.encode(frame, broken=is_broken), is_delta=frame.is_delta)
    if fault is not None and place.index == len(frames):
        yield from _broken_off(fault, b"", 0)


def document_steps(body: bytes, fault: Fault | None) -> tuple[int | None, tuple[Step, ...]]:
    """The length to declare for an answer without streaming (None: chunked), and its steps: in a fault a part."""
    place = None if fault is None else fault.byte_of(len(body))
    part = body[: len(body) // 2 if place is None else min(place, len(body) - 1)]
    match fault.kind if fault else None:
        case "stall":
            return len(body), (Send(part), Hold())
        case "cut":
            return len(body), (Send(part), Cut(b"", 0))
        case "reset":
            return len(body), (Send(part), Reset())
        case "early_end":
            return None, (Send(part),)
        case "truncated_json":
            return len(part), (Send(part),)
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


@dataclass(frozen=True, slots=True)
class _Place:
    """Before the frame of this index (None: nowhere), or that many bytes into it (None: where the kind likes best)."""

    index: int | None
    offset_bytes: int | None = None


def _place(frames: Sequence[Frame], fault: Fault | None) -> _Place:
    """Where a fault strikes in these frames; past the last of them only if it is placed by bytes and may be inside."""
    if fault is None:
        return _Place(None)
    if fault.after_bytes is not None or fault.after_share is not None:
        sizes = [len(encode(frame, index)) for index, frame in enumerate(frames)]
        strike = fault.byte_of(sum(sizes)) or 0
        index = 0
        while index < len(sizes) and sizes[index] <= strike:
            strike, index = strike - sizes[index], index + 1
        is_inside = fault.kind in ("stall", "cut", "reset", "early_end")
        return _Place(index, strike) if is_inside else _Place(min(index, len(frames) - 1))
    # After its n deltas, or after the last there are.
    places = [0, *(index + 1 for index, frame in enumerate(frames) if frame.is_delta)]
    if fault.kind == "doom_loop" and fault.after_deltas >= len(places):
        return _Place(None)  # the answer ended first: the labels are in its terminal event only
    return _Place(places[min(fault.after_deltas, len(places) - 1)])


def _broken_off(fault: Fault, data: bytes, offset_bytes: int | None, *, is_delta: bool = False) -> Iterator[Step]:
    """The answer's end inside these bytes, which would have been next."""
    if fault.kind == "cut":
        yield Cut(data, len(data) // 2 if offset_bytes is None else offset_bytes)
        return
    if offset_bytes:
        yield Send(data[:offset_bytes], is_delta=is_delta)
    if fault.kind == "stall":
        yield Hold()
    elif fault.kind == "reset":
        yield Reset()


def _cumulative(triggers: tuple[str, ...]) -> Iterator[Frame]:
    for seen in range(1, len(triggers) + 1):
        yield doom_loop_frame(triggers[:seen])


def _keepalives(wire: WireFormat, fault: Fault, script: _Numbering) -> Iterator[Step]:
    sent = 0
    while fault.count is None or sent < fault.count:
        yield Send(script.encode(wire.keepalive()))
        yield Pause(fault.interval_s)
        sent += 1
