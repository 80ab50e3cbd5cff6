"""What nodes in tests know each other by."""

from __future__ import annotations

import secrets

from goqueue.wire.peers.frames import NONCE_BYTES
from goqueue.wire.peers.handshake import Credentials

SECRET = "a-secret-that-only-these-tests-know"
OTHER_SECRET = "another-secret-of-another-cluster!!"


def new_credentials(*known: str) -> Credentials:
    return Credentials(known or (SECRET,), lambda: secrets.token_bytes(NONCE_BYTES))
