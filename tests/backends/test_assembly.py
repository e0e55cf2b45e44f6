"""What the transforms of all backends share: numbering, stamps, halves of characters, slots, metrics, ends."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rx_sampler import (
    ChannelToken,
    Completed,
    DoomLoopSignals,
    FirstToken,
    ModelMetadata,
    ReasoningItem,
    RefusalItem,
    ResponseStarted,
    SamplingError,
    SamplingErrorKind,
    SamplingEvent,
    SamplingResponse,
    StreamStarted,
    TextItem,
    ToolCallDelta,
    Usage,
)
from rx_sampler.backends.assembly import Context, MalformedChunk, ToolSlot, Transform, stop_with_calls
from rx_sampler.conversation import JsonObject, StopReason
from rx_sampler.wire.idle import Pulse

from .laws import check_numbering
from .streams import kinds, tokens, tool_deltas


class Plain(Transform[JsonObject]):
    """The smallest transform: channels of text per choice, and tool slots."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.sinks: dict[int, dict[str, list[str]]] = {}
        self.usage: Usage | None = None

    def say(self, channel: str, text: str, choice: int = 0) -> list[SamplingEvent]:
        out: list[SamplingEvent] = []
        sinks = self.sinks.setdefault(choice, {"text": [], "reasoning": [], "refusal": []})
        if channel == "text":
            self.text(out, sinks, text, choice)
        else:
            self.token(out, sinks[channel], channel, text, choice)
        return out

    def call(self, slot: ToolSlot, fragment: str) -> list[SamplingEvent]:
        out: list[SamplingEvent] = []
        self.tool_delta(out, slot, fragment)
        return out

    def begin(self, *, arguments: str = "", choice: int = 0) -> tuple[ToolSlot, list[SamplingEvent]]:
        out: list[SamplingEvent] = []
        slot = self.new_slot(choice, id="c", name="f")
        self.open_tool(out, slot, id="c", name="f", arguments=arguments)
        return slot, out

    def response(self, *, cut: bool) -> SamplingResponse:
        sinks = self.sinks.get(0, {"text": [], "reasoning": [], "refusal": []})
        reasoning, text, refusal = ("".join(sinks[name]) for name in ("reasoning", "text", "refusal"))
        items = (ReasoningItem(text=reasoning), TextItem(text=text), RefusalItem(text=refusal))
        return SamplingResponse(items=(*items, *(slot.call(cut=cut) for slot in self.slots())), usage=self.usage)


def plain(now: float = 0.0, **context: Any) -> Plain:
    return Plain(Context(request_id="r-1", pulse=Pulse(now), **context))


# -- numbering and stamps


def test_chunks_count_from_1_over_channels_and_choices() -> None:
    transform = plain()
    events = transform.say("reasoning", "a") + transform.say("text", "b", 1) + transform.say("text", "c")
    numbered = [(e.chunk_index, e.channel, e.choice, e.text) for e in events if isinstance(e, ChannelToken)]
    assert numbered == [(1, "reasoning", 0, "a"), (2, "text", 1, "b"), (3, "text", 0, "c")]
    check_numbering(events)


def test_nothing_said_is_no_event() -> None:
    transform = plain()
    assert transform.say("text", "") == []
    assert transform.say("reasoning", "") == []
    slot, _ = transform.begin()
    assert transform.call(slot, "") == []
    assert [type(event) for event in transform.say("text", "x")] == [FirstToken, ChannelToken]
    assert [type(event) for event in transform.say("text", "x")] == [ChannelToken]


def test_events_carry_the_pulse_of_their_bytes() -> None:
    transform = plain(10.0, attempt=3)
    transform.pulse.now = 11.0
    opening = transform.opening({"context_window": 8192})
    transform.pulse.now = 12.5
    said = transform.say("text", "x")
    transform.pulse.now = 13.0
    slot, opened = transform.begin()
    more = transform.call(slot, "{}")
    events = [*opening, *said, *opened, *more, *transform.complete()]
    assert [event.ts for event in events] == [11.0, 11.0, 12.5, 12.5, 13.0, 13.0, 13.0]
    assert {(event.request_id, event.attempt) for event in events} == {("r-1", 3)}


def test_the_opening() -> None:
    assert kinds(plain().opening({})) == ["stream_started"]
    started, metadata = plain().opening({"context_window": 8192, "max_completion_tokens": 4096})
    assert isinstance(started, StreamStarted)
    assert isinstance(metadata, ModelMetadata)  # B154: the second event
    assert (metadata.context_window, metadata.max_completion_tokens) == (8192, 4096)


def test_the_answer_is_named_once() -> None:
    transform = plain()
    out: list[SamplingEvent] = []
    transform.announce(out, message_id="m-1", model="toy-1")
    transform.announce(out, message_id="m-2", model="toy-2")
    assert [(e.message_id, e.model) for e in out if isinstance(e, ResponseStarted)] == [("m-1", "toy-1")]


# -- halves of characters


@pytest.mark.parametrize("channel", ["text", "reasoning", "refusal"])
@pytest.mark.parametrize(
    ("pieces", "texts"),
    [
        (["\ud83d", "\ude00"], ["😀"]),
        (["a\ud83d", "\ude00b"], ["a", "😀b"]),
        (["\ud83d\ude00"], ["😀"]),
        (["\ud83d", "x"], ["\ufffdx"]),
        (["\ud83d", "é"], ["\ufffdé"]),
        (["\ud83d", "\ud83d", "\ude00"], ["\ufffd", "😀"]),
        (["\ude00"], ["\ufffd"]),
        (["\ude00\ud83d"], ["\ufffd", "\ufffd"]),
        (["\ud83dA\ude00"], ["\ufffdA\ufffd"]),
        (["\ud83d", "", "\ude00"], ["😀"]),
        (["a", "\ud83d"], ["a", "\ufffd"]),
        (["\ufeff\ud83d", "\ude00"], ["\ufeff", "😀"]),
        (["plain"], ["plain"]),
        (["ünï"], ["ünï"]),
    ],
)
def test_halves_join_over_deltas(channel: str, pieces: list[str], texts: list[str]) -> None:
    transform = plain()
    events = [event for piece in pieces for event in transform.say(channel, piece)]
    events += transform.complete()
    assert tokens(events) == [(channel, text) for text in texts]
    response = transform.response(cut=False)
    assert {"text": response.text, "reasoning": response.reasoning, "refusal": response.refusal}[channel] == "".join(
        texts
    )


def test_halves_of_channels_and_choices_do_not_mix() -> None:
    transform = plain()
    events = [
        *transform.say("text", "\ud83d"),
        *transform.say("reasoning", "\ud83d"),
        *transform.say("text", "\ud83d", 1),
        *transform.say("text", "\ude00"),
        *transform.say("text", "\ude01", 1),
        *transform.say("reasoning", "\ude02"),
    ]
    assert [(e.channel, e.choice, e.text) for e in events if isinstance(e, ChannelToken)] == [
        ("text", 0, "😀"),
        ("text", 1, "😁"),
        ("reasoning", 0, "😂"),
    ]


def test_a_half_held_back_is_no_first_token() -> None:
    transform = plain()
    assert transform.say("text", "\ud83d") == []
    assert kinds(transform.say("text", "\ude00")) == ["first_token", "channel_token"]


@pytest.mark.parametrize(
    ("pieces", "fragments"),
    [
        (['{"a":"\ud83d', '\ude00"}'], ['{"a":"', '😀"}']),
        (["\ud83d", "\ude00"], ["😀"]),
        (["\ud83d", "x"], ["\ufffdx"]),
        (["\ude00"], ["\ufffd"]),
        (["a\ud83d"], ["a", "\ufffd"]),
    ],
)
def test_halves_join_over_fragments(pieces: list[str], fragments: list[str]) -> None:
    transform = plain()
    slot, events = transform.begin()
    events += [event for piece in pieces for event in transform.call(slot, piece)]
    events += transform.complete()
    assert [fragment for *_, fragment in tool_deltas(events)] == [None, *fragments]
    assert slot.arguments == "".join(fragments)


def test_a_half_in_the_first_fragment() -> None:
    transform = plain()
    slot, events = transform.begin(arguments='{"a":"\ud83d')
    events += transform.call(slot, '\ude00"}')
    assert [fragment for *_, fragment in tool_deltas(events)] == ['{"a":"', '😀"}']


def test_halves_of_two_calls_do_not_mix() -> None:
    transform = plain()
    (one, _), (two, _) = transform.begin(), transform.begin()
    events = transform.call(one, "\ud83d") + transform.call(two, "\ude00") + transform.call(one, "\ude00")
    assert [(event.tool_index, event.arguments_delta) for event in events if isinstance(event, ToolCallDelta)] == [
        (1, "\ufffd"),
        (0, "😀"),
    ]


@given(st.text(), st.data())
def test_any_text_cut_between_utf16_units_is_whole_again(text: str, data: st.DataObject) -> None:
    units = text.encode("utf-16-le")
    cut = data.draw(st.integers(0, len(units) // 2)) * 2
    halves = [units[:cut].decode("utf-16-le", "surrogatepass"), units[cut:].decode("utf-16-le", "surrogatepass")]
    transform = plain()
    slot, _ = transform.begin()
    for half in halves:
        transform.say("text", half)
        transform.call(slot, half)
    transform.complete()
    assert transform.response(cut=False).text == text
    assert slot.arguments == text


# -- think tags


def test_tags_are_parted_per_choice() -> None:
    transform = plain(split_think_tags=True)
    events = [
        *transform.say("text", "<thi"),
        *transform.say("text", "go", 1),
        *transform.say("text", "nk>plan</think>done"),
        *transform.say("text", "<th", 1),
        *transform.complete(),
    ]
    assert [(e.choice, e.channel, e.text) for e in events if isinstance(e, ChannelToken)] == [
        (1, "text", "go"),
        (0, "reasoning", "plan"),
        (0, "text", "done"),
        (1, "text", "<th"),
    ]


def test_half_a_character_and_half_a_tag() -> None:
    transform = plain(split_think_tags=True)
    events = [*transform.say("text", "a\ud83d"), *transform.say("text", "\ude00<thi"), *transform.complete()]
    assert "".join(text for _, text in tokens(events)) == "a😀<thi"
    assert transform.response(cut=False).text == "a😀<thi"


# -- progress


def test_what_counts_as_content() -> None:
    transform = plain()
    pulse = transform.pulse
    pulse.now = 1.0
    slot, _ = transform.begin()
    assert pulse.content_at == 1.0
    pulse.now = 2.0
    transform.call(slot, " \n\t")
    transform.call(slot, "")
    transform.say("text", "")
    assert pulse.content_at == 1.0
    transform.call(slot, " x")
    assert pulse.content_at == 2.0
    pulse.now = 3.0
    transform.say("text", " ")
    assert pulse.content_at == 3.0


def test_settling_is_told_once() -> None:
    told: list[float] = []
    transform = plain()
    transform.pulse.on_settled = lambda: told.append(transform.pulse.now)
    transform.settle(True)
    transform.settle(True)
    assert (told, transform.settled) == ([0.0], True)
    assert isinstance(transform.finish()[-1], Completed)


# -- slots


def test_slots_are_numbered_within_their_choice() -> None:
    transform = plain()
    assert [transform.new_slot(choice).index for choice in (0, 1, 0, 1, 0)] == [0, 0, 1, 1, 2]
    assert [slot.index for slot in transform.slots(1)] == [0, 1]
    assert transform.slots(7) == []


@pytest.mark.parametrize(
    ("arguments", "cut", "closed", "said", "complete"),
    [
        ('{"a":1}', False, False, '{"a":1}', True),
        ('{"a":1}', True, False, '{"a":1}', True),  # whole, whatever cut the answer
        (' {"a":1}\n', False, False, ' {"a":1}\n', True),
        ('{"a":', False, False, '{"a":', False),
        ('{"a":', True, True, '{"a":', False),
        ("", False, False, "{}", True),
        (" \n", False, False, "{}", True),
        ("", True, False, "", False),
        ("", True, True, "{}", True),
        ("[1]", False, False, "[1]", False),
        ('"x"', False, False, '"x"', False),
        ("null", False, False, "null", False),
        ('{"a":1}{"b":2}', False, False, '{"a":1}{"b":2}', False),
        ("[" * 100_000, False, False, "[" * 100_000, False),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_when_a_call_is_complete(arguments: str, cut: bool, closed: bool, said: str, complete: bool) -> None:
    slot = ToolSlot(index=0, id="c", name="f", closed=closed, fragments=list(arguments))
    call = slot.call(cut=cut)
    assert (call.arguments, call.complete) == (said, complete)


@pytest.mark.parametrize(
    ("cut", "closed", "complete"), [(False, False, True), (True, False, False), (True, True, True)]
)
def test_when_a_custom_call_is_complete(cut: bool, closed: bool, complete: bool) -> None:
    call = ToolSlot(index=0, id="c", name="f", custom=True, closed=closed, fragments=["raw"]).call(cut=cut)
    assert (call.arguments, call.complete, call.custom) == ("raw", complete, True)
    assert ToolSlot(index=0, id="c", name="f", custom=True).call(cut=False).arguments == ""


def test_a_call_without_a_name_is_not_complete() -> None:
    call = ToolSlot(index=0, fragments=["{}"]).call(cut=False)
    assert (call.id, call.name, call.complete) == ("", "", False)


@pytest.mark.parametrize(
    ("stop", "has_calls", "wanted"),
    [
        ("stop", False, "stop"),
        ("stop", True, "tool_calls"),
        ("tool_calls", True, "tool_calls"),
        ("tool_calls", False, "stop"),
        ("length", True, "length"),
        ("length", False, "length"),
        ("content_filter", True, "content_filter"),
        ("content_filter", False, "content_filter"),
    ],
)
def test_stop_with_calls(stop: StopReason, has_calls: bool, wanted: StopReason) -> None:
    assert stop_with_calls(stop, has_calls) == wanted


# -- the end


def test_a_judge_may_refuse_the_answer() -> None:
    verdict = SamplingError.of(SamplingErrorKind.EMPTY_RESPONSE, "empty")

    def judge(response: SamplingResponse) -> SamplingError | None:
        return None if response.text else verdict

    transform = plain(judge=judge)
    transform.say("reasoning", "hm")
    assert transform.complete() == []
    assert (transform.done, transform.error) == (True, verdict)
    assert verdict.partial is not None
    assert verdict.partial.reasoning == "hm"
    content = plain(judge=judge)
    content.say("text", "x")
    assert isinstance(content.complete()[-1], Completed)
    assert content.error is None


def test_an_unannounced_end() -> None:
    transform = plain()
    transform.say("text", "x")
    with pytest.raises(SamplingError) as caught:
        transform.finish()
    assert (caught.value.kind, caught.value.info.code) == (SamplingErrorKind.HTTP, "unterminated")
    assert caught.value.info.is_retryable


def test_an_unannounced_end_that_the_caller_accepts() -> None:
    transform = plain(accept_unterminated=True)
    with pytest.raises(SamplingError):
        transform.finish()
    transform.say("text", "x")
    assert isinstance(transform.finish()[-1], Completed)


def test_a_failure_is_explained_once() -> None:
    transform = plain(5.0, attempt=2)
    transform.opening({})
    transform.say("text", "half")
    transform.pulse.now = 7.0
    error = SamplingError.of(SamplingErrorKind.HTTP, "reset")
    assert transform.fail(error) is error
    assert error.partial is not None
    assert error.metrics is not None
    assert error.where is not None
    assert (error.partial.text, error.metrics.chunk_count) == ("half", 1)
    assert (error.where.request_id, error.where.attempt, error.where.ts) == ("r-1", 2, 7.0)
    other = plain()
    other.fail(error)
    assert error.where.ts == 7.0


def test_a_failure_before_anything_came_has_no_partial() -> None:
    error = SamplingError.of(SamplingErrorKind.HTTP, "reset")
    plain().fail(error)
    assert error.partial is None


def test_a_bug_is_passed_on() -> None:
    bug = RuntimeError("a bug")
    assert plain().fail(bug) is bug


def test_damage_before_anything_came_has_no_partial() -> None:
    """As after any other failure: `partial` is None if nothing streamed."""
    transform = plain()
    error = SamplingError.of(SamplingErrorKind.SERIALIZATION, "not JSON")
    transform.note_damage(MalformedChunk(error))
    transform.complete()
    assert transform.error is error
    assert error.partial is None


def test_damage_turns_the_end_into_a_failure() -> None:
    first, second = (SamplingError.of(SamplingErrorKind.SERIALIZATION, text) for text in ("first", "second"))
    transform = plain()
    transform.say("text", "x")
    transform.note_damage({})
    transform.note_damage(MalformedChunk(first))
    transform.note_damage(MalformedChunk(second))
    assert transform.complete() == []
    assert transform.error is first
    assert first.partial is not None
    assert first.partial.text == "x"


def test_signals_come_before_the_end() -> None:
    transform = plain()
    transform.doom_loop_triggers = ("low_logprob@text",)
    transform.say("text", "x")
    signals, end = transform.complete()
    assert isinstance(signals, DoomLoopSignals)
    assert signals.triggers == ("low_logprob@text",)
    assert isinstance(end, Completed)


def test_a_doom_loop_is_told_with_its_labels() -> None:
    """B016: in the words of the error, and as data."""
    transform = plain(doom_loop_threshold=64)
    transform.note_doom_loop([], {"triggers": ["tail_repetition:8@thinking", "low_logprob@response"]})
    assert isinstance(transform.error, SamplingError)
    info = transform.error.info
    assert (info.kind, info.is_retryable) == (SamplingErrorKind.DOOM_LOOP_DETECTED, True)
    assert info.message == "doom loop detected: tail_repetition:8@thinking, low_logprob@response"
    assert info.doom_loop_triggers == ("tail_repetition:8@thinking", "low_logprob@response")


# -- metrics: from given times, by hand


def timed(stamps: list[float], *, end: float, tokens_out: int | None = None, start: float = 101.0) -> Completed:
    """An answer submitted at 100 s, opened at `start`, with one text chunk at each of `stamps`."""
    transform = plain(100.0)
    transform.pulse.now = start
    transform.opening({})
    for now in stamps:
        transform.pulse.now = now
        transform.say("text", "x")
    transform.pulse.now = end
    transform.usage = None if tokens_out is None else Usage(output_tokens=tokens_out)
    event = transform.complete()[-1]
    assert isinstance(event, Completed)
    return event


def test_metrics_of_four_chunks() -> None:
    metrics = timed([102.0, 102.5, 103.5, 103.75], end=104.0, tokens_out=30).metrics
    assert metrics.time_to_stream_started_ms == 1_000.0
    assert metrics.time_to_first_token_ms == 1_000.0
    assert metrics.time_to_first_token_from_submit_ms == 2_000.0
    assert metrics.time_to_first_text_ms == 1_000.0
    assert metrics.time_to_last_byte_ms == 3_000.0
    # gaps 500, 1000, 250: sorted 250, 500, 1000
    assert metrics.inter_token_p50_ms == 500.0
    assert metrics.inter_token_p90_ms == 1_000.0
    assert metrics.inter_token_p99_ms == 1_000.0
    assert metrics.inter_token_max_ms == 1_000.0
    assert metrics.inter_token_mean_ms == pytest.approx(1_750.0 / 3)
    assert metrics.output_tokens_per_second == 15.0  # 30 tokens in the 2 s after the first
    assert (metrics.chunk_count, metrics.attempts) == (4, 1)


def test_metrics_of_ten_gaps() -> None:
    """B206: intervals 10 to 100 ms: p50 60, p99 100, max 100, mean 55."""
    stamps = [102.0]
    for gap_ms in range(10, 101, 10):
        stamps.append(stamps[-1] + gap_ms / 1e3)
    metrics = timed(stamps, end=stamps[-1]).metrics
    assert metrics.inter_token_p50_ms == pytest.approx(60.0)
    assert metrics.inter_token_p90_ms == pytest.approx(90.0)
    assert metrics.inter_token_p99_ms == pytest.approx(100.0)
    assert metrics.inter_token_max_ms == pytest.approx(100.0)
    assert metrics.inter_token_mean_ms == pytest.approx(55.0)


def test_metrics_of_one_chunk() -> None:
    """B205."""
    metrics = timed([102.0], end=102.0, tokens_out=5).metrics
    assert metrics.time_to_first_token_ms == 1_000.0
    assert metrics.chunk_count == 1
    assert (metrics.inter_token_p50_ms, metrics.inter_token_mean_ms, metrics.inter_token_max_ms) == (None, None, None)
    assert metrics.output_tokens_per_second is None  # no interval to divide by


def test_metrics_of_no_chunk() -> None:
    """B204."""
    metrics = timed([], end=103.0, tokens_out=5).metrics
    assert metrics.time_to_last_byte_ms == 2_000.0
    assert (metrics.time_to_first_token_ms, metrics.time_to_first_text_ms) == (None, None)
    assert (metrics.output_tokens_per_second, metrics.chunk_count) == (None, 0)


def test_metrics_of_reasoning_before_text() -> None:
    """B209, with the first token of any channel beside the first of the text."""
    transform = plain(100.0)
    transform.opening({})
    for now, channel in ((101.0, "reasoning"), (103.0, "text")):
        transform.pulse.now = now
        transform.say(channel, "x")
    metrics = transform.metrics(None)
    assert (metrics.time_to_first_token_ms, metrics.time_to_first_text_ms) == (1_000.0, 3_000.0)


def test_metrics_of_what_never_opened() -> None:
    metrics = plain(100.0, attempt=4).metrics(None)
    assert (metrics.time_to_stream_started_ms, metrics.time_to_last_byte_ms, metrics.attempts) == (None, None, 4)


def test_an_offset_is_the_length_of_the_text_of_choice_0() -> None:
    transform = plain()
    transform.say("reasoning", "not counted")
    transform.say("text", "four")
    transform.say("text", "other choice", 1)
    assert transform.text_chars == 4
