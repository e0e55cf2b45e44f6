"""Whole requests that are repeated, in virtual time: waits, budgets, images, doom loops, queue, deadline, cooldown."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pytest
from reactivex.abc import DisposableBase, SchedulerBase
from reactivex.testing import TestScheduler
from scripted_transport import END, SUBSCRIBED_AT, ScriptedTransport, Seen, Step, arriving, head, run, seconds
from wires import BACKENDS, answer, closing, data, named, opening, text

from rx_sampler import (
    Completed,
    DoomLoopPolicy,
    DoomLoopSignals,
    Failed,
    ImagesStripped,
    Retrying,
    RetryPolicy,
    Sampler,
    SamplerConfig,
    SamplingError,
    SamplingErrorKind,
    SamplingEvent,
    SamplingRequest,
)
from rx_sampler.wire.error_bodies import MAX_MESSAGE_CHARS
from rx_sampler.wire.transport import Connected

PIXEL: Final = "data:image/png;base64,AAAA"
TIGHT: Final = "tail_repetition:8@thinking"


def config(backend: str = "chat_completions", **fields: Any) -> SamplerConfig:
    given = {"base_url": "http://api.test/v1", "model": "m", "backend": backend, "retry": RetryPolicy(jitter=0)}
    return SamplerConfig.model_validate({**given, **fields})


def ask(
    transport: ScriptedTransport, question: str | SamplingRequest = "hi", *, drawn: float = 0.0, **fields: Any
) -> Seen:
    sampler = Sampler(config(**fields), transport=transport, random=lambda: drawn)
    return run(lambda: sampler.stream(question, request_id="r"))


def refused(status: int, body: object = None, headers: Mapping[str, str] | None = None) -> list[Step]:
    content: list[Step] = [(0, json.dumps(body).encode())] if body is not None else []
    return [(0, Connected()), (0, head(status, headers or {})), *content, (0, END)]


def unreachable() -> list[Step]:
    return [(0, SamplingError.of(SamplingErrorKind.HTTP, "nobody there", is_retryable=True))]


def at_once(frames: Sequence[bytes]) -> list[Step]:
    return arriving([b"".join(frames)], at=0, every=0)


def cut(backend: str, *words: str) -> list[Step]:
    return [*at_once([*opening(backend), *(text(backend, word) for word in words)]), (0, END)]


def told(seen: Seen) -> list[Retrying]:
    return [event for event in seen.events if isinstance(event, Retrying)]


def last(seen: Seen) -> SamplingEvent:
    assert seen.error is None
    assert [isinstance(event, Completed | Failed) for event in seen.events] == [False] * (len(seen.events) - 1) + [True]
    assert seen.completed_at == seen.timed[-1][0]
    stamps = [event.ts for event in seen.events]
    assert stamps == sorted(stamps)
    return seen.events[-1]


def completed(seen: Seen) -> Completed:
    end = last(seen)
    assert isinstance(end, Completed), end
    return end


def failed(seen: Seen) -> Failed:
    end = last(seen)
    assert isinstance(end, Failed), end
    return end


# -- the transport budget


@pytest.mark.parametrize("backend", BACKENDS)
def test_b256_a_failure_then_an_answer(backend: str) -> None:
    transport = ScriptedTransport(refused(500), at_once(answer(backend, "ok")))
    seen = ask(transport, backend=backend)
    end = completed(seen)
    assert (end.response.text, end.attempt, end.metrics.attempts) == ("ok", 2, 2)
    assert [(at, event.kind) for at, event in seen.timed if event.kind in ("retrying", "stream_started")] == [
        (0, "retrying"),
        (2, "stream_started"),
    ]
    assert {event.attempt for event in seen.events if event.kind != "retrying"} == {2}
    assert transport.requests[0].body == transport.requests[1].body


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_retry_voids_what_streamed_and_counts_chunks_anew(backend: str) -> None:
    seen = ask(ScriptedTransport(cut(backend, "a", "b"), at_once(answer(backend, "c", "d"))), backend=backend)
    indices = [(event.attempt, event.chunk_index) for event in seen.events if event.kind == "channel_token"]
    assert indices == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert [event.kind for event in seen.events].count("first_token") == 2
    assert completed(seen).response.text == "cd"


def test_a_dead_server_takes_fifteen_retries_at_their_times() -> None:
    transport = ScriptedTransport(*(unreachable() for _ in range(16)))
    seen = ask(transport)
    # 2, 4, 8, 16 s, then eleven times 30 s
    assert [at for at, _ in seen.timed] == [0, 2, 6, 14, *(30 + 30 * n for n in range(12))]
    assert (len(transport.requests), failed(seen).error.kind) == (16, "http")
    assert seen.completed_at == 360
    assert failed(seen).metrics.attempts == 16


def test_b267_after_the_first_retry_connections_are_fresh_and_stay_so() -> None:
    transport = ScriptedTransport(refused(500), refused(429), refused(500), at_once(answer("chat_completions", "ok")))
    completed(ask(transport))
    assert [request.own_connection for request in transport.requests] == [False, True, True, True]


def test_a_rate_limit_alone_keeps_the_connection() -> None:
    transport = ScriptedTransport(refused(429), at_once(answer("chat_completions", "ok")))
    completed(ask(transport))
    assert [request.own_connection for request in transport.requests] == [False, False]


def test_b257_a_rate_limit_that_stays() -> None:
    transport = ScriptedTransport(refused(429), refused(429))
    end = failed(ask(transport))
    assert (end.error.kind, end.error.status, len(transport.requests)) == ("rate_limited", 429, 2)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422, 501])
def test_b258_what_is_refused_for_good_is_asked_once(status: int) -> None:
    transport = ScriptedTransport(refused(status))
    seen = ask(transport)
    assert (failed(seen).error.status, seen.kinds, len(transport.requests)) == (status, ["failed"], 1)


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after": "Thu, 01 Jan 1970 00:03:27 GMT"}, 7),  # the clock stands at 200 s after the epoch
        ({"retry-after-ms": "soon", "retry-after": "3"}, 3),
        ({"retry-after-ms": "", "retry-after": "3"}, 3),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "-5"}, 0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:01 GMT"}, 0),
        ({"retry-after": "NaN"}, 2),
        ({"retry-after": "1e400"}, 2),
        ({"Retry-After": "4"}, 4),
    ],
)
def test_every_form_of_the_servers_wait(headers: Mapping[str, str], wait_s: float) -> None:
    # after the field case "every form of the server wait hint"; an odd wait is our own
    from multidict import CIMultiDict

    transport = ScriptedTransport(refused(429, None, CIMultiDict(headers)), at_once(answer("chat_completions", "ok")))
    seen = ask(transport)
    assert told(seen)[0].backoff_s == pytest.approx(wait_s)
    assert seen.completed_at == pytest.approx(wait_s)


def test_a_wait_that_is_too_long_is_told_rather_than_slept() -> None:
    seen = ask(ScriptedTransport(refused(429, None, {"retry-after": "3600"})))
    assert (failed(seen).error.retry_after_s, seen.completed_at) == (3600, 0)


def test_a_time_budget_against_slow_failures() -> None:
    # after the field case: attempts of 4 s, waits of 2 and 4 s, 10 s in all
    slow: list[Step] = [(0, Connected()), (4, head(500, {})), (4, END)]
    transport = ScriptedTransport(slow, slow, slow)
    seen = ask(transport, retry=RetryPolicy(jitter=0, max_retries=10, max_elapsed_s=10))
    assert [at for at, _ in seen.timed] == [4, 10]
    assert (failed(seen).error.status, len(transport.requests)) == (500, 2)


def test_b271_an_empty_answer_is_asked_again() -> None:
    transport = ScriptedTransport(at_once(answer("messages")), at_once(answer("messages", "ok")))
    seen = ask(transport, backend="messages")
    assert (told(seen)[0].error_kind, completed(seen).response.text) == ("empty_response", "ok")


@pytest.mark.parametrize("words", [(), ("I cannot ", "help")], ids=["empty", "with words"])
def test_b265_a_refusal_is_an_answer(words: Sequence[str]) -> None:
    refusal = [frame.replace(b'"end_turn"', b'"refusal"') for frame in answer("messages", *words)]
    transport = ScriptedTransport(at_once(refusal))
    seen = ask(transport, backend="messages")
    response = completed(seen).response
    assert (response.stop_reason, response.text) == ("content_filter", "".join(words))
    assert (told(seen), len(transport.requests)) == ([], 1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_b266_a_frame_that_cannot_be_read_is_not_asked_for_again(backend: str) -> None:
    name = {"chat_completions": b"", "responses": b"event: response.output_text.delta\n"}.get(
        backend, b"event: content_block_delta\n"
    )
    frames = [*opening(backend), text(backend, "so far"), name + b"data: {broken\n\n", *closing(backend, "so far")]
    transport = ScriptedTransport(at_once(frames))
    end = failed(ask(transport, backend=backend))
    assert (end.error.kind, end.error.is_retryable, len(transport.requests)) == ("serialization", False, 1)
    assert end.partial is not None
    assert end.partial.text == "so far"


@pytest.mark.parametrize("backend", BACKENDS)
def test_b228_of_two_errors_in_a_stream_the_first_is_told(backend: str) -> None:
    first = data({"type": "error", "error": {"type": "overloaded_error", "message": "first"}})
    second = data({"type": "error", "error": {"type": "invalid_request_error", "message": "second"}})
    transport = ScriptedTransport(
        at_once([*opening(backend), text(backend, "a"), first, second]), at_once(answer(backend, "ok"))
    )
    seen = ask(transport, backend=backend)
    assert (told(seen)[0].reason, told(seen)[0].error_kind) == ("first", "api")
    assert completed(seen).response.text == "ok"


def test_b269_output_forbids_a_retry_where_that_is_asked() -> None:
    policy = RetryPolicy(jitter=0, retry_only_before_output=True)
    transport = ScriptedTransport(cut("chat_completions", "Here is ", "the pl"))
    seen = ask(transport, retry=policy)
    partial = failed(seen).partial
    assert partial is not None
    assert (partial.text, told(seen), len(transport.requests)) == ("Here is the pl", [], 1)
    again = ScriptedTransport(cut("chat_completions"), at_once(answer("chat_completions", "ok")))
    assert completed(ask(again, retry=policy)).response.text == "ok"


def test_b230_b231_the_environment_says_how_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RX_SAMPLER_MAX_RETRIES", "1")
    transport = ScriptedTransport(*(unreachable() for _ in range(5)))
    seen = ask(transport)
    assert (len(transport.requests), told(seen)[0].max_retries) == (2, 1)
    never = ScriptedTransport(unreachable())
    ask(never, retry=RetryPolicy(max_retries=0))
    assert len(never.requests) == 1


def test_b272_a_spent_budget_is_told_apart_from_a_forbidden_retry() -> None:
    policy = RetryPolicy(jitter=0, max_retries=2)
    spent = failed(ask(ScriptedTransport(*[refused(500)] * 3), retry=policy))
    assert (spent.error.is_retryable, spent.metrics.attempts) == (True, 3)
    forbidden = failed(ask(ScriptedTransport(refused(500, None, {"x-should-retry": "false"})), retry=policy))
    assert (forbidden.error.is_retryable, forbidden.metrics.attempts) == (False, 1)


# -- images


def with_image(*urls: str) -> SamplingRequest:
    parts = [{"type": "text", "text": "what is this?"}, *({"type": "image", "url": url} for url in urls)]
    return SamplingRequest.model_validate({"items": [{"type": "user", "content": parts}]})


INVALID_IMAGE: Final = {"error": {"message": "cannot read it", "code": "invalid_image"}}


@pytest.mark.parametrize("backend", BACKENDS)
def test_b259_b268_a_refused_image_is_left_out_at_once(backend: str) -> None:
    transport = ScriptedTransport(refused(400, INVALID_IMAGE), at_once(answer(backend, "ok")))
    seen = ask(transport, with_image(PIXEL), backend=backend)
    assert [event.kind for event in seen.events][:3] == ["images_stripped", "retrying", "stream_started"]
    stripped, retrying = seen.events[:2]
    assert isinstance(stripped, ImagesStripped)
    assert isinstance(retrying, Retrying)
    assert (stripped.stripped_urls, stripped.reason, stripped.attempt) == ((PIXEL,), "server_rejected", 1)
    assert (retrying.backoff_s, retrying.budget) == (0, "transport")
    assert completed(seen).response.text == "ok"
    assert b"AAAA" in transport.requests[0].body
    assert b"AAAA" not in transport.requests[1].body
    assert b"image removed" in transport.requests[1].body


def test_b260_words_alone_are_a_heuristic() -> None:
    words = {"error": {"message": "Could not process image"}}
    seen = ask(ScriptedTransport(refused(400, words), at_once(answer("chat_completions", "ok"))), with_image(PIXEL))
    assert [event.reason for event in seen.events if isinstance(event, ImagesStripped)] == ["payload_heuristic"]
    completed(seen)


def test_b261_images_are_left_out_once() -> None:
    transport = ScriptedTransport(refused(400, INVALID_IMAGE), refused(400, INVALID_IMAGE))
    seen = ask(transport, with_image(PIXEL, PIXEL))
    assert [event.stripped_urls for event in seen.events if isinstance(event, ImagesStripped)] == [(PIXEL, PIXEL)]
    assert (failed(seen).error.code, len(transport.requests)) == ("invalid_image", 2)


def test_the_retry_without_images_is_granted_beyond_the_budget() -> None:
    transport = ScriptedTransport(refused(503), refused(413), at_once(answer("chat_completions", "ok")))
    seen = ask(transport, with_image(PIXEL), retry=RetryPolicy(jitter=0, max_retries=1))
    assert [(event.retry, event.max_retries) for event in told(seen)] == [(1, 1), (2, 2)]
    assert completed(seen).response.text == "ok"


def test_a_second_413_is_final() -> None:
    transport = ScriptedTransport(refused(413), refused(413))
    seen = ask(transport, with_image(PIXEL))
    assert (failed(seen).error.status, failed(seen).error.kind, len(transport.requests)) == (413, "api", 2)


@pytest.mark.parametrize("retries", [0, 15])
def test_b262_b263_a_broken_upload_costs_the_images_if_there_is_a_retry(retries: int) -> None:
    broken = SamplingError.of(SamplingErrorKind.HTTP, "reset", code="upload_broken", is_retryable=True)
    transport = ScriptedTransport([(0, Connected()), (0, broken)], at_once(answer("chat_completions", "ok")))
    seen = ask(transport, with_image(PIXEL), retry=RetryPolicy(jitter=0, max_retries=retries))
    stripped = [event.reason for event in seen.events if isinstance(event, ImagesStripped)]
    if retries:
        assert (stripped, seen.kinds[:2]) == (["payload_heuristic"], ["images_stripped", "retrying"])
        assert told(seen)[0].backoff_s == 2.0  # it is a transport failure still
        assert b"AAAA" not in transport.requests[1].body
        completed(seen)
    else:
        assert (stripped, failed(seen).error.code) == ([], "upload_broken")


def test_b264_a_refused_connection_says_nothing_about_images() -> None:
    transport = ScriptedTransport(*(unreachable() for _ in range(3)))
    seen = ask(transport, with_image(PIXEL), retry=RetryPolicy(jitter=0, max_retries=2))
    assert not [event for event in seen.events if isinstance(event, ImagesStripped)]
    assert b"AAAA" in transport.requests[2].body


# -- doom loops


def check(*triggers: str) -> bytes:
    return named({"type": "response.doom_loop_check", "doom_loop_check": {"triggers": triggers}})


def looping(*triggers: str, words: Sequence[str] = ("loop", "loop")) -> list[Step]:
    """Words, the check, and then nothing for ever: the abort must not wait for another event."""
    frames = [*opening("responses"), *(text("responses", word) for word in words), check(*triggers)]
    return at_once(frames)


def with_terminal_labels(*triggers: str) -> list[Step]:
    *frames, end = answer("responses", "looped")
    document = json.loads(end.partition(b"data:")[2])
    document["response"]["doom_loop_check"] = {"triggers": triggers}
    return at_once([*frames, named(document)])


def doom(transport: ScriptedTransport, **fields: Any) -> Seen:
    given: dict[str, Any] = {"backend": "responses", "doom_loop": DoomLoopPolicy(), **fields}
    return ask(transport, drawn=0.4, **given)


def test_b286_b291_a_confident_label_ends_the_attempt_at_once() -> None:
    transport = ScriptedTransport(looping(TIGHT), at_once(answer("responses", "clean")))
    seen = doom(transport)
    retrying = told(seen)[0]
    assert (retrying.budget, retrying.retry, retrying.max_retries) == ("doom_loop", 1, 2)
    assert (retrying.error_kind, retrying.doom_loop_triggers) == ("doom_loop_detected", (TIGHT,))
    assert (retrying.doom_loop_aborted_at_chunk, retrying.backoff_s) == (2, pytest.approx(0.1))
    kinds = seen.kinds
    assert kinds[kinds.index("retrying") - 1] == "doom_loop_signals"
    assert (completed(seen).response.text, completed(seen).response.doom_loop_triggers) == ("clean", ())
    assert transport.requests[0].body == transport.requests[1].body
    assert transport.closed_at[0] == SUBSCRIBED_AT
    assert transport.over[0] is False  # the socket is dropped, not given back


def test_labels_are_the_servers_words_and_kept_short() -> None:
    rude = "\x1b[2J\nx" + 3000 * "y"
    transport = ScriptedTransport(looping(TIGHT, rude), at_once(answer("responses", "clean")))
    retrying = told(doom(transport))[0]
    assert retrying.reason.isprintable()
    assert len(retrying.reason) <= MAX_MESSAGE_CHARS + 1
    assert [len(label) for label in retrying.doom_loop_triggers] == [len(TIGHT), 256]


def test_b287_labels_of_the_terminal_event_count_too() -> None:
    transport = ScriptedTransport(with_terminal_labels(TIGHT), at_once(answer("responses", "clean answer")))
    seen = doom(transport)
    assert told(seen)[0].doom_loop_aborted_at_chunk is None
    assert (completed(seen).response.text, completed(seen).response.doom_loop_triggers) == ("clean answer", ())


@pytest.mark.parametrize("label", ["tail_repetition:65@thinking", "tail_repetition:2@response", "low_logprob@thinking"])
def test_b283_b288_what_is_not_confident_is_reported_only(label: str) -> None:
    transport = ScriptedTransport(with_terminal_labels(label))
    seen = doom(transport)
    assert completed(seen).response.doom_loop_triggers == (label,)
    assert [event.triggers for event in seen.events if isinstance(event, DoomLoopSignals)] == [(label,)]
    assert len(transport.requests) == 1


def test_b289_the_attempt_after_the_last_retry_is_taken_as_it_comes() -> None:
    last_one = at_once([*opening("responses"), check(TIGHT), *answer("responses", "loop")[len(opening("responses")) :]])
    transport = ScriptedTransport(looping(TIGHT), looping(TIGHT), last_one)
    end = completed(doom(transport))
    assert (end.response.doom_loop_triggers, len(transport.requests), end.metrics.attempts) == ((TIGHT,), 3, 3)


def test_b270_b290_the_two_budgets_are_two() -> None:
    reasoning_only = at_once(answer("responses"))
    transport = ScriptedTransport(looping(TIGHT), reasoning_only, at_once(answer("responses", "clean")))
    seen = doom(transport)
    assert [(event.budget, event.retry) for event in told(seen)] == [("doom_loop", 1), ("transport", 1)]
    assert completed(seen).metrics.attempts == 3


def test_b284_without_a_policy_labels_mean_nothing() -> None:
    frames = [*opening("responses"), check(TIGHT), *answer("responses", "ok")[len(opening("responses")) :]]
    for script in (at_once(frames), with_terminal_labels(TIGHT)):
        transport = ScriptedTransport(script)
        seen = doom(transport, doom_loop=None)
        assert completed(seen).response.doom_loop_triggers == ()
        assert "doom_loop_signals" not in seen.kinds
        assert "x-grok-doom-loop-check" not in transport.requests[0].headers
        assert len(transport.requests) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_b285_the_check_is_asked_for_on_responses_only(backend: str) -> None:
    transport = ScriptedTransport(at_once(answer(backend, "ok")))
    doom(transport, backend=backend)
    expected = "1024" if backend == "responses" else None
    assert transport.requests[0].headers.get("x-grok-doom-loop-check") == expected


def test_b292_without_retries_a_loop_is_reported_only() -> None:
    frames = [*opening("responses"), check(TIGHT), *answer("responses", "loop")[len(opening("responses")) :]]
    transport = ScriptedTransport(at_once(frames))
    end = completed(doom(transport, retry=RetryPolicy(max_retries=0)))
    assert (end.response.doom_loop_triggers, len(transport.requests)) == ((TIGHT,), 1)


def test_b282_what_is_no_label_is_passed_by() -> None:
    odd = data({"type": "response.doom_loop_check", "doom_loop_check": {"triggers": [1, None, "low_logprob@x"]}})
    frames = [*opening("responses"), odd, *answer("responses", "ok")[len(opening("responses")) :]]
    assert completed(doom(ScriptedTransport(at_once(frames)))).response.doom_loop_triggers == ("low_logprob@x",)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_loop_found_here_takes_the_same_way(backend: str) -> None:
    loop = at_once([*opening(backend), *[text(backend, "again and again. ")] * 100])
    transport = ScriptedTransport(loop, at_once(answer(backend, "clean")))
    seen = ask(transport, backend=backend, detect_loops={})
    retrying = told(seen)[0]
    assert (retrying.budget, retrying.max_retries, retrying.error_kind) == ("doom_loop", 2, "doom_loop_detected")
    assert retrying.doom_loop_triggers[0].startswith("client_repetition:")
    assert completed(seen).response.text == "clean"
    again = ScriptedTransport(loop)
    unasked = run(lambda: Sampler(config(backend), transport=again).stream("hi"), for_s=10)
    assert "retrying" not in unasked.kinds


def test_a_loop_that_fails_the_request_keeps_what_streamed() -> None:
    loop = at_once([*opening("chat_completions"), *[text("chat_completions", "again and again. ")] * 100])
    policy = RetryPolicy(retry_only_before_output=True)
    end = failed(ask(ScriptedTransport(loop), detect_loops={}, retry=policy))
    assert end.error.kind == "doom_loop_detected"
    assert end.partial is not None
    assert end.partial.text.startswith("again and again. again")


# -- time over all


def test_the_deadline_covers_waits() -> None:
    transport = ScriptedTransport(*(unreachable() for _ in range(9)))
    seen = ask(transport, deadline_s=10)
    # retries at 2 and 6 s; the next would be at 14 s, which nobody waits for
    assert [at for at, _ in seen.timed] == [0, 2, 6]
    assert failed(seen).error.kind == "http"


def test_the_deadline_ends_an_attempt_at_its_time() -> None:
    silent: list[Step] = [(0, Connected())]
    seen = ask(ScriptedTransport(unreachable(), silent), deadline_s=10)
    assert (failed(seen).error.kind, failed(seen).error.code, seen.completed_at) == ("idle_timeout", "deadline", 10)
    assert failed(seen).attempt == 2


def test_latency_from_submit_counts_from_the_first_attempt() -> None:
    seen = ask(ScriptedTransport(refused(500), arriving(answer("chat_completions", "ok"), at=3, every=1)))
    metrics = completed(seen).metrics
    assert metrics.time_to_stream_started_ms == (2 + 3) * 1e3
    assert metrics.time_to_first_token_ms == 2e3
    assert metrics.time_to_first_token_from_submit_ms == (2 + 3 + 2) * 1e3
    assert metrics.queued_ms == 0


# -- many requests of one sampler


class Crowd:
    """Several streams of one sampler in one virtual time."""

    def __init__(self, transport: ScriptedTransport, **fields: Any) -> None:
        self.scheduler = TestScheduler()
        self.sampler = Sampler(config(**fields), transport=transport)
        self.ends: dict[str, tuple[float, SamplingEvent]] = {}

    def at(self, delay_s: float, act: Callable[[], object]) -> None:
        def run_it(_scheduler: SchedulerBase, _state: object = None) -> None:
            act()

        self.scheduler.schedule_relative(delay_s, run_it)

    def ask(self, name: str, at: float = 0) -> list[DisposableBase]:
        subscriptions: list[DisposableBase] = []

        def note(event: SamplingEvent) -> None:
            if isinstance(event, Completed | Failed):
                self.ends[name] = (seconds(self.scheduler), event)

        def begin() -> None:
            stream = self.sampler.stream("hi", request_id=name)
            subscriptions.append(stream.subscribe(note, scheduler=self.scheduler))

        self.at(at, begin)
        return subscriptions

    def times(self) -> dict[str, float]:
        self.scheduler.start()
        return {name: at for name, (at, _) in self.ends.items()}

    def queued_ms(self, name: str) -> float | None:
        event = self.ends[name][1]
        assert isinstance(event, Completed | Failed)
        return event.metrics.queued_ms


def lasting(duration_s: float) -> list[Step]:
    return arriving([b"".join(answer("chat_completions", "ok"))], at=0, every=duration_s)


def test_first_come_first_served() -> None:
    crowd = Crowd(ScriptedTransport(*[lasting(10)] * 5), max_concurrency=2)
    for number in range(5):
        crowd.ask(f"r{number}")
    assert crowd.times() == {"r0": 10, "r1": 10, "r2": 20, "r3": 20, "r4": 30}
    assert [crowd.queued_ms(f"r{number}") for number in range(5)] == [0, 0, 10e3, 10e3, 20e3]


def test_the_queue_is_not_part_of_time_to_first_token() -> None:
    crowd = Crowd(ScriptedTransport(lasting(10), lasting(10)), max_concurrency=1)
    crowd.ask("a")
    crowd.ask("b")
    crowd.times()
    end = crowd.ends["b"][1]
    assert isinstance(end, Completed)
    assert end.metrics.time_to_first_token_ms == 10e3
    assert end.metrics.time_to_first_token_from_submit_ms == 20e3


def test_who_leaves_the_queue_holds_up_nobody() -> None:
    transport = ScriptedTransport(lasting(10), lasting(10))
    crowd = Crowd(transport, max_concurrency=1)
    crowd.ask("a")
    gone = crowd.ask("b", at=1)
    crowd.ask("c", at=2)
    crowd.at(5, lambda: gone[0].dispose())
    assert crowd.times() == {"a": 10, "c": 20}
    assert len(transport.requests) == 2


def test_the_deadline_covers_the_queue() -> None:
    transport = ScriptedTransport(lasting(30))
    crowd = Crowd(transport, max_concurrency=1)
    crowd.ask("a")
    hurried = config(max_concurrency=1, deadline_s=9)
    crowd.at(1, lambda: crowd.sampler.update_config(hurried))
    crowd.ask("b", at=2)
    assert crowd.times() == {"a": 30, "b": 11}
    b = crowd.ends["b"][1]
    assert isinstance(b, Failed)
    assert (b.error.kind, b.error.code, len(transport.requests)) == ("idle_timeout", "deadline", 1)


def test_a_place_is_kept_between_attempts() -> None:
    transport = ScriptedTransport(refused(500), lasting(1), lasting(1))
    crowd = Crowd(transport, max_concurrency=1)
    crowd.ask("a")
    crowd.ask("b")
    assert crowd.times() == {"a": 3, "b": 4}


def test_more_places_are_filled_at_once() -> None:
    crowd = Crowd(ScriptedTransport(*[lasting(10)] * 3), max_concurrency=1)
    for number in range(3):
        crowd.ask(f"r{number}")
    crowd.at(4, lambda: crowd.sampler.update_config(config(max_concurrency=None)))
    assert crowd.times() == {"r0": 10, "r1": 14, "r2": 14}


def test_a_rate_limit_delays_the_start_of_others_on_the_same_host_and_key() -> None:
    transport = ScriptedTransport(refused(429, None, {"retry-after": "7"}), lasting(1), lasting(1), lasting(1))
    crowd = Crowd(transport, api_key="one")
    crowd.ask("a")
    crowd.ask("b", at=3)
    crowd.at(4, lambda: crowd.sampler.update_config(config(api_key="two")))
    crowd.ask("c", at=5)
    assert crowd.times() == {"c": 6, "a": 8, "b": 8}
    assert [crowd.queued_ms(name) for name in "abc"] == [0, 4e3, 0]


def test_a_thousand_requests_to_a_dead_server() -> None:
    transport = ScriptedTransport(*(unreachable() for _ in range(5000)))
    crowd = Crowd(transport, retry=RetryPolicy(max_retries=4))
    for number in range(1000):
        crowd.ask(f"r{number}", at=number / 10)
    assert len(crowd.times()) == 1000
    assert len(transport.requests) == 1100  # a hundred tokens, and no more than 1.1 requests for each
    unlimited = ScriptedTransport(*(unreachable() for _ in range(1000)))
    crowd = Crowd(unlimited, retry=RetryPolicy(max_retries=4), retry_budget=None)
    for number in range(200):
        crowd.ask(f"r{number}", at=number / 10)
    crowd.times()
    assert len(unlimited.requests) == 1000


def test_a_configuration_is_that_of_the_moment_of_the_request() -> None:
    # B220, B221: also across a retry
    transport = ScriptedTransport(refused(500), lasting(1), lasting(1))
    crowd = Crowd(transport)
    crowd.ask("a")
    crowd.at(1, lambda: crowd.sampler.update_config(config(model="other")))
    crowd.ask("b", at=5)
    crowd.times()
    assert [json.loads(request.body)["model"] for request in transport.requests] == ["m", "m", "other"]
