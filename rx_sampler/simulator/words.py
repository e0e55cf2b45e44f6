"""Tokens and sentences: how text is counted, and what a simulated answer says.

One token is one word-ish piece with the space before it: up to twelve letters or digits, or one other character.
That is near enough to real tokenizers for pacing, and every count is the same on every machine.
"""

from __future__ import annotations

import re
from random import Random

__all__ = ["answer_text", "count_tokens", "reasoning_text", "tokens"]

_TOKEN = re.compile(r"\s*(?:\w{1,12}|[^\w\s])|\s+")

_EXCERPT_WORDS, _EXCERPT_CHARS = 12, 80
"""How much of the prompt an answer quotes."""

_OPENERS = ("In this rehearsal", "As a stand-in", "For the sake of the test", "Meanwhile", "Step by step", "In short")
_SUBJECTS = ("the stream", "a patient reader", "the client", "this paragraph", "the generator", "each delta")
_VERBS = ("carries", "repeats", "measures", "follows", "counts", "exercises")
_ADJECTIVES = ("plain", "seeded", "quiet", "ordinary", "invented", "harmless")
_OBJECTS = ("words", "tokens", "phrases", "pieces", "sentences", "letters")
_CLOSERS = ("and nothing more", "one after another", "without any model", "at the set pace", "from the seed alone")

_LEAST_SENTENCES, _MOST_SENTENCES = 3, 6


def tokens(text: str) -> list[str]:
    """The pieces of a text; joined they are the text."""
    return _TOKEN.findall(text)


def count_tokens(text: str) -> int:
    """How many tokens a text is."""
    return sum(1 for _ in _TOKEN.finditer(text))


def answer_text(prompt: str, random: Random) -> str:
    """An answer that says that it is none: what was asked, that no model ran, then some sentences by chance."""
    about = _excerpt(prompt)
    opening = f'This is a simulated answer to "{about}".' if about else "This is a simulated answer."
    sentences = [_sentence(random) for _ in range(random.randint(_LEAST_SENTENCES, _MOST_SENTENCES))]
    return " ".join([opening, "No model was asked.", *sentences])


def reasoning_text(prompt: str, random: Random) -> str:
    """Reasoning of the same kind."""
    about = _excerpt(prompt)
    opening = f'This is simulated reasoning about "{about}".' if about else "This is simulated reasoning."
    return " ".join([opening, *(_sentence(random) for _ in range(random.randint(1, 3)))])


def _excerpt(prompt: str) -> str:
    words = prompt[: _EXCERPT_CHARS * 8].split()[:_EXCERPT_WORDS]
    return " ".join(words)[:_EXCERPT_CHARS].strip()


def _sentence(random: Random) -> str:
    return (
        f"{random.choice(_OPENERS)}, {random.choice(_SUBJECTS)} {random.choice(_VERBS)} "
        f"{random.choice(_ADJECTIVES)} {random.choice(_OBJECTS)}, {random.choice(_CLOSERS)}."
    )
