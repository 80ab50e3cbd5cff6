"""Messages of the SASL mechanisms PLAIN (RFC 4616) and OAUTHBEARER (RFC 7628)."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from goqueue.model.errors import AuthenticationFailed, MalformedRequest
from goqueue.tenancy.scram import OTHER_IDENTITY

PLAIN = "PLAIN"
OAUTHBEARER = "OAUTHBEARER"
TOKEN_BYTES_MAX = 64 << 10
# What a client answers to the description of an error, before the exchange fails.
ERROR_ACKNOWLEDGED = b"\x01"

_SEPARATOR = "\x01"
_PAIR = re.compile(r"[A-Za-z]+=[\x20-\x7e\t\r\n]*")
_BEARER = re.compile(r"bearer +([A-Za-z0-9._~+/=-]+)", re.IGNORECASE)


class Plain(NamedTuple):
    """A user name and a password."""

    user: str
    password: str


class Bearer(NamedTuple):
    """A token, and the identity that the client wants to act as; empty if it does not say."""

    token: str
    identity: str


def read_plain(message: bytes) -> Plain:
    """Read `[identity] NUL user NUL password`; the identity may only repeat the user."""
    parts = _text_of(message, "PLAIN").split("\0")
    if len(parts) != 3 or not parts[1] or not parts[2]:
        raise MalformedRequest("A PLAIN message needs a user name and a password.")
    identity, user, password = parts
    if identity not in ("", user):
        raise AuthenticationFailed(OTHER_IDENTITY)
    return Plain(user, password)


def read_bearer(message: bytes) -> Bearer:
    """Read `n,[a=identity],^Aauth=Bearer TOKEN^A[extensions]^A`; extensions are ignored."""
    header, *pairs = _text_of(message, "OAUTHBEARER").split(_SEPARATOR)
    if len(pairs) < 3 or pairs[-1] or pairs[-2]:
        raise MalformedRequest("An OAUTHBEARER message needs two separators at its end.")
    token = ""
    for pair in pairs[:-2]:
        if not _PAIR.fullmatch(pair):
            raise MalformedRequest("An OAUTHBEARER message has a pair that cannot be read.")
        if pair.startswith("auth="):
            found = _BEARER.fullmatch(pair.removeprefix("auth=").strip())
            if found is None or token:
                raise MalformedRequest("An OAUTHBEARER message needs one auth=Bearer TOKEN.")
            token = found[1]
    if not token:
        raise MalformedRequest("An OAUTHBEARER message needs auth=Bearer TOKEN.")
    return Bearer(token, _identity_of(header))


def invalid_token() -> bytes:
    """Return the description of an error, which the server sends before it refuses a token."""
    return msgspec.json.encode({"status": "invalid_token"})


def _identity_of(header: str) -> str:
    """Return the identity of a header `n,[a=identity],`, in which there is no channel binding."""
    parts = header.split(",")
    if len(parts) != 3 or parts[0] not in ("n", "y") or parts[2]:
        raise MalformedRequest("An OAUTHBEARER message needs n,, at its start.")
    if parts[1] and not parts[1].startswith("a="):
        raise MalformedRequest("An OAUTHBEARER message has an identity that cannot be read.")
    return parts[1][2:].replace("=2C", ",").replace("=3D", "=")


def _text_of(message: bytes, name: str) -> str:
    if len(message) > TOKEN_BYTES_MAX:
        raise MalformedRequest(f"A message of {name} is longer than {TOKEN_BYTES_MAX} bytes.")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise MalformedRequest(f"A message of {name} is not UTF-8.") from None
