"""The HTTP request that goes out: URL, headers, credential; and what must not go out."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, cast
from urllib.parse import parse_qsl, urlsplit

import pytest
from wires import BACKENDS, PATHS

from rx_sampler.backends.base import get_backend
from rx_sampler.config import DoomLoopPolicy, SamplerConfig
from rx_sampler.conversation import SamplingRequest
from rx_sampler.errors import SamplingError, SamplingErrorKind
from rx_sampler.outgoing import endpoint_url, http_request, redacted
from rx_sampler.vendor_headers import GrokHeaders
from rx_sampler.wire.transport import HttpRequest

URL: Final = "https://api.test/v1"
KEY: Final = "sk-live-7f3d9c2b1a"


async def made(
    backend: str = "chat_completions", request: SamplingRequest | None = None, request_id: str = "", **fields: Any
) -> HttpRequest:
    config = SamplerConfig.model_validate({"base_url": URL, "model": "m", "backend": backend, **fields})
    return await http_request(get_backend(backend), request or SamplingRequest.of("hi"), config, request_id)


async def refused(**fields: Any) -> SamplingError:
    with pytest.raises(SamplingError) as caught:
        await made(**fields)
    return caught.value


def asking(**headers: str) -> SamplingRequest:
    return SamplingRequest.of("hi").model_copy(update={"extra_headers": headers})


# -- what every request says of itself


@pytest.mark.parametrize("backend", BACKENDS)
async def test_it_asks_for_an_event_stream_unpacked(backend: str) -> None:
    it = await made(backend)
    assert it.url == URL + PATHS[backend]
    assert it.headers["content-type"] == "application/json"
    assert it.headers["accept"] == "text/event-stream"
    assert it.headers["accept-encoding"] == "identity"
    assert it.headers["user-agent"].startswith("rx-sampler/")
    body = json.loads(it.body)
    assert (body["model"], body["stream"]) == ("m", True)


async def test_messages_names_its_version() -> None:
    # https://docs.anthropic.com/en/api/versioning: the header is required
    assert (await made("messages")).headers["anthropic-version"] == "2023-06-01"
    assert "anthropic-version" not in (await made("responses")).headers


@pytest.mark.parametrize("backend", BACKENDS)
async def test_no_vendors_own_headers_unless_asked_for_b103(backend: str) -> None:
    it = await made(backend, api_key=KEY)
    assert [name for name in it.headers if name.lower().startswith("x-grok")] == []
    named = await made(backend, extra_headers={"x-grok-conv-id": "c-1"})
    assert named.headers["x-grok-conv-id"] == "c-1"


def grok(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.startswith("x-grok-")}


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_vendors_headers_name_conversation_request_and_model_b103(backend: str) -> None:
    asked = SamplingRequest(items=SamplingRequest.of("hi").items, model="other", conversation_id="conv-7")
    vendor = GrokHeaders(
        session_id="s-1",
        agent_id="a-1",
        turn_idx=0,
        deployment_id="d-1",
        user_id="u-1",
        client_identifier="my-app",
        client_version="1.2",
    )
    assert grok((await made(backend, asked, "req-9", vendor_headers=vendor)).headers) == {
        "x-grok-conv-id": "conv-7",
        "x-grok-req-id": "req-9",
        "x-grok-model-override": "other",
        "x-grok-session-id": "s-1",
        "x-grok-agent-id": "a-1",
        "x-grok-turn-idx": "0",
        "x-grok-deployment-id": "d-1",
        "x-grok-user-id": "u-1",
        "x-grok-client-identifier": "my-app",
        "x-grok-client-version": "1.2",
    }


async def test_a_vendors_ids_are_empty_where_they_are_not_known_and_the_rest_left_out_b103() -> None:
    assert grok((await made(vendor_headers=GrokHeaders())).headers) == {
        "x-grok-conv-id": "",
        "x-grok-req-id": "",
        "x-grok-model-override": "m",
        "x-grok-session-id": "",
        "x-grok-agent-id": "",
    }
    blank = GrokHeaders(deployment_id="", user_id="", client_identifier="", client_version="")
    assert (await made(vendor_headers=blank)).headers == (await made(vendor_headers=GrokHeaders())).headers


async def test_every_other_source_of_headers_wins_over_a_vendors_b103() -> None:
    def inject(headers: dict[str, str]) -> None:
        del headers["x-grok-user-id"]

    it = await made(
        request=asking(**{"X-Grok-Session-Id": "of the request"}),
        vendor_headers=GrokHeaders(session_id="s-1", agent_id="a-1", user_id="u-1"),
        extra_headers={"x-grok-agent-id": "of the configuration"},
        header_injector=inject,
    )
    sent = grok(it.headers)
    assert (sent["x-grok-session-id"], sent["x-grok-agent-id"]) == ("of the request", "of the configuration")
    assert "x-grok-user-id" not in sent


class _OtherVendor:
    def headers_for(self, request: SamplingRequest, model: str, request_id: str) -> dict[str, str]:
        return {"X-Other": f"{len(request.items)} {model} {request_id}"}


def _forgetful() -> dict[str, str]:
    raise KeyError(KEY)


class _BadVendor:
    def __init__(self, answer: Callable[[], dict[str, str]]) -> None:
        self._answer = answer

    def headers_for(self, _request: SamplingRequest, _model: str, _request_id: str) -> dict[str, str]:
        return self._answer()


async def test_any_vendor_may_have_headers() -> None:
    assert (await made(request_id="r", vendor_headers=_OtherVendor())).headers["x-other"] == "1 m r"


@pytest.mark.parametrize(
    ("answer", "told"),
    [(lambda: {"x-a": f"{KEY}\n"}, "'x-a'"), (lambda: {"x a": "v"}, "'x a'"), (_forgetful, "raised KeyError")],
)
async def test_a_vendors_headers_that_cannot_be_sent_are_named_as_such(
    answer: Callable[[], dict[str, str]], told: str
) -> None:
    error = await refused(vendor_headers=_BadVendor(answer))
    assert error.kind is SamplingErrorKind.INVALID_REQUEST
    assert "vendor_headers" in str(error)
    assert told in str(error)
    assert KEY not in str(error)


SYSTEM = r"\((linux|macos|windows|\w+); \w+\)"


async def test_the_user_agent_names_program_version_and_system_b094() -> None:
    agent = (await made()).headers["user-agent"]
    assert re.fullmatch(rf"rx-sampler/[\w.+-]+ {SYSTEM}", agent)
    assert (await made(application="my-app/1.2")).headers["user-agent"] == f"my-app/1.2 {agent}"
    assert (await made(application="my-app")).headers["user-agent"] == f"my-app {agent}"


async def test_an_application_that_is_this_program_is_not_named_twice_b094() -> None:
    agent = (await made()).headers["user-agent"]
    own = agent.split(" ")[0]
    assert (await made(application=own)).headers["user-agent"] == agent
    # another version of it, or none, is another origin
    assert (await made(application="rx-sampler/0.0.0.1")).headers["user-agent"] == f"rx-sampler/0.0.0.1 {agent}"
    assert (await made(application="rx-sampler")).headers["user-agent"] == f"rx-sampler {agent}"


async def test_an_extra_header_replaces_the_whole_user_agent() -> None:
    named = await made(application="my-app/1.2", extra_headers={"user-agent": "product/2 rx-sampler"})
    assert named.headers["user-agent"] == "product/2 rx-sampler"


@pytest.mark.parametrize(("backend", "sent"), [("responses", "512"), ("chat_completions", None), ("messages", None)])
async def test_the_repetition_check_is_asked_of_responses_only(backend: str, sent: str | None) -> None:
    policy = DoomLoopPolicy(window_tokens=512)
    assert (await made(backend, doom_loop=policy)).headers.get("x-grok-doom-loop-check") == sent
    assert "x-grok-doom-loop-check" not in (await made(backend)).headers


# -- credential


@pytest.mark.parametrize(
    ("backend", "scheme"),
    [
        ("chat_completions", "bearer"),
        ("responses", "bearer"),
        ("messages", "bearer"),
        ("chat_completions", "x_api_key"),
        ("responses", "x_api_key"),
        ("messages", "x_api_key"),
        ("chat_completions", "api_key"),
        ("responses", "api_key"),
        ("messages", "api_key"),
    ],
)
async def test_the_key_goes_in_one_header_of_the_scheme(backend: str, scheme: str) -> None:
    # B084, B085
    it = await made(backend, api_key=KEY, auth_scheme=scheme)
    sent = {name: value for name, value in it.headers.items() if name in ("authorization", "x-api-key", "api-key")}
    expected = {
        "bearer": {"authorization": f"Bearer {KEY}"},
        "x_api_key": {"x-api-key": KEY},
        "api_key": {"api-key": KEY},
    }
    assert sent == expected[scheme]
    assert it.has_credential
    assert KEY in it.secrets


@pytest.mark.parametrize(
    ("backend", "header"),
    [("chat_completions", "authorization"), ("responses", "authorization"), ("messages", "x-api-key")],
)
async def test_the_default_scheme_is_that_of_the_wires_own_vendor(backend: str, header: str) -> None:
    it = await made(backend, api_key=KEY)
    assert {"authorization", "x-api-key"} & it.headers.keys() == {header}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fields", [{}, {"api_key": ""}, {"bearer_resolver": lambda: None, "api_key": KEY}])
async def test_without_a_key_no_header_claims_one(backend: str, fields: dict[str, Any]) -> None:
    # B087
    it = await made(backend, **fields)
    assert not {"authorization", "x-api-key"} & it.headers.keys()
    assert not it.has_credential


async def _asynchronous() -> str:
    await asyncio.sleep(0)
    return "live-token-1"


@pytest.mark.parametrize("resolver", [lambda: "live-token-1", _asynchronous], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        ("bearer", {"authorization": "Bearer live-token-1"}),
        ("x_api_key", {"x-api-key": "live-token-1"}),
        ("api_key", {"api-key": "live-token-1"}),
    ],
)
async def test_a_resolver_replaces_the_key(
    resolver: Callable[[], str | Awaitable[str]], scheme: str, expected: dict[str, str]
) -> None:
    # B086
    it = await made(api_key=KEY, bearer_resolver=resolver, auth_scheme=scheme)
    names = ("authorization", "x-api-key", "api-key")
    assert {name: it.headers[name] for name in names if name in it.headers} == expected
    assert KEY not in str(dict(it.headers))
    assert "live-token-1" in it.secrets


async def test_a_resolver_is_asked_each_time() -> None:
    # B097
    tokens = iter(["first-token", "second-token"])
    assert [(await made(bearer_resolver=lambda: next(tokens))).headers["authorization"] for _ in range(2)] == [
        "Bearer first-token",
        "Bearer second-token",
    ]


async def test_a_resolver_that_raises_is_an_auth_error_without_its_words() -> None:
    def resolver() -> str:
        raise LookupError(f"the vault has no {KEY}")

    error = await refused(bearer_resolver=resolver)
    assert error.kind is SamplingErrorKind.AUTH
    assert not error.info.is_retryable
    assert KEY not in str(error)
    assert "bearer_resolver" in str(error)
    assert "LookupError" in str(error)
    assert isinstance(error.__cause__, LookupError)


async def test_a_resolver_may_say_itself_what_is_wrong() -> None:
    def resolver() -> str:
        raise SamplingError.of(SamplingErrorKind.AUTH, "log in first")

    assert str(await refused(bearer_resolver=resolver)) == "auth: log in first"


async def test_a_cancelled_resolver_is_no_error() -> None:
    async def resolver() -> str:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await made(bearer_resolver=resolver)


@pytest.mark.parametrize("key", [KEY + "\n", "a\r\nx-evil: 1" + KEY, KEY + "\0", KEY + "\u2603"])
@pytest.mark.parametrize("source", ["api_key", "bearer_resolver"])
@pytest.mark.parametrize("scheme", ["bearer", "x_api_key"])
async def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(
    key: str, source: str, scheme: str
) -> None:
    # B088
    given: Any = key if source == "api_key" else lambda: key
    error = await refused(**{source: given, "auth_scheme": scheme})
    assert error.kind is SamplingErrorKind.AUTH
    assert KEY not in str(error)
    assert error.info.credential == "unknown"


@pytest.mark.parametrize("answer", [b"token-bytes", 5, {"token": KEY}])
async def test_an_answer_that_is_no_text_is_an_auth_error(answer: Any) -> None:
    error = await refused(bearer_resolver=lambda: answer)
    assert error.kind is SamplingErrorKind.AUTH
    assert "bearer_resolver" in str(error)


# -- more headers


async def test_extra_headers_go_as_they_are_and_the_later_source_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    # B090
    monkeypatch.setenv("X_B", "from the environment")
    it = await made(
        request=asking(**{"X-C": "of the request"}),
        extra_headers={"x-a": "a b;c=d", "X-B": "of the configuration", "x-c": "of the configuration"},
        env_http_headers={"x-b": "X_B"},
    )
    assert (it.headers["x-a"], it.headers["x-b"], it.headers["x-c"]) == (
        "a b;c=d",
        "from the environment",
        "of the request",
    )
    assert len({name.lower() for name in it.headers}) == len(it.headers)  # no header twice in another case


async def test_extra_headers_win_over_ours() -> None:
    it = await made(
        "messages",
        api_key=KEY,
        extra_headers={"Anthropic-Version": "2099-01-01", "User-Agent": "mine/1"},
        request=asking(**{"X-API-Key": "other-key-1"}),
    )
    assert it.headers["anthropic-version"] == "2099-01-01"
    assert it.headers["user-agent"] == "mine/1"
    assert it.headers["x-api-key"] == "other-key-1"
    assert it.has_credential


async def test_a_credential_in_an_extra_header_counts_as_one() -> None:
    assert (await made(extra_headers={"Authorization": "Basic dXNlcjpwYXNz"})).has_credential


async def test_environment_headers_are_trimmed_and_blank_or_unset_ones_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # B091
    monkeypatch.setenv("SET", "  padded value \n")
    monkeypatch.setenv("BLANK", " \t ")
    monkeypatch.delenv("UNSET", raising=False)
    it = await made(env_http_headers={"x-set": "SET", "x-blank": "BLANK", "x-unset": "UNSET"})
    assert it.headers["x-set"] == "padded value"
    assert not {"x-blank", "x-unset"} & it.headers.keys()
    assert "padded value" in it.secrets


BAD_HEADERS: Final = [
    ({"": "v"}, "''"),
    ({"x a": "v"}, "'x a'"),
    ({"x:a": "v"}, "'x:a'"),
    ({"x\r\ny": "v"}, "x"),
    ({"ü": "v"}, "'ü'"),
    ({"x-a": f"{KEY}\r\nx-evil: 1"}, "'x-a'"),
    ({"x-a": f"{KEY}\n"}, "'x-a'"),
    ({"x-a": f"{KEY}\0"}, "'x-a'"),
    ({"x-a": f"{KEY}\u2603"}, "'x-a'"),
]


@pytest.mark.parametrize(("headers", "named"), BAD_HEADERS, ids=repr)
@pytest.mark.parametrize("source", ["extra_headers", "request"])
async def test_a_header_that_cannot_be_sent_is_named_but_its_value_not_shown(
    headers: dict[str, str], named: str, source: str
) -> None:
    # B089
    fields = {"extra_headers": headers} if source == "extra_headers" else {"request": asking(**headers)}
    error = await refused(**fields)
    assert error.kind is SamplingErrorKind.INVALID_REQUEST
    assert "extra_headers" in str(error)
    assert named in str(error)
    assert KEY not in str(error)


async def test_a_bad_header_out_of_the_environment_names_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAD", f"{KEY}\nx-evil: 1")
    error = await refused(env_http_headers={"x-a": "BAD"})
    assert error.kind is SamplingErrorKind.INVALID_REQUEST
    assert "env_http_headers" in str(error)
    assert KEY not in str(error)


async def test_a_bad_name_of_an_environment_header_is_refused_if_it_would_be_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """B091 skips it; here a setting that cannot work is told, and one that is not used is not looked at."""
    monkeypatch.setenv("SET", "v")
    monkeypatch.delenv("UNSET", raising=False)
    error = await refused(env_http_headers={"x a": "SET"})
    assert error.kind is SamplingErrorKind.INVALID_REQUEST
    assert "env_http_headers" in str(error)
    assert "'x a'" in str(error)
    assert "x a" not in (await made(env_http_headers={"x a": "UNSET"})).headers


# -- the injector


async def test_the_injector_comes_last_and_sees_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    # B095
    monkeypatch.setenv("X_B", "b")
    seen: dict[str, str] = {}

    def inject(headers: dict[str, str]) -> None:
        seen.update(headers)
        headers["x-trace"] = "t"
        headers["x-b"] = "changed"
        del headers["x-c"]

    it = await made(
        api_key=KEY,
        env_http_headers={"x-b": "X_B"},
        request=asking(**{"x-c": "c"}),
        header_injector=inject,
    )
    assert (seen["authorization"], seen["x-b"], seen["x-c"]) == (f"Bearer {KEY}", "b", "c")
    assert (it.headers["x-trace"], it.headers["x-b"], "x-c" in it.headers) == ("t", "changed", False)


async def test_a_credential_that_the_injector_brings_counts_as_one() -> None:
    def inject(headers: dict[str, str]) -> None:
        headers["authorization"] = f"Bearer {KEY}"

    assert (await made(header_injector=inject)).has_credential


async def test_a_credential_that_the_injector_brings_is_a_secret() -> None:
    def inject(headers: dict[str, str]) -> None:
        headers["authorization"] = f"Bearer {KEY}"

    assert KEY not in redacted(f"wrong key: {KEY}", (await made(header_injector=inject)).secrets)


async def test_an_injector_that_raises_is_an_error_of_the_request() -> None:
    def inject(headers: dict[str, str]) -> None:
        raise KeyError(headers["accept"])

    error = await refused(header_injector=inject)
    assert "header_injector" in str(error)


async def test_what_the_injector_adds_is_checked_too() -> None:
    def inject(headers: dict[str, str]) -> None:
        headers["x-a"] = f"{KEY}\r\nx-evil: 1"

    error = await refused(header_injector=inject)
    assert error.kind is SamplingErrorKind.INVALID_REQUEST
    assert KEY not in str(error)


async def test_a_credential_of_the_injector_counts_in_any_case() -> None:
    def inject(headers: dict[str, str]) -> None:
        headers["Authorization"] = f"Bearer {KEY}"

    assert (await made(header_injector=inject)).has_credential


# -- the URL


@pytest.mark.parametrize(
    ("base", "params", "expected"),
    [
        (URL, {}, URL + "/responses"),
        (URL + "/", {}, URL + "/responses"),
        (URL + "//", {}, URL + "/responses"),
        ("https://api.test", {}, "https://api.test/responses"),
        # Azure's way: the path goes before the query
        (URL + "?api-version=1", {}, URL + "/responses?api-version=1"),
        (URL + "?keep=1&api-version=old", {"api-version": "new"}, URL + "/responses?keep=1&api-version=new"),
        (URL + "?a=1&a=2", {}, URL + "/responses?a=1&a=2"),
        (URL + "?blank=", {}, URL + "/responses?blank="),
        (URL, {"tenant": "a b&c=d"}, URL + "/responses?tenant=a+b%26c%3Dd"),
        ("http://[::1]:8080/v1", {}, "http://[::1]:8080/v1/responses"),
    ],
)
def test_the_path_stands_before_the_query(base: str, params: dict[str, str], expected: str) -> None:
    # B092, B093
    assert endpoint_url(base, "/responses", params) == expected


def test_parameters_come_back_as_they_were_given() -> None:
    params = {"api-version": "2025-04-01", "tenant": "a b", "x": "ü&=?#/%", "empty": ""}
    url = endpoint_url(URL + "?keep=%C3%BC", "/messages", params)
    assert dict(parse_qsl(urlsplit(url).query, keep_blank_values=True)) == {"keep": "ü", **params}


# -- redaction


@pytest.mark.parametrize(
    ("message", "secrets", "expected"),
    [
        ("nothing to hide", ("secret-1",), "nothing to hide"),
        ("key secret-1 and secret-1", ("secret-1",), "key *** and ***"),
        ("secret-12", ("secret-1", "secret-12"), "***"),  # the longer one first, or its tail would stay
        ("secret-12", ("secret-12", "secret-1"), "***"),
    ],
)
def test_redaction_leaves_no_part_of_a_secret(message: str, secrets: tuple[str, ...], expected: str) -> None:
    # B096
    assert redacted(message, secrets) == expected


async def test_placeholders_are_no_secrets() -> None:
    assert (await made(api_key="none")).secrets == ()  # or every "none" in a message would be blotted out


async def test_all_that_may_be_secret_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("X_ENV", "environment-secret")
    it = await made(
        base_url=f"{URL}?key=query-secret",
        api_key="key-secret",
        query_params={"sig": "param-secret"},
        extra_headers={"x-a": "header-secret"},
        env_http_headers={"x-b": "X_ENV"},
        request=asking(**{"x-c": "request-secret"}),
    )
    assert set(it.secrets) >= {
        "query-secret",
        "key-secret",
        "param-secret",
        "header-secret",
        "environment-secret",
        "request-secret",
    }


@pytest.mark.parametrize("url", ["https://user:url-secret@api.test/v1", "https://url-secret@api.test/v1"])
async def test_a_password_in_the_url_is_a_secret(url: str) -> None:
    assert "url-secret" not in redacted("no such user: url-secret", (await made(base_url=url)).secrets)


async def test_a_token_in_an_extra_header_is_a_secret_without_its_scheme() -> None:
    # servers echo the token, not the header
    it = await made(extra_headers={"Authorization": f"Bearer {KEY}"})
    assert KEY not in redacted(f"Incorrect API key provided: {KEY}.", it.secrets)


async def test_a_secret_of_the_url_is_one_in_its_encoded_form_too() -> None:
    it = await made(query_params={"key": "a/b+c=secret"})
    encoded = urlsplit(it.url).query.removeprefix("key=")
    assert encoded not in redacted(f"no such page: /v1/chat/completions?key={encoded}", it.secrets)


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_repr_of_the_request_shows_nothing_of_it(backend: str) -> None:
    where = f"https://u:{KEY}@api.test/v1?key={KEY}"
    it = await made(backend, api_key=KEY, auth_scheme="x_api_key", base_url=where, query_params={"k": KEY})
    assert KEY not in repr(it)
    assert KEY not in it.host
    assert it.host == "api.test"


async def test_a_host_is_shown_with_its_port() -> None:
    assert (await made(base_url="http://127.0.0.1:8080/v1")).host == "127.0.0.1:8080"


# -- the order of things


async def test_a_request_that_cannot_be_encoded_asks_for_no_credential() -> None:
    asked: list[str] = []

    def resolver() -> str:
        asked.append("now")
        return "token-1"

    request = SamplingRequest.of("hi").model_copy(update={"extra_body": {"x": cast(Any, {1, 2})}})
    error = await refused(request=request, bearer_resolver=resolver)
    assert error.kind is SamplingErrorKind.INVALID_REQUEST
    assert asked == []


async def test_what_the_body_holds_extra_wins() -> None:
    request = SamplingRequest.of("hi").model_copy(update={"extra_body": {"model": "other", "seed": 7}})
    body = json.loads((await made(request=request)).body)
    assert (body["model"], body["seed"]) == ("other", 7)


async def test_a_user_in_the_url_and_a_bearer_key_are_one_credential_too_many() -> None:
    with pytest.raises(SamplingError, match="give one of them") as caught:
        await made(base_url="https://ada:lovelace@h.test/v1", api_key=KEY)
    assert (caught.value.kind, caught.value.info.code) == ("invalid_request", "two_credentials")
    assert "lovelace" not in str(caught.value)
    assert (await made(base_url="https://ada:lovelace@h.test/v1", api_key=None)).url
