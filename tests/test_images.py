"""Images out of a request (B030 to B034): the text stays, and so does the place of every part."""

from __future__ import annotations

from typing import Any, Final

from rx_sampler import SamplingRequest
from rx_sampler.images import image_urls, without_images

ONE: Final = "https://h.test/1.png"
TWO: Final = "data:image/png;base64,AAAA"


def request(*items: dict[str, Any]) -> SamplingRequest:
    return SamplingRequest.model_validate({"items": items})


def user(*parts: str) -> dict[str, Any]:
    def part(word: str) -> dict[str, str]:
        return {"type": "image", "url": word} if word in (ONE, TWO) else {"type": "text", "text": word}

    return {"type": "user", "content": [part(word) for word in parts]}


def result(*urls: str) -> dict[str, Any]:
    images = [{"type": "image", "url": url} for url in urls]
    return {"type": "tool_result", "tool_call_id": "c", "content": "seen", "images": images}


def test_b030_an_image_of_the_users_becomes_a_note() -> None:
    asked = request(user("look", ONE, "please"))
    stripped = without_images(asked)
    assert image_urls(asked) == (ONE,)
    assert image_urls(stripped) == ()
    content = stripped.model_dump()["items"][0]["content"]
    assert [part["type"] for part in content] == ["text", "text", "text"]
    assert (content[0]["text"], content[2]["text"]) == ("look", "please")
    assert "image removed" in content[1]["text"]


def test_b031_without_images_the_request_is_the_same() -> None:
    asked = request(user("look"))
    assert without_images(asked) is asked
    assert image_urls(asked) == ()


def test_b032_images_of_tool_results_go_without_a_word() -> None:
    asked = request(user("look"), result(ONE, TWO))
    assert image_urls(asked) == (ONE, TWO)
    item = without_images(asked).model_dump()["items"][1]
    assert (item["content"], "images" in item) == ("seen", False)


def test_b033_only_the_named_urls_go() -> None:
    asked = request(user(ONE, TWO, ONE), result(ONE, TWO))
    assert image_urls(without_images(asked, {ONE})) == (TWO, TWO)
    assert without_images(asked, {"https://h.test/other.png"}) is asked


def test_b034_other_items_are_left_alone() -> None:
    others = [
        {"type": "system", "content": "be brief"},
        {"type": "assistant", "content": "yes"},
        {"type": "tool_result", "tool_call_id": "c", "content": "seen"},
    ]
    stripped = without_images(request(*others, user(ONE)))
    assert stripped.items[:3] == request(*others).items


def test_a_url_is_told_as_often_as_it_stands_there() -> None:
    assert image_urls(request(user(ONE, ONE), result(ONE))) == (ONE, ONE, ONE)
