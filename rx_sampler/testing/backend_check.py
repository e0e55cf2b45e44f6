"""What a wire format has to do, as a check that any backend can be put to: `check_backend`."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

from pydantic import SecretStr

from rx_sampler.backends.base import Backend, get_backend
from rx_sampler.backends.encoding import body_bytes
from rx_sampler.config import SamplerConfig
from rx_sampler.conversation import SamplingRequest, SamplingResponse, TextPart, UserItem
from rx_sampler.errors import SamplingError, SamplingErrorKind
from rx_sampler.events import Completed, Failed, SamplingEvent, event_from_json, event_to_json
from rx_sampler.outgoing import http_request
from rx_sampler.wire.sse import SseFrame

from .backend_runs import Runs, spoilt_frames
from .grammar import GrammarError, check_events
from .splits import every_split, random_splits

T = TypeVar("T")

__all__ = ["ERROR_FRAMES", "NOISE_FRAMES", "SAMPLE_REQUESTS", "BackendError", "check_backend"]

NOISE_FRAMES: Final = (
    SseFrame("message", b"", ""),
    SseFrame("message", b"null", ""),
    SseFrame("message", b"{}", ""),
    SseFrame("ping", b'{"type":"ping"}', ""),
    SseFrame("x_unheard_of", b'{"type":"x_unheard_of","x":[1]}', ""),
    SseFrame("x_unheard_of", b"no JSON at all", ""),
)
"""Frames that say nothing to anyone: servers add types as they please, and keep connections alive."""

ERROR_FRAMES: Final = (
    SseFrame("message", b'{"error":{"message":"overloaded, come back later","type":"server_error","code":503}}', ""),
    SseFrame("error", b'{"error":{"message":"overloaded, come back later","type":"server_error","code":503}}', ""),
)
"""A failure that is told within the stream, as gateways word it in front of any wire format."""

_MALFORMED: Final = SseFrame("message", b'{"half": "of a', "")
_KEY: Final = "key-that-nobody-may-see-7f3a"
_WORDS: Final = "What is an owl?"
_SHORT_BYTES: Final = 1_000
"""Bodies up to this size are cut at every byte."""
_RANDOM_SPLITS: Final = 100
_SPOILT: Final = 200

_IMAGE: Final = "data:image/png;base64,iVBORw0KGgo="
_SCHEMA: Final = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def _request(*items: dict[str, Any], **fields: Any) -> SamplingRequest:
    return SamplingRequest.model_validate({"items": [{"type": "user", "content": _WORDS}, *items], **fields})


_CALL: Final = {"type": "tool_call", "id": "call_1", "name": "look_up", "arguments": '{"name":"owl"}'}
_TOOL: Final = {"name": "look_up", "description": "Looks a bird up.", "parameters": _SCHEMA}
_ANSWERED: Final = ({"type": "text", "text": "A bird."}, {"type": "user", "content": "Go on."})

SAMPLE_REQUESTS: Final = (
    _request(),
    _request(*_ANSWERED, {"type": "system", "content": "Be brief."}, temperature=0.5, top_p=0.9, max_output_tokens=64),
    _request({"type": "user", "content": [{"type": "text", "text": "And this?"}, {"type": "image", "url": _IMAGE}]}),
    _request(tools=[_TOOL], tool_choice="required"),
    _request(_CALL, {"type": "tool_result", "tool_call_id": "call_1", "content": "nocturnal"}, tools=[_TOOL]),
    _request({"type": "assistant", "content": "", "tool_calls": [_CALL]}, {"type": "user", "content": "Go on."}),
    _request({"type": "reasoning", "text": "hm", "signature": "sig"}, *_ANSWERED, reasoning_effort="low"),
    _request({"type": "refusal", "text": "No."}, {"type": "user", "content": "Please."}, stop=["END"]),
    _request(json_schema=_SCHEMA, metadata={"user_id": "u"}, prompt_cache_key="k"),
    _request(hosted_tools=[{"type": "web_search"}], n=2),
)
"""Requests of all kinds; a backend may refuse those that its wire cannot carry, but for the first."""


class BackendError(AssertionError):
    """A law that a backend breaks. `law` is its name; `transcript` counts from 0, None for the encoder."""

    def __init__(self, law: str, what: str, transcript: int | None = None) -> None:
        super().__init__(f"law {law!r}, {'encoder' if transcript is None else f'transcript {transcript}'}: {what}")
        self.law = law
        self.transcript = transcript


def check_backend(
    backend: str | Backend[Any],
    transcripts: Sequence[bytes],
    *,
    failures: Sequence[bytes] = (),
    announces_end: Callable[[SseFrame], bool] | None = None,
    noise: Sequence[SseFrame] = NOISE_FRAMES,
    errors: Sequence[SseFrame] = ERROR_FRAMES,
    malformed: SseFrame | None = _MALFORMED,
    requests: Sequence[SamplingRequest] = SAMPLE_REQUESTS,
    config: SamplerConfig | None = None,
) -> None:
    """Raise `BackendError` for the first law of wire formats that `backend` breaks.

    `transcripts` are bodies of whole answers, `failures` of answers that their server broke off with an error. Give
    one of each kind of content that the wire has; a few kilobytes each, for they are read thousands of times. Laws:

    * `ends`: a transcript ends in `Completed`, a failure in `Failed`, and no machine raises anything of its own.
    * `state`: two streams share nothing, neither in turn nor at the same time.
    * `grammar`, `json`: the events keep the event grammar, and go through JSON and back.
    * `splits`: they do not depend on where reads were cut.
    * `short cut`: `Transform.quick` gives what the long way does.
    * `cut`: a body that breaks off is no success before a frame of which `announces_end` is true (by default: before
      its last frame), and what came before stays reachable.
    * `after the end`: once the end was seen, nothing that follows counts.
    * `noise`: frames that mean nothing to the backend change nothing.
    * `malformed`: one of its own frames that is no JSON fails the stream (`serialization`), after all else was read.
    * `errors`: so does an error inside the stream, by its own kind.
    * `tolerant`: any value may be missing, null, or of another type.
    * `encoder`: a request becomes JSON, the same for an equal one, and is not changed; `extra_body` wins.
    * `secrets`: the key stands in one header and nowhere else.

    `noise`, `errors` and `malformed` are frames as the backend's framing gives them: leave out (`()`, None) or put
    otherwise what its wire cannot have. `requests` are what the encoder is tried with, `config` what it is given.
    """
    wire_format = get_backend(backend) if isinstance(backend, str) else backend
    _Check(wire_format, transcripts, failures, announces_end, noise, errors, malformed).check()
    _check_encoder(wire_format, requests, config)


class _Check:
    def __init__(
        self,
        backend: Backend[Any],
        transcripts: Sequence[bytes],
        failures: Sequence[bytes],
        announces_end: Callable[[SseFrame], bool] | None,
        noise: Sequence[SseFrame],
        errors: Sequence[SseFrame],
        malformed: SseFrame | None,
    ) -> None:
        self._runs = Runs(backend)
        self._name = backend.name
        self._announces_end = announces_end
        self._noise = noise
        self._errors = errors
        self._malformed = malformed
        self._bodies = [*transcripts, *failures]
        self._count = len(transcripts)
        self._at = 0
        self._law = self._where = ""

    def check(self) -> None:
        if not self._count:
            raise ValueError("check_backend() needs at least one transcript")
        for at, body in enumerate(self._bodies):
            self._at, self._law, self._where = at, "ends", ""
            try:
                self._check_body(body, is_whole=self._at < self._count)
            except (BackendError, KeyboardInterrupt):
                raise
            except GrammarError as error:
                raise self._broken(str(error)) from error
            except Exception as error:
                raise self._broken(f"raised {error!r}") from error

    def _check_body(self, body: bytes, *, is_whole: bool) -> None:
        events = self._runs.reads([body])
        end = events[-1]
        if not isinstance(end, Completed if is_whole else Failed):
            what = f"{end.error.kind}, {end.error.message}" if isinstance(end, Failed) else ""
            raise self._broken(f"ends in {end.kind} ({what})")
        frames = self._runs.framed(body)
        self._check_state(frames, events)
        self._law = "grammar"
        check_events(events, backend=self._name)
        self._check_json(events)
        self._check_splits(body, events)
        self._expect("short cut", "by the long way", self._runs.stages(frames), events)
        if is_whole:
            self._check_cuts(body, frames, events)
            self._check_accidents(frames, events)
        self._check_rest(frames, events)
        self._check_tolerance(frames)

    def _check_state(self, frames: Sequence[SseFrame], events: Sequence[SamplingEvent]) -> None:
        self._expect("state", "the second time", self._runs.frames(frames), events)
        other = self._runs.framed(self._bodies[(self._at + 1) % len(self._bodies)])
        self._runs.frames(other)
        self._expect("state", "after another stream", self._runs.frames(frames), events)
        self._expect("state", "beside another stream", self._runs.in_turns(frames, other)[0], events)

    def _check_json(self, events: Sequence[SamplingEvent]) -> None:
        self._law = "json"
        for event in events:
            if event_from_json(event_to_json(event)) != event:
                raise self._broken(f"another event comes back for {event}")

    def _check_splits(self, body: bytes, events: Sequence[SamplingEvent]) -> None:
        for reads in _splits(body):
            what = f"in {len(reads)} reads, the first of {len(reads[0])} bytes"
            self._expect("splits", what, self._runs.reads(reads), events)

    # -- what breaks off

    def _check_cuts(self, body: bytes, frames: Sequence[SseFrame], events: Sequence[SamplingEvent]) -> None:
        whole = _answer(events)
        for cut in _cuts(body):
            self._law, self._where = "cut", f"cut at byte {cut}: "
            told = self._runs.reads([body[:cut]])
            check_events(told, backend=self._name)
            kept = _answer(told)
            if isinstance(told[-1], Completed):
                if not self._was_announced(self._runs.framed(body[:cut]), frames):
                    raise self._broken("Completed, although the end was not announced")
                if kept.items != whole.items:
                    raise self._broken("Completed with less than the whole")
            self._check_beginning(kept, whole)
        self._where = ""

    def _was_announced(self, came: Sequence[SseFrame], frames: Sequence[SseFrame]) -> bool:
        if self._announces_end is None:
            return bool(came) and len(came) >= len(frames) and came[-1] == frames[-1]
        return any(map(self._announces_end, came))

    def _check_beginning(self, kept: SamplingResponse, whole: SamplingResponse) -> None:
        for channel in ("text", "reasoning", "refusal"):
            said, all_of_it = getattr(kept, channel), getattr(whole, channel)
            if not all_of_it.startswith(said.removesuffix("\ufffd")):  # half a character, perhaps
                raise self._broken(f"its {channel} ends in {said[-60:]!r}, which is no beginning of the whole")

    def _check_rest(self, frames: Sequence[SseFrame], events: Sequence[SamplingEvent]) -> None:
        self._law, self._where = "after the end", "with all of it once more: "
        told = self._runs.frames([*frames, *frames])
        check_events(told)
        self._where = ""
        if self._runs.ends_itself(frames):
            self._expect("after the end", "with all of it once more", told, events)

    # -- what comes between

    def _check_accidents(self, frames: Sequence[SseFrame], events: Sequence[SamplingEvent]) -> None:
        noisy = [frame for own in frames for frame in (*self._noise, own)]
        self._expect("noise", "with frames that mean nothing", self._runs.frames(noisy), events)
        is_end = self._announces_end or frames[-1].__eq__
        at = next((n for n, frame in enumerate(frames) if is_end(frame)), len(frames) - 1)
        if self._malformed is not None:
            for place in sorted({0, at}):
                self._law, self._where = "malformed", f"no JSON before frame {place}: "
                told = self._runs.frames([*frames[:place], self._malformed, *frames[place:]])
                self._check_failure(told, events, (SamplingErrorKind.SERIALIZATION,))
        for error in self._errors:
            self._law, self._where = "errors", f"error frame {error.event!r} before frame {at}: "
            told = self._runs.frames([*frames[:at], error, *frames[at:]])
            self._check_failure(told, self._runs.frames(frames[:at]), _KINDS_OF_ERRORS)
        self._where = ""

    def _check_failure(
        self, told: Sequence[SamplingEvent], otherwise: Sequence[SamplingEvent], kinds: Sequence[SamplingErrorKind]
    ) -> None:
        check_events(told, backend=self._name)
        end, wanted = told[-1], _answer(otherwise)
        if not isinstance(end, Failed):
            raise self._broken("the answer is Completed")
        if end.error.kind not in kinds:
            raise self._broken(f"fails as {end.error.kind}, not as {' or '.join(kinds)}: {end.error.message}")
        kept = _answer(told)
        for channel in ("text", "reasoning", "refusal"):
            if getattr(kept, channel) != getattr(wanted, channel):
                raise self._broken(f"its {channel} is {getattr(kept, channel)!r}, not {getattr(wanted, channel)!r}")

    def _check_tolerance(self, frames: Sequence[SseFrame]) -> None:
        for what, spoilt in spoilt_frames(frames, seed=self._at, count=_SPOILT):
            self._law, self._where = "tolerant", f"{what}: "
            check_events(self._runs.frames(spoilt))
        self._where = ""

    def _expect(self, law: str, what: str, told: Sequence[SamplingEvent], wanted: Sequence[SamplingEvent]) -> None:
        self._law = law
        if told != wanted:
            at = next((n for n, (a, b) in enumerate(zip(told, wanted, strict=False)) if a != b), None)
            at = min(len(told), len(wanted)) if at is None else at
            shown = [events[at] if at < len(events) else "nothing" for events in (told, wanted)]
            raise self._broken(f"{what}, event {at} is {shown[0]} instead of {shown[1]}")

    def _broken(self, what: str) -> BackendError:
        return BackendError(self._law, self._where + what, self._at)


_KINDS_OF_ERRORS: Final = (SamplingErrorKind.API, SamplingErrorKind.RATE_LIMITED, SamplingErrorKind.AUTH)


def _answer(events: Sequence[SamplingEvent]) -> SamplingResponse:
    """The response at the end, or what there was of one."""
    end = events[-1]
    kept = end.response if isinstance(end, Completed) else end.partial if isinstance(end, Failed) else None
    return kept or SamplingResponse()


def _splits(body: bytes) -> Iterator[list[bytes]]:
    if len(body) <= _SHORT_BYTES:
        yield from every_split(body)
    else:
        yield [body[at : at + 1] for at in range(len(body))]
        yield from random_splits(body, seed=len(body), count=_RANDOM_SPLITS)


def _cuts(body: bytes) -> range:
    return range(0, len(body), max(len(body) // _SHORT_BYTES, 1))


# -- requests


def _check_encoder(backend: Backend[Any], requests: Iterable[SamplingRequest], config: SamplerConfig | None) -> None:
    config = config or SamplerConfig(backend=backend.name, base_url="https://model.invalid/v1", model="toy-1")
    config = config.model_copy(update={"api_key": SecretStr(_KEY), "bearer_resolver": None})
    for number, request in enumerate(requests):
        try:
            _check_request(backend, request, config, may_refuse=number > 0)
        except BackendError:
            raise
        except Exception as error:
            raise BackendError("encoder", f"request {number} made it raise {error!r}") from error


def _check_request(backend: Backend[Any], request: SamplingRequest, config: SamplerConfig, *, may_refuse: bool) -> None:
    before = request.model_dump_json()
    try:
        body = backend.encode(request, config)
    except SamplingError as error:
        if may_refuse and error.info.kind is SamplingErrorKind.INVALID_REQUEST:
            return
        raise
    written = body_bytes(body)
    if request.model_dump_json() != before:
        raise BackendError("encoder", "it changes the request")
    if body_bytes(backend.encode(request.model_copy(deep=True), config)) != written:
        raise BackendError("encoder", f"an equal request gives other bytes than {written!r}")
    for text in _user_texts(request):
        if json.dumps(text, ensure_ascii=False)[1:-1].encode() not in written:
            raise BackendError("encoder", f"{text!r} does not stand in {written!r}")
    extra = backend.encode(request.model_copy(update={"extra_body": {"x_extra": 7}}), config)
    if extra.get("x_extra") != 7:
        raise BackendError("encoder", "extra_body does not win: pass the body through `finished`")
    sent = _now(http_request(backend, request, config))
    holders = [name for name, value in sent.headers.items() if _KEY in value]
    if len(holders) != 1 or _KEY in sent.url or _KEY.encode() in sent.body:
        raise BackendError("secrets", f"the key stands in the headers {holders}, or in URL or body")


def _user_texts(request: SamplingRequest) -> Iterator[str]:
    for item in request.items:
        if isinstance(item, UserItem):
            yield from (part.text for part in item.content if isinstance(part, TextPart))


def _now(waiting: Coroutine[Any, Any, T]) -> T:
    """What a coroutine gives that has nothing to wait for."""
    try:
        waiting.send(None)
    except StopIteration as done:
        return done.value
    waiting.close()
    raise RuntimeError("it waits, though there is no resolver to be asked")
