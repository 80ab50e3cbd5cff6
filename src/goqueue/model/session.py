"""The identity of a caller, which a front end attaches to every call to the broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

USER_PREFIX = "User:"
ANONYMOUS = "User:ANONYMOUS"
DEFAULT_TENANT = ""
NEVER_MS = 0  # the expiry of a session that does not expire


class ListenerRules(msgspec.Struct, frozen=True):
    """What a listener requires of its clients."""

    name: str  # under which the metadata has its addresses
    is_encrypted: bool = False
    must_authenticate: bool = False  # before anything else; otherwise clients may stay anonymous
    sasl_mechanisms: tuple[str, ...] = ()  # that a Kafka listener offers
    uses_certificates: bool = False  # the certificate of a client is its identity


class ConnectedClient(NamedTuple):
    """The client of a connection, as its listener sees it."""

    host: str
    rules: ListenerRules
    certificate: bytes = b""  # of the client, verified, in DER; empty if it sent none


class Session(msgspec.Struct, frozen=True, array_like=True, weakref=True):
    """One connection's identity. A new one replaces it when the client authenticates again.

    It is forwarded with a call that another node handles.
    """

    listener: str
    principal: str = ANONYMOUS
    tenant: str = DEFAULT_TENANT
    client_id: str = ""
    client_host: str = ""
    tls_identity: str = ""  # the subject of the client's certificate
    expires_ms: int = NEVER_MS  # wall time after which the client must authenticate again
    mechanism: str = ""  # with which the client authenticated; empty if it did not
    key_id: str = ""  # of the key that the client authenticated with, if it used one
    is_inside: bool = False  # in the broker, where names have the prefix of their tenant

    @property
    def is_authenticated(self) -> bool:
        return self.principal != ANONYMOUS

    @property
    def user(self) -> str:
        """The name of the user, without the type of the principal."""
        return self.principal.removeprefix(USER_PREFIX)


# How many records of a batch are whose, in the order of the records.
Senders = Sequence[tuple[int, Session | None]]
NOBODY = Session("")  # for what a node does itself
# For operations that a node calls itself; no client can authenticate as this principal.
NODE_PRINCIPAL = "Node:internal"
INTERNAL = Session("", principal=NODE_PRINCIPAL)


def principal_of(user: str) -> str:
    return USER_PREFIX + user


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Session)


def pack_session(session: Session) -> bytes:
    """Encode a session, to be stored with what it has started."""
    return _encoder.encode(session)


def unpack_session(data: bytes) -> Session:
    return _decoder.decode(data)
