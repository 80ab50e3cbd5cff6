"""Authorities and certificates for tests; what they prove is worth nothing elsewhere."""

from __future__ import annotations

import ipaddress
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


class Files(NamedTuple):
    """Where a node finds what it shows, and whom it trusts."""

    certificate: Path
    key: Path
    authorities: Path

    @property
    def settings(self) -> dict[str, object]:
        return {
            "cluster.tls_certificate": self.certificate,
            "cluster.tls_key": self.key,
            "cluster.tls_authorities": self.authorities,
        }


class Authority:
    """Signs certificates."""

    def __init__(self, folder: Path, name: str = "nodes") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        self._file = folder / f"{name}-authority.pem"
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        built = _build(self._name, self._name, self._key).add_extension(constraints, critical=True)
        self._file.write_bytes(_pem(built.sign(self._key, hashes.SHA256())))

    def sign(self, name: str, *hosts: str, days: float = 1, password: bytes = b"") -> Files:
        """A certificate for a node at these hosts; written over one of the same name."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        built = (
            _build(_named(name), self._name, key, days=days)
            .add_extension(x509.SubjectAlternativeName([_host(one) for one in hosts]), False)
            .add_extension(x509.ExtendedKeyUsage(usage), False)
        )
        files = Files(self.folder / f"{name}.pem", self.folder / f"{name}.key", self._file)
        # As those do who change certificates in order: a reader sees the old file or the new one.
        _replace(files.key, _key_pem(key, password))
        _replace(files.certificate, _pem(built.sign(self._key, hashes.SHA256())))
        return files

    def revoke(self, *revoked: Files) -> Path:
        """Write a list of revoked certificates, over the last one; return where it is."""
        now = datetime.now(UTC)
        made = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._name)
            .last_update(now - timedelta(days=1))
            .next_update(now + timedelta(days=1))
        )
        for one in revoked:
            read = x509.load_pem_x509_certificate(one.certificate.read_bytes())
            entry = (
                x509.RevokedCertificateBuilder()
                .serial_number(read.serial_number)
                .revocation_date(now - timedelta(hours=1))
                .build()
            )
            made = made.add_revoked_certificate(entry)
        path = self._file.with_suffix(".crl")
        signed = made.sign(self._key, hashes.SHA256())
        _replace(path, signed.public_bytes(serialization.Encoding.PEM))
        return path


def _build(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, days: float = 1
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now + timedelta(days=days))
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey, password: bytes) -> bytes:
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password:
        encryption = serialization.BestAvailableEncryption(password)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    )


def _replace(path: Path, data: bytes) -> None:
    new = path.with_suffix(path.suffix + ".new")
    new.write_bytes(data)
    os.replace(new, path)
