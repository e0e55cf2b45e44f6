"""How a stream ends: failures as errors, and answers that stay as they were shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from reactivex import Observable, abc

from rx_sampler.errors import SamplingErrorInfo
from rx_sampler.events import (
    REFUSAL,
    TEXT,
    Completed,
    Failed,
    Retrying,
    SamplingEvent,
    StreamStarted,
)
from rx_sampler.metrics import LatencyMetrics

from .commitment import TOOL_CALL, brings
from .partial_response import measured, partial_response

__all__ = ["commit_on", "unwrap"]

_TURNS: Final = frozenset({Retrying, Completed, Failed})
"""What changes more than one attempt's content."""


def unwrap() -> Callable[[Observable[SamplingEvent]], Observable[SamplingEvent]]:
    """The same events; a `Failed` ends the stream in its error instead.

        source  -S-(Fa)-X-|
        unwrap  -S-(Fa)-#

    In: events of one request, or of several interleaved, where the first failure ends the stream for all. Out: all
    events but `Failed`. `Retrying` passes like any other.

    Synchronous, cold as its source; forwards the scheduler. Dispose disposes the source, as does a failure. Errors by
    `on_error`: the `SamplingError` of the failure (`Failed.to_error()`: the rich one within the process, with `partial`
    and `metrics`), and the source's. Memory: none.
    """

    def operator(source: Observable[SamplingEvent]) -> Observable[SamplingEvent]:
        def subscribe(
            observer: abc.ObserverBase[SamplingEvent], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            push = observer.on_next

            def on_next(event: SamplingEvent) -> None:
                if type(event) is Failed:
                    observer.on_error(event.to_error())  # and that disposes the source
                else:
                    push(event)

            return source.subscribe(on_next, observer.on_error, observer.on_completed, scheduler=scheduler)

        return Observable(subscribe)

    return operator


def commit_on(
    *channels: str, cancel: Callable[[str], None] | None = None
) -> Callable[[Observable[SamplingEvent]], Observable[SamplingEvent]]:
    """The same events, but nothing that was shown is voided: a `Retrying` after content becomes the request's `Failed`.

        source     -S-R-S-(Fa)-R--S-(Fb)-C-|
        commit_on  -S-R-S-(Fa)-(X|)

    `channels` say which content commits: "text", "reasoning", "refusal", and "tool_call" for any fragment of a call;
    by default all but reasoning. Before any of it has come, in the present attempt, `Retrying` passes as usual.

    In: events of one request, or, with `cancel`, of several interleaved. Out: the events as they come, up to the
    `Failed`: its error has the kind and reason of the `Retrying`, `code="committed"`, and is retryable; `partial` is
    what had streamed, its metrics are of the attempt and come from the events' times. The stream then completes and the
    source is disposed, so that no further attempt is paid for. Where others are to go on, give `cancel=sampler.cancel`:
    it is called with the request's id instead, before `Failed` comes, and nothing more of that request passes.

    Synchronous, cold as its source, and as each subscription has state of its own; forwards the scheduler. Dispose
    disposes the source. Errors: ValueError at call time for another name; by `on_error` the source's, and what `cancel`
    raises. Memory: the events of the running attempt of each request.
    """
    commits = brings(channels or (TEXT, REFUSAL, TOOL_CALL))

    def operator(source: Observable[SamplingEvent]) -> Observable[SamplingEvent]:
        def subscribe(
            observer: abc.ObserverBase[SamplingEvent], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            commit = _Commit(commits, cancel, observer)
            return source.subscribe(commit.on_next, observer.on_error, observer.on_completed, scheduler=scheduler)

        return Observable(subscribe)

    return operator


class _Shown:
    """What one request has shown in the attempt that runs."""

    __slots__ = ("began_at", "committed", "events")

    def __init__(self, began_at: float) -> None:
        self.began_at = began_at
        """When its first event came, in whatever attempt."""
        self.events: list[SamplingEvent] = []
        self.committed = False

    def failed(self, retrying: Retrying) -> Failed:
        error = SamplingErrorInfo(
            kind=retrying.error_kind,
            message=retrying.reason,
            code="committed",
            is_retryable=True,
            doom_loop_triggers=retrying.doom_loop_triggers,
            doom_loop_aborted_at_chunk=retrying.doom_loop_aborted_at_chunk,
        )
        return Failed(
            request_id=retrying.request_id,
            attempt=retrying.attempt,
            ts=retrying.ts,
            turn=retrying.turn,
            error=error,
            partial=partial_response(self.events),
            metrics=self._metrics(retrying),
        )

    def _metrics(self, retrying: Retrying) -> LatencyMetrics:
        started = next((event for event in self.events if isinstance(event, StreamStarted)), None)
        submitted_at = started.submitted_at if started is not None else None
        return measured(
            self.events,
            submitted_at=self.began_at if submitted_at is None else submitted_at,
            # A stream that is watched from later on began with the first that was seen of it.
            started_at=started.ts if started is not None else self.events[0].ts,
            ended_at=retrying.ts,
            attempts=retrying.attempt,
        )


class _Commit:
    """What all requests have shown."""

    def __init__(
        self,
        commits: Callable[[SamplingEvent], bool],
        cancel: Callable[[str], None] | None,
        observer: abc.ObserverBase[SamplingEvent],
    ) -> None:
        self._commits = commits
        self._cancel = cancel
        self._observer = observer
        self._push = observer.on_next
        self._requests: dict[str, _Shown] = {}
        self._over: set[str] = set()

    def on_next(self, event: SamplingEvent) -> None:
        shown = self._requests.get(event.request_id)
        kind = event.__class__
        if shown is None or kind in _TURNS:
            shown = self._turned(event, shown)
            if shown is None:
                return
        if not shown.committed:
            shown.committed = self._commits(event)
        shown.events.append(event)
        self._push(event)

    def _turned(self, event: SamplingEvent, shown: _Shown | None) -> _Shown | None:
        """The request as it stands from its first event, a `Retrying` or its last on; None if nothing of it passes."""
        request_id = event.request_id
        if request_id in self._over:
            if isinstance(event, Completed | Failed):
                self._over.discard(request_id)
            return None
        if shown is None:
            shown = self._requests[request_id] = _Shown(event.ts)
        if isinstance(event, Retrying):
            if shown.committed:
                self._fail(shown, event)
                return None
            shown.events.clear()
        elif isinstance(event, Completed | Failed):
            del self._requests[request_id]
        return shown

    def _fail(self, shown: _Shown, retrying: Retrying) -> None:
        failed = shown.failed(retrying)
        del self._requests[retrying.request_id]
        if self._cancel is None:
            self._push(failed)
            self._observer.on_completed()
            return
        self._over.add(retrying.request_id)
        try:
            self._cancel(retrying.request_id)
        except Exception as error:
            self._observer.on_error(error)
            return
        self._push(failed)
