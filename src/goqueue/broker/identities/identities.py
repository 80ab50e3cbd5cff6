"""Users and their credentials: looked up at each authentication, changed through the metadata."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple

import msgspec

from goqueue.broker.controller.metadata import FactLog, done
from goqueue.broker.identities.checks import Checks, Remembered
from goqueue.broker.identities.key_uses import KeyUses
from goqueue.broker.identities.tokens import Tokens
from goqueue.cluster.facts import Decision, Forget
from goqueue.cluster.identity_commands import (
    DeleteKey,
    DeleteUser,
    PutKey,
    PutSigningSecret,
    PutUser,
    RotateKey,
)
from goqueue.cluster.identity_facts import KEY_PREFIX, USER_PREFIX, KeyFact, UserFact
from goqueue.config import SecuritySettings
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise
from goqueue.model.credentials import Key, KeyKind, ScramMechanism, ScramVerifier
from goqueue.model.errors import (
    AuthenticationFailed,
    InvalidCredential,
    StalePartitionVersion,
    UnknownUser,
    UserExists,
)
from goqueue.model.session import principal_of
from goqueue.tenancy import keys, scram
from goqueue.tenancy.tokens import TokenOwner

USER_LENGTH_MAX = 255
PASSWORD_LENGTH_MIN = 8
PASSWORD_LENGTH_MAX = 1_024
SIGNING_SECRET_BYTES = 32
_ATTEMPTS = 10  # to change a user while others change it too
_RETRY_MS = 20  # for their change to arrive here; more at each attempt

_log = logging.getLogger(__name__)

Changed = Callable[[set[str], set[str]], None]  # with the names of users and the ids of keys


class NewKey(NamedTuple):
    """A key that was just made. Its secret is shown this once."""

    key: Key
    secret: str


class Identities:
    """The users of a cluster, their passwords and their keys."""

    def __init__(
        self, clock: Clock, log: FactLog, random: Random, settings: SecuritySettings
    ) -> None:
        self._clock = clock
        self._log = log
        self._random = random
        self._settings = settings
        self._checks = Checks(clock)
        self._remembered = Remembered(clock, random)
        self.tokens = Tokens(clock, self._checks, settings)
        self._own_secret = b""  # of this process, as long as the cluster has none
        name = settings.initial_admin[0]
        admin = (principal_of(name),) if name else ()
        self.super_users = frozenset((*settings.super_users, *admin))
        self.key_uses = KeyUses(clock, log)
        self.epoch = 0  # moves when a user or a key changes
        self._on_change: list[Changed] = []
        log.on_applied(self._applied)

    # Changes

    def on_change(self, changed: Changed) -> None:
        """Call `changed` whenever users or keys have changed, on any node."""
        self._on_change.append(changed)

    def _applied(self, decision: Decision) -> None:
        users, key_ids = _changed_names(decision)
        if users or key_ids:
            self.epoch += 1
            for changed in self._on_change:
                changed(users, key_ids)

    # Lookup

    @property
    def users(self) -> Mapping[str, UserFact]:
        return self._log.metadata.users

    @property
    def keys(self) -> Mapping[str, KeyFact]:
        return self._log.metadata.keys

    def user(self, name: str) -> UserFact:
        known = self.users.get(name)
        if known is None:
            raise UnknownUser(name)
        return known

    def external(self, name: str) -> UserFact | None:
        """Return the user whom a certificate or a token of a name stands for, if there is one.

        It is none with a password in a tenant: its administrators create such users, and would
        draw anybody into it.
        """
        known = self.users.get(name)
        return None if known is None or (known.tenant and known.verifiers) else known

    def verifier(self, name: str, mechanism: ScramMechanism) -> ScramVerifier | None:
        """Return what verifies the password of a user; None if it has none, or is disabled."""
        known = self.users.get(name)
        if known is None or known.is_disabled:
            return None
        return next((one for one in known.verifiers if one.mechanism is mechanism), None)

    def key(self, key_id: str, kind: KeyKind) -> Key | None:
        """Return a key that may be used now."""
        fact = self.keys.get(key_id)
        if fact is None or fact.value.kind is not kind:
            return None
        owner = self.users.get(fact.value.user)
        is_usable = owner is not None and not owner.is_disabled
        is_usable = is_usable and not fact.value.is_expired(self._clock.wall_ms())
        return fact.value if is_usable else None

    def keys_of(self, user: str) -> list[Key]:
        """Return the keys of a user, the oldest first."""
        own = [one.value for one in self._log.metadata.identity_counts.keys_of(user)]
        return sorted(own, key=lambda one: (one.created_ms, one.id))

    def access_secret(self, key_id: str) -> str | None:
        """Return the secret with which requests in the name of this key are signed."""
        signing = self._log.metadata.signing_secret
        if signing is None or self.key(key_id, KeyKind.ACCESS) is None:
            return None
        return keys.access_secret(signing.value, key_id)

    def made_up_salt_secret(self) -> bytes:
        """Return what the salts of users that do not exist are derived from, on every node.

        It is not the signing secret itself, because salts are shown to anybody.
        """
        cluster = self._log.metadata.signing_secret
        if cluster is None and not self._own_secret:
            self._own_secret = self._random.randbytes(SIGNING_SECRET_BYTES)
        secret = self._own_secret if cluster is None else cluster.value
        return hmac.digest(secret, b"salts of unknown users", "sha256")

    # Changing users

    async def create_user(self, name: str, password: str | None, *, tenant: str = "") -> UserFact:
        """Create a user; without a password it can only use keys, certificates and tokens."""
        check_user_name(name)
        if name in self.users:
            raise UserExists(name)
        verifiers = () if password is None else await self._derive(password)
        await self._signing_secret()
        fact = UserFact(name, self._clock.wall_ms(), verifiers, tenant, version=1)
        await done(self._log.request(PutUser(fact)))
        return fact

    async def set_password(self, name: str, password: str) -> None:
        """Replace the password of a user; open connections stay."""
        self.user(name)
        verifiers = await self._derive(password)
        await self._change(name, lambda user: {"verifiers": verifiers})

    async def set_verifiers(
        self,
        name: str,
        changed: Sequence[ScramVerifier],
        removed: Sequence[ScramMechanism] = (),
        *,
        tenant: str = "",
    ) -> None:
        """Change the verifiers of some mechanisms; a user that does not exist is created."""
        check_user_name(name)
        if name not in self.users and not removed:
            await self._signing_secret()
            fact = UserFact(name, self._clock.wall_ms(), tuple(changed), tenant, version=1)
            await done(self._log.request(PutUser(fact)))
            return
        gone = {*removed, *(one.mechanism for one in changed)}

        def change(user: UserFact) -> dict[str, Any]:
            kept = [one for one in user.verifiers if one.mechanism not in gone]
            return {"verifiers": (*kept, *changed)}

        await self._change(name, change)

    async def disable_user(self, name: str, *, is_disabled: bool) -> None:
        """Refuse, or accept again, all credentials of a user."""
        await self._change(name, lambda user: {"is_disabled": is_disabled})

    async def delete_user(self, name: str, *, purged: str = "") -> None:
        """Delete a user; with `purged`, only as a part of the deletion of that tenant."""
        await done(self._log.request(DeleteUser(name, purged)))

    async def _change(self, name: str, change: Callable[[UserFact], dict[str, Any]]) -> None:
        """Change a user, again if another request has changed it in the meantime."""
        for attempt in range(_ATTEMPTS):
            known = self.user(name)
            fact = msgspec.structs.replace(known, version=known.version + 1, **change(known))
            try:
                await done(self._log.request(PutUser(fact)))
            except StalePartitionVersion:
                if attempt == _ATTEMPTS - 1:
                    raise
                await self._pause(_RETRY_MS * (attempt + 1))
            else:
                return

    def _pause(self, wait_ms: int) -> Promise[None]:
        over: Promise[None] = Promise()
        self._clock.call_later(wait_ms, lambda: over.resolve(None))
        return over

    # Keys

    async def create_key(
        self,
        user: str,
        kind: KeyKind,
        *,
        expires_ms: int = 0,
        description: str = "",
        created_by: str = "",
    ) -> NewKey:
        """Make a key for a user."""
        self.user(user)
        made = await self._make_key(user, kind, expires_ms, description, created_by)
        await done(self._log.request(PutKey(KeyFact(made.key))))
        return made

    async def rotate_key(
        self, old: Key, *, old_expires_ms: int, expires_ms: int, created_by: str = ""
    ) -> NewKey:
        """Make a key like an old one, which then expires at a time."""
        made = await self._make_key(old.user, old.kind, expires_ms, old.description, created_by)
        await done(self._log.request(RotateKey(old.id, old_expires_ms, KeyFact(made.key))))
        return made

    async def _make_key(
        self, user: str, kind: KeyKind, expires_ms: int, description: str, created_by: str
    ) -> NewKey:
        digest = b""
        if kind is KeyKind.API:
            random = self._random.randbytes(keys.ID_BYTES + keys.SECRET_BYTES)
            key_id, secret, digest = keys.new_api_key(random)
        else:
            key_id = keys.new_access_key_id(self._random.randbytes(keys.ID_BYTES))
            secret = keys.access_secret(await self._signing_secret(), key_id)
        key = Key(
            id=key_id,
            kind=kind,
            user=user,
            digest=digest,
            created_ms=self._clock.wall_ms(),
            expires_ms=expires_ms,
            description=description,
            created_by=created_by,
        )
        return NewKey(key, secret)

    async def delete_key(self, key_id: str) -> None:
        await done(self._log.request(DeleteKey(key_id)))

    async def _signing_secret(self) -> bytes:
        if self._log.metadata.signing_secret is None:
            made = self._random.randbytes(SIGNING_SECRET_BYTES)
            await done(self._log.request(PutSigningSecret(made)))
        known = self._log.metadata.signing_secret
        assert known is not None
        return known.value

    # The first user

    async def create_initial_admin(self) -> None:
        """Create the administrator of the settings, if the cluster has no users yet."""
        name, password = self._settings.initial_admin
        if not name or self.users:
            return
        try:
            await self.create_user(name, password)
        except UserExists:
            return  # Another node was faster.
        _log.info("created the administrator %r", name)

    # Passwords

    async def _derive(self, password: str) -> tuple[ScramVerifier, ...]:
        """Derive the verifiers of a password, in a thread."""
        if not PASSWORD_LENGTH_MIN <= len(password) <= PASSWORD_LENGTH_MAX:
            raise InvalidCredential(
                f"A password has {PASSWORD_LENGTH_MIN} to {PASSWORD_LENGTH_MAX} characters."
            )
        if password.startswith(keys.API_PREFIX):
            raise InvalidCredential(f"A password must not start with {keys.API_PREFIX}.")
        salts = [self._random.randbytes(scram.SALT_BYTES) for _ in ScramMechanism]
        return await self._checks.in_thread(
            lambda: tuple(
                scram.make_verifier(one, password, salt)
                for one, salt in zip(ScramMechanism, salts, strict=True)
            )
        )

    async def check_password(
        self, name: str, password: str, *, admit: Callable[[], None] = lambda: None
    ) -> bool:
        """Check a password in a thread; an unknown user takes as long as a known one.

        `admit` is called when the check gets its turn, and may raise.
        """
        digest = self._remembered.digest(name, password)
        if self._remembered.has(digest, self._any_verifier(name)):
            return True
        await self._checks.enter()
        try:
            admit()
            verifier = self._any_verifier(name)
            if verifier is not None and self._remembered.has(digest, verifier):
                return True  # Another client has presented the same password.
            is_right = await self._checks.in_thread(partial(_is_password, verifier, password))
            if is_right:
                self._remembered.add(digest, verifier)
            return is_right
        finally:
            self._checks.leave()

    async def check_token(self, token: str) -> TokenOwner:
        """Return whom a token of another issuer is for; raise unless it is valid."""
        owner = await self.tokens.check(token, self._remembered)
        known = self.external(owner.user)
        if known is not None and known.is_disabled:
            raise AuthenticationFailed
        return owner

    def _any_verifier(self, name: str) -> ScramVerifier | None:
        """Return the verifier that is the cheapest to compare a password with."""
        return self.verifier(name, ScramMechanism.SHA_256) or self.verifier(
            name, ScramMechanism.SHA_512
        )


def _changed_names(decision: Decision) -> tuple[set[str], set[str]]:
    """Return the names of users and the ids of keys that a decision is about."""
    users, key_ids = set(), set()
    for change in decision:
        if isinstance(change, UserFact):
            users.add(change.name)
        elif isinstance(change, KeyFact):
            key_ids.add(change.value.id)
        elif isinstance(change, Forget) and change.key.startswith(USER_PREFIX):
            users.add(change.key.removeprefix(USER_PREFIX).decode())
        elif isinstance(change, Forget) and change.key.startswith(KEY_PREFIX):
            key_ids.add(change.key.removeprefix(KEY_PREFIX).decode())
    return users, key_ids


_NO_VERIFIER = ScramVerifier(ScramMechanism.SHA_256, b"no such user", 4_096, b"", b"")


def _is_password(verifier: ScramVerifier | None, password: str) -> bool:
    if verifier is None or len(password) > PASSWORD_LENGTH_MAX:
        scram.is_password(_NO_VERIFIER, password[:PASSWORD_LENGTH_MAX])
        return False
    return scram.is_password(verifier, password)


_NAMES_OF_OTHERS = ("ANONYMOUS", "*")  # of who has not authenticated, and of everybody in rules


def check_user_name(name: str) -> None:
    """Raise if no user can have this name."""
    is_plain = name.isprintable() and name.strip() == name and not any(c in name for c in "/,:")
    if not 1 <= len(name) <= USER_LENGTH_MAX or not is_plain or name in _NAMES_OF_OTHERS:
        raise InvalidCredential(
            f"{name[:60]!r} cannot be a user name: it needs 1 to {USER_LENGTH_MAX} printable "
            "characters without `/`, `,`, `:` and spaces at the ends, and is not ANONYMOUS or *."
        )
