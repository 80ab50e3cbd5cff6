"""The records of `__transaction_state`, from which a coordinator is rebuilt.

One record per transactional id has the state of its newest transaction, and one per query that of
its newest epoch. The topic is compacted: the last value of a key is the state, a missing value
deletes the id.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import msgspec

from goqueue.model.errors import UnsupportedVersion
from goqueue.model.names import ProducerIdentity, TopicPartition
from goqueue.transactions.views import TransactionState

KEY_VERSION = 1_001  # no Kafka version uses it, so tools for Kafka's records skip these
QUERY_KEY_VERSION = 1_002
VALUE_VERSION = 1
QUERY_VALUE_VERSION = 1

_KEY_HEAD = struct.Struct(">hh")
NO_EPOCH = -1
NO_PRODUCER_ID = -1
NOT_STARTED = -1
NO_QUERY_EPOCH = -1


class Standing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of a transaction.

    A producer's call may change its identity. If the reply is lost, the producer repeats the call
    under its earlier identity, which is `last_producer_id` and `last_epoch`.
    """

    state: TransactionState
    producer_id: int
    epoch: int
    last_producer_id: int = NO_PRODUCER_ID
    last_epoch: int = NO_EPOCH
    next_producer_id: int = NO_PRODUCER_ID  # takes over when this transaction is complete
    timeout_ms: int
    participants: dict[str, list[int]] = {}
    started_ms: int = NOT_STARTED
    updated_ms: int

    @property
    def identity(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.epoch)

    @property
    def last_identity(self) -> ProducerIdentity:
        return ProducerIdentity(self.last_producer_id, self.last_epoch)

    @property
    def next_identity(self) -> ProducerIdentity:
        """The producer's identity once this transaction is complete."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdentity(self.next_producer_id, 0)
        return self.identity

    @property
    def is_open(self) -> bool:
        """Whether it has writes and no decided outcome."""
        return self.state in (TransactionState.ONGOING, TransactionState.PREPARED)

    @property
    def is_preparing(self) -> bool:
        """Whether it is decided, and markers are being written to the participants."""
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_committing(self) -> bool:
        """Whether its decided outcome is a commit."""
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        return tuple(
            TopicPartition(topic, number)
            for topic, numbers in self.participants.items()
            for number in numbers
        )

    def has(self, partition: TopicPartition) -> bool:
        return partition.partition in self.participants.get(partition.topic, ())


class Decided(msgspec.Struct, frozen=True, array_like=True):
    """A transaction that the record of an epoch commits, under the identity that prepared it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int

    @property
    def identity(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.producer_epoch)


class QueryStanding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of a query. This one record decides all transactions of its newest epoch."""

    run: int
    run_name: str = ""
    past_runs: tuple[str, ...] = ()  # names of earlier runs, oldest first
    epoch: int = NO_QUERY_EPOCH
    decided: tuple[Decided, ...] = ()
    is_closed: bool = False
    updated_ms: int


def nest(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partitions by topic, sorted and without duplicates."""
    nested: dict[str, list[int]] = {}
    for one in sorted(set(partitions)):
        nested.setdefault(one.topic, []).append(one.partition)
    return nested


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Standing)
_query_decoder = msgspec.msgpack.Decoder(QueryStanding)


def encode_key(transactional_id: str) -> bytes:
    return _encode_key(KEY_VERSION, transactional_id)


def decode_key(key: bytes) -> str | None:
    """Decode a key; `None` for keys of other versions, which this broker did not write."""
    return _decode_key(KEY_VERSION, key)


def encode_query_key(query_id: str) -> bytes:
    return _encode_key(QUERY_KEY_VERSION, query_id)


def decode_query_key(key: bytes) -> str | None:
    """Decode a key; `None` for keys of other versions, which this broker did not write."""
    return _decode_key(QUERY_KEY_VERSION, key)


def _encode_key(version: int, text: str) -> bytes:
    name = text.encode()
    return _KEY_HEAD.pack(version, len(name)) + name


def _decode_key(key_version: int, key: bytes) -> str | None:
    if len(key) < _KEY_HEAD.size:
        return None
    version, length = _KEY_HEAD.unpack_from(key)
    name = key[_KEY_HEAD.size :]
    if version != key_version or length != len(name):
        return None
    try:
        return name.decode()
    except UnicodeDecodeError:
        return None


def encode_standing(standing: Standing) -> bytes:
    return bytes((VALUE_VERSION,)) + _encoder.encode(standing)


def decode_standing(value: bytes) -> Standing | None:
    """Decode a value; `None` if it is damaged. Raise UnsupportedVersion for a later version."""
    if not _is_readable(value, "The state of a transaction", VALUE_VERSION):
        return None
    try:
        return _decoder.decode(memoryview(value)[1:])
    except msgspec.DecodeError:
        return None


def encode_query(standing: QueryStanding) -> bytes:
    return bytes((QUERY_VALUE_VERSION,)) + _encoder.encode(standing)


def decode_query(value: bytes) -> QueryStanding | None:
    """Decode a value; `None` if it is damaged. Raise UnsupportedVersion for a later version."""
    if not _is_readable(value, "The state of a query", QUERY_VALUE_VERSION):
        return None
    try:
        return _query_decoder.decode(memoryview(value)[1:])
    except msgspec.DecodeError:
        return None


def _is_readable(value: bytes, what: str, known: int) -> bool:
    """Return whether a value has the known version; a later one must not pass for a deletion."""
    if value and value[0] > known:
        raise UnsupportedVersion.of_record(what, version=value[0], known=known)
    return bool(value) and value[0] == known
