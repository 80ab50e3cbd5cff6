"""The handshake by which two nodes prove to each other that they have the secret of the cluster.

The caller sends its identity and a nonce; the callee responds with its own nonce; the caller proves
that it has the secret, and only then does the callee send its identity and its proof:

    caller -> callee  HELLO      caller's id and cluster, nonce, ids of the secrets it has
    callee -> caller  CHALLENGE  nonce, id of the secret to use
    caller -> callee  PROOF      HMAC
    callee -> caller  HELLO      callee's id and cluster, HMAC

A proof is an HMAC-SHA-256 over the direction, both nonces, both ids and the cluster. It cannot be
replayed, reflected to its author, or used with another node. Without TLS the frames that follow are
not protected against an attacker on the path who modifies them.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from hashlib import sha256
from struct import Struct

import msgspec

from goqueue.model.errors import MalformedRequest
from goqueue.wire.parts import Part
from goqueue.wire.peers.frames import (
    ASKING_ID,
    HANDSHAKE_FRAME_BYTES_MAX,
    HANDSHAKE_VERSION,
    NONCE_BYTES,
    Frame,
    Hello,
    Role,
    challenge_parts,
    hello_parts,
    proof_parts,
    read_challenge,
    read_hello,
    read_proof,
    read_refusal,
)

SECRETS_MAX = 2  # the current one and the previous one
HANDSHAKE_MS_MAX = 5_000  # then an unauthenticated peer is disconnected
REFUSAL_LENGTH_MAX = 300  # of text from an unauthenticated peer, which ends up in the log

_KEY_ID_BYTES = 8
_IDS = Struct(">qq")
_LENGTH = Struct(">I")
_CALLER, _CALLEE = b"caller", b"callee"

_NO_SECRET = "It has no secret of the cluster; give every node the same one (cluster.secret_file)."
_OTHER_SECRET = (
    "It has another secret than this cluster; give every node the same one (cluster.secret_file)."
)


class Unproven(MalformedRequest):
    """A peer has not proved that it is a node of this cluster."""


class Credentials:
    """The secrets by which nodes of this cluster authenticate, the current one first."""

    def __init__(self, secrets: Sequence[str], new_nonce: Callable[[], bytes]) -> None:
        """`new_nonce` returns `NONCE_BYTES` unpredictable bytes."""
        assert 1 <= len(secrets) <= SECRETS_MAX
        self.new_nonce = new_nonce
        self._keys: dict[bytes, bytes] = {}
        for secret in secrets:
            key_id = _mac(secret.encode(), b"goqueue node key id")[:_KEY_ID_BYTES]
            self._keys[key_id] = _mac(secret.encode(), b"goqueue node handshake")

    @property
    def key_ids(self) -> list[bytes]:
        return list(self._keys)

    def choose(self, key_ids: Sequence[bytes]) -> bytes | None:
        """The first secret of a peer that this node has too."""
        return next((one for one in key_ids if one in self._keys), None)

    def proof(
        self,
        key_id: bytes,
        direction: bytes,
        nonces: tuple[bytes, bytes],
        caller: Hello,
        callee: Hello,
    ) -> bytes:
        fields = (
            direction,
            *nonces,
            _IDS.pack(caller.node_id, callee.node_id),
            caller.cluster_id.encode(),
            callee.cluster_id.encode(),
        )
        told = b"".join(_LENGTH.pack(len(field)) + field for field in fields)
        return _mac(self._keys[key_id], told)


class CallerHandshake:
    """The handshake of the node that opened the connection."""

    def __init__(self, credentials: Credentials | None, hello: Hello, callee_id: int) -> None:
        """Without credentials the connection itself must have authenticated both (TLS)."""
        self._credentials = credentials
        self._nonce = b"" if credentials is None else credentials.new_nonce()
        key_ids = [] if credentials is None else credentials.key_ids
        self._hello = msgspec.structs.replace(
            hello, nonce=self._nonce, key_ids=key_ids, callee_id=callee_id
        )
        self._key_id: bytes | None = None
        self._nonces = (b"", b"")

    def begin(self) -> list[Part]:
        return hello_parts(self._hello)

    def receive(self, frame: Frame) -> list[Part] | Hello:
        """The next frame to send, or the identity of the callee once it has proved it.

        Raises MalformedRequest with the reason if the handshake fails.
        """
        if frame.role is Role.REFUSAL:
            raise MalformedRequest(f"it refuses us: {_shown(read_refusal(frame).text)}")
        if frame.role is Role.CHALLENGE:
            return self._prove(frame)
        hello = read_hello(frame)
        problem = protocol_problem(self._hello, hello)
        if problem:
            raise MalformedRequest(problem)
        if self._credentials is None:
            return hello
        if self._key_id is None:
            raise MalformedRequest(
                "it does not ask for the secret of the cluster; run the same release on both, "
                "with the same secret (cluster.secret_file)"
            )
        expected = self._credentials.proof(self._key_id, _CALLEE, self._nonces, self._hello, hello)
        if not hmac.compare_digest(expected, hello.proof):
            raise MalformedRequest("it has not proved that it knows the secret of the cluster")
        return hello

    def _prove(self, frame: Frame) -> list[Part]:
        challenge = read_challenge(frame)
        if self._credentials is None:
            raise MalformedRequest(
                "it asks for the secret of the cluster, and this node has none; give it the same "
                "one (cluster.secret_file)"
            )
        if self._key_id is not None or challenge.key_id not in self._credentials.key_ids:
            raise MalformedRequest("it asks for a proof that this node cannot give")
        self._key_id = challenge.key_id
        self._nonces = (self._nonce, challenge.nonce)
        # Only the id of the callee is known, and only if a certain node is expected.
        callee = Hello("", self._hello.callee_id)
        return proof_parts(
            self._credentials.proof(self._key_id, _CALLER, self._nonces, self._hello, callee)
        )


class CalleeHandshake:
    """The handshake of the node that accepted the connection."""

    def __init__(self, credentials: Credentials | None) -> None:
        self._credentials = credentials
        self._caller: Hello | None = None
        self._key_id = b""
        self._nonces = (b"", b"")

    def receive(self, frame: Frame, mine: Hello) -> list[Part] | Hello:
        """The next frame to send, or the identity of the caller once it has proved it.

        Raises Unproven with the reason, for the caller and for the log.
        """
        if self._caller is not None:
            self._check(frame, self._caller)
            return self._caller
        caller = read_hello(frame)
        problem = protocol_problem(mine, caller)
        if problem:
            raise Unproven(problem)
        if self._credentials is None:
            return caller
        # Discovery does not know which node it calls, and may do nothing else.
        expected = ASKING_ID if caller.node_id == ASKING_ID else mine.node_id
        if caller.nonce and caller.callee_id != expected:
            raise Unproven(
                f"It looks for node {caller.callee_id}, which this is not; check the list of peers."
            )
        if len(caller.nonce) != NONCE_BYTES:
            raise Unproven(_NO_SECRET)
        key_id = self._credentials.choose(caller.key_ids)
        if key_id is None:
            raise Unproven(_OTHER_SECRET)
        self._caller, self._key_id = caller, key_id
        self._nonces = (caller.nonce, self._credentials.new_nonce())
        return challenge_parts(self._nonces[1], key_id)

    def _check(self, frame: Frame, caller: Hello) -> None:
        assert self._credentials is not None
        meant = Hello("", caller.callee_id)
        expected = self._credentials.proof(self._key_id, _CALLER, self._nonces, caller, meant)
        if not hmac.compare_digest(expected, read_proof(frame)):
            raise Unproven(_OTHER_SECRET)

    def welcome(self, caller: Hello, mine: Hello) -> list[Part]:
        """The identity of this node, with its proof."""
        if self._credentials is not None:
            proof = self._credentials.proof(self._key_id, _CALLEE, self._nonces, caller, mine)
            mine = msgspec.structs.replace(mine, proof=proof)
        return hello_parts(mine)


def protocol_problem(mine: Hello, other: Hello) -> str:
    """Return why two nodes cannot speak with each other, as a sentence; empty if they can.

    They use the newest version of the protocol that both speak.
    """
    if other.version != HANDSHAKE_VERSION:
        return (
            f"It uses version {other.version} of the handshake between nodes, and this one "
            f"{HANDSHAKE_VERSION}; run releases that follow each other."
        )
    newest = min(mine.protocol_max, other.protocol_max)
    if newest >= max(mine.protocol_min, other.protocol_min):
        return ""
    return (
        f"It speaks versions {other.protocol_min} to {other.protocol_max} of the protocol between "
        f"nodes, and this one {mine.protocol_min} to {mine.protocol_max}; upgrade one release at "
        "a time."
    )


def _mac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, sha256().name)


def _shown(text: str) -> str:
    """The text of an unauthenticated peer, made safe for the log."""
    return ascii(text[:REFUSAL_LENGTH_MAX])[1:-1]


__all__ = [
    "HANDSHAKE_FRAME_BYTES_MAX",
    "HANDSHAKE_MS_MAX",
    "CalleeHandshake",
    "CallerHandshake",
    "Credentials",
    "Unproven",
    "protocol_problem",
]
