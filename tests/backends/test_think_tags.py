"""Think tags inside text: however they are cut, nothing is lost and nothing waits for long."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rx_sampler.backends.think_tags import ThinkTagSplitter

LONGEST_HOLD = len("</think>") - 1  # one more character decides whether it was a tag


def split(pieces: list[str]) -> list[tuple[str, str]]:
    """Channel and text of what comes out, runs of one channel joined."""
    splitter = ThinkTagSplitter({})
    out = [entry for piece in pieces for entry in splitter.feed(piece)] + splitter.finish()
    assert all(text for _, text in out)
    runs: list[tuple[str, str]] = []
    for channel, text in out:
        if runs and runs[-1][0] == channel:
            runs[-1] = (channel, runs[-1][1] + text)
        else:
            runs.append((channel, text))
    return runs


CASES: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "no tags": ("plain text", [("text", "plain text")]),
    "tags": ("<think>plan</think>go", [("reasoning", "plan"), ("text", "go")]),
    "text before": ("So: <think>plan</think> go", [("text", "So: "), ("reasoning", "plan"), ("text", " go")]),
    "two blocks": (
        "<think>a</think>b<think>c</think>d",
        [("reasoning", "a"), ("text", "b"), ("reasoning", "c"), ("text", "d")],
    ),
    "empty block": ("<think></think>go", [("text", "go")]),
    "never closed": ("<think>plan", [("reasoning", "plan")]),
    "orphan closing tag": ("</think>go", [("text", "go")]),
    "orphan after white space": ("\n\n</think>go", [("text", "\n\ngo")]),
    "closing tag in text": ("go</think>on", [("text", "go</think>on")]),
    "closing tag after a block": ("<think>a</think>b</think>c", [("reasoning", "a"), ("text", "b</think>c")]),
    "opening tag inside": ("<think>a<think>b</think>c", [("reasoning", "a<think>b"), ("text", "c")]),
    "not quite a tag": ("a < b <thin> <think", [("text", "a < b <thin> <think")]),
    "not quite a closing tag": ("<think>a</thin></think", [("reasoning", "a</thin></think")]),
    "a tag after a beginning of one": ("<<think>a", [("text", "<"), ("reasoning", "a")]),
    "a beginning within a beginning": ("<th<think>a", [("text", "<th"), ("reasoning", "a")]),
    "other letters": ("<Think>a</Think>", [("text", "<Think>a</Think>")]),
    "nothing": ("", []),
}


@pytest.mark.parametrize(("text", "wanted"), CASES.values(), ids=CASES.keys())
def test_every_split(text: str, wanted: list[tuple[str, str]]) -> None:
    assert split([text]) == wanted
    assert split(list(text)) == wanted
    for points in [*combinations(range(len(text) + 1), 1), *combinations(range(len(text) + 1), 2)]:
        cuts = [0, *points, len(text)]
        assert split([text[a:b] for a, b in pairwise(cuts)]) == wanted, points


@pytest.mark.parametrize("held", ["<", "<t", "<think", "</", "</think"])
def test_what_may_become_a_tag_is_held_and_flushed(held: str) -> None:
    splitter = ThinkTagSplitter({})
    assert splitter.feed(f" \n{held}") == [("text", " \n")]
    assert splitter.finish() == [("text", held)]
    assert splitter.finish() == []


def test_a_closing_tag_is_no_longer_expected_once_text_came() -> None:
    splitter = ThinkTagSplitter({})
    assert splitter.feed("a</thi") == [("text", "a</thi")]


@given(
    st.lists(
        st.one_of(st.sampled_from(["<think>", "</think>", "<", "</", "<thi", "nk>", ">", " "]), st.text(max_size=6)),
        max_size=12,
    )
)
def test_nothing_is_lost_however_cut(pieces: list[str]) -> None:
    out_of_all = split(pieces)
    whole = "".join(pieces)
    kept = "".join(text for _, text in out_of_all)
    assert _without_tags(kept) == _without_tags(whole)
    assert split(list(whole)) == out_of_all


@given(st.text(alphabet="<>/think ab", max_size=30))
def test_no_more_is_held_than_the_beginning_of_a_tag(text: str) -> None:
    """Fed one by one, all but a few characters at the end have come out as text or gone as tags."""
    splitter = ThinkTagSplitter({})
    came = ""
    for at, character in enumerate(text, start=1):
        came += "".join(piece for _, piece in splitter.feed(character))
        fresh = ThinkTagSplitter({})
        known = "".join(piece for _, piece in [*fresh.feed(text[:at]), *fresh.finish()])
        held = known.removeprefix(came)
        assert known.startswith(came)
        assert len(held) <= LONGEST_HOLD
        assert held == "" or "<think>".startswith(held) or "</think>".startswith(held)


@given(st.text(max_size=40).filter(lambda text: "<think>" not in text and "</think>" not in text))
def test_text_without_tags_is_untouched(text: str) -> None:
    assert split(list(text)) == ([("text", text)] if text else [])


def _without_tags(text: str) -> str:
    """The text without any tag, also such as the loss of another has put together."""
    while (bare := text.replace("<think>", "").replace("</think>", "")) != text:
        text = bare
    return text
