"""What a wire format is to the server: how requests are read and answers, errors and liveness are written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from .answers import Answer
from .asks import Ask, Problem
from .faults import Fault
from .frames import Comment, Frame
from .json_tools import JsonObject

__all__ = ["WireFormat"]


class WireFormat(Protocol):
    """One of the three formats; pure and without state."""

    @property
    def path(self) -> str:
        """The endpoint without /v1: `/messages`."""
        ...

    def read(self, body: JsonObject) -> Ask:
        """What the request asks for; raises `RefusedError` as the provider would refuse it."""
        ...

    def frames(self, ask: Ask, answer: Answer) -> Iterator[Frame]:
        """The streamed answer, first frame to last."""
        ...

    def document(self, ask: Ask, answer: Answer) -> JsonObject:
        """The answer to the same request without streaming."""
        ...

    def headers(self, answer: Answer) -> Mapping[str, str]:
        """Request id and rate limits, as the provider's headers name them."""
        ...

    def error_headers(self, request_id: str) -> Mapping[str, str]:
        """The headers of an error response."""
        ...

    def error_body(self, problem: Problem, request_id: str) -> JsonObject:
        """An HTTP error's body."""
        ...

    def error_frames(self, fault: Fault, ask: Ask, answer: Answer) -> Iterator[Frame]:
        """The provider's way to fail inside a stream that began with 200."""
        ...

    def problem_of(self, fault: Fault) -> Problem:
        """The HTTP error that a request without streaming gets for the same failure."""
        ...

    def keepalive(self) -> Frame | Comment:
        """A sign of life without content."""
        ...
