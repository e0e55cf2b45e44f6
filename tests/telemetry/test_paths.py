"""Which file the environment asks for."""

from pathlib import Path

import pytest

from rx_sampler.telemetry.paths import default_log_path, log_path_from_env, wants_content

STATE = {"XDG_STATE_HOME": "/state"}
DEFAULT = Path("/state/rx_sampler/sampling.jsonl")


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({}, None),
        ({"RX_SAMPLER_LOG": "logs/mine.jsonl"}, Path("logs/mine.jsonl")),
        ({"RX_SAMPLER_LOG": "1"}, DEFAULT),
        ({"RX_SAMPLER_LOG": "TRUE"}, DEFAULT),
        ({"RX_SAMPLER_LOG": " on "}, DEFAULT),
        ({"RX_SAMPLER_LOG": "0"}, None),
        ({"RX_SAMPLER_LOG": ""}, None),
        ({"RX_SAMPLER_LOG": "off"}, None),
        ({"GROK_LOG_SAMPLING": "1"}, DEFAULT),
        ({"GROK_LOG_SAMPLING": "true"}, DEFAULT),
        ({"GROK_LOG_SAMPLING": "on"}, DEFAULT),
        ({"GROK_LOG_SAMPLING": "yes"}, None),
        ({"GROK_LOG_SAMPLING": "0"}, None),
        ({"GROK_LOG_SAMPLING": "/a/path.jsonl"}, None),
        ({"RX_SAMPLER_LOG": "mine.jsonl", "GROK_LOG_SAMPLING": "1"}, Path("mine.jsonl")),
        ({"RX_SAMPLER_LOG": "0", "GROK_LOG_SAMPLING": "1"}, None),
    ],
)
def test_the_switch(environ: dict[str, str], path: Path | None) -> None:
    assert log_path_from_env({**STATE, **environ}) == path


def test_without_a_folder_for_state_it_is_in_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: Path("/home/ada"))
    expected = Path("/home/ada/.local/state/rx_sampler/sampling.jsonl")
    assert default_log_path({}) == expected
    assert default_log_path({"XDG_STATE_HOME": ""}) == expected
    # XDG base directory specification: "If an implementation encounters a relative path in any of these variables
    # it should consider the path invalid and ignore it."
    assert default_log_path({"XDG_STATE_HOME": "relative"}) == expected


def test_a_tilde_is_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("USERPROFILE", "/home/ada")
    assert log_path_from_env({"RX_SAMPLER_LOG": "~/mine.jsonl"}) == Path("/home/ada/mine.jsonl")


@pytest.mark.parametrize(("value", "wanted"), [("1", True), ("on", True), ("0", False), ("", False), ("maybe", False)])
def test_content_must_be_asked_for(value: str, wanted: bool) -> None:
    assert wants_content({"RX_SAMPLER_LOG_CONTENT": value}) is wanted
    assert not wants_content({})
