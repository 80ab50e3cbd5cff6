"""The client's sides of the SASL mechanisms: messages in, messages out.

A mechanism starts with `first`; `answer` takes each message of the broker and returns the next one,
or None when the conversation is over.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Final, Protocol

from goqueue.client.security.settings import OAUTHBEARER, PLAIN, SaslSettings, reveal
from goqueue.model.errors import AuthenticationFailed, InvalidRequest

NONCE_BYTES: Final = 18
ITERATIONS_MIN: Final = 4_096  # fewer would make it cheap to guess the password from the proof
ITERATIONS_MAX: Final = 1_000_000  # more would keep the client busy for longer than a second
_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_GS2_HEADER: Final = "n,,"  # no channel binding, and no other identity to act as


class Mechanism(Protocol):
    """The client's side of one authentication."""

    def first(self) -> bytes: ...

    def answer(self, message: bytes) -> bytes | None: ...


def begin(settings: SaslSettings) -> Mechanism:
    """Start an authentication, with the secrets as they are now."""
    if settings.mechanism == PLAIN:
        return Plain(settings.username, reveal(settings.password))
    if settings.mechanism == OAUTHBEARER:
        return OAuthBearer(reveal(settings.token))
    return Scram(settings.mechanism, settings.username, reveal(settings.password))


class Plain:
    """RFC 4616: the user and the password, as they are."""

    def __init__(self, username: str, password: str) -> None:
        if "\0" in username or "\0" in password:
            raise InvalidRequest("A user and a password cannot contain NUL characters.")
        self._message = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        return self._message

    def answer(self, message: bytes) -> bytes | None:
        return None


class OAuthBearer:
    """RFC 7628: a token. After a refusal the client sends one more byte, then the error follows."""

    def __init__(self, token: str) -> None:
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise InvalidRequest("The token contains characters that no bearer token has.")
        self._token = token

    def first(self) -> bytes:
        return f"{_GS2_HEADER}\x01auth=Bearer {self._token}\x01\x01".encode()

    def answer(self, message: bytes) -> bytes | None:
        return b"\x01" if message else None


class Scram:
    """RFC 5802: proves to know the password, and lets the broker prove that it knows it too."""

    def __init__(self, mechanism: str, username: str, password: str, nonce: str = "") -> None:
        self._hash = _HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce or base64.b64encode(secrets.token_bytes(NONCE_BYTES)).decode()
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={self._nonce}"
        self._signature = b""  # which the broker must send at the end

    def first(self) -> bytes:
        return f"{_GS2_HEADER}{self._first_bare}".encode()

    def answer(self, message: bytes) -> bytes | None:
        fields = _fields(message)
        if not self._signature:
            return self._proof(message.decode(), fields)
        self._check_broker(fields)
        return None

    def _proof(self, challenge: str, fields: dict[str, str]) -> bytes:
        nonce, salt, iterations = _challenge(fields)
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise AuthenticationFailed("The broker answered another client's SCRAM message.")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        stored_key = hashlib.new(self._hash, client_key).digest()
        bare = f"c={base64.b64encode(_GS2_HEADER.encode()).decode()},r={nonce}"
        signed = f"{self._first_bare},{challenge},{bare}".encode()
        signature = hmac.digest(stored_key, signed, self._hash)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._hash)
        self._signature = hmac.digest(server_key, signed, self._hash)
        return f"{bare},p={base64.b64encode(proof).decode()}".encode()

    def _check_broker(self, fields: dict[str, str]) -> None:
        if "e" in fields:
            raise AuthenticationFailed(f"The broker refused the proof ({fields['e']}).")
        if not hmac.compare_digest(_decode(fields.get("v", "")), self._signature):
            raise AuthenticationFailed(
                "The broker did not prove that it knows the password; is it the right broker?"
            )


def _challenge(fields: dict[str, str]) -> tuple[str, bytes, int]:
    nonce, salt, count = (fields.get(name, "") for name in "rsi")
    iterations = int(count) if count.isascii() and count.isdigit() and len(count) < 10 else 0
    if not nonce or not salt or "m" in fields:
        raise AuthenticationFailed("The broker sent a SCRAM message that cannot be read.")
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise AuthenticationFailed(
            f"The broker asks for {iterations} iterations of SCRAM; from {ITERATIONS_MIN} to "
            f"{ITERATIONS_MAX} are accepted."
        )
    return nonce, _decode(salt), iterations


def _fields(message: bytes) -> dict[str, str]:
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError:
        parts = []
    fields = dict(part.split("=", 1) for part in parts if part[1:2] == "=")
    if not fields or len(fields) != len(parts):
        raise AuthenticationFailed("The broker sent a SCRAM message that cannot be read.")
    return fields


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise AuthenticationFailed("The broker sent a SCRAM message that cannot be read.") from None
