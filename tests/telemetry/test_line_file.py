"""Lines in a file that rotates and may be moved, removed or cut."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import closing
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

from rx_sampler.telemetry.line_file import LineFile, json_line


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some" / "folder" / "log.jsonl"


@pytest.fixture
def file(path: Path) -> Iterator[LineFile]:
    with closing(LineFile(path, 100, 2)) as file:
        yield file


def contents(path: Path) -> list[str]:
    """What is in the older files and the newest, oldest first."""
    files = [path.with_name(f"{path.name}.2"), path.with_name(f"{path.name}.1"), path]
    return [file.read_text() for file in files if file.exists()]


def test_folder_and_file_come_with_the_first_line_and_are_the_owners(path: Path, file: LineFile) -> None:
    assert not path.parent.parent.exists()
    assert file.write("a") is None
    assert path.read_text() == "a\n"
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) & 0o077 == 0


def test_a_file_that_would_grow_past_its_limit_is_moved_first(path: Path, file: LineFile) -> None:
    for letter in "abcde":
        assert file.write(letter * 49) is None  # 50 bytes with its end: two fit, exactly
    lines = [letter * 49 + "\n" for letter in "abcde"]
    assert contents(path) == ["".join(lines[:2]), "".join(lines[2:4]), lines[4]]


def test_only_so_many_older_files_are_kept(path: Path, file: LineFile) -> None:
    for letter in "abcde":
        assert file.write(letter * 90) is None
    assert contents(path) == [letter * 90 + "\n" for letter in "cde"]


def test_a_line_larger_than_the_limit_gets_a_file_of_its_own_and_no_empty_ones(path: Path, file: LineFile) -> None:
    for letter in "abc":
        assert file.write(letter * 300) is None
    assert contents(path) == [letter * 300 + "\n" for letter in "abc"]


def test_no_limit(path: Path) -> None:
    with closing(LineFile(path, 0, 0)) as file:
        for _ in range(50):
            assert file.write("a" * 99) is None
    assert path.stat().st_size == 5000


@pytest.mark.parametrize(
    ("before", "after"),
    [("", "new\n"), ("old\n", "old\nnew\n"), ('{"time', '{"time\nnew\n')],
)
def test_what_is_there_is_kept_and_half_a_line_is_ended(path: Path, file: LineFile, before: str, after: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(before)
    assert file.write("new") is None
    assert path.read_text() == after


def test_a_removed_folder_is_made_again(path: Path, file: LineFile) -> None:
    assert file.write("a") is None
    shutil.rmtree(path.parent.parent)
    assert file.write("b") is None
    assert path.read_text() == "b\n"


def test_two_who_share_a_file_go_on_in_the_new_one_when_the_other_moved_it(path: Path, file: LineFile) -> None:
    with closing(LineFile(path, 100, 2)) as other:
        for letter in "abc":
            assert file.write(letter * 40) is None  # 41 bytes: the third does not fit
        assert contents(path) == ["a" * 40 + "\n" + "b" * 40 + "\n", "c" * 40 + "\n"]
        assert other.write("d" * 40) is None
        assert file.write("e") is None
        assert other.write("f") is None
    assert contents(path)[-1] == "c" * 40 + "\n" + "d" * 40 + "\n" + "e\nf\n"


def test_a_failure_is_returned_and_the_next_line_is_written_again(path: Path, file: LineFile) -> None:
    path.parent.parent.write_text("a file where the folder should be")
    assert isinstance(file.write("lost"), OSError)
    path.parent.parent.unlink()
    assert file.write("kept") is None
    assert path.read_text() == "kept\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux's disk that is always full")
def test_a_full_disk() -> None:
    with closing(LineFile(Path("/dev/full"), 100, 2)) as file:
        error = file.write("a")
        assert isinstance(error, OSError)
        assert error.strerror == "No space left on device"
        assert isinstance(file.write("b"), OSError)


@pytest.mark.parametrize(
    ("record", "line"),
    [
        ({"a": "\x1b[2J\n\u2028é"}, r'{"a":"\u001b[2J\n\u2028\u00e9"}'),
        ({"a": "\ud800"}, r'{"a":"\ud800"}'),
        (
            {"a": inf, "b": [nan, 1.5, "x"], "c": {"d": (-inf,)}},
            '{"a":null,"b":[null,1.5,"x"],"c":{"d":[null]}}',
        ),
    ],
)
def test_a_record_is_one_line_of_ascii_json(record: dict[str, Any], line: str) -> None:
    assert json_line(record) == line
    json.loads(line, parse_constant=pytest.fail)
