"""Who signs the requests of a connection: users with access keys, and the keys of the settings.

On a listener that requires authentication, and on every listener if the settings have access keys,
each request needs a valid signature. Elsewhere only the keys of users are checked: other ids and
secrets are what a client was given to make it work without AWS, and such a client is anonymous.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from goqueue.broker.gate.authentication import ACCESS_KEY_PREFIX, Authentication, Signer
from goqueue.loop.clock import Clock
from goqueue.model.errors import AuthenticationFailed
from goqueue.model.session import ConnectedClient, Session
from goqueue.wire.carrier.credentials import first_session
from goqueue.wire.sqs import signatures
from goqueue.wire.sqs.errors import (
    IncompleteSignature,
    InvalidClientToken,
    MissingAuthentication,
    SignatureDoesNotMatch,
    SignatureNotCurrent,
    SqsError,
)
from goqueue.wire.sqs.signatures import Claim

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Request
    from goqueue.wire.carrier.routing import Operation


class SignatureAuthenticator:
    """Verifies the signature of each request."""

    __slots__ = ("_authentication", "_clock", "_configured", "_first", "_must")

    def __init__(
        self,
        authentication: Authentication,
        client: ConnectedClient,
        first: Session,
        configured: Mapping[str, str],
        clock: Clock,
    ) -> None:
        self._authentication = authentication
        self._first = first
        self._configured = configured
        self._clock = clock
        self._must = client.rules.must_authenticate or bool(configured)

    def session_of(self, request: Request, operation: Operation) -> Session:
        """Return the session of who signed a request; raise if the signature is not valid."""
        claim = self._claim_of(request)
        if claim is None:
            if self._must and not self._first.is_authenticated:
                self._authentication.missing(self._first)
                raise MissingAuthentication
            return first_session(self._authentication, self._first, is_enough=True)
        signer = self._signer(claim.key_id)
        if signer is None:
            # An id of the form of ours is that of a deleted or expired key.
            if self._must or claim.key_id.startswith(ACCESS_KEY_PREFIX):
                self._failed(claim, InvalidClientToken())
            return first_session(self._authentication, self._first, is_enough=True)
        self._verify(request, claim, signer)
        return signer.session

    def _claim_of(self, request: Request) -> Claim | None:
        try:
            return signatures.claim_of(request)
        except IncompleteSignature:
            if self._must:
                raise
            return None

    def _signer(self, key_id: str) -> Signer | None:
        secret = self._configured.get(key_id)
        if secret is not None:
            return self._authentication.configured_signer(self._first, key_id, secret)
        return self._authentication.signer(self._first, key_id)

    def _verify(self, request: Request, claim: Claim, signer: Signer) -> None:
        try:
            signatures.verify(request, claim, signer.secret, now_ms=self._clock.wall_ms())
        except SignatureNotCurrent:
            raise
        except SignatureDoesNotMatch as error:
            self._failed(claim, error)
        self._authentication.signed(signer.session)

    def _failed(self, claim: Claim, error: SqsError) -> NoReturn:
        """Count a failure, and raise it in the terms of SQS."""
        with suppress(AuthenticationFailed):
            self._authentication.signature_failed(self._first, claim.key_id[:255])
        raise error
