"""`LocalServer`: a context manager around a llama.cpp server with a small model."""

from __future__ import annotations

import asyncio
import os
import sys
from types import TracebackType
from typing import Self

from . import templates
from .child import Settings
from .gguf import checked_gguf, packaged_gguf
from .process import ServerProcess
from .unavailable import require_engine

__all__ = ["LocalServer"]

_PACKAGED_ALIAS = "gemma-3-270m"
# A 270M model repeats itself at llama.cpp's defaults of 0.8 without a penalty; a request's own values win over these.
_PACKAGED_SAMPLING = {"temp": 0.3, "penalty_repeat": 1.1}
_PACKAGED_MAX_OUTPUT_TOKENS = 512  # for where it never comes to its end by itself

_MAX_THREADS = 8  # memory bandwidth, not cores, bounds decoding beyond
_ONE_THREAD_BYTES = 16 * 2**20  # below, threads wait for each other longer than they compute


class LocalServer:
    r"""A llama.cpp server on a free loopback port, speaking all three wire formats; up between enter and exit.

    Works with `async with` (starting does not block the loop) and with `with` (starting blocks). The server is a child
    process that ends with the block, and with this process in whatever way that ends.

    * `model`: the path of a GGUF; None is the packaged Gemma 3 270M, a base model: quick, and poor at answers. The
      packaged model comes with a few-shot chat template, which knows no tools and ends an answer at `"\nQuestion:"`
      (a request's own stop sequences replace that one); a model of yours is served with its own template.
    * `thinking`: use a few-shot template that makes the model reason before it answers, for any `model`.
    * `context`: tokens of prompt and answer together, for each of `parallel` requests that are served at a time.
    * `port`: the TCP port to listen on; 0 is any free one.
    * `chat_template`: a Jinja template to use instead of either.

    Raises ValueError at construction for a number below 1 or a port that is none; entering raises
    `LocalModelUnavailable`, with the reason in one line, where no such server can be had. An instance can be entered
    again after it was left.
    """

    model: str
    """The name to send as a request's model."""

    def __init__(
        self,
        model: str | os.PathLike[str] | None = None,
        thinking: bool = False,
        context: int = 2048,
        *,
        port: int = 0,
        parallel: int = 2,
        chat_template: str | None = None,
    ) -> None:
        for name, number in (("context", context), ("parallel", parallel)):
            if number < 1:
                raise ValueError(f"{name} is at least 1, not {number}")
        if not 0 <= port < 65536:
            raise ValueError(f"port is a TCP port, or 0 for any free one, not {port}")
        self._port = port
        self.model = _PACKAGED_ALIAS if model is None else os.path.basename(model).removesuffix(".gguf")  # noqa: PTH119  # also of a str
        self._path = model
        self._thinking = thinking
        self._context = context
        self._parallel = parallel
        self._chat_template = chat_template
        self._process: ServerProcess | None = None
        self._base_url: str | None = None

    def __repr__(self) -> str:
        return f"LocalServer({self.model!r}, base_url={self._base_url!r})"

    @property
    def base_url(self) -> str:
        """`http://127.0.0.1:PORT/v1`, for all three backends. Raises RuntimeError outside the block."""
        if self._base_url is None:
            raise RuntimeError("the local server is not running: use it inside `async with LocalServer() as server`")
        return self._base_url

    @property
    def pid(self) -> int | None:
        """The child's process id, None while there is none."""
        return None if self._process is None else self._process.pid

    def __enter__(self) -> Self:
        process = self._claim()
        try:
            self._base_url = self._start(process)
        except BaseException:
            self._process = None
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._release().stop()

    async def __aenter__(self) -> Self:
        process = self._claim()
        try:
            self._base_url = await asyncio.to_thread(self._start, process)
        except BaseException:
            process.stop()  # if we were cancelled, the thread still waits for an answer: this ends its wait
            self._process = None
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        process = self._release()
        process.kill()  # at once, even if this task is being cancelled; only the reaping may wait
        await asyncio.to_thread(process.stop)

    def _claim(self) -> ServerProcess:
        if self._process is not None:
            raise RuntimeError("this LocalServer is already running; make another for a second server")
        self._process = ServerProcess()
        return self._process

    def _release(self) -> ServerProcess:
        process, self._process, self._base_url = self._process, None, None
        if process is None:
            raise RuntimeError("this LocalServer was not entered")
        return process

    def _start(self, process: ServerProcess) -> str:
        require_engine()
        return process.start(self._settings()) + "/v1"

    def _settings(self) -> Settings:
        packaged = self._path is None
        few_shot = self._chat_template is None and (packaged or self._thinking)
        path = packaged_gguf() if self._path is None else checked_gguf(self._path)
        template = templates.THINKING if self._thinking else templates.PLAIN
        return {
            "path": str(path),
            "alias": self.model,
            "port": self._port,
            "context_tokens": self._context,
            "parallel": self._parallel,
            "threads": 1 if path.stat().st_size < _ONE_THREAD_BYTES else min(_usable_cores(), _MAX_THREADS),
            "chat_template": template if few_shot else self._chat_template,
            "stop": [templates.STOP] if few_shot else [],
            "sampling": _PACKAGED_SAMPLING if packaged else {},
            "max_output_tokens": _PACKAGED_MAX_OUTPUT_TOKENS if packaged else None,
        }


def _usable_cores() -> int:
    # A container's share, where the platform tells; the machine's cores otherwise.
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
