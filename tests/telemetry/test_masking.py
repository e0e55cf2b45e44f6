"""Quotations taken out of messages, image data taken out of content."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rx_sampler import SamplingRequest
from rx_sampler.telemetry.masking import masked, texts_of, with_short_images

LONG = "The quick brown fox jumps over the lazy dog while the band plays on."


@pytest.mark.parametrize(
    ("message", "texts", "expected"),
    [
        ("model m is unknown", ["something else entirely"], "model m is unknown"),
        ("cannot parse 'SECRET42' here", ["SECRET42"], "cannot parse '[...]' here"),
        ("SECRET42SECRET42", ["SECRET42"], "[...][...]"),
        ("too short to mind: word", ["word"], "too short to mind: word"),
        (f"got {LONG}!", [LONG], "got [...]!"),
        (f"got {LONG[5:50]}... at 3", [LONG * 3], "got [...]... at 3"),
        (f"{LONG[:40]} and {LONG[:40]}", [LONG], "[...] and [...]"),
        ("", [LONG], ""),
        (LONG, [], LONG),
    ],
)
def test_quotations(message: str, texts: list[str], expected: str) -> None:
    assert masked(message, texts) == expected


@given(
    text=st.text("abcdefgh", min_size=31, max_size=400),
    before=st.text("XYZ", max_size=40),
    after=st.text("XYZ", max_size=40),
    data=st.data(),
)
def test_any_passage_of_31_characters_is_found_and_nothing_else_is_taken(
    text: str, before: str, after: str, data: st.DataObject
) -> None:
    length = data.draw(st.integers(31, len(text)))
    start = data.draw(st.integers(0, len(text) - length))
    assert masked(f"{before}{text[start : start + length]}{after}", [text]) == f"{before}[...]{after}"


def test_the_texts_of_a_conversation() -> None:
    request = SamplingRequest.model_validate(
        {
            "items": [
                {"type": "system", "content": "system text"},
                {
                    "type": "user",
                    "content": [
                        {"type": "text", "text": "user text"},
                        {"type": "image", "url": "https://img.test/a.png"},
                        {"type": "image", "url": "data:image/png;base64," + "A" * 5000},
                    ],
                },
                {
                    "type": "assistant",
                    "content": "said",
                    "tool_calls": [{"id": "call-1", "name": "look_up", "arguments": '{"q": "args"}'}],
                },
                {"type": "tool_result", "tool_call_id": "call-1", "content": "result text"},
                {"type": "reasoning", "text": "thought", "summary": ["short thought"]},
                {"type": "opaque", "wire": {"type": "approval", "deep": [{"why": "wire text"}, 7, None]}},
            ]
        }
    )
    found = [text for text in texts_of(request.items) if text]
    assert found == [
        "system text",
        "user text",
        "https://img.test/a.png",
        ("data:image/png;base64," + "A" * 5000)[:256],
        "said",
        '{"q": "args"}',
        "result text",
        "thought",
        "short thought",
        "wire text",
    ]


def test_images_are_cut_wherever_they_stand() -> None:
    uri = "data:image/png;base64," + "iVBOR" * 100
    short = "data:image/png;base64,...(500 characters)"
    document = {"a": [uri, {"b": f"![x]({uri}) and {uri}"}], "n": 1, "t": "data: nothing, really"}
    assert with_short_images(document) == {
        "a": [short, {"b": f"![x]({short}) and {short}"}],
        "n": 1,
        "t": "data: nothing, really",
    }


def test_a_long_conversation_is_searched_in_linear_time() -> None:
    def cost_s(length: int) -> float:
        text, message = "the message was " * (length // 16), "the maximum context length is 128000 tokens. " * 11
        began = time.process_time()
        masked(message, [text])
        return time.process_time() - began

    # 16 times the text: linear is 16 times the time, quadratic 256 times; the floor is for the clock's grain.
    assert min(cost_s(4_000_000) for _ in range(3)) < 64 * max(min(cost_s(250_000) for _ in range(3)), 1e-4)
