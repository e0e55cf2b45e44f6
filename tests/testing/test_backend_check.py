"""The check of wire formats: ours pass it, and a format that breaks one law is told which."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

import pytest
from typing_extensions import TypedDict

from rx_sampler import (
    AnnotationAdded,
    Backend,
    FirstToken,
    Machine,
    SamplerConfig,
    SamplingError,
    SamplingErrorKind,
    SamplingEvent,
    SamplingRequest,
    SseFrame,
    get_backend,
)
from rx_sampler.backends.assembly import DONE
from rx_sampler.backends.chat_completions.chunks import ChatChunk, Choice
from rx_sampler.backends.chat_completions.transform import ChatTransform
from rx_sampler.conversation import JsonObject
from rx_sampler.testing.backend_check import SAMPLE_REQUESTS, BackendError, check_backend
from rx_sampler.wire.sse import SseParser

RECORDINGS: Final = Path(__file__).parents[1] / "recordings"
CHAT: Final = cast("Backend[ChatChunk]", get_backend("chat_completions"))


def recorded(backend: str, *names: str) -> list[bytes]:
    return [(RECORDINGS / backend / f"{name}.sse").read_bytes() for name in names]


def ends_chat(frame: SseFrame) -> bool:
    return frame.data == b"[DONE]" or b'"finish_reason":"' in frame.data.replace(b": ", b":")


def ends_responses(frame: SseFrame) -> bool:
    return b'"response.completed"' in frame.data or b'"response.incomplete"' in frame.data


def ends_messages(frame: SseFrame) -> bool:
    return b'"stop_reason":"' in frame.data.replace(b": ", b":") or b'"message_stop"' in frame.data


BUILT_IN: Final = [
    ("chat_completions", ["parallel-tools", "citations-and-refusal"], ["error-in-stream"], ends_chat),
    ("responses", ["hosted-search", "reasoning-and-tool"], ["failed"], ends_responses),
    ("messages", ["search-and-citation", "thinking-and-tool", "cut-tool"], ["overloaded"], ends_messages),
]


@pytest.mark.parametrize(("backend", "whole", "broken", "is_end"), BUILT_IN, ids=[row[0] for row in BUILT_IN])
def test_our_own_formats_keep_the_laws(
    backend: str, whole: list[str], broken: list[str], is_end: Callable[[SseFrame], bool]
) -> None:
    check_backend(backend, recorded(backend, *whole), failures=recorded(backend, *broken), announces_end=is_end)


# -- formats that break a law

BODY: Final = (
    b'data: {"id":"c-1","model":"toy","choices":[{"index":0,"delta":{"content":"An "}}]}\n\n'
    b'data: {"id":"c-1","model":"toy","choices":[{"index":0,"delta":{"content":"owl"}}]}\n\n'
    b'data: {"id":"c-1","model":"toy","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)
OTHER: Final = BODY.replace(b"owl", b"eagle")


def broken(
    law: str, backend: Backend[Any], *, bodies: tuple[bytes, ...] = (BODY, OTHER), **options: Any
) -> BackendError:
    given: dict[str, Any] = {"announces_end": ends_chat, **options}
    with pytest.raises(BackendError) as caught:
        check_backend(backend, bodies, **given)
    assert caught.value.law == law, caught.value
    return caught.value


def with_transform(kind: type[ChatTransform]) -> Backend[ChatChunk]:
    return replace(CHAT, transform=kind)


def test_the_format_that_the_broken_ones_are_made_of_breaks_none() -> None:
    check_backend(CHAT, [BODY, OTHER], announces_end=ends_chat)


class Raising(ChatTransform):
    def feed(self, item: ChatChunk) -> list[SamplingEvent]:
        if item.get("choices"):
            raise KeyError("delta")
        return super().feed(item)

    def quick(self, document: Any) -> None:  # noqa: ARG002  # of the base class
        return None


class Endless(ChatTransform):
    def complete(self) -> list[SamplingEvent]:
        raise SamplingError.of(SamplingErrorKind.API, "nothing is ever good enough")


def test_ends() -> None:
    error = broken("ends", with_transform(Raising))
    assert "raised KeyError('delta')" in str(error)
    assert error.transcript == 0
    assert "ends in failed (api, nothing is ever good enough)" in str(broken("ends", with_transform(Endless)))


class Remembering(ChatTransform):
    seen: Final[list[str]] = []

    def response(self, *, cut: bool) -> Any:
        self.seen.append("once more")
        return super().response(cut=cut).model_copy(update={"extras": {"count": len(self.seen)}})


class Crossing(ChatTransform):
    """Keeps its text where all streams keep theirs: harmless in turn, not at the same time."""

    said: Final[list[str]] = []

    def opening(self, facts: Any) -> list[SamplingEvent]:
        self.said.clear()
        return super().opening(facts)

    def token(self, out: Any, sink: list[str], channel: str, text: str, choice: int = 0) -> None:
        super().token(out, sink, channel, text, choice)
        self.said.append(text)
        sink[:] = self.said


def test_state() -> None:
    assert "the second time" in str(broken("state", with_transform(Remembering)))
    assert "beside another stream" in str(broken("state", with_transform(Crossing)))


class Unannounced(ChatTransform):
    def token(self, out: list[SamplingEvent], *args: Any, **fields: Any) -> None:
        super().token(out, *args, **fields)
        out[:] = [event for event in out if not isinstance(event, FirstToken)]


def test_grammar() -> None:
    assert "event 2 (channel_token): comes before first_token" in str(broken("grammar", with_transform(Unannounced)))


class Pairing(ChatTransform):
    """Puts a tuple where JSON has an array."""

    def settle_content(self) -> list[SamplingEvent]:
        note: JsonObject = {"at": (1, 2)}
        state = next(iter(self._choices.values()), None)
        if state is None or state.annotations:
            return []
        state.annotations.append(note)
        return [AnnotationAdded(**self.stamp(), annotation=note, offset=self.text_chars)]


def test_json() -> None:
    broken("json", with_transform(Pairing))


class ByRead(Machine[bytes, SseFrame]):
    """Takes each read for whole events."""

    def __init__(self, max_frame_bytes: int) -> None:
        self._max = max_frame_bytes

    def feed(self, item: bytes) -> list[SseFrame]:
        parser = SseParser(self._max)
        return [*parser.feed(item), *parser.finish()]


def test_splits() -> None:
    error = broken("splits", replace(CHAT, framing=ByRead))
    assert f"in {len(BODY)} reads, the first of 1 bytes" in str(error)


class Shouting(ChatTransform):
    def quick(self, document: Any) -> list[SamplingEvent] | None:
        loud = {**document, "choices": [{"index": 0, "delta": {"content": "OWL"}}]} if "choices" in document else {}
        return super().quick(loud)


def test_short_cut() -> None:
    broken("short cut", with_transform(Shouting))


class Content(ChatTransform):
    """Takes any end for the end."""

    def finish(self) -> list[SamplingEvent]:
        return self.complete()


class Hasty(ChatTransform):
    """Takes any end for the end, once something was said."""

    def finish(self) -> list[SamplingEvent]:
        return self.complete() if self.has_content() else super().finish()


class Editorial(ChatTransform):
    """Adds words of its own to what broke off."""

    def settle_content(self) -> list[SamplingEvent]:
        out: list[SamplingEvent] = []
        for state in self._choices.values() if not self.done else ():
            self.token(out, state.sinks["text"], "text", " (cut)", state.index)
        return out


def any_frame(_frame: SseFrame) -> bool:
    return True


def test_cut() -> None:
    error = broken("cut", with_transform(Content))
    assert "cut at byte 0: Completed, although the end was not announced" in str(error)
    assert error.transcript == 0
    # Where every frame counts as the end, what is missing still gives it away.
    assert "Completed with less than the whole" in str(broken("cut", with_transform(Hasty), announces_end=any_frame))
    assert "is no beginning of the whole" in str(broken("cut", with_transform(Editorial)))
    # By default it is the last frame that announces the end; this format takes the one before for it, too.
    assert "the end was not announced" in str(broken("cut", CHAT, announces_end=None))


class Unfinished(ChatTransform):
    """Completes and reads on."""

    announced = False

    def complete(self) -> list[SamplingEvent]:
        events = super().complete()
        self.done, self.announced = False, True
        return events

    def finish(self) -> list[SamplingEvent]:
        return [] if self.announced else super().finish()


class Forgetful(ChatTransform):
    """Goes on where the frames do, though it knows the end."""

    def feed(self, item: ChatChunk) -> list[SamplingEvent]:
        return [] if item is DONE else super().feed(item)


def test_after_the_end() -> None:
    assert "comes after the terminal event" in str(broken("after the end", with_transform(Unfinished)))
    # Who only knows the end of the body may read what stands before it.
    check_backend(with_transform(Forgetful), [BODY], announces_end=ends_chat)


class Strict(ChatTransform):
    def feed(self, item: ChatChunk) -> list[SamplingEvent]:
        if item.get("type"):
            raise SamplingError.of(SamplingErrorKind.SERIALIZATION, "what is that?")
        return super().feed(item)


def test_noise() -> None:
    broken("noise", with_transform(Strict))
    check_backend(with_transform(Strict), [BODY], announces_end=ends_chat, noise=(), errors=())


class Careless(ChatTransform):
    def note_damage(self, chunk: object) -> None:
        pass


def test_malformed() -> None:
    error = broken("malformed", with_transform(Careless))
    assert "no JSON before frame 0: the answer is Completed" in str(error)
    check_backend(with_transform(Careless), [BODY], announces_end=ends_chat, malformed=None)


class Blind(TypedDict, total=False):
    """A chunk without the fields in which errors come."""

    id: str | None
    model: str | None
    choices: list[Choice] | None


def test_errors() -> None:
    error = broken("errors", replace(CHAT, chunk=cast("type[ChatChunk]", Blind)))
    assert "error frame 'message' before frame 2: the answer is Completed" in str(error)


class Trusting(ChatTransform):
    def feed(self, item: ChatChunk) -> list[SamplingEvent]:
        for choice in item.get("choices") or ():
            assert choice["delta"] is not None  # type: ignore[typeddict-item]
        return super().feed(item)

    def quick(self, document: Any) -> None:  # noqa: ARG002  # of the base class
        return None


def test_tolerant() -> None:
    error = broken("tolerant", with_transform(Trusting))
    assert "frame " in str(error)
    assert "delta" in str(error)


# -- encoders


def with_encoder(encode: Callable[[SamplingRequest, SamplerConfig], JsonObject]) -> Backend[ChatChunk]:
    return replace(CHAT, encode=encode)


def encoded(request: SamplingRequest, config: SamplerConfig) -> JsonObject:
    return CHAT.encode(request, config)


def refusing(_request: SamplingRequest, _config: SamplerConfig) -> JsonObject:
    raise SamplingError.of(SamplingErrorKind.INVALID_REQUEST, "no")


def stumbling(_request: SamplingRequest, _config: SamplerConfig) -> JsonObject:
    raise KeyError("messages")


_numbers = itertools.count()


def counting(request: SamplingRequest, config: SamplerConfig) -> JsonObject:
    return {**encoded(request, config), "number": next(_numbers)}


def mute(request: SamplingRequest, config: SamplerConfig) -> JsonObject:
    return {**encoded(request, config), "messages": []}


def deaf(request: SamplingRequest, config: SamplerConfig) -> JsonObject:
    return encoded(request.model_copy(update={"extra_body": {}}), config)


def writing(request: SamplingRequest, config: SamplerConfig) -> JsonObject:
    request.metadata["seen"] = "yes"
    return encoded(request, config)


def telling(request: SamplingRequest, config: SamplerConfig) -> JsonObject:
    return {**encoded(request, config), "user": config.reveal_api_key()}


@pytest.mark.parametrize(
    ("encode", "words"),
    [
        (refusing, "request 0 made it raise"),
        (stumbling, "KeyError"),
        (counting, "other bytes"),
        (mute, "'What is an owl?' does not stand"),
        (deaf, "extra_body"),
        (writing, "changes the request"),
    ],
)
def test_encoder(encode: Callable[[SamplingRequest, SamplerConfig], JsonObject], words: str) -> None:
    error = broken("encoder", with_encoder(encode), requests=[r.model_copy(deep=True) for r in SAMPLE_REQUESTS])
    assert words in str(error)
    assert error.transcript is None


def showing(_request: SamplingRequest, config: SamplerConfig) -> str:
    return f"/chat?key={config.reveal_api_key()}"


def test_secrets() -> None:
    broken("secrets", with_encoder(telling))
    broken("secrets", replace(CHAT, path=showing))


def test_a_request_may_be_refused_but_for_the_first() -> None:
    def choosy(request: SamplingRequest, config: SamplerConfig) -> JsonObject:
        return encoded(request, config) if not request.tools else refusing(request, config)

    check_backend(with_encoder(choosy), [BODY], announces_end=ends_chat)


def test_it_wants_a_transcript() -> None:
    with pytest.raises(ValueError, match="at least one transcript"):
        check_backend(CHAT, [])
    assert "ends in completed" in str(broken("ends", CHAT, bodies=(BODY,), failures=[BODY]))
