"""Turns: what the end of a request asks for, and the drive that does it, to the second in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypedDict, Unpack, cast

import docs_runner
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from reactivex.scheduler import TimeoutScheduler
from reactivex.testing import TestScheduler

from rx_sampler import (
    Completed,
    Failed,
    ImagesStripped,
    LatencyMetrics,
    LoopTimeScheduler,
    RetryPolicy,
    Sampler,
    SamplerConfig,
    SamplingError,
    SamplingErrorInfo,
    SamplingErrorKind,
    SamplingRequest,
    SamplingResponse,
    SamplingResult,
    TextItem,
    event_from_json,
    event_to_json,
)
from rx_sampler.bridge import (
    Compact,
    CompactAndResubmit,
    Fatal,
    OnOutcome,
    RefreshAuth,
    RefreshAuthAndResubmit,
    Response,
    RetryTransient,
    TurnOutcome,
    TurnPolicy,
    removable_image,
    run_turn,
    turn_outcome,
)
from rx_sampler.errors import SentCredential
from rx_sampler.simulator import Fault, Simulator, Timing, Turn
from rx_sampler.testing import DeadlockError, run_virtual
from rx_sampler.wire.error_bodies import read_error, refusal

Kind = SamplingErrorKind

WINDOW: Final = {"context_window": 100_000}
LONG: Final = SamplingRequest.of("a long story, and what came before it")
SHORT: Final = SamplingRequest.of("a long story")
SHORTER: Final = SamplingRequest.of("a story")


def failure(kind: SamplingErrorKind, **fields: Any) -> SamplingError:
    return SamplingError(SamplingErrorInfo(kind=kind, message="no", **fields))


def refused(status: int | None, **error: Any) -> SamplingError:
    """What a server's refusal amounts to; without a status it came inside a stream."""
    should_retry: bool | None = error.pop("should_retry", None)
    return refusal(read_error({"error": error}), status=status, should_retry=should_retry)


def unauthorized(credential: SentCredential) -> SamplingError:
    return failure(Kind.AUTH, status=401, credential=credential)


def unreachable(**fields: Any) -> SamplingError:
    return failure(Kind.HTTP, is_retryable=True, **fields)


def overflow() -> SamplingError:
    return refused(400, code="context_length_exceeded")


def answered(text: str = "ok") -> SamplingResponse:
    return SamplingResponse(items=(TextItem(text=text),), stop_reason="stop")


# -- what an end asks for


def test_an_answer_is_a_response() -> None:
    metrics = LatencyMetrics(attempts=2)
    end = Completed(request_id="r", attempt=2, ts=1, response=answered(), metrics=metrics)
    assert turn_outcome(end) == Response(answered(), metrics)


OVERFLOWS: Final = {
    "by code": overflow(),
    "by another server's code": refused(400, type="exceed_context_size_error", message="too many"),
    "by phrase": refused(400, type="invalid_request_error", message="prompt is too long: 201 tokens > 200 maximum"),
    "inside the stream": refused(None, code="context_length_exceeded", message="Your input exceeds the window."),
    "before it is a matter of encrypted reasoning": refused(400, message="encrypted_content: prompt is too long"),
}


@pytest.mark.parametrize("error", OVERFLOWS.values(), ids=OVERFLOWS.keys())
def test_an_overflow_wants_a_shorter_conversation(error: SamplingError) -> None:
    assert turn_outcome(error) == CompactAndResubmit(None, error)


def test_b297_an_estimate_above_the_window_is_an_overflow() -> None:
    """B297: an Api error with metadata context_window 100 000 and an estimate above it."""
    error = failure(Kind.API, status=400, model_metadata=WINDOW)
    assert turn_outcome(error, estimated_input_tokens=100_001) == CompactAndResubmit(100_000, error)
    assert turn_outcome(error, estimated_input_tokens=100_000) == Fatal(error)
    assert turn_outcome(error) == Fatal(error)


@pytest.mark.parametrize("metadata", [None, {}, {"context_window": 0}, {"context_window": "big"}, {"model": "m"}])
def test_without_a_window_an_estimate_says_nothing(metadata: dict[str, str | int] | None) -> None:
    error = failure(Kind.API, status=400, model_metadata=metadata)
    assert turn_outcome(error, estimated_input_tokens=10**9) == Fatal(error)


def test_an_estimate_explains_refusals_only() -> None:
    for error in (unauthorized("sent"), unreachable(), failure(Kind.RATE_LIMITED, status=429)):
        error.amend(model_metadata=WINDOW)
        assert not isinstance(turn_outcome(error, estimated_input_tokens=10**9), CompactAndResubmit)


def test_the_window_is_told_with_an_overflow_by_code() -> None:
    error = overflow().amend(model_metadata=WINDOW)
    assert turn_outcome(error) == CompactAndResubmit(100_000, error)


CREDENTIALS: Final[tuple[SentCredential, ...]] = ("sent", "missing", "unknown")


@pytest.mark.parametrize("credential", CREDENTIALS)
def test_b233_a_refused_credential_is_the_sessions_matter(credential: SentCredential) -> None:
    """B233: Auth or Api 401."""
    for kind in (Kind.AUTH, Kind.API):
        error = failure(kind, status=401, credential=credential)
        assert turn_outcome(error) == RefreshAuthAndResubmit(credential, error)


def test_a_resolver_that_failed_may_succeed_later() -> None:
    error = SamplingError.of(Kind.AUTH, "bearer_resolver raised KeyError", code="bearer_resolver")
    assert turn_outcome(error) == RefreshAuthAndResubmit("unknown", error)


FATAL: Final = {
    "B234: a 400 about encrypted reasoning": refused(400, message="could not verify the encrypted_content"),
    "the same as a code": refused(400, code="invalid_encrypted_content"),
    "403": refused(403, type="permission_error"),
    "403 under any name": failure(Kind.AUTH, status=403),
    "429": refused(429, code="rate_limit_exceeded"),
    "no credit": refused(429, code="insufficient_quota"),
    "400": refused(400, type="invalid_request_error"),
    "404": refused(404),
    "501": refused(501),
    "the server's veto": refused(503, should_retry=False),
    "the veto as it came from JSON": failure(Kind.API, status=503, is_retryable=True, should_retry=False),
    "a bad image": refused(400, code="invalid_image"),
    "a bad image as a server error": refused(500, code="invalid_image"),
    "a bad image in words": refused(500, message="Could not process image"),
    "413": refused(413),
    "broken TLS": failure(Kind.HTTP, is_retryable=False),
    "the caller's deadline": failure(Kind.IDLE_TIMEOUT, code="deadline"),
    "an empty answer": failure(Kind.EMPTY_RESPONSE, is_retryable=True),
    "truncation": failure(Kind.MAX_TOKENS_TRUNCATION),
    "bad JSON": failure(Kind.SERIALIZATION),
    "a doom loop": failure(Kind.DOOM_LOOP_DETECTED, is_retryable=True),
    "cancelled": failure(Kind.CANCELLED),
    "an invalid request": failure(Kind.INVALID_REQUEST),
}


@pytest.mark.parametrize("error", FATAL.values(), ids=FATAL.keys())
def test_what_no_resubmission_mends(error: SamplingError) -> None:
    assert turn_outcome(error) == Fatal(error, "error")


TRANSIENT: Final = {
    "no bytes": failure(Kind.IDLE_TIMEOUT, code="idle"),
    "no content": failure(Kind.IDLE_TIMEOUT, code="content_idle"),
    "a broken connection": unreachable(),
    "a broken upload": unreachable(code="upload_broken"),
    "500": refused(500),
    "503": refused(503),
    "529 inside the stream": refused(None, type="overloaded_error"),
    "408": refused(408),
    "409": refused(409),
}


@pytest.mark.parametrize("error", TRANSIENT.values(), ids=TRANSIENT.keys())
def test_what_time_may_mend(error: SamplingError) -> None:
    assert turn_outcome(error) == RetryTransient(error)


def test_the_servers_wait_is_kept() -> None:
    error = unreachable(retry_after_s=7.5)
    assert turn_outcome(error) == RetryTransient(error, 7.5)


def test_an_event_counts_as_its_error_also_out_of_json() -> None:
    for error in (*OVERFLOWS.values(), *FATAL.values(), *TRANSIENT.values(), unauthorized("missing")):
        failed = Failed(request_id="r", attempt=1, ts=1, error=error.info, exception=error)
        assert turn_outcome(failed) == turn_outcome(error)
        restored = event_from_json(event_to_json(failed))
        assert isinstance(restored, Failed)
        outcome = turn_outcome(restored)
        assert type(outcome) is type(turn_outcome(error))
        assert not isinstance(outcome, Response)
        assert outcome.error.info == error.info


# -- images


def stripped(*urls: str, reason: Literal["server_rejected", "payload_heuristic"] = "server_rejected") -> ImagesStripped:
    return ImagesStripped(request_id="r", attempt=1, ts=1, stripped_urls=urls, reason=reason)


def test_one_image_that_the_server_named_may_go_for_good() -> None:
    assert removable_image([stripped("a")]) == "a"
    assert removable_image([stripped("a", "a"), stripped("a")]) == "a"


def test_b298_of_several_images_none_is_removed() -> None:
    """B298: server_rejected with two distinct URLs, in one event or in two."""
    assert removable_image([stripped("a", "b")]) is None
    assert removable_image([stripped("a"), stripped("b")]) is None


def test_a_guess_removes_no_image() -> None:
    assert removable_image([stripped("a", reason="payload_heuristic")]) is None
    assert removable_image([stripped("a"), stripped("a", reason="payload_heuristic")]) is None
    assert removable_image([]) is None
    assert removable_image([stripped()]) is None


# -- the drive


class FakeSampler:
    """Answers each submission with the next of its ends, after `takes_s`; knows when it was asked what."""

    def __init__(self, *ends: SamplingError | str, takes_s: float = 0.0) -> None:
        self._ends = iter(ends)
        self._takes_s = takes_s
        self.submissions: list[tuple[float, SamplingRequest]] = []

    @property
    def times(self) -> list[float]:
        return [at for at, _ in self.submissions]

    async def collect(self, question: SamplingRequest, /) -> SamplingResult:
        self.submissions.append((now(), question))
        await asyncio.sleep(self._takes_s)
        end = next(self._ends)
        if isinstance(end, SamplingError):
            raise end
        return SamplingResult(
            request_id="r",
            response=answered(end),
            metrics=LatencyMetrics(),
            events_summary={},
            images_stripped=(stripped("a"),),
        )


class Watcher:
    """Keeps what it is told, each with the time."""

    def __init__(self) -> None:
        self.told: list[tuple[float, TurnOutcome, float]] = []

    def __call__(self, outcome: TurnOutcome, wait_s: float) -> None:
        self.told.append((now(), outcome, wait_s))


def now() -> float:
    return asyncio.get_running_loop().time()


def middle() -> float:
    """A random number that leaves waits as they are."""
    return 0.5


class Options(TypedDict, total=False):
    refresh_auth: RefreshAuth
    compact: Compact
    policy: TurnPolicy
    estimate_tokens: Callable[[SamplingRequest], int]
    random: Callable[[], float]
    on_outcome: OnOutcome
    wall_clock: Callable[[], float]
    monotonic_clock: Callable[[], float]


def drive(sampler: FakeSampler, question: SamplingRequest | str = LONG, **options: Unpack[Options]) -> Response | Fatal:
    given: Options = {"random": middle, **options}
    return run_virtual(run_turn(sampler, question, **given))


def text_of(end: Response | Fatal) -> str:
    assert isinstance(end, Response)
    return end.response.text


def reason_of(end: Response | Fatal) -> str:
    assert isinstance(end, Fatal)
    return end.reason


def agree(_outcome: RefreshAuthAndResubmit) -> None:
    return None


def decline(_outcome: RefreshAuthAndResubmit) -> bool:
    return False


def test_a_good_answer_needs_one_submission() -> None:
    sampler = FakeSampler("ok")
    end = drive(sampler, "a question")
    assert end == Response(answered(), LatencyMetrics(), (stripped("a"),))
    assert sampler.submissions == [(0, SamplingRequest.of("a question"))]


def test_a_fatal_end_needs_one_submission() -> None:
    error = refused(400)
    assert drive(FakeSampler(error), refresh_auth=agree) == Fatal(error)


def test_what_is_no_question_is_refused_at_once() -> None:
    with pytest.raises(ValidationError):
        run_virtual(run_turn(FakeSampler(), cast("Any", [7])))  # what a caller without a type checker may do


def test_a_failure_of_the_program_passes() -> None:
    class Broken(FakeSampler):
        async def collect(self, question: SamplingRequest, /) -> SamplingResult:
            raise ZeroDivisionError(question)

    with pytest.raises(ZeroDivisionError):
        drive(Broken())


# -- credentials


@pytest.mark.parametrize("credential", ["sent", "unknown"])
def test_b296_a_refused_credential_waits_1_2_4_s_then_is_given_up(credential: SentCredential) -> None:
    """B296: sent -> waits 1, 2, 4 s then exhausted."""
    errors = [unauthorized(credential) for _ in range(4)]
    sampler, refreshed = FakeSampler(*errors), list[float]()
    end = drive(sampler, refresh_auth=lambda _outcome: refreshed.append(now()))
    assert end == Fatal(errors[-1], "exhausted")
    assert sampler.times == [0, 1, 3, 7]
    assert refreshed == [1, 3, 7]  # the wait first: another may be renewing the credential already
    assert [request for _, request in sampler.submissions] == [LONG] * 4


def test_b296_a_missing_credential_is_not_charged() -> None:
    """B296: credential missing -> uncharged; all three charged waits are still there afterwards."""
    missing, sent = [unauthorized("missing")] * 50, [unauthorized("sent")] * 3
    sampler = FakeSampler(*missing, *sent, "ok")
    assert text_of(drive(sampler, refresh_auth=agree)) == "ok"
    assert sampler.times == [*range(51), 51, 53, 57]


def test_the_51st_missing_credential_is_one_too_many() -> None:
    sampler = FakeSampler(*[unauthorized("missing")] * 51)
    assert reason_of(drive(sampler, refresh_auth=agree)) == "exhausted"
    assert sampler.times == [*range(51)]


@pytest.mark.parametrize("credential", CREDENTIALS)
def test_the_time_of_a_refresh_is_added(credential: SentCredential) -> None:
    async def refresh(outcome: RefreshAuthAndResubmit) -> bool:
        assert outcome.credential == credential
        await asyncio.sleep(20)
        return True

    sampler = FakeSampler(unauthorized(credential), unauthorized(credential), "ok", takes_s=0.5)
    assert text_of(drive(sampler, refresh_auth=refresh)) == "ok"
    assert sampler.times == [0, 21.5, 43 if credential == "missing" else 44]


def test_who_cannot_refresh_ends_the_turn() -> None:
    async def refresh(_outcome: RefreshAuthAndResubmit) -> bool:
        return False

    error = unauthorized("sent")
    for handler in (refresh, decline):
        sampler = FakeSampler(error)
        assert drive(sampler, refresh_auth=handler) == Fatal(error, "declined")
        assert sampler.times == [0]


def test_without_a_handler_there_is_no_wait() -> None:
    for error in (unauthorized("sent"), unauthorized("missing"), overflow()):
        watcher = Watcher()
        end = drive(FakeSampler(error), on_outcome=watcher)
        assert end == Fatal(error, "no_handler")
        assert watcher.told == [(0, end, 0)]


def test_a_handler_that_raises_is_heard() -> None:
    def refresh(_outcome: RefreshAuthAndResubmit) -> None:
        raise LookupError("no such account")

    async def compact(_request: SamplingRequest, _outcome: CompactAndResubmit) -> SamplingRequest:
        raise LookupError("no such model")

    with pytest.raises(LookupError, match="account"):
        drive(FakeSampler(unauthorized("sent")), refresh_auth=refresh)
    with pytest.raises(LookupError, match="model"):
        drive(FakeSampler(overflow()), compact=compact)


class SleepyMachine:
    """Clocks of a machine that is suspended for `asleep_s` before each refresh."""

    def __init__(self, asleep_s: float) -> None:
        self._asleep_s = asleep_s
        self.ahead_s = 1_700_000_000.0

    def refresh(self, _outcome: RefreshAuthAndResubmit) -> None:
        self.ahead_s += self._asleep_s

    def clocks(self) -> Options:
        return {"wall_clock": lambda: now() + self.ahead_s, "monotonic_clock": now, "refresh_auth": self.refresh}


def test_a_suspended_machine_is_not_charged_eight_times() -> None:
    machine = SleepyMachine(30)
    sampler = FakeSampler(*[unauthorized("sent")] * 12)
    assert reason_of(drive(sampler, **machine.clocks())) == "exhausted"
    # the first one and eight after a suspension wait 1 s, then 2 s and 4 s as ever
    assert sampler.times == [*range(10), 11, 15]


def test_less_than_thirty_seconds_are_no_suspension() -> None:
    sampler = FakeSampler(*[unauthorized("sent")] * 4)
    drive(sampler, **SleepyMachine(7.4).clocks())
    assert sampler.times == [0, 1, 3, 7]  # 29.6 s in all


def test_short_sleeps_add_up() -> None:
    # the third refusal comes 30 s ahead and is counted from one again, and so is the fifth
    sampler = FakeSampler(*[unauthorized("sent")] * 6, "ok")
    assert text_of(drive(sampler, **SleepyMachine(15).clocks())) == "ok"
    assert sampler.times == [0, 1, 3, 4, 6, 7, 9]


# -- transient failures


def test_transient_failures_wait_2_10_30_s() -> None:
    errors = [unreachable(), failure(Kind.IDLE_TIMEOUT, code="idle"), refused(500), unreachable()]
    sampler = FakeSampler(*errors)
    assert drive(sampler) == Fatal(errors[-1], "exhausted")
    assert sampler.times == [0, 2, 12, 42]


@pytest.mark.parametrize(("drawn", "times"), [(0.0, [0, 1.6, 9.6, 33.6]), (0.75, [0, 2.2, 13.2, 46.2])])
def test_jitter_is_a_fifth_of_a_wait(drawn: float, times: list[float]) -> None:
    sampler = FakeSampler(*[unreachable()] * 3, "ok")
    assert text_of(drive(sampler, random=lambda: drawn)) == "ok"
    assert sampler.times == pytest.approx(times)  # pyright: ignore[reportUnknownMemberType]  # pytest leaves it untyped


@given(st.floats(0, 1, exclude_max=True))
def test_a_server_that_asks_for_more_gets_it(drawn: float) -> None:
    def drawing() -> float:
        return drawn

    sampler = FakeSampler(unreachable(retry_after_s=300), unreachable(retry_after_s=0.1), "ok")
    assert text_of(drive(sampler, random=drawing)) == "ok"
    assert sampler.times[1] == 300
    assert 308 <= sampler.times[2] <= 312


def test_waits_count_from_the_failure() -> None:
    sampler = FakeSampler(unreachable(), unreachable(), "ok", takes_s=5)
    drive(sampler)
    assert sampler.times == [0, 7, 22]


def test_no_retry_later_than_ten_minutes_after_the_first_failure() -> None:
    # fails at 296, 594 and 900 s: 604 s after the first
    sampler = FakeSampler(*[unreachable()] * 3, takes_s=296)
    assert reason_of(drive(sampler)) == "exhausted"
    assert sampler.times == [0, 298, 604]
    sampler = FakeSampler(
        unreachable(), unreachable(), "ok", takes_s=586
    )  # the second fails at 588 s: 598 s is in time
    assert text_of(drive(sampler)) == "ok"
    assert sampler.times == [0, 588, 1184]
    sampler = FakeSampler(unreachable(), unreachable(), takes_s=589)
    assert reason_of(drive(sampler)) == "exhausted"
    assert sampler.times == [0, 591]


def test_a_server_that_asks_for_more_than_the_window_is_not_waited_for() -> None:
    sampler = FakeSampler(unreachable(retry_after_s=601))
    assert reason_of(drive(sampler)) == "exhausted"
    assert sampler.times == [0]
    sampler = FakeSampler(unreachable(retry_after_s=600), "ok")
    assert text_of(drive(sampler)) == "ok"
    assert sampler.times == [0, 600]


def test_a_credential_in_between_does_not_begin_the_waits_anew() -> None:
    sampler = FakeSampler(unreachable(), unauthorized("sent"), unreachable(), unauthorized("sent"), "ok")
    drive(sampler, refresh_auth=agree)
    assert sampler.times == [0, 2, 3, 13, 15]


def test_ten_transient_failures_are_a_turns_most() -> None:
    policy = TurnPolicy(transient_waits_s=(1,) * 20, transient_jitter=0)
    sampler = FakeSampler(*[unreachable()] * 11)
    assert reason_of(drive(sampler, policy=policy)) == "exhausted"
    assert sampler.times == [*range(11)]


# -- compaction


def compactor(*shorter: SamplingRequest | None) -> Compact:
    waiting = iter(shorter)

    def compact(_request: SamplingRequest, _outcome: CompactAndResubmit) -> SamplingRequest | None:
        return next(waiting)

    return compact


def test_a_shorter_conversation_is_submitted_at_once() -> None:
    asked: list[tuple[SamplingRequest, CompactAndResubmit]] = []

    async def compact(request: SamplingRequest, outcome: CompactAndResubmit) -> SamplingRequest:
        asked.append((request, outcome))
        return SHORT if request is LONG else SHORTER

    first, second = overflow(), overflow().amend(model_metadata=WINDOW)
    sampler = FakeSampler(first, second, "ok")
    assert text_of(drive(sampler, compact=compact)) == "ok"
    assert sampler.submissions == [(0, LONG), (0, SHORT), (0, SHORTER)]
    assert asked == [(LONG, CompactAndResubmit(None, first)), (SHORT, CompactAndResubmit(100_000, second))]


def test_a_conversation_is_shortened_twice_at_most() -> None:
    sampler = FakeSampler(*[overflow()] * 3)
    assert reason_of(drive(sampler, compact=compactor(SHORT, SHORTER))) == "exhausted"
    assert [request for _, request in sampler.submissions] == [LONG, SHORT, SHORTER]


def test_what_cannot_be_shortened_is_not_submitted_again() -> None:
    for shorter in (None, LONG, SamplingRequest.of(LONG.items)):
        sampler = FakeSampler(overflow())
        assert reason_of(drive(sampler, compact=compactor(shorter))) == "declined"
        assert sampler.times == [0]


def test_a_shorter_conversation_has_its_own_transient_waits_in_the_same_turn() -> None:
    sampler = FakeSampler(*[unreachable()] * 3, overflow(), *[unreachable()] * 3, overflow(), *[unreachable()] * 4)
    policy = TurnPolicy(max_transient=8)
    assert reason_of(drive(sampler, compact=compactor(SHORT, SHORTER), policy=policy)) == "exhausted"
    assert sampler.times == [0, 2, 12, 42, 42, 44, 54, 84, 84, 86, 96]


def test_b297_the_estimate_is_of_the_request_that_was_refused() -> None:
    """B297 in a turn: what is estimated is the conversation as it was last submitted."""

    def estimate(request: SamplingRequest) -> int:
        return 100_001 if request is LONG else 100_000

    error = failure(Kind.API, status=400, model_metadata=WINDOW)
    sampler = FakeSampler(error, error)
    assert drive(sampler, compact=compactor(SHORT), estimate_tokens=estimate) == Fatal(error)
    assert sampler.submissions == [(0, LONG), (0, SHORT)]


def test_nothing_is_estimated_without_a_window() -> None:
    def estimate(_request: SamplingRequest) -> int:
        raise AssertionError

    assert text_of(drive(FakeSampler(unreachable(), "ok"), estimate_tokens=estimate)) == "ok"


# -- who watches


def test_outcomes_are_told_in_order_with_their_waits() -> None:
    watcher = Watcher()
    errors: list[SamplingError] = [unauthorized("sent"), overflow(), unreachable(), refused(400)]
    end = drive(
        FakeSampler(*errors),
        refresh_auth=agree,
        compact=compactor(SHORT),
        on_outcome=watcher,
    )
    assert watcher.told == [
        (0, RefreshAuthAndResubmit("sent", errors[0]), 1),
        (1, CompactAndResubmit(None, errors[1]), 0),
        (1, RetryTransient(errors[2]), 2),
        (3, Fatal(errors[3]), 0),
    ]
    assert end is watcher.told[-1][1]


def test_the_answer_is_told_and_so_is_a_handlers_no() -> None:
    watcher = Watcher()
    answer = drive(FakeSampler("ok"), on_outcome=watcher)
    failed = drive(FakeSampler(unauthorized("sent")), refresh_auth=decline, on_outcome=watcher)
    assert [type(outcome) for _, outcome, _ in watcher.told] == [Response, RefreshAuthAndResubmit, Fatal]
    assert (watcher.told[0][1], watcher.told[2][1]) == (answer, failed)


def test_a_watcher_that_raises_does_not_lose_the_answer() -> None:
    complaints: list[object] = []

    def watch(_outcome: TurnOutcome, _wait_s: float) -> None:
        raise LookupError("no display")

    async def main() -> Response | Fatal:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context["exception"]))
        return await run_turn(FakeSampler(unreachable(), "ok"), LONG, on_outcome=watch)

    assert text_of(run_virtual(main())) == "ok"
    assert [type(complaint) for complaint in complaints] == [LookupError, LookupError]


# -- waits


def test_a_wait_that_is_cancelled_ends_at_once_and_leaves_no_timer() -> None:
    ended: list[float] = []

    async def main() -> None:
        turn = asyncio.create_task(run_turn(FakeSampler(unreachable()), LONG))
        await asyncio.sleep(0.5)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        ended.append(now())
        await asyncio.Event().wait()  # a timer that were left would be the next thing to happen, at about 2 s

    with pytest.raises(DeadlockError, match=r"at 0\.5 s"):
        run_virtual(main())
    assert ended == [0.5]


def test_cancelling_reaches_the_request_on_its_way() -> None:
    sampler = FakeSampler("ok", takes_s=60)

    async def main() -> float:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run_turn(sampler, LONG), timeout=3)
        return now()

    assert run_virtual(main()) == 3
    assert sampler.times == [0]


def test_no_wait_makes_no_timer() -> None:
    policy = TurnPolicy(auth_waits_s=(0,), transient_waits_s=(0,))
    scheduler = TestScheduler()  # nobody moves it, so that a timer on it would never come due

    async def main() -> str:
        sampler = FakeSampler(unauthorized("sent"), unreachable(), "ok")
        return text_of(await run_turn(sampler, LONG, refresh_auth=agree, policy=policy, scheduler=scheduler))

    assert run_virtual(main()) == "ok"


def test_waits_are_timers_of_the_given_scheduler() -> None:
    scheduler = TestScheduler()
    told: list[tuple[float, str]] = []

    async def main() -> list[tuple[float, str]]:
        sampler = FakeSampler(*[unreachable()] * 2, "ok")
        turn = asyncio.create_task(run_turn(sampler, LONG, scheduler=scheduler, random=middle))
        for at in (1.9, 2.0, 11.9, 12.0):
            await asyncio.sleep(1)  # of the loop's time, which is another
            scheduler.advance_to(at)
            await asyncio.sleep(1)
            told.append((at, f"{len(sampler.submissions)} submissions"))
        assert text_of(await turn) == "ok"
        return told

    assert run_virtual(main()) == [
        (1.9, "1 submissions"),
        (2.0, "2 submissions"),
        (11.9, "2 submissions"),
        (12.0, "3 submissions"),
    ]


async def test_a_scheduler_may_have_threads_of_its_own() -> None:
    sampler = FakeSampler(unreachable(), "ok")
    policy = TurnPolicy(transient_waits_s=(0.001,))
    end = await run_turn(sampler, LONG, policy=policy, scheduler=TimeoutScheduler.singleton())
    assert text_of(end) == "ok"


def test_a_scheduler_of_the_loop_with_an_epoch_of_its_own() -> None:
    async def main() -> list[float]:
        sampler = FakeSampler(*[unreachable()] * 4)
        scheduler = LoopTimeScheduler(asyncio.get_running_loop(), epoch=1e6)
        assert reason_of(await run_turn(sampler, LONG, scheduler=scheduler, random=middle)) == "exhausted"
        return sampler.times

    assert run_virtual(main()) == [0, 2, 12, 42]


# -- policy


@pytest.mark.parametrize(
    "fields",
    [
        {"auth_waits_s": (1, -1)},
        {"transient_waits_s": (float("inf"),)},
        {"transient_jitter": 1.5},
        {"max_transient": -1},
        {"max_compactions": -1},
        {"max_retries": 3},
    ],
    ids=str,
)
def test_a_policy_that_makes_no_sense(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(fields))):
        TurnPolicy(**fields)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"auth_waits_s": ()}, unauthorized("sent")),
        ({"max_uncharged_auth": 0}, unauthorized("missing")),
        ({"transient_waits_s": ()}, unreachable()),
        ({"max_transient": 0}, unreachable()),
        ({"max_compactions": 0}, overflow()),
    ],
    ids=str,
)
def test_a_policy_can_switch_each_resubmission_off(fields: dict[str, Any], error: SamplingError) -> None:
    sampler = FakeSampler(error)
    end = drive(sampler, policy=TurnPolicy(**fields), refresh_auth=agree, compact=compactor())
    assert end == Fatal(error, "exhausted")
    assert sampler.times == [0]


def test_the_guide_lists_the_policys_fields_and_defaults() -> None:
    page = Path(__file__).parent.parent / "docs" / "how-to" / "run-a-turn.md"
    rows = docs_runner.table(page, "How often, and how patiently")
    defaults = {name: f"`{field.default!r}`" for name, field in TurnPolicy.model_fields.items()}
    assert {row[0].strip("`"): row[1] for row in rows} == defaults


# -- the real sampler


async def test_a_sampler_whose_key_expired_gets_another() -> None:
    keys = ["old"]

    def refresh(outcome: RefreshAuthAndResubmit) -> None:
        assert outcome.credential == "sent"
        keys.append("new")

    script: Sequence[Turn] = [Turn(fault=Fault(kind="status", status=401)), Turn(text="It is blue.")]
    async with Simulator(timing=Timing.instant(), script=script) as server:
        config = SamplerConfig(
            base_url=server.base_url, model="any", bearer_resolver=lambda: keys[-1], retry=RetryPolicy(max_retries=0)
        )
        async with Sampler(config) as sampler:
            ids: list[str] = []
            subscription = sampler.events.subscribe(
                lambda event: ids.append(event.request_id) if isinstance(event, Completed | Failed) else None
            )
            policy = TurnPolicy(auth_waits_s=(0,))
            end = await run_turn(sampler, "Why is the sky blue?", refresh_auth=refresh, policy=policy)
            subscription.dispose()
        assert text_of(end) == "It is blue."
        assert [request.headers["authorization"] for request in server.requests] == ["Bearer old", "Bearer new"]
    assert len(set(ids)) == 2  # each submission is a request of its own, told where the sampler's requests are
