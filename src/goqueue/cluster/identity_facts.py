"""The metadata entries about users and their rights."""

from __future__ import annotations

import msgspec

from goqueue.model.access import Acl
from goqueue.model.bounds import Milliseconds, Name, Version
from goqueue.model.credentials import Key, ScramVerifier
from goqueue.model.tenants import TenantState

USER_PREFIX = b"user/"
KEY_PREFIX = b"key/"
KEY_USE_PREFIX = b"key-use/"
ACL_PREFIX = b"acl/"
ROLE_PREFIX = b"role/"
QUOTA_PREFIX = b"quota/"
TENANT_PREFIX = b"tenant/"
SIGNING_SECRET_KEY = b"signing-secret"

_encode_key = msgspec.msgpack.Encoder(order="deterministic").encode
_acl_decoder = msgspec.msgpack.Decoder(Acl)


class UserFact(msgspec.Struct, frozen=True, tag="user", omit_defaults=True):
    """A user and the verifiers of its password, one for each mechanism."""

    name: Name
    created_ms: Milliseconds
    verifiers: tuple[ScramVerifier, ...] = ()
    tenant: Name = ""
    is_disabled: bool = False
    version: Version = 0  # one more than that of the entry it replaces

    @property
    def key(self) -> bytes:
        return USER_PREFIX + self.name.encode()


class KeyFact(msgspec.Struct, frozen=True, tag="key"):
    """An API key or access key."""

    value: Key

    @property
    def key(self) -> bytes:
        return KEY_PREFIX + self.value.id.encode()


class KeyUseFact(msgspec.Struct, frozen=True, tag="key_use"):
    """When a key was last used, to about an hour. Apart from the key, which it does not change."""

    id: Name
    last_used_ms: Milliseconds

    @property
    def key(self) -> bytes:
        return KEY_USE_PREFIX + self.id.encode()


class AclFact(msgspec.Struct, frozen=True, tag="acl"):
    """One rule of access control."""

    value: Acl

    @property
    def key(self) -> bytes:
        return ACL_PREFIX + _encode_key(self.value)


class RoleFact(msgspec.Struct, frozen=True, tag="role"):
    """A role: the principals that have it. Its rules are those whose principal is `Role:name`."""

    name: Name
    members: tuple[Name, ...] = ()

    @property
    def key(self) -> bytes:
        return ROLE_PREFIX + self.name.encode()


class QuotaFact(msgspec.Struct, frozen=True, tag="quota"):
    """The limits of an entity: the values of some of `user`, `client-id`, `ip` and `tenant`.

    An empty value is the default of its kind: for all that have no limits of their own.
    """

    entity: tuple[tuple[Name, Name], ...]  # sorted
    limits: dict[str, float]

    @property
    def key(self) -> bytes:
        return quota_key(self.entity)


class TenantFact(msgspec.Struct, frozen=True, tag="tenant", omit_defaults=True):
    """A tenant: a name space with users of its own."""

    name: Name
    created_ms: Milliseconds
    account: Name  # 12 digits, as in the URLs of its queues
    state: TenantState = TenantState.ACTIVE
    description: str = ""
    version: Version = 0  # one more than that of the entry it replaces

    @property
    def key(self) -> bytes:
        return TENANT_PREFIX + self.name.encode()


class SigningSecretFact(msgspec.Struct, frozen=True, tag="signing_secret"):
    """The secret from which the secrets of access keys are derived. It is made once."""

    value: bytes

    @property
    def key(self) -> bytes:
        return SIGNING_SECRET_KEY


IdentityFact = (
    UserFact
    | KeyFact
    | KeyUseFact
    | AclFact
    | RoleFact
    | QuotaFact
    | TenantFact
    | SigningSecretFact
)


def acl_of_key(key: bytes) -> Acl:
    """Return the rule that a key stands for."""
    return _acl_decoder.decode(key[len(ACL_PREFIX) :])


def quota_key(entity: tuple[tuple[str, str], ...]) -> bytes:
    return QUOTA_PREFIX + _encode_key(entity)
