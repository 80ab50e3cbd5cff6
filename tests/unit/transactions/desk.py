"""A coordinator with a log, a clock, participants and waiting callers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from goqueue.config import TransactionSettings
from goqueue.model.errors import CoordinatorNotAvailable, GoQueueError
from goqueue.model.names import ProducerIdentity, TopicPartition
from goqueue.transactions import (
    Coordinator,
    Effect,
    End,
    Initialise,
    Persist,
    Reply,
    TransactionState,
    TransactionView,
    WriteMarkers,
)

NAME = "shop"
TIMEOUT_MS = 60_000
ORDERS = TopicPartition("orders", 0)
BILLS = TopicPartition("bills", 3)


@dataclass
class Answer:
    """What a call will be told."""

    is_waiting: bool = True
    result: Any = None

    @property
    def error(self) -> type[GoQueueError] | None:
        return type(self.result) if isinstance(self.result, GoQueueError) else None


class Desk:
    def __init__(self, settings: TransactionSettings | None = None) -> None:
        self.settings = settings or TransactionSettings()
        self.now_ms = 1_000_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.unwritten: list[Persist] = []
        self.is_disk_slow = False
        self.unmarked: list[WriteMarkers] = []
        self.are_markers_slow = False
        self.marked: list[tuple[TopicPartition, ProducerIdentity, bool]] = []
        self._next_producer_id = 100
        self.restart()

    # Time, disk, participants

    def restart(self) -> None:
        """Crash, and load what the log holds."""
        self.unwritten.clear()
        self.unmarked.clear()
        self.coordinator = Coordinator(self.settings)
        for key, value in self.log:
            self.coordinator.replay(key, value)
        self._perform(self.coordinator.loaded(self.now_ms))

    def wait(self, ms: int) -> None:
        until_ms = self.now_ms + ms
        while (due_ms := self.coordinator.next_deadline_ms()) is not None and due_ms <= until_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self._perform(self.coordinator.tick(self.now_ms))
        self.now_ms = until_ms

    def finish_writes(self) -> None:
        while self.unwritten:
            self._write(self.unwritten.pop(0))

    def fail_write(self) -> None:
        write = self.unwritten.pop(0)
        error = CoordinatorNotAvailable("The disk is full.")
        self._perform(self.coordinator.persist_failed(write.write_id, error, self.now_ms))

    def finish_markers(self) -> None:
        while self.unmarked:
            self._mark(self.unmarked.pop(0))

    def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                assert isinstance(effect.token, Answer)
                assert effect.token.is_waiting, "a call is answered once"
                effect.token.is_waiting, effect.token.result = False, effect.result
            elif isinstance(effect, WriteMarkers):
                self.unmarked.append(effect)
                if not self.are_markers_slow:
                    self.finish_markers()
            elif self.is_disk_slow:
                self.unwritten.append(effect)
            else:
                self._write(effect)

    def _write(self, write: Persist) -> None:
        self.log.append((write.key, write.value))
        self._perform(self.coordinator.persisted(write.write_id, self.now_ms))

    def _mark(self, effect: WriteMarkers) -> None:
        for partition in effect.partitions:
            self.marked.append((partition, effect.identity, effect.is_commit))
            self._perform(
                self.coordinator.marked(
                    effect.transactional_id, effect.identity, partition, self.now_ms
                )
            )

    # Calls

    def ask(self, name: str, *args: Any) -> Answer:
        answer = Answer()
        try:
            call = getattr(self.coordinator, name)
            self._perform(call(*args, token=answer, now_ms=self.now_ms))
        except GoQueueError as error:
            answer.is_waiting, answer.result = False, error
        return answer

    def ask_initialise(
        self, identity: ProducerIdentity | None = None, *, timeout_ms: int = TIMEOUT_MS
    ) -> Answer:
        self._next_producer_id += 1
        call = Initialise(
            transactional_id=NAME,
            timeout_ms=timeout_ms,
            identity=identity,
            new_producer_id=self._next_producer_id,
        )
        return self.ask("initialise", call)

    def initialise(self, identity: ProducerIdentity | None = None) -> ProducerIdentity:
        answer = self.ask_initialise(identity)
        assert isinstance(answer.result, ProducerIdentity), answer
        return answer.result

    def add(self, identity: ProducerIdentity, *partitions: TopicPartition) -> Answer:
        return self.ask("add_partitions", NAME, identity, partitions)

    def end(
        self,
        identity: ProducerIdentity,
        *,
        is_commit: bool = True,
        bumps_epoch: bool = False,
        waits: bool = False,
    ) -> Answer:
        self._next_producer_id += 1
        call = End(
            transactional_id=NAME,
            identity=identity,
            is_commit=is_commit,
            bumps_epoch=bumps_epoch,
            waits=waits,
            new_producer_id=self._next_producer_id,
        )
        return self.ask("end", call)

    def begin(self, *partitions: TopicPartition) -> ProducerIdentity:
        """A producer with an open transaction."""
        identity = self.initialise()
        assert self.add(identity, *(partitions or (ORDERS, BILLS))).error is None
        return identity

    def refusal(
        self, identity: ProducerIdentity, partition: TopicPartition = ORDERS
    ) -> type[GoQueueError] | None:
        error = self.coordinator.verify(NAME, identity, partition)
        return None if error is None else type(error)

    @property
    def view(self) -> TransactionView:
        return self.coordinator.describe(NAME)

    @property
    def state(self) -> TransactionState:
        return self.view.state
