"""The parent's end of `child.py`: start it, learn its address, end it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from typing import IO

from . import child
from .unavailable import LocalModelUnavailable

__all__ = ["ServerProcess"]

_LOG_TAIL_BYTES = 16_384
# "0.00.216.130 E llama_model_load: error loading model: tensor ... is corrupted or incomplete"
_LOG_LINE = re.compile(r"^\S+ E (?:\S+: |\w+ +\w+: )(?P<said>.*)$", re.MULTILINE)


class ServerProcess:
    """One child process that serves from `start()` until `stop()`, or until this process is gone.

    Thread-safe: `stop()` may come from another thread while `start()` waits, which then raises.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stopped = False
        self._popen: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._popen is None else self._popen.pid

    def start(self, settings: child.Settings) -> str:
        """Start the server and return its root URL once it accepts requests; blocks until then.

        Raises LocalModelUnavailable if it does not start; no process is left then.
        """
        try:
            with tempfile.TemporaryFile() as log:
                return self._started(settings, log)
        except BaseException as error:
            self.stop()
            if isinstance(error, OSError):
                raise LocalModelUnavailable(f"cannot start a process for llama.cpp: {error}") from error
            raise

    def _started(self, settings: child.Settings, log: IO[bytes]) -> str:
        with self._lock:
            if self._stopped:
                raise LocalModelUnavailable("the server was stopped before it started")
            # By its file: as a module it would import the whole of rx_sampler first. -P keeps this folder off its path.
            # Its own session: Ctrl-C in the terminal is for us, who still need the server while we clean up.
            self._popen = subprocess.Popen(  # noqa: S603  # this interpreter on a file of ours
                [sys.executable, "-P", child.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),  # what Windows has for the same
            )
        with suppress(BrokenPipeError):  # it died already; its end says why
            _pipe(self._popen.stdin).write(json.dumps(settings).encode() + b"\n")
            _pipe(self._popen.stdin).flush()
        line = _pipe(self._popen.stdout).readline()
        answer: dict[str, str] = json.loads(line) if line else {}
        if url := answer.get("url"):
            return url
        status = self._popen.wait()
        reason = _reason(answer, status, _tail(log))
        raise LocalModelUnavailable(f"llama.cpp did not start with {settings['path']}: {reason}")

    def kill(self) -> None:
        """End the child without waiting for it; a start that is under way fails."""
        with self._lock:
            self._stopped = True
        if self._popen is not None:
            self._popen.kill()

    def stop(self) -> None:
        """Kill the child and reap it. Idempotent; takes milliseconds."""
        self.kill()
        if self._popen is not None:
            self._popen.wait()
            _pipe(self._popen.stdout).close()
            with suppress(BrokenPipeError):  # what could not be flushed is for nobody now
                _pipe(self._popen.stdin).close()


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None  # both are PIPEs  # noqa: S101
    return stream


def _tail(log: IO[bytes]) -> str:
    size = log.seek(0, 2)
    log.seek(max(0, size - _LOG_TAIL_BYTES))
    return log.read().decode(errors="replace")


def _reason(answer: dict[str, str], status: int, log: str) -> str:
    """One line: what llama.cpp complained of first, else what Python raised, else how the process ended."""
    complaint = _LOG_LINE.search(log)
    if complaint is not None:
        return complaint["said"]
    if error := answer.get("error"):
        return error.splitlines()[0]
    if status == -getattr(signal, "SIGILL", 0):
        return "this processor lacks an instruction that xllamacpp is built for"
    if status < 0:
        return f"its process was ended by {signal.Signals(-status).name}"
    return f"its process ended with status {status}"
