"""Newest batches of each idempotent producer, by which a retry is recognised as a duplicate."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import NamedTuple

import msgspec

from goqueue.model.batch import (
    NO_EPOCH,
    NO_SEQUENCE,
    BatchHeader,
    Marker,
    add_sequence,
)
from goqueue.model.errors import (
    DuplicateSequence,
    FencedProducer,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from goqueue.partition.transactions import OpenTransaction

BATCHES_REMEMBERED = 5  # clients keep at most five requests in flight
NO_MARKER = -1
_SEQUENCE_MASK = 0x7FFFFFFF  # 31 bits, wrapping to 0
_SEQUENCES_HALF = 1 << 30


class WrittenBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


class ProducerState(msgspec.Struct, array_like=True):
    """One producer's newest batches, oldest first."""

    producer_id: int
    epoch: int
    last_ms: int  # when it last wrote, by the broker's clock
    batches: list[WrittenBatch]
    coordinator_epoch: int = NO_EPOCH  # of the last marker, whose offset comes next
    marker_offset: int = NO_MARKER
    first_sequence: int = 0  # first of this epoch, as far as known here
    marker_ms: int = -1  # timestamp of the last marker
    ended_sequence: int = NO_SEQUENCE  # last one before the last marker

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_timestamp(self) -> int:
        """Return the timestamp of its last batch, or of a later marker."""
        if self.batches and self.batches[-1].base_offset > self.marker_offset:
            return self.batches[-1].timestamp_ms
        return self.marker_ms

    def has_ended(self, header: BatchHeader) -> bool:
        """Return whether a transactional batch has numbers from before the last marker."""
        if not header.is_transactional or self.ended_sequence == NO_SEQUENCE:
            return False
        return (self.ended_sequence - header.base_sequence) & _SEQUENCE_MASK < _SEQUENCES_HALF


class ProducersState(msgspec.Struct, array_like=True):
    """All producers as of the batch before `offset`, and their open transactions.

    `aborted_count` is the number of transactions aborted before that in the segment that starts at
    `segment_base`. `ended` are the transactions whose markers were not yet committed, as offsets of
    marker and beginning.
    """

    offset: int
    producers: list[ProducerState]
    transactions: list[OpenTransaction] = []
    segment_base: int = -1  # not set by the version before transactions
    aborted_count: int = 0
    high_watermark: int = -1
    ended: list[tuple[int, int]] = []


class Producers:
    """The idempotent producers of one partition."""

    __slots__ = ("_states", "is_partial")

    def __init__(self, states: list[ProducerState] | None = None) -> None:
        # Whether earlier batches may be missing here, because the log starts after them.
        self.is_partial = False
        self.reset(states or [])

    def reset(self, states: list[ProducerState]) -> None:
        """Start again from saved states."""
        self._states = {state.producer_id: state for state in states}

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[ProducerState]:
        return iter(self._states.values())

    def get(self, producer_id: int) -> ProducerState | None:
        return self._states.get(producer_id)

    def find(self, header: BatchHeader) -> WrittenBatch | None:
        """Return the stored original of a batch, if it is one of the newest."""
        state = self._states.get(header.producer_id)
        if state is None or state.epoch != header.producer_epoch or state.has_ended(header):
            return None
        return _find(state, header)

    def check(self, header: BatchHeader) -> WrittenBatch | None:
        """Return the stored original of a duplicate batch; raise if it is out of order.

        A batch with the numbers of a transaction that has ended is not a duplicate: its producer
        aborted without knowing what was stored, and reused the numbers for new records. They would
        be missing from the next transaction if they were treated as stored.
        """
        state = self._states.get(header.producer_id)
        if state is None:
            # A producer that is idle for long, or whose records are deleted, is dropped and
            # continues with its next number; so does one whose topic was recreated. That cannot be
            # distinguished from a new producer whose first batch was overtaken by later ones, so
            # any number may come first, as in Kafka. What was overtaken is refused below.
            return None
        if header.producer_epoch < state.epoch:
            raise _fenced(header.producer_id, header.producer_epoch, state.epoch)
        if header.producer_epoch > state.epoch:
            if header.base_sequence != 0:
                raise OutOfOrderSequence(
                    f"A new epoch of producer {header.producer_id} starts with sequence "
                    f"{header.base_sequence}; it must start with 0."
                )
            return None
        first = header.base_sequence
        expected = add_sequence(state.last_sequence, 1) if state.batches else 0
        if first == expected or (self.is_partial and not state.batches):
            return None
        if state.has_ended(header):
            raise OutOfOrderSequence(
                f"Producer {header.producer_id} repeats sequence {first} of a transaction that has "
                f"ended; {expected} is expected."
            )
        stored = _find(state, header)
        if stored is not None:
            return stored
        if _has_stored(state, first, header.last_sequence):
            raise DuplicateSequence(
                f"Producer {header.producer_id} repeats sequence {first}, which is already stored."
            )
        raise OutOfOrderSequence(
            f"Producer {header.producer_id} sent sequence {first}, but {expected} is expected."
        )

    def next_sequence(self, producer_id: int, epoch: int) -> int:
        """Return the next sequence number of a producer whose batches are built by the broker."""
        state = self._states.get(producer_id)
        if state is None or state.epoch != epoch or not state.batches:
            return 0
        return add_sequence(state.last_sequence, 1)

    def check_marker(self, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> None:
        """Refuse a marker of a fenced producer or of a fenced coordinator."""
        state = self._states.get(producer_id)
        if state is None:
            return
        if producer_epoch < state.epoch:
            raise _fenced(producer_id, producer_epoch, state.epoch)
        if coordinator_epoch < state.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"Coordinator epoch {coordinator_epoch} of producer {producer_id} is over; "
                f"{state.coordinator_epoch} has taken over."
            )

    def note_marker(self, header: BatchHeader, marker: Marker, *, now_ms: int) -> None:
        """Record the marker that ended a transaction; its epoch counts like that of a batch."""
        state = self._state_of(header, now_ms)
        state.last_ms = now_ms
        state.coordinator_epoch = marker.coordinator_epoch
        state.marker_offset = header.base_offset
        state.marker_ms = header.max_timestamp
        state.ended_sequence = state.last_sequence

    def note(self, header: BatchHeader, *, now_ms: int) -> None:
        """Record a batch that was written."""
        state = self._states.get(header.producer_id)
        if state is None or state.epoch != header.producer_epoch:
            state = self._state_of(header, now_ms)
        if header.base_sequence == NO_SEQUENCE:
            return
        state.last_ms = now_ms
        batches = state.batches
        if not batches:
            state.first_sequence = header.base_sequence
        batches.append(
            WrittenBatch(
                header.base_sequence,
                header.last_sequence,
                header.base_offset,
                header.last_offset,
                header.max_timestamp,
            )
        )
        if len(batches) > BATCHES_REMEMBERED:
            del batches[0]

    def _state_of(self, header: BatchHeader, now_ms: int) -> ProducerState:
        """Return the state for a batch; a new epoch starts without sequence numbers."""
        old = self._states.get(header.producer_id)
        if old is not None and old.epoch == header.producer_epoch:
            return old
        state = ProducerState(header.producer_id, header.producer_epoch, now_ms, [])
        if old is not None:
            state.coordinator_epoch = old.coordinator_epoch
            state.marker_offset = old.marker_offset
            state.marker_ms = old.marker_ms
        self._states[header.producer_id] = state
        return state

    def expire(
        self, *, before_ms: int, states_max: int, kept: Container[int] = frozenset()
    ) -> None:
        """Drop producers that are idle for long, and the oldest ones if there are too many.

        Those in `kept` stay: they have an open transaction.
        """
        ended = [one for one in self._states.values() if one.producer_id not in kept]
        for state in [one for one in ended if one.last_ms < before_ms]:
            del self._states[state.producer_id]
        excess = len(self._states) - states_max
        if excess > 0:
            silent = [one for one in ended if one.last_ms >= before_ms]
            for state in sorted(silent, key=lambda one: one.last_ms)[:excess]:
                del self._states[state.producer_id]

    def last_offsets(self) -> dict[int, int]:
        """Return the last offset of each producer's newest batch."""
        return {
            state.producer_id: state.batches[-1].last_offset
            for state in self._states.values()
            if state.batches
        }

    def marker_offsets(self) -> dict[int, int]:
        """Return the offset of the newest marker of each producer that has one."""
        return {
            state.producer_id: state.marker_offset
            for state in self._states.values()
            if state.marker_offset != NO_MARKER
        }

    def state(self) -> list[ProducerState]:
        """Return a copy, because a thread saves it while more batches arrive."""
        return [
            ProducerState(
                one.producer_id,
                one.epoch,
                one.last_ms,
                list(one.batches),
                one.coordinator_epoch,
                one.marker_offset,
                one.first_sequence,
                one.marker_ms,
                one.ended_sequence,
            )
            for one in self._states.values()
        ]


def _find(state: ProducerState, header: BatchHeader) -> WrittenBatch | None:
    first, last = header.base_sequence, header.last_sequence
    for batch in state.batches:
        if batch.first_sequence == first and batch.last_sequence == last:
            return batch
    return None


def _has_stored(state: ProducerState, first: int, last: int) -> bool:
    """Return whether a batch that is no longer remembered was stored here long ago.

    A batch before the first one seen here may have been lost or refused before later ones were
    stored. Reporting it as a duplicate would make its producer consider it stored.
    """
    if not state.batches or (state.last_sequence - last) & _SEQUENCE_MASK >= _SEQUENCES_HALF:
        return False
    so_far = (state.last_sequence - state.first_sequence) & _SEQUENCE_MASK
    return (first - state.first_sequence) & _SEQUENCE_MASK <= so_far


def _fenced(producer_id: int, epoch: int, current: int) -> FencedProducer:
    return FencedProducer(
        f"Producer {producer_id} writes with epoch {epoch}, but epoch {current} has taken over; "
        "stop this producer."
    )
