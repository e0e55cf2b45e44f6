"""The network: an HTTP POST as a cold observable.

Everything that can go wrong below the status line becomes `SamplingError(http)` here; nothing above this module sees
an aiohttp exception.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import aiohttp
from reactivex import Observable, abc
from reactivex.disposable import Disposable

from rx_sampler.errors import SamplingError, SamplingErrorKind

from .connection_loss import told_of_loss
from .inflate import inflater_for
from .network_errors import NETWORK_ERRORS, is_reset, translated
from .proxy import Proxied, Proxy
from .tls import trusting
from .transport import Connected, HttpRequest, Passage, Prepare, ResponseHead, Wire

__all__ = ["HttpTransport"]

DRAIN_S: Final = 0.1
"""After the logical end: how long the connection may take to end its body and so become reusable."""

_MAX_HEADER_BYTES: Final = 64 * 1024
"""Gateways send cookies and policies that aiohttp's 8,190 bytes do not hold."""

_LINE: Final = re.compile(rb"[^\r\n]*[\r\n]+|[^\r\n]+")
"""A line with all the line ends behind it: as much of a body as never holds more than one frame."""


class HttpTransport:
    """Connections to servers, pooled while the transport is open.

    Between `open()` and `aclose()` connections are kept for reuse. Outside, each exchange has a connection of its
    own that closes with it, so that a transport that nobody closes leaves nothing behind, and one that is used under
    several event loops in turn (notebooks, `asyncio.run` twice) never touches a dead one.

    `proxy` carries everything, whatever the environment says; `ca_bundle` is a PEM file of authorities to trust besides
    the system's. Raises ValueError for one that cannot be used.
    """

    def __init__(
        self, *, trust_env: bool = False, proxy: str | None = None, ca_bundle: Path | str | None = None
    ) -> None:
        self._trust_env = trust_env
        self._proxy = None if proxy is None else Proxy.of(proxy)
        self._ssl: ssl.SSLContext | bool = True if ca_bundle is None else trusting(ca_bundle)
        self._pooled: aiohttp.ClientSession | None = None
        self._pool_loop: asyncio.AbstractEventLoop | None = None
        self._running: dict[asyncio.Task[None], _Exchange] = {}

    def open(self) -> None:
        """Keep connections of the running loop from now on; no change if they are kept already."""
        loop = asyncio.get_running_loop()
        if self._pooled is None or self._pool_loop is not loop:
            self._pooled, self._pool_loop = self._new_session(keeps_connections=True), loop

    async def aclose(self) -> None:
        """Close the pool and what still drains; running exchanges are cancelled."""
        pooled, self._pooled = self._pooled, None
        loop = asyncio.get_running_loop()
        running = {task: exchange for task, exchange in self._running.items() if task.get_loop() is loop}
        for task, exchange in running.items():
            exchange.abort(task)
        await asyncio.gather(*running, return_exceptions=True)
        if pooled is not None:
            await pooled.close()

    def _new_session(self, *, keeps_connections: bool) -> aiohttp.ClientSession:
        trace = aiohttp.TraceConfig()

        async def connected(_session: object, context: SimpleNamespace, _params: object) -> None:
            context.trace_request_ctx(True)

        async def reused(_session: object, context: SimpleNamespace, _params: object) -> None:
            context.trace_request_ctx(False)

        trace.on_connection_create_end.append(connected)
        trace.on_connection_reuseconn.append(reused)
        # No limit here: a queue inside the connector would hide as a slow server.
        connector = (
            aiohttp.TCPConnector(limit=0, ttl_dns_cache=300, keepalive_timeout=30, ssl=self._ssl)
            if keeps_connections
            else aiohttp.TCPConnector(limit=0, force_close=True, ssl=self._ssl)
        )
        return aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=self._trust_env,
            max_line_size=_MAX_HEADER_BYTES,
            max_field_size=_MAX_HEADER_BYTES,
            trace_configs=[trace],
        )

    @contextlib.asynccontextmanager
    async def _session(self, own_connection: bool) -> AsyncGenerator[aiohttp.ClientSession]:
        pooled = None if own_connection else self._pooled
        if pooled is not None and not pooled.closed and self._pool_loop is asyncio.get_running_loop():
            yield pooled
            return
        async with self._new_session(keeps_connections=False) as own:
            yield own

    def post(self, prepare: Prepare, is_over: Callable[[], bool] = lambda: False) -> Observable[Wire]:
        """Send what `prepare` gives, once per subscription: `Connected`, then `ResponseHead`, then the body as read.

        Completes at a clean end of the body. Cold; runs as a task of the running loop, which must be the
        subscriber's. Redirects are not followed (a key would travel, a POST become a GET): they come out as heads.
        Dispose closes the socket at once, in whatever phase; where `is_over` says that the answer had come to its
        logical end, the body gets `DRAIN_S` to end too, so that the connection can be used again. While somebody
        watches the request's `passage`, the body comes a line at a time, and none while it is shut, so that TCP slows
        the server. Errors by `on_error`: `SamplingError` of kind `http` or `invalid_request`, `cancelled` when the
        transport is closed, and what `prepare` raises.
        """

        def subscribe(
            observer: abc.ObserverBase[Wire], _scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            exchange = _Exchange(prepare, observer, is_over, self._proxy)
            task = asyncio.get_running_loop().create_task(exchange.run(self._session), name="rx_sampler exchange")
            self._running[task] = exchange
            task.add_done_callback(self._running.pop)
            task.add_done_callback(_report)
            return Disposable(lambda: exchange.stop(task))

        return Observable(subscribe)


class _ObserverRaisedError(Exception):
    """An observer's own error on its way out, told apart from what the network raises."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class _Exchange:
    """One request and its response, owned by one task."""

    def __init__(
        self, prepare: Prepare, observer: abc.ObserverBase[Wire], is_over: Callable[[], bool], proxy: Proxy | None
    ) -> None:
        self._prepare = prepare
        self._proxy = proxy
        self._passage: Passage | None = None
        self._observer = observer
        self._is_over = is_over
        self._response: aiohttp.ClientResponse | None = None
        self._stopped = False
        self._drains = False
        self._fresh = False
        """The connection was made for this request."""

    def stop(self, task: asyncio.Task[None]) -> None:
        """Dispose, from any thread."""
        if self._stopped:
            return
        self._stopped = True
        loop = task.get_loop()
        if _running_loop() is loop:
            self._abort(task)
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and all of its sockets with it
                loop.call_soon_threadsafe(self._abort, task)

    def abort(self, task: asyncio.Task[None]) -> None:
        """The transport closes: the observer is told, even if the task has not taken its first step."""
        self._fail(_closed())
        task.cancel()

    def _abort(self, task: asyncio.Task[None]) -> None:
        if self._is_over() and task is asyncio.current_task():
            self._drains = True  # we are inside on_next: _read goes on from there
            return
        if self._response is not None:
            self._response.close()
        task.cancel()

    async def run(self, session_of: Callable[[bool], AbstractAsyncContextManager[aiohttp.ClientSession]]) -> None:
        try:
            request = await self._prepare()
            self._passage = request.passage
            async with session_of(request.own_connection) as session:
                await self._exchange(session, request)
        except asyncio.CancelledError:
            self._fail(_closed())
            raise
        except _ObserverRaisedError as raised:
            self._stopped = True
            raise raised.error from None
        except Exception as error:
            self._fail(error)
        else:
            if not self._stopped:
                self._stopped = True
                self._observer.on_completed()

    def _fail(self, error: Exception) -> None:
        if not self._stopped:
            self._stopped = True
            self._observer.on_error(error)

    def _emit(self, item: Wire) -> None:
        try:
            self._observer.on_next(item)
        except Exception as error:
            raise _ObserverRaisedError(error) from error

    async def _exchange(self, session: aiohttp.ClientSession, request: HttpRequest) -> None:
        raised: list[_ObserverRaisedError] = []

        def connected(fresh: bool) -> None:
            self._fresh = fresh
            try:
                if not self._stopped:
                    self._emit(Connected())
            except _ObserverRaisedError as error:
                raised.append(error)  # aiohttp would drop the new connection without closing it

        response = await self._sent(session, request, connected)
        self._response = response
        try:
            if raised:
                raise raised[0]
            if not self._stopped:
                self._emit(ResponseHead(status=response.status, headers=response.headers, host=request.host))
            with told_of_loss(response):
                await self._read(response, request.host)
        finally:
            # Closes the socket unless the body ended, in which case the connection is back in the pool already.
            response.close()

    async def _sent(
        self, session: aiohttp.ClientSession, request: HttpRequest, connected: Callable[[bool], None]
    ) -> aiohttp.ClientResponse:
        proxied = Proxied() if self._proxy is None else self._proxy.carrying(request.url)
        try:
            return await session.post(
                request.url,
                data=request.body,
                headers={**request.headers, **proxied.headers},
                allow_redirects=False,
                trace_request_ctx=connected,
                proxy=proxied.url,
                proxy_headers=proxied.connect_headers,
            )
        except NETWORK_ERRORS as error:
            failure = translated(error, request.host)
            if self._fresh and is_reset(error):
                # On a connection that was idle before, a reset says only that the server had let it go.
                failure.amend(code="upload_broken")
        raise failure  # out here: its context would be aiohttp's error, which may hold the request

    async def _read(self, response: aiohttp.ClientResponse, host: str) -> None:
        content = response.content
        inflater = inflater_for(response.headers.get("content-encoding", ""))
        read = content.readany
        failure: SamplingError | None = None
        while not self._stopped and failure is None:
            try:
                data = await read()
            except NETWORK_ERRORS as error:
                # What had arrived before the break is whole frames that the reader has not seen.
                data = _left_in(content)
                failure = translated(error, host)
            else:
                if not data:
                    return
            for piece in (data,) if inflater is None else inflater.feed(data):
                await self._hand_on(piece)
        if failure is not None and not self._stopped:
            raise failure
        if self._drains:
            with contextlib.suppress(*NETWORK_ERRORS):
                async with asyncio.timeout(DRAIN_S):
                    while not content.at_eof():
                        await content.readany()

    async def _hand_on(self, data: bytes) -> None:
        passage = self._passage
        if passage is None or not passage.is_watched:
            if data and not self._stopped:
                self._emit(data)
            return
        for line in _LINE.findall(data):
            if passage.is_shut:
                await passage.opened()
            if self._stopped:
                return
            self._emit(line)


def _closed() -> SamplingError:
    return SamplingError.of(SamplingErrorKind.CANCELLED, "the sampler was closed")


def _left_in(content: aiohttp.StreamReader) -> bytes:
    # readany() raises the stream's exception before it hands out what is buffered, and there is no public way past it.
    try:
        return content._read_nowait(-1)  # pyright: ignore[reportPrivateUsage]
    except (AttributeError, AssertionError):
        return b""


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _report(task: asyncio.Task[None]) -> None:
    # Only a bug, or an observer that raised where nobody guards it, ends the task in an exception.
    if not task.cancelled() and (error := task.exception()) is not None:
        task.get_loop().call_exception_handler({"message": "an exchange failed", "exception": error, "task": task})
