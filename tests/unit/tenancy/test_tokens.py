"""Tokens of another issuer: what is accepted, and that nothing else is."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joserfc.jwk import RSAKey

from goqueue.model.errors import AuthenticationFailed, InvalidSettings
from goqueue.tenancy.tokens import (
    TokenRules,
    UnknownTokenKey,
    read_keys,
    subject_of,
    verify,
)
from tests.unit.tenancy.token_issuer import (
    AUDIENCE,
    ISSUER,
    NOW_MS,
    claims,
    encoded,
    key,
    key_set,
    token,
    unsigned,
)

RULES = TokenRules(ISSUER, AUDIENCE, "sub", "scope", (), 30_000)
SECONDS = NOW_MS // 1000
KINDS = ["RS256", "PS256", "ES256", "EdDSA", "Ed25519"]


def owner(text: str, rules: TokenRules = RULES, *kinds: str) -> Any:
    return verify(text, read_keys(key_set(*(kinds or ("ES256",)))), rules, NOW_MS)


@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")
@pytest.mark.parametrize("kind", KINDS)
def test_a_valid_token_names_its_user(kind: str) -> None:
    found = owner(token(kind), RULES, *KINDS)
    assert found.user == "ada"
    assert found.expires_ms == NOW_MS + 600_000 + RULES.skew_ms


@pytest.mark.parametrize("kind", ["RS256", "ES256"])
def test_a_token_need_not_name_its_key(kind: str) -> None:
    assert owner(token(kind, header={"kid": None}), RULES, *KINDS).user == "ada"


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://evil.example"},
        {"iss": None},
        {"aud": "other"},
        {"aud": None},
        {"aud": ["other", "another"]},
        {"aud": {"goqueue": 1}},
        {"exp": SECONDS - 31},
        {"exp": None},
        {"exp": True},
        {"exp": "9999999999"},
        {"exp": -1},
        {"exp": 1 << 70},
        {"nbf": SECONDS + 31},
        {"nbf": "now"},
        {"iat": SECONDS + 31},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"sub": "*"},
        {"sub": "ANONYMOUS"},
        {"sub": "x" * 256},
        {"sub": "a\nb"},
        {"sub": " ada"},
    ],
    ids=str,
)
def test_a_token_that_says_something_else_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(AuthenticationFailed):
        owner(token(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": SECONDS - 29},
        {"nbf": SECONDS + 29},
        {"aud": ["x", AUDIENCE]},
        {"exp": SECONDS + 0.5},
    ],
    ids=str,
)
def test_clocks_may_differ_and_audiences_be_many(changes: dict[str, Any]) -> None:
    assert owner(token(**changes)).user == "ada"


def test_other_claims_and_scopes_by_setting() -> None:
    rules = TokenRules(ISSUER, "*", "client_id", "scp", ("write",), 0)
    assert owner(token(client_id="till", scp=["read", "write"], aud=None), rules).user == "till"
    assert owner(token(client_id="till", scp="write x"), rules).user == "till"
    for scopes in ("read", "writer", [], None, 7, [["write"]]):
        with pytest.raises(AuthenticationFailed):
            owner(token(client_id="till", scp=scopes), rules)


# Forgeries


@pytest.mark.parametrize("name", ["none", "None", "NONE", "", "HS256", "HS512", "RS256x", "dir"])
def test_a_token_without_a_signature_is_refused(name: str) -> None:
    for signature in ("", "AAAA"):
        with pytest.raises(AuthenticationFailed):
            owner(unsigned({"alg": name, "kid": "ES256"}, signature))


@pytest.mark.parametrize("kind", ["RS256", "ES256"])
def test_a_public_key_is_not_a_secret(kind: str) -> None:
    """The classic forgery: a keyed hash whose key is the public key that everybody knows."""
    signed = unsigned({"alg": "HS256", "kid": kind}).rpartition(".")[0]
    for secret in (key(kind).as_pem(private=False), key_set(kind)):
        digest = hmac.digest(secret, signed.encode(), hashlib.sha256)
        forged = f"{signed}.{_url64(digest)}"
        with pytest.raises(AuthenticationFailed):
            owner(forged, RULES, kind)


def _url64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def test_secrets_in_a_key_set_are_ignored() -> None:
    document = {
        "keys": [key("HS256").as_dict(private=True), json.loads(key_set("ES256"))["keys"][0]]
    }
    keys = read_keys(json.dumps(document).encode())
    assert len(keys) == 1
    with pytest.raises(AuthenticationFailed):
        verify(token("HS256"), keys, RULES, NOW_MS)


def test_a_key_does_not_sign_for_another_algorithm() -> None:
    entry = {**json.loads(key_set("RS256"))["keys"][0], "alg": "RS256"}
    keys = read_keys(json.dumps({"keys": [entry]}).encode())
    assert verify(token("RS256"), keys, RULES, NOW_MS).user == "ada"
    with pytest.raises(AuthenticationFailed):
        verify(token("RS256", alg="PS256"), keys, RULES, NOW_MS)


def test_a_token_of_another_key_with_the_same_name_is_refused() -> None:
    forged = token("ES256-stolen", alg="ES256", header={"kid": "ES256"})
    with pytest.raises(AuthenticationFailed):
        owner(forged)


def test_a_token_of_an_unknown_key_says_so() -> None:
    with pytest.raises(UnknownTokenKey):
        owner(token("ES256-new", alg="ES256"))


@pytest.mark.parametrize("header", [{"crit": ["b64"], "b64": True}, {"crit": []}])
def test_extensions_that_must_be_known_are_refused(header: dict[str, Any]) -> None:
    with pytest.raises(AuthenticationFailed):
        owner(unsigned({"alg": "ES256", "kid": "ES256", **header}, "AAAA"))


def test_keys_in_the_token_itself_are_not_used() -> None:
    stolen = key("ES256-stolen")
    header = {"kid": "ES256-stolen", "jwk": stolen.as_dict(private=False)}
    with pytest.raises(AuthenticationFailed):
        owner(token("ES256-stolen", alg="ES256", header=header))


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_changed_token_is_refused(data: st.DataObject) -> None:
    valid = token()
    at = data.draw(st.integers(0, len(valid) - 2))  # The last character has bits without meaning.
    other = data.draw(st.characters(min_codepoint=33, max_codepoint=126))
    changed = valid[:at] + other + valid[at + 1 :]
    if changed != valid:
        with pytest.raises(AuthenticationFailed):
            owner(changed)


@given(text=st.text(max_size=60))
def test_any_text_is_refused(text: str) -> None:
    with pytest.raises(AuthenticationFailed):
        owner(text)
    assert subject_of(text, RULES) == ""


@given(
    header=st.dictionaries(st.sampled_from(["alg", "kid", "crit", "typ"]), st.none() | st.text()),
    parts=st.lists(st.text(alphabet="abcABC012_-", max_size=20), min_size=2, max_size=2),
)
def test_any_header_is_refused(header: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(AuthenticationFailed):
        owner(".".join([encoded(header), *parts]))


def test_deep_nesting_is_refused() -> None:
    nested = "[" * 5_000 + "]" * 5_000
    text = f"{_url64(nested.encode())}.{_url64(nested.encode())}.AAAA"
    with pytest.raises(AuthenticationFailed):
        owner(text[:16_000])
    assert subject_of(text, RULES) == ""


def test_the_subject_that_a_token_claims_is_limited() -> None:
    assert subject_of(unsigned({}, "AAAA", sub="x" * 1_000), RULES) == "x" * 255
    assert subject_of(unsigned({}, "AAAA", sub=7), RULES) == ""


# Key sets


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b'{"keys": 7}', b'{"keys": [{"kty": "RSA"}]}', b"\xff", b"null"]
)
def test_what_is_no_key_set_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidSettings):
        read_keys(data)


def test_keys_that_do_not_verify_are_left_out() -> None:
    usable = json.loads(key_set("ES256"))["keys"][0]
    entries = [usable, {**usable, "use": "enc"}, {**usable, "key_ops": ["sign"]}, "nonsense", {}]
    assert len(read_keys(json.dumps({"keys": entries}).encode())) == 1


@pytest.mark.filterwarnings("ignore")
def test_weak_keys_are_left_out() -> None:
    weak = RSAKey.generate_key(1_024, {"kid": "weak"})
    data = json.dumps({"keys": [weak.as_dict(private=False)]}).encode()
    assert len(read_keys(data)) == 0


def test_the_claims_of_these_tests_are_valid() -> None:
    assert claims()["exp"] > SECONDS
