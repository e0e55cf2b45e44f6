"""The sampling log: the life of each request of a sampler, as lines of JSON in a file."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from rx_sampler.events import Retrying, SamplingEvent
from rx_sampler.observing import RequestFacts, RequestWatch

from .notes import Notes
from .paths import log_path_from_env, wants_content
from .records import attempt, builders, dropped_by_subscriber, submit
from .writer import RecordWriter

__all__ = ["SamplingLog", "sampling_log_from_env"]

_log = logging.getLogger("rx_sampler")


class SamplingLog:
    """Writes down what becomes of each request: give it to `Sampler(config, observer=...)`.

    One record per line: `submit`, `attempt`, `stream_started`, `metadata`, `response_started`, `first_token`,
    `retrying`, `images_stripped`, `doom_loop_signals`, then `completed`, `failed` (after `retries_exhausted`, if it
    was tried again in vain) or `dropped_by_subscriber`. Never a credential. What was said stays out as well, unless
    `content` asks for it: then `submit` has the items, `completed` the text, and pieces of the answer are `event`s.

    The file is created with the first record, for its owner only. Past `max_bytes` it is moved to `path.1`, and so on
    up to `backup_count` older files; 0 bytes means never. Several samplers, threads and event loops may share a log,
    and several processes a file.

    No method that a sampler calls blocks or raises: a thread does the writing. Records that the disk does not take,
    or not in time, are missing: `dropped_count` says how many, as does a record `dropped` in the file.
    """

    _shared: ClassVar[dict[tuple[str, bool], SamplingLog]] = {}
    _shared_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(
        self, path: str | Path, *, content: bool = False, max_bytes: int = 5_000_000, backup_count: int = 3
    ) -> None:
        if max_bytes < 0:
            raise ValueError(f"max_bytes is {max_bytes}: give a number of bytes, or 0 for a file that is never moved")
        if max_bytes and backup_count < 1:
            raise ValueError(f"backup_count is {backup_count}: give 1 or more, for a full file has to go somewhere")
        self.content = content
        self._writer = RecordWriter(Path(path).absolute(), max_bytes=max_bytes, backup_count=backup_count)

    @classmethod
    def shared(cls, path: str | Path, *, content: bool = False) -> SamplingLog:
        """The process's log at that path: the same one each time, a new one after it was closed."""
        key = os.path.realpath(path), content
        with cls._shared_lock:
            log = cls._shared.get(key)
            if log is None or log.closed:
                log = cls._shared[key] = cls(path, content=content)
            return log

    @property
    def path(self) -> Path:
        """The file, as an absolute path."""
        return self._writer.path

    @property
    def dropped_count(self) -> int:
        """How many records never reached the file."""
        return self._writer.dropped_count

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._writer.closed

    def request_made(self, facts: RequestFacts) -> RequestWatch:
        """A watch over one request; called by the sampler."""
        return _Watch(Notes(facts, self.content), self._writer)

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Wait until all records so far are in the file; False if that takes longer. Blocks the calling thread."""
        return self._writer.flush(timeout_s)

    def close(self, timeout_s: float = 5.0) -> bool:
        """Write what waits and stop; False if that takes longer. Blocks the calling thread; later records are dropped.

        Happens by itself when the interpreter exits.
        """
        return self._writer.close(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"SamplingLog({str(self.path)!r}, content={self.content})"


class _Watch:
    """One request under way. On the thread of the request only what was seen is put aside."""

    __slots__ = ("_builders", "_notes", "_writer")

    def __init__(self, notes: Notes, writer: RecordWriter) -> None:
        self._notes = notes
        self._writer = writer
        self._builders = builders(content=notes.content)
        writer.put(partial(submit, notes))

    def attempt_started(self, number: int, ts: float) -> None:
        self._writer.put(partial(attempt, self._notes, number, ts))

    def on_event(self, event: SamplingEvent) -> None:
        build = self._builders.get(event.__class__)
        if build is None:
            return  # a token, nearly always: this line is what a log costs per token
        if event.__class__ is Retrying:
            self._notes.retries += 1
        self._writer.put(partial(build, self._notes, event))

    def dropped(self, ts: float) -> None:
        self._writer.put(partial(dropped_by_subscriber, self._notes, ts))


def sampling_log_from_env(environ: Mapping[str, str] = os.environ) -> SamplingLog | None:
    """The log that the environment asks for, shared by all who ask; None if it asks for none.

    `RX_SAMPLER_LOG` is a path, or `1` for the default one (see `default_log_path`), or `0`. Where it is not set,
    `GROK_LOG_SAMPLING=1` asks for the default path. `RX_SAMPLER_LOG_CONTENT=1` asks for content.
    """
    try:
        path = log_path_from_env(environ)
    except RuntimeError:
        _log.warning("no sampling log: there is no home folder to put it in; set RX_SAMPLER_LOG to a path")
        return None
    return SamplingLog.shared(path, content=wants_content(environ)) if path is not None else None
