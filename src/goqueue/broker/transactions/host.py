"""A transaction coordinator with its partition: replay, writes and markers."""

from __future__ import annotations

import logging
from functools import partial
from itertools import count

from goqueue.broker.shards.shards import MachineShard
from goqueue.broker.transactions.markers import Ending, Markers
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise
from goqueue.model.batch import BatchHeader, Record, decode_batch, encode_batch
from goqueue.model.errors import CoordinatorNotAvailable, GoQueueError, NotEnoughReplicas
from goqueue.model.names import TopicPartition
from goqueue.partition import Partition
from goqueue.transactions import Coordinator, Effect, Persist, Reply, WriteMarkers

RETRY_MS = 200  # how soon to check again whether enough replicas have what was written

# A key that no transaction uses. A record under it proves only that this node can still write.
_PROOF_KEY = b"\x00\x00"

_log = logging.getLogger(__name__)


class TransactionShard(MachineShard[Coordinator]):
    """One transaction coordinator with its partition of the state topic."""

    def __init__(
        self, clock: Clock, partition: Partition, coordinator: Coordinator, markers: Markers
    ) -> None:
        super().__init__(clock, partition, coordinator)
        # Partitions fence the markers of earlier coordinators by this epoch.
        self.epoch = partition.leader_epoch
        self._markers = markers
        self._turns = count(1)

    def _replay(self, header: BatchHeader, batch: bytes) -> None:
        for record in decode_batch(batch):
            self.machine.replay(record.key or b"", record.value)

    def start_when_committed(self) -> None:
        """Continue with earlier decisions as soon as all that was replayed is committed.

        A previous leader may have written the end of the log and failed before it was committed.
        Acting on a decision that is then lost would commit a transaction in one place and abort it
        in another.
        """

        def committed(error: GoQueueError | None) -> None:
            if self.is_closed:
                return
            if error is None:
                self.perform(self.machine.loaded(self._clock.now_ms()))
                return
            _log.warning("%s: its transactions have to wait: %s", self._partition.name, error)
            self._clock.call_later(RETRY_MS, self.start_when_committed)

        self._partition.when_committed(self._partition.end_offset - 1, committed)

    def prove(self) -> Promise[None]:
        """Resolves when it is certain that no other node coordinated at the time of this call."""
        proved: Promise[None] = Promise()
        now_ms = self._clock.wall_ms()
        batch = encode_batch([Record(_PROOF_KEY, None, timestamp_ms=now_ms)])
        try:
            appended = self._partition.write(memoryview(batch), now_ms=now_ms)
        except GoQueueError as error:
            proved.reject(error)
            return proved
        self._partition.when_committed(
            appended.last_offset, lambda error: proved.settle(None, error)
        )
        return proved

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Reply):
            self._reply(effect.token, effect.result)
        elif isinstance(effect, Persist):
            self._persist(effect)
        else:
            self._write_markers(effect)

    def _persist(self, effect: Persist) -> None:
        now_ms = self._clock.wall_ms()
        batch = encode_batch([Record(effect.key, effect.value, timestamp_ms=now_ms)])
        partition = self._partition
        try:
            refusal = partition.failure or partition.shortage
            if refusal is not None:
                raise refusal
            appended = partition.write(memoryview(batch), now_ms=now_ms)
        except GoQueueError as error:
            # Not immediately: the caller is still carrying out other effects.
            self._clock.call_soon(partial(self._persisted, effect, -1, error))
        else:
            committed = partial(self._persisted, effect, appended.last_offset)
            partition.when_committed(appended.last_offset, committed)

    def _persisted(self, effect: Persist, offset: int, error: GoQueueError | None) -> None:
        if self.is_closed:
            return
        now_ms = self._clock.now_ms()
        if error is None:
            self.perform(self.machine.persisted(effect.write_id, now_ms))
        elif offset >= 0 and isinstance(error, NotEnoughReplicas):
            # It is in the log, and will be committed when there are enough replicas again. Until
            # then, or until another node coordinates, its outcome is undetermined.
            again = partial(self._persisted, effect, offset)
            self._clock.call_later(RETRY_MS, partial(self._partition.when_committed, offset, again))
        else:
            answer = CoordinatorNotAvailable(f"The transaction could not be stored: {error}")
            self.perform(self.machine.persist_failed(effect.write_id, answer, now_ms))

    def _write_markers(self, effect: WriteMarkers) -> None:
        turn = next(self._turns)
        for name in effect.partitions:
            self._markers.drive(
                name,
                Ending(effect.identity, effect.is_commit, self.epoch, turn),
                done=partial(self._marked, effect, name),
                is_over=lambda: self.is_closed,
            )

    def _marked(self, effect: WriteMarkers, name: TopicPartition) -> None:
        if self.is_closed:
            return
        now_ms = self._clock.now_ms()
        self.perform(self.machine.marked(effect.transactional_id, effect.identity, name, now_ms))
