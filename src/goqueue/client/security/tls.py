"""TLS for connections of a client, and errors that name what to change.

`ssl` is imported on first use: most clients on one machine do without.
"""

from __future__ import annotations

import os
from functools import lru_cache
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

from goqueue.client.errors import TlsFailed
from goqueue.client.security.settings import TlsSettings
from goqueue.model.errors import InvalidRequest

if TYPE_CHECKING:
    import ssl

# The first bytes of an alert record: what a TLS listener answers to a client without TLS.
ALERT = b"\x15\x03"
_CONTEXTS_KEPT = 8
_Versions = tuple[tuple[int, int], ...]  # modification time and size of each file


def context_of(settings: TlsSettings) -> ssl.SSLContext:
    """Return what connections are encrypted with; made again when a file has changed."""
    return _context(settings, _versions(settings))


@lru_cache(_CONTEXTS_KEPT)
def _context(settings: TlsSettings, versions: _Versions) -> ssl.SSLContext:
    import ssl

    try:
        context = ssl.create_default_context(
            cafile=settings.ca_file or None, cadata=settings.ca_text or None
        )
    except (OSError, ValueError) as error:
        raise InvalidRequest(
            f"{settings.ca_file or 'The text of the authorities'} has no certificates in PEM: "
            f"{_reason(error)}."
        ) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = settings.checks_host
    if settings.certificate_file:
        _load_certificate(context, settings, settings.certificate_file)
    elif settings.certificate_text:
        # OpenSSL takes certificates from files only; this one nobody else can read.
        with NamedTemporaryFile("w", suffix=".pem", encoding="utf-8") as file:
            file.write(settings.certificate_text)
            file.flush()
            _load_certificate(context, settings, file.name)
    return context


def _load_certificate(context: ssl.SSLContext, settings: TlsSettings, file: str) -> None:
    # An empty password fails; without one, OpenSSL would ask on the terminal.
    password = settings.key_password
    try:
        context.load_cert_chain(file, settings.key_file or None, lambda: password)
    except (OSError, ValueError) as error:
        raise InvalidRequest(
            f"The certificate {settings.certificate_file} and its key cannot be used: "
            f"{_reason(error)}. Both must be in PEM and belong together; an encrypted key needs "
            "its password."
        ) from error


def _versions(settings: TlsSettings) -> _Versions:
    files = (settings.ca_file, settings.certificate_file, settings.key_file)
    return tuple(_version(file) for file in files if file)


def _version(file: str) -> tuple[int, int]:
    try:
        found = os.stat(file)
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}.") from error
    return found.st_mtime_ns, found.st_size


def permanent_failure(error: BaseException, address: object) -> TlsFailed | None:
    """Return the error of a handshake that fails every time; None if a retry may succeed."""
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsFailed(_untrusted(error, address))
    # A peer that hangs up may be restarting; one that sends an alert means it.
    if not isinstance(error, ssl.SSLError) or isinstance(error, _passing_kinds()):
        return None
    reason = (error.reason or "").lower()
    if "wrong_version_number" in reason or "http_request" in reason:
        return TlsFailed(
            f"{address} does not speak TLS; connect without it, or to the TLS listener."
        )
    if "certificate_required" in reason or "handshake_failure" in reason:
        return TlsFailed(
            f"{address} refused the handshake ({_words(error)}); it may require a certificate of "
            "the client."
        )
    return TlsFailed(f"The TLS handshake with {address} failed ({_words(error)}).")


def _passing_kinds() -> tuple[type[Exception], ...]:
    import ssl

    return ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLWantReadError, ssl.SSLSyscallError


def _untrusted(error: ssl.SSLCertVerificationError, address: object) -> str:
    reason = getattr(error, "verify_message", "") or _words(error)
    if "hostname mismatch" in reason.lower() or "ip address mismatch" in reason.lower():
        return (
            f"The certificate of {address} is for another name ({reason.rstrip('.')}); connect by "
            "the name in the certificate."
        )
    if "expired" in reason.lower():
        return f"The certificate of {address} is not valid any more ({reason})."
    return (
        f"The certificate of {address} is not trusted ({reason}); give the certificate of its "
        "authority (ca_file)."
    )


def _words(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).lower().replace("_", " ")


def _reason(error: Exception) -> str:
    text = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    return str(text).lower().replace("_", " ").rstrip(".")
