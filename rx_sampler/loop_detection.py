"""Repetition, found on our side: whether an answer's last characters are one passage over and over.

`LoopSearch` is the rule for one policy, `Tail` applies it to one text as it grows, `LoopDetector` to the events of
requests.

A text loops with period p if its last characters, `copies(p)` passages of p, are the same as what stands p before them,
over `agreement(p) = p * (copies(p) - 1)` characters. Every `step_chars` characters somebody looks, at a place `here`
with one step of text behind it. A loop that came to be complete within that step reaches back over `here` by
`agreement(p) - step_chars`, which is a step at least. So the last step in front of `here`, the needle, stands p before
itself too: one `str.rfind` over the longest period tells that there is no loop, and that is all an ordinary answer
costs. Where the needle recurs, the places are the candidates, and each is compared. There are few, unless the needle is
itself a passage of q repeated: then it recurs all along any run of q, and `LoopSearch` goes by the ends of the runs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from .config import LoopDetection
from .errors import ErrorStamp, SamplingError, SamplingErrorInfo, SamplingErrorKind
from .events import REASONING, ChannelToken, Completed, DoomLoopSignals, Failed, Retrying, SamplingEvent, ToolCallDelta
from .stage import Machine

__all__ = ["Loop", "LoopDetector", "LoopSearch", "Tail"]

_STEP_CHARS: Final = 256
_STEPS_PER_WINDOW: Final = 32  # a step copies the window once, so this bounds what a character costs


class Loop(NamedTuple):
    """A passage of `period_chars` that stands `repeats` times in a row: as often as the policy asks, maybe oftener."""

    period_chars: int
    repeats: int


class LoopSearch:
    """Looks for loops as `policy` defines them, in one text, every `step_chars`.

    `step_chars` is a quarter of `min_chars`, at most 256 (more only where the window is large). `window_chars` is how
    much text in front of `here` is needed.
    """

    def __init__(self, policy: LoopDetection) -> None:
        self._longest, self._repeats, self._chars = policy.max_period_chars, policy.min_repeats, policy.min_chars
        shorter = min(self._longest, self._chars // self._repeats)  # of these, it takes more than `min_repeats`
        self.window_chars = max(self._repeats * self._longest, self._chars + shorter)
        self.step_chars = min(self._chars // 4, max(_STEP_CHARS, self.window_chars // _STEPS_PER_WINDOW))

    def find(self, text: str, here: int) -> Loop | None:
        """A loop that came to be complete within the step behind `here`, None if there is none.

        `text` holds the step behind `here`, and in front of it `window_chars` or all there is. A loop that came to be
        complete earlier must have been found earlier.
        """
        for period in self._candidates(text, here):
            if period <= self._longest and self._loops(text, here, period):
                return Loop(period, self._copies(period))
        return None

    def _copies(self, period: int) -> int:
        return max(self._repeats, -(-self._chars // period))

    def _loops(self, text: str, here: int, period: int) -> bool:
        agreement = period * (self._copies(period) - 1)
        sure = here - (agreement - self.step_chars)
        if sure < period or text[sure:here] != text[sure - period : here - period]:
            return False
        start = here - (agreement - _agreeing_after(text, here, period, self.step_chars))
        return start >= period and text[start:sure] == text[start - period : sure - period]

    def _candidates(self, text: str, here: int) -> Iterator[int]:
        """The periods that a loop may have, the shortest of those that loop among them."""
        step = self.step_chars
        needle = text[here - step : here]
        first = max(here - step - self._longest, 0)
        found = text.rfind(needle, first, here - 1)
        if found < 0:
            return
        own = _own_period(needle)
        if own is None:  # then it recurs at most once in half a step
            while found >= 0:
                yield here - step - found
                found = text.rfind(needle, first, found + step - 1)
            return
        yield own
        # The needle lies in a run of `own`, from `start` to `stop`. What loops with another period p has two periods
        # where it covers that run, so it covers less than p + own of it (Fine and Wilf, Proc. AMS 16, 1965), and a run
        # p before has its beginning or its end where this one has: two candidates for each earlier run, which share
        # less than `own` characters.
        start, stop = self._run(text, here - step, own, step)
        end = start + own - 1
        while (found := text.rfind(needle, first, end)) >= 0:
            earlier_start, earlier_stop = self._run(text, found, own, own)
            periods = {start - earlier_start, stop - earlier_stop}
            # A loop of only two passages can be too short for that: the first in one run, the second in the next.
            longest = min(earlier_stop - earlier_start, stop - start)
            if earlier_stop >= start and self._copies(longest) == 2:
                periods.update(range(here - step - found, longest + 1, own))
            yield from sorted(periods)
            end = earlier_start + own - 1

    def _run(self, text: str, at: int, period: int, most: int) -> tuple[int, int]:
        """Where the run of `period` that holds the needle at `at` begins and ends, `most` behind it at the latest."""
        longest = period * self._copies(period)  # a longer one is a loop
        stop = at + self.step_chars
        start = at - _agreeing_before(text, at, period, min(at, longest))
        return start, stop + _agreeing_after(text, stop, period, most)


def _agreeing_after(text: str, at: int, period: int, most: int) -> int:
    """How many characters from `at` on, `most` at most, are the same as those `period` before them."""
    return bisect_left(range(1, most + 1), True, key=lambda n: text[at : at + n] != text[at - period : at - period + n])


def _agreeing_before(text: str, at: int, period: int, most: int) -> int:
    """How many characters up to `at`, `most` at most, are the same as those `period` after them."""
    return bisect_left(range(1, most + 1), True, key=lambda n: text[at - n : at] != text[at - n + period : at + period])


def _own_period(needle: str) -> int | None:
    """The period of `needle`, if it is at most half as long; None else."""
    half = len(needle) // 2
    period = needle.find(needle[: len(needle) - half], 1)
    return period if period > 0 and needle[period:] == needle[:-period] else None


class Tail:
    """The end of one text that grows. Memory: `window_chars`, two steps and the last piece."""

    __slots__ = ("_here", "_search", "missing_chars", "pieces")

    def __init__(self, search: LoopSearch) -> None:
        self._search = search
        self._here = search.step_chars
        self.pieces: list[str] = []
        """What is held: what the last look left, and what came since."""
        self.missing_chars = 2 * search.step_chars
        """Until the next look."""

    def add(self, piece: str) -> Loop | None:
        """Append a piece that is not empty; a loop, if one is found.

        That is when the text has grown by a step after the loop came to be complete, at the latest. What is found
        depends on the text and not on where the pieces are cut.
        """
        self.pieces.append(piece)
        self.missing_chars -= len(piece)
        return None if self.missing_chars > 0 else self.look()

    def look(self) -> Loop | None:
        """Search what came since the last look, as far as it makes whole steps; then forget what is too old."""
        search, here = self._search, self._here
        text = "".join(self.pieces)
        while here + search.step_chars <= len(text):
            if (loop := search.find(text, here)) is not None:
                return loop
            here += search.step_chars
        start = max(here - search.window_chars, 0)
        self.pieces[:] = [text[start:]]
        self._here = here - start
        self.missing_chars = here + search.step_chars - len(text)
        return None


class _Text(Tail):
    """One text of an attempt: a channel of a choice, or the arguments of a tool call."""

    __slots__ = ("attempt", "channel", "choice", "chunk_index", "request_id")

    def __init__(self, search: LoopSearch, request_id: str, attempt: int, channel: str | int, choice: int) -> None:
        super().__init__(search)
        self.request_id = request_id
        self.attempt = attempt
        self.channel = channel
        """The index of the call, where it is arguments."""
        self.choice = choice
        self.chunk_index = 0
        """Of its latest token; 0 for arguments."""


def _as_it_is(error: Exception) -> Exception:
    return error


class LoopDetector(Machine[SamplingEvent, SamplingEvent]):
    """The same events, until a text repeats itself; then `DoomLoopSignals`, and the end in an error.

    Each channel of each choice is a text of its own, and so are the arguments of each tool call. The event in which the
    loop is seen still passes. The error is a retryable `SamplingError` (`doom_loop_detected`, code
    `client_repetition`), given to `enrich` before it is set. Its trigger `client_repetition:{repeats}x{period}@{where}`
    tells of the passage how long it is and never what it says; `where` is `text`, `thinking` (the reasoning), another
    channel's name, or `arguments`. `doom_loop_aborted_at_chunk` is the latest `chunk_index`, None before any token.

    Events of several requests may come interleaved: each has its own state, which goes with its terminal event or
    `Retrying`, and starts anew with another attempt. The first loop in any of them ends the whole stream. Memory: per
    text `LoopSearch.window_chars` and a little more (some 9,000 characters by default), never more than what came.
    """

    def __init__(self, policy: LoopDetection, enrich: Callable[[Exception], Exception] = _as_it_is) -> None:
        self._search = LoopSearch(policy)
        self._enrich = enrich
        self._texts: dict[str, dict[tuple[str | int, int], _Text]] = {}
        self._nothing = _Text(self._search, "", 0, "", 0)
        self._latest = self._nothing  # the text of the last token, which nearly always is the next one's too

    def feed(self, item: SamplingEvent) -> tuple[SamplingEvent, ...]:
        """The event; and the signals behind it, if it shows a loop."""
        if type(item) is ChannelToken:
            channel, piece, chunk_index = item.channel, item.text, item.chunk_index
        elif type(item) is ToolCallDelta and item.arguments_delta:
            channel, piece, chunk_index = item.tool_index, item.arguments_delta, 0
        else:
            if isinstance(item, Retrying | Completed | Failed):
                self._texts.pop(item.request_id, None)
                self._latest = self._nothing
            return (item,)
        text = self._latest
        if (
            item.request_id != text.request_id
            or channel != text.channel
            or item.attempt != text.attempt
            or item.choice != text.choice
        ):
            text = self._latest = self._text_of(item, channel)
        text.chunk_index = chunk_index
        text.pieces.append(piece)  # from here on `text.add(piece)`, without the call
        text.missing_chars -= len(piece)
        if text.missing_chars > 0 or (loop := text.look()) is None:
            return (item,)
        return (item, self._ended(item, loop, channel))

    def _text_of(self, item: ChannelToken | ToolCallDelta, channel: str | int) -> _Text:
        texts = self._texts.setdefault(item.request_id, {})
        text = texts.get((channel, item.choice))
        if text is None or text.attempt != item.attempt:
            if any(known.attempt != item.attempt for known in texts.values()):
                texts.clear()
            text = _Text(self._search, item.request_id, item.attempt, channel, item.choice)
            texts[channel, item.choice] = text
        return text

    def _ended(self, item: ChannelToken | ToolCallDelta, loop: Loop, channel: str | int) -> DoomLoopSignals:
        where = "arguments" if isinstance(channel, int) else channel
        if channel == REASONING:
            where = "thinking"  # as the labels of servers call it
        trigger = f"client_repetition:{loop.repeats}x{loop.period_chars}@{where}"
        chunk_index = max(text.chunk_index for text in self._texts[item.request_id].values())
        error = self._enrich(
            SamplingError(
                SamplingErrorInfo(
                    kind=SamplingErrorKind.DOOM_LOOP_DETECTED,
                    message=f"doom loop detected: {trigger}",
                    code="client_repetition",
                    is_retryable=True,
                    doom_loop_triggers=(trigger,),
                    doom_loop_aborted_at_chunk=chunk_index or None,
                )
            )
        )
        # Only now: whoever adds to an error takes one that has its place for finished.
        if isinstance(error, SamplingError) and error.where is None:
            error.where = ErrorStamp(request_id=item.request_id, attempt=item.attempt, ts=item.ts)
        self.done, self.error = True, error
        return DoomLoopSignals(
            request_id=item.request_id, attempt=item.attempt, ts=item.ts, turn=item.turn, triggers=(trigger,)
        )
