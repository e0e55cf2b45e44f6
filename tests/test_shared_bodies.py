"""Recorded answers that are no answer (refusals, empty and foreign bodies) end in a fitting `Failed`, over a socket."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from rx_sampler import Completed, Failed, RetryPolicy, Sampler, SamplerConfig, SamplingErrorKind
from rx_sampler.errors import is_retryable_status
from rx_sampler.testing import Answer, ScriptedServer

CORPUS: Final = Path(__file__).resolve().parents[2] / "shared" / "corpus-local"
BACKENDS: Final = {
    "/v1/chat/completions": "chat_completions",
    "/v1/responses": "responses",
    "/v1/messages": "messages",
    "/anthropic/v1/messages": "messages",
}
ENDS: Final = {0: "eof", 18: "cut", 52: "no_answer"}
"""How the body ended, by the exit status of the client that recorded it."""

WHOLE_ANSWERS: Final = frozenset({"llmock-0.2.2/responses-err-json.sse"})
"""A response as plain JSON, where a stream was asked for: no failure, for it says itself that it is complete."""


def records() -> list[dict[str, Any]]:
    truth = CORPUS / "expect.jsonl"
    if not truth.exists():
        return []
    streams = {json.loads(line)["file"] for line in truth.read_text().splitlines()}
    found: list[dict[str, Any]] = []
    for index in sorted(CORPUS.glob("*/index.jsonl")):
        for line in index.read_text().splitlines():
            record = json.loads(line)
            record["path"] = f"{index.parent.name}/{record['file']}"
            if record["path"] not in streams:
                found.append(record)
    return found


RECORDS: Final = records()


@pytest.mark.skipif(not RECORDS, reason="the recordings lie beside the project, not in it")
@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record["path"])
async def test_what_is_no_answer_fails_fittingly(record: dict[str, Any]) -> None:
    status = record["status"]
    body = (CORPUS / record["path"]).read_bytes()
    answer = Answer(
        status=status,
        headers={"content-type": record["content_type"]},
        chunks=(body,) if body else (),
        end=ENDS[record["curl_exit"]],  # type: ignore[arg-type]  # one of its literals
    )
    async with ScriptedServer([answer]) as server:
        config = SamplerConfig(
            backend=BACKENDS[record["endpoint"]],
            base_url=f"{server.url}/v1",
            model="m",
            api_key="sk-not-told-to-anyone",
            retry=RetryPolicy(max_retries=0),
        )
        async with Sampler(config) as sampler:
            end = await sampler.stream("hi")
    if record["path"] in WHOLE_ANSWERS:
        assert isinstance(end, Completed)
        assert end.response.text
        return
    assert isinstance(end, Failed)
    kinds = {401: SamplingErrorKind.AUTH, 429: SamplingErrorKind.RATE_LIMITED}
    if status == 200:  # nothing at all, or an error that was sent as an answer
        assert end.error.kind in (SamplingErrorKind.HTTP, SamplingErrorKind.API)
    else:
        assert (end.error.kind, end.error.status) == (kinds.get(status, SamplingErrorKind.API), status)
        assert not end.error.is_retryable or is_retryable_status(status)
    assert 0 < len(end.error.message) <= 600
    assert end.error.message.isprintable()
    assert "<html" not in end.error.message.lower()
    assert end.partial is None
