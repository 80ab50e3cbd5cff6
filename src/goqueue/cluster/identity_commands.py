"""Commands that change users and their rights.

A fact whose decision depends on the one before has a version: the caller reads it, and repeats its
change if another node was faster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sized
from operator import attrgetter

import msgspec

from goqueue.cluster.facts import Change, Decision, Forget
from goqueue.cluster.identity_counts import tenant_of_rule
from goqueue.cluster.identity_facts import (
    AclFact,
    KeyFact,
    KeyUseFact,
    QuotaFact,
    RoleFact,
    SigningSecretFact,
    UserFact,
    quota_key,
)
from goqueue.cluster.metadata import Metadata
from goqueue.cluster.quota_checks import check_identities
from goqueue.cluster.tenant_commands import check_tenant_is_active, is_purged
from goqueue.model.access import ROLE_PREFIX, Acl
from goqueue.model.bounds import Milliseconds, Name
from goqueue.model.credentials import Key
from goqueue.model.errors import (
    InvalidRole,
    KeyExists,
    LimitReached,
    StalePartitionVersion,
    UnknownKey,
    UnknownRole,
    UnknownUser,
    UserExists,
)
from goqueue.model.quotas import KEYS, ROLES, RULES, USERS
from goqueue.model.session import USER_PREFIX, principal_of
from goqueue.model.tenants import tenant_of

USERS_MAX = 100_000
KEYS_MAX = 100_000
KEYS_PER_USER_MAX = 100  # so that a list of them needs no pages
ACLS_MAX = 100_000
ROLES_MAX = 10_000
MEMBERS_MAX = 10_000  # of a role
ROLES_PER_MEMBER_MAX = 100  # of one tenant; a check of access looks at all of them
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
            check_tenant_is_active(metadata, fact.tenant)
            _check_room(metadata.users, USERS_MAX, "users")
            check_identities(metadata, USERS, fact.tenant)
        return (fact,), None


class DeleteUser(msgspec.Struct, frozen=True, tag="delete_user"):
    """Delete a user with its keys and its membership in roles; rules that name it stay.

    With `purged`, only as a part of the deletion of that tenant.
    """

    name: Name
    purged: Name = ""

    def decide(self, metadata: Metadata) -> _Decided:
        known = metadata.users.get(self.name)
        if known is None:
            raise UnknownUser(self.name)
        if self.purged and (known.tenant != self.purged or not is_purged(metadata, self.purged)):
            return (), None
        keys = sorted(metadata.identity_counts.keys_of(self.name), key=attrgetter("key"))
        principal = principal_of(self.name)
        roles = [
            RoleFact(one.name, tuple(each for each in one.members if each != principal))
            for one in metadata.roles.values()
            if principal in one.members
        ]
        gone = [change for one in keys for change in _forget_key(metadata, one)]
        return (Forget(known.key), *gone, *roles), None


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
        _check_keys(metadata, self.fact.value.user)
        return (self.fact,), None


class RotateKey(msgspec.Struct, frozen=True, tag="rotate_key"):
    """Store a new key of a user, and let an old one expire, unless it expires earlier."""

    old_id: Name
    old_expires_ms: Milliseconds
    fact: KeyFact

    def decide(self, metadata: Metadata) -> _Decided:
        if metadata.keys.get(self.fact.value.id) == self.fact:
            return (), None
        known = metadata.keys.get(self.old_id)
        if known is None:
            raise UnknownKey(self.old_id)
        _check_keys(metadata, known.value.user)
        return (self.fact, KeyFact(self._ended(known.value))), None

    def _ended(self, old: Key) -> Key:
        if 0 < old.expires_ms <= self.old_expires_ms:
            return old
        return msgspec.structs.replace(old, expires_ms=self.old_expires_ms)


class NoteKeyUses(msgspec.Struct, frozen=True, tag="note_key_uses"):
    """Write down when keys were last used; older notes do not replace newer ones."""

    uses: dict[Name, Milliseconds]

    def decide(self, metadata: Metadata) -> _Decided:
        return tuple(
            KeyUseFact(key_id, used_ms)
            for key_id, used_ms in sorted(self.uses.items())
            if key_id in metadata.keys and used_ms > last_use_ms(metadata, key_id)
        ), None


class DeleteKey(msgspec.Struct, frozen=True, tag="delete_key"):
    id: Name

    def decide(self, metadata: Metadata) -> _Decided:
        known = metadata.keys.get(self.id)
        if known is None:
            raise UnknownKey(self.id)
        return tuple(_forget_key(metadata, known)), None


class ChangeAcls(msgspec.Struct, frozen=True, tag="change_acls"):
    """Add rules and remove others; rules that exist, or do not, make no difference."""

    added: tuple[Acl, ...] = ()
    removed: tuple[Acl, ...] = ()

    def decide(self, metadata: Metadata) -> _Decided:
        added = [AclFact(one) for one in self.added]
        new = [one for one in added if one.key not in metadata.acls]
        if len(metadata.acls) + len(new) > ACLS_MAX:
            raise LimitReached(f"There are {len(metadata.acls)} rules; the limit is {ACLS_MAX}.")
        for tenant, count in Counter(tenant_of_rule(one) for one in new).items():
            check_identities(metadata, RULES, tenant, count)
        removed = [AclFact(one) for one in self.removed]
        gone = [Forget(one.key) for one in removed if one.key in metadata.acls]
        return (*new, *gone), None


class PutRole(msgspec.Struct, frozen=True, tag="put_role"):
    """Create a role, or add members to one and remove others."""

    name: Name
    added: tuple[Name, ...] = ()
    removed: tuple[Name, ...] = ()
    must_exist: bool = False

    def decide(self, metadata: Metadata) -> _Decided:
        known = metadata.roles.get(self.name)
        if known is None and self.must_exist:
            raise UnknownRole(self.name)
        if known is None:
            _check_room(metadata.roles, ROLES_MAX, "roles")
            check_identities(metadata, ROLES, tenant_of(self.name))
        members = set(() if known is None else known.members)
        for one in {*self.added} - members:
            _check_member(metadata, one, tenant_of(self.name))
        changed = sorted((members | {*self.added}) - {*self.removed})
        if len(changed) > MEMBERS_MAX:
            raise LimitReached(f"A role has at most {MEMBERS_MAX} members; use several roles.")
        if known is not None and known.members == tuple(changed):
            return (), None
        return (RoleFact(self.name, tuple(changed)),), None


class DeleteRole(msgspec.Struct, frozen=True, tag="delete_role"):
    """Delete a role and its rules."""

    name: Name

    def decide(self, metadata: Metadata) -> _Decided:
        known = metadata.roles.get(self.name)
        rules = [
            one for one in metadata.acls.values() if one.value.principal == ROLE_PREFIX + self.name
        ]
        if known is None and not rules:
            raise UnknownRole(self.name)
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
    | RotateKey
    | NoteKeyUses
    | DeleteKey
    | ChangeAcls
    | PutRole
    | DeleteRole
    | ChangeQuota
    | PutSigningSecret
)


def last_use_ms(metadata: Metadata, key_id: str) -> int:
    """Return the last use of a key that was written down; 0 if none was."""
    known = metadata.key_uses.get(key_id)
    return 0 if known is None else known.last_used_ms


def _forget_key(metadata: Metadata, fact: KeyFact) -> list[Change]:
    used = metadata.key_uses.get(fact.value.id)
    return [Forget(fact.key), *(() if used is None else (Forget(used.key),))]


def _check_keys(metadata: Metadata, user: str) -> None:
    _check_room(metadata.keys, KEYS_MAX, "keys")
    owner = metadata.users.get(user)
    check_identities(metadata, KEYS, "" if owner is None else owner.tenant)
    own = len(metadata.identity_counts.keys_of(user))
    if own >= KEYS_PER_USER_MAX:
        raise LimitReached(f"User {user!r} has {own} keys, which is the limit; delete some first.")


def _check_member(metadata: Metadata, member: str, tenant: str) -> None:
    """Raise if a principal may not have one more role of a tenant."""
    known = metadata.users.get(member.removeprefix(USER_PREFIX))
    if known is not None and known.tenant != tenant:
        raise InvalidRole(
            f"{member[:60]!r} is a user of another tenant; a role has users of its own tenant."
        )
    if metadata.identity_counts.roles_of(member, tenant) >= ROLES_PER_MEMBER_MAX:
        raise LimitReached(
            f"{member[:60]!r} has {ROLES_PER_MEMBER_MAX} roles, which is the limit; give it fewer "
            "roles with more rules."
        )


def _check_room(table: Sized, most: int, what: str) -> None:
    if len(table) >= most:
        raise LimitReached(f"There are {most} {what}, which is the limit; delete some first.")
