"""Tokens that are lines, or sentences."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from reactivex import Observable

from rx_sampler.events import TEXT, SamplingEvent

from .per_request import each_request
from .rechunk import Rechunker

__all__ = ["lines", "sentences"]


def lines(channel: str = TEXT) -> Callable[[Observable[SamplingEvent]], Observable[SamplingEvent]]:
    """The same events with the tokens of a channel cut into lines: each token one whole line with its end.

    With `x` for "a\\nb", `y` for "c\\n", `z` for "d", and 1, 2, 3 for "a\\n", "bc\\n", "d":

        source  -S-(Fx)-y---z-C---|
        lines   -S-(F1)-2-----(3C)|

    In and out: events of one request, or of several interleaved, in the same order. A line ends with LF, CRLF or CR;
    the rest of a text without an end comes as it is, before whatever else comes next of the same choice (a token of
    another channel, a tool call, an annotation, the terminal event) or at the end of the source, also in an error. A CR
    waits for the next token, which may begin with its LF.

    Tokens of all channels are numbered anew from 1, `FirstToken` stands before the first that comes out, and each has
    the time of the event that completed it. Metrics and response stay as they are. `Retrying` drops what is held back.

    Synchronous, cold as its source, and as each subscription has state of its own; forwards the scheduler. Dispose
    disposes the source. Errors by `on_error`: the source's, behind what was held back. Cost: linear in the characters;
    memory: the line that is being written, per choice.
    """
    return each_request(lambda: Rechunker(channel, lambda: _Lines(channel), str.isprintable))


def sentences(channel: str = TEXT) -> Callable[[Observable[SamplingEvent]], Observable[SamplingEvent]]:
    """The same events with the tokens of a channel cut into sentences, each with the white space behind it.

    With `x` for "Yes. ", `y` for "No", `z` for "!", and 1, 2 for "Yes. ", "No!":

        source     -S-(Fx)-y------z-C---|
        sentences  -S------(F1)-----(2C)|

    The rule: a sentence ends behind . ! ? … 。 ！ ？, one or more of them, and closing quotes or
    brackets that follow at once, if white space follows; behind 。 ！ ？ it need not. It also ends at a
    blank line. The white space belongs to it, so that it is known to have ended when the next one begins. The rest
    comes as it is, before whatever else comes next, as with `lines`; so do numbering, times, `Retrying` and errors.

    It is a rule and no grammar: "Dr. Who" and "e.g. this" are cut, a heading or a list without a stop is one sentence
    with what follows up to a blank line, and neither "3.14" nor "end.Next" is cut.

    Synchronous, cold as its source, and as each subscription has state of its own; forwards the scheduler. Dispose
    disposes the source. Cost: linear in the characters; memory: the sentence that is being written, per choice.
    """
    return each_request(lambda: Rechunker(channel, lambda: _Sentences(channel), _STOPS.isdisjoint))


class _Held:
    """A piece that is being written, in the tokens it came in."""

    def __init__(self, channel: str) -> None:
        self._channel = channel
        self._tokens: list[str] = []
        self.held: list[str] | None = None

    def finish(self) -> Sequence[tuple[str, str]]:
        return (self._cut(""),) if self._tokens else ()

    def _cut(self, text: str) -> tuple[str, str]:
        """The piece that ends in `text`."""
        self._tokens.append(text)
        whole = "".join(self._tokens)
        self._tokens.clear()
        return self._channel, whole


_LINE_END: Final = re.compile(r"\r\n|\n|\r(?=.)", re.DOTALL)


class _Lines(_Held):
    """Cuts behind line ends. Looks at each character once."""

    def __init__(self, channel: str) -> None:
        super().__init__(channel)
        self.held = self._tokens

    def feed(self, text: str) -> Sequence[tuple[str, str]]:
        out: list[tuple[str, str]] = []
        start = 0
        if self.held is None:  # a CR waits
            start = 1 if text[:1] == "\n" else 0
            out.append(self._cut(text[:start]))
        while (end := _LINE_END.search(text, start)) is not None:
            out.append(self._cut(text[start : end.end()]))
            start = end.end()
        if start < len(text):
            self._tokens.append(text[start:])
        self.held = None if text[start:] and text[-1] == "\r" else self._tokens
        return out

    def finish(self) -> Sequence[tuple[str, str]]:
        self.held = self._tokens
        return super().finish()


_STOPS: Final = frozenset(".!?\u2026\u3002\uff01\uff1f\n")
"""A text without any of them ends no sentence."""
_RUN: Final = re.compile(
    "[.!?\u2026\u3002\uff01\uff1f\n]"
    "(?:(?<!\n)"
    "[.!?\u2026\u3002\uff01\uff1f\"')\\]}\u2019\u201d\u00bb\u203a\u300d\u300f\u3011\u3009\u300b\u3015\uff09\uff3d\uff5d]*)?"
    r"(\s*)"
)
"""What may end a sentence: enders, closers and white space, or white space alone. It takes all it can, so that no
character is read twice."""
_WIDE: Final = re.compile("[\u3002\uff01\uff1f]")


class _Sentences(_Held):
    """Cuts before the first character of a new sentence. Looks at each character once, whatever came before it."""

    _before = ""
    """Stands for what the sentence has been so far: a short text that goes on as it does. Empty for white space."""

    def feed(self, text: str) -> Sequence[tuple[str, str]]:
        # Most sentences end as "words." or "words. " and begin as " words". To tell that costs a third of a search.
        before = self._before
        if before == "x":
            stopped = text.rstrip()
            words = stopped.rstrip(".!?")
            if len(words) < len(stopped) and _STOPS.isdisjoint(words):
                self._tokens.append(text)
                self._before, self.held = "." if len(stopped) == len(text) else ". ", None
                return ()
        elif before[:1] == "." and _STOPS.isdisjoint(text):
            words = text.lstrip()
            if words and len(words) < len(text):
                piece = self._cut(text[: -len(words)])
                self._tokens.append(words)
                self._before, self.held = "x", self._tokens
                return (piece,)
        return self._cuts(before, text)

    def _cuts(self, before: str, text: str) -> Sequence[tuple[str, str]]:
        """The same for any text."""
        seen, known = before + text, len(before)
        before = "x" if known or text.strip() else ""
        self.held = self._tokens if before else None
        has_words = known > 0
        out: list[tuple[str, str]] = []
        start = end = 0
        while (run := _RUN.search(seen, end)) is not None:
            at = run.start()
            space_at, end = run.span(1)
            is_blank = seen[at] == "\n"
            if is_blank:
                if not has_words and not seen[:at].strip():
                    continue  # blank lines before the first sentence end none
                ends = seen.count("\n", at, end) > 1
            else:
                ends = space_at < end or not (seen.isascii() or _WIDE.search(seen, at, end) is None)
            if end == len(seen):  # what comes next tells whether it ends
                self.held = None
                before = ". " if space_at < end else "\u3002" if ends else "."
                if is_blank:
                    before = "x\n\n" if ends else "x\n"
                break
            has_words = True
            if ends:
                out.append(self._cut(text[start : end - known]))
                start = end - known
        if start < len(text):
            self._tokens.append(text[start:])
        self._before = before
        return out

    def finish(self) -> Sequence[tuple[str, str]]:
        self._before, self.held = "", None
        return super().finish()
