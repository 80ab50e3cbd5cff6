"""SCRAM (RFC 5802): passwords as verifiers, and the server's side of a conversation.

A verifier can check a password, or the proof of a client that knows it, but does not reveal it. The
check of a proof costs two hashes; only the client derives the salted password.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from enum import Enum, auto

from goqueue.model.credentials import ITERATIONS_MIN, ScramMechanism, ScramVerifier
from goqueue.model.errors import AuthenticationFailed, MalformedRequest

SALT_BYTES = 16
NONCE_BYTES = 18
MESSAGE_BYTES_MAX = 4_096

Find = Callable[[str], ScramVerifier | None]  # the verifier of a user, for one mechanism


def make_verifier(mechanism: ScramMechanism, password: str, salt: bytes) -> ScramVerifier:
    """Derive a verifier from a password; this takes some milliseconds."""
    salted = salted_password(mechanism, password, salt, ITERATIONS_MIN)
    return verifier_of(mechanism, salted, salt, ITERATIONS_MIN)


def salted_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> bytes:
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def verifier_of(
    mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
) -> ScramVerifier:
    """Return the verifier for a salted password, as Kafka's tools send it."""
    name = mechanism.hash_name
    client_key = hmac.digest(salted, b"Client Key", name)
    stored_key = hashlib.new(name, client_key).digest()
    server_key = hmac.digest(salted, b"Server Key", name)
    return ScramVerifier(mechanism, salt, iterations, stored_key, server_key)


def is_password(verifier: ScramVerifier, password: str) -> bool:
    """Check a password that a client has sent; this takes some milliseconds."""
    salted = salted_password(verifier.mechanism, password, verifier.salt, verifier.iterations)
    made = verifier_of(verifier.mechanism, salted, verifier.salt, verifier.iterations)
    return hmac.compare_digest(made.stored_key, verifier.stored_key)


class _Step(Enum):
    FIRST = auto()
    PROOF = auto()
    DONE = auto()


class ScramConversation:
    """The server's side: two messages of the client, two answers.

    A user that does not exist gets a made-up salt, the same every time, so that the answers do not
    reveal which users exist.
    """

    def __init__(
        self, mechanism: ScramMechanism, find: Find, *, nonce: bytes, salt_secret: bytes
    ) -> None:
        self._mechanism = mechanism
        self._find = find
        self._nonce = base64.b64encode(nonce).decode("ascii")
        self._salt_secret = salt_secret
        self._step = _Step.FIRST
        self._signed = ""
        self._binding = ""
        self._verifier: ScramVerifier | None = None
        self.user = ""
        self.name = str(mechanism)

    @property
    def is_done(self) -> bool:
        """Whether the client has proved that it knows the password."""
        return self._step is _Step.DONE

    def answer(self, message: bytes) -> bytes:
        """Return the answer to a message; raise if it is malformed, or the proof is wrong."""
        if len(message) > MESSAGE_BYTES_MAX:
            raise MalformedRequest("A SCRAM message is too long.")
        try:
            text = message.decode()
        except UnicodeDecodeError:
            raise MalformedRequest("A SCRAM message is not UTF-8.") from None
        if self._step is _Step.FIRST:
            return self._begin(text).encode()
        if self._step is _Step.PROOF:
            return self._finish(text).encode()
        raise MalformedRequest("The SCRAM conversation is over.")

    def _begin(self, text: str) -> str:
        flag, _, rest = text.partition(",")
        identity, _, bare = rest.partition(",")
        if flag not in ("n", "y") or (identity and not identity.startswith("a=")):
            raise MalformedRequest("The SCRAM message needs n,, or y,, at its start.")
        fields = _fields(bare)
        if "n" not in fields or not fields.get("r"):
            raise MalformedRequest("The SCRAM message has no user name or no nonce.")
        self.user = fields["n"].replace("=2C", ",").replace("=3D", "=")
        self._verifier = self._find(self.user)
        salt, iterations = self._salt_of(self.user)
        self._nonce = fields["r"] + self._nonce
        self._binding = f"{flag},{identity},"
        answer = f"r={self._nonce},s={base64.b64encode(salt).decode('ascii')},i={iterations}"
        self._signed = f"{bare},{answer}"
        self._step = _Step.PROOF
        return answer

    def _salt_of(self, user: str) -> tuple[bytes, int]:
        if self._verifier is not None:
            return self._verifier.salt, self._verifier.iterations
        made_up = hmac.digest(self._salt_secret, user.encode(), "sha256")
        return made_up[:SALT_BYTES], ITERATIONS_MIN

    def _finish(self, text: str) -> str:
        without_proof, separator, proof = text.rpartition(",p=")
        fields = _fields(without_proof)
        if not separator or "c" not in fields or "r" not in fields:
            raise MalformedRequest("The SCRAM message needs a channel binding, a nonce, a proof.")
        if not hmac.compare_digest(fields["r"].encode(), self._nonce.encode()):
            raise AuthenticationFailed
        if _decoded(fields["c"]) != self._binding.encode():
            raise AuthenticationFailed
        signed = f"{self._signed},{without_proof}".encode()
        verifier, name = self._verifier, self._mechanism.hash_name
        if verifier is None:
            raise AuthenticationFailed
        signature = hmac.digest(verifier.stored_key, signed, name)
        client_key = bytes(a ^ b for a, b in zip(_decoded(proof), signature, strict=False))
        is_right = hmac.compare_digest(hashlib.new(name, client_key).digest(), verifier.stored_key)
        if not is_right:
            raise AuthenticationFailed
        self._step = _Step.DONE
        server = hmac.digest(verifier.server_key, signed, name)
        return f"v={base64.b64encode(server).decode('ascii')}"


def _fields(text: str) -> dict[str, str]:
    """Split `n=user,r=nonce`; a repeated field or an extension that must be known is refused."""
    fields: dict[str, str] = {}
    for part in text.split(","):
        name, separator, value = part.partition("=")
        if not separator or len(name) != 1 or name in fields or name == "m":
            raise MalformedRequest("A SCRAM message cannot be read.")
        fields[name] = value
    return fields


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise MalformedRequest("A SCRAM message has a field that is not base64.") from None
