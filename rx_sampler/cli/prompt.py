"""The question: argument, stdin, system text and images, made into one request."""

from __future__ import annotations

import base64
import mimetypes
import select
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from .options import UnusableError

if TYPE_CHECKING:
    from rx_sampler.conversation import ImagePart, SamplingRequest

__all__ = ["build_request", "read_prompt"]

PATIENCE_S = 2.0
"""How long stdin may be silent before we say that we wait for it."""


def read_prompt(argument: str | None, stdin: TextIO | None, note: Callable[[str], None]) -> str:
    """The prompt: `argument`, or what is piped into `stdin`, or both with a blank line between them.

    `-` stands for stdin alone, and a terminal is never read. `note` is told if the pipe stays silent. Empty if there
    is no prompt.
    """
    given = "" if argument in (None, "-") else str(argument)
    piped = "" if stdin is None or stdin.closed or stdin.isatty() else _read(stdin, note if given else None)
    return "\n\n".join(part for part in (given, piped) if part.strip())


def _read(stdin: TextIO, note: Callable[[str], None] | None) -> str:
    # With a prompt in hand an inherited pipe that nobody closes looks like a hang: say what is being waited for.
    if note is not None and sys.platform != "win32" and not select.select([stdin], [], [], PATIENCE_S)[0]:
        note("waiting for the end of stdin, which is part of the prompt (< /dev/null leaves it out)")
    return stdin.buffer.read().decode("utf-8-sig", errors="replace").rstrip("\r\n")


def build_request(
    prompt: str, *, system: str | None = None, images: Sequence[str] = (), **settings: object
) -> SamplingRequest:
    """One user message, with the images behind its text and the system text before it. Raises `UnusableError`."""
    from pydantic import ValidationError

    from rx_sampler.conversation import Item, SamplingRequest, SystemItem, TextPart, UserItem

    from .options import one_line

    try:
        items: list[Item] = [SystemItem(content=system)] if system else []
        items.append(UserItem(content=(TextPart(text=prompt), *(_image(image) for image in images))))
        return SamplingRequest.model_validate({"items": tuple(items), **settings})
    except ValidationError as error:
        raise UnusableError(one_line(error)) from None


def _image(source: str) -> ImagePart:
    from rx_sampler.conversation import ImagePart

    if source.startswith(("http://", "https://", "data:")):
        return ImagePart(url=source)
    try:
        content = Path(source).read_bytes()
    except OSError as error:
        raise UnusableError(f"image {source}: {error.strerror}") from None
    media_type = mimetypes.guess_type(source)[0] or ""
    if not media_type.startswith("image/"):
        raise UnusableError(f"image {source}: its name does not end like an image's (.png, .jpg, .gif, .webp)")
    return ImagePart(url=f"data:{media_type};base64,{base64.b64encode(content).decode()}")
