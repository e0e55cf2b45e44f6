"""Event streams, by the text of the HTML standard: https://html.spec.whatwg.org/multipage/server-sent-events.html ."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import reactivex as rx
from hypothesis import example, given
from hypothesis import strategies as st
from reactivex.testing import ReactiveTest, TestScheduler

from rx_sampler.errors import SamplingError, SamplingErrorKind
from rx_sampler.testing import every_split, random_splits
from rx_sampler.wire.sse import DEFAULT_MAX_FRAME_BYTES, UNFRAMED, SseFrame, SseParser, sse_frames

Expected = list[tuple[str, str]]
M = "message"


def parsed(reads: Iterable[bytes], limit: int = DEFAULT_MAX_FRAME_BYTES) -> tuple[list[SseFrame], Exception | None]:
    """The frames, and the error that the stream ended in."""
    frames: list[SseFrame] = []
    errors: list[Exception] = []
    rx.from_iterable(reads).pipe(sse_frames(limit)).subscribe(frames.append, errors.append)
    return frames, errors[0] if errors else None


def frames_of(reads: Iterable[bytes]) -> list[SseFrame]:
    frames, error = parsed(reads)
    assert error is None
    return frames


def check(stream: bytes, expected: Expected) -> None:
    for reads in every_split(stream):
        assert [(frame.event, frame.data.decode()) for frame in frames_of(reads)] == expected, reads


SEPARATORS = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg"

# Section 9.2.5, the grammar, and 9.2.6, its interpretation: the rule stands beside each case.
RULES: list[tuple[str, bytes, Expected]] = [
    ("a blank line dispatches the event", b"data: a\n\n", [(M, "a")]),
    ("each value of data is followed by LF, the last LF goes", b"data: a\ndata: b\ndata: c\n\n", [(M, "a\nb\nc")]),
    ("the value begins after the first colon", b"data:a:b: c\n\n", [(M, "a:b: c")]),
    ("one leading space is removed from the value", b"data:  a \n\n", [(M, " a ")]),
    ("a tab is no space", b"data:\ta\n\n", [(M, "\ta")]),
    ("a line without colon is a field name with an empty value", b"data\n\n", [(M, "")]),
    ("two empty values leave one LF", b"data\ndata\n\n", [(M, "\n")]),
    ("an empty value before another", b"data:\ndata: a\n\n", [(M, "\na")]),
    ("an empty value after another", b"data: a\ndata\n\n", [(M, "a\n")]),
    ("lines end in LF, CR or CRLF", b"data: a\ndata: b\rdata: c\r\n\r\n", [(M, "a\nb\nc")]),
    ("CR CR is a line end and a blank line", b"data: a\r\rdata: b\r\r", [(M, "a"), (M, "b")]),
    ("CR CR LF is the same", b"data: a\r\r\ndata: b\n\n", [(M, "a"), (M, "b")]),
    ("LF CR too", b"data: a\n\rdata: b\n\n", [(M, "a"), (M, "b")]),
    ("CRLF LF too", b"data: a\r\n\ndata: b\n\n", [(M, "a"), (M, "b")]),
    ("a colon first makes a comment", b": data: no\n:\ndata: a\n:data: no\n\n: x\n\n", [(M, "a")]),
    ("an event field sets the type", b"event: ping\ndata: a\n\n", [("ping", "a")]),
    ("wherever it stands in the event", b"data: a\nevent: late\n\n", [("late", "a")]),
    ("the last one counts", b"event: x\nevent: y\ndata: a\n\n", [("y", "a")]),
    ("an empty type is message", b"event\ndata: a\n\nevent: x\nevent:\ndata: b\n\n", [(M, "a"), (M, "b")]),
    ("one space goes from the type too", b"event:  x\ndata: a\n\nevent:y\ndata: b\n\n", [(" x", "a"), ("y", "b")]),
    ("the type does not outlive the event", b"event: x\ndata: a\n\ndata: b\n\n", [("x", "a"), (M, "b")]),
    ("without data nothing is dispatched and the type is reset", b"event: x\n\ndata: a\n\n", [(M, "a")]),
    ("names are compared case-sensitively", b"Data: no\nDATA: no\nEVENT: no\ndata: a\n\n", [(M, "a")]),
    ("other fields are ignored", b"datax: no\n data: no\ndata : no\ndat: no\nfoo\ndata: a\n\n", [(M, "a")]),
    ("one byte order mark goes at the start", b"\xef\xbb\xbfdata: a\n\n", [(M, "a")]),
    ("only one", b"\xef\xbb\xbf\xef\xbb\xbfdata: no\ndata: a\n\n", [(M, "a")]),
    ("and only at the start", "data: \ufeffa\n\n\ufeffdata: no\n\n".encode(), [(M, "\ufeffa")]),
    ("not after a blank line", "\n\ufeffdata: no\n\n".encode(), []),
    ("other line ends of Unicode are data", f"data: {SEPARATORS}\n\n".encode(), [(M, SEPARATORS)]),
    ("UTF-8 of two, three and four bytes", "event: ß\ndata: 東🦀\n\n".encode(), [("ß", "東🦀")]),
    ("NUL is data", b"data: a\0b\n\n", [(M, "a\0b")]),
    ("a retry field changes no event", b"retry: 10\ndata: a\nretry: 1_0\nretry\n\n", [(M, "a")]),
    ("blank lines alone dispatch nothing", b"\n\r\r\n\ndata: a\n\n\n\n", [(M, "a")]),
    ("what is left at the end is discarded", b"data: a\n\ndata: b\n", [(M, "a")]),
    ("half a line as well", b"data: a\n\ndata: b", [(M, "a")]),
    ("and a type alone", b"data: a\n\nevent: x\n", [(M, "a")]),
    ("and an empty value", b"data: a\n\ndata:\n", [(M, "a")]),
    ("nothing gives nothing", b"", []),
]  # fmt: skip


@pytest.mark.parametrize(("stream", "expected"), [rule[1:] for rule in RULES], ids=[rule[0] for rule in RULES])
def test_rule(stream: bytes, expected: Expected) -> None:
    # B129, B130, B132, B135
    check(stream, expected)


# The four examples of section 9.2.6 and what the standard says they give.
EXAMPLES: list[tuple[bytes, list[tuple[str, str, str]]]] = [
    (b"data: YHOO\ndata: +2\ndata: 10\n\n", [(M, "YHOO\n+2\n10", "")]),
    (
        b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n",
        [(M, "first event", "1"), (M, "second event", "")],
    ),
    (b"data\n\ndata\ndata\n\ndata:\n", [(M, "", ""), (M, "\n", "")]),
    (b"data:test\n\ndata: test\n\n", [(M, "test", ""), (M, "test", "")]),
]


@pytest.mark.parametrize(("stream", "expected"), EXAMPLES)
def test_examples_of_the_standard(stream: bytes, expected: list[tuple[str, str, str]]) -> None:
    # B132
    for reads in every_split(stream):
        assert [(f.event, f.data.decode(), f.id) for f in frames_of(reads)] == expected, reads


# "Set the last event ID string of the event source to the value of the last event ID buffer. The buffer does not get
# reset"; an id field with NULL is ignored.
IDS: list[tuple[str, bytes, list[str]]] = [
    ("it stays until another comes", b"id: 7\ndata: a\n\ndata: b\n\nid: 8\ndata: c\n\n", ["7", "7", "8"]),
    ("it stays in named events", b"id: 7\ndata: a\n\nevent: x\ndata: b\n\n", ["7", "7"]),
    ("an event without data sets it too", b"id: 7\n\ndata: a\n\n", ["7"]),
    ("an empty one resets it", b"id: 7\ndata: a\n\nid\ndata: b\n\n", ["7", ""]),
    ("NUL in it makes it ignored", b"id: 7\ndata: a\n\nid: a\0b\ndata: b\n\n", ["7", "7"]),
    ("invalid UTF-8 in it is replaced", b"id: a\xffb\ndata: a\n\n", ["a\ufffdb"]),
]


@pytest.mark.parametrize(("stream", "ids"), [case[1:] for case in IDS], ids=[case[0] for case in IDS])
def test_last_event_id(stream: bytes, ids: list[str]) -> None:
    for reads in every_split(stream):
        assert [frame.id for frame in frames_of(reads)] == ids, reads


def test_data_is_left_undecoded_and_names_are_decoded_with_replacement() -> None:
    for reads in every_split(b"event: a\xffb\ndata: \xff\xc3\n\n"):
        assert frames_of(reads) == [SseFrame("a\ufffdb", b"\xff\xc3", "")]


def test_an_event_comes_as_soon_as_its_blank_line_does() -> None:
    parser = SseParser()
    assert list(parser.feed(b"data: a\r\n\r")) == [SseFrame(M, b"a", "")]
    assert list(parser.feed(b"\ndata: b\r")) == []
    assert list(parser.feed(b"\r")) == [SseFrame(M, b"b", "")]


# The departures that the module declares.
LAST_EVENTS: list[tuple[str, bytes, Expected]] = [
    ("complete JSON without its blank line", b'data: {"x":1}\n', [(M, '{"x":1}')]),
    ("without its line end", b'event: e\ndata: {"x":1}', [("e", '{"x":1}')]),
    ("over several lines", b'data: {"x":\ndata: 1}', [(M, '{"x":\n1}')]),
    ("ending in CR", b'data: {"x":1}\r', [(M, '{"x":1}')]),
    ("a type without its line end", b'data: {"x":1}\nevent: e', [("e", '{"x":1}')]),
    ("DONE", b"data: a\n\ndata: [DONE]", [(M, "a"), (M, "[DONE]")]),
    ("DONE with white space", b"data:  [DONE] \n", [(M, " [DONE] ")]),
    ("half a JSON object is discarded", b'data: a\n\ndata: {"x":', [(M, "a")]),
    ("half an escape too", b'data: "\\u12', []),
    ("JSON with a tail is none", b'data: {"x":1}}', []),
]


@pytest.mark.parametrize(("stream", "expected"), [c[1:] for c in LAST_EVENTS], ids=[c[0] for c in LAST_EVENTS])
def test_the_last_event_at_a_clean_end(stream: bytes, expected: Expected) -> None:
    # B135
    check(stream, expected)


def test_the_last_event_does_not_come_at_an_error_of_the_source() -> None:
    frames: list[SseFrame] = []
    errors: list[Exception] = []
    broken = OSError("reset")
    source = rx.concat(rx.of(b'data: a\n\ndata: {"x":1}'), rx.throw(broken))
    source.pipe(sse_frames()).subscribe(frames.append, errors.append)
    assert (frames, errors) == ([SseFrame(M, b"a", "")], [broken])


ERROR_FIELDS: list[tuple[str, bytes, Expected]] = [
    ("a JSON object in it is an event", b'error: {"code":400}\n\n', [("error", '{"code":400}')]),
    ("without a space, after other events", b'data: a\n\nerror:{"m":"x"}\n\n', [(M, "a"), ("error", '{"m":"x"}')]),
    ("without its blank line", b'error: {"code":400}', [("error", '{"code":400}')]),
    ("data beats it", b'error: {"code":400}\ndata: a\n\n', [(M, "a")]),
    ("it does not outlive the event", b'error: {"code":400}\ndata: a\n\n\n\n', [(M, "a")]),
    ("anything else in it is ignored", b"error: too long\n\nerror\n\nerror: [1]\n\ndata: a\n\n", [(M, "a")]),
]


@pytest.mark.parametrize(("stream", "expected"), [c[1:] for c in ERROR_FIELDS], ids=[c[0] for c in ERROR_FIELDS])
def test_the_error_field(stream: bytes, expected: Expected) -> None:
    check(stream, expected)


UNFRAMED_BODIES: list[tuple[str, bytes]] = [
    ("an object", b'{"error":{"message":"ctx full"}}'),
    ("an object over lines", b'{\n  "error":\r\n  {}\n\n}\n'),
    ("a list", b'[{"error":"x"}]'),
    ("a page", b"<!DOCTYPE html>\n<html>\n\n</html>"),
    ("half an object", b'{"error":'),
]


@pytest.mark.parametrize("body", [case[1] for case in UNFRAMED_BODIES], ids=[case[0] for case in UNFRAMED_BODIES])
def test_a_body_that_is_no_event_stream_comes_whole_at_its_end(body: bytes) -> None:
    for reads in every_split(body):
        assert frames_of(reads) == [SseFrame(UNFRAMED, body, "")], reads
    for reads in every_split(b"\xef\xbb\xbf" + body):
        assert frames_of(reads) == [SseFrame(UNFRAMED, body, "")], reads


def test_white_space_before_an_unframed_body_is_no_matter() -> None:
    for reads in every_split(b' \r\n\t{"error":"x"}'):
        (frame,) = frames_of(reads)
        assert (frame.event, frame.data.strip()) == (UNFRAMED, b'{"error":"x"}'), reads


def test_white_space_before_an_unframed_body_is_kept_or_lost_however_it_is_cut() -> None:
    body = b' \r\n\t{"error":"x"}'
    assert len({frame.data for reads in every_split(body) for frame in frames_of(reads)}) == 1


def test_events_behind_something_unframed_count() -> None:
    check(b"{junk}\n\ndata: a\n\n", [(M, "a")])


def test_plain_text_is_no_unframed_body() -> None:
    check(b"Internal Server Error", [])


def check_oversize(stream: bytes, limit: int, before: list[bytes]) -> None:
    for reads in every_split(stream):
        frames, error = parsed(reads, limit)
        assert [frame.data for frame in frames] == before, reads
        assert isinstance(error, SamplingError), reads
        info = error.info
        assert (info.kind, info.code) == (SamplingErrorKind.SERIALIZATION, "frame_too_large")
        assert not info.is_retryable
        assert f"max_frame_bytes={limit}" in info.message


def test_a_line_that_does_not_end_fails_at_the_limit_after_the_events_before_it() -> None:
    check_oversize(b"data: a\n\ndata: " + b"x" * 40, 32, [b"a"])


def test_many_lines_of_one_event_fail_at_the_limit_after_the_events_before_it() -> None:
    check_oversize(b"data: a\n\n" + b"data: xxxx\n" * 20, 32, [b"a"])


def test_an_unframed_body_fails_at_the_limit() -> None:
    check_oversize(b"{" * 40, 32, [])


def test_an_event_over_the_limit_fails_however_it_is_cut() -> None:
    check_oversize(b"data: a\n\ndata: " + b"x" * 40 + b"\n\n", 32, [b"a"])


def test_a_comment_over_the_limit_has_one_outcome_however_it_is_cut() -> None:
    stream = b"data: a\n\n:" + b"x" * 40 + b"\n\ndata: b\n\n"
    outcomes = {(len(frames), type(error)) for frames, error in (parsed(reads, 32) for reads in every_split(stream))}
    assert len(outcomes) == 1


def test_events_behind_something_unframed_lift_its_limit() -> None:
    stream = b"{\n\n" + b"data: 0123456789\n\n" * 4
    for reads in every_split(stream):
        frames, error = parsed(reads, 32)
        assert (len(frames), error) == (4, None), reads


def test_the_limit_is_for_one_event_not_for_the_stream() -> None:
    stream = (b"data: 0123456789\n\n" + b": comment\n\n" + b"data: 012\ndata: 345\n\n") * 20
    for reads in every_split(stream):
        frames, error = parsed(reads, 32)
        assert error is None
        assert len(frames) == 40


@pytest.mark.parametrize("size", [1000, 4096, 65_536])
def test_a_line_of_5_mib_in_small_reads(size: int) -> None:
    # B136
    big = b"x" * (5 * 2**20)
    stream = b"data: " + big + b"\n\ndata: [DONE]\n\n"
    reads = (stream[i : i + size] for i in range(0, len(stream), size))
    assert [frame.data for frame in frames_of(reads)] == [big, b"[DONE]"]


def test_many_names_are_read_right() -> None:
    names = [f"name-{i}" for i in range(600)]
    stream = b"".join(b"event: %b\ndata: x\n\n" % name.encode() for name in names)
    for _ in range(2):
        assert [frame.event for frame in frames_of([stream])] == names


FRAGMENTS = (
    *(b"data: ", b"data:", b"data", b"event: ", b"event:x", b"id: ", b"id", b"retry: 1", b"error: {}", b"error:", b":"),
    *(b"\n", b"\r", b"\r\n", b"\n\n", b"\xef\xbb\xbf", b"{", b"[", b"<", b"[DONE]", b'{"x":1}', b" ", b"\0"),
)
PIECES = st.lists(st.sampled_from(FRAGMENTS) | st.binary(max_size=6), max_size=24).map(b"".join)


@given(PIECES, st.integers(0, 2**32))
@example(b"", 0)
def test_any_bytes_at_any_cuts_give_the_frames_of_the_whole(stream: bytes, seed: int) -> None:
    whole, error = parsed([stream])
    assert error is None
    splits = [[stream[i : i + 1] for i in range(len(stream))], *random_splits(stream, seed, 5)]
    for reads in splits:
        assert [canonical(frame) for frame in frames_of(reads)] == [canonical(frame) for frame in whole]


def canonical(frame: SseFrame) -> SseFrame:
    # White space around an unframed body means nothing to whoever reads it.
    return frame._replace(data=frame.data.strip()) if frame.event == UNFRAMED else frame


@given(PIECES, st.integers(1, 40), st.integers(0, 2**32))
def test_any_limit_only_cuts_the_stream_short(stream: bytes, limit: int, seed: int) -> None:
    for reads in [[stream], *random_splits(stream, seed, 3)]:
        unlimited = frames_of(reads)
        frames, error = parsed(reads, limit)
        assert frames == unlimited[: len(frames)]
        if error is None:
            assert frames == unlimited
        else:
            assert isinstance(error, SamplingError)
            assert error.kind is SamplingErrorKind.SERIALIZATION


def test_empty_reads_change_nothing() -> None:
    # B129
    assert frames_of([b"", b"\xef\xbb", b"", b"\xbfdata: a\r", b"", b"\n\r\n", b""]) == [SseFrame(M, b"a", "")]


def test_a_stream_of_half_a_byte_order_mark_is_empty() -> None:
    check(b"\xef\xbb", [])


def test_the_operator_keeps_time_state_and_subscription() -> None:
    scheduler = TestScheduler()
    on_next, on_completed = ReactiveTest.on_next, ReactiveTest.on_completed
    source = scheduler.create_cold_observable(
        on_next(10, b"data: a\n"), on_next(20, b"\ndata: b\n\nda"), on_next(30, b"ta: c\n\n"), on_completed(40)
    )
    operator = sse_frames()
    seen = scheduler.start(lambda: source.pipe(operator))
    frame = SseFrame
    assert seen.messages == [
        on_next(220, frame(M, b"a", "")),
        on_next(220, frame(M, b"b", "")),
        on_next(230, frame(M, b"c", "")),
        on_completed(240),
    ]
    assert source.subscriptions == [ReactiveTest.subscribe(200, 240)]
    again: list[SseFrame] = []
    source.pipe(operator).subscribe(again.append, scheduler=scheduler)  # nothing is left over from the first
    scheduler.start()
    assert [f.data for f in again] == [b"a", b"b", b"c"]
