"""Taking images out of a request, for servers that refuse them: the text goes on without the picture."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final

from .conversation import ImagePart, Item, SamplingRequest, TextPart, ToolResultItem, UserItem

__all__ = ["image_urls", "without_images"]

_PLACEHOLDER: Final = TextPart(text="[image removed: the server did not accept it]")
"""Stands where an image stood, so that the model is not left wondering what the text speaks of."""


def image_urls(request: SamplingRequest) -> tuple[str, ...]:
    """The URL of every image in the request, in order, repeated ones as often as they stand there."""
    return tuple(image.url for item in request.items for image in _images(item))


def without_images(request: SamplingRequest, urls: Container[str] | None = None) -> SamplingRequest:
    """The request without its images, or without those of `urls`; the same object if there are none.

    An image of the user's becomes a text part that says so, so that no part changes its place. Images of tool results
    go without a word: the result's text stays.
    """
    if not any(urls is None or url in urls for url in image_urls(request)):
        return request
    return request.model_copy(update={"items": tuple(_stripped(item, urls) for item in request.items)})


def _images(item: Item) -> Sequence[ImagePart]:
    if isinstance(item, UserItem):
        return [part for part in item.content if isinstance(part, ImagePart)]
    return item.images if isinstance(item, ToolResultItem) else ()


def _stripped(item: Item, urls: Container[str] | None) -> Item:
    def goes(image: ImagePart) -> bool:
        return urls is None or image.url in urls

    if isinstance(item, UserItem):
        parts = [_PLACEHOLDER if isinstance(part, ImagePart) and goes(part) else part for part in item.content]
        return item.model_copy(update={"content": tuple(parts)})
    if isinstance(item, ToolResultItem) and item.images:
        return item.model_copy(update={"images": tuple(image for image in item.images if not goes(image))})
    return item
