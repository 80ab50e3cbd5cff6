"""Certificates and keys in files: their problems, and their changes while a node runs."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from goqueue.model.errors import InvalidSettings

T = TypeVar("T")

_Signature = tuple[tuple[int, int, int], ...]

_log = logging.getLogger(__name__)


class WatchedFiles(Generic[T]):
    """What is loaded from files, loaded again after one of them has changed.

    Files that cannot be used leave the previous value in place, so an exchange of several files
    need not be atomic.
    """

    def __init__(self, files: Mapping[str, Path], load: Callable[[], T], what: str) -> None:
        """`files` are paths by setting; `what` they contain is named in the log."""
        self._files = tuple(files.values())
        self._load = load
        self._what = what
        self._signature = self._sign()
        self._loaded = load()

    def current(self) -> T:
        """Return the value of the files as they are now, or as they last could be used."""
        signature = self._sign()
        if signature != self._signature:
            self._signature = signature  # The same files are not loaded twice, even if it fails.
            self._reload()
        return self._loaded

    def _reload(self) -> None:
        try:
            self._loaded = self._load()
        except (OSError, ValueError) as error:
            _log.warning(
                "%s: the new certificate cannot be used, so the old one is kept: %s",
                self._what,
                reason_of(error),
            )
        else:
            _log.info(
                "%s: the certificate has changed; new connections use the new one", self._what
            )

    def _sign(self) -> _Signature:
        """A value that changes when one of the files changes."""
        try:
            found = [os.stat(path) for path in self._files]
        except OSError:
            return ()
        return tuple((one.st_mtime_ns, one.st_size, one.st_ino) for one in found)


def check_files(own: Mapping[str, Path], authorities: Mapping[str, Path]) -> None:
    """Raise InvalidSettings with all problems of a certificate, its key and the authorities.

    `own` has the certificate and its key, in this order; paths are by setting.
    """
    problems = _unreadable(own) or _problem_of_pair(*own.items())
    problems += _unreadable(authorities) or _problems_of_authorities(authorities)
    if problems:
        raise InvalidSettings(problems)


def load_pair(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Use a certificate and its key, which must not have a password."""
    context.load_cert_chain(certificate, key, password=_no_password)


def _unreadable(files: Mapping[str, Path]) -> list[str]:
    problems = []
    for setting, path in files.items():
        try:
            path.read_bytes()
        except OSError as error:
            problems.append(f"{setting}: {path} cannot be read: {error.strerror}")
    return problems


def _problem_of_pair(certificate: tuple[str, Path], key: tuple[str, Path]) -> list[str]:
    (setting, path), (_, key_path) = certificate, key
    try:
        load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), path, key_path)
    except ssl.SSLError as error:
        return [
            f"{setting}: {path} and {key_path} are not a certificate and its key in PEM, without "
            f"a password: {reason_of(error)}"
        ]
    return []


def _problems_of_authorities(authorities: Mapping[str, Path]) -> list[str]:
    problems = []
    for setting, path in authorities.items():
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=path)
        except ssl.SSLError as error:
            problems.append(f"{setting}: {path} holds no certificates in PEM: {reason_of(error)}")
    return problems


# The OpenSSL error if the other end does not use TLS.
_PLAIN = ("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")


def reason_of(error: BaseException) -> str:
    """Why a connection could not be secured, with a hint at the cause."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError | ConnectionResetError | BrokenPipeError):
        return "it ended the connection during the TLS handshake; does it use TLS?"
    if isinstance(error, ssl.SSLError):
        if error.reason in _PLAIN:
            return "it does not use TLS, as the nodes of this cluster do"
        if error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
            return "it has no certificate, which this listener requires"
        if error.reason and "ALERT" in error.reason:
            return f"it refuses this node's certificate: {_spoken(error.reason)}"
        return _spoken(error.reason) if error.reason else str(error)
    if isinstance(error, TimeoutError) and not str(error):
        return "it did not respond in time"
    return str(error)


def _spoken(reason: str) -> str:
    return reason.lower().replace("_", " ")


def _no_password() -> str:
    """An empty password, because OpenSSL would prompt for one at the terminal."""
    return ""
