"""What the simulated model says: request, seed and turn in, one whole `Answer` out, before a byte is framed.

Everything is derived from the seed and the request without its streaming options, so an answer is the same streamed
and whole, today and tomorrow, identifiers included.
"""

from __future__ import annotations

import json
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from random import Random
from typing import Final

from .asks import Ask
from .json_tools import JsonObject, as_object, dumps
from .schema_values import value_of_schema
from .script import StopReason, ToolCall, Turn
from .words import answer_text, reasoning_text, tokens

__all__ = ["ALPHANUMERIC", "Answer", "Call", "Choice", "Counts", "Derivation", "fill"]

_STREAMING_OPTIONS: Final = frozenset({"stream", "stream_options"})
ALPHANUMERIC: Final = string.ascii_letters + string.digits


class Derivation:
    """Identifiers and chance that depend on the seed and the request alone, each by its own label."""

    def __init__(self, seed: int, path: str, body: JsonObject) -> None:
        asked = {name: value for name, value in body.items() if name not in _STREAMING_OPTIONS}
        canonical = json.dumps(asked, sort_keys=True, separators=(",", ":"))
        self._key = sha256(f"{seed}|{path}|{canonical}".encode()).hexdigest()

    def random(self, label: str) -> Random:
        """A generator of its own for this use."""
        return Random(f"{self._key}|{label}")  # noqa: S311 - chance for a simulation, no secret

    def identifier(self, label: str, length: int, alphabet: str = ALPHANUMERIC) -> str:
        """`length` characters that look random."""
        return "".join(self.random(label).choices(alphabet, k=length))

    def hexadecimal(self, label: str, length: int) -> str:
        """The same in lower-case hexadecimal digits."""
        return self.identifier(label, length, "0123456789abcdef")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call: its arguments as deltas of JSON text, cut short if the token limit fell inside them."""

    id: str | None
    name: str
    deltas: tuple[str, ...]

    @property
    def arguments(self) -> str:
        return "".join(self.deltas)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One of the answers to a request: each channel as the deltas it is streamed in."""

    reasoning: tuple[str, ...]
    text: tuple[str, ...]
    refusal: tuple[str, ...]
    calls: tuple[Call, ...]
    annotations: tuple[JsonObject, ...]
    stop_reason: StopReason
    stop_sequence: str | None
    token_count: int
    reasoning_token_count: int
    shows_reasoning: bool

    @property
    def whole_reasoning(self) -> str:
        return "".join(self.reasoning)

    @property
    def whole_text(self) -> str:
        return "".join(self.text)

    @property
    def whole_refusal(self) -> str:
        return "".join(self.refusal)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Tokens as reported. `input_tokens` includes the cache, `output_tokens` includes reasoning."""

    input_tokens: int
    output_tokens: int
    reasoning_tokens: int
    cached_input_tokens: int
    cache_creation_input_tokens: int

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    @property
    def uncached_input_tokens(self) -> int:
        return self.input_tokens - self.cached_input_tokens - self.cache_creation_input_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """All that a response holds; `created` is in Unix seconds.

    `doom_triggers` are the labels that check frames and the terminal event name.
    """

    choices: tuple[Choice, ...]
    counts: Counts
    created: int
    derivation: Derivation = field(repr=False)
    doom_triggers: tuple[str, ...] = ()

    @property
    def token_count(self) -> int:
        """The tokens that were really generated, which set the pace."""
        return sum(choice.token_count for choice in self.choices)


def fill(
    ask: Ask, turn: Turn, *, seed: int, derivation: Derivation, created: int, doom_loop_armed: bool = False
) -> Answer:
    """The whole answer to one request: the turn where it says something, generated where it does not."""
    choices = tuple(_choice(ask, turn, index, seed=seed, derivation=derivation) for index in range(ask.choices))
    doomed = doom_loop_armed and turn.fault is not None and turn.fault.kind == "doom_loop"
    return Answer(
        choices=choices,
        counts=_counts(ask, turn, choices),
        created=created,
        derivation=derivation,
        doom_triggers=turn.fault.triggers if doomed and turn.fault else (),
    )


class _Budget:
    """The tokens still allowed: what is taken beyond them is cut, and `spent` remembers it."""

    def __init__(self, limit: int | None) -> None:
        self._left = limit
        self.used = 0
        self.is_cut = False

    def take(self, text: str) -> str:
        pieces = tokens(text)
        if self._left is not None and len(pieces) > self._left:
            pieces, self.is_cut = pieces[: self._left], True
        if self._left is not None:
            self._left -= len(pieces)
        self.used += len(pieces)
        return "".join(pieces)


def _choice(ask: Ask, turn: Turn, index: int, *, seed: int, derivation: Derivation) -> Choice:
    # The words depend on seed and prompt only: the same question reads the same in all three wire formats.
    words_key = sha256(f"{seed}|{index}|{ask.prompt}".encode("utf-8", "surrogatepass")).hexdigest()
    chance = Random(words_key)  # noqa: S311 - chance for a simulation, no secret
    called = _tool_calls(ask, turn, derivation.random(f"calls {index}"))
    text, stop_sequence = _until_stop(_text(ask, turn, called, chance), ask.stop)
    calls_follow = stop_sequence is None

    budget = _Budget(ask.max_output_tokens)
    reasoning = budget.take(_reasoning(ask, turn, chance))
    reasoning_used = budget.used
    text = budget.take(text) if not budget.is_cut else ""
    refusal = budget.take(turn.refusal or "") if not budget.is_cut else ""
    calls: list[Call] = []
    for call in called if calls_follow else ():
        if budget.is_cut:
            break
        arguments = budget.take(dumps(call.arguments))
        if arguments:
            calls.append(Call(id=call.id, name=call.name, deltas=_deltas(arguments, turn.delta_chars)))

    stop_reason: StopReason = "tool_calls" if calls else "stop"
    return Choice(
        reasoning=_deltas(reasoning, turn.delta_chars),
        text=_deltas(text, turn.delta_chars),
        refusal=_deltas(refusal, turn.delta_chars),
        calls=tuple(calls),
        annotations=turn.annotations,
        stop_reason="length" if budget.is_cut else turn.stop_reason or stop_reason,
        stop_sequence=None if budget.is_cut else stop_sequence,
        token_count=budget.used,
        reasoning_token_count=reasoning_used,
        shows_reasoning=ask.shows_reasoning or turn.reasoning is not None,
    )


def _reasoning(ask: Ask, turn: Turn, chance: Random) -> str:
    if turn.reasoning is not None:
        return turn.reasoning
    return reasoning_text(ask.prompt, chance) if ask.wants_reasoning else ""


def _text(ask: Ask, turn: Turn, called: Sequence[ToolCall], chance: Random) -> str:
    if turn.text is not None:
        return turn.text
    if called or turn.refusal is not None:
        return ""
    if ask.json_schema is not None:
        return dumps(value_of_schema(ask.json_schema, chance))
    return answer_text(ask.prompt, chance)


def _tool_calls(ask: Ask, turn: Turn, chance: Random) -> tuple[ToolCall, ...]:
    if turn.tool_calls is not None:
        return turn.tool_calls
    # A turn that is scripted to say or refuse something says that, whatever tools the request has.
    if not ask.called_tools or turn.text is not None or turn.refusal is not None:
        return ()
    tool = chance.choice(ask.called_tools)
    arguments = as_object(value_of_schema({"type": "object", **tool.schema}, chance)) or {}
    return (ToolCall(name=tool.name, arguments=arguments),)


def _until_stop(text: str, stop: Iterable[str]) -> tuple[str, str | None]:
    """The text before the first stop sequence in it, and which one that was."""
    found = [(place, sequence) for sequence in stop if (place := text.find(sequence)) >= 0]
    if not found:
        return text, None
    place, sequence = min(found)
    return text[:place], sequence


def _deltas(text: str, delta_chars: int | None) -> tuple[str, ...]:
    if delta_chars is None:
        return tuple(tokens(text))
    return tuple(text[start : start + delta_chars] for start in range(0, len(text), delta_chars))


def _counts(ask: Ask, turn: Turn, choices: Iterable[Choice]) -> Counts:
    said = tuple(choices)
    usage = turn.usage
    cached = usage.cached_input_tokens if usage else 0
    created = usage.cache_creation_input_tokens if usage else 0
    output = usage.output_tokens if usage else None
    reasoning = usage.reasoning_tokens if usage else None
    asked = usage.input_tokens if usage else None
    return Counts(
        input_tokens=ask.input_tokens + cached + created if asked is None else asked,
        output_tokens=sum(choice.token_count for choice in said) if output is None else output,
        reasoning_tokens=sum(choice.reasoning_token_count for choice in said) if reasoning is None else reasoning,
        cached_input_tokens=cached,
        cache_creation_input_tokens=created,
    )
