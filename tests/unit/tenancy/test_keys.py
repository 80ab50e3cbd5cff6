"""API keys and access keys."""

from __future__ import annotations

import hmac
from typing import Any

import pytest

from goqueue.model.credentials import Key, KeyKind, ScramMechanism
from goqueue.tenancy import keys, scram

RANDOM = bytes(range(42))


def test_an_api_key_is_recognised_by_its_secret() -> None:
    key_id, text, digest = keys.new_api_key(RANDOM)
    key = Key(id=key_id, kind=KeyKind.API, user="ada", digest=digest, created_ms=0)
    given = keys.read_api_key(text)
    assert given is not None
    assert given.id == key_id
    assert keys.is_secret(key, given.secret)
    assert not keys.is_secret(key, given.secret[:-1] + "x")


@pytest.mark.parametrize("place", [3, 10, 30, -1])
def test_a_mistyped_api_key_is_no_key(place: int) -> None:
    _, text, _ = keys.new_api_key(RANDOM)
    letters = list(text)
    letters[place] = "0" if letters[place] != "0" else "1"
    assert keys.read_api_key("".join(letters)) is None


def test_secrets_of_access_keys_depend_on_the_cluster_and_the_key() -> None:
    key_id = keys.new_access_key_id(bytes(10))
    assert len(key_id) == 20
    assert keys.access_secret(b"a", key_id) == keys.access_secret(b"a", key_id)
    assert keys.access_secret(b"a", key_id) != keys.access_secret(b"b", key_id)
    assert len(keys.access_secret(b"a", key_id)) == 40


def test_secrets_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison that stops at the first difference would tell how much of a guess is right."""
    compared: list[int] = []
    real = hmac.compare_digest

    def compare(one: Any, other: Any) -> bool:
        compared.append(len(one))
        return real(one, other)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    _, whole, digest = keys.new_api_key(RANDOM)
    given = keys.read_api_key(whole)
    assert given is not None
    key = Key(id=given.id, kind=KeyKind.API, user="alice", digest=digest, created_ms=0)
    assert keys.is_secret(key, given.secret)
    assert not keys.is_secret(key, "wrong")
    verifier = scram.make_verifier(ScramMechanism.SHA_256, "pencil", b"salt")
    assert scram.is_password(verifier, "pencil")
    assert compared == [32, 32, 32]
