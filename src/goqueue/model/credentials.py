"""Credentials as they are stored: enough to check a secret, not enough to be one."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from goqueue.model.bounds import Milliseconds, Name

ITERATIONS_MIN = 4_096  # the bounds of Kafka
ITERATIONS_MAX = 16_384
SALT_BYTES_MAX = 256
Iterations = Annotated[int, Meta(ge=ITERATIONS_MIN, le=ITERATIONS_MAX)]
_Digest = Annotated[bytes, Meta(max_length=64)]


class ScramMechanism(StrEnum):
    """The hash with which a password is salted and verified."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"

    @property
    def hash_name(self) -> str:
        return "sha256" if self is ScramMechanism.SHA_256 else "sha512"

    @property
    def digest_bytes(self) -> int:
        return 32 if self is ScramMechanism.SHA_256 else 64


class ScramVerifier(msgspec.Struct, frozen=True):
    """Verifies a password, or a client that proves to know it (RFC 5802)."""

    mechanism: ScramMechanism
    salt: Annotated[bytes, Meta(max_length=SALT_BYTES_MAX)]
    iterations: Iterations
    stored_key: _Digest
    server_key: _Digest


class KeyKind(StrEnum):
    """How a client uses a key: it sends the secret, or signs requests with it."""

    API = "api"
    ACCESS = "access"  # Signature Version 4; its secret is derived, not stored


class Key(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key of a user, without its secret."""

    id: Name
    kind: KeyKind
    user: Name
    digest: _Digest = b""  # SHA-256 of the secret of an API key, which is random, so no salt
    created_ms: Milliseconds
    expires_ms: Milliseconds = 0  # 0 is never
    description: Name = ""
    created_by: Name = ""  # a principal, or the key that it used: `key:ID`

    def is_expired(self, now_ms: int) -> bool:
        return bool(self.expires_ms) and now_ms >= self.expires_ms


class PrincipalRule(NamedTuple):
    """How subjects of certificates that match a pattern become names of users.

    `$1` in the replacement stands for the first group of the pattern. A rule without a pattern
    applies to every subject, and the name is the subject itself.
    """

    pattern: str = ""
    replacement: str = ""
    case: str = ""  # "L" or "U" for lower or upper case

    @property
    def is_default(self) -> bool:
        return not self.pattern

    def __str__(self) -> str:
        if self.is_default:
            return "DEFAULT"
        return f"RULE:{self.pattern}/{self.replacement}/{self.case}"
