"""SCRAM (RFC 5802): passwords as verifiers, and the server's side of a conversation.

A verifier can check a password, or the proof of a client that knows it, but does not reveal it. The
check of a proof costs two hashes; only the client derives the salted password.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from enum import Enum, auto

from goqueue.model.credentials import ITERATIONS_MIN, ScramMechanism, ScramVerifier
from goqueue.model.errors import AuthenticationFailed, MalformedRequest

SALT_BYTES = 16
NONCE_BYTES = 18
MESSAGE_BYTES_MAX = 4_096
OTHER_IDENTITY = "The authorization id differs from the user name; leave it empty."
_NONCE = re.compile(r"r=[!-+\--~]{1,1024}")  # printable ASCII without commas
_EXTENSION = re.compile("[A-Za-z]=[^\0,]+")
_BAD_ESCAPE = re.compile("=(?!2C|3D)")

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
    FAILED = auto()


class ScramConversation:
    """The server's side: two messages of the client, two answers.

    A user that does not exist gets a made-up verifier, the same every time, so that neither the
    answers nor their timing reveal which users exist. There is no channel binding, because the
    mechanisms that have it (`-PLUS`) are not offered.
    """

    def __init__(
        self, mechanism: ScramMechanism, find: Find, *, nonce: bytes, salt_secret: bytes
    ) -> None:
        self._mechanism = mechanism
        self._find = find
        self._nonce = base64.b64encode(nonce).decode("ascii")
        self._client_nonce = ""
        self._salt_secret = salt_secret
        self._step = _Step.FIRST
        self._signed = ""
        self._binding = b""
        self._is_known = False
        self._verifier: ScramVerifier | None = None
        self.user = ""
        self.name = str(mechanism)

    @property
    def is_done(self) -> bool:
        """Whether the client has proved that it knows the password."""
        return self._step is _Step.DONE

    def answer(self, message: bytes) -> bytes:
        """Return the answer to a message; raise if it is malformed, or the proof is wrong."""
        step, self._step = self._step, _Step.FAILED
        text = _text_of(message)
        if step is _Step.FIRST:
            answer = self._begin(text)
            self._step = _Step.PROOF
        elif step is _Step.PROOF:
            answer = self._finish(text)
            self._step = _Step.DONE
        else:
            raise MalformedRequest("The SCRAM conversation is over.")
        return answer.encode()

    def _begin(self, text: str) -> str:
        flag, _, rest = text.partition(",")
        identity, _, bare = rest.partition(",")
        if flag not in ("n", "y"):
            raise MalformedRequest("The SCRAM message needs n,, or y,, at its start.")
        user, nonce = _first_fields(bare)
        self.user = user
        _check_identity(identity, user)
        found = self._find(user)
        self._is_known = found is not None
        verifier = self._verifier = found or self._made_up(user)
        self._client_nonce, self._nonce = nonce, nonce + self._nonce
        self._binding = f"{flag},{identity},".encode()
        salt = base64.b64encode(verifier.salt).decode("ascii")
        answer = f"r={self._nonce},s={salt},i={verifier.iterations}"
        self._signed = f"{bare},{answer}"
        return answer

    def _made_up(self, user: str) -> ScramVerifier:
        salt = hmac.digest(self._salt_secret, user.encode(), "sha256")[:SALT_BYTES]
        nothing = bytes(hashlib.new(self._mechanism.hash_name).digest_size)
        return ScramVerifier(self._mechanism, salt, ITERATIONS_MIN, nothing, nothing)

    def _finish(self, text: str) -> str:
        verifier = self._verifier
        assert verifier is not None
        without_proof, _, proof = text.rpartition(",")
        binding, nonce = _final_fields(without_proof)
        signed = f"{self._signed},{without_proof}".encode()
        is_right = (
            self._is_nonce(nonce)
            & hmac.compare_digest(binding, self._binding)
            & _is_proof(verifier, _value("p", proof), signed)
        )
        if not (is_right and self._is_known):
            raise AuthenticationFailed
        server = hmac.digest(verifier.server_key, signed, verifier.mechanism.hash_name)
        return f"v={base64.b64encode(server).decode('ascii')}"

    def _is_nonce(self, nonce: str) -> bool:
        """Compare the nonce of the second message with that of the answer to the first one.

        librdkafka before 2.6.1, which many systems still have, repeats its own part. That is as
        safe: the part of the server is there, and all of it is signed.
        """
        repeated = self._client_nonce + self._nonce
        return hmac.compare_digest(nonce.encode(), self._nonce.encode()) | hmac.compare_digest(
            nonce.encode(), repeated.encode()
        )


def _text_of(message: bytes) -> str:
    if len(message) > MESSAGE_BYTES_MAX:
        raise MalformedRequest("A SCRAM message is too long.")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise MalformedRequest("A SCRAM message is not UTF-8.") from None


def _first_fields(bare: str) -> tuple[str, str]:
    """Return the user and the nonce of `n=user,r=nonce[,extensions]`.

    A mandatory extension (`m=`) stands before them, so it is refused here.
    """
    parts = bare.split(",")
    if len(parts) < 2 or not _NONCE.fullmatch(parts[1]):
        raise MalformedRequest("The SCRAM message has no user name, or no valid nonce.")
    _check_extensions(parts[2:])
    user = _value("n", parts[0])
    if not user or _BAD_ESCAPE.search(user):
        raise MalformedRequest("The SCRAM message has no valid user name.")
    return user.replace("=2C", ",").replace("=3D", "="), parts[1][2:]


def _final_fields(text: str) -> tuple[bytes, str]:
    """Return the channel binding and the nonce of `c=binding,r=nonce[,extensions]`."""
    parts = text.split(",")
    if len(parts) < 2:
        raise MalformedRequest("The SCRAM message needs a channel binding, a nonce, a proof.")
    _check_extensions(parts[2:])
    return _decoded(_value("c", parts[0])), _value("r", parts[1])


def _check_extensions(parts: list[str]) -> None:
    """Refuse what is not an optional extension of RFC 5802; those are ignored, as it requires.

    Delegation tokens are refused here too: their extension, `tokenauth=true`, has a longer name.
    """
    for part in parts:
        if not _EXTENSION.fullmatch(part) or part.startswith("m="):
            raise MalformedRequest("A SCRAM message has an extension that is not supported.")


def _check_identity(field: str, user: str) -> None:
    """Refuse a client that wants to act as another user than the one it authenticates as."""
    if not field:
        return
    wanted = _value("a", field)
    if _BAD_ESCAPE.search(wanted) or wanted.replace("=2C", ",").replace("=3D", "=") != user:
        raise AuthenticationFailed(OTHER_IDENTITY)


def _is_proof(verifier: ScramVerifier, proof: str, signed: bytes) -> bool:
    name = verifier.mechanism.hash_name
    signature = hmac.digest(verifier.stored_key, signed, name)
    given = _decoded(proof)
    if len(given) != len(signature):
        return False
    client_key = bytes(a ^ b for a, b in zip(given, signature, strict=True))
    return hmac.compare_digest(hashlib.new(name, client_key).digest(), verifier.stored_key)


def _value(name: str, part: str) -> str:
    if not part.startswith(f"{name}="):
        raise MalformedRequest(f"A SCRAM message has no field {name}= where it is expected.")
    return part[2:]


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise MalformedRequest("A SCRAM message has a field that is not base64.") from None
