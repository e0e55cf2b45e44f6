"""What several streams give together, and threads that were started: for the rules of operators."""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

from .marble_report import Notice
from .operator_probe import Script

__all__ = ["by_time", "merges", "no_thread_started", "woven"]


def woven(streams: Sequence[Sequence[Any]], seed: int) -> list[Script]:
    """The streams interleaved by chance, each in its own order and with the times that it has among the others."""
    turns = [number for number, stream in enumerate(streams) for _ in stream]
    Random(seed).shuffle(turns)  # noqa: S311  # chance for a test, no secret
    times = [[ms for ms, turn in enumerate(turns, 1) if turn == number] for number in range(len(streams))]
    return [
        Script(tuple(zip(times[number], stream, strict=True)), len(turns) + 1) for number, stream in enumerate(streams)
    ]


def by_time(notices: Sequence[Notice]) -> dict[float, list[Any]]:
    """The values that came, by the millisecond in which they did."""
    found: dict[float, list[Any]] = {}
    for notice in notices:
        if notice.kind == "next":
            found.setdefault(notice.at_ms, []).append(notice.value)
    return found


def merges(parts: Sequence[Sequence[Any]], whole: Sequence[Any]) -> bool:
    """Whether `whole` is all of the parts, each in its own order."""
    if sum(map(len, parts)) != len(whole):
        return False
    ways = {(0,) * len(parts)}
    for value in whole:
        ways = {
            (*at[:n], at[n] + 1, *at[n + 1 :])
            for at in ways
            for n, part in enumerate(parts)
            if at[n] < len(part) and part[at[n]] == value
        }
    return bool(ways)


@contextmanager
def no_thread_started() -> Generator[None]:
    """AssertionError for a thread that this one starts meanwhile: one that is already over counts too."""
    started: list[str] = []
    me = threading.get_ident()
    start = threading.Thread.start

    def noted(thread: threading.Thread) -> None:
        if threading.get_ident() == me:
            started.append(thread.name)
        start(thread)

    threading.Thread.start = noted  # pyright: ignore[reportAttributeAccessIssue]  # counts, and does the same
    try:
        yield
    except AssertionError as wrong:
        _none(started, wrong)  # output that came too late, or never, is but the consequence
        raise
    finally:
        threading.Thread.start = start
    _none(started, None)


def _none(started: Sequence[str], cause: AssertionError | None) -> None:
    if started:
        names = ", ".join(dict.fromkeys(started))
        raise AssertionError(f"it started {names}; time is the scheduler's") from cause
