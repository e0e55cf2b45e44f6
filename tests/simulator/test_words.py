"""Tokens and sentences."""

from __future__ import annotations

from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rx_sampler.simulator.words import answer_text, count_tokens, reasoning_text, tokens


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text())
def test_tokens_are_the_text(text: str) -> None:
    assert "".join(tokens(text)) == text
    assert len(tokens(text)) == count_tokens(text)
    assert all(tokens(text))


def test_a_token_is_a_word_or_a_sign() -> None:
    assert tokens("Why is the sky blue?") == ["Why", " is", " the", " sky", " blue", "?"]
    assert tokens('{"a":1}') == ["{", '"', "a", '"', ":", "1", "}"]
    assert tokens("a \n") == ["a", " \n"]


def test_an_answer_says_what_it_is() -> None:
    assert answer_text("Why?", Random(1)).startswith('This is a simulated answer to "Why?". No model was asked.')
    assert answer_text("", Random(1)).startswith("This is a simulated answer. No model was asked.")
    assert reasoning_text("Why?", Random(1)).startswith('This is simulated reasoning about "Why?".')


def test_a_long_prompt_is_quoted_in_part() -> None:
    prompt = " ".join(f"word{number}" for number in range(100_000))
    opening = answer_text(prompt, Random(1)).split('".')[0]
    assert opening == 'This is a simulated answer to "' + " ".join(f"word{number}" for number in range(12))


def test_the_seed_decides() -> None:
    assert answer_text("Why?", Random(1)) == answer_text("Why?", Random(1))
    assert answer_text("Why?", Random(1)) != answer_text("Why?", Random(2))
