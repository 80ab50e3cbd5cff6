"""API keys, which clients send, and access keys, with which they sign requests.

An API key is `gqk_<id>_<secret>`. Its secret is 256 random bits, so a plain hash suffices to store
it. The prefix and the checksum let scanners find leaked keys. The secret of an access key must be
known to verify a signature, so it is derived from a secret of the cluster and the id of the key:
nothing about it is stored.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import zlib
from typing import NamedTuple

from goqueue.model.credentials import Key

API_PREFIX = "gqk_"
ACCESS_PREFIX = "GQAK"
ID_BYTES = 10
SECRET_BYTES = 32
API_KEY_LENGTH_MAX = 128
_API_KEY = re.compile(r"gqk_([a-z2-7]{16})_([A-Za-z0-9_-]{43})([0-9a-f]{8})")


class ApiKey(NamedTuple):
    """The parts of an API key that a client has sent."""

    id: str
    secret: str


def new_api_key(random: bytes) -> tuple[str, str, bytes]:
    """Return the id, the whole key, which is shown once, and the digest of its secret."""
    assert len(random) == ID_BYTES + SECRET_BYTES
    key_id = base64.b32encode(random[:ID_BYTES]).decode("ascii").lower()
    secret = base64.urlsafe_b64encode(random[ID_BYTES:]).decode("ascii").rstrip("=")
    return key_id, f"{API_PREFIX}{key_id}_{secret}{_checksum(key_id, secret)}", digest_of(secret)


def read_api_key(text: str) -> ApiKey | None:
    """Return the parts of an API key; None if it is not one."""
    found = _API_KEY.fullmatch(text) if len(text) <= API_KEY_LENGTH_MAX else None
    if found is None or found[3] != _checksum(found[1], found[2]):
        return None
    return ApiKey(found[1], found[2])


def is_secret(key: Key, secret: str) -> bool:
    return bool(key.digest) and hmac.compare_digest(key.digest, digest_of(secret))


def digest_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def new_access_key_id(random: bytes) -> str:
    """Return the id of a new access key: 20 capital letters and digits, as those of AWS."""
    assert len(random) == ID_BYTES
    return ACCESS_PREFIX + base64.b32encode(random).decode("ascii")


def access_secret(signing_secret: bytes, key_id: str) -> str:
    """Derive the secret of an access key: 40 characters, as those of AWS."""
    derived = hmac.digest(signing_secret, b"access-key/" + key_id.encode(), "sha256")
    return base64.urlsafe_b64encode(derived[:30]).decode("ascii")


def _checksum(key_id: str, secret: str) -> str:
    return f"{zlib.crc32(f'{key_id}_{secret}'.encode()):08x}"
