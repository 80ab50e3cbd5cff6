"""Transaction ids: the handle by which a client without a producer acts in its transaction.

An id is opaque. It contains the transactional id and the producer's identity, so that any node can
decode it without a lookup, and a checksum, so that a mistyped id, or one of another cluster, is not
taken for a different transaction.
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
    """A transaction as its client identifies it."""

    transactional_id: str
    identity: ProducerIdentity


class TransactionIds:
    """Encodes and decodes the transaction ids of one cluster."""

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
        """Decode an id; raise `UnknownTransaction` if this cluster never issued it."""
        version, check, transaction = _unpack(text)
        name, (producer_id, epoch) = transaction
        if version != _VERSION or check != self._check(producer_id, epoch, name.encode()):
            raise _unknown(text)
        if self.write(transaction) != text:
            raise _unknown(text)  # The last character has unused bits.
        return transaction

    def _check(self, producer_id: int, epoch: int, name: bytes) -> int:
        salt = crc32(self._cluster_id().encode())
        return crc32(_HEAD.pack(_VERSION, salt, producer_id, epoch) + name)


def transactional_id_in(text: str) -> str:
    """The transactional id in an id, without checking that the id was issued."""
    return _unpack(text)[2].transactional_id


def _unpack(text: str) -> tuple[int, int, Transaction]:
    """The version, checksum and transaction in an id."""
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
        f"{text[:_SHOWN_CHARACTERS]!r} is not the id of a transaction; use the `id` that was "
        "returned when it began."
    )
