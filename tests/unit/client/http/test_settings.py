"""Addresses as people write them, and settings that hold together."""

from __future__ import annotations

import pytest

from goqueue.client.http.settings import RetrySettings, base_url
from goqueue.model.errors import InvalidRequest


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("queue.example", "http://queue.example:8080"),
        ("[::1]:9", "http://[::1]:9"),
        ("::1", "http://[::1]:8080"),
        ("[::1]", "http://[::1]:8080"),
        ("https://queue.example/", "https://queue.example"),
        ("http://queue.example:1/base", "http://queue.example:1/base"),
    ],
)
def test_an_address_is_a_host_or_a_url(address: str, url: str) -> None:
    assert base_url(address) == url


@pytest.mark.parametrize("address", ["", "http://", "a/b", "host:port", "host:0", ":80"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidRequest, match="HOST:PORT"):
        base_url(address)


def test_contradictory_retries_are_refused() -> None:
    with pytest.raises(InvalidRequest):
        RetrySettings(retries_max=-1)
    with pytest.raises(InvalidRequest):
        RetrySettings(backoff_ms_min=10, backoff_ms_max=5)
