"""Shares in an actor, to be given away."""

from __future__ import annotations

from typing import Self

from reactivex import Observable

from .actor import Question, SamplerActor
from .conversation import SamplingRequest
from .events import SamplingEvent
from .feeds import RequestId

__all__ = ["SamplerHandle"]


class SamplerHandle:
    """A cheap share in an actor, to be given away: to another thread, a plugin, a request handler.

    Its methods are those of `SamplerActor`, safe on any thread. `close()` (or the end of `with`) gives the share back;
    the last one given back closes the actor, which cancels what runs. A closed handle submits nothing (RuntimeError),
    cancels nothing, and knows of no request.
    """

    def __init__(self, actor: SamplerActor) -> None:
        self._actor: SamplerActor | None = actor
        self._own = actor
        actor.acquire()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the share back. More than once is as once."""
        actor, self._actor = self._actor, None
        if actor is not None:
            actor.release()

    def submit(self, question: Question, request_id: str | None = None) -> RequestId:
        """As `SamplerActor.submit`, of any question."""
        if self._actor is None:
            raise RuntimeError("the handle is closed")
        return self._actor.submit(SamplingRequest.of(question), request_id)

    def cancel(self, request_id: str) -> None:
        """As `SamplerActor.cancel`."""
        if self._actor is not None:
            self._actor.cancel(request_id)

    def is_active(self, request_id: str) -> bool:
        """As `SamplerActor.is_active`."""
        return self._actor is not None and self._actor.is_active(request_id)

    def active_count(self) -> int:
        """As `SamplerActor.active_count`."""
        return self._actor.active_count() if self._actor is not None else 0

    @property
    def events(self) -> Observable[SamplingEvent]:
        """As `SamplerActor.events`."""
        return self._own.events

    def events_of(self, request_id: str) -> Observable[SamplingEvent]:
        """As `SamplerActor.events_of`."""
        return self._own.events_of(request_id)
