"""What requests share: tokens for retries, and cooldowns by host and key."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rx_sampler import RetryBudget
from rx_sampler.retry import Cooldowns, RetryTokens


def drained(tokens: RetryTokens) -> int:
    taken = 0
    while tokens.take():
        taken += 1
    return taken


def test_tokens_run_out() -> None:
    assert drained(RetryTokens(RetryBudget(capacity=3))) == 3
    assert drained(RetryTokens(RetryBudget())) == 100


def test_a_success_gives_back_what_it_took_and_one_at_least() -> None:
    tokens = RetryTokens(RetryBudget(capacity=10))
    drained(tokens)
    tokens.succeed(0)
    assert drained(tokens) == 1
    tokens.succeed(4)
    assert drained(tokens) == 4


def test_fractions_add_up_to_a_token() -> None:
    tokens = RetryTokens(RetryBudget(capacity=10, refill_per_success=0.5))
    drained(tokens)
    tokens.succeed(0)
    assert not tokens.take()
    tokens.succeed(0)
    assert tokens.take()


def test_without_a_budget_there_is_always_one() -> None:
    tokens = RetryTokens(None)
    assert all(tokens.take() for _ in range(1000))
    tokens.succeed(3)


@given(st.lists(st.one_of(st.none(), st.integers(0, 20))), st.integers(1, 30))
def test_there_are_never_more_than_the_capacity(steps: list[int | None], capacity: int) -> None:
    tokens = RetryTokens(RetryBudget(capacity=capacity))
    for step in steps:
        if step is None:
            tokens.take()
        else:
            tokens.succeed(step)
    assert drained(tokens) <= capacity


def test_a_cooldown_concerns_its_lane_only() -> None:
    cooldowns = Cooldowns()
    cooldowns.note("a", 110.0)
    assert cooldowns.remaining_s("a", 100.0) == 10.0
    assert cooldowns.remaining_s("b", 100.0) == 0.0
    assert cooldowns.remaining_s("a", 110.0) == 0.0


def test_the_longest_wait_counts() -> None:
    cooldowns = Cooldowns()
    cooldowns.note("a", 110.0)
    cooldowns.note("a", 105.0)
    assert cooldowns.remaining_s("a", 100.0) == 10.0


def test_what_is_over_is_forgotten() -> None:
    cooldowns = Cooldowns()
    cooldowns.note("a", 110.0)
    assert cooldowns.remaining_s("a", 120.0) == 0.0
    assert cooldowns.remaining_s("a", 100.0) == 0.0  # no trace of it is kept
