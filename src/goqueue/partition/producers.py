"""Which batches each idempotent producer has written here, so that a retry is not a second copy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from goqueue.model.batch import NO_SEQUENCE, BatchHeader, add_sequence
from goqueue.model.errors import DuplicateSequence, FencedProducer, OutOfOrderSequence

BATCHES_REMEMBERED = 5  # clients keep at most five requests in flight


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

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_timestamp(self) -> int:
        return self.batches[-1].timestamp_ms if self.batches else -1


class ProducersState(msgspec.Struct, array_like=True):
    """All producers as of the batch before `offset`."""

    offset: int
    producers: list[ProducerState]


class Producers:
    """The idempotent producers of one partition."""

    __slots__ = ("_states",)

    def __init__(self, states: list[ProducerState] | None = None) -> None:
        self._states = {state.producer_id: state for state in states or ()}

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[ProducerState]:
        return iter(self._states.values())

    def check(self, header: BatchHeader) -> WrittenBatch | None:
        """The earlier copy of this batch if it is a repetition; raise when it is out of turn."""
        state = self._states.get(header.producer_id)
        if state is None:
            # Its history may have been forgotten, so any sequence number may come first.
            return None
        if header.producer_epoch < state.epoch:
            raise FencedProducer(
                f"Producer {header.producer_id} writes with epoch {header.producer_epoch}, but "
                f"epoch {state.epoch} has taken over; stop this producer."
            )
        if header.producer_epoch > state.epoch:
            if header.base_sequence != 0:
                raise OutOfOrderSequence(
                    f"A new epoch of producer {header.producer_id} begins with sequence "
                    f"{header.base_sequence}; it must begin with 0."
                )
            return None
        first, last = header.base_sequence, header.last_sequence
        for batch in state.batches:
            if batch.first_sequence == first and batch.last_sequence == last:
                return batch
        expected = add_sequence(state.last_sequence, 1) if state.batches else first
        if first == expected:
            return None
        if state.batches and (state.last_sequence - last) & 0x7FFFFFFF < 1 << 30:
            raise DuplicateSequence(
                f"Producer {header.producer_id} repeats sequence {first}, stored long ago."
            )
        raise OutOfOrderSequence(
            f"Producer {header.producer_id} sends sequence {first}, but {expected} comes next."
        )

    def note(self, header: BatchHeader, *, now_ms: int) -> None:
        """Remember a batch that was written."""
        state = self._states.get(header.producer_id)
        if state is None or state.epoch != header.producer_epoch:
            state = ProducerState(header.producer_id, header.producer_epoch, now_ms, [])
            self._states[header.producer_id] = state
        if header.base_sequence == NO_SEQUENCE:
            return
        state.last_ms = now_ms
        batches = state.batches
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

    def expire(self, *, before_ms: int, states_max: int) -> None:
        """Forget producers that have been silent for long, and the most silent ones if too many."""
        for state in [one for one in self._states.values() if one.last_ms < before_ms]:
            del self._states[state.producer_id]
        excess = len(self._states) - states_max
        if excess > 0:
            for state in sorted(self._states.values(), key=lambda one: one.last_ms)[:excess]:
                del self._states[state.producer_id]

    def forget_from(self, offset: int) -> None:
        """Forget the batches that a truncation at `offset` takes away."""
        for state in list(self._states.values()):
            state.batches = [one for one in state.batches if one.last_offset < offset]
            if not state.batches:
                del self._states[state.producer_id]

    def last_offsets(self) -> dict[int, int]:
        """For each producer, the last offset of its newest batch."""
        return {
            state.producer_id: state.batches[-1].last_offset
            for state in self._states.values()
            if state.batches
        }

    def state(self, offset: int) -> ProducersState:
        """A copy, because a thread writes it down while more batches come."""
        states = [
            ProducerState(one.producer_id, one.epoch, one.last_ms, list(one.batches))
            for one in self._states.values()
        ]
        return ProducersState(offset, states)
