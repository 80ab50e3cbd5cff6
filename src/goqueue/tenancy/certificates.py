"""Client certificates: whom they name."""

from __future__ import annotations

from goqueue.model.errors import AuthenticationFailed

SUBJECT_LENGTH_MAX = 1_024


def subject_of(certificate: bytes) -> str:
    """Return the subject of a certificate in DER, as RFC 4514 writes it: `CN=...,OU=...,O=...`."""
    # Imported here, because only client certificates need it.
    from cryptography import x509

    try:
        subject = x509.load_der_x509_certificate(certificate).subject.rfc4514_string()
    except ValueError as error:
        raise AuthenticationFailed(f"The certificate cannot be read: {error}.") from error
    if not subject or len(subject) > SUBJECT_LENGTH_MAX or not subject.isprintable():
        raise AuthenticationFailed("The certificate has no usable subject.")
    return subject
