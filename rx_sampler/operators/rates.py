"""How fast tokens come."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from reactivex import Observable, abc

from rx_sampler.events import ChannelToken, Completed, Failed, Retrying, SamplingEvent

__all__ = ["TokenRate", "token_rate"]

MOST_TOKENS: Final = 4096
"""How many tokens of a window are remembered; of more, the newest."""

_new: Any = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  # of what, unsaid
"""What `TokenRate(...)` comes to, without the Python function around it: half the cost."""


class TokenRate(NamedTuple):
    """How fast a request's chunks come."""

    request_id: str
    attempt: int
    ts: float
    chunks_per_second: float


def token_rate(window_s: float = 1.0) -> Callable[[Observable[SamplingEvent]], Observable[TokenRate]]:
    """How many chunks a second came of late, at each token.

    With a window of 4.5 ms, and `x` and `y` for 250 and 200 chunks a second:

        source      -S-(Fa)b----c-RS(Fd)-C-|
        token_rate  -------x----y----------|

    In: events of one request, or of several interleaved, each with a rate of its own. Out: a `TokenRate` per
    `ChannelToken` of any channel and choice: how many came after a certain one, divided by the time since it. That one
    is the newest of those that came `window_s` ago or earlier, or else the attempt's first; so a pause lowers the rate,
    whatever its length. Nothing while no time has passed since then. `Retrying` begins anew.

    Times are those of the events (`ts`), in seconds. Synchronous, cold as its source, and as each subscription has
    state of its own; forwards the scheduler. Dispose disposes the source. Errors by `on_error`: the source's. Raises
    ValueError at call time for a window that is not positive and finite. Memory: the times of one window's tokens for
    each open request, at most of the 4,096 newest; a rate over these is that of a shorter time.
    """
    if not (math.isfinite(window_s) and window_s > 0):
        raise ValueError(f"window_s is {window_s}; a window is a number of seconds above 0, and finite")

    def operator(source: Observable[SamplingEvent]) -> Observable[TokenRate]:
        def subscribe(
            observer: abc.ObserverBase[TokenRate], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            windows: dict[str, deque[float]] = {}
            # Tokens of one request mostly come in runs, which need no looking up.
            current: str | None = None
            window: deque[float] = deque()
            push, new, kind = observer.on_next, _new, TokenRate

            def on_next(event: SamplingEvent) -> None:
                nonlocal current, window
                if type(event) is ChannelToken:
                    request_id, ts = event.request_id, event.ts
                    if request_id is not current:
                        current, known = request_id, windows.get(request_id)
                        if known is None:
                            window = windows[request_id] = deque((ts,), MOST_TOKENS)
                            return
                        window = known
                    window.append(ts)
                    begin = ts - window_s
                    while window[1] <= begin and len(window) > 2:  # a window may be too short for a float to tell
                        window.popleft()
                    passed_s = ts - window[0]
                    if passed_s > 0:
                        push(new(kind, (request_id, event.attempt, ts, (len(window) - 1) / passed_s)))
                elif isinstance(event, Retrying | Completed | Failed):
                    windows.pop(event.request_id, None)
                    if event.request_id == current:
                        current = None

            return source.subscribe(on_next, observer.on_error, observer.on_completed, scheduler=scheduler)

        return Observable(subscribe)

    return operator
