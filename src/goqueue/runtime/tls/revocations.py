"""Certificates that their authorities have revoked, as lists in files say.

OpenSSL checks the lists during handshakes: each authority that signs certificates needs one that is
not out of date. For connections that are open when a list changes, it is checked here.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from pathlib import Path

from goqueue.model.errors import InvalidSettings

_PEM = re.compile(rb"-----BEGIN X509 CRL-----.+?-----END X509 CRL-----", re.DOTALL)

_Revoked = tuple[bytes, int]  # the issuer, in DER, and the serial number


class Revocations:
    """The certificates that some lists name."""

    def __init__(self, revoked: frozenset[_Revoked] = frozenset()) -> None:
        self._revoked = revoked

    def has(self, certificate: bytes) -> bool:
        """Whether a certificate, in DER, is revoked."""
        if not self._revoked or not certificate:
            return False
        # Imported here, because only lists need it.
        from cryptography import x509

        read = x509.load_der_x509_certificate(certificate)
        return (read.issuer.public_bytes(), read.serial_number) in self._revoked

    def beyond(self, known: Revocations) -> Revocations:
        """Return those that are not known yet: authorities issue the same list again and again."""
        return Revocations(self._revoked - known._revoked)

    def __bool__(self) -> bool:
        return bool(self._revoked)


NONE_REVOKED = Revocations()


def read_revocations(path: Path | None) -> Revocations:
    """Read the lists of a file, in PEM; raise ValueError if there are none."""
    if path is None:
        return NONE_REVOKED
    from cryptography import x509

    lists = [x509.load_pem_x509_crl(one) for one in _PEM.findall(path.read_bytes())]
    if not lists:
        raise ValueError(f"{path} holds no revocation lists in PEM")
    return Revocations(
        frozenset((one.issuer.public_bytes(), each.serial_number) for one in lists for each in one)
    )


def check_revocations(context: ssl.SSLContext, path: Path | None) -> None:
    """Refuse certificates that the lists of a file name, and those whose authority has no list."""
    if path is not None:
        context.load_verify_locations(cafile=path)
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF


def check_lists(lists: Mapping[str, Path]) -> None:
    """Raise InvalidSettings if a file of revocation lists cannot be used; paths are by setting."""
    problems = []
    for setting, path in lists.items():
        try:
            read_revocations(path)
        except (OSError, ValueError) as error:
            problems.append(f"{setting}: {path} cannot be used: {error}")
    if problems:
        raise InvalidSettings(problems)
