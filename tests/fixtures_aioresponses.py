"""aioresponses on every aiohttp: a bridge over the argument that 0.7.9 does not know.

aiohttp 3.14 wants the writer of the request when it makes a response; aioresponses 0.7.9 gives none. Its mocks hand
out a whole body at once, so they serve to look at requests, statuses and headers; all that has to do with time or
with the cutting of bytes is tested on real sockets.
"""

from __future__ import annotations

from collections.abc import Generator
from types import SimpleNamespace
from typing import Any, Self

import aiohttp
import pytest
from aioresponses import aioresponses
from wires import PATHS, answer

BASE_URL = "https://api.test/v1"


class _BridgedResponse(aiohttp.ClientResponse):
    def __init__(self, method: str, url: Any, **arguments: Any) -> None:
        # all that a response asks of its request's writer is how much was sent
        arguments.setdefault("stream_writer", SimpleNamespace(output_size=0))
        super().__init__(method, url, **arguments)


class Mocked:
    """The answers of the next requests, and what was asked."""

    def __init__(self) -> None:
        self._mock: Any = aioresponses()  # hardly typed: what it knows is read here and given out typed

    def __enter__(self) -> Self:
        self._mock.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._mock.stop()

    def post(self, url: str, **answer: Any) -> None:
        """The next POST to `url` gets this; the arguments are those of `aioresponses.post`."""
        self._mock.post(url, response_class=_BridgedResponse, **answer)

    def answers(self, backend: str, *pieces: str, query: str = "") -> None:
        """The next request of that backend gets a whole answer."""
        body = b"".join(answer(backend, *(pieces or ("ok",))))
        self.post(f"{BASE_URL}{PATHS[backend]}{query}", body=body, content_type="text/event-stream")

    def sent(self) -> list[tuple[str, dict[str, str], bytes]]:
        """URL, headers (names in lower case) and body of every POST so far."""
        return [
            (str(url), {name.lower(): value for name, value in call.kwargs["headers"].items()}, call.kwargs["data"])
            for (method, url), calls in self._mock.requests.items()
            for call in calls
            if method == "POST"
        ]


@pytest.fixture
def mocked() -> Generator[Mocked]:
    """No request of the test leaves the process."""
    with Mocked() as it:
        yield it
