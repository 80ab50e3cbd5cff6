"""Where the keys of tokens may come from, and what tokens need beside them."""

from __future__ import annotations

import pytest

from goqueue.config import load
from goqueue.config.kinds import KeySetLocation, Scopes
from goqueue.model.errors import InvalidSettings

RULES = {"security.oauth_issuer": "https://login.example", "security.oauth_audience": "goqueue"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/etc/goqueue/keys.json",
        "~/keys.json",
        "https://login.example/keys?v=2",
        "https://login.example:8443/keys",
        "https://[2001:db8::1]/keys",
        "http://127.0.0.1:8080/keys",
        "http://localhost/keys",
        "http://[::1]:80/keys",
    ],
)
def test_files_and_protected_addresses_are_allowed(text: str) -> None:
    assert KeySetLocation().read(f" {text} ") == text


@pytest.mark.parametrize(
    "text",
    [
        "http://login.example/keys",
        "http://127.0.0.1.evil.example/keys",
        "http://localhost:80@evil.example/keys",
        "http://localhost@evil.example/keys",
        "https://user:secret@login.example/keys",
        "https:///keys",
        "ftp://login.example/keys",
        "file:///etc/passwd",
        "https://login.example/\nkeys",
    ],
)
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected https"):
        KeySetLocation().read(text)


def test_scopes_may_be_addresses() -> None:
    assert Scopes().read("read, https://goqueue.example/.default") == (
        "read",
        "https://goqueue.example/.default",
    )
    with pytest.raises(ValueError, match="not a scope"):
        Scopes().read("read write")


@pytest.mark.parametrize("missing", RULES)
def test_tokens_need_an_issuer_and_an_audience(missing: str) -> None:
    given = {"security.oauth_jwks": "/keys.json", **RULES}
    assert load(environ={}, overrides=given).security.oauth_audience == "goqueue"
    del given[missing]
    with pytest.raises(InvalidSettings, match=missing):
        load(environ={}, overrides=given)
