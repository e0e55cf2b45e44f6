"""Repetition on our side: the rule against a naive reading of it, its cost, and what the detector makes of events."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar, Final, SupportsIndex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rx_sampler.config import LoopDetection
from rx_sampler.conversation import SamplingResponse
from rx_sampler.errors import ErrorStamp, SamplingError, SamplingErrorKind
from rx_sampler.events import (
    ChannelToken,
    Completed,
    DoomLoopSignals,
    Failed,
    FirstToken,
    Retrying,
    SamplingEvent,
    ToolCallDelta,
)
from rx_sampler.loop_detection import Loop, LoopDetector, LoopSearch, Tail
from rx_sampler.metrics import LatencyMetrics

DEFAULT: Final = LoopDetection()
SMALL: Final = LoopDetection(min_repeats=4, min_chars=16)


# -- the rule, read naively


def repeats_needed(policy: LoopDetection, period: int) -> int:
    """The fewest copies of a passage of `period` that are enough of them, and enough characters."""
    copies = policy.min_repeats
    while copies * period < policy.min_chars:
        copies += 1
    return copies


def ends_in_a_loop(text: str, policy: LoopDetection, period: int) -> bool:
    copies = repeats_needed(policy, period)
    return text.endswith(text[len(text) - period :] * copies) if copies * period <= len(text) else False


def naive_end(text: str, policy: LoopDetection) -> int | None:
    """How many characters there are when the text loops for the first time; None if it never does."""
    for end in range(policy.min_chars, len(text) + 1):
        head = text[:end]
        if any(ends_in_a_loop(head, policy, period) for period in range(1, policy.max_period_chars + 1)):
            return end
    return None


def cut(text: str, sizes: Iterable[int]) -> Iterator[str]:
    """The text in pieces of these sizes; what is left is the last piece."""
    at = 0
    for size in sizes:
        if at >= len(text):
            return
        yield text[at : at + size]
        at += size
    if at < len(text):
        yield text[at:]


def found_in(pieces: Iterable[str], policy: LoopDetection) -> tuple[int, Loop] | None:
    """How many characters there were when the loop was told, and the loop."""
    tail, seen = Tail(LoopSearch(policy)), 0
    for piece in pieces:
        loop = tail.add(piece)
        seen += len(piece)
        if loop is not None:
            return seen, loop
    return None


def one_by_one(text: str, policy: LoopDetection) -> tuple[int, Loop] | None:
    return found_in(text, policy)


letters = st.text("ab", min_size=1, max_size=9) | st.text("abc", min_size=1, max_size=9)


def out_of(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """What repeats, what nearly repeats, and repetition inside of what repeats."""

    def repeated(one: str, times: int) -> str:
        return one * times

    def joined(one: str, two: str) -> str:
        return one + two

    def repeated_with_more(one: str, two: str, times: int) -> str:
        return (one + two) * times

    def begun_late(one: str, at: int) -> str:
        return one[at % len(one) :] + one

    return (
        st.builds(repeated, inner, st.integers(2, 8))
        | st.builds(joined, inner, inner)
        | st.builds(repeated_with_more, inner, letters, st.integers(2, 5))
        | st.builds(begun_late, inner, st.integers(0, 50))
    )


def at_most(text: str) -> str:
    return text[:180]


def rows_of(passage: str, parts: list[tuple[int, int, str]]) -> str:
    return "".join((passage * 20)[skipped % len(passage) :][:chars] + between for skipped, chars, between in parts)


passages = st.recursive(letters, out_of, max_leaves=8).map(at_most)
row_after_row = st.builds(
    rows_of,
    st.text("ab", min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(3, 30), st.sampled_from(["", "a", "b", "c"])), max_size=8),
)
"""Runs of one period that differ in length and phase, as in a drawn table."""
policies = st.builds(
    LoopDetection,
    min_repeats=st.sampled_from([2, 2, 3, 4, 5, 9]),
    min_chars=st.integers(16, 48),
    max_period_chars=st.sampled_from([1, 2, 3, 5, 7, 12, 30]),
)


@settings(deadline=None, max_examples=500)
@given(passages | row_after_row, policies, st.lists(st.integers(1, 20), max_size=180))
def test_it_finds_what_a_naive_reading_finds_within_a_step_and_nothing_else(
    text: str, policy: LoopDetection, sizes: list[int]
) -> None:
    step = LoopSearch(policy).step_chars
    first = naive_end(text, policy)
    pieces = list(cut(text, sizes))
    found = found_in(pieces, policy)
    if first is None:
        assert found is None
        return
    latest = first + step - 1
    if found is None:
        assert len(text) < latest
        return
    seen, (period, repeats) = found
    assert first <= seen
    assert seen - latest < max(map(len, pieces)), "told with the piece that brings the step to its end"
    assert period <= policy.max_period_chars
    assert repeats == repeats_needed(policy, period)
    assert any(ends_in_a_loop(text[:end], policy, period) for end in range(first, seen + 1))


@settings(deadline=None, max_examples=100)
@given(passages, policies, st.lists(st.integers(1, 20), max_size=180))
def test_what_is_found_does_not_depend_on_the_cuts(text: str, policy: LoopDetection, sizes: list[int]) -> None:
    whole, cut_up, single = (found_in(pieces, policy) for pieces in ([text], cut(text, sizes), text))
    loops = [found[1] if found else None for found in (whole, cut_up, single)]
    assert loops[0] == loops[1] == loops[2]


def noise(chars: int, seed: int = 0, letters: str = "etaoin shrdlu") -> str:
    draw = random.Random(seed)
    return "".join(draw.choice(letters) for _ in range(chars))


PASSAGES: Final[dict[str, Callable[[int], str]]] = {
    "noise": lambda chars: noise(chars, seed=chars),
    "one break in a row": lambda chars: "a" * (chars - 1) + "b",
    "two breaks": lambda chars: ("a" * (chars // 2) + "b" + "a" * chars)[: chars - 1] + "c",
    "a row of pairs": lambda chars: ("xy" * chars)[: chars - 1] + "x",
    "repetition of a sentence": lambda chars: ("I will check. " * chars)[: chars - 1] + "!",
    "long words repeated": lambda chars: (noise(300, seed=1) * chars)[: chars - 1] + "!",
}
PERIODS: Final = (1, 2, 7, 100, 255, 256, 257, 300, 341, 342, 512, 513, 767, 1000, 1023, 1024, 1025, 1600, 2047, 2048)


def primitive(passage: str) -> str:
    """The passage, cut to what it repeats itself."""
    return passage[: (passage + passage).index(passage, 1)]


@pytest.mark.parametrize("kind", PASSAGES)
@pytest.mark.parametrize("period", PERIODS)
@pytest.mark.parametrize("min_repeats", [2, 3, 4, 6])
def test_whatever_the_period_it_is_found_within_a_step(kind: str, period: int, min_repeats: int) -> None:
    policy = LoopDetection(min_repeats=min_repeats)
    passage = primitive(PASSAGES[kind](period))
    copies = repeats_needed(policy, len(passage))
    before = noise(777, letters="0123456789")
    text = before + passage * copies
    # What follows is not the loop's: one that has stopped is told as well.
    text_after = text + noise(256, seed=2, letters="9876543210")
    found = one_by_one(text_after, policy)
    assert found is not None
    seen, loop = found
    assert seen <= len(text) + 255
    assert loop.repeats == repeats_needed(policy, loop.period_chars)
    assert any(ends_in_a_loop(text_after[:end], policy, loop.period_chars) for end in range(seen - 511, seen + 1))
    if kind == "noise":  # in the others, a part of two copies may be a loop by itself
        assert loop == (len(passage), copies)


@pytest.mark.parametrize("kind", PASSAGES)
@pytest.mark.parametrize("period", [1, 7, 255, 300, 513, 1000])
def test_a_repeat_less_is_no_loop(kind: str, period: int) -> None:
    passage = primitive(PASSAGES[kind](period))
    text = passage * (repeats_needed(DEFAULT, len(passage)) - 1) + passage[:-1]  # all but one character of the last
    assert one_by_one("|" + text + noise(600, letters="0123456789"), DEFAULT) is None


def test_a_passage_longer_than_the_longest_period_is_no_loop() -> None:
    assert one_by_one(noise(2049) * 6, DEFAULT) is None
    assert one_by_one(noise(2048) * 6, DEFAULT) is not None


def test_fewer_characters_than_the_policy_asks_are_no_loop() -> None:
    assert one_by_one("#" + "-" * 1023 + "+" + noise(500), DEFAULT) is None
    assert one_by_one("#" + "-" * 1024 + "+" + noise(500), DEFAULT) == (1279 + 1, (1, 1024))


def two(min_chars: int, max_period_chars: int) -> LoopDetection:
    return LoopDetection(min_repeats=2, min_chars=min_chars, max_period_chars=max_period_chars)


NARROW: Final[dict[str, tuple[LoopDetection, str]]] = {
    # a run of ab or aab in each, so that a needle recurs everywhere; only one way leads to the period
    "the last run goes on": (LoopDetection(min_repeats=3, min_chars=16), ("b" + "a" * 9) * 3 + "a" * 9),
    "runs that end alike": (two(20, 20), "abababababbabababababb"),
    "one in each of two runs": (two(16, 10), "babababababbababababab"),
    "runs that share letters": (two(40, 22), "bbabbabbbabbbbabbbabbbbabbabbbabbbbabbbabb"),
    "a needle that overlaps itself": (two(16, 22), "bbaabaabbbaabaab"),
}


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("before", range(9))
def test_where_only_one_candidate_is_right(name: str, before: int) -> None:
    policy, text = NARROW[name]
    whole = "012345678"[:before] + text + "01234567890123456789"
    first, found = naive_end(whole, policy), one_by_one(whole, policy)
    assert (found is None) is (first is None)
    if found is not None and first is not None:
        assert first <= found[0] < first + LoopSearch(policy).step_chars


@pytest.mark.parametrize("longest", [262, 270, 2048])
def test_two_copies_that_are_both_a_row(longest: int) -> None:
    # abab...a abab...a: rows of 401 and 301, and only what lies across their border repeats, with any odd period.
    policy = LoopDetection(min_repeats=2, min_chars=512, max_period_chars=longest)
    text = "." + "ab" * 200 + "a" + "ab" * 150 + "a" + "." * 128
    found = one_by_one(text, policy)
    assert found is not None
    period = found[1].period_chars
    assert period % 2 == 1
    assert any(ends_in_a_loop(text[:end], policy, period) for end in range(len(text)))
    assert one_by_one(text, policy.model_copy(update={"max_period_chars": 256})) is None


RULES: Final = {
    "markdown rules": "\n".join(f"Chapter {n}\n{'-' * 80}\n{noise(60, seed=n)}" for n in range(60)),
    "a wide table": "".join(f"| {n:4d} | {noise(9, seed=n)} |{'-' * 200}|\n" for n in range(40)),
    "an empty table": "| a | b | c |\n|---|---|---|\n" + "|   |   |   |\n" * 73,
    "indentation": "".join(f"{' ' * (n % 9 * 8)}if x{n}:\n" for n in range(400)),
    "counting": "".join(f"{n}. the next item of the list\n" for n in range(300)),
    "a poem's refrain": "".join(noise(200, seed=n) + "and so it goes, and so it goes\n" for n in range(40)),
    "white space": "{" + " " * 1000 + '"a": 1' + " " * 1000 + "}",
    "three paragraphs alike": noise(900) * 3 + noise(900, seed=1),
}


@pytest.mark.parametrize("name", RULES)
def test_what_answers_hold_without_looping(name: str) -> None:
    text = RULES[name]
    assert len(text) > 1024
    assert one_by_one(text, DEFAULT) is None


def test_a_loop_of_many_scripts_is_found() -> None:
    found = one_by_one("Hm. " + "だから、もう一度考える。🙂 " * 100, DEFAULT)
    assert found is not None
    assert found[1] == (14, 74)


# -- what it costs


class Counted(str):
    """Text that counts how many characters are looked at; a search counts as the width that it goes over."""

    looked_at: ClassVar[int] = 0
    __slots__ = ()
    __hash__ = str.__hash__

    def __getitem__(self, key: SupportsIndex | slice) -> Counted:
        return Counted(super().__getitem__(key))

    def __eq__(self, other: object) -> bool:
        Counted.looked_at += len(self)
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        Counted.looked_at += len(self)
        return super().__ne__(other)

    def find(self, sub: str, start: SupportsIndex | None = None, end: SupportsIndex | None = None, /) -> int:
        Counted.looked_at += len(self[start:end])
        return super().find(sub, start, end)

    def rfind(self, sub: str, start: SupportsIndex | None = None, end: SupportsIndex | None = None, /) -> int:
        Counted.looked_at += len(self[start:end])
        return super().rfind(sub, start, end)


def looked_at(policy: LoopDetection, text: str) -> int:
    """How many characters a search of a text that does not loop looks at."""
    search, counted = LoopSearch(policy), Counted(text)
    Counted.looked_at = 0
    for here in range(search.step_chars, len(text) - search.step_chars + 1, search.step_chars):
        assert search.find(counted, here) is None
    return Counted.looked_at


def fibonacci(chars: int) -> str:
    """Its repetitions are of fewer than four copies (Mignosi and Pirillo, 1992: at most 2 + the golden ratio)."""
    one, two = "b", "a"
    while len(two) < chars:
        one, two = two, two + one
    return two[:chars]


def thue_morse(chars: int) -> str:
    """Full of squares, without one cube (Thue, 1912)."""
    return "".join("ab"[n.bit_count() % 2] for n in range(chars))


def square_free(chars: int) -> str:
    """Three letters, nothing twice in a row: how many a's stand between the b's of Thue and Morse."""
    return "".join(str(len(part)) for part in thue_morse(chars * 3).split("b")[1:])[:chars]


def rows(chars: int, longest: int, letters: str = "a", breaks: str = "xyz") -> str:
    """Rows of one letter, or of several in turn, as long as may be, with breaks at places that do not repeat."""
    draw = random.Random(7)
    parts: list[str] = []
    size = 0
    while size < chars:
        row = (letters * longest)[: draw.randint(longest // 2, longest)]
        parts += [row, draw.choice(breaks)]
        size += len(row) + 1
    return "".join(parts)[:chars]


def nearly(chars: int) -> str:
    """One paragraph over and over, with another letter somewhere in every third."""
    draw = random.Random(7)
    paragraph = noise(700)
    parts: list[str] = []
    for n in range(chars // 700 + 1):
        at = draw.randrange(700)
        parts.append(paragraph[:at] + "#%&"[n % 3] + paragraph[at + 1 :] if n % 3 == 2 else paragraph)
    return "".join(parts)[:chars]


MANY_SIGNS: Final = "".join(map(chr, range(0x4E00, 0x8000)))
HARD: Final[dict[str, tuple[LoopDetection, Callable[[int], str]]]] = {
    "ordinary text": (DEFAULT, noise),
    "Fibonacci words": (DEFAULT, fibonacci),
    "Thue and Morse's word": (LoopDetection(min_repeats=3), thue_morse),
    "no squares": (LoopDetection(min_repeats=2), square_free),
    "rows of one letter": (DEFAULT, lambda chars: rows(chars, 1000)),
    "rows of two letters": (DEFAULT, lambda chars: rows(chars, 1000, "ab")),
    "rows of many letters": (DEFAULT, lambda chars: rows(chars, 1000, "abcdefghijklmnopqrstuvw")),
    "short rows": (DEFAULT, lambda chars: rows(chars, 300)),
    "rows, two repeats": (LoopDetection(min_repeats=2), lambda chars: rows(chars, 1000, breaks=MANY_SIGNS)),
    "a paragraph nearly the same": (DEFAULT, nearly),
}


@pytest.mark.parametrize("name", HARD)
def test_ten_times_the_text_costs_ten_times_as_much(name: str) -> None:
    policy, make = HARD[name]
    few, many = 50_000, 500_000
    text = make(many)
    assert len(text) == many
    cost = looked_at(policy, text)
    # Twelve and not ten: the first window is cheaper, since there is less to look back at.
    assert cost <= 12 * looked_at(policy, text[:few])
    assert cost <= 200 * many


def test_an_ordinary_answer_costs_one_search_a_step() -> None:
    per_step = 256 + 2048 - 1
    assert looked_at(DEFAULT, noise(200_000)) <= 200_000 / 256 * per_step


@pytest.mark.parametrize("min_chars", [16, 400, 1024, 100_000])
@pytest.mark.parametrize("max_period_chars", [1, 2048, 100_000])
@pytest.mark.parametrize("min_repeats", [2, 4, 100])
def test_the_step_is_a_part_of_what_makes_a_loop(min_chars: int, max_period_chars: int, min_repeats: int) -> None:
    policy = LoopDetection(min_repeats=min_repeats, min_chars=min_chars, max_period_chars=max_period_chars)
    search = LoopSearch(policy)
    assert 1 <= search.step_chars <= min_chars / 4
    longest_loop = max(
        period * repeats_needed(policy, period)
        for period in {*range(1, 50), max_period_chars}
        if period <= max_period_chars
    )
    assert search.window_chars >= longest_loop


def test_the_default_step() -> None:
    search = LoopSearch(DEFAULT)
    assert (search.step_chars, search.window_chars) == (256, 8192)


class Joins(LoopSearch):
    """Counts how much text it is handed, which is what was copied for it."""

    handed = 0

    def find(self, text: str, here: int) -> Loop | None:
        self.handed += len(text)
        return super().find(text, here)


def test_what_is_copied_and_kept_is_bounded() -> None:
    search, chars = Joins(DEFAULT), 100_000
    tail = Tail(search)
    text = noise(chars)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for piece in cut(text, [4] * (chars // 4)):
            tail.add(piece)
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert search.handed <= chars / 256 * (8192 + 3 * 256)
    assert held < 4 * (8192 + 3 * 256) + 20_000


# -- events


def token(
    text: str, index: int = 1, *, channel: str = "text", choice: int = 0, of: str = "r", attempt: int = 1
) -> ChannelToken:
    return ChannelToken(
        request_id=of, attempt=attempt, ts=float(index), channel=channel, text=text, chunk_index=index, choice=choice
    )


def call(arguments: str | None, tool: int = 0, *, choice: int = 0, of: str = "r", attempt: int = 1) -> ToolCallDelta:
    return ToolCallDelta(
        request_id=of, attempt=attempt, ts=9.0, tool_index=tool, arguments_delta=arguments, choice=choice
    )


def retrying(of: str = "r") -> Retrying:
    return Retrying(
        request_id=of,
        attempt=1,
        ts=1.0,
        next_attempt=2,
        retry=1,
        max_retries=2,
        budget="transport",
        error_kind=SamplingErrorKind.HTTP,
        reason="reset",
        backoff_s=1.0,
    )


def completed(of: str = "r") -> Completed:
    return Completed(request_id=of, attempt=1, ts=1.0, response=SamplingResponse(), metrics=LatencyMetrics())


def failed(of: str = "r") -> Failed:
    info = SamplingError.of(SamplingErrorKind.HTTP, "reset").info
    return Failed(request_id=of, attempt=1, ts=1.0, error=info)


def fed(detector: LoopDetector, events: Sequence[SamplingEvent]) -> list[SamplingEvent]:
    """What comes out until the detector is done."""
    out: list[SamplingEvent] = []
    for event in events:
        assert not detector.done
        out += detector.feed(event)
        if detector.done:
            break
    return out


def error_of(detector: LoopDetector) -> SamplingError:
    assert detector.done
    assert isinstance(detector.error, SamplingError)
    return detector.error


def trigger_in(events: Sequence[SamplingEvent], policy: LoopDetection = SMALL) -> str | None:
    detector = LoopDetector(policy)
    fed(detector, events)
    return error_of(detector).info.doom_loop_triggers[0] if detector.done else None


LOOPING: Final = [token("wxyz", index) for index in range(1, 9)]


def test_events_pass_until_the_signals_and_the_error() -> None:
    detector = LoopDetector(SMALL)
    events: list[SamplingEvent] = [
        FirstToken(request_id="r", attempt=1, ts=0.5, channel="text"),
        token("abcd", 1),
        *(token("wxyz", index) for index in range(2, 9)),
    ]
    out = fed(detector, events)
    trigger = "client_repetition:4x4@text"
    signals = DoomLoopSignals(request_id="r", attempt=1, ts=5.0, triggers=(trigger,))
    assert out == [*events[:6], signals]
    error = error_of(detector)
    assert error.kind is SamplingErrorKind.DOOM_LOOP_DETECTED
    assert error.info.is_retryable
    assert error.info.code == "client_repetition"
    assert error.info.message == f"doom loop detected: {trigger}"
    assert error.info.doom_loop_triggers == (trigger,)
    assert error.info.doom_loop_aborted_at_chunk == 5
    assert error.where == ErrorStamp(request_id="r", attempt=1, ts=5.0)


def test_events_that_pass_are_the_same_objects() -> None:
    detector = LoopDetector(SMALL)
    for event in (token("a"), call("{"), call(None), retrying(), completed(), failed()):
        (out,) = detector.feed(event)
        assert out is event
    assert detector.finish() == ()
    assert not detector.done


@pytest.mark.parametrize(
    ("channel", "label"), [("text", "text"), ("reasoning", "thinking"), ("refusal", "refusal"), ("novel", "novel")]
)
def test_the_label_names_the_channel_as_servers_do(channel: str, label: str) -> None:
    looping = [token("-", index, channel=channel) for index in range(1, 40)]
    assert trigger_in(looping) == f"client_repetition:16x1@{label}"


def test_arguments_of_a_tool_call_loop_too() -> None:
    detector = LoopDetector(SMALL)
    fed(detector, [call(None), *[call('{"a":')] * 20])
    error = error_of(detector)
    assert error.info.doom_loop_triggers == ("client_repetition:4x5@arguments",)
    assert error.info.doom_loop_aborted_at_chunk is None
    assert error.where == ErrorStamp(request_id="r", attempt=1, ts=9.0)


def test_a_loop_in_arguments_tells_the_latest_token_of_any_channel() -> None:
    detector = LoopDetector(SMALL)
    fed(detector, [token("hm", 3, channel="reasoning"), token("so", 4), call("{"), *[call(" ")] * 40])
    assert error_of(detector).info.doom_loop_aborted_at_chunk == 4


@pytest.mark.parametrize(
    "others",
    [
        [token("{}", channel="reasoning")],
        [token("{}", choice=1)],
        [call("{}")],
        [call("{}", 1)],
        [token("{}", of="other")],
        [token("{}", choice=1), token("{}", channel="reasoning", choice=1), call("{}", choice=1), call("{}", of="s")],
    ],
    ids=["channel", "choice", "arguments", "call", "request", "all"],
)
def test_each_text_is_looked_at_by_itself(others: list[SamplingEvent]) -> None:
    # Noise in between hides no loop, and two texts that do not loop make none together.
    between = [
        token(text, channel=one.channel, choice=one.choice, of=one.request_id)
        if isinstance(one, ChannelToken)
        else call(text, one.tool_index, choice=one.choice, of=one.request_id)
        for one, text in zip(others * 8, noise(16 * len(others)), strict=False)
        if isinstance(one, ChannelToken | ToolCallDelta)
    ]
    looping = [event for pair in zip(LOOPING, between, strict=False) for event in pair]
    assert trigger_in(looping) == "client_repetition:4x4@text"
    (first, *_) = others
    apart = [token(letter, index) for index, letter in enumerate(noise(8, letters="0123456789"))]
    assert trigger_in([event for one in apart for event in (one, first)]) in (None, trigger_in([first] * 8))


def test_two_calls_with_the_same_arguments_are_no_loop() -> None:
    arguments = '{"path": "a"}'
    assert trigger_in([call(arguments, tool) for tool in range(20)]) is None
    assert trigger_in([call(arguments, 0)] * 20) == "client_repetition:4x13@arguments"


@pytest.mark.parametrize("between", [retrying(), completed(), failed()], ids=lambda event: event.kind)
def test_state_goes_with_a_retry_and_with_the_end(between: SamplingEvent) -> None:
    half = LOOPING[:3]
    assert trigger_in([*half, *half]) is not None
    assert trigger_in([*half, between, *half]) is None
    assert trigger_in([*half, call("{"), between, *half, between, *LOOPING]) is not None


def test_the_end_of_another_request_changes_nothing() -> None:
    half = LOOPING[:3]
    for between in (retrying("s"), completed("s"), failed("s")):
        assert trigger_in([*half, between, *half]) == "client_repetition:4x4@text"


def test_a_new_attempt_starts_anew_without_being_announced() -> None:
    half = LOOPING[:3]
    again = [token("wxyz", index, attempt=2) for index in range(1, 9)]
    assert trigger_in([*half, *again[:3]]) is None
    detector = LoopDetector(SMALL)
    fed(detector, [token("so", 50, channel="reasoning"), *half, *again])
    assert error_of(detector).where == ErrorStamp(request_id="r", attempt=2, ts=4.0)
    assert error_of(detector).info.doom_loop_aborted_at_chunk == 4
    assert trigger_in([*[call("wxyz")] * 3, *[call("wxyz", attempt=2)] * 3]) is None


def test_of_interleaved_requests_the_first_that_loops_ends_the_stream() -> None:
    sane = [token(noise(4, seed=index), index, of="sane") for index in range(1, 9)]
    looping = [token("wxyz", index, of="looping") for index in range(1, 9)]
    detector = LoopDetector(SMALL)
    out = fed(detector, [event for pair in zip(sane, looping, strict=True) for event in pair])
    assert out[-1] == DoomLoopSignals(request_id="looping", attempt=1, ts=4.0, triggers=("client_repetition:4x4@text",))
    assert error_of(detector).where == ErrorStamp(request_id="looping", attempt=1, ts=4.0)
    assert error_of(detector).info.doom_loop_aborted_at_chunk == 4


def test_requests_that_ended_are_forgotten() -> None:
    detector = LoopDetector(DEFAULT)
    text = noise(4000)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(100):
            for event in (token(text, of=f"r{number}"), completed(f"r{number}")):
                detector.feed(event)
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert held < 40_000


def test_the_error_goes_through_enrich_before_it_has_its_place() -> None:
    seen: list[Exception] = []

    def enrich(error: Exception) -> Exception:
        assert isinstance(error, SamplingError)
        assert error.where is None
        seen.append(error)
        error.partial = SamplingResponse()
        error.where = ErrorStamp(request_id="mine", attempt=7, ts=70.0)
        return error

    detector = LoopDetector(SMALL, enrich)
    fed(detector, LOOPING)
    error = error_of(detector)
    assert seen == [error]
    assert error.where == ErrorStamp(request_id="mine", attempt=7, ts=70.0)


def test_enrich_may_give_another_error() -> None:
    other = LookupError("other")
    detector = LoopDetector(SMALL, lambda _error: other)
    fed(detector, LOOPING)
    assert detector.error is other


def test_nothing_of_what_the_model_said_is_in_the_error() -> None:
    detector = LoopDetector(SMALL)
    out = fed(detector, [token("\x1b[31mhunter2", index) for index in range(1, 9)])
    assert isinstance(out[-1], DoomLoopSignals)
    shown = f"{error_of(detector)!r} {error_of(detector)} {error_of(detector).info!r} {out[-1]!r}"
    assert "hunter2" not in shown
    assert "\x1b" not in shown
