"""An independent judge for request bodies: the parameter types that the providers' own clients publish."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, cast

from pydantic import BaseModel, TypeAdapter

from rx_sampler.conversation import JsonObject


def as_published(params: Any, body: JsonObject) -> JsonObject:
    """Read a body as a published `TypedDict`: raises on a wrong shape, and drops keys that the type does not have.

    So a result equal to the body says that every key and every value of it is part of the provider's API.
    """
    return _plain(_adapter(params).validate_python(body))


@cache  # building one takes up to 0.3 s, and what it validates lazily panics once the adapter itself is gone
def _adapter(params: Any) -> TypeAdapter[JsonObject]:
    return TypeAdapter(params)


def _plain(value: object) -> Any:
    if isinstance(value, BaseModel):  # of an answer, which Anthropic's type takes back as it came
        value = value.model_dump(exclude_unset=True)
    # pydantic validates an Iterable only while it is read: reading it all is part of the check.
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in cast("Mapping[str, object]", value).items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_plain(item) for item in cast("Iterable[object]", value)]
    return value
