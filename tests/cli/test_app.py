"""Commands and options that end before anything is asked."""

import sys
from dataclasses import dataclass

import pytest

from rx_sampler.cli import main


@dataclass(frozen=True)
class Ended:
    code: object
    out: str
    err: str


class Run:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Ended:
        self._monkeypatch.setattr(sys, "argv", ["rx-sampler", *arguments])
        self._monkeypatch.setattr(sys, "stdin", None)
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = self._capsys.readouterr()
        return Ended(ended.value.code, out, err)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    for name in ("PROVIDER", "BASE_URL", "BACKEND", "MODEL", "API_KEY"):
        monkeypatch.delenv(f"RX_SAMPLER_{name}", raising=False)
    return Run(monkeypatch, capsys)


@pytest.mark.parametrize(
    "arguments",
    [
        ["ask"],
        ["ask", "--provider", "nobody", "x"],
        ["ask", "--max-tokens", "0", "x"],
        ["ask", "--temperature", "-1", "x"],
        ["ask", "--timeout", "0", "x"],
        ["ask", "--reasoning-effort", "huge", "x"],
        ["ask", "--local", "--simulate", "x"],
        ["ask", "--simulate", "--base-url", "http://127.0.0.1/v1", "x"],
        ["ask", "--no-such-option"],
        ["simulate", "--jitter", "2"],
        ["local", "--port", "70000"],
        ["no-such-command"],
    ],
)
def test_bad_options_exit_with_2(run: Run, arguments: list[str]) -> None:
    ended = run(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["ask", "x", "--base-url", "nowhere"], "base_url is an http(s) URL"),
        (["ask", "x", "--base-url", "http://127.0.0.1/v1"], "needs the name of a model"),
        (["ask", "x", "--provider", "openai"], "openai needs the name of a model"),
        (["ask", "x", "--simulate", "--backend", "smoke"], "one of chat_completions, responses, messages"),
        (["ask", "x", "--simulate", "--image", "gone.png"], "image gone.png: No such file"),
        (["ask", "x", "--simulate", "--image", "gone\x1b.png"], "image gone\\x1b.png"),
        (["ask", "x", "--simulate", "--tool", "clock"], "give MODULE:FUNCTION"),
        (["ask", "x", "--simulate", "--tool", "no_such_module:now"], "there is no module no_such_module"),
        (["ask", "x", "--simulate", "--tool", "time:no_such_name"], "time has no no_such_name"),
        (["ask", "x", "--simulate", "--tool", "os:sep"], "a tool is a function or another callable, not '/'"),
        (["ask", "x", "--simulate", "--tool", "builtins:print"], "parameter 'args' is a * parameter"),
        (["ask", "x", "--simulate", "--tool", "os:getcwd", "--tool", "os:getcwd"], "is called 'getcwd' already"),
        (["simulate", "--script", "gone.json"], "script gone.json: No such file"),
    ],
)
def test_what_cannot_be_done_is_one_line(run: Run, arguments: list[str], says: str) -> None:
    ended = run(*arguments)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("error: ")
    assert ended.err.count("\n") == 1
    assert says in ended.err


def test_help_lists_the_commands_and_providers(run: Run) -> None:
    ended = run("--help")
    assert ended.code == 0
    for command in ("ask", "local", "log", "simulate"):
        assert command in ended.out
    assert "openrouter" in run("ask", "-h").out


def test_the_version_is_told(run: Run) -> None:
    ended = run("--version")
    assert ended.code == 0
    assert ended.out.startswith("rx-sampler")
