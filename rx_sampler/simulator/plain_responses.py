"""Responses that are no streamed answer: documents, refusals, and the errors that a script asks for."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import formatdate
from hashlib import sha256
from typing import Final

from aiohttp import web

from .asks import Problem
from .faults import Fault
from .json_tools import JsonObject, dumps
from .received import lower_names
from .wire_format import WireFormat

__all__ = ["PlainResponses"]

_SERVER_NAME: Final = "rx-sampler-simulator"


class PlainResponses:
    """Whole responses of a server with this seed, at this simulated time (Unix seconds)."""

    def __init__(self, seed: int, now: int) -> None:
        self._seed = seed
        self._now = now

    def common_headers(self) -> dict[str, str]:
        """What every response has."""
        # The date is the simulated one: a real one would make the bytes differ from second to second.
        return {"server": _SERVER_NAME, "date": formatdate(self._now, usegmt=True)}

    def request_id(self, request: web.Request, raw: bytes) -> str:
        """The id of a request whose body is this; the same for the same request."""
        return f"req_{sha256(f'{self._seed}|{request.path}|'.encode() + raw).hexdigest()[:32]}"

    def json(self, status: int, document: JsonObject, headers: Mapping[str, str]) -> web.Response:
        """A JSON document."""
        whole = {"content-type": "application/json", **self.common_headers(), **headers}
        return web.Response(status=status, body=dumps(document).encode(), headers=whole)

    def error(self, wire: WireFormat, problem: Problem, request_id: str) -> web.Response:
        """The provider's error."""
        return self.json(problem.status, wire.error_body(problem, request_id), wire.error_headers(request_id))

    def scripted(self, wire: WireFormat, fault: Fault, request_id: str) -> web.Response:
        """What a fault of kind `status` says."""
        own_headers = lower_names(fault.headers)
        headers = {**self.common_headers(), **wire.error_headers(request_id)}
        if isinstance(fault.body, str):
            kind = "text/html" if fault.body.lstrip().startswith("<") else "text/plain"
            headers = {**headers, "content-type": f"{kind}; charset=utf-8", **own_headers}
            return web.Response(status=fault.status, body=fault.body.encode(), headers=headers)
        message = fault.message or f"simulated failure with status {fault.status}"
        problem = Problem(status=fault.status, message=message, type=fault.type, code=fault.code)
        document = fault.body if fault.body is not None else wire.error_body(problem, request_id)
        return self.json(fault.status, document, {**wire.error_headers(request_id), **own_headers})
