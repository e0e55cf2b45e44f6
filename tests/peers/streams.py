"""Running one request to its end and looking at all of its events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from rx_sampler import (
    ChannelToken,
    Completed,
    Failed,
    FirstToken,
    RetryPolicy,
    Sampler,
    SamplerConfig,
    SamplingEvent,
    SamplingRequest,
    SamplingResponse,
    StreamStarted,
)

ONCE = RetryPolicy(max_retries=0)


async def events_of(
    request: SamplingRequest | str,
    config: SamplerConfig,
    on_event: Callable[[SamplingEvent], object] | None = None,
) -> list[SamplingEvent]:
    """The events of one request, checked for what holds of every request; `on_event` sees each as it comes."""
    seen: list[SamplingEvent] = []
    ended = asyncio.get_running_loop().create_future()

    def on_next(event: SamplingEvent) -> None:
        seen.append(event)
        if on_event is not None:
            on_event(event)

    async with Sampler(config) as sampler:
        subscription = sampler.stream(request).subscribe(on_next, ended.set_exception, lambda: ended.set_result(None))
        try:
            await ended
        finally:
            subscription.dispose()
    check_order(seen)
    return seen


def check_order(events: Sequence[SamplingEvent]) -> None:
    """One terminal event, at the end; tokens numbered from 1, the first of them announced; time never goes back."""
    assert [isinstance(event, Completed | Failed) for event in events] == [False] * (len(events) - 1) + [True]
    tokens = [event for event in events if isinstance(event, ChannelToken)]
    assert [token.chunk_index for token in tokens] == list(range(1, len(tokens) + 1))
    assert all(token.text for token in tokens)
    starts = [event for event in events if isinstance(event, StreamStarted)]
    assert starts == list(events[:1]) if starts else not tokens
    firsts = [index for index, event in enumerate(events) if isinstance(event, FirstToken)]
    assert len(firsts) <= 1
    if tokens and firsts:
        assert firsts[0] < events.index(tokens[0])
    stamps = [event.ts for event in events]
    assert stamps == sorted(stamps)
    response = _response_of(events[-1])
    if response is not None:
        for channel, whole in (("text", response.text), ("reasoning", response.reasoning)):
            assert "".join(token.text for token in tokens if token.channel == channel) == whole


def _response_of(event: SamplingEvent) -> SamplingResponse | None:
    match event:
        case Completed(response=response):
            return response
        case Failed(partial=partial):
            return partial
        case _:
            return None


async def completed(request: SamplingRequest | str, config: SamplerConfig) -> Completed:
    end = (await events_of(request, config))[-1]
    assert isinstance(end, Completed), end
    return end


async def failed(
    request: SamplingRequest | str,
    config: SamplerConfig,
    on_event: Callable[[SamplingEvent], object] | None = None,
) -> Failed:
    end = (await events_of(request, config, on_event))[-1]
    assert isinstance(end, Failed), end
    return end
