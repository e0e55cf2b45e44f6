"""The prompt from argument and stdin, and the request around it."""

import io
import os
import sys
from pathlib import Path
from typing import TextIO

import pytest

from rx_sampler.cli import prompt as prompt_module
from rx_sampler.cli.options import UnusableError
from rx_sampler.cli.prompt import build_request, read_prompt
from rx_sampler.conversation import ImagePart, SystemItem, TextPart, UserItem


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def piped(tmp_path: Path, content: bytes) -> TextIO:
    path = tmp_path / "stdin"
    path.write_bytes(content)
    return path.open()


def no_note(text: str) -> None:
    raise AssertionError(text)


@pytest.mark.parametrize(
    ("argument", "content", "prompt"),
    [
        ("Why?", b"", "Why?"),
        (None, b"Why?\n", "Why?"),
        ("-", b"Why?\n", "Why?"),
        ("Sum up:", b"line 1\nline 2\n", "Sum up:\n\nline 1\nline 2"),
        (None, "\ufeffé\r\n".encode(), "é"),
        (None, b"a\xffb", "a\ufffdb"),
        (None, b" \n", ""),
    ],
)
def test_argument_and_pipe_are_joined(tmp_path: Path, argument: str | None, content: bytes, prompt: str) -> None:
    with piped(tmp_path, content) as stdin:
        assert read_prompt(argument, stdin, no_note) == prompt


@pytest.mark.parametrize(("argument", "prompt"), [("Why?", "Why?"), (None, ""), ("-", "")])
def test_a_terminal_is_not_read(argument: str | None, prompt: str) -> None:
    assert read_prompt(argument, Terminal("typed"), no_note) == prompt


def test_a_process_without_stdin_has_the_argument() -> None:
    assert read_prompt("Why?", None, no_note) == "Why?"


@pytest.mark.skipif(sys.platform == "win32", reason="select() takes sockets only there")
def test_a_silent_pipe_is_announced_and_then_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_module, "PATIENCE_S", 0.0)
    read_end, write_end = os.pipe()
    notes: list[str] = []

    def note(text: str) -> None:
        notes.append(text)
        os.write(write_end, b"late")
        os.close(write_end)

    with os.fdopen(read_end) as stdin:
        assert read_prompt("Sum up:", stdin, note) == "Sum up:\n\nlate"
    assert len(notes) == 1


def test_system_text_and_images_surround_the_prompt(tmp_path: Path) -> None:
    image = tmp_path / "dot.png"
    image.write_bytes(b"\x89PNG")
    request = build_request(
        "What is it?", system="Be brief.", images=[str(image), "https://h/x.jpg"], max_output_tokens=5, temperature=0.0
    )
    # base64 of 89 50 4E 47 (RFC 4648)
    assert request.items == (
        SystemItem(content="Be brief."),
        UserItem(
            content=(
                TextPart(text="What is it?"),
                ImagePart(url="data:image/png;base64,iVBORw=="),
                ImagePart(url="https://h/x.jpg"),
            )
        ),
    )
    assert (request.max_output_tokens, request.temperature) == (5, 0.0)


def test_an_image_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("x")
    for source, says in ((str(text), "notes.txt"), (str(tmp_path / "gone.png"), "No such file")):
        with pytest.raises(UnusableError, match=says):
            build_request("x", images=[source])
