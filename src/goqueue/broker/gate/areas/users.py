"""Operations on users and their keys.

Whoever may alter the cluster manages all of them. Users may see themselves, change their own
passwords and manage their own keys, with limits for keys: a key can neither set a password nor make
keys that outlive it, so that a leaked key ends when it should.
"""

from __future__ import annotations

from heapq import nsmallest

import msgspec

from goqueue.broker.gate.authentication import BASIC
from goqueue.broker.gate.operation import (
    Area,
    everybody,
    named_by_owner,
    operation,
    own_cluster,
    query,
)
from goqueue.cluster.identity_facts import UserFact
from goqueue.model.access import CLUSTER, Action, Resource
from goqueue.model.credentials import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES_MAX,
    Key,
    KeyKind,
    ScramMechanism,
    ScramVerifier,
)
from goqueue.model.errors import (
    InvalidCredential,
    InvalidRequest,
    UnknownCredential,
    UnknownKey,
    UnknownUser,
    UserExists,
)
from goqueue.model.session import Session, principal_of
from goqueue.model.tenants import Text
from goqueue.tenancy import scram

__all__ = [
    "KeyKind",
    "KeyView",
    "NewKeyView",
    "SaltedPassword",
    "ScramInfo",
    "UserPage",
    "UserView",
    "UsersArea",
    "Whoami",
]

OVERLAP_MS_MAX = 30 * 24 * 3_600_000


class UserView(msgspec.Struct, frozen=True, kw_only=True):
    """A user, without its credentials."""

    name: Text
    tenant: Text
    created_ms: int
    is_disabled: bool
    is_super: bool
    mechanisms: tuple[ScramMechanism, ...]  # for which it has a password
    key_count: int


class UserPage(msgspec.Struct, frozen=True):
    """Users by name; `next_cursor` is empty at the end."""

    users: tuple[UserView, ...]
    next_cursor: Text


class KeyView(msgspec.Struct, frozen=True, kw_only=True):
    """A key, without its secret."""

    id: Text
    kind: KeyKind
    user: Text
    created_ms: int
    created_by: Text
    expires_ms: int  # 0 is never
    last_used_ms: int  # 0 is never, or not within the last hour on another node
    description: Text


class NewKeyView(msgspec.Struct, frozen=True):
    """A new key and its secret, which is shown this once."""

    key: KeyView
    secret: Text

    def __repr__(self) -> str:
        return f"NewKeyView(key={self.key!r}, secret=(hidden))"


class ScramInfo(msgspec.Struct, frozen=True):
    """A verifier of a password, without what verifies it."""

    mechanism: ScramMechanism
    iterations: int


class SaltedPassword(msgspec.Struct, frozen=True):
    """A password as clients salt it for SCRAM, so that it is not sent."""

    mechanism: ScramMechanism
    iterations: int
    salt: bytes
    password: bytes

    def __repr__(self) -> str:
        return f"SaltedPassword(mechanism={self.mechanism}, iterations={self.iterations})"

    def verifier(self) -> ScramVerifier:
        """Return what is stored; raise if it is too weak."""
        if not ITERATIONS_MIN <= self.iterations <= ITERATIONS_MAX:
            what = "few" if self.iterations < ITERATIONS_MIN else "many"
            raise InvalidCredential(
                f"Too {what} iterations: give {ITERATIONS_MIN} to {ITERATIONS_MAX}."
            )
        if not 0 < len(self.salt) <= SALT_BYTES_MAX:
            raise InvalidCredential(f"A salt has 1 to {SALT_BYTES_MAX} bytes.")
        if len(self.password) != self.mechanism.digest_bytes:
            raise InvalidCredential(
                f"A password salted for {self.mechanism} has {self.mechanism.digest_bytes} bytes."
            )
        return scram.verifier_of(self.mechanism, self.password, self.salt, self.iterations)


class Whoami(msgspec.Struct, frozen=True, kw_only=True):
    """Who the caller is to the broker."""

    principal: Text
    tenant: Text
    mechanism: Text
    key_id: Text
    expires_ms: int
    is_super: bool
    is_authenticated: bool


class UsersArea(Area):
    """Users and their keys: create, list, show, change, delete."""

    @query(Action.DESCRIBE, everybody)
    def whoami(self, session: Session) -> Whoami:
        """Return the identity of the caller."""
        return Whoami(
            principal=session.principal,
            tenant=session.tenant,
            mechanism=session.mechanism,
            key_id=session.key_id,
            expires_ms=session.expires_ms,
            is_super=session.principal in self._broker.identities.super_users,
            is_authenticated=session.is_authenticated,
        )

    # Users

    @query(Action.DESCRIBE, own_cluster)
    def list(self, session: Session, *, prefix: Text, after: Text, limit: int) -> UserPage:
        """Return users by name, after a cursor."""
        users = self._broker.identities.users
        names = nsmallest(
            limit + 1,
            (
                name
                for name, fact in users.items()
                if name > after and name.startswith(prefix) and self._is_visible(session, fact)
            ),
        )
        shown = tuple(self._view(users[name]) for name in names[:limit])
        return UserPage(shown, shown[-1].name if len(names) > limit else "")

    @query(Action.DESCRIBE, named_by_owner)
    def show(self, session: Session, *, user: Text) -> UserView:
        """Return a user; everybody may see themselves."""
        self._check_own(session, Action.DESCRIBE, user)
        return self._view(self._find(session, user))

    @operation(Action.ALTER, own_cluster)
    async def create(
        self, session: Session, *, user: Text, password: Text | None, tenant: Text | None = None
    ) -> UserView:
        """Create a user; without a password it can use keys, certificates and tokens only."""
        self._check_alter(session, user)
        wanted = session.tenant if tenant is None else tenant
        is_operator = self._authoriser.namespaces.is_operator(session)
        if not is_operator and wanted != session.tenant:
            raise InvalidRequest("You can create users in your own tenant only.")
        if password is None:
            self._check_without_password(session)
        self._check_unclaimed(session, user)
        self._mutate(session)
        made = await self._broker.identities.create_user(user, password, tenant=wanted)
        return self._view(made)

    @operation(Action.ALTER, named_by_owner)
    async def set_password(self, session: Session, *, user: Text, password: Text) -> None:
        """Replace the password of a user; users may change their own, but not with a key."""
        if not (self._is_own(session, user) and _is_by_password(session)):
            self._check_alter(session, user)
        self._find(session, user)
        self._mutate(session)
        await self._broker.identities.set_password(user, password)

    @operation(Action.ALTER, own_cluster)
    async def disable(self, session: Session, *, user: Text, is_disabled: bool = True) -> UserView:
        """Refuse all credentials of a user, or accept them again."""
        self._check_other(session, user)
        self._find(session, user)
        self._mutate(session)
        await self._broker.identities.disable_user(user, is_disabled=is_disabled)
        return self._view(self._find(session, user))

    @operation(Action.ALTER, own_cluster)
    async def delete(self, session: Session, *, user: Text) -> None:
        """Delete a user with its keys and its membership in roles."""
        self._check_other(session, user)
        self._find(session, user)
        self._mutate(session)
        await self._broker.identities.delete_user(user)

    # Verifiers of passwords, which clients derive themselves

    @query(Action.DESCRIBE, own_cluster)
    def scram_verifiers(
        self, session: Session, *, users: tuple[Text, ...] | None
    ) -> dict[Text, tuple[ScramInfo, ...]]:
        """Return the kinds of verifiers of some users, or of all; users without any are left out.

        Nothing is returned that would help to guess a password.
        """
        known = self._broker.identities.users
        found = (known.get(name) for name in (known if users is None else users))
        return {
            one.name: tuple(ScramInfo(each.mechanism, each.iterations) for each in one.verifiers)
            for one in found
            if one is not None and one.verifiers and self._is_visible(session, one)
        }

    @operation(Action.ALTER, own_cluster)
    async def alter_scram_verifiers(
        self,
        session: Session,
        *,
        user: Text,
        changed: tuple[SaltedPassword, ...],
        removed: tuple[ScramMechanism, ...],
    ) -> None:
        """Replace and remove verifiers of a user, which is created if it does not exist."""
        self._check_alter(session, user)
        identities = self._broker.identities
        if removed or user in identities.users:
            known = {one.mechanism for one in self._find(session, user).verifiers}
            if not known.issuperset(removed):
                raise UnknownCredential(user)
            if known and not changed and known.issubset(removed):
                self._check_without_password(session)
        else:
            self._check_unclaimed(session, user)
        verifiers = [one.verifier() for one in changed]
        self._mutate(session)
        await identities.set_verifiers(user, verifiers, removed, tenant=session.tenant)

    # Keys

    @query(Action.DESCRIBE, named_by_owner)
    def keys(self, session: Session, *, user: Text) -> tuple[KeyView, ...]:
        """Return the keys of a user, the oldest first."""
        self._check_own(session, Action.DESCRIBE, user)
        self._find(session, user)
        return tuple(self._view_key(one) for one in self._broker.identities.keys_of(user))

    @query(Action.DESCRIBE, named_by_owner)
    def show_key(self, session: Session, *, key_id: Text) -> KeyView:
        """Return a key."""
        return self._view_key(self._find_key(session, Action.DESCRIBE, key_id))

    @operation(Action.ALTER, named_by_owner)
    async def create_key(
        self, session: Session, *, user: Text, kind: KeyKind, expires_ms: int, description: Text
    ) -> NewKeyView:
        """Make a key for a user, and return its secret this once."""
        if not self._is_own(session, user):
            self._check_alter(session, user)
        self._find(session, user)
        self._check_lifetime(session, user, expires_ms)
        self._mutate(session)
        made = await self._broker.identities.create_key(
            user,
            kind,
            expires_ms=expires_ms,
            description=description,
            created_by=_creator(session),
        )
        return NewKeyView(self._view_key(made.key), made.secret)

    @operation(Action.ALTER, named_by_owner)
    async def rotate_key(
        self, session: Session, *, key_id: Text, overlap_ms: int, expires_ms: int | None
    ) -> NewKeyView:
        """Make a key like another one, which stays valid for an overlap only."""
        if not 0 <= overlap_ms <= OVERLAP_MS_MAX:
            raise InvalidRequest(f"overlap_ms is from 0 to {OVERLAP_MS_MAX}.")
        old = self._find_key(session, Action.ALTER, key_id)
        wanted_ms = old.expires_ms if expires_ms is None else expires_ms
        self._check_lifetime(session, old.user, wanted_ms)
        self._mutate(session)
        made = await self._broker.identities.rotate_key(
            old,
            old_expires_ms=max(1, self._broker.clock.wall_ms() + overlap_ms),
            expires_ms=wanted_ms,
            created_by=_creator(session),
        )
        return NewKeyView(self._view_key(made.key), made.secret)

    @operation(Action.ALTER, named_by_owner)
    async def delete_key(self, session: Session, *, key_id: Text) -> None:
        """Delete a key, whose sessions end."""
        self._find_key(session, Action.ALTER, key_id)
        self._mutate(session)
        await self._broker.identities.delete_key(key_id)

    # Access

    def _is_visible(self, session: Session, user: UserFact) -> bool:
        """Whether a session may know of a user: one of its own tenant, or any for operators."""
        is_operator = self._authoriser.namespaces.is_operator(session)
        return is_operator or session.tenant == user.tenant

    def _is_own(self, session: Session, user: str) -> bool:
        return session.is_authenticated and session.user == user

    def _check_own(self, session: Session, action: Action, user: str) -> None:
        """Raise unless a session is that of the user, or may act on all of them."""
        if not self._is_own(session, user):
            self._check(session, action, CLUSTER)

    def _check_alter(self, session: Session, user: str) -> None:
        """Raise unless a session may change the credentials of a user.

        Those of super users are for super users only: else whoever may alter the cluster could act
        in their name.
        """
        self._check(session, Action.ALTER, CLUSTER)
        super_users = self._broker.identities.super_users
        is_above = principal_of(user) in super_users and session.principal not in super_users
        if is_above and self._authoriser.policy is not None:
            raise self._denial(session, Action.ALTER, CLUSTER)

    def _check_without_password(self, session: Session) -> None:
        """Raise if a session may not have users without passwords in its tenant.

        Such a user is whoever has a certificate or a token of its name, so an administrator of a
        tenant could draw the identities of others into it.
        """
        has_external = self._broker.settings.security.has_external_identities
        if session.tenant and has_external and self._authoriser.policy is not None:
            raise InvalidRequest(
                "A user of your tenant needs a password: without one, clients with certificates or "
                "tokens in its name would belong to your tenant. If they should, ask an operator "
                "to create the user without a password, or to remove its password."
            )

    def _check_unclaimed(self, session: Session, user: str) -> None:
        """Raise if a name that no user has is known outside the tenant of a session.

        Clients with certificates and tokens need no user, but rules or roles. A user of such a name
        would move them into the tenant in which it is created.
        """
        space, access = self._authoriser.namespaces.of(session), self._broker.access
        if space is None:
            return
        principal = principal_of(user)
        rules = access.rules(lambda rule: rule.principal == principal)
        roles = (name for name, role in access.roles.items() if principal in role.members)
        if not all(space.holds(Resource(one.kind, one.name)) for one in rules) or not all(
            space.holds_name(name) for name in roles
        ):
            raise UserExists(user)

    def _check_other(self, session: Session, user: str) -> None:
        self._check_alter(session, user)
        if self._is_own(session, user):
            raise InvalidRequest("You cannot disable or delete your own user; use another one.")

    def _check_lifetime(self, session: Session, user: str, expires_ms: int) -> None:
        if expires_ms and expires_ms <= self._broker.clock.wall_ms():
            raise InvalidCredential("The key would be expired already; give a later time.")
        is_bound = bool(session.expires_ms) and self._is_own(session, user)
        if is_bound and not 0 < expires_ms <= session.expires_ms:
            raise InvalidCredential(
                "The credentials of this session expire, and it can make only keys that expire by "
                f"then: give an expiry of at most {session.expires_ms}."
            )

    def _find(self, session: Session, user: str) -> UserFact:
        found = self._broker.identities.user(user)
        if not self._is_visible(session, found):
            raise UnknownUser(user)
        return found

    def _find_key(self, session: Session, action: Action, key_id: str) -> Key:
        """Return a key that a session may see or change; keys of others look like no keys."""
        fact = self._broker.identities.keys.get(key_id)
        if fact is None or not self._is_own(session, fact.value.user):
            self._check(session, action, CLUSTER)
        if fact is None:
            raise UnknownKey(key_id)
        key = fact.value
        if not self._is_own(session, key.user):
            self._check_visible(session, key)
            if action is Action.ALTER:
                self._check_alter(session, key.user)
        return key

    def _check_visible(self, session: Session, key: Key) -> None:
        if not self._is_visible(session, self._broker.identities.user(key.user)):
            raise UnknownKey(key.id)

    # Views

    def _view(self, fact: UserFact) -> UserView:
        return UserView(
            name=fact.name,
            tenant=fact.tenant,
            created_ms=fact.created_ms,
            is_disabled=fact.is_disabled,
            is_super=principal_of(fact.name) in self._broker.identities.super_users,
            mechanisms=tuple(one.mechanism for one in fact.verifiers),
            key_count=len(self._broker.identities.keys_of(fact.name)),
        )

    def _view_key(self, key: Key) -> KeyView:
        return KeyView(
            id=key.id,
            kind=key.kind,
            user=key.user,
            created_ms=key.created_ms,
            created_by=key.created_by,
            expires_ms=key.expires_ms,
            last_used_ms=self._broker.identities.key_uses.last_ms(key.id),
            description=key.description,
        )


def _is_by_password(session: Session) -> bool:
    """Whether a client has proved that it knows the password."""
    return not session.key_id and session.mechanism in (BASIC, *ScramMechanism)


def _creator(session: Session) -> str:
    return f"key:{session.key_id}" if session.key_id else session.principal
