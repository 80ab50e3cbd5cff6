"""Transaction ids: what a client that knows no producers holds to act in its transaction.

An id is opaque. It carries the transactional id and the producer's identity, so that nothing has
to be looked up and any node understands it, and a check, so that one with a slip in it, or of
another cluster, is not taken for somebody else's transaction.
"""

from __future__ import annotations

import binascii
import struct
from collections.abc import Callable
from typing import NamedTuple
from zlib import crc32

from goqueue.model.errors import UnknownTransaction
from goqueue.model.names import ProducerIdentity

TRANSACTIONAL_ID_BYTES_MAX = 249

_VERSION = 1
_HEAD = struct.Struct(">BIqh")
_PADDING = b"="
_SHOWN_CHARACTERS = 100
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_+/", b"+/!!")


class Transaction(NamedTuple):
    """A transaction as the one who began it knows it."""

    transactional_id: str
    identity: ProducerIdentity


class TransactionIds:
    """Writes and reads the ids of one cluster."""

    __slots__ = ("_cluster_id",)

    def __init__(self, cluster_id: Callable[[], str]) -> None:
        self._cluster_id = cluster_id  # A new cluster gets its id when it has formed.

    def write(self, transaction: Transaction) -> str:
        name = transaction.transactional_id.encode()
        producer_id, epoch = transaction.identity
        check = self._check(producer_id, epoch, name)
        data = _HEAD.pack(_VERSION, check, producer_id, epoch) + name
        text = binascii.b2a_base64(data, newline=False).translate(_TO_URL)
        return text.rstrip(_PADDING).decode()

    def read(self, text: str) -> Transaction:
        """The transaction; `UnknownTransaction` when `text` was never given out."""
        version, check, transaction = _unpack(text)
        name, (producer_id, epoch) = transaction
        if version != _VERSION or check != self._check(producer_id, epoch, name.encode()):
            raise _unknown(text)
        if self.write(transaction) != text:
            raise _unknown(text)  # The last character has bits to spare.
        return transaction

    def _check(self, producer_id: int, epoch: int, name: bytes) -> int:
        salt = crc32(self._cluster_id().encode())
        return crc32(_HEAD.pack(_VERSION, salt, producer_id, epoch) + name)


def transactional_id_in(text: str) -> str:
    """The transactional id that an id names; whether it was ever given out is not checked."""
    return _unpack(text)[2].transactional_id


def _unpack(text: str) -> tuple[int, int, Transaction]:
    """The version, the check and the transaction of an id."""
    try:
        encoded = text.encode("ascii").translate(_FROM_URL)
        data = binascii.a2b_base64(encoded + _PADDING * (-len(encoded) % 4), strict_mode=True)
        version, check, producer_id, epoch = _HEAD.unpack_from(data)
        name = data[_HEAD.size :].decode()
    except (ValueError, struct.error):
        raise _unknown(text) from None
    return version, check, Transaction(name, ProducerIdentity(producer_id, epoch))


def _unknown(text: str) -> UnknownTransaction:
    return UnknownTransaction(
        f"{text[:_SHOWN_CHARACTERS]!r} is not the id of a transaction; take the `id` that the "
        "answer to its beginning gave."
    )
