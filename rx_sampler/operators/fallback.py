"""Another request where one fails."""

from __future__ import annotations

from collections.abc import Callable, Collection

from reactivex import Observable, abc

from rx_sampler.events import Completed, Failed, SamplingEvent

from .commitment import brings
from .contest import Contest, has_content, helps_elsewhere

__all__ = ["fallback"]


def fallback(
    *others: Observable[SamplingEvent],
    when: Callable[[Failed], bool] | None = None,
    commit_on: Collection[str] | None = None,
) -> Callable[[Observable[SamplingEvent]], Observable[SamplingEvent]]:
    """The events of the source or, where it fails before its first content, of the first of `others` that does not.

        source    -S--X|
        other         -S-(Fx)-C|
        fallback  -------(SFx)C|

    In: streams of one request each, such as `Sampler.stream` gives. Out: the stream of one of them, unchanged, its
    `request_id` included: exactly one terminal event, then completion. What a stream says waits until it commits: at
    its first content (`FirstToken`, `ChannelToken`, `ToolCallDelta`) or `Completed`. From there on it is followed to
    its end, a failure too. One that fails before is dropped with all that it said, and the next of `others` is
    subscribed to; the failure of the last one passes. `Retrying` neither commits nor fails: a stream fails when its own
    retries are spent, so let none but the last have many.

    `when` says for which failures there is a next one: by default all but `cancelled` and `invalid_request`.
    `commit_on` names the channels whose content commits (`text`, `reasoning`, `refusal`, `tool_call`): with
    `{"text", "tool_call"}` an answer that broke off while it reasoned falls back too. Other content then waits like the
    rest, at most `MAX_HELD` events: the stream that reaches that number is followed. With no channels at all, only a
    whole answer commits.

    Cold: one stream at a time, none begins before the one before it is disposed; forwards the scheduler. Dispose
    disposes the present one. A consumer that pauses (`flow`) makes whichever runs wait. Raises ValueError at call time
    for another name in `commit_on`; what `when` raises and any stream's `on_error` (a bug) come by `on_error`. Memory:
    what is held back.
    """
    commits = has_content if commit_on is None else _content_of(commit_on)

    def operator(source: Observable[SamplingEvent]) -> Observable[SamplingEvent]:
        def subscribe(
            observer: abc.ObserverBase[SamplingEvent], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            contest = Contest((source, *others), observer, scheduler, commits=commits, moves_on=when or helps_elsewhere)
            contest.start(1)
            return contest

        return Observable(subscribe)

    return operator


def _content_of(names: Collection[str]) -> Callable[[SamplingEvent], bool]:
    """Whether an event commits: with content of one of the names, or as the whole answer."""
    brought = brings(names)
    return lambda event: brought(event) or isinstance(event, Completed)
