"""Signed tokens (JSON Web Tokens) that another system has issued: who they are for, and until when.

Only signatures with public keys are accepted. A token names its algorithm itself, so that name is
compared with a list before anything else: `none`, and keyed hashes, for which a public key would be
the secret, are not on it.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from typing import Any, NamedTuple, TypeVar

import msgspec

from goqueue.model.errors import AuthenticationFailed, InvalidSettings

ALGORITHMS = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    **dict.fromkeys(("EdDSA", "Ed25519"), "OKP"),
}
TOKEN_LENGTH_MAX = 16 << 10
SUBJECT_LENGTH_MAX = 255
KEYS_MAX = 100
RSA_BITS_MIN = 2_048
ANY_AUDIENCE = "*"
_TOKEN = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_FORBIDDEN_SUBJECTS = ("*", "ANONYMOUS")

T = TypeVar("T")


class UnknownTokenKey(AuthenticationFailed):
    """The key that has signed a token is not among those known; it may be new."""


class TokenRules(NamedTuple):
    """What a token must say to be accepted."""

    issuer: str
    audience: str
    subject_claim: str
    scope_claim: str
    scopes: tuple[str, ...]  # all of which it must have
    skew_ms: int  # by which the clock of the issuer may differ


class TokenOwner(NamedTuple):
    """Whom a token is for."""

    user: str
    expires_ms: int


class _Header(msgspec.Struct, frozen=True):
    alg: str
    kid: str | None = None
    crit: Any = None


class TokenKeys:
    """The public keys of an issuer."""

    def __init__(self, keys: list[Any]) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    def for_header(self, header: _Header) -> list[Any]:
        """Return the keys that may have signed a token: one, if it names its key."""
        kind = ALGORITHMS[header.alg]
        found = [
            key
            for key in self._keys
            if key.key_type == kind
            and (header.kid is None or key.kid == header.kid)
            and key.get("alg") in (None, header.alg)
        ]
        if not found:
            raise UnknownTokenKey
        return found


def read_keys(data: bytes) -> TokenKeys:
    """Read a JSON Web Key Set; keys that cannot verify a signature are left out."""
    # Imported here, because only tokens need it, and it loads a large library.
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet

    try:
        document = msgspec.json.decode(data, type=dict[str, Any])
        entries = [one for one in document["keys"] if _may_verify(one)][:KEYS_MAX]
        keys = KeySet.import_key_set({"keys": entries})
    except (msgspec.MsgspecError, JoseError, KeyError, TypeError, ValueError) as error:
        raise InvalidSettings([f"security.oauth_jwks has no valid key set: {error!r}"]) from error
    return TokenKeys([one for one in keys.keys if _is_strong(one)])


def _may_verify(entry: Any) -> bool:
    if not isinstance(entry, dict) or entry.get("kty") not in ("RSA", "EC", "OKP"):
        return False
    operations = entry.get("key_ops")
    return entry.get("use") in (None, "sig") and (operations is None or "verify" in operations)


def _is_strong(key: Any) -> bool:
    return key.key_type != "RSA" or bool(key.public_key.key_size >= RSA_BITS_MIN)


def is_token(text: str) -> bool:
    """Whether a text has the form of a token: three parts, separated by points."""
    return len(text) <= TOKEN_LENGTH_MAX and _TOKEN.fullmatch(text) is not None


def subject_of(token: str, rules: TokenRules) -> str:
    """Return the subject that a token claims, without verifying anything; empty if there is none.

    It may only be used to count failures.
    """
    if not is_token(token):
        return ""
    try:
        claims = _json_of(_decoded(token.split(".")[1]), dict[str, Any])
    except AuthenticationFailed:
        return ""
    subject = claims.get(rules.subject_claim)
    return subject[:SUBJECT_LENGTH_MAX] if isinstance(subject, str) else ""


def verify(token: str, keys: TokenKeys, rules: TokenRules, now_ms: int) -> TokenOwner:
    """Return whom a token is for; raise if it is not valid."""
    header = _header_of(token)
    claims = _claims_of(token, header, keys)
    return _checked(claims, rules, now_ms)


def _header_of(token: str) -> _Header:
    if not is_token(token):
        raise AuthenticationFailed
    header = _json_of(_decoded(token.partition(".")[0]), _Header)
    # `crit` lists extensions that the receiver must know; it knows none.
    if header.alg not in ALGORITHMS or header.crit is not None:
        raise AuthenticationFailed
    return header


def _claims_of(token: str, header: _Header, keys: TokenKeys) -> dict[str, Any]:
    from joserfc import jws
    from joserfc.errors import JoseError

    for key in keys.for_header(header):
        try:
            signed = jws.deserialize_compact(token, key, algorithms=[header.alg])
        except (JoseError, ValueError, TypeError):
            continue
        return _json_of(signed.payload, dict[str, Any])
    raise AuthenticationFailed


def _checked(claims: dict[str, Any], rules: TokenRules, now_ms: int) -> TokenOwner:
    """Compare what a token says with the rules."""
    expires_ms = _time_of(claims, "exp")
    starts_ms = _time_of(claims, "nbf", default=0)
    issued_ms = _time_of(claims, "iat", default=0)
    audiences = claims.get("aud", [])
    audiences = [audiences] if isinstance(audiences, str) else audiences
    is_valid = (
        claims.get("iss") == rules.issuer
        and (rules.audience == ANY_AUDIENCE or _contains(audiences, rules.audience))
        and now_ms < expires_ms + rules.skew_ms
        and max(starts_ms, issued_ms) <= now_ms + rules.skew_ms
        and set(rules.scopes) <= _scopes_of(claims, rules)
    )
    if not is_valid:
        raise AuthenticationFailed
    return TokenOwner(_subject_in(claims, rules), expires_ms + rules.skew_ms)


def _contains(values: Any, wanted: str) -> bool:
    return isinstance(values, list) and wanted in values


def _time_of(claims: dict[str, Any], name: str, default: int | None = None) -> int:
    """Return a time in milliseconds; tokens have seconds, and may have fractions."""
    value = claims.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise AuthenticationFailed
    if not math.isfinite(value) or not 0 <= value < 1 << 40:
        raise AuthenticationFailed
    return int(value * 1000)


def _scopes_of(claims: dict[str, Any], rules: TokenRules) -> set[str]:
    """Return the scopes: a text with spaces, as RFC 8693 has it, or a list."""
    scopes = claims.get(rules.scope_claim, "")
    if isinstance(scopes, str):
        return set(scopes.split())
    return {one for one in scopes if isinstance(one, str)} if isinstance(scopes, list) else set()


def _subject_in(claims: dict[str, Any], rules: TokenRules) -> str:
    subject = claims.get(rules.subject_claim)
    if not isinstance(subject, str) or not 0 < len(subject) <= SUBJECT_LENGTH_MAX:
        raise AuthenticationFailed
    if not subject.isprintable() or subject.strip() != subject or subject in _FORBIDDEN_SUBJECTS:
        raise AuthenticationFailed
    return subject


def _json_of(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):  # ValueError: it is not UTF-8
        raise AuthenticationFailed from None


def _decoded(part: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except (binascii.Error, ValueError):
        raise AuthenticationFailed from None
