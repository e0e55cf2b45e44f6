"""How long tokens take: the first of an attempt, and each from the one before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from reactivex import Observable, abc

from rx_sampler.events import TEXT, ChannelToken, Completed, Failed, Retrying, SamplingEvent

from .request_times import RequestTimes

__all__ = [
    "FirstTokenLatency",
    "InterTokenLatency",
    "inter_token_latency",
    "time_to_first_text",
    "time_to_first_token",
]

_new: Any = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  # of what, unsaid
"""What `InterTokenLatency(...)` comes to, without the Python function around it: half the cost."""


class FirstTokenLatency(NamedTuple):
    """How long an attempt's first token took."""

    request_id: str
    attempt: int
    ts: float
    channel: str
    latency_ms: float
    """From the attempt's `StreamStarted`."""
    end_to_end_ms: float
    """From when the request was made (`StreamStarted.submitted_at`): earlier attempts and all waits included."""


class InterTokenLatency(NamedTuple):
    """How long a token came after the one before it."""

    request_id: str
    attempt: int
    ts: float
    chunk_index: int
    channel: str
    latency_ms: float


def time_to_first_token(
    channel: str | None = None,
) -> Callable[[Observable[SamplingEvent]], Observable[FirstTokenLatency]]:
    """How long the first token took, once per attempt, when it comes.

    With `x` and `y` for latencies of 2 and 3 ms, which end to end are 3 and 14 ms:

        source               -S-(Fa)-b-RS--(Fc)-C-|
        time_to_first_token  ---x----------y------|

    In: events of one request, or of several interleaved. Out: one `FirstTokenLatency` at the first `ChannelToken` that
    is not empty, of whatever channel, or of `channel`, and of any choice; none for an attempt without one. `latency_ms`
    counts from the attempt's `StreamStarted`, `end_to_end_ms` from `submitted_at` of that event. Where these are not
    known, as in a recording that was cut, from the first event of the attempt, and of the request. After `Retrying` it
    measures anew.

    Times are those of the events (`ts`). Synchronous, cold as its source, and as each subscription has state of its
    own; forwards the scheduler. Dispose disposes the source. Errors by `on_error`: the source's. Memory: two times per
    open request.
    """

    def operator(source: Observable[SamplingEvent]) -> Observable[FirstTokenLatency]:
        def subscribe(
            observer: abc.ObserverBase[FirstTokenLatency], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            known: dict[str, RequestTimes] = {}
            told: set[str] = set()
            push = observer.on_next

            def on_next(event: SamplingEvent) -> None:
                request_id = event.request_id
                if event.__class__ is ChannelToken and request_id in told:
                    return
                times = known.get(request_id)
                if times is None:
                    times = known[request_id] = RequestTimes(event)
                times.note(event)
                if isinstance(event, ChannelToken):
                    if event.text and (channel is None or event.channel == channel):
                        told.add(request_id)
                        push(latency(event, times))
                elif isinstance(event, Retrying):
                    told.discard(request_id)
                elif isinstance(event, Completed | Failed):
                    told.discard(request_id)
                    del known[request_id]

            return source.subscribe(on_next, observer.on_error, observer.on_completed, scheduler=scheduler)

        return Observable(subscribe)

    def latency(token: ChannelToken, times: RequestTimes) -> FirstTokenLatency:
        started_at = token.ts if times.started_at is None else times.started_at
        latency_ms = (token.ts - started_at) * 1e3
        end_to_end_ms = (token.ts - times.submitted_at) * 1e3
        return FirstTokenLatency(token.request_id, token.attempt, token.ts, token.channel, latency_ms, end_to_end_ms)

    return operator


def time_to_first_text() -> Callable[[Observable[SamplingEvent]], Observable[FirstTokenLatency]]:
    """How long the first text took, which is what a reader sees, once per attempt, when it comes.

    With `r` for a token of reasoning, and `x` for a latency of 7 ms, which end to end is 8 ms:

        source              -S-(Fr)-a-C-|
        time_to_first_text  --------x---|

    As `time_to_first_token("text")`: reasoning, refusals and tool calls are no text.
    """
    return time_to_first_token(TEXT)


def inter_token_latency(
    channel: str | None = None,
) -> Callable[[Observable[SamplingEvent]], Observable[InterTokenLatency]]:
    """The gap before each token, from the second one of an attempt on.

    With `x` for a gap of 5 ms and `y` for one of 3 ms:

        source               -S-(Fa)-b--cRS(Fd)-C-|
        inter_token_latency  --------x--y---------|

    In: events of one request, or of several interleaved. Out: an `InterTokenLatency` per `ChannelToken` but the first:
    what passed since the one before it in the same request, of any channel and choice, or, given a `channel`, among
    those of that channel only. A chunk need not be a single token. `Retrying` begins anew; its wait is no gap.

    Times are those of the events (`ts`). Synchronous, cold as its source, and as each subscription has state of its
    own; forwards the scheduler. Dispose disposes the source. Errors by `on_error`: the source's. Memory: a time per
    open request.
    """

    def operator(source: Observable[SamplingEvent]) -> Observable[InterTokenLatency]:
        def subscribe(
            observer: abc.ObserverBase[InterTokenLatency], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            latest: dict[str, float] = {}
            # Tokens of one request mostly come in runs, which need no looking up: a fifth of the cost.
            current: str | None = None
            before = 0.0
            push, new, kind = observer.on_next, _new, InterTokenLatency

            def on_next(event: SamplingEvent) -> None:
                nonlocal current, before
                if type(event) is ChannelToken:
                    if channel is not None and event.channel != channel:
                        return
                    request_id, ts = event.request_id, event.ts
                    if request_id is not current:
                        if current is not None:
                            latest[current] = before
                        current, known = request_id, latest.get(request_id)
                        if known is None:
                            before = ts
                            return
                        before = known
                    gap_ms = (ts - before) * 1e3
                    before = ts
                    push(new(kind, (request_id, event.attempt, ts, event.chunk_index, event.channel, gap_ms)))
                elif isinstance(event, Retrying | Completed | Failed):
                    latest.pop(event.request_id, None)
                    if event.request_id == current:
                        current = None

            return source.subscribe(on_next, observer.on_error, observer.on_completed, scheduler=scheduler)

        return Observable(subscribe)

    return operator
