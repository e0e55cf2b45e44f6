"""Authorities of one's own: what a bundle must be, and that it is trusted besides the system's, on real connections."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from tls_server import AUTHORITY, SERVER_KEY, tls_server
from wires import answer

from rx_sampler import RetryPolicy, Sampler, SamplerConfig, SamplingError, SamplingErrorKind
from rx_sampler.wire.tls import MAX_BUNDLE_BYTES, trusting

BODY = b"".join(answer("chat_completions", "Hel", "lo"))


def config(url: str, ca_bundle: Path | str | None) -> SamplerConfig:
    return SamplerConfig(base_url=url, model="m", ca_bundle=ca_bundle, retry=RetryPolicy(initial_backoff_s=0))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_server_of_an_authority_of_ones_own_is_reached(host: str) -> None:
    async with tls_server(BODY) as (url, heads):
        url = url.replace("127.0.0.1", host)
        async with Sampler(config(url, AUTHORITY)) as sampler:
            assert (await sampler.collect("hi")).response.text == "Hello"
            assert (await sampler.collect("hi")).response.text == "Hello"
        assert (await Sampler(config(url, str(AUTHORITY))).collect("hi")).response.text == "Hello"  # outside of a pool
    assert [head.split(b"\r\n")[0] for head in heads] == [b"POST /chat/completions HTTP/1.1"] * 3


async def test_without_the_authority_the_certificate_stays_bad_and_is_not_tried_again() -> None:
    async with tls_server(BODY) as (url, heads):
        with pytest.raises(SamplingError) as caught:
            await Sampler(config(url, None)).collect("hi")
    info = caught.value.info
    assert (info.kind, info.is_retryable) == (SamplingErrorKind.HTTP, False)
    assert info.message.startswith(f"the TLS connection to {url.removeprefix('https://')} failed: ")
    assert "issuer certificate" in info.message
    assert caught.value.metrics is not None
    assert caught.value.metrics.attempts == 1
    assert heads == []


async def test_a_certificate_for_another_host_stays_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = socket.getaddrinfo

    def here(_host: object, *args: Any, **more: Any) -> object:
        return resolve("127.0.0.1", *args, **more)

    async with tls_server(BODY) as (url, heads):
        monkeypatch.setattr(socket, "getaddrinfo", here)
        with pytest.raises(SamplingError) as caught:
            await Sampler(config(url.replace("127.0.0.1", "other.test"), AUTHORITY)).collect("hi")
    info = caught.value.info
    assert (info.kind, info.is_retryable) == (SamplingErrorKind.HTTP, False)
    assert "Hostname mismatch" in info.message
    assert heads == []


def test_the_systems_authorities_stay_trusted() -> None:
    system = ssl.create_default_context().cert_store_stats()["x509_ca"]
    assert trusting(AUTHORITY).cert_store_stats()["x509_ca"] == system + 1
    assert trusting(AUTHORITY).verify_mode is ssl.CERT_REQUIRED
    assert trusting(AUTHORITY).check_hostname


def test_several_authorities_with_their_names_in_any_script(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes("# Autorité générale\n".encode() + AUTHORITY.read_bytes() * 2)
    assert trusting(bundle).cert_store_stats()["x509_ca"] == trusting(AUTHORITY).cert_store_stats()["x509_ca"]


CERTIFICATE = AUTHORITY.read_text(encoding="ascii")
_, FIRST_LINE, *_ = CERTIFICATE.splitlines()

UNUSABLE = {
    "empty": (b"", "is empty"),
    "blank": (b" \n", "is empty"),
    "text": (b"no certificate here\n", "holds no PEM certificate"),
    "DER": (b"\x30\x82\x01\x00", "holds no PEM certificate"),
    "a key alone": (
        SERVER_KEY,
        "holds no PEM certificate",
    ),
    "cut": (CERTIFICATE[: len(CERTIFICATE) // 2].encode(), "holds no PEM certificate"),
    "one good and one broken": (
        (CERTIFICATE + CERTIFICATE.replace(FIRST_LINE, "A" * len(FIRST_LINE))).encode(),
        "holds no PEM certificate",
    ),
    "too large": (CERTIFICATE.encode() + b"\n" * MAX_BUNDLE_BYTES, "is larger than 1048576 bytes"),
}


@pytest.mark.parametrize(("content", "complaint"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_a_bundle_that_cannot_be_used_is_named_before_anything_is_sent(
    content: bytes, complaint: str, tmp_path: Path
) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(content)
    with pytest.raises(ValueError, match=complaint) as caught:
        Sampler(config("https://api.test", bundle))
    assert f"ca_bundle {bundle}" in str(caught.value)


def test_the_largest_bundle_is_read(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(CERTIFICATE.encode().ljust(MAX_BUNDLE_BYTES, b"\n"))
    assert trusting(bundle).cert_store_stats() == trusting(AUTHORITY).cert_store_stats()


def test_a_bundle_that_is_not_there_is_named_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No such file") as caught:
        Sampler(config("https://api.test", tmp_path / "gone.pem"))
    assert f"ca_bundle {tmp_path / 'gone.pem'}" in str(caught.value)
    with pytest.raises(ValueError, match="cannot be read"):
        trusting(tmp_path)
