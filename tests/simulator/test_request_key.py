"""The key of a request: what a retry without images keeps, and what makes it another request."""

from __future__ import annotations

from typing import Any

import pytest

from rx_sampler.simulator.request_key import request_key

NOTE = "[image removed: the server did not accept it]"
DATA = "data:image/png;base64,AAAA"


def key(path: str, body: dict[str, Any] | None, raw: bytes = b"") -> str:
    return request_key(path, body, raw)


def chat(*content: object, **fields: object) -> dict[str, Any]:
    content_or_text = content[0] if len(content) == 1 and isinstance(content[0], str) else list(content)
    return {"model": "m", "messages": [{"role": "user", "content": content_or_text}], **fields}


def text(said: str, kind: str = "text", **fields: object) -> dict[str, Any]:
    return {"type": kind, "text": said, **fields}


CHAT_IMAGE = {"type": "image_url", "image_url": {"url": DATA}}
RESPONSES_IMAGE = {"type": "input_image", "image_url": DATA, "detail": "auto"}
MESSAGES_IMAGE: dict[str, Any] = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
    "cache_control": {"type": "ephemeral"},
}


def responses(content: object) -> dict[str, Any]:
    return {"model": "m", "input": [{"role": "user", "content": content}]}


def result(*content: object) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": "toolu_1", "content": list(content)}
    return {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": [block]}]}


@pytest.mark.parametrize(
    ("with_images", "without"),
    [
        (chat(text("What is this?"), CHAT_IMAGE), chat("What is this?")),
        (chat(text("What is this?"), CHAT_IMAGE), chat(f"What is this?\n{NOTE}")),
        (chat(CHAT_IMAGE, text("What is this?")), chat(f"{NOTE}\nWhat is this?")),
        (chat(text("Before"), CHAT_IMAGE, text("after")), chat(f"Before\n{NOTE}\nafter")),
        (chat(text("Two\nlines"), CHAT_IMAGE), chat(text("Two\nlines"), text(NOTE))),
        (chat(CHAT_IMAGE), chat(NOTE)),
        (responses([text("What?", "input_text"), RESPONSES_IMAGE]), responses("What?")),
        (
            responses([text("What?", "input_text"), RESPONSES_IMAGE]),
            responses([text("What?", "input_text"), text("[Image #1]", "input_text")]),
        ),
        (
            chat(text("What?"), MESSAGES_IMAGE),
            chat(text("What?"), text(NOTE, cache_control={"type": "ephemeral"})),
        ),
        (result(text("done"), MESSAGES_IMAGE), result(text("done"))),
    ],
)
def test_a_request_keeps_its_key_without_its_images(with_images: dict[str, Any], without: dict[str, Any]) -> None:
    assert key("/messages", with_images) == key("/messages", without)


@pytest.mark.parametrize(
    "other",
    [
        chat("What is that?"),
        chat("What is this? [image removed]"),
        chat("What is this?", temperature=0.5),
        {**chat("What is this?"), "model": "n"},
        {"model": "m", "messages": [*chat("What is this?")["messages"], {"role": "assistant", "content": "A cat."}]},
    ],
)
def test_another_request_has_another_key(other: dict[str, Any]) -> None:
    assert key("/messages", chat("What is this?")) != key("/messages", other)


def test_the_endpoint_is_part_of_the_key() -> None:
    assert key("/messages", chat("Hi")) != key("/chat/completions", chat("Hi"))


def test_the_order_of_fields_is_not() -> None:
    assert key("/messages", {"model": "m", "n": 1}) == key("/messages", {"n": 1, "model": "m"})


def test_a_body_that_is_no_object_is_its_own_key() -> None:
    assert key("/messages", None, b"[1]") == key("/messages", None, b"[1]") != key("/messages", None, b"[2]")


def test_a_deep_body_has_a_key() -> None:
    deep: Any = "x"
    for _ in range(5000):
        deep = [deep, 1]
    assert key("/messages", {"input": deep}, b"raw") == key("/messages", None, b"raw")


def test_odd_values_are_no_parts() -> None:
    assert key("/messages", {"a": [{"type": ["image"]}, {"type": "text", "text": 5}, None, 1.5]}) != key(
        "/messages", {"a": []}
    )
