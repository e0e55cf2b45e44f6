"""`unwrap` and `commit_on`: how streams end, and what is never taken back."""

from __future__ import annotations

from typing import Any

import pytest
import reactivex as rx
from reactivex.subject import Subject
from reactivex.testing import ReactiveTest, TestScheduler

from rx_sampler.conversation import ReasoningItem, SamplingResponse, TextItem
from rx_sampler.errors import SamplingError, SamplingErrorInfo, SamplingErrorKind
from rx_sampler.events import Completed, Failed, SamplingEvent
from rx_sampler.metrics import LatencyMetrics
from rx_sampler.operators.outcome import commit_on, unwrap

from .assembling import call, completed, delta, failed, first, retrying, run, started, token

on_next: Any = ReactiveTest.on_next

# -- unwrap


def ends(*events: SamplingEvent) -> tuple[list[SamplingEvent], list[Exception], int]:
    """The events, the errors and how often it completed."""
    seen: list[SamplingEvent] = []
    errors: list[Exception] = []
    completions: list[None] = []
    source = rx.from_iterable(events).pipe(unwrap())
    source.subscribe(seen.append, errors.append, lambda: completions.append(None))
    return seen, errors, len(completions)


def test_a_failure_becomes_the_rich_error() -> None:
    rich = SamplingError.of(SamplingErrorKind.API, "no")
    partial = SamplingResponse(items=(TextItem(text="a"),))
    failure = Failed(request_id="r", attempt=1, ts=1.0, error=rich.info, partial=partial, exception=rich)
    seen, errors, completions = ends(started(), token("a", 1), failure)
    assert seen == [started(), token("a", 1)]
    assert errors == [rich]
    assert rich.partial == partial
    assert completions == 0


def test_a_failure_that_came_from_json_is_rebuilt() -> None:
    _, (error,), _ = ends(failed())
    assert isinstance(error, SamplingError)
    assert error.info == failed().error


def test_all_else_passes() -> None:
    events = [started(), retrying(), token("a", 1, attempt=2), completed("a", attempt=2)]
    assert ends(*events) == (events, [], 1)


def test_the_first_failure_of_many_requests_ends_it_for_all_and_leaves_the_source() -> None:
    source: Subject[SamplingEvent] = Subject()
    seen: list[SamplingEvent] = []
    errors: list[Exception] = []
    source.pipe(unwrap()).subscribe(seen.append, errors.append)
    for event in (token("a", 1), token("x", 1, of="s"), failed(of="s"), token("b", 2)):
        source.on_next(event)
    assert seen == [token("a", 1), token("x", 1, of="s")]
    assert len(errors) == 1
    assert not source.observers


# -- commit_on


def committed(*events: SamplingEvent, operator: Any = None) -> list[SamplingEvent]:
    return run(operator or commit_on(), events)


def test_a_retry_before_content_passes() -> None:
    events = [
        started(),
        token("hm", 1, channel="reasoning"),
        retrying(),
        started(attempt=2),
        token("a", 1, attempt=2),
        completed("a", attempt=2),
    ]
    assert committed(*events) == events


def test_a_retry_after_content_is_the_failure() -> None:
    begun = [
        started(ts=10.0, submitted_at=8.0),
        first("reasoning", ts=10.5),
        token("hm", 1, channel="reasoning", ts=10.5),
        token("a", 2, ts=11.0),
        token("b", 3, ts=11.25),
    ]
    out = committed(*begun, retrying(ts=12.0), started(attempt=2), token("c", 1, attempt=2))
    assert out[:-1] == begun
    assert out[-1] == Failed(
        request_id="r",
        attempt=1,
        ts=12.0,
        error=SamplingErrorInfo(kind=SamplingErrorKind.HTTP, message="reset", code="committed", is_retryable=True),
        partial=SamplingResponse(items=(ReasoningItem(text="hm"), TextItem(text="ab"))),
        metrics=LatencyMetrics(
            time_to_stream_started_ms=2000.0,
            time_to_first_token_ms=500.0,
            time_to_first_token_from_submit_ms=2500.0,
            time_to_first_text_ms=1000.0,
            time_to_last_byte_ms=2000.0,
            inter_token_p50_ms=500.0,  # of 250 and 500: nearest rank, the upper one
            inter_token_p90_ms=500.0,
            inter_token_p99_ms=500.0,
            inter_token_max_ms=500.0,
            inter_token_mean_ms=375.0,
            chunk_count=3,
            attempts=1,
        ),
    )


def test_only_the_attempt_that_runs_counts_and_the_submit_of_the_first() -> None:
    out = committed(
        started(ts=1.0),
        token("hm", 1, channel="reasoning", ts=2.0),
        retrying(ts=3.0),
        started(attempt=2, ts=5.0),
        token("a", 1, attempt=2, ts=6.0),
        retrying(attempt=2, ts=7.0),
    )
    last = out[-1]
    assert isinstance(last, Failed)
    assert last.attempt == 2
    assert last.partial == SamplingResponse(items=(TextItem(text="a"),))
    assert (last.metrics.time_to_stream_started_ms, last.metrics.attempts) == (4000.0, 2)
    assert last.metrics.chunk_count == 1


def test_a_stream_seen_from_its_middle_on_has_metrics_from_there() -> None:
    last = committed(token("a", 1, ts=2.0), token("b", 2, ts=2.5), retrying(ts=3.0))[-1]
    assert isinstance(last, Failed)
    assert last.metrics.time_to_stream_started_ms == 0.0
    assert last.metrics.time_to_first_token_ms == 0.0
    assert last.metrics.time_to_last_byte_ms == 1000.0


CONTENT = {
    "text": token("a", 1),
    "reasoning": token("a", 1, channel="reasoning"),
    "refusal": token("a", 1, channel="refusal"),
    "tool_call": delta(id="c", name="f"),
}


@pytest.mark.parametrize(("name", "event"), CONTENT.items(), ids=CONTENT.keys())
def test_each_kind_of_content_commits_where_it_is_asked_to(name: str, event: SamplingEvent) -> None:
    others = [other for other in CONTENT if other != name]
    assert isinstance(committed(event, retrying(), operator=commit_on(name))[-1], Failed)
    assert committed(event, retrying(), operator=commit_on(*others)) == [event, retrying()]
    ends_it = name != "reasoning"
    assert isinstance(committed(event, retrying())[-1], Failed) == ends_it


def test_an_open_call_is_in_the_partial_response() -> None:
    last = committed(delta(id="c", name="f"), delta('{"a"'), retrying())[-1]
    assert isinstance(last, Failed)
    assert last.partial == SamplingResponse(items=(call('{"a"', complete=False),))


def test_the_source_is_left_and_the_stream_completes() -> None:
    clock = TestScheduler()
    messages: list[Any] = [
        on_next(210, token("a", 1)),
        on_next(220, retrying()),
        on_next(230, token("b", 1, attempt=2)),
    ]
    source: Any = clock.create_hot_observable(*messages)
    seen: Any = clock.start(lambda: source.pipe(commit_on()))
    assert [(message.time, message.value.kind) for message in seen.messages] == [(210, "N"), (220, "N"), (220, "C")]
    assert source.subscriptions == [ReactiveTest.subscribe(200, 220)]


def test_with_cancel_the_other_requests_go_on() -> None:
    cancelled: list[str] = []
    source: Subject[SamplingEvent] = Subject()
    seen: list[SamplingEvent] = []

    def cancel(request_id: str) -> None:
        # As a sampler does it: the request's own end comes at once, inside the call.
        cancelled.append(request_id)
        source.on_next(failed(of=request_id))

    source.pipe(commit_on(cancel=cancel)).subscribe(seen.append)
    for event in (token("a", 1), token("x", 1, of="s"), retrying(), token("y", 2, of="s"), completed("xy", of="s")):
        source.on_next(event)
    assert cancelled == ["r"]
    assert seen[:2] == [token("a", 1), token("x", 1, of="s")]
    assert isinstance(seen[2], Failed)
    assert (seen[2].request_id, seen[2].error.code) == ("r", "committed")
    assert seen[3:] == [token("y", 2, of="s"), completed("xy", of="s")]
    # The id is free again.
    source.on_next(token("again", 1))
    assert seen[-1] == token("again", 1)


def test_nothing_more_of_a_cancelled_request_passes_until_its_end() -> None:
    events = [
        token("a", 1),
        retrying(),
        started(attempt=2),
        token("b", 1, attempt=2),
        retrying(attempt=2),
        completed("b", attempt=2),
        token("new", 1),
    ]
    out = committed(*events, operator=commit_on(cancel=lambda _: None))
    assert [event.kind for event in out] == ["channel_token", "failed", "channel_token"]


def test_what_cancel_raises_is_an_error_of_the_stream() -> None:
    def cancel(request_id: str) -> None:
        raise LookupError(request_id)

    with pytest.raises(LookupError, match="r"):
        committed(token("a", 1), retrying(), operator=commit_on(cancel=cancel))


def test_a_terminal_event_ends_the_commitment() -> None:
    events = [token("a", 1), completed("a"), started(), retrying()]
    assert committed(*events) == events
    assert isinstance(events[1], Completed)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match="commit_on knows text, reasoning, refusal, tool_call, not 'tool_calls'"):
        commit_on("text", "tool_calls")
