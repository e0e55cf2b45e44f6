"""`rx-sampler log`: lines of a log for people and programs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from datetime import UTC, timedelta, timezone, tzinfo
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from rx_sampler.cli.log import LogLines, chosen_path, show_log
from rx_sampler.cli.options import UnusableError
from rx_sampler.cli.output import Output

from .harness import run, start

ID = "e9a8a016-48a8-4fd9-be9a-d6db652b2e7e"
STARTED: dict[str, Any] = {"time": "2026-01-31T09:30:00.125Z", "record": "stream_started", "request_id": ID}
SHOWN = f"09:30:00.125  {ID[:8]}  stream_started     after 27 ms\n"


def line(**fields: Any) -> bytes:
    return json.dumps({**STARTED, "since_submit_ms": 27.0, **fields}).encode()


def shown(*lines: bytes, request: str | None = None, as_json: bool = False, zone: tzinfo = UTC) -> str:
    log = LogLines(request=request, as_json=as_json, zone=zone)
    return "".join(piece.text for one in lines for piece in log.feed(one))


def test_a_record_is_a_line_below_its_day() -> None:
    later = line(time="2026-02-01T00:00:00.000Z", record="dropped", request_id=None, count=2)
    assert shown(line(), line(), later) == (
        f"2026-01-31, times in UTC\n{SHOWN}{SHOWN}2026-02-01, times in UTC\n"
        "00:00:00.000            dropped            2 records missing here\n"
    )


def test_times_are_those_of_the_zone() -> None:
    text = shown(line(), zone=timezone(timedelta(hours=-10), "HST"))
    assert text.startswith("2026-01-30, times in HST\n23:30:00.125  ")


def test_a_record_without_a_readable_time_is_shown_all_the_same() -> None:
    assert shown(line(time="yesterday")).startswith("??:??:??.???  e9a8a016  stream_started")
    assert shown(b"{}") == "??:??:??.???            ?\n"


@pytest.mark.parametrize(
    "broken", [b'{"time": "2026', b"[1]", b"text", b"\x00\xff\xfe", b"[" * 100_000, b"1" * 10_000], ids=range(6)
)
def test_broken_lines_are_shown_as_such(broken: bytes) -> None:
    text = shown(broken, line())
    assert text.startswith("not a whole record: ")
    assert text.endswith(f"\n2026-01-31, times in UTC\n{SHOWN}")
    assert len(text) < 300


def test_what_a_terminal_could_obey_is_shown_and_not_sent() -> None:
    bad = "\x1b[2J\u202e\x9b1m\r\n"
    everywhere = line(record=f"completed{bad}", request_id=bad, time=bad, message=bad)
    failed = line(record="failed", kind=bad, code=bad, message=bad)
    text = shown(everywhere, failed, f"broken {bad}".encode(), f"{bad[:-1]}{{".encode())
    as_json = shown(failed.replace(b"\\u202e", "\u202e".encode()).replace(b"\\u009b", "\x9b".encode()), as_json=True)
    for char in bad[:-1]:
        assert char not in "".join(text.split("\n")) or char in "[2J1m"
        assert char not in "".join(as_json.split("\n")) or char in "[2J1m"
    assert "\\x1b[2J" in text
    assert json.loads(as_json)["message"] == bad


def test_one_request_by_the_start_of_its_id() -> None:
    assert shown(line(), line(request_id="other"), b"broken", request="e9a8") == f"2026-01-31, times in UTC\n{SHOWN}"
    assert shown(line(request_id=None), line(request_id=7), request="e9a8") == ""


def test_json_is_the_record_itself() -> None:
    assert shown(line(), b"", line(x="é"), as_json=True, request=ID) == f"{line().decode()}\n{line(x='é').decode()}\n"


# -- the command


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sampling.jsonl"


def write(path: Path, *lines: bytes, end: bytes = b"\n") -> None:
    path.write_bytes(b"\n".join(lines) + end)


async def test_following_shows_what_is_written_over_a_rotation(path: Path) -> None:
    out, err = StringIO(), StringIO()
    left: list[Callable[[], object]] = [
        lambda: path.write_bytes(line(record="one") + b"\n" + line(record="two")[:20]),
        lambda: path.open("ab").close(),
        lambda: [path.rename(path.with_suffix(".1")), path.write_bytes(line(record="three") + b"\n")],
    ]

    async def wait() -> None:
        if not left:
            raise asyncio.CancelledError  # as Ctrl-C does
        left.pop(0)()

    with pytest.raises(asyncio.CancelledError):
        await show_log(path, LogLines(zone=UTC), Output(out, err), follow=True, wait=wait)
    heads = [text.split()[0:3] for text in out.getvalue().splitlines()]
    assert [head[-1] for head in heads[1:]] == ["one", "whole", "three"]
    assert err.getvalue().startswith(f"there is no log {path}")


async def test_a_request_that_is_not_there_is_an_exit_code(path: Path) -> None:
    write(path, line())
    out, err = StringIO(), StringIO()
    assert await show_log(path, LogLines(request="nobody"), Output(out, err)) == 1
    assert (out.getvalue(), "nobody" in err.getvalue()) == ("", True)
    assert await show_log(path, LogLines(request="e9"), Output(out, err)) == 0


async def test_a_long_log_does_not_hold_up_what_ends_it(path: Path) -> None:
    write(path, *[line()] * 5000)
    output = Output(StringIO(), StringIO())
    task = asyncio.ensure_future(show_log(path, log := LogLines(zone=UTC), output))
    asyncio.get_running_loop().call_soon(lambda: asyncio.get_running_loop().call_soon(task.cancel))
    await asyncio.wait({task})
    assert task.cancelled()
    assert 0 < log.shown < 5000


def test_which_log_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    default = Path("/state/rx_sampler/sampling.jsonl")
    environ = {"XDG_STATE_HOME": "/state"}
    assert chosen_path(Path("mine"), {**environ, "RX_SAMPLER_LOG": "other"}) == Path("mine")
    assert chosen_path(None, {**environ, "RX_SAMPLER_LOG": "other"}) == Path("other")
    for said in ({}, {"RX_SAMPLER_LOG": "1"}, {"RX_SAMPLER_LOG": "0"}, {"GROK_LOG_SAMPLING": "1"}):
        assert chosen_path(None, {**environ, **said}) == default

    def no_home() -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(UnusableError, match="give the path"):
        chosen_path(None, {})


async def test_the_command_shows_the_log_that_the_environment_names(path: Path) -> None:
    write(path, line(), b'{"half', end=b"")
    outcome = await run("log", env={"RX_SAMPLER_LOG": str(path), "TZ": "UTC"})
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == f'2026-01-31, times in UTC\n{SHOWN}not a whole record: {{"half\n'
    as_json = await run("log", str(path), "--json", "--request", "e9a8")
    assert (as_json.code, as_json.out, as_json.err) == (0, f"{line().decode()}\n", "")


async def test_colours_are_for_terminals(path: Path) -> None:
    write(path, line(record="failed", kind="http"))
    outcome = await run("log", str(path), env={"FORCE_COLOR": "1", "TERM": "xterm-256color"})
    assert "\x1b[1;31mfailed" in outcome.out


async def test_a_log_that_is_not_there_says_how_it_is_switched_on(tmp_path: Path) -> None:
    output = Output(StringIO(), StringIO())
    with pytest.raises(UnusableError, match="RX_SAMPLER_LOG=1"):
        await show_log(tmp_path / "gone", LogLines(), output)
    with pytest.raises(UnusableError, match="Is a directory"):
        await show_log(tmp_path, LogLines(), output)


async def test_a_reader_that_went_away_is_left_to_the_command(path: Path) -> None:
    class Closed(StringIO):
        def write(self, _text: str, /) -> int:
            raise BrokenPipeError

    write(path, line())
    with pytest.raises(BrokenPipeError):
        await show_log(path, LogLines(), Output(Closed(), StringIO()))


@pytest.mark.parametrize(("name", "says"), [("gone.jsonl", "RX_SAMPLER_LOG=1"), (".", "Is a directory")])
async def test_what_cannot_be_shown_is_one_line(tmp_path: Path, name: str, says: str) -> None:
    outcome = await run("log", str(tmp_path / name))
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1
    assert str(tmp_path) in outcome.err
    assert says in outcome.err


@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_following_ends_in_good_order_on_a_signal(path: Path, number: signal.Signals) -> None:
    write(path, line())
    process = await start("log", "-f", str(path), env={"TZ": "UTC"})
    assert process.stdout is not None
    await process.stdout.readline()
    assert await process.stdout.readline() == SHOWN.encode()
    with path.open("ab") as file:
        file.write(line() + b"\n")
    assert await process.stdout.readline() == SHOWN.encode()
    process.send_signal(number)
    assert await process.communicate() == (b"", b"")
    assert process.returncode == 0
