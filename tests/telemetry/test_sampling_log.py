"""The sampling log as a sampler's observer: what a request leaves in the file."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from scripted_transport import ScriptedTransport, Step, arriving, run
from wires import BACKENDS, INPUT_TOKENS, OUTPUT_TOKENS, answer

from rx_sampler import (
    ChannelToken,
    Completed,
    Failed,
    FirstToken,
    LatencyMetrics,
    ReasoningCompleted,
    RetryPolicy,
    Sampler,
    SamplerConfig,
    SamplingError,
    SamplingErrorKind,
    SamplingEvent,
    SamplingRequest,
    SamplingResponse,
    StreamStarted,
    event_from_json,
)
from rx_sampler.observing import SamplerObserver
from rx_sampler.simulator import Fault, Simulator, Timing, Turn
from rx_sampler.telemetry import SamplingLog, sampling_log_from_env

from .made import SUBMITTED_AT, facts, records, stamp

QUICK: Final = Timing.instant()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "sampling.jsonl"


@pytest.fixture
def log(path: Path) -> Iterator[SamplingLog]:
    with SamplingLog(path) as log:
        yield log


def names(found: list[dict[str, Any]]) -> list[str]:
    return [record["record"] for record in found]


def test_it_is_an_observer(log: SamplingLog) -> None:
    observer: SamplerObserver = log
    watch = observer.request_made(facts())
    watch.attempt_started(1, SUBMITTED_AT + 0.1)
    watch.on_event(StreamStarted(**stamp(0.2)))
    watch.on_event(FirstToken(**stamp(0.3), channel="text"))
    watch.on_event(ChannelToken(**stamp(0.3), channel="text", text="Blue", chunk_index=1))
    watch.on_event(Completed(**stamp(0.4), response=SamplingResponse(), metrics=LatencyMetrics()))
    assert log.flush()
    found = records(log.path)
    assert names(found) == ["submit", "attempt", "stream_started", "first_token", "completed"]
    assert {record["request_id"] for record in found} == {"r-1"}
    assert [record["time"][-5:] for record in found] == [".000Z", ".100Z", ".200Z", ".300Z", ".400Z"]
    assert found[3]["since_submit_ms"] == 300.0


def test_a_request_whose_subscriber_went_away(log: SamplingLog) -> None:
    watch = log.request_made(facts())
    watch.dropped(SUBMITTED_AT + 1)
    assert log.flush()
    assert names(records(log.path)) == ["submit", "dropped_by_subscriber"]


def test_nothing_is_there_before_the_first_record(path: Path) -> None:
    with SamplingLog(path) as log:
        assert log.path == path
    assert not path.parent.exists()


def test_no_method_of_a_watch_raises_when_nothing_can_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("no folder")
    with SamplingLog(tmp_path / "file" / "sampling.jsonl") as log:
        watch = log.request_made(facts())
        watch.attempt_started(1, SUBMITTED_AT)
        watch.on_event(StreamStarted(**stamp()))
        watch.dropped(SUBMITTED_AT)
        assert log.flush()
        assert log.dropped_count == 4
    watch.dropped(SUBMITTED_AT)  # closed by now
    assert log.dropped_count == 5
    assert [record.levelno for record in caplog.records if record.name == "rx_sampler"] == [logging.WARNING]


def test_a_full_file_is_moved_aside(path: Path) -> None:
    with SamplingLog(path, max_bytes=1000, backup_count=2) as log:
        for number in range(12):
            log.request_made(facts(f"r-{number}"))
    assert all(file.stat().st_size <= 1000 for file in path.parent.iterdir())
    assert sorted(file.name for file in path.parent.iterdir()) == [
        "sampling.jsonl",
        "sampling.jsonl.1",
        "sampling.jsonl.2",
    ]
    kept = [record["request_id"] for suffix in (".2", ".1", "") for record in records(Path(f"{path}{suffix}"))]
    assert kept == [f"r-{number}" for number in range(12)][-len(kept) :]
    assert len(kept) > 4


@pytest.mark.parametrize(
    ("max_bytes", "backup_count", "says"),
    [(-1, 3, "max_bytes is -1"), (1, 0, "backup_count is 0"), (1, -1, "backup_count is -1")],
)
def test_settings_that_make_no_sense(path: Path, max_bytes: int, backup_count: int, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        SamplingLog(path, max_bytes=max_bytes, backup_count=backup_count)


def test_a_process_has_one_log_per_path(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent.parent)
    with SamplingLog.shared(path) as log:
        assert SamplingLog.shared("state/sampling.jsonl") is log
        assert SamplingLog.shared(path.with_name("other.jsonl")) is not log
        assert SamplingLog.shared(path, content=True) is not log
    with SamplingLog.shared(path) as again:
        assert again is not log
        assert not again.closed


def test_the_environment_switches_it_on(path: Path) -> None:
    environ = {"RX_SAMPLER_LOG": str(path)}
    log = sampling_log_from_env(environ)
    assert log is not None
    with log:
        assert (log.path, log.content) == (path, False)
        assert sampling_log_from_env(environ) is log
    with_content = sampling_log_from_env({**environ, "RX_SAMPLER_LOG_CONTENT": "1"})
    assert with_content is not None
    with with_content:
        assert with_content.content
    assert sampling_log_from_env({}) is None
    assert sampling_log_from_env({**environ, "RX_SAMPLER_LOG": "0"}) is None


def test_without_a_home_there_is_no_log_and_a_word_about_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    assert sampling_log_from_env({"GROK_LOG_SAMPLING": "1"}) is None
    assert "RX_SAMPLER_LOG" in caplog.text


def test_repr_says_where(log: SamplingLog) -> None:
    assert repr(log) == f"SamplingLog({str(log.path)!r}, content=False)"


# -- through a sampler


def config(backend: str = "chat_completions", **fields: Any) -> SamplerConfig:
    known: dict[str, Any] = {
        "base_url": "https://api.test/v1",
        "model": "m",
        "retry": RetryPolicy(max_retries=2, jitter=0),
    }
    return SamplerConfig.model_validate({"backend": backend, **known, **fields})


def unreachable() -> list[Step]:
    return [(0, SamplingError.of(SamplingErrorKind.HTTP, "nobody there", is_retryable=True))]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_life_of_a_request(log: SamplingLog, backend: str) -> None:
    """B293: the records of a request share its id; B295: the tokens are set on success. In virtual time."""
    transport = ScriptedTransport(unreachable(), arriving(answer(backend, "Blue"), every=1))
    run(lambda: Sampler(config(backend), transport=transport, observer=log).stream("Why?", request_id="mine"))
    assert log.flush()
    found = records(log.path)
    told = [record for record in found if record["record"] not in ("metadata", "response_started")]
    assert names(told) == ["submit", "attempt", "retrying", "attempt", "stream_started", "first_token", "completed"]
    assert {record["request_id"] for record in found} == {"mine"}
    assert told[0]["time"] == "1970-01-01T00:03:20.000Z"  # second 200 of virtual time
    assert (told[1]["attempt"], told[1]["queued_ms"], told[3]["attempt"]) == (1, 0.0, 2)
    assert (told[2]["backoff_s"], told[2]["error_kind"], told[2]["reason"]) == (2.0, "http", "nobody there")
    assert told[4]["since_submit_ms"] == 3000.0  # 2 s of backoff, and the headers after 1 s
    completed = told[-1]
    assert (completed["attempts"], completed["stop_reason"], completed["model"]) == (2, "stop", "toy-1")
    assert (completed["usage"]["input_tokens"], completed["usage"]["output_tokens"]) == (INPUT_TOKENS, OUTPUT_TOKENS)


def test_a_request_that_is_given_up(log: SamplingLog) -> None:
    transport = ScriptedTransport(unreachable(), unreachable(), unreachable())
    run(lambda: Sampler(config(), transport=transport, observer=log).stream("Why?"))
    assert log.flush()
    *before, exhausted, failed = records(log.path)
    assert names(before) == ["submit", "attempt", "retrying", "attempt", "retrying", "attempt"]
    assert (exhausted["record"], exhausted["total_attempts"]) == ("retries_exhausted", 3)
    assert (failed["record"], failed["kind"], failed["attempts"]) == ("failed", "http", 3)


def test_a_request_that_is_disposed_of(log: SamplingLog) -> None:
    transport = ScriptedTransport(arriving(answer("messages", "Blue")))
    run(lambda: Sampler(config("messages"), transport=transport, observer=log).stream("Why?"), for_s=1.5)
    assert log.flush()
    found = records(log.path)
    assert names(found)[:3] == ["submit", "attempt", "stream_started"]
    assert (found[-1]["record"], found[-1]["since_submit_ms"]) == ("dropped_by_subscriber", 1500.0)


async def test_a_cancelled_request(log: SamplingLog) -> None:
    async with (
        Simulator(script=[Turn(text="Blue", fault=Fault(kind="stall", after_deltas=0))], timing=QUICK) as server,
        Sampler(config(base_url=server.base_url), observer=log) as sampler,
    ):
        request_id = sampler.submit("Why?")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        sampler.events_of(request_id).subscribe(on_completed=lambda: done.set_result(None))
        sampler.cancel(request_id)
        await done
    assert log.flush()
    last = records(log.path)[-1]
    assert (last["record"], last["kind"], last["request_id"]) == ("failed", "cancelled", request_id)


async def test_with_content_the_events_can_be_read_back(path: Path) -> None:
    turn = Turn(text="It is blue.", reasoning="Rayleigh.")
    async with Simulator(script=[turn], timing=QUICK) as server:
        with SamplingLog(path, content=True) as log:
            seen: list[SamplingEvent] = []
            async with Sampler(config("messages", base_url=server.base_url), observer=log) as sampler:
                sampler.events.subscribe(seen.append)
                await sampler.collect("Why is the sky blue?")
    found = records(path)
    assert found[0]["items"] == [{"type": "user", "content": [{"type": "text", "text": "Why is the sky blue?"}]}]
    assert found[-1]["text"] == "It is blue."
    pieces = [event_from_json(json.dumps(record["event"])) for record in found if record["record"] == "event"]
    assert pieces == [event for event in seen if isinstance(event, ChannelToken | ReasoningCompleted)]
    assert "".join(piece.text for piece in pieces if isinstance(piece, ChannelToken)) == "Rayleigh.It is blue."


KEY: Final = "CANARY-sk-0123456789abcdef0123456789abcd"  # 40 characters


@pytest.mark.parametrize("content", [False, True])
async def test_no_secret_is_ever_written(path: Path, content: bool) -> None:
    """B294, stricter: of a key not even a fragment is written."""
    assert len(KEY) == 40
    refusals = [
        Turn(fault=Fault(kind="status", status=401, message=f"Incorrect API key provided: {KEY}")),
        Turn(fault=Fault(kind="status", status=403)),
        Turn(text="Blue"),
    ]
    async with Simulator(script=refusals, timing=QUICK) as server:
        with SamplingLog(path, content=content) as log:
            settings: dict[str, Any] = {
                "base_url": server.base_url.replace("http://", "http://user:CANARY-userinfo@"),
                "api_key": KEY,
                "extra_headers": {"x-tenant": "CANARY-header"},
                "query_params": {"token": "CANARY-query"},
                "retry": RetryPolicy(max_retries=0),
            }
            request = SamplingRequest.model_validate(
                {"items": [{"type": "user", "content": "Why?"}], "extra_headers": {"x-user-key": "CANARY-own"}}
            )
            async with Sampler(config("messages", **settings), observer=log) as sampler:
                for _ in refusals[:-1]:
                    with pytest.raises(SamplingError):
                        await sampler.collect(request)
                await sampler.collect(request)
        sent, base_url = server.requests[-1], server.base_url
    assert (sent.headers["x-api-key"], sent.headers["x-tenant"], sent.headers["x-user-key"]) == (
        KEY,
        "CANARY-header",
        "CANARY-own",
    )
    assert sent.query["token"] == "CANARY-query"
    assert "authorization" in sent.headers  # user and password of the URL
    found = records(path)
    ends = [record for record in found if record["record"] in ("failed", "completed")]
    assert [end.get("status") for end in ends] == [401, 403, None]
    assert found[0]["base_url"] == base_url
    text = json.dumps(found)
    assert "CANARY" not in text
    assert not any(KEY[start : start + 8] in text for start in range(len(KEY) - 7))


def test_loops_and_samplers_in_many_threads_share_a_log(path: Path) -> None:
    async def ask(worker: int, base_url: str) -> None:
        async with Sampler(config(base_url=base_url), observer=SamplingLog.shared(path)) as sampler:
            watched = [sampler.submit("Why?", f"{worker}-{number}") for number in range(10)]
            left = set(watched)
            done = asyncio.Event()

            def on_next(event: SamplingEvent) -> None:
                if isinstance(event, Completed | Failed):
                    left.discard(event.request_id)
                    if not left:
                        done.set()

            for request_id in watched:
                sampler.events_of(request_id).subscribe(on_next)
            await done.wait()

    async def serve() -> None:
        async with Simulator(timing=QUICK) as server:
            await asyncio.gather(*(asyncio.to_thread(asyncio.run, ask(worker, server.base_url)) for worker in range(4)))

    with SamplingLog.shared(path) as log:
        asyncio.run(serve())
        assert log.dropped_count == 0
    found = records(path)
    for worker in range(4):
        for number in range(10):
            own = [record for record in found if record["request_id"] == f"{worker}-{number}"]
            assert names(own)[:2] == ["submit", "attempt"]
            assert names(own)[-1] == "completed"
            assert [record["time"] for record in own] == sorted(record["time"] for record in own)
