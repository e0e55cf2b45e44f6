"""What every model of a script shares: frozen, strict, and closed to unknown fields."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

__all__ = ["FROM_LIST", "HeaderName", "HeaderValue", "StrictModel"]


class StrictModel(BaseModel):
    """A frozen model that converts nothing and refuses what it does not know."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


def _tuple_of_list(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - pydantic checks the elements


FROM_LIST: Final = BeforeValidator(_tuple_of_list)
"""A list where the strict model wants a tuple: what people write, and what JSON has, stays welcome."""

HeaderName = Annotated[str, Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]
"""A token: RFC 9110, section 5.6.2."""

HeaderValue = Annotated[str, Field(pattern=r"^[^\x00-\x08\x0a-\x1f\x7f]*$")]
"""Anything but control characters, of which line ends would start another header."""
