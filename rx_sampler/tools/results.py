"""What a tool gave, as a model gets it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, cast

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_json

from rx_sampler.conversation import ImagePart, TextPart, ToolResultItem
from rx_sampler.errors import printable_line
from rx_sampler.functions import in_words

__all__ = ["error_result", "raised_in_words", "result_of"]

MAX_ERROR_CHARS: Final = 2000

_SECRETS: Final = (
    re.compile(r"(?i)(\bbearer\s+)[^\s\"',;]+"),
    re.compile(r"(\b(?:sk|xai|ghp|gho|xox[a-z])[-_])[A-Za-z0-9_-]{12,}"),
    re.compile(r"(?i)(\b(?:api[-_]?key|token|secret|password)[\"']?\s*[=:]\s*[\"']?)[^\s\"'&,;)]{8,}"),
    re.compile(r"(\w+://[^\s/:@]*:)[^\s/@]+(?=@)"),
)


def result_of(call_id: str, value: object) -> ToolResultItem:
    """The result that a value is.

    A str goes as it is, an `ImagePart` as an image, a list or tuple with images in it as those and the text of the
    rest, one piece a line, a `ToolResultItem` under the id of the call. All else goes as the compact JSON that pydantic
    makes of it: models, dataclasses, dicts, lists, numbers, dates; None as `null`, so that no result is empty for want
    of a value. Raises TypeError for what has no JSON.
    """
    if isinstance(value, ToolResultItem):
        return value.model_copy(update={"tool_call_id": call_id})
    if isinstance(value, list | tuple):
        pieces = tuple(cast("Iterable[object]", value))
        images = tuple(piece for piece in pieces if isinstance(piece, ImagePart))
        if images:
            rest = [_text(piece) for piece in pieces if not isinstance(piece, ImagePart)]
            return ToolResultItem(tool_call_id=call_id, content="\n".join(rest), images=images)
    if isinstance(value, ImagePart):
        return ToolResultItem(tool_call_id=call_id, content="", images=(value,))
    return ToolResultItem(tool_call_id=call_id, content=_text(cast("object", value)))


def _text(value: object) -> str:
    if isinstance(value, TextPart):
        value = value.text
    if isinstance(value, str):
        return _whole(value)
    try:
        return to_json(value, inf_nan_mode="strings").decode()
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise TypeError(
            f"a {type(value).__name__} came back, which has no JSON ({printable_line(str(error), 200)}); "
            "a tool returns text, JSON values, dataclasses, pydantic models or images"
        ) from error


def _whole(text: str) -> str:
    """A lone surrogate has no UTF-8 form and goes as U+FFFD, as it would arrive in a stream."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def error_result(call_id: str, words: str) -> ToolResultItem:
    """What went wrong, in one line of at most `MAX_ERROR_CHARS`, with what looks like a credential masked."""
    for secret in _SECRETS:
        words = secret.sub(r"\1***", words)
    return ToolResultItem(tool_call_id=call_id, content=printable_line(words, MAX_ERROR_CHARS - 1), is_error=True)


def raised_in_words(error: BaseException) -> str:
    """An exception's type and message, without where it was raised."""
    try:
        said = in_words(error, "its data") if isinstance(error, ValidationError) else str(error)
    except Exception:  # an exception whose own words raise
        said = ""
    return f"{type(error).__name__}: {said}" if said.strip() else type(error).__name__
