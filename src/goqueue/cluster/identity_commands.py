"""Commands that change users and their rights.

A fact whose decision depends on the one before has a version: the caller reads it, and repeats its
change if another node was faster.
"""

from __future__ import annotations

from collections.abc import Sized

import msgspec

from goqueue.cluster.facts import Decision, Forget
from goqueue.cluster.identity_facts import (
    AclFact,
    KeyFact,
    QuotaFact,
    RoleFact,
    SigningSecretFact,
    UserFact,
    quota_key,
)
from goqueue.cluster.metadata import Metadata
from goqueue.model.access import ROLE_PREFIX, Acl
from goqueue.model.bounds import Name
from goqueue.model.errors import (
    KeyExists,
    LimitReached,
    StalePartitionVersion,
    UnknownKey,
    UnknownUser,
    UserExists,
)
from goqueue.model.session import principal_of

USERS_MAX = 100_000
KEYS_MAX = 100_000
ACLS_MAX = 100_000
ROLES_MAX = 10_000
QUOTAS_MAX = 100_000

_Decided = tuple[Decision, None]


class PutUser(msgspec.Struct, frozen=True, tag="put_user"):
    """Create a user, whose version is 1, or replace one, with the version that follows."""

    fact: UserFact

    def decide(self, metadata: Metadata) -> _Decided:
        fact, known = self.fact, metadata.users.get(self.fact.name)
        if known == fact:
            return (), None  # A retry: the answer to the first request was lost.
        if known is None and fact.version > 1:
            raise UnknownUser(fact.name)
        if known is not None and fact.version == 1:
            raise UserExists(fact.name)
        if known is not None and fact.version != known.version + 1:
            raise StalePartitionVersion(f"User {fact.name!r} was changed by another request.")
        if known is None:
            _check_room(metadata.users, USERS_MAX, "users")
        return (fact,), None


class DeleteUser(msgspec.Struct, frozen=True, tag="delete_user"):
    """Delete a user with its keys and its membership in roles; rules that name it stay."""

    name: Name

    def decide(self, metadata: Metadata) -> _Decided:
        known = metadata.users.get(self.name)
        if known is None:
            raise UnknownUser(self.name)
        keys = [one for one in metadata.keys.values() if one.value.user == self.name]
        principal = principal_of(self.name)
        roles = [
            RoleFact(one.name, tuple(each for each in one.members if each != principal))
            for one in metadata.roles.values()
            if principal in one.members
        ]
        return (Forget(known.key), *(Forget(one.key) for one in keys), *roles), None


class PutKey(msgspec.Struct, frozen=True, tag="put_key"):
    """Store a new key of a user."""

    fact: KeyFact

    def decide(self, metadata: Metadata) -> _Decided:
        known = metadata.keys.get(self.fact.value.id)
        if known == self.fact:
            return (), None
        if known is not None:
            raise KeyExists(self.fact.value.id)
        if self.fact.value.user not in metadata.users:
            raise UnknownUser(self.fact.value.user)
        _check_room(metadata.keys, KEYS_MAX, "keys")
        return (self.fact,), None


class DeleteKey(msgspec.Struct, frozen=True, tag="delete_key"):
    id: Name

    def decide(self, metadata: Metadata) -> _Decided:
        known = metadata.keys.get(self.id)
        if known is None:
            raise UnknownKey(self.id)
        return (Forget(known.key),), None


class ChangeAcls(msgspec.Struct, frozen=True, tag="change_acls"):
    """Add rules and remove others; rules that exist, or do not, make no difference."""

    added: tuple[Acl, ...] = ()
    removed: tuple[Acl, ...] = ()

    def decide(self, metadata: Metadata) -> _Decided:
        added = [AclFact(one) for one in self.added]
        new = [one for one in added if one.key not in metadata.acls]
        if len(metadata.acls) + len(new) > ACLS_MAX:
            raise LimitReached(f"There are {len(metadata.acls)} rules; the limit is {ACLS_MAX}.")
        removed = [AclFact(one) for one in self.removed]
        gone = [Forget(one.key) for one in removed if one.key in metadata.acls]
        return (*new, *gone), None


class PutRole(msgspec.Struct, frozen=True, tag="put_role"):
    """Create a role, or give it other members: all of them, or some more and less."""

    name: Name
    added: tuple[Name, ...] = ()
    removed: tuple[Name, ...] = ()

    def decide(self, metadata: Metadata) -> _Decided:
        known = metadata.roles.get(self.name)
        if known is None:
            _check_room(metadata.roles, ROLES_MAX, "roles")
        members = set(() if known is None else known.members)
        changed = sorted((members | {*self.added}) - {*self.removed})
        return (RoleFact(self.name, tuple(changed)),), None


class DeleteRole(msgspec.Struct, frozen=True, tag="delete_role"):
    """Delete a role and its rules."""

    name: Name

    def decide(self, metadata: Metadata) -> _Decided:
        known = metadata.roles.get(self.name)
        rules = [
            one for one in metadata.acls.values() if one.value.principal == ROLE_PREFIX + self.name
        ]
        gone = [Forget(one.key) for one in rules]
        return (*gone, *(() if known is None else (Forget(known.key),))), None


class ChangeQuota(msgspec.Struct, frozen=True, tag="change_quota"):
    """Change limits of an entity; None removes one."""

    entity: tuple[tuple[Name, Name], ...]  # sorted
    changes: dict[str, float | None]

    def decide(self, metadata: Metadata) -> _Decided:
        key = quota_key(self.entity)
        known = metadata.quotas.get(key)
        if known is None:
            _check_room(metadata.quotas, QUOTAS_MAX, "quotas")
        merged = {**({} if known is None else known.limits), **self.changes}
        limits = {name: value for name, value in merged.items() if value is not None}
        if limits:
            return (QuotaFact(self.entity, limits),), None
        return (() if known is None else (Forget(key),)), None


class PutSigningSecret(msgspec.Struct, frozen=True, tag="put_signing_secret"):
    """Set the secret that access keys are derived from, unless there is one."""

    value: bytes

    def decide(self, metadata: Metadata) -> _Decided:
        if metadata.signing_secret is not None:
            return (), None
        return (SigningSecretFact(self.value),), None


IdentityCommand = (
    PutUser
    | DeleteUser
    | PutKey
    | DeleteKey
    | ChangeAcls
    | PutRole
    | DeleteRole
    | ChangeQuota
    | PutSigningSecret
)


def _check_room(table: Sized, most: int, what: str) -> None:
    if len(table) >= most:
        raise LimitReached(f"There are {most} {what}, which is the limit; delete some first.")
