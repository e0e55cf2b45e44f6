"""Lines on their way to a file: taken from any thread at once, rendered and written on a thread of their own."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from queue import SimpleQueue
from time import time
from typing import Final

from .line_file import LineFile, json_line
from .notes import Record, rfc3339

__all__ = ["Job", "RecordWriter"]

Job = Callable[[], Iterable[Record]]
"""Makes records of what happened; called on the writer's thread."""

MAX_PENDING: Final = 8_192
"""Jobs that may wait for the disk: a second of heavy traffic. What comes beyond is dropped and counted."""

_log = logging.getLogger("rx_sampler")


class RecordWriter:
    """Appends records to a file as lines of JSON, and moves the file aside when it grows past `max_bytes`.

    `put` neither blocks nor raises. The thread starts at the first record, which also creates the file and its
    folder, both for the owner only. What cannot be written is counted; the first failure is told to the logger
    `rx_sampler`, and the next line that can be written says how many are missing.
    """

    def __init__(self, path: Path, *, max_bytes: int, backup_count: int, max_pending: int = MAX_PENDING) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._backup_count = backup_count
        self._max_pending = max_pending
        self.dropped_count = 0
        """Records that never reached the file."""
        self.closed = False
        self._told = False
        self._forget_thread()
        _writers.add(self)

    def _forget_thread(self) -> None:
        """Begin anew; in the child of a fork, which inherits neither the thread nor its duties."""
        # A SimpleQueue, because its put may be interrupted by itself: a garbage collection can dispose of a request.
        self._queue: SimpleQueue[Job | threading.Event | None] = SimpleQueue()
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._unsaid = 0

    def put(self, job: Job) -> None:
        """Write what `job` returns, in a moment; or count it as dropped, where too many wait or this is closed."""
        if self.closed or self._queue.qsize() >= self._max_pending:
            self._lose(1)
            return
        self._queue.put(job)
        if self._thread is None:
            self._start()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name=f"sampling log {self.path.name}", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # no more threads, or the interpreter ends; the job waits for the next try
                    return
                self._thread = thread
                atexit.register(self.close)

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Wait until what was put so far is written; False if that takes longer."""
        if self._thread is None:
            return self._queue.empty()
        written = threading.Event()
        self._queue.put(written)
        return written.wait(timeout_s)

    def close(self, timeout_s: float = 5.0) -> bool:
        """Write what was put so far and end the thread; False if that takes longer. Later records are dropped."""
        self.closed = True
        with self._lock:
            thread = self._thread
        if thread is None:
            return self._queue.empty()
        self._queue.put(None)
        thread.join(timeout_s)
        atexit.unregister(self.close)
        return not thread.is_alive()

    def _lose(self, count: int, error: Exception | None = None) -> None:
        with self._lock:
            self.dropped_count += count
            self._unsaid += count
            tell = error is not None and not self._told
            self._told = self._told or tell
        if tell:
            # Of other errors the type only: their words may quote a request.
            why = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
            _log.warning("sampling log %s: a record could not be written (%s); said once", self.path, why)

    # -- on the writer's own thread

    def _run(self) -> None:
        file = LineFile(self.path, self._max_bytes, self._backup_count)
        queue = self._queue
        ending = False
        try:
            while not (ending and queue.empty()):  # what raced with the end is behind it
                if (job := queue.get()) is None:
                    ending = True
                else:
                    self._do(job, file)
        finally:
            file.close()

    def _do(self, job: Job | threading.Event, file: LineFile) -> None:
        if isinstance(job, threading.Event):
            job.set()
            return
        try:
            lines = [json_line(record) for record in job()]
        except Exception as error:
            self._lose(1, error)
            return
        for number, line in enumerate(lines):
            if (error := file.write(line)) is not None:
                self._lose(len(lines) - number, error)
                return
        if self._unsaid:
            with self._lock:
                count, self._unsaid = self._unsaid, 0
            if file.write(json_line({"time": rfc3339(time()), "record": "dropped", "count": count})) is not None:
                with self._lock:
                    self._unsaid += count


_writers: weakref.WeakSet[RecordWriter] = weakref.WeakSet()


def _after_fork() -> None:
    for writer in list(_writers):
        writer._forget_thread()  # pyright: ignore[reportPrivateUsage]  # of this module


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
