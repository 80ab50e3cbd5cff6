"""State about the producers and leaders whose delayed records are stored in the schedule log.

A producer's batch may be split: its delayed records are stored here, the others in the log of their
partition. What the producer state of a partition is for the latter, this is for the former. For
each idempotent producer and partition it holds the producer's epoch and its newest batches, to
recognise retries, refuse batches out of sequence and fence old producers. For each partition it
holds the newest leader epoch that was seen, to fence former leaders.

Both are records in the schedule log, under keys of their own. The state of a producer is in the
batch that holds its messages; compaction keeps the newest, and a tombstone removes it when the
producer has been idle for as long as a partition would keep its state.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable

import msgspec

from goqueue.delivery.schedules.payload import Origin, ScheduledMessage
from goqueue.delivery.schedules.pending import Stretch
from goqueue.model.batch import Record
from goqueue.model.errors import (
    CorruptBatch,
    FencedLeaderEpoch,
    FencedProducer,
    OutOfOrderSequence,
)

BATCHES_REMEMBERED = 5  # clients keep at most five requests in flight
NO_EPOCH = -1

_VERSION = b"\x01"
_PRODUCER_PREFIX = b"from"
_PRODUCER_KEY = struct.Struct(">4s16siq")
_LEADER_PREFIX = b"epch"
_LEADER_KEY = struct.Struct(">4s16si")
_LEADER_VALUE = struct.Struct(">ci")
_SEQUENCE_MASK = 0x7FFFFFFF  # sequence numbers have 31 bits and wrap to 0
_HALF = 1 << 30

StoredBatch = tuple[int, int, int]  # first and last sequence number, number of the last message
ProducerKey = tuple[bytes, int, int]  # topic id, partition, producer id
Source = tuple[bytes, int]  # topic id and partition


class OriginState(msgspec.Struct, frozen=True, array_like=True):
    """One producer in one partition, with its newest batches, oldest first."""

    topic_id: bytes
    partition: int
    producer_id: int
    epoch: int
    last_ms: int  # when it last stored a batch, by the owner's clock
    first_sequence: int  # the first sequence of this epoch that was seen here
    batches: list[StoredBatch]

    @property
    def key(self) -> ProducerKey:
        return self.topic_id, self.partition, self.producer_id

    @property
    def last_sequence(self) -> int:
        return self.batches[-1][1]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(OriginState).decode


class Origins:
    """The idempotent producers whose delayed records are stored here."""

    __slots__ = ("_states",)

    def __init__(self, states: Iterable[OriginState] = ()) -> None:
        self._states = {state.key: state for state in states}

    def __len__(self) -> int:
        return len(self._states)

    def find(self, topic_id: bytes, partition: int, origin: Origin) -> int | None:
        """Return the last number of this batch, or of a later one, if stored; raise if out of turn.

        Leaders store a producer's batches in order, and each batch completely before they accept
        its sequence numbers. What precedes the newest batch was therefore stored, unless it
        precedes the first that was seen here.
        """
        state = self._states.get((topic_id, partition, origin.producer_id))
        if state is None or origin.epoch > state.epoch:
            return None
        if origin.epoch < state.epoch:
            raise FencedProducer(
                f"Producer {origin.producer_id} writes with epoch {origin.epoch}, but epoch "
                f"{state.epoch} has taken over; stop this producer."
            )
        for first, _, number in state.batches:
            if first == origin.base_sequence:
                return number
        if (state.last_sequence - origin.base_sequence) & _SEQUENCE_MASK >= _HALF:
            return None
        so_far = (state.last_sequence - state.first_sequence) & _SEQUENCE_MASK
        if (origin.base_sequence - state.first_sequence) & _SEQUENCE_MASK <= so_far:
            return state.batches[-1][2]
        raise OutOfOrderSequence(
            f"Producer {origin.producer_id} sends sequence {origin.base_sequence}, but later ones "
            "are already stored."
        )

    def after(self, message: ScheduledMessage, number: int, *, now_ms: int) -> OriginState | None:
        """Return the state of a message's producer once its batch is stored up to `number`."""
        origin = message.origin
        if origin is None:
            return None
        last = origin.base_sequence if origin.last_sequence < 0 else origin.last_sequence
        stored = (origin.base_sequence, last, number)
        state = self._states.get((message.topic_id, message.partition, origin.producer_id))
        batches, first_sequence = [stored], origin.base_sequence
        if state is not None and state.epoch == origin.epoch:
            earlier = [one for one in state.batches if one[0] != origin.base_sequence]
            batches = [*earlier, stored][-BATCHES_REMEMBERED:]
            first_sequence = state.first_sequence
        return OriginState(
            message.topic_id,
            message.partition,
            origin.producer_id,
            origin.epoch,
            now_ms,
            first_sequence,
            batches,
        )

    def put(self, state: OriginState) -> None:
        self._states[state.key] = state

    def remove(self, key: ProducerKey) -> None:
        self._states.pop(key, None)

    def forget_aborted(self, producer_id: int, stretches: Iterable[Stretch]) -> None:
        """Remove batches in these ranges of the log, because they were aborted."""
        states = [one for one in self._states.values() if one.producer_id == producer_id]
        gone = list(stretches)
        for state in states:
            kept = [
                batch
                for batch in state.batches
                if not any(first <= batch[2] <= last for first, last in gone)
            ]
            if not kept:
                del self._states[state.key]
            elif len(kept) < len(state.batches):
                self._states[state.key] = msgspec.structs.replace(state, batches=kept)

    def expired(
        self, *, before_ms: int, states_max: int, is_known: Callable[[bytes], bool]
    ) -> list[ProducerKey]:
        """Return producers to drop: idle, of deleted topics, or the most idle over the limit."""
        gone: list[ProducerKey] = []
        kept: list[OriginState] = []
        for state in self._states.values():
            if state.last_ms < before_ms or not is_known(state.topic_id):
                gone.append(state.key)
            else:
                kept.append(state)
        excess = len(kept) - states_max
        if excess > 0:
            kept.sort(key=lambda one: one.last_ms)
            gone += [one.key for one in kept[:excess]]
        return gone

    def state(self) -> list[OriginState]:
        """Return a copy, because a thread writes it while more batches arrive."""
        return list(self._states.values())


class LeaderEpochs:
    """For each partition, the newest leader epoch that has stored records here."""

    __slots__ = ("_epochs",)

    def __init__(self, epochs: Iterable[tuple[bytes, int, int]] = ()) -> None:
        self._epochs: dict[Source, int] = {
            (topic_id, partition): epoch for topic_id, partition, epoch in epochs
        }

    def __len__(self) -> int:
        return len(self._epochs)

    def get(self, source: Source) -> int:
        return self._epochs.get(source, NO_EPOCH)

    def check(self, source: Source, epoch: int, *, known: int) -> bool:
        """Return whether an epoch is new here; raise if a newer one exists.

        `known` is the newest epoch in the owner's metadata.
        """
        newest = self.get(source)
        if epoch < max(newest, known):
            raise FencedLeaderEpoch(
                f"A leader of epoch {epoch} sends delayed records for partition {source[1]}, but "
                f"epoch {max(newest, known)} has taken over."
            )
        return epoch > newest

    def put(self, source: Source, epoch: int) -> None:
        self._epochs[source] = epoch

    def remove(self, source: Source) -> None:
        self._epochs.pop(source, None)

    def expired(self, *, is_known: Callable[[bytes], bool]) -> list[Source]:
        """Return the partitions to drop: those of deleted topics."""
        return [source for source in self._epochs if not is_known(source[0])]

    def state(self) -> list[tuple[bytes, int, int]]:
        return [(*source, epoch) for source, epoch in self._epochs.items()]


def origin_key(key: ProducerKey) -> bytes:
    return _PRODUCER_KEY.pack(_PRODUCER_PREFIX, *key)


def origin_value(state: OriginState) -> bytes:
    return _VERSION + _encode(state)


def forget_origin_record(key: ProducerKey, now_ms: int) -> Record:
    return Record(origin_key(key), None, (), now_ms)


def leader_epoch_record(source: Source, epoch: int, now_ms: int) -> Record:
    key = _LEADER_KEY.pack(_LEADER_PREFIX, *source)
    return Record(key, _LEADER_VALUE.pack(_VERSION, epoch), (), now_ms)


def forget_leader_epoch_record(source: Source, now_ms: int) -> Record:
    return Record(_LEADER_KEY.pack(_LEADER_PREFIX, *source), None, (), now_ms)


def replay_source(record: Record, origins: Origins, epochs: LeaderEpochs) -> bool:
    """Apply a record about a producer or a leader; return whether it was one."""
    key = record.key
    if key is None:
        return False
    if len(key) == _PRODUCER_KEY.size and key.startswith(_PRODUCER_PREFIX):
        if record.value is None:
            _, topic_id, partition, producer_id = _PRODUCER_KEY.unpack(key)
            origins.remove((topic_id, partition, producer_id))
        else:
            origins.put(_read_origin(record.value))
        return True
    if len(key) == _LEADER_KEY.size and key.startswith(_LEADER_PREFIX):
        _, topic_id, partition = _LEADER_KEY.unpack(key)
        if record.value is None:
            epochs.remove((topic_id, partition))
        else:
            epochs.put((topic_id, partition), _read_leader_epoch(record.value))
        return True
    return False


def _read_origin(value: bytes) -> OriginState:
    if value[:1] != _VERSION:
        raise CorruptBatch(f"A producer's state has the unknown version {value[:1].hex()}.")
    try:
        return _decode(value[1:])
    except msgspec.DecodeError as error:
        raise CorruptBatch(f"A producer's state cannot be decoded: {error}.") from error


def _read_leader_epoch(value: bytes) -> int:
    if len(value) != _LEADER_VALUE.size or value[:1] != _VERSION:
        raise CorruptBatch("The leader epoch of a partition cannot be decoded.")
    epoch: int = _LEADER_VALUE.unpack(value)[1]
    return epoch
