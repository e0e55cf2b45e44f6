"""The simulator's socket: an aiohttp server that answers in all three wire formats."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from types import TracebackType
from typing import Final

from aiohttp import web

from .answers import Derivation, fill
from .asks import Problem, RefusedError
from .chaos import Chaos
from .chat_completions import ChatCompletions
from .connection import close, hold, reset, reset_upload, send_document, send_stream
from .faults import Fault, strikes_before_headers
from .json_tools import JsonObject, dumps, read_object
from .messages import Messages
from .models import models_document
from .pacing import Pacer
from .plain_responses import PlainResponses
from .received import ReceivedRequest, RequestLog, lower_names
from .request_key import request_key
from .responses import Responses
from .script import ScriptError, Timing, Turn
from .steps import document_steps, stream_steps
from .turn_queue import Arrival, Attempt, TurnQueue
from .wire_format import WireFormat

__all__ = ["DEFAULT_NOW", "Simulator"]

_TURN_HEADER: Final = "x-simulator-turn"
_NAME_HEADER: Final = "x-simulator-request"
_DOOM_LOOP_HEADER: Final = "x-grok-doom-loop-check"

_ANTHROPIC_HEADERS: Final = frozenset({"anthropic-version", "x-api-key"})

_CHAT, _RESPONSES, _MESSAGES = ChatCompletions(), Responses(), Messages()
_WIRE_FORMATS: Final[tuple[WireFormat, ...]] = (_CHAT, _RESPONSES, _MESSAGES)
DEFAULT_NOW: Final = 1_767_225_600  # 2026-01-01T00:00:00Z
_LARGEST_BODY_BYTES: Final = 64 * 1024 * 1024
"""Requests may hold inline images; aiohttp's own limit of 1 MiB is below one of them."""
_LARGEST_HEADER_BYTES: Final = 64 * 1024
"""A turn may come in a header; aiohttp's own limit is 8190 bytes."""
_MOST_WAITING_CONNECTIONS: Final = 1024
"""Load tests open hundreds at once; beyond aiohttp's own 128 a connection waits a second for its next chance."""


class Simulator:
    """A server on 127.0.0.1 that speaks chat completions, responses and messages, for as long as it is entered.

    * `seed`: the same seed and request give the same bytes, identifiers and times included; `now` (Unix seconds) is
      the time that every answer states.
    * `timing`: the pace; `Timing.instant()` for tests.
    * `port`: 0 takes a free one.
    * `script`: what the first requests get, in order; later ones get generated answers. A request may bring its own
      turn as JSON in the header `x-simulator-turn`; that one takes none from the script. `Turn` says how the retries
      of a request are known.
    * `chaos`: faults by chance for the requests that no turn is left for; None for none.
    * `models`: what `GET /v1/models` lists. Any model is answered.

    Raises `OSError` on entering if the port is taken. Leaving ends every answer that is still running.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        timing: Timing | None = None,
        port: int = 0,
        script: Iterable[Turn] = (),
        chaos: Chaos | None = None,
        models: Iterable[str] = ("simulated-model",),
        now: int = DEFAULT_NOW,
    ) -> None:
        self._seed = seed
        self._timing = timing if timing is not None else Timing()
        self._port = port
        if chaos is not None and not isinstance(chaos, Chaos):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a checker
            raise TypeError(f"chaos is {type(chaos).__name__}, expected Chaos or None")
        self._turns = TurnQueue(_checked(script), chaos)
        self._models = tuple(models)
        self._now = now
        self._plain = PlainResponses(seed, now)
        self._log = RequestLog()
        self._handlers: set[asyncio.Task[object]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._runner: web.AppRunner | None = None

    @property
    def origin(self) -> str:
        """Scheme, host and port: what the anthropic client wants as its base URL."""
        if self._runner is None:
            raise RuntimeError("the simulator has no address before it is entered: use `async with Simulator() as it`")
        return f"http://127.0.0.1:{self._port}"

    @property
    def base_url(self) -> str:
        """The origin with /v1: what rx_sampler and the openai client want."""
        return f"{self.origin}/v1"

    @property
    def requests(self) -> list[ReceivedRequest]:
        """What came, oldest first; the last thousand requests."""
        return self._log.requests

    @property
    def active_count(self) -> int:
        """The requests that are being answered now."""
        return len(self._handlers)

    def script_next(self, *turns: Turn) -> None:
        """Queue turns behind those that wait already; may be called from any thread."""
        self._turns.extend(_checked(turns))

    async def wait_received(self, count: int) -> None:
        """Return once `count` requests have come since the start; some of them may be in the middle of their answer."""
        await self._log.wait_for(count)

    async def wait_idle(self) -> None:
        """Return once no request is being answered."""
        await self._idle.wait()

    async def __aenter__(self) -> Simulator:
        if self._runner is not None:
            raise RuntimeError("the simulator runs already")
        app = web.Application(client_max_size=_LARGEST_BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", self._handle)
        # A client that goes away cancels its handler at once.
        runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=1.0, max_field_size=_LARGEST_HEADER_BYTES
        )
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", self._port, backlog=_MOST_WAITING_CONNECTIONS)
            await site.start()
        except BaseException:
            await runner.cleanup()
            raise
        self._port = runner.addresses[0][1]
        self._runner = runner
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        runner, self._runner = self._runner, None
        if runner is None:
            return
        for handler in tuple(self._handlers):
            handler.cancel()
        await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        handler = asyncio.current_task()
        assert handler is not None, "a coroutine that runs has a task"  # noqa: S101 - for the type checker
        self._handlers.add(handler)
        self._idle.clear()
        try:
            return await self._answer(request)
        finally:
            self._handlers.discard(handler)
            if not self._handlers:
                self._idle.set()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path.removeprefix("/v1")
        wire = next((wire for wire in _WIRE_FORMATS if wire.path == path), None)
        dialect = wire or (_MESSAGES if _ANTHROPIC_HEADERS & {name.lower() for name in request.headers} else _CHAT)
        arrival = _arrival(request, path) if wire is not None and request.method == "POST" else None
        if arrival is not None and (reset_attempt := self._before_body(arrival)) is not None:
            await self._log.add(request, None, reset_attempt)
            await reset_upload(request, reset_attempt.turn.fault)
            return web.Response()  # to nobody: aiohttp wants one
        try:
            raw = await request.read()
        except web.HTTPRequestEntityTooLarge:
            problem = Problem(status=413, message=f"the body is larger than {_LARGEST_BODY_BYTES} bytes")
            return self._plain.error(dialect, problem, self._plain.request_id(request, b""))
        body = read_object(raw)
        request_id = self._plain.request_id(request, raw)
        attempt, refusal = self._take(arrival, body, raw)
        await self._log.add(request, body, attempt)
        if request.method == "GET" and (document := models_document(path, self._models, self._now, dialect)):
            return self._plain.json(200, document, dialect.error_headers(request_id))
        try:
            if wire is None:
                raise RefusedError(Problem(status=404, message=f"no such URL: {request.method} {request.path}"))
            if attempt is None:
                refused = f"{request.path} takes POST, not {request.method}"
                raise refusal or RefusedError(Problem(status=405, message=refused))
            fault = attempt.turn.fault
            if fault is not None and strikes_before_headers(fault):
                return await self._fail_before_headers(wire, request, fault, request_id)
            if body is None:
                raise RefusedError(Problem(status=400, message="the request body is not a JSON object"))
            return await self._answer_with(wire, request, body, attempt)
        except RefusedError as error:
            return self._plain.error(dialect, error.problem, request_id)

    def _before_body(self, arrival: Arrival) -> Attempt | None:
        try:
            return self._turns.before_body(arrival)
        except ScriptError:
            return None  # `take` will say so, once the body was read

    def _take(
        self, arrival: Arrival | None, body: JsonObject | None, raw: bytes
    ) -> tuple[Attempt | None, RefusedError | None]:
        """The attempt that a request is; none if it asks for no answer, or if its own turn has to be refused."""
        if arrival is None:
            return None, None
        try:
            return self._turns.take(arrival, request_key(arrival.path, body, raw)), None
        except ScriptError as error:
            message = str(error).replace("\n", "; ")
            return None, RefusedError(Problem(status=400, message=message, param=_TURN_HEADER))

    async def _answer_with(
        self, wire: WireFormat, request: web.Request, body: JsonObject, attempt: Attempt
    ) -> web.StreamResponse:
        ask = wire.read(body)
        turn = attempt.turn
        fault = turn.fault
        if fault is not None and fault.kind == "error" and not ask.stream:
            raise RefusedError(wire.problem_of(fault))
        if fault is not None and fault.kind == "slow_headers":
            await asyncio.sleep(fault.delay_s)
        armed = ask.stream and wire is _RESPONSES and _DOOM_LOOP_HEADER in request.headers
        derivation = Derivation(self._seed, wire.path, body)
        answer = fill(ask, turn, seed=self._seed, derivation=derivation, created=self._now, doom_loop_armed=armed)
        headers = {**self._plain.common_headers(), **wire.headers(answer)}
        frames = tuple(wire.frames(ask, answer)) if ask.stream else ()
        pacer = Pacer(
            turn.timing or self._timing,
            derivation.random("pace"),
            token_count=answer.token_count,
            delta_count=sum(frame.is_delta for frame in frames),
        )
        sent = partial(self._turns.answered, attempt)
        if ask.stream:
            headers |= {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
            headers |= lower_names(turn.headers)
            steps = stream_steps(frames, fault, wire=wire, ask=ask, answer=answer)
            return await send_stream(request, steps, pacer, headers=headers, on_sent=sent)
        headers |= {"content-type": "application/json", **lower_names(turn.headers)}
        length, whole = document_steps(dumps(wire.document(ask, answer)).encode(), fault)
        return await send_document(request, whole, pacer, length=length, headers=headers, on_sent=sent)

    async def _fail_before_headers(
        self, wire: WireFormat, request: web.Request, fault: Fault, request_id: str
    ) -> web.StreamResponse:
        match fault.kind:
            case "status":
                return self._plain.scripted(wire, fault, request_id)
            case "silent":
                await hold()
            case "close":
                close(request)
            case _:
                reset(request)
        return web.Response()  # to nobody: aiohttp wants one


def _arrival(request: web.Request, path: str) -> Arrival:
    return Arrival(
        path=path,
        length_bytes=request.content_length,
        name=request.headers.get(_NAME_HEADER) or None,
        own_turn=request.headers.get(_TURN_HEADER),
    )


def _checked(turns: Iterable[Turn]) -> list[Turn]:
    """The turns; refused here, where the caller stands, rather than in a request."""
    checked = list(turns)
    for index, turn in enumerate(checked):
        if not isinstance(turn, Turn):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a checker
            raise TypeError(f"script: turn {index} is {type(turn).__name__}, expected Turn (`load_script` reads JSON)")
    return checked
