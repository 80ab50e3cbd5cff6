"""Authenticates a connection with SASL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.client.errors import (
    ILLEGAL_SASL_STATE,
    NONE,
    SASL_AUTHENTICATION_FAILED,
    UNSUPPORTED_SASL_MECHANISM,
    SecretRefused,
    check,
)
from goqueue.client.security.mechanisms import begin
from goqueue.client.security.settings import SaslSettings
from goqueue.model.errors import AuthenticationFailed, TooManyFailures
from goqueue.wire.kafka.messages import sasl_authenticate, sasl_handshake

if TYPE_CHECKING:
    from goqueue.client.connection import Connection


def log_in(connection: Connection, settings: SaslSettings) -> int:
    """Authenticate, and return for how many milliseconds that is valid; 0 is for ever."""
    _choose(connection, settings.mechanism)
    mechanism = begin(settings)
    message: bytes | None = mechanism.first()
    lifetime_ms = 0
    while message is not None:
        request = sasl_authenticate.SaslAuthenticateRequest(message)
        response = connection.call(sasl_authenticate, request)
        if response.error_code == SASL_AUTHENTICATION_FAILED:
            raise _refusal(connection.address, settings, response.error_message or "")
        check(response.error_code, response.error_message)
        lifetime_ms = response.session_lifetime_ms
        message = mechanism.answer(response.auth_bytes)
    return lifetime_ms


def _choose(connection: Connection, mechanism: str) -> None:
    address = connection.address
    if not connection.offers(sasl_handshake) or not connection.offers(sasl_authenticate):
        raise AuthenticationFailed(
            f"{address} takes no credentials; connect without, or to a listener that does."
        )
    response = connection.call(sasl_handshake, sasl_handshake.SaslHandshakeRequest(mechanism))
    if response.error_code == NONE:
        return
    offered = ", ".join(response.mechanisms)
    if response.error_code == UNSUPPORTED_SASL_MECHANISM and offered:
        raise AuthenticationFailed(
            f"{address} does not accept {mechanism}; choose one of its mechanisms: {offered}."
        )
    if response.error_code in (UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE):
        raise AuthenticationFailed(
            f"{address} takes no credentials; connect without, or to a listener that does."
        )
    check(response.error_code)


def _refusal(address: object, settings: SaslSettings, reason: str) -> AuthenticationFailed:
    whose = f"user {settings.username!r}" if settings.username else "this token"
    text = (
        f"{address} refused the credentials of {whose} with {settings.mechanism}: "
        f"{reason or 'no reason given'}"
    )
    if reason.startswith(TooManyFailures.beginning):
        return TooManyFailures.with_text(text)
    is_rotated = callable(settings.password) or callable(settings.token)
    return SecretRefused(text) if is_rotated else AuthenticationFailed(text)
