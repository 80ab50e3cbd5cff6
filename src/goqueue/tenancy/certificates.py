"""Client certificates: whom they name."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

from goqueue.model.credentials import PrincipalRule
from goqueue.model.errors import AuthenticationFailed

SUBJECT_LENGTH_MAX = 1_024
PATTERNS_MAX = 100
_REFERENCE = re.compile(r"\\(.)|\$(\d+)", re.DOTALL)


class ClientCertificate(NamedTuple):
    """What of a certificate counts: its subject, and until when it is valid."""

    subject: str  # as RFC 4514 writes it: `CN=...,OU=...,O=...`
    expires_ms: int


def read_certificate(certificate: bytes) -> ClientCertificate:
    """Read a certificate in DER."""
    # Imported here, because only client certificates need it.
    from cryptography import x509

    try:
        read = x509.load_der_x509_certificate(certificate)
        subject = read.subject.rfc4514_string()
        expires_ms = int(read.not_valid_after_utc.timestamp() * 1_000)
    except ValueError as error:
        raise AuthenticationFailed(f"The certificate cannot be read: {error}.") from error
    if not subject or len(subject) > SUBJECT_LENGTH_MAX or not subject.isprintable():
        raise AuthenticationFailed("The certificate has no usable subject.")
    return ClientCertificate(subject, expires_ms)


def name_of(subject: str, rules: tuple[PrincipalRule, ...]) -> str | None:
    """Return the name that the first matching rule gives to a subject; None if none matches.

    Without rules the name is the subject.
    """
    if not rules:
        return subject
    for rule in rules:
        name = _apply(rule, subject)
        if name is not None:
            return name
    return None


def _apply(rule: PrincipalRule, subject: str) -> str | None:
    """Return the name for a subject; None if the rule does not match all of it."""
    if rule.is_default:
        return subject
    match = _compiled(rule.pattern).fullmatch(subject)
    if match is None:
        return None
    name = _REFERENCE.sub(lambda found: _expanded(found, match), rule.replacement)
    return {"L": name.lower(), "U": name.upper()}.get(rule.case, name)


@lru_cache(maxsize=PATTERNS_MAX)
def _compiled(pattern: str) -> Any:
    # Imported here, because only client certificates need it. Subjects are chosen by clients, so
    # the time to match them must be linear.
    import re2

    return re2.compile(pattern)


def _expanded(found: re.Match[str], match: Any) -> str:
    """The text of a group, or an escaped character; an unknown group stands for itself."""
    if found[1] is not None:
        return found[1]
    number = int(found[2])
    if number > match.re.groups:
        return found[0]
    return match.group(number) or ""
