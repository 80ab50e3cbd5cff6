"""Tokens of another issuer: verified with its public keys, which are loaded in a thread.

The keys are loaded at the start, again after an hour of use, and when a token is signed with a key
that is not known, but then at most once a minute. While they are loaded, the ones known before are
used; if the issuer cannot be reached, they stay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from goqueue.broker.identities.checks import Checks, Remembered
from goqueue.config import SecuritySettings
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise
from goqueue.model.errors import AuthenticationFailed
from goqueue.tenancy.tokens import (
    TokenKeys,
    TokenOwner,
    TokenRules,
    UnknownTokenKey,
    is_token,
    read_keys,
    subject_of,
    verify,
)

UNKNOWN_KEY_MS = 60_000  # between loads because of unknown keys, which anybody can cause
RETRY_MS = 10_000  # after a load that has failed

_log = logging.getLogger(__name__)

LoadKeys = Callable[[], bytes]  # blocks; returns a JSON Web Key Set


class TokensUnavailable(AuthenticationFailed):
    """There are no keys to verify a token with, which is no failure of the client."""


class Tokens:
    """Verifies tokens."""

    def __init__(self, clock: Clock, checks: Checks, settings: SecuritySettings) -> None:
        self._clock = clock
        self._checks = checks
        self._refresh_ms = settings.oauth_jwks_refresh_ms
        self._rules = TokenRules(
            issuer=settings.oauth_issuer,
            audience=settings.oauth_audience,
            subject_claim=settings.oauth_subject_claim,
            scope_claim=settings.oauth_scope_claim,
            scopes=settings.oauth_scopes,
            skew_ms=settings.oauth_clock_skew_ms,
        )
        self._load: LoadKeys | None = None
        self._keys: TokenKeys | None = None
        self._generation = 0
        self._loading: Promise[None] | None = None
        self._loaded_ms = 0  # when the last load began
        self._has_failed = False

    def load_with(self, load: LoadKeys) -> None:
        """Accept tokens from now on, with these keys, and begin to load them."""
        self._load = load
        self._start_loading()

    def accepts(self, text: str) -> bool:
        """Whether a text may be a token that this node can verify."""
        return self._load is not None and is_token(text)

    def subject_of(self, token: str) -> str:
        """Return whom a token claims to be for, which is not verified."""
        return subject_of(token, self._rules)

    async def check(self, token: str, remembered: Remembered) -> TokenOwner:
        """Return whom a token is for; raise unless it is valid."""
        await self._refresh()
        digest = remembered.digest("token", token)
        owner = remembered.get(digest, self._generation)
        if isinstance(owner, TokenOwner) and self._clock.wall_ms() < owner.expires_ms:
            return owner
        try:
            owner = await self._verify(token)
        except UnknownTokenKey:
            if self._clock.now_ms() - self._loaded_ms < UNKNOWN_KEY_MS:
                raise
            await self._start_loading()
            owner = await self._verify(token)
        remembered.add(digest, self._generation, owner)
        return owner

    async def _verify(self, token: str) -> TokenOwner:
        if self._keys is None:
            raise TokensUnavailable("Tokens cannot be verified now; try again later.")
        await self._checks.enter()
        try:
            keys, now_ms = self._keys, self._clock.wall_ms()
            return await self._checks.in_thread(partial(verify, token, keys, self._rules, now_ms))
        finally:
            self._checks.leave()

    # Keys

    async def _refresh(self) -> None:
        """Load keys that are old; wait for them only if there are none."""
        age_ms = self._clock.now_ms() - self._loaded_ms
        if age_ms >= (RETRY_MS if self._has_failed else self._refresh_ms):
            self._start_loading()
        if self._keys is None and self._loading is not None:
            await self._loading

    def _start_loading(self) -> Promise[None]:
        """Load the keys, unless that is under way; return what resolves when it is over."""
        if self._loading is None:
            assert self._load is not None
            loading: Promise[None] = Promise()
            self._loading, self._loaded_ms = loading, self._clock.now_ms()
            load = self._load
            self._clock.run_blocking(lambda: read_keys(load()), self._note_loaded)
        return self._loading

    def _note_loaded(self, keys: TokenKeys | None, error: Exception | None) -> None:
        loading, self._loading = self._loading, None
        self._has_failed = error is not None
        if error is not None:
            _log.warning("the keys of tokens cannot be loaded: %s", error)
        else:
            self._keys = keys
            self._generation += 1
        assert loading is not None
        loading.resolve(None)
