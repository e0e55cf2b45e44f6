"""Which turn a request takes, and which of its attempts it is: the script, retries and chance in one place. No I/O."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from .chaos import Chaos
from .faults import Fault, spares_the_answer
from .script import Turn, load_turn

__all__ = ["Arrival", "Attempt", "TurnQueue"]

_K = TypeVar("_K")
_V = TypeVar("_V")

_MOST_REMEMBERED: Final = 10_000
"""Requests whose next attempt is expected; beyond that many the oldest are forgotten, and begin anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """What a request's head tells: the endpoint, the body's length, and its name and own turn, if it brings them."""

    path: str
    length_bytes: int | None
    name: str | None = None
    own_turn: str | None = field(default=None, repr=False)


@dataclass(slots=True, kw_only=True)
class _Course:
    """A turn with `faults` on its way: how many of its attempts have come, and by what the next is known.

    `key` is None as long as no attempt's body was read.
    """

    turn: Turn
    index: int | None
    arrival: Arrival
    key: str | None
    count: int = 0

    @property
    def next_fault(self) -> Fault | None:
        faults = self.turn.faults or ()
        return faults[self.count] if self.count < len(faults) else None

    @property
    def resets_upload(self) -> bool:
        return self.next_fault is not None and self.next_fault.kind == "upload_reset"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One request: the turn that it takes (with at most one `fault`), the turn's index in the script, its number."""

    turn: Turn
    index: int | None
    number: int
    key: str | None
    course: _Course | None = field(default=None, repr=False, compare=False)


class TurnQueue:
    """The turns that wait and those on their way. `extend` may be called from any thread, the rest from one."""

    def __init__(self, turns: Iterable[Turn], chaos: Chaos | None) -> None:
        self._pending: deque[Turn] = deque()
        self._taken = 0
        self._chaos = chaos
        self._resets_uploads = False
        self._known: OrderedDict[tuple[str | None, str], _Course] = OrderedDict()
        self._nameless: deque[_Course] = deque(maxlen=_MOST_REMEMBERED)
        self._chaos_counts: OrderedDict[str, int] = OrderedDict()
        self.extend(turns)

    def extend(self, turns: Iterable[Turn]) -> None:
        """Queue turns behind those that wait already."""
        queued = tuple(turns)
        self._resets_uploads |= any(turn.has_upload_fault for turn in queued)
        self._pending.extend(queued)

    def before_body(self, arrival: Arrival) -> Attempt | None:
        """The attempt of a request that is reset while its body arrives; None if the body has to be read first.

        Without a name in its head a request is taken for the next attempt of a turn whose last attempt had a body of
        the same length, or whose body was never read, else for a new request. Where that leaves a doubt (the turn
        that it may belong to has something else in store), the body is read, and decides.

        Raises `ScriptError` for an own turn that is none.
        """
        own = None if arrival.own_turn is None else load_turn(arrival.own_turn)
        if not (self._resets_uploads if own is None else own.has_upload_fault):
            return None
        expected = list(self._expected(arrival))
        if (course := next((course for course in expected if course.resets_upload), None)) is not None:
            return self._next_attempt(course)
        if expected:
            return None
        first = own or (self._pending[0] if self._pending else Turn())
        opening = first.faults[0] if first.faults else first.fault
        if opening is None or opening.kind != "upload_reset":
            return None
        return self._begin(arrival, arrival.name)

    def take(self, arrival: Arrival, body_key: str) -> Attempt:
        """The attempt of a request whose body was read. Raises `ScriptError` for an own turn that is none."""
        key = arrival.name or body_key
        course = self._known.get((arrival.own_turn, key)) or self._adopted(arrival, key)
        if course is None:
            return self._begin(arrival, key)
        course.arrival = arrival
        return self._next_attempt(course)

    def answered(self, attempt: Attempt) -> None:
        """The attempt's answer was sent to its end; if it was right too, the request is done where nothing is left."""
        if not spares_the_answer(attempt.turn.fault) or attempt.key is None:
            return
        self._chaos_counts.pop(attempt.key, None)
        course = attempt.course
        if course is not None and attempt.number >= len(course.turn.faults or ()):
            self._known.pop((course.arrival.own_turn, attempt.key), None)

    def _begin(self, arrival: Arrival, key: str | None) -> Attempt:
        """The first attempt of a new request: with its own turn, else the next of the script, else by chance."""
        index: int | None = None
        if arrival.own_turn is not None:
            turn = load_turn(arrival.own_turn)
        elif self._pending:
            turn, index = self._pending.popleft(), self._taken
            self._taken += 1
        elif self._chaos is not None and key is not None:
            return self._by_chance(self._chaos, key)
        else:
            turn = Turn()
        if turn.faults is None:
            return Attempt(turn=turn, index=index, number=1, key=key)
        course = _Course(turn=turn, index=index, arrival=arrival, key=key)
        if key is None:
            self._nameless.append(course)
        else:
            _remember(self._known, (arrival.own_turn, key), course)
        return self._next_attempt(course)

    def _next_attempt(self, course: _Course) -> Attempt:
        turn = course.turn.meeting(course.next_fault)
        course.count += 1
        return Attempt(turn=turn, index=course.index, number=course.count, key=course.key, course=course)

    def _by_chance(self, chaos: Chaos, key: str) -> Attempt:
        number = self._chaos_counts.get(key, 0) + 1
        _remember(self._chaos_counts, key, number)
        return Attempt(turn=Turn(fault=chaos.fault_for(key, number)), index=None, number=number, key=key)

    def _expected(self, arrival: Arrival) -> Iterable[_Course]:
        """The turns on their way whose next attempt this may be, by its head alone."""
        if arrival.name is not None:
            course = self._known.get((arrival.own_turn, arrival.name))
            return () if course is None else (course,)
        return (
            course
            for course in (*self._nameless, *self._known.values())
            if course.arrival.own_turn == arrival.own_turn
            and course.arrival.path == arrival.path
            and (course.key is None or course.arrival.length_bytes == arrival.length_bytes)
        )

    def _adopted(self, arrival: Arrival, key: str) -> _Course | None:
        """A turn whose attempts so far were reset before their body told who they were; now it is told."""
        if arrival.name is not None:
            return None
        for course in self._nameless:
            if course.arrival.own_turn == arrival.own_turn and course.arrival.path == arrival.path:
                self._nameless.remove(course)
                course.key = key
                _remember(self._known, (arrival.own_turn, key), course)
                return course
        return None


def _remember(memory: OrderedDict[_K, _V], key: _K, value: _V) -> None:
    memory[key] = value
    memory.move_to_end(key)
    if len(memory) > _MOST_REMEMBERED:
        memory.popitem(last=False)
