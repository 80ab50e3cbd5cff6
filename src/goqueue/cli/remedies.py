"""Adds to errors about access what the user of a command can do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from goqueue.cli.access import VARIABLES, Access
from goqueue.client.errors import HungUp, TlsFailed
from goqueue.model.errors import (
    AccessDenied,
    AuthenticationFailed,
    AuthenticationRequired,
    GoQueueError,
    TooManyFailures,
)


@contextmanager
def remedies(access: Access) -> Iterator[None]:
    """Add to errors about access what the user of a command can do."""
    try:
        yield
    except _KINDS as error:
        remedy = _remedy(error, access)
        if remedy in str(error):  # One connection of a command was used inside another.
            raise
        raise type(error).with_text(f"{error} {remedy}") from error


_KINDS = AuthenticationRequired, AuthenticationFailed, AccessDenied, TlsFailed, HungUp


def _remedy(error: GoQueueError, access: Access) -> str:
    if isinstance(error, AuthenticationRequired):
        return _how_to_log_in()
    if isinstance(error, TooManyFailures):
        return "Others may use this address or user with a wrong password."
    if isinstance(error, AuthenticationFailed):
        return _check_login(access)
    if isinstance(error, AccessDenied):
        return "Administrators grant permissions with `goqueue acl`."
    needs_tls = isinstance(error, TlsFailed) or (isinstance(error, HungUp) and error.lacks_tls)
    return _check_tls(access) if needs_tls else _how_to_log_in()


def _how_to_log_in() -> str:
    return (
        f"Log in with --login USER, or set {VARIABLES['api_key']}; `goqueue config set-context` "
        "stores it."
    )


def _check_login(access: Access) -> str:
    if not access.has_login:
        return _how_to_log_in()
    if access.api_key:
        return "Check that the API key was neither deleted nor expired (`goqueue key list`)."
    return "Check the user, the password and --sasl-mechanism."


def _check_tls(access: Access) -> str:
    if not access.is_encrypted:
        return "Use --tls, and --ca-file FILE for an authority of your own."
    return "See --ca-file, --client-certificate and --no-tls."
