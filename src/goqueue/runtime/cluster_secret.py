"""Reads the secret of a cluster, and generates new ones."""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import secrets
import stat
from pathlib import Path

from goqueue.config import ClusterSettings
from goqueue.config.kinds import Secret
from goqueue.model.errors import InvalidSettings
from goqueue.wire.peers.frames import NONCE_BYTES
from goqueue.wire.peers.handshake import SECRETS_MAX, Credentials

FILE_BYTES_MAX = 8_192
SECRET_BYTES = 32

_log = logging.getLogger(__name__)

_MISSING = (
    "cluster.secret_file: nodes must authenticate by a secret or by certificates. Create a secret "
    "once with `goqueue cluster secret --file FILE`, copy that file to every node, and start each "
    "with --secret-file FILE; or set cluster.tls_certificate, cluster.tls_key and "
    "cluster.tls_authorities"
)


def credentials_of(settings: ClusterSettings) -> Credentials | None:
    """The credentials by which nodes authenticate each other; None if only certificates are used.

    Raises InvalidSettings if neither is given, or the file cannot be used.
    """
    found = _secrets_of(settings)
    if found:
        return Credentials(found, lambda: secrets.token_bytes(NONCE_BYTES))
    if settings.has_tls:
        return None
    raise InvalidSettings([_MISSING])


def has_credentials(settings: ClusterSettings) -> bool:
    """Whether the settings contain a secret or certificates."""
    return bool(settings.secret) or settings.secret_file is not None or settings.has_tls


def new_secret() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(SECRET_BYTES)).decode().rstrip("=")


def make_secret_file(path: Path) -> bool:
    """Write a new secret to a file that only its owner can read; False if the file exists.

    The file appears atomically, and of several concurrent calls exactly one creates it.
    """
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    with contextlib.suppress(FileNotFoundError):
        new.unlink()
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(new_secret() + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(new, path)
    except FileExistsError:
        return False
    finally:
        new.unlink()
    return True


def _secrets_of(settings: ClusterSettings) -> list[str]:
    path = settings.secret_file
    if path is None:
        return [one for one in (settings.secret, settings.secret_previous) if one]
    try:
        with path.open("rb") as file:
            text = file.read(FILE_BYTES_MAX + 1).decode()
            mode = os.fstat(file.fileno()).st_mode
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InvalidSettings([f"cluster.secret_file: {path} cannot be read: {reason}"]) from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        _log.warning("users other than its owner can access %s; run chmod 600 on it", path)
    found = [line.strip() for line in text.splitlines()]
    found = [line for line in found if line and not line.startswith("#")]
    if not 1 <= len(found) <= SECRETS_MAX or len(text) > FILE_BYTES_MAX:
        raise InvalidSettings(
            [
                f"cluster.secret_file: {path} must have one line with the secret, or two during a "
                "rotation: the new secret, then the old one"
            ]
        )
    try:
        return [Secret().read(one) for one in found]
    except ValueError as error:
        raise InvalidSettings([f"cluster.secret_file: {path}: {error}"]) from None
