"""A thread that writes, and those who do not wait for it."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rx_sampler
from rx_sampler.telemetry.line_file import LineFile
from rx_sampler.telemetry.notes import Record
from rx_sampler.telemetry.writer import Job, RecordWriter

from .made import records

SOURCE = Path(rx_sampler.__file__).parent.parent


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "log.jsonl"


Make = Callable[..., RecordWriter]


@pytest.fixture
def make(path: Path) -> Iterator[Make]:
    made: list[RecordWriter] = []

    def make(where: Path = path, max_pending: int = 100) -> RecordWriter:
        made.append(RecordWriter(where, max_bytes=0, backup_count=0, max_pending=max_pending))
        return made[-1]

    yield make
    for writer in made:
        assert writer.close()


def job(number: int) -> Job:
    def numbered() -> list[Record]:
        return [{"number": number}]

    return numbered


class Gate:
    """A job that keeps the writer busy until `open` is called."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._busy = threading.Event()

    def __call__(self) -> list[Record]:
        self._busy.set()
        assert self._open.wait(30)
        return [{"number": -1}]

    def wait_until_busy(self) -> None:
        assert self._busy.wait(30)

    def open(self) -> None:
        self._open.set()


def numbers(path: Path) -> list[int | None]:
    return [record.get("number") for record in records(path)]


def test_records_are_written_in_order(make: Make, path: Path) -> None:
    writer = make()
    for number in range(50):
        writer.put(job(number))
    assert writer.flush()
    assert numbers(path) == list(range(50))


def test_there_is_neither_file_nor_thread_before_the_first_record(make: Make, path: Path) -> None:
    before = threading.active_count()
    writer = make()
    assert writer.flush()
    assert (threading.active_count(), path.parent.exists()) == (before, False)
    assert writer.close()
    assert not path.parent.exists()


def test_the_thread_does_not_keep_the_interpreter(make: Make) -> None:
    writer = make()
    gate = Gate()
    writer.put(gate)
    gate.wait_until_busy()
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "sampling log log.jsonl"]
    assert thread.daemon
    gate.open()
    assert writer.close()
    assert not thread.is_alive()


def test_a_full_queue_drops_counts_and_says_so_later(make: Make, path: Path) -> None:
    writer, gate = make(max_pending=3), Gate()
    writer.put(gate)
    gate.wait_until_busy()
    for number in range(10):  # 0, 1 and 2 find room
        writer.put(job(number))
    assert writer.dropped_count == 7
    gate.open()
    assert writer.flush()
    writer.put(job(10))
    assert writer.flush()
    found = records(path)
    assert [record["number"] for record in found if "number" in record] == [-1, 0, 1, 2, 10]
    (dropped,) = [record for record in found if "number" not in record]
    assert list(dropped) == ["time", "record", "count"]
    assert (dropped["record"], dropped["count"]) == ("dropped", 7)


def test_flush_and_close_give_up_when_the_disk_hangs(make: Make) -> None:
    writer, gate = make(), Gate()
    writer.put(gate)
    gate.wait_until_busy()
    assert not writer.flush(0.001)
    assert not writer.close(0.001)
    gate.open()


def test_what_waits_is_written_at_the_end_and_what_comes_later_is_dropped(make: Make, path: Path) -> None:
    writer, gate = make(), Gate()
    writer.put(gate)
    for number in range(20):
        writer.put(job(number))
    gate.open()
    assert writer.close()
    assert numbers(path) == [-1, *range(20)]
    writer.put(job(99))
    assert writer.dropped_count == 1
    assert writer.close()
    assert numbers(path)[-1] == 19


def test_a_disk_that_fails_is_told_once_and_forgiven(make: Make, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.parent.write_text("a file where the folder should be")
    writer = make()
    for number in range(3):
        writer.put(job(number))
    assert writer.flush()
    assert writer.dropped_count == 3
    path.parent.unlink()
    writer.put(job(3))
    assert writer.flush()
    first, dropped = records(path)
    assert (first, dropped["count"]) == ({"number": 3}, 3)
    told = [record for record in caplog.records if record.name == "rx_sampler"]
    assert [record.levelno for record in told] == [logging.WARNING]
    assert str(path) in told[0].getMessage()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux's disk that is always full")
def test_a_full_disk_is_told(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    writer = make(Path("/dev/full"))
    writer.put(job(0))
    assert writer.flush()
    assert writer.dropped_count == 1
    assert "No space left on device" in caplog.text


def test_each_record_of_a_job_counts(make: Make, path: Path) -> None:
    path.parent.write_text("a file where the folder should be")
    writer = make()
    writer.put(lambda: [{"number": 1}, {"number": 2}])
    assert writer.flush()
    assert writer.dropped_count == 2


def test_what_is_missing_is_said_when_it_can_be(make: Make, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = OSError(28, "No space left on device")
    outcomes: list[OSError | None] = [full, None, full, None, None]
    really = LineFile.write

    def write(file: LineFile, line: str) -> Exception | None:
        return outcomes.pop(0) or really(file, line)

    monkeypatch.setattr(LineFile, "write", write)
    writer = make()
    for number in range(3):  # 0 is lost; 1 is written, but not that 0 is missing; 2 is, and then that
        writer.put(job(number))
    assert writer.flush()
    assert numbers(path) == [1, 2, None]
    assert records(path)[-1]["count"] == writer.dropped_count == 1


def test_a_thread_that_cannot_be_started_is_tried_again(
    make: Make, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    writer = make()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        writer.put(job(0))
        assert not writer.flush()
    writer.put(job(1))
    assert writer.flush()
    assert numbers(path) == [0, 1]


def test_a_job_that_raises_is_counted_and_its_words_are_kept_back(
    make: Make, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> list[Record]:
        raise ValueError("quotes the prompt")

    writer = make()
    writer.put(broken)
    writer.put(job(1))
    assert writer.flush()
    assert numbers(path) == [1, None]
    assert writer.dropped_count == 1
    assert "ValueError" in caplog.text
    assert "prompt" not in caplog.text


def test_many_threads_share_a_writer(make: Make, path: Path) -> None:
    writer = make(max_pending=10_000)
    together = threading.Barrier(8)

    def work(worker: int) -> None:
        together.wait()
        for number in range(200):
            writer.put(job(worker * 1000 + number))

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert writer.flush()
    found = [number for number in numbers(path) if number is not None]
    assert len(found) == 1600
    for worker in range(8):
        assert [number for number in found if number // 1000 == worker] == [worker * 1000 + n for n in range(200)]


def run_script(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stderr


def test_what_waits_is_written_when_the_interpreter_exits(path: Path) -> None:
    code = """
import sys
from pathlib import Path
from rx_sampler.telemetry.writer import RecordWriter
writer = RecordWriter(Path(sys.argv[1]), max_bytes=0, backup_count=0)
for number in range(500):
    writer.put(lambda number=number: [{"number": number}])
"""
    assert run_script(code, str(path)) == ""
    assert numbers(path) == list(range(500))


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="POSIX")
def test_the_child_of_a_fork_writes_on_with_a_thread_of_its_own(path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from rx_sampler.telemetry.writer import RecordWriter
writer = RecordWriter(Path(sys.argv[1]), max_bytes=0, backup_count=0)
writer.put(lambda: [{"number": 1}])
writer.flush()
child = os.fork()
if child == 0:
    writer.put(lambda: [{"number": 2}])
    os._exit(0 if writer.close() else 1)
assert os.waitpid(child, 0)[1] == 0
writer.put(lambda: [{"number": 3}])
"""
    run_script(code, str(path))
    assert numbers(path) == [1, 2, 3]
