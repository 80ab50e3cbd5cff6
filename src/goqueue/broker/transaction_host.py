"""A coordinator of transactions with its partition: reading it, writing it, waking it."""

from __future__ import annotations

from functools import partial

from goqueue.broker.alarm import Alarm
from goqueue.broker.own_records import readable_batches
from goqueue.broker.promise import Promise
from goqueue.broker.scheduler import Scheduler
from goqueue.broker.transaction_markers import Markers
from goqueue.model.batch import Record, decode_batch, encode_batch
from goqueue.model.errors import CoordinatorNotAvailable, GoQueueError
from goqueue.model.names import TopicPartition
from goqueue.partition import Partition
from goqueue.transactions import Coordinator, Effect, Persist, Reply, WriteMarkers


class HostedCoordinator:
    def __init__(
        self,
        scheduler: Scheduler,
        partition: Partition,
        coordinator: Coordinator,
        markers: Markers,
    ) -> None:
        self.coordinator = coordinator
        self._scheduler = scheduler
        self._partition = partition
        self._markers = markers
        self._alarm = Alarm(
            scheduler,
            name=str(partition.name),
            next_deadline_ms=coordinator.next_deadline_ms,
            ring=lambda now_ms: self.perform(coordinator.tick(now_ms)),
        )

    def read(self) -> None:
        """Replay the partition. It is compacted, so it is about as large as the state it holds."""
        for _, batch in readable_batches(self._partition, name="transaction state"):
            for record in decode_batch(batch):
                self.coordinator.replay(record.key or b"", record.value)

    def begin(self) -> None:
        """Carry on with what was decided before."""
        self.perform(self.coordinator.loaded(self._scheduler.now_ms()))

    def perform(self, effects: list[Effect]) -> None:
        """Carry out what the coordinator wants done, then set the alarm for its next deadline."""
        for effect in effects:
            if isinstance(effect, Reply):
                token, result = effect.token, effect.result
                assert isinstance(token, Promise)
                if isinstance(result, GoQueueError):
                    token.reject(result)
                else:
                    token.resolve(result)
            elif isinstance(effect, Persist):
                self._persist(effect)
            else:
                self._write_markers(effect)
        self._alarm.set()

    def _persist(self, effect: Persist) -> None:
        now_ms = self._scheduler.now_ms()
        batch = encode_batch([Record(effect.key, effect.value, timestamp_ms=now_ms)])

        def committed(error: GoQueueError | None) -> None:
            now_ms = self._scheduler.now_ms()
            if error is None:
                self.perform(self.coordinator.persisted(effect.write_id, now_ms))
            else:
                answer = CoordinatorNotAvailable(f"The transaction could not be stored: {error}")
                self.perform(self.coordinator.persist_failed(effect.write_id, answer, now_ms))

        partition = self._partition
        try:
            if partition.failure is not None:
                raise partition.failure
            appended = partition.write(memoryview(batch), now_ms=now_ms)
        except GoQueueError as error:
            # Not at once: the caller is still carrying out other effects.
            self._scheduler.call_soon(partial(committed, error))
        else:
            partition.when_committed(appended.last_offset, committed)

    def _write_markers(self, effect: WriteMarkers) -> None:
        for name in effect.partitions:
            self._markers.drive(
                name,
                effect.identity,
                is_commit=effect.is_commit,
                coordinator_epoch=self._partition.leader_epoch,
                done=partial(self._marked, effect, name),
            )

    def _marked(self, effect: WriteMarkers, name: TopicPartition) -> None:
        now_ms = self._scheduler.now_ms()
        self.perform(
            self.coordinator.marked(effect.transactional_id, effect.identity, name, now_ms)
        )
