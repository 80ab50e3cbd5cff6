"""The records of the internal topic: scheduled messages, their producers and leaders.

A waiting message is one record whose key is its number: the offset of that record, eight bytes. A
tombstone with the same key ends it. A changed due time is a small record of its own, under the
number followed by `r`, so that moving a message does not rewrite it. Compaction therefore keeps
exactly the waiting messages and their newest due times. Millions of such records are written, so
whole batches of them are assembled without creating an object per record.

A producer's batch may be split: its delayed records are stored here, the others in the log of their
partition. What the producer state of a partition is for the latter, `ProducerStates` is for the
former. For each idempotent producer and partition it holds the producer's epoch and its newest
batches, to recognise retries, refuse batches out of sequence and fence old producers. For each
partition, `LeaderEpochs` holds the newest leader epoch that was seen, to fence former leaders.

Both are records too, under keys of their own. The state of a producer is in the batch that holds
its messages; compaction keeps the newest, and a tombstone removes it when the producer has been
idle for as long as a partition would keep its state.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Container, Iterable, Iterator, Sequence

import msgspec

from goqueue.model.batch import (
    HEADER_BYTES,
    NO_PRODUCER,
    NO_SEQUENCE,
    TRANSACTIONAL,
    Header,
    Record,
    build_batch,
    varint,
)
from goqueue.model.batch import NO_EPOCH as NO_PRODUCER_EPOCH
from goqueue.model.errors import (
    CorruptBatch,
    FencedLeaderEpoch,
    FencedProducer,
    OutOfOrderSequence,
    TransactionAbortable,
    UnsupportedVersion,
)
from goqueue.model.names import ProducerIdentity

PARTITION_OPEN = -1  # the partition is chosen when the message is released
VERSION = b"\x01"
MOVE_SUFFIX = b"r"
RELEASED_HEADER = "released"
BATCHES_REMEMBERED = 5  # clients keep at most five requests in flight
NO_EPOCH = -1
RANGES_MAX = 100_000  # per transaction; interleaved writes of others split its ranges

_NUMBER = struct.Struct(">q")
_MOVE = struct.Struct(">cq")
_RELEASED: tuple[Header, ...] = ((RELEASED_HEADER, b""),)
_PRODUCER_PREFIX = b"from"
_PRODUCER_KEY = struct.Struct(">4s16siq")
_LEADER_PREFIX = b"epch"
_LEADER_KEY = struct.Struct(">4s16si")
_LEADER_VALUE = struct.Struct(">ci")
_SEQUENCE_MASK = 0x7FFFFFFF  # sequence numbers have 31 bits and wrap to 0
_HALF = 1 << 30

_START = b"\x00\x00"  # no attributes, and the timestamp of the batch
_NULL = b"\x01"
_NO_HEADERS = b"\x00"
_KEY_LENGTH = varint(_NUMBER.size)
_MOVE_KEY_LENGTH = varint(_NUMBER.size + len(MOVE_SUFFIX))
_RELEASED_HEADERS = varint(1) + varint(len(RELEASED_HEADER)) + RELEASED_HEADER.encode() + varint(0)

NumberRange = tuple[int, int]  # the first number of messages, and the last
StoredBatch = tuple[int, int, int]  # first and last sequence number, number of the last message
ProducerKey = tuple[bytes, int, int]  # topic id, partition, producer id
Source = tuple[bytes, int]  # topic id and partition
PendingState = list[tuple[int, list[NumberRange]]]  # by producer


class ProducerBatch(msgspec.Struct, frozen=True, array_like=True):
    """The batch of an idempotent producer that a message came in, to recognise retries."""

    producer_id: int
    epoch: int
    base_sequence: int
    last_sequence: int = -1  # unknown if an earlier version has written it


class ScheduledMessage(msgspec.Struct, frozen=True, array_like=True):
    """A waiting message, with everything needed to release it."""

    due_ms: int
    topic_id: bytes
    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    timestamp_ms: int = -1
    origin: ProducerBatch | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode_message = msgspec.msgpack.Decoder(ScheduledMessage).decode


def message_size(message: ScheduledMessage) -> int:
    """Return the bytes of a message: its key, its value and its headers."""
    size = len(message.value or b"") + len(message.key or b"")
    for name, value in message.headers:
        size += len(name) + len(value or b"")
    return size


def number_key(number: int) -> bytes:
    return _NUMBER.pack(number)


def message_record(number: int, message: ScheduledMessage, now_ms: int) -> Record:
    return Record(_NUMBER.pack(number), VERSION + _encode(message), (), now_ms)


def move_record(number: int, due_ms: int, now_ms: int) -> Record:
    return Record(_NUMBER.pack(number) + MOVE_SUFFIX, _MOVE.pack(VERSION, due_ms), (), now_ms)


def end_record(number: int, now_ms: int, *, is_released: bool) -> Record:
    """Return the tombstone of a message, which was released or cancelled."""
    return Record(_NUMBER.pack(number), None, _RELEASED if is_released else (), now_ms)


def end_move_record(number: int, now_ms: int) -> Record:
    """Return the tombstone of the changed due time of a message that has ended."""
    return Record(_NUMBER.pack(number) + MOVE_SUFFIX, None, (), now_ms)


def read_key(key: bytes | None) -> tuple[int, bool] | None:
    """Return the number in a record's key and whether it is a due time change, or None."""
    if key is None or not _NUMBER.size <= len(key) <= _NUMBER.size + 1:
        return None
    is_move = len(key) > _NUMBER.size
    if is_move and not key.endswith(MOVE_SUFFIX):
        return None
    return _NUMBER.unpack_from(key)[0], is_move


def check_version(value: bytes, what: str) -> None:
    """Raise unless a value has the known version; one of a later release is not damaged."""
    if value[:1] > VERSION:
        raise UnsupportedVersion.of_record(what, version=value[0], known=VERSION[0])
    if value[:1] != VERSION:
        raise CorruptBatch(f"{what} has the unknown version {value[:1].hex()}.")


def read_message(value: bytes) -> ScheduledMessage:
    check_version(value, "A scheduled message")
    try:
        return _decode_message(value[1:])
    except msgspec.DecodeError as error:
        raise CorruptBatch(f"A scheduled message cannot be decoded: {error}.") from error


def read_move(value: bytes) -> int:
    """Return the new due time in a record."""
    check_version(value, "The new due time of a scheduled message")
    if len(value) != _MOVE.size:
        raise CorruptBatch("The new due time of a scheduled message cannot be decoded.")
    due_ms: int = _MOVE.unpack(value)[1]
    return due_ms


def is_release(record: Record) -> bool:
    """Whether a tombstone ends a message because it was released."""
    return record.headers == _RELEASED


# Batches


def message_batch(
    first: int,
    messages: Sequence[ScheduledMessage],
    now_ms: int,
    *,
    transaction: ProducerIdentity | None = None,
    base_sequence: int = NO_SEQUENCE,
    trailer: tuple[bytes, bytes] | None = None,
) -> tuple[bytearray, list[int]]:
    """Encode messages from number `first` on as one batch; return it with each record's position.

    In a transaction the batch is its producer's. `trailer` is the key and value of a last record.
    """
    parts: list[bytes] = []
    starts: list[int] = []
    position = HEADER_BYTES
    pack, join = _NUMBER.pack, b"".join
    for delta, message in enumerate(messages):
        content = _encode(message)
        body = join(
            (
                _START,
                varint(delta),
                _KEY_LENGTH,
                pack(first + delta),
                varint(len(content) + 1),
                VERSION,
                content,
                _NO_HEADERS,
            )
        )
        length = varint(len(body))
        parts.append(length)
        parts.append(body)
        starts.append(position)
        position += len(length) + len(body)
    if trailer is not None:
        key, value = trailer
        index = varint(len(messages))
        body = join((_START, index, varint(len(key)), key, varint(len(value)), value, _NO_HEADERS))
        parts += (varint(len(body)), body)
    batch = build_batch(
        b"".join(parts),
        record_count=len(messages) + (trailer is not None),
        attributes=0 if transaction is None else TRANSACTIONAL,
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        producer_id=NO_PRODUCER if transaction is None else transaction.producer_id,
        producer_epoch=NO_PRODUCER_EPOCH if transaction is None else transaction.epoch,
        base_sequence=base_sequence,
    )
    return batch, starts


def end_batch(
    numbers: Sequence[int], moved: Container[int], now_ms: int, *, is_released: bool
) -> bytearray:
    """Encode tombstones that end messages, and those of their changed due times, as one batch."""
    pack = _NUMBER.pack
    tail = _NULL + (_RELEASED_HEADERS if is_released else _NO_HEADERS)
    parts: list[bytes] = []
    size, head = 0, b""
    for delta, number in enumerate(numbers):
        index = varint(delta)
        if len(index) != size:
            size = len(index)
            head = _head(size + _NUMBER.size + len(tail))
        parts.append(head + index + _KEY_LENGTH + pack(number) + tail)
    if moved:
        tail = MOVE_SUFFIX + _NULL + _NO_HEADERS
        for number in numbers:
            if number in moved:
                index = varint(len(parts))
                head = _head(len(index) + _NUMBER.size + len(tail))
                parts.append(head + index + _MOVE_KEY_LENGTH + pack(number) + tail)
    return build_batch(
        b"".join(parts), record_count=len(parts), base_timestamp=now_ms, max_timestamp=now_ms
    )


def _head(size: int) -> bytes:
    """Encode the start of a record with `size` bytes besides it and the length of its key."""
    return varint(len(_START) + len(_KEY_LENGTH) + size) + _START


# Producers and leaders


class ProducerState(msgspec.Struct, frozen=True, array_like=True):
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


_decode_producer = msgspec.msgpack.Decoder(ProducerState).decode


class ProducerStates:
    """The idempotent producers whose delayed records are stored here."""

    __slots__ = ("_states",)

    def __init__(self, states: Iterable[ProducerState] = ()) -> None:
        self._states = {state.key: state for state in states}

    def __len__(self) -> int:
        return len(self._states)

    def find(self, topic_id: bytes, partition: int, origin: ProducerBatch) -> int | None:
        """Return the last number of this or a later batch, if stored; raise if out of order.

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

    def after(self, message: ScheduledMessage, number: int, *, now_ms: int) -> ProducerState | None:
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
        return ProducerState(
            message.topic_id,
            message.partition,
            origin.producer_id,
            origin.epoch,
            now_ms,
            first_sequence,
            batches,
        )

    def put(self, state: ProducerState) -> None:
        self._states[state.key] = state

    def remove(self, key: ProducerKey) -> None:
        self._states.pop(key, None)

    def forget_aborted(self, producer_id: int, stretches: Iterable[NumberRange]) -> None:
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
        kept: list[ProducerState] = []
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

    def state(self) -> list[ProducerState]:
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


def producer_key(key: ProducerKey) -> bytes:
    return _PRODUCER_KEY.pack(_PRODUCER_PREFIX, *key)


def producer_value(state: ProducerState) -> bytes:
    return VERSION + _encode(state)


def forget_producer_record(key: ProducerKey, now_ms: int) -> Record:
    return Record(producer_key(key), None, (), now_ms)


def leader_epoch_record(source: Source, epoch: int, now_ms: int) -> Record:
    key = _LEADER_KEY.pack(_LEADER_PREFIX, *source)
    return Record(key, _LEADER_VALUE.pack(VERSION, epoch), (), now_ms)


def forget_leader_epoch_record(source: Source, now_ms: int) -> Record:
    return Record(_LEADER_KEY.pack(_LEADER_PREFIX, *source), None, (), now_ms)


def replay_source(record: Record, producers: ProducerStates, epochs: LeaderEpochs) -> bool:
    """Apply a record about a producer or a leader; return whether it was one."""
    key = record.key
    if key is None:
        return False
    if len(key) == _PRODUCER_KEY.size and key.startswith(_PRODUCER_PREFIX):
        if record.value is None:
            _, topic_id, partition, producer_id = _PRODUCER_KEY.unpack(key)
            producers.remove((topic_id, partition, producer_id))
        else:
            producers.put(_read_producer(record.value))
        return True
    if len(key) == _LEADER_KEY.size and key.startswith(_LEADER_PREFIX):
        _, topic_id, partition = _LEADER_KEY.unpack(key)
        if record.value is None:
            epochs.remove((topic_id, partition))
        else:
            epochs.put((topic_id, partition), _read_leader_epoch(record.value))
        return True
    return False


def _read_producer(value: bytes) -> ProducerState:
    check_version(value, "The state of a producer of delayed records")
    try:
        return _decode_producer(value[1:])
    except msgspec.DecodeError as error:
        raise CorruptBatch(f"A producer's state cannot be decoded: {error}.") from error


def _read_leader_epoch(value: bytes) -> int:
    check_version(value, "The leader epoch of a partition")
    if len(value) != _LEADER_VALUE.size:
        raise CorruptBatch("The leader epoch of a partition cannot be decoded.")
    epoch: int = _LEADER_VALUE.unpack(value)[1]
    return epoch


# Transactions


class PendingTransactions:
    """For each producer with an open transaction, the messages that it has stored.

    Only their positions: the messages are read again when the transaction commits, so that a
    transaction of any size costs little memory.
    """

    __slots__ = ("_ranges",)

    def __init__(self, state: PendingState | None = None) -> None:
        self._ranges: dict[int, list[NumberRange]] = {
            producer_id: [(first, last) for first, last in ranges]
            for producer_id, ranges in state or ()
        }

    def __iter__(self) -> Iterator[int]:
        """Iterate over the producer ids."""
        return iter(list(self._ranges))

    def check_room(self, producer_id: int) -> None:
        """Refuse a transaction that is spread over too many ranges of the log."""
        if len(self._ranges.get(producer_id, ())) >= RANGES_MAX:
            raise TransactionAbortable(
                f"A transaction may store delayed messages in {RANGES_MAX} ranges of the log; "
                "abort it, and publish larger batches or use more transactions."
            )

    def add(self, producer_id: int, first: int, last: int) -> None:
        """Add the messages from number `first` to `last` to a transaction."""
        ranges = self._ranges.setdefault(producer_id, [])
        if ranges and ranges[-1][1] + 1 == first:
            ranges[-1] = (ranges[-1][0], last)
        else:
            ranges.append((first, last))

    def end(self, producer_id: int) -> list[NumberRange]:
        """Remove an ended transaction; return the ranges that it had stored."""
        return self._ranges.pop(producer_id, [])

    def state(self) -> PendingState:
        return [(one, list(ranges)) for one, ranges in self._ranges.items()]
