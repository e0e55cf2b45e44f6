"""One attempt, from request to events, on one page.

    prepare -> POST -> limits in time -> status -> frames -> chunks -> events

Failures travel as `SamplingError` on Rx's error channel; whoever stands behind (a retry, or `failures_as_events`)
decides what they mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from reactivex import Observable, abc

from .backends.assembly import Context
from .backends.base import Backend, ChunkDecoder, EventReader
from .config import SamplerConfig, shown_url
from .conversation import SamplingRequest, SamplingResponse
from .course import Course
from .demand import Gate
from .errors import EmptyReason, EmptyResponseContext, SamplingError, SamplingErrorInfo, SamplingErrorKind
from .events import SamplingEvent
from .images import without_images
from .loop_detection import LoopDetector
from .outgoing import http_request, redacted
from .scheduling import clock_of
from .stage import Machine, connect
from .wire.error_bodies import clean_message, read_error, refusal
from .wire.headers import head_facts, retry_after_s, should_retry
from .wire.idle import Limits, Pulse, watched
from .wire.transport import Connected, HttpRequest, ResponseHead, Transport, Wire

__all__ = ["attempt"]

MAX_ERROR_BODY_BYTES: Final = 64 * 1024
"""What is read of the body of a refusal; an endless one must not fill the memory."""


def attempt(
    request: SamplingRequest,
    config: SamplerConfig,
    backend: Backend[Any],
    transport: Transport,
    course: Course,
) -> Observable[SamplingEvent]:
    """The events of one attempt: `StreamStarted` to `Completed`.

    Cold: sends one request per subscription, on the subscription's scheduler, which must be given; `course` says which
    attempt it is and how to go about it. Dispose closes the socket. Errors by `on_error`: `SamplingError`, with what
    had streamed as `.partial`.
    """

    def subscribe(
        observer: abc.ObserverBase[SamplingEvent], scheduler: abc.SchedulerBase | None = None
    ) -> abc.DisposableBase:
        clock = clock_of(scheduler)
        pulse = Pulse(clock(), submitted_at=course.submitted_at, queued_s=course.queued_s)
        asked = without_images(request) if course.strip_images else request
        transform = backend.transform(
            Context(
                request_id=course.request_id,
                attempt=course.number,
                pulse=pulse,
                judge=_judge(config),
                declared_tools=frozenset(tool.name for tool in request.tools),
                split_think_tags=config.split_think_tags,
                accept_unterminated=config.accept_unterminated,
                choices=request.n or 1,
                default_model=request.model or config.model or None,
                notes_doom_loops=config.doom_loop is not None,
                doom_loop_threshold=config.doom_loop.max_threshold if config.doom_loop and course.armed else None,
            )
        )
        accepted = _Accepted(clock)
        sent: HttpRequest | None = None

        async def prepare() -> HttpRequest:
            nonlocal sent
            sent = replace(
                await http_request(backend, asked, config, course.request_id),
                own_connection=course.fresh_connections,
                passage=_Pausing(course.gate, pulse, clock),
            )
            return sent

        def opened(head: ResponseHead) -> None:
            for event in transform.opening(head_facts(head.headers, clock())):
                observer.on_next(event)

        transform.explain = lambda error: _explained(error, sent, accepted.head, clock)

        def abort(error: SamplingError) -> None:
            if pulse.abort is not None:
                pulse.abort(error)

        accepted.opened = opened
        course.on_abort = abort
        stages: list[Machine[Any, Any]] = [
            accepted,
            backend.framing(config.max_frame_bytes),
            EventReader(ChunkDecoder(backend), transform),
        ]
        if config.detect_loops is not None and course.armed:
            stages.append(LoopDetector(config.detect_loops, transform.fail))
        return connect(
            transport.post(prepare, lambda: transform.done and transform.error is None).pipe(
                watched(pulse, _limits(config))
            ),
            stages,
            observer,
            scheduler,
        )

    return Observable(subscribe)


class _Pausing:
    """The gate of the request; while it keeps the attempt waiting, no limit in time runs on."""

    def __init__(self, gate: Gate, pulse: Pulse, clock: Callable[[], float]) -> None:
        self._gate = gate
        self._pulse = pulse
        self._clock = clock

    @property
    def is_watched(self) -> bool:
        return self._gate.is_watched

    @property
    def is_shut(self) -> bool:
        return self._gate.is_shut

    async def opened(self) -> None:
        self._pulse.pause(self._clock())
        try:
            await self._gate.opened()
        finally:
            self._pulse.resume(self._clock())


class _Accepted(Machine[Wire, bytes]):
    """Lets the body of an accepted response through; reads that of a refusal and fails with what it says."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.opened: Callable[[ResponseHead], None] = lambda _head: None
        self.head: ResponseHead | None = None
        self._accepted = False
        self._refusal = bytearray()

    def feed(self, item: Wire) -> tuple[bytes, ...]:
        if self._accepted and isinstance(item, bytes):
            return (item,)
        if isinstance(item, ResponseHead):
            self.head = item
            self._accepted = item.accepted
            if item.accepted:
                self.opened(item)
            elif 300 <= item.status < 400:
                self.done, self.error = True, _redirected(item)
        elif not isinstance(item, Connected) and self.head is not None:
            self._refusal += item
            if len(self._refusal) >= MAX_ERROR_BODY_BYTES:
                del self._refusal[MAX_ERROR_BODY_BYTES:]
                self.done, self.error = True, self._refused(self.head)
        return ()

    def finish(self) -> tuple[bytes, ...]:
        if self.head is not None and not self._accepted:
            raise self._refused(self.head)
        return ()

    def fail(self, error: Exception) -> Exception:
        # A refusal whose body breaks off is a refusal still; who cancelled it does not want to hear of it.
        cancelled = isinstance(error, SamplingError) and error.kind is SamplingErrorKind.CANCELLED
        if cancelled or self.head is None or self._accepted or self.error is not None:
            return error
        return self._refused(self.head)

    def _refused(self, head: ResponseHead) -> SamplingError:
        headers = head.headers
        return refusal(
            read_error(bytes(self._refusal)),
            status=head.status,
            retry_after_s=retry_after_s(headers, self._clock()),
            should_retry=should_retry(headers),
        )


def _redirected(head: ResponseHead) -> SamplingError:
    target = clean_message(shown_url(head.headers.get("location", "")))
    return SamplingError.of(
        SamplingErrorKind.API,
        f"{head.host} redirects to {target[:200] or 'nowhere'} ({head.status}), which is not followed with a key; "
        "set base_url to the right address (https instead of http, perhaps)",
        status=head.status,
        code="redirect",
    )


def _explained(
    error: SamplingError, sent: HttpRequest | None, head: ResponseHead | None, clock: Callable[[], float]
) -> SamplingError:
    """Add what only the attempt knows: request id, limits, credential; and take secrets out of the message."""
    info = error.info
    message = info.message
    if head is not None:
        facts = head_facts(head.headers, clock())
        model_metadata = {
            name: value
            for name, value in facts.items()
            if isinstance(value, int | str) and name != "provider_request_id"
        }
        error.amend(
            provider_request_id=info.provider_request_id or facts.get("provider_request_id"),
            model_metadata=info.model_metadata or model_metadata or None,
        )
        if info.code == "not_a_stream" and sent is not None:
            kind = head.headers.get("content-type", "no content type").split(";")[0]
            message = f"{message}: {clean_message(kind)} from {shown_url(sent.url)}; is base_url right?"
    if sent is not None:
        if info.kind is SamplingErrorKind.AUTH:
            error.amend(credential="sent" if sent.has_credential else "missing")
        message = redacted(message, sent.secrets)
        error.amend(code=redacted(info.code, sent.secrets) if info.code else None)
    return error.amend(message=message)


def _judge(config: SamplerConfig) -> Callable[[SamplingResponse], SamplingError | None]:
    """What the request layer thinks of an answer that the protocol calls complete."""

    def judge(response: SamplingResponse) -> SamplingError | None:
        if response.stop_reason == "length":
            if config.on_length == "fail":
                return SamplingError.of(
                    SamplingErrorKind.MAX_TOKENS_TRUNCATION, "the response was cut at the token limit", code="length"
                )
            return None
        if response.stop_reason == "content_filter" or response.raw_stop_reason == "pause_turn":
            return None
        if any(item.type != "reasoning" for item in response.items):
            return None
        usage = response.usage
        reason: EmptyReason = "reasoning_only" if response.items else "no_visible_content"
        return SamplingError(
            SamplingErrorInfo(
                kind=SamplingErrorKind.EMPTY_RESPONSE,
                message=f"empty response from the model ({reason.replace('_', ' ')})",
                code=reason,
                is_retryable=True,
                empty_response_context=EmptyResponseContext(
                    reason=reason,
                    had_reasoning=bool(response.items),
                    finish_reason=response.raw_stop_reason,
                    output_tokens=usage.output_tokens if usage else None,
                    reasoning_tokens=usage.reasoning_tokens if usage else None,
                    input_tokens=usage.input_tokens if usage else None,
                    model=response.model,
                ),
            )
        )

    return judge


def _limits(config: SamplerConfig) -> Limits:
    def finite(seconds: float | None) -> float | None:
        return seconds if seconds is not None and math.isfinite(seconds) else None

    return Limits(
        connect_s=finite(config.connect_timeout_s),
        header_s=finite(config.header_timeout_s),
        idle_s=finite(config.idle_timeout_s),
        content_idle_s=finite(config.content_idle_s),
        grace_s=finite(config.terminal_grace_s),
        deadline_s=finite(config.deadline_s),
    )
