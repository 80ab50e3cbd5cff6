"""The records of `__transaction_state`: what a coordinator can be rebuilt from.

One record per transactional id holds all that is known of its newest transaction. The topic is
compacted: the last value of a key is the state, a missing value forgets the id.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import msgspec

from goqueue.model.names import ProducerIdentity, TopicPartition
from goqueue.transactions.views import TransactionState

KEY_VERSION = 1_001  # no Kafka version uses it, so tools that know Kafka's records pass over these
VALUE_VERSION = 1

_KEY_HEAD = struct.Struct(">hh")
NO_EPOCH = -1
NO_PRODUCER_ID = -1
NOT_STARTED = -1


class Standing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a transaction stands.

    A producer's call may change what it is. When the answer is lost, the producer repeats the call
    as what it was before, which is `last_producer_id` and `last_epoch`.
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
        """What the producer is once this transaction is complete."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdentity(self.next_producer_id, 0)
        return self.identity

    @property
    def is_preparing(self) -> bool:
        """It is decided, and the participants are being told."""
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_committing(self) -> bool:
        """It is decided to be committed, or was."""
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


def nest(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partitions by topic, sorted and each once."""
    nested: dict[str, list[int]] = {}
    for one in sorted(set(partitions)):
        nested.setdefault(one.topic, []).append(one.partition)
    return nested


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Standing)


def encode_key(transactional_id: str) -> bytes:
    name = transactional_id.encode()
    return _KEY_HEAD.pack(KEY_VERSION, len(name)) + name


def decode_key(key: bytes) -> str | None:
    """`None` for the keys of other versions, which belong to somebody else."""
    if len(key) < _KEY_HEAD.size:
        return None
    version, length = _KEY_HEAD.unpack_from(key)
    name = key[_KEY_HEAD.size :]
    if version != KEY_VERSION or length != len(name):
        return None
    try:
        return name.decode()
    except UnicodeDecodeError:
        return None


def encode_standing(standing: Standing) -> bytes:
    return bytes((VALUE_VERSION,)) + _encoder.encode(standing)


def decode_standing(value: bytes) -> Standing | None:
    """`None` for what another version wrote."""
    if not value or value[0] != VALUE_VERSION:
        return None
    try:
        return _decoder.decode(memoryview(value)[1:])
    except msgspec.DecodeError:
        return None
