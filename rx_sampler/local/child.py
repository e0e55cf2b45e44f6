"""The child process: serve one GGUF with llama.cpp until the parent is gone.

Run as a file, not as a module, so that it starts without importing rx_sampler (a third of a second). Its protocol:

* stdin: one line of JSON, the `Settings`; then nothing, until its end, which ends this process. The kernel closes the
  pipe however the parent dies, SIGKILL included.
* stdout: one line of JSON, `{"url": ...}` once the server accepts requests or `{"error": ...}` if it never will.
* stderr: llama.cpp's complaints while it loads; afterwards they go nowhere.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
from importlib import import_module
from types import FrameType
from typing import Any, NoReturn, TypedDict

PR_SET_PDEATHSIG = 1  # linux/prctl.h
ERRORS_ONLY = 1  # llama.cpp's verbosity
LOG_CHECKS, LOG_CHECK_S = 50, 0.02


class Settings(TypedDict):
    """What to serve, and how. `stop` and `chat_template` apply where given, else the model's own."""

    path: str
    alias: str
    port: int
    context_tokens: int
    parallel: int
    threads: int
    chat_template: str | None
    stop: list[str]
    sampling: dict[str, float]
    max_output_tokens: int | None


def main() -> None:
    parent = os.getppid()

    def leave_if_orphaned(_number: int, _frame: FrameType | None) -> None:
        if os.getppid() != parent:
            leave()

    signal_at_parent_death(signal.SIGTERM)
    settings: Settings = json.loads(sys.stdin.buffer.readline() or b"null") or leave()
    watcher = threading.Thread(target=leave_at_end_of_stdin, daemon=True)
    watcher.start()
    answer = os.dup(1)
    os.dup2(2, 1)  # whatever native code prints, only our line reaches the parent
    try:
        server = serve(settings)
    except Exception as error:
        wait_for_log()
        os.write(answer, json.dumps({"error": str(error)}).encode() + b"\n")
        leave()
    silence()
    # While loading, the binding holds the interpreter's lock, so only a signal's default action could end us. From here
    # on Python can look first: Linux also signals when merely the thread that started us ended, and that is no reason.
    if sys.platform == "linux":
        signal.signal(signal.SIGUSR1, leave_if_orphaned)
        signal_at_parent_death(signal.SIGUSR1)
    os.write(answer, json.dumps({"url": server.listening_address}).encode() + b"\n")
    os.close(answer)
    watcher.join()


def serve(settings: Settings) -> Any:
    """llama.cpp's server, listening. Its errors say little; the reason stands on stderr."""
    llama: Any = import_module("xllamacpp")
    params = llama.CommonParams()
    params.verbosity = ERRORS_ONLY
    params.hostnames = ["127.0.0.1"]
    params.port = settings["port"]  # 0: any free one
    params.cors_origins = ""  # no page in the user's browser may ask
    params.ui = False
    params.model.path = settings["path"]
    params.model_alias = {settings["alias"]}
    params.fit_params = False  # it would shrink the context to what fits and load the model's header twice
    params.n_parallel = settings["parallel"]
    params.n_ctx = settings["context_tokens"] * settings["parallel"]  # llama.cpp divides it among the slots
    params.cpuparams.n_threads = settings["threads"]
    params.use_jinja = True
    params.antiprompt = settings["stop"]
    if settings["chat_template"] is not None:
        params.chat_template = settings["chat_template"]
    if settings["max_output_tokens"] is not None:
        params.n_predict = settings["max_output_tokens"]
    for name, value in settings["sampling"].items():
        setattr(params.sampling, name, value)
    return llama.Server(params)


def leave_at_end_of_stdin() -> NoReturn:
    sys.stdin.buffer.read()
    leave()


def wait_for_log() -> None:
    """Return once the log stands still with something in it, after a second at most.

    llama.cpp writes it from a thread of its own, which nothing in the binding flushes, not even a regular exit.
    """
    size = 0
    for _ in range(LOG_CHECKS):
        time.sleep(LOG_CHECK_S)
        before, size = size, os.fstat(2).st_size
        if size and size == before:
            return


def leave() -> NoReturn:
    os._exit(0)  # at once: there is nothing to save, and llama.cpp's own shutdown waits for open streams


def signal_at_parent_death(number: signal.Signals) -> None:
    """Ask Linux for a second witness: a forked sibling that inherited our stdin's other end keeps it from ending."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def silence() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)


if __name__ == "__main__":
    main()
