"""Through a proxy of one's choice: what it is asked, what it is told of us, and what nobody else is told of it."""

from __future__ import annotations

import logging
import traceback
from base64 import b64encode
from typing import Any

import aiohttp
import pytest
from loopback import Loopback, answering
from loopback_proxy import LoopbackProxy
from tls_server import AUTHORITY, tls_server
from wires import answer

from rx_sampler import Failed, RetryPolicy, Sampler, SamplerConfig, SamplingError, SamplingErrorKind
from rx_sampler.wire.proxy import Proxy

FRAMES = answer("chat_completions", "Hel", "lo")
PASSWORD = "pass word:7f3d9c2b1a"
USER_INFO = "jim:pass%20word%3A7f3d9c2b1a"
BASIC = "Basic " + b64encode(f"jim:{PASSWORD}".encode()).decode()  # RFC 7617, section 2


def sampler(url: str, **fields: Any) -> Sampler:
    base = {"base_url": url, "model": "m", "api_key": "the-key-itself", "retry": RetryPolicy(max_retries=0)}
    return Sampler(SamplerConfig.model_validate({**base, **fields}))


@pytest.mark.parametrize("pooled", [False, True])
async def test_a_plain_request_goes_through_in_absolute_form(pooled: bool) -> None:
    # RFC 9112, section 3.2.2
    async with Loopback(answering(FRAMES)) as server, LoopbackProxy() as proxy:
        one = sampler(f"http://127.0.0.1:{server.port}/v1", proxy=f"http://{USER_INFO}@{proxy.address}")
        if pooled:
            async with one:
                result = await one.collect("hi")
        else:
            result = await one.collect("hi")
        assert result.response.text == "Hello"
        (asked,) = proxy.requests
        (exchange,) = server.exchanges
    assert (asked.method, asked.target) == ("POST", f"http://127.0.0.1:{server.port}/v1/chat/completions")
    assert asked.headers["proxy-authorization"] == BASIC
    assert exchange.target == "/v1/chat/completions"
    assert exchange.headers["authorization"] == "Bearer the-key-itself"
    assert "proxy-authorization" not in exchange.headers


async def test_an_encrypted_request_goes_through_a_tunnel_that_shows_neither_key_to_the_other_end() -> None:
    # RFC 9110, section 9.3.6
    async with tls_server(b"".join(FRAMES)) as (url, heads), LoopbackProxy() as proxy:
        one = sampler(url, proxy=f"http://{USER_INFO}@{proxy.address}", ca_bundle=AUTHORITY)
        assert (await one.collect("hi")).response.text == "Hello"
    (asked,) = proxy.requests
    assert (asked.method, asked.target) == ("CONNECT", url.removeprefix("https://"))
    assert asked.headers["proxy-authorization"] == BASIC
    assert "authorization" not in asked.headers  # the server's key is not the proxy's affair
    (head,) = heads
    assert b"the-key-itself" in head
    assert b"proxy-authorization" not in head.lower()


async def test_without_credentials_none_are_sent() -> None:
    async with Loopback(answering(FRAMES)) as server, LoopbackProxy() as proxy:
        await sampler(f"http://127.0.0.1:{server.port}", proxy=f"http://{proxy.address}").collect("hi")
    assert "proxy-authorization" not in proxy.requests[0].headers


async def test_the_chosen_proxy_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Loopback(answering(FRAMES)) as server, LoopbackProxy() as chosen, LoopbackProxy() as other:
        monkeypatch.setenv("http_proxy", f"http://{other.address}")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        url = f"http://127.0.0.1:{server.port}"
        await sampler(url, proxy=f"http://{chosen.address}", trust_env=True).collect("hi")
    assert (len(chosen.requests), len(other.requests)) == (1, 0)


def _told(error: SamplingError) -> str:
    chain: list[BaseException | None] = [error]
    while (last := chain[-1]) is not None:
        chain.append(last.__cause__ or last.__context__)
    return "\n".join([*map(repr, chain), *traceback.format_exception(error), repr(error.info), str(vars(error))])


async def _failure(url: str, caplog: pytest.LogCaptureFixture, **fields: Any) -> SamplingError:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(SamplingError) as caught:
        await sampler(url, **fields).collect("hi")
    told = _told(caught.value) + caplog.text
    assert PASSWORD not in told
    assert USER_INFO not in told
    assert BASIC.removeprefix("Basic ") not in told
    return caught.value


async def test_a_proxy_that_is_not_there_is_told_apart_from_the_server(caplog: pytest.LogCaptureFixture) -> None:
    async with LoopbackProxy() as gone:
        pass
    for url in ("http://api.test/v1", "https://api.test/v1"):
        error = await _failure(url, caplog, proxy=f"http://{USER_INFO}@{gone.address}")
        assert (error.kind, error.info.is_retryable) == (SamplingErrorKind.HTTP, True)
        assert error.info.message.startswith("cannot connect to the proxy on the way to api.test: ")
        assert isinstance(error.__cause__, aiohttp.ClientProxyConnectionError)
        assert isinstance(error.__cause__.os_error, ConnectionRefusedError)


@pytest.mark.parametrize(
    ("refusal", "retryable"), [("407 Proxy Authentication Required", False), ("502 Bad Gateway", True)]
)
async def test_a_tunnel_that_the_proxy_refuses(refusal: str, retryable: bool, caplog: pytest.LogCaptureFixture) -> None:
    async with LoopbackProxy(refusal) as proxy:
        error = await _failure("https://api.test/v1", caplog, proxy=f"http://{USER_INFO}@{proxy.address}")
    assert (error.kind, error.info.is_retryable) == (SamplingErrorKind.HTTP, retryable)
    assert error.info.message == f"the proxy on the way to api.test answered {refusal.replace(' ', ': ', 1)}"


async def test_a_plain_request_that_the_proxy_refuses(caplog: pytest.LogCaptureFixture) -> None:
    async with LoopbackProxy("407 Proxy Authentication Required") as proxy:
        error = await _failure("http://api.test/v1", caplog, proxy=f"http://{USER_INFO}@{proxy.address}")
    assert (error.info.status, error.info.is_retryable) == (407, False)


async def test_nor_are_those_of_a_proxy_of_the_environment_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with tls_server(b"".join(FRAMES)) as (url, _heads), LoopbackProxy() as proxy:
        monkeypatch.setenv("https_proxy", f"http://{USER_INFO}@{proxy.address}")
        error = await _failure(url, caplog, trust_env=True)
        assert "TLS" in error.info.message
        assert proxy.requests[0].headers["proxy-authorization"] == BASIC
    error = await _failure(url, caplog, trust_env=True)
    assert "cannot connect to the proxy" in error.info.message


async def test_what_a_server_quotes_of_the_proxys_password_is_blotted_out(caplog: pytest.LogCaptureFixture) -> None:
    body = f'{{"error": {{"message": "you came with {PASSWORD}"}}}}'.encode()
    async with Loopback(answering([body], status=400)) as server, LoopbackProxy() as proxy:
        url = f"http://127.0.0.1:{server.port}"
        error = await _failure(url, caplog, proxy=f"http://{USER_INFO}@{proxy.address}")
    assert error.info.message == "you came with ***"


async def test_no_event_holds_the_proxys_credentials() -> None:
    async with LoopbackProxy("503 Unavailable") as proxy:
        one = sampler("https://api.test/v1", proxy=f"http://{USER_INFO}@{proxy.address}")
        events = [event async for event in one.iterate("hi")]
    assert isinstance(events[-1], Failed)
    assert PASSWORD not in repr(events)


@pytest.mark.parametrize(
    ("url", "address", "credentials"),
    [
        ("http://proxy.test:3128", "http://proxy.test:3128", None),
        ("https://proxy.test", "https://proxy.test", None),
        ("http://[::1]:3128/", "http://[::1]:3128/", None),
        ("http://jim@proxy.test", "http://proxy.test", "jim:"),
        ("http://jim:a%40b@proxy.test", "http://proxy.test", "jim:a@b"),
        ("http://jim:a@b@proxy.test", "http://proxy.test", "jim:a@b"),
        ("http://j%C3%BC:x@proxy.test", "http://proxy.test", "jü:x"),
    ],
)
def test_the_address_of_a_proxy_and_its_credentials_are_taken_apart(
    url: str, address: str, credentials: str | None
) -> None:
    proxy = Proxy.of(url)
    assert proxy.url == address
    basic = credentials and {"Proxy-Authorization": f"Basic {b64encode(credentials.encode()).decode()}"}
    assert proxy.credentials == (basic or {})
    assert "Basic" not in repr(proxy)
    assert "Basic" not in repr(proxy.carrying("http://api.test")) + repr(proxy.carrying("https://api.test"))
