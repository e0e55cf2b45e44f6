"""A request's history: verbatim while it is short, joined beyond, the same text always, and linear."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rx_sampler import ChannelToken, FirstToken, SamplingEvent, ToolCallDelta
from rx_sampler.replay import VERBATIM, History


def token(index: int, channel: str = "text", choice: int = 0, attempt: int = 1) -> ChannelToken:
    return ChannelToken(
        request_id="r", attempt=attempt, ts=index, channel=channel, text=f"{index} ", chunk_index=index, choice=choice
    )


def arguments(index: int, tool_index: int = 0) -> ToolCallDelta:
    return ToolCallDelta(request_id="r", attempt=1, ts=index, tool_index=tool_index, arguments_delta=f"{index},")


def kept(events: list[SamplingEvent]) -> list[SamplingEvent]:
    history = History()
    for event in events:
        history.append(event)
    return list(history)


def test_a_short_history_is_what_came() -> None:
    events: list[SamplingEvent] = [token(index) for index in range(1, VERBATIM)]
    assert kept(events) == events


def test_a_long_one_joins_runs_of_tokens() -> None:
    count = 3 * VERBATIM
    found = kept([token(index) for index in range(1, count + 1)])
    assert len(found) <= VERBATIM
    texts = [event.text for event in found if isinstance(event, ChannelToken)]
    assert "".join(texts) == "".join(f"{index} " for index in range(1, count + 1))
    first = found[0]
    assert isinstance(first, ChannelToken)
    assert first.chunk_index == first.ts == texts[0].count(" ")  # those of the last piece in it


def test_channels_choices_attempts_and_calls_are_not_mixed() -> None:
    pattern: list[SamplingEvent] = [
        token(1),
        token(2, "reasoning"),
        token(3, choice=1),
        token(4, attempt=2),
        FirstToken(request_id="r", attempt=1, ts=5, channel="text"),
        arguments(6),
        arguments(7, tool_index=1),
        ToolCallDelta(request_id="r", attempt=1, ts=8, tool_index=1, id="c", name="f"),
    ]
    events = pattern * VERBATIM
    assert kept(events) == events  # no two neighbours belong together


def test_arguments_are_joined_as_text_is() -> None:
    found = kept([arguments(index) for index in range(2 * VERBATIM)])
    joined = "".join(event.arguments_delta or "" for event in found if isinstance(event, ToolCallDelta))
    assert joined == "".join(f"{index}," for index in range(2 * VERBATIM))
    assert len(found) <= VERBATIM


@given(st.lists(st.tuples(st.sampled_from(["text", "reasoning"]), st.integers(0, 1)), max_size=200), st.integers(1, 15))
def test_the_text_of_each_channel_is_whole_and_in_order(kinds: list[tuple[str, int]], times: int) -> None:
    events = [token(index, channel, choice) for index, (channel, choice) in enumerate(kinds * times)]
    found = [event for event in kept(list(events)) if isinstance(event, ChannelToken)]
    for channel in ("text", "reasoning"):
        for choice in (0, 1):
            assert [
                "".join(event.text for event in some if (event.channel, event.choice) == (channel, choice))
                for some in (events, found)
            ].count("".join(e.text for e in events if (e.channel, e.choice) == (channel, choice))) == 2
