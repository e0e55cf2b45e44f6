"""What servers of one wire format want differently in a request: data, which an encoder reads and a preset holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["ChatDialect", "MessagesDialect", "ResponsesDialect", "ToolIdRule"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolIdRule:
    """What a server takes as the id of a tool call: characters, and how many.

    `characters` is the inside of a regular expression's character class; `length` is the exact length where the server
    insists on one, else `max_length` is the most.
    """

    characters: str | None = None
    max_length: int | None = None
    length: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatDialect:
    """How a server departs from what most servers of chat completions take.

    * `max_tokens_field`: the name of the output limit. `max_tokens` is what most know; OpenAI's reasoning models refuse
      it.
    * `reasoning_field`: the key of an assistant message under which earlier reasoning returns; None where the server
      refuses such keys.
    * `takes_reasoning_details`, `takes_extra_content`: whether `reasoning_details`, and `extra_content` beside a call,
      go back where an answer brought some.
    * `tool_result_images`: `inline` in the tool message behind its text, or in a `user_message` behind the results for
      servers whose tool messages are text alone.
    * `tool_ids`: which ids of calls it takes.
    * `includes_usage`: whether `stream_options.include_usage` may be asked for.
    * `effort_field`: how an effort is told: `reasoning_effort`, or `reasoning.effort`; None where it cannot be.
    * `takes_metadata`: whether it takes `metadata` of an answer that it does not store.
    """

    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    reasoning_field: Literal["reasoning_content", "reasoning"] | None = "reasoning_content"
    takes_reasoning_details: bool = True
    takes_extra_content: bool = True
    tool_result_images: Literal["inline", "user_message"] = "inline"
    tool_ids: ToolIdRule = ToolIdRule()
    includes_usage: bool = True
    effort_field: Literal["reasoning_effort", "reasoning.effort"] | None = "reasoning_effort"
    takes_metadata: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsesDialect:
    """How a server departs from what most servers of responses take.

    * `reasoning_summary`: the summary that is asked for where nobody said which.
    * `reasoning_needs_effort`: whether the `reasoning` object is refused by models that do not reason, so that it goes
      only with an effort or a summary that somebody set.
    * `takes_unencrypted_reasoning`: whether a reasoning item goes back whose encrypted form came as an empty string,
      from a server that has none.
    """

    reasoning_summary: Literal["auto", "concise", "detailed"] = "concise"
    reasoning_needs_effort: bool = False
    takes_unencrypted_reasoning: bool = True
    tool_ids: ToolIdRule = ToolIdRule(max_length=64)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesDialect:
    """How a server departs from what most servers of messages take.

    * `default_max_tokens`: the limit that is sent where nobody set one: the API demands one.
    * `takes_unsigned_thinking`: whether a thinking block goes back whose signature came as an empty string, from a
      server that has none.
    * `takes_thinking_last`: whether an answer that others follow may end in a thinking block, as one that was cut does.
    """

    default_max_tokens: int = 128_000
    takes_unsigned_thinking: bool = True
    takes_thinking_last: bool = True
    tool_ids: ToolIdRule = ToolIdRule(characters="A-Za-z0-9_-", max_length=64)
