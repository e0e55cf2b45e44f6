"""The decision table: every row, in order, and its waits. Numbers such as B233 are the original's behaviours."""

from __future__ import annotations

from typing import Any

import pytest

from rx_sampler import Action, DoomLoopPolicy, RetryPolicy, RetryState, SamplingError, SamplingErrorKind, classify
from rx_sampler.errors import is_retryable_status
from rx_sampler.retry import TABLE
from rx_sampler.wire.error_bodies import read_error, refusal

POLICY = RetryPolicy()


def status(code: int, body: object = None, **hints: Any) -> SamplingError:
    return refusal(read_error(body), status=code, **hints)


def in_stream(**fields: str) -> SamplingError:
    return refusal(read_error({"error": fields}))


def failure(kind: SamplingErrorKind, *, retryable: bool = False, code: str | None = None) -> SamplingError:
    return SamplingError.of(kind, "it failed", code=code, is_retryable=retryable)


def decide(error: SamplingError, policy: RetryPolicy = POLICY, **state: Any) -> tuple[Action, float, float]:
    decision = classify(error, RetryState(**state), policy, DoomLoopPolicy())
    return decision.action, round(decision.min_wait_s, 9), round(decision.max_wait_s, 9)


FATAL = (Action.FATAL, 0.0, 0.0)
TO_SESSION = (Action.HAND_TO_SESSION, 0.0, 0.0)
STRIP = (Action.STRIP_IMAGES, 0.0, 0.0)
BROKEN = failure(SamplingErrorKind.HTTP, retryable=True)
EMPTY = failure(SamplingErrorKind.EMPTY_RESPONSE, retryable=True)
DOOMED = failure(SamplingErrorKind.DOOM_LOOP_DETECTED, retryable=True)
NO_PICTURE = "Could not process image"


def test_every_row_of_the_table_can_decide() -> None:
    cases: dict[str, tuple[SamplingError, dict[str, Any]]] = {
        "credential refused": (status(401), {}),
        "encrypted reasoning refused": (status(400, {"error": {"message": "bad encrypted_content"}}), {}),
        "retries are off": (status(500), {"policy": RetryPolicy(max_retries=0)}),
        "output was seen": (
            BROKEN,
            {"policy": RetryPolicy(retry_only_before_output=True), "output_observed": True},
        ),
        "doom loop budget spent": (DOOMED, {"doom_loop_retries": 2}),
        "doom loop": (DOOMED, {}),
        "image refused": (status(413), {"has_images": True}),
        "image refused, none left": (status(413), {}),
        "not retryable": (status(404), {}),
        "retries spent": (status(500), {"retries": 15}),
        "rate limited again": (status(429), {"rate_limits_in_row": 1}),
        "wait too long": (status(429, retry_after_s=121.0), {}),
        "rate limited": (status(429), {}),
        "first retry": (status(500), {}),
        "retryable": (status(500), {"rebuilt": True}),
    }
    assert list(cases) == [rule.name for rule in TABLE]
    for name, (error, given) in cases.items():
        state: dict[str, Any] = dict(given)
        policy = state.pop("policy", POLICY)
        assert classify(error, RetryState(**state), policy, DoomLoopPolicy()).rule == name


def test_the_decision_is_pure() -> None:
    error, state = status(503, retry_after_s=3.0), RetryState(retries=2)
    assert classify(error, state, POLICY) == classify(error.info, state, POLICY)


# -- handed on


def test_b233_a_refused_credential_goes_to_the_session() -> None:
    assert decide(status(401)) == TO_SESSION
    assert decide(failure(SamplingErrorKind.AUTH)) == TO_SESSION
    assert decide(status(401), RetryPolicy(max_retries=0)) == TO_SESSION
    assert decide(status(403)) == FATAL


def test_b234_foreign_encrypted_reasoning_goes_to_the_session() -> None:
    body = {"error": {"message": "could not decrypt encrypted_content", "code": "x"}}
    assert decide(status(400, body)) == TO_SESSION
    assert decide(status(500, body))[0] is Action.REBUILD_CLIENT


# -- images


@pytest.mark.parametrize(
    "error",
    [
        status(413),
        status(400, {"error": {"message": NO_PICTURE}}),
        status(500, {"error": {"message": f"oops: {NO_PICTURE.lower()} 3"}}),
        status(400, {"error": {"message": "messages.0.content.1.image.source.base64: too many bytes"}}),
        status(400, {"error": {"message": "no", "code": "invalid_image"}}, should_retry=False),  # B236
        status(400, {"error": {"message": "no", "code": "payload_too_large"}}),
        in_stream(message="no", code="invalid_image"),  # B237
        in_stream(message="too big", type="request_too_large"),
    ],
    ids=lambda error: str(error)[:40],
)
def test_b235_b236_b237_a_refused_image_is_taken_out(error: SamplingError) -> None:
    assert decide(error, has_images=True) == STRIP
    assert decide(error, has_images=True, retries=99) == STRIP  # never blocked by the budget
    assert decide(error) == FATAL
    assert decide(error, RetryPolicy(max_retries=0), has_images=True) == FATAL  # B242


def test_b237_words_inside_a_stream_are_no_evidence() -> None:
    told = in_stream(message=NO_PICTURE, type="invalid_request_error")
    assert decide(told, has_images=True, stream_started=True) == FATAL
    assert decide(in_stream(type="overloaded_error", message="busy"), has_images=True)[0] is Action.REBUILD_CLIENT


def test_b238_other_statuses_with_the_words_are_no_image_errors() -> None:
    for code in (502, 503):
        error = status(code, {"error": {"message": NO_PICTURE, "code": "invalid_image"}})
        assert decide(error, has_images=True)[0] is Action.REBUILD_CLIENT
    assert decide(status(415, {"error": {"message": NO_PICTURE}}), has_images=True) == FATAL


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (status(400, {"error": {"message": "no", "code": "invalid_image"}}), "server_rejected"),
        (status(500, {"error": {"message": "no", "code": "invalid_image"}}), "payload_heuristic"),
        (status(400, {"error": {"message": NO_PICTURE}}), "payload_heuristic"),
        (status(413), "payload_heuristic"),
    ],
)
def test_b259_b260_only_one_answer_names_the_image(error: SamplingError, reason: str) -> None:
    assert classify(error, RetryState(has_images=True), POLICY).strip == reason


def test_b254_what_breaks_the_upload_costs_the_images() -> None:
    broken = failure(SamplingErrorKind.HTTP, retryable=True, code="upload_broken")
    assert classify(broken, RetryState(has_images=True), POLICY).strip == "payload_heuristic"
    assert classify(broken, RetryState(), POLICY).strip is None
    assert classify(broken, RetryState(has_images=True), RetryPolicy(max_retries=0)).strip is None
    for other in (BROKEN, failure(SamplingErrorKind.IDLE_TIMEOUT), status(413), status(500)):
        decision = classify(other, RetryState(has_images=True), POLICY)
        assert decision.strip is None or decision.action is Action.STRIP_IMAGES


# -- rate limits


def test_b239_a_rate_limit_waits_as_long_as_it_says() -> None:
    assert decide(status(429, retry_after_s=7.0), RetryPolicy(max_retries=5)) == (Action.RETRY_WITH_BACKOFF, 7.0, 7.0)
    assert decide(status(429)) == (Action.RETRY_WITH_BACKOFF, 1.6, 2.4)
    assert decide(status(429, retry_after_s=0.0)) == (Action.RETRY_WITH_BACKOFF, 0.0, 0.0)


def test_b240_the_second_rate_limit_in_a_row_is_final() -> None:
    assert decide(status(429), rate_limits_in_row=1) == FATAL
    assert decide(status(429), retries=7)[0] is Action.RETRY_WITH_BACKOFF  # other failures lie between
    assert decide(status(429), RetryPolicy(rate_limit_threshold=1)) == FATAL
    assert decide(status(429), RetryPolicy(rate_limit_threshold=4), rate_limits_in_row=2)[0] is (
        Action.RETRY_WITH_BACKOFF
    )


def test_b241_the_verdict_of_the_server_counts() -> None:
    assert decide(status(429, should_retry=False)) == FATAL
    assert decide(status(429, {"error": {"message": "no money", "code": "insufficient_quota"}})) == FATAL


def test_b246_waits_that_servers_ask_for() -> None:
    assert decide(status(429, retry_after_s=120.0)) == (Action.RETRY_WITH_BACKOFF, 120.0, 120.0)
    assert decide(status(429, retry_after_s=120.5)) == FATAL  # rather than to sleep for longer than the cap
    action, low, high = decide(status(522, retry_after_s=120.0), rebuilt=True, retries=1)
    assert (action, low, high) == (Action.RETRY, 30.0, 36.0)  # within the original's 24 to 36 s, never too early
    assert decide(status(503, retry_after_s=0.0)) == (Action.REBUILD_CLIENT, 0.0, 0.0)


# -- the ordinary retry


def test_b232_waits_double_up_to_the_cap() -> None:
    waits = [decide(status(500), retries=n, rebuilt=True)[1:] for n in range(7)]
    assert waits == [(1.6, 2.4), (3.2, 4.8), (6.4, 9.6), (12.8, 19.2), (24.0, 36.0), (24.0, 36.0), (24.0, 36.0)]


@pytest.mark.parametrize(
    ("policy", "waits"),
    [
        (RetryPolicy(initial_backoff_s=0, jitter=0), [0, 0, 0]),
        (RetryPolicy(initial_backoff_s=50, jitter=0), [30, 30, 30]),
        (RetryPolicy(initial_backoff_s=0.5, max_backoff_s=1.7, jitter=0), [0.5, 1.0, 1.7, 1.7]),
        (RetryPolicy(initial_backoff_s=1e-300, max_backoff_s=1.0, jitter=0), [1e-300, 2e-300]),
    ],
)
def test_other_schedules(policy: RetryPolicy, waits: list[float]) -> None:
    found = [classify(status(500), RetryState(retries=n), policy).min_wait_s for n in range(len(waits))]
    assert found == waits
    assert classify(status(500), RetryState(retries=14), policy).min_wait_s <= policy.max_backoff_s


def test_b243_the_first_retry_rebuilds_the_client() -> None:
    policy = RetryPolicy(max_retries=5)
    assert decide(status(500), policy) == (Action.REBUILD_CLIENT, 1.6, 2.4)
    assert decide(status(502), policy, retries=1, rebuilt=True) == (Action.RETRY, 3.2, 4.8)
    # five retries are five: the original would have stopped here already
    assert decide(status(503), policy, retries=4, rebuilt=True)[0] is Action.RETRY
    assert decide(status(503), policy, retries=5, rebuilt=True) == FATAL
    # also where the first retry of all answered a rate limit
    assert decide(status(500), policy, retries=1) == (Action.REBUILD_CLIENT, 3.2, 4.8)


def test_b244_gateway_timeouts() -> None:
    assert decide(status(522))[0] is Action.REBUILD_CLIENT
    assert decide(status(522), retries=1, rebuilt=True)[0] is Action.RETRY


@pytest.mark.parametrize("hint", [None, True])
def test_b245_broken_tls_at_the_origin_is_final(hint: bool | None) -> None:
    assert decide(status(525, should_retry=hint)) == FATAL
    assert decide(status(526, should_retry=hint)) == FATAL


@pytest.mark.parametrize("error", [BROKEN, in_stream(message="?"), in_stream(type="server_error"), EMPTY])
def test_b247_what_time_may_mend(error: SamplingError) -> None:
    assert decide(error)[0] is Action.REBUILD_CLIENT


@pytest.mark.parametrize(
    "error",
    [
        failure(SamplingErrorKind.IDLE_TIMEOUT),
        failure(SamplingErrorKind.INVALID_REQUEST),
        failure(SamplingErrorKind.SERIALIZATION),
        failure(SamplingErrorKind.MAX_TOKENS_TRUNCATION),
        failure(SamplingErrorKind.CANCELLED),
        status(400),
        status(501),
        status(505),
        in_stream(type="invalid_request_error", message="no"),
    ],
    ids=lambda error: str(error)[:30],
)
def test_b248_what_time_will_not_mend(error: SamplingError) -> None:
    assert decide(error) == FATAL


@pytest.mark.parametrize("code", [408, 409])
def test_conflicts_and_request_timeouts_are_retried(code: int) -> None:
    assert decide(status(code))[0] is Action.REBUILD_CLIENT


def test_b249_the_server_may_forbid_a_retry_but_not_ask_for_one() -> None:
    assert decide(status(500, should_retry=False)) == FATAL
    assert decide(status(500, should_retry=True))[0] is Action.REBUILD_CLIENT
    assert decide(status(400, should_retry=True)) == FATAL


@pytest.mark.parametrize(
    "text",
    [
        "This model's maximum prompt length is 5 but the request contains 6",
        "prompt is too long: 300000 tokens > 200000 maximum",
        "Current message (600000) exceeds budget (500000)",
        "internal: PROMPT IS TOO LONG for this",
        "input is too long for this model",
        "maximum context length is 8192 tokens",
        "failed with context_length_exceeded",
    ],
)
def test_b250_a_conversation_that_is_too_long_stays_too_long(text: str) -> None:
    for code in (400, 500, 529):
        error = status(code, {"error": {"message": text}})
        assert error.info.is_context_overflow
        assert decide(error) == FATAL
    assert decide(in_stream(message=text)) == FATAL


@pytest.mark.parametrize(
    "text",
    [
        "rate limited",
        "connection reset",
        "Attached file content (9) causes message to exceed budget",
        "compact index estimate 2.0 GB exceeds budget 1.0 GB",
    ],
)
def test_b250_other_words_are_no_overflow(text: str) -> None:
    error = status(500, {"error": {"message": text}})
    assert not error.info.is_context_overflow
    assert decide(error)[0] is Action.REBUILD_CLIENT


@pytest.mark.parametrize("error", [status(500), status(413), EMPTY, DOOMED, BROKEN, status(429)])
def test_b242_b292_no_retries_means_none(error: SamplingError) -> None:
    assert decide(error, RetryPolicy(max_retries=0), has_images=True) == FATAL


# -- doom loops


def test_b251_a_doom_loop_has_a_budget_of_its_own() -> None:
    for retries in (0, 5, 99):
        assert decide(DOOMED, retries=retries) == (Action.RETRY, 0.0, 0.25)
    assert classify(DOOMED, RetryState(), POLICY, DoomLoopPolicy()).budget == "doom_loop"
    assert decide(DOOMED, doom_loop_retries=2) == FATAL
    assert decide(status(500), doom_loop_retries=2)[0] is Action.REBUILD_CLIENT
    assert classify(DOOMED, RetryState(), POLICY).action is Action.FATAL  # nobody asked for it


# -- output


@pytest.mark.parametrize("error", [BROKEN, DOOMED, EMPTY, status(413)])
def test_b269_after_output_nothing_is_repeated_if_so_asked(error: SamplingError) -> None:
    careful = RetryPolicy(retry_only_before_output=True)
    assert decide(error, careful, output_observed=True, has_images=True) == FATAL
    assert decide(error, careful, has_images=True) != FATAL
    assert decide(error, output_observed=True, has_images=True) != FATAL


def test_b022_statuses_that_time_may_mend() -> None:
    retried = {408, 409, 429, 500, 502, 503, 504, 507, 520, 521, 522, 523, 524, 529, 530}
    assert {code for code in range(400, 600) if is_retryable_status(code)} >= retried
    assert not {code for code in (400, 401, 403, 404, 413, 422, 501, 505, 525, 526) if is_retryable_status(code)}
