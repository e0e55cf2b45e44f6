"""Events by hand, ways to cut a text, and the laws that every legal stream keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import reactivex as rx
from reactivex import Observable

from rx_sampler.conversation import ResponseItem, SamplingResponse, TextItem, ToolCall
from rx_sampler.errors import SamplingErrorInfo, SamplingErrorKind
from rx_sampler.events import (
    ChannelToken,
    Completed,
    Failed,
    FirstToken,
    Retrying,
    SamplingEvent,
    StreamStarted,
    ToolCallDelta,
)
from rx_sampler.metrics import LatencyMetrics

T = TypeVar("T")

MOST: Final = 12.0
"""Ten times the input may cost ten times the work, and a little for the ends of lists that grow."""


def started(*, of: str = "r", attempt: int = 1, ts: float = 0.0, submitted_at: float | None = None) -> StreamStarted:
    return StreamStarted(request_id=of, attempt=attempt, ts=ts, submitted_at=submitted_at)


def first(channel: str = "text", *, of: str = "r", attempt: int = 1, ts: float = 0.0) -> FirstToken:
    return FirstToken(request_id=of, attempt=attempt, ts=ts, channel=channel)


def token(
    text: str,
    index: int,
    *,
    channel: str = "text",
    choice: int = 0,
    of: str = "r",
    attempt: int = 1,
    ts: float | None = None,
) -> ChannelToken:
    """A token; its time is its number unless told otherwise."""
    return ChannelToken(
        request_id=of,
        attempt=attempt,
        ts=float(index) if ts is None else ts,
        channel=channel,
        text=text,
        chunk_index=index,
        choice=choice,
    )


def delta(
    arguments: str | None = None,
    *,
    index: int = 0,
    id: str | None = None,  # noqa: A002  # the event's own word
    name: str | None = None,
    choice: int = 0,
    of: str = "r",
    attempt: int = 1,
    ts: float = 0.0,
) -> ToolCallDelta:
    return ToolCallDelta(
        request_id=of,
        attempt=attempt,
        ts=ts,
        tool_index=index,
        id=id,
        name=name,
        arguments_delta=arguments,
        choice=choice,
    )


def retrying(*, of: str = "r", attempt: int = 1, ts: float = 0.0) -> Retrying:
    return Retrying(
        request_id=of,
        attempt=attempt,
        ts=ts,
        next_attempt=attempt + 1,
        retry=attempt,
        max_retries=15,
        budget="transport",
        error_kind=SamplingErrorKind.HTTP,
        reason="reset",
        backoff_s=0.0,
    )


def completed(*items: ResponseItem | str, of: str = "r", attempt: int = 1, ts: float = 0.0) -> Completed:
    """The end of an answer of these items; a str is a text item."""
    whole = tuple(TextItem(text=item) if isinstance(item, str) else item for item in items)
    return Completed(
        request_id=of,
        attempt=attempt,
        ts=ts,
        response=SamplingResponse(items=whole, stop_reason="stop"),
        metrics=LatencyMetrics(chunk_count=7),
    )


def failed(*items: ResponseItem | str, of: str = "r", attempt: int = 1, ts: float = 0.0) -> Failed:
    """A failure; with items there is a partial response."""
    whole = tuple(TextItem(text=item) if isinstance(item, str) else item for item in items)
    return Failed(
        request_id=of,
        attempt=attempt,
        ts=ts,
        error=SamplingErrorInfo(kind=SamplingErrorKind.HTTP, message="broken"),
        partial=SamplingResponse(items=whole) if items else None,
    )


def call(arguments: str = "{}", *, id: str = "c", name: str = "f", **fields: Any) -> ToolCall:  # noqa: A002
    return ToolCall(id=id, name=name, arguments=arguments, **fields)


def run(operator: Callable[[Observable[SamplingEvent]], Observable[T]], events: Iterable[SamplingEvent]) -> list[T]:
    """What an operator makes of events that come at once. An error of the stream is raised."""
    out: list[T] = []
    errors: list[Exception] = []
    rx.from_iterable(events).pipe(operator).subscribe(out.append, errors.append)
    if errors:
        raise errors[0]
    return out


def answer(pieces: Sequence[str], *, channel: str = "text", of: str = "r") -> list[SamplingEvent]:
    """A whole stream of tokens of one channel."""
    tokens = [token(piece, index, channel=channel, of=of) for index, piece in enumerate(pieces, 1)]
    opening: list[SamplingEvent] = [started(of=of)]
    if tokens:
        opening.append(first(channel, of=of, ts=1.0))
    end = completed(*(["".join(pieces)] if channel == "text" and pieces else []), of=of, ts=len(pieces) + 1.0)
    return [*opening, *tokens, end]


def every_cut(text: str) -> list[list[str]]:
    """The text whole, character by character, and cut in two at every place."""
    halves = [[text[:at], text[at:]] for at in range(1, len(text))]
    return [[text], list(text), *halves]


def texts(events: Iterable[object], channel: str = "text", choice: int = 0) -> list[str]:
    """The tokens of a channel."""
    tokens = [event for event in events if isinstance(event, ChannelToken)]
    return [one.text for one in tokens if (one.channel, one.choice) == (channel, choice)]


def check_legal(events: Sequence[SamplingEvent]) -> None:
    """Tokens are numbered from 1 in each attempt, `FirstToken` stands before the first, time never goes back."""
    for request_id in {event.request_id for event in events}:
        count, ts, last = 0, float("-inf"), None
        for event in events:
            if event.request_id != request_id:
                continue
            assert event.ts >= ts
            ts = event.ts
            if isinstance(event, ChannelToken):
                assert event.text
                assert event.chunk_index == count + 1
                assert isinstance(last, FirstToken) == (count == 0)
                if isinstance(last, FirstToken):
                    assert last.channel == event.channel
                count += 1
            else:
                assert not isinstance(last, FirstToken)
            if isinstance(event, Retrying):
                count = 0
            last = event
        assert not isinstance(last, FirstToken)
