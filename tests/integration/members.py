"""Members of a consumer group that live side by side: confluent-kafka, one thread each."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import Future
from queue import SimpleQueue
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaException, TopicPartition

from .clients import Message, from_confluent
from .waiting import eventually

Partitions = frozenset[tuple[str, int]]

CLASSIC: dict[str, object] = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 200}
EAGER = CLASSIC | {"partition.assignment.strategy": "range"}
COOPERATIVE = CLASSIC | {"partition.assignment.strategy": "cooperative-sticky"}
NEW_PROTOCOL: dict[str, object] = {"group.protocol": "consumer"}


class Member:
    """A consumer that keeps polling, and remembers what it was given and what it read."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topics: Iterable[str],
        protocol: dict[str, object],
        **settings: object,
    ) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "reconnect.backoff.max.ms": 200,
                "log_level": 2,  # a lost connection is part of some stories, not news
                # A pattern finds new topics when the client next refreshes its metadata.
                "topic.metadata.refresh.interval.ms": 500,
            }
            | protocol
            | named
        )
        self._is_cooperative = protocol is not EAGER
        self.assignment: Partitions = frozenset()
        self.assignments: list[Partitions] = []  # after every change
        self.revoked: list[Partitions] = []
        self.member_id = ""  # the name the coordinator knows this member by
        self.messages: list[Message] = []
        self.errors: list[str] = []
        self._commits: SimpleQueue[Future[object]] = SimpleQueue()
        self._is_running = True
        self._consumer.subscribe(list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leave()

    @property
    def partitions(self) -> set[int]:
        """The partitions held now, when one topic is all there is."""
        return {partition for _, partition in self.assignment}

    def leave(self) -> None:
        """Stop polling and close the consumer, which tells the group."""
        if self._is_running:
            self._is_running = False
            self._thread.join(30)
            self._consumer.close()

    def commit(self) -> None:
        """Commit all that was read, and wait for the answer."""
        # librdkafka's consumer belongs to the thread that polls it.
        done: Future[object] = Future()
        self._commits.put(done)
        done.result(30)

    def _run(self) -> None:
        while self._is_running:
            while not self._commits.empty():
                self._commits.get().set_result(self._consumer.commit(asynchronous=False))
            try:
                record = self._consumer.poll(0.05)
            except KafkaException as problem:
                self.errors.append(str(problem))
                continue
            if record is None:
                continue
            if record.error():
                self.errors.append(str(record.error()))
            else:
                self.messages.append(from_confluent(record))

    def _on_assign(self, consumer: Consumer, given: list[TopicPartition]) -> None:
        self.member_id = consumer.memberid()
        self._now_holds(self._held_with(given))

    def _on_revoke(self, _: Consumer, taken: list[TopicPartition]) -> None:
        gone = _names(taken)
        self.revoked.append(gone)
        self._now_holds(self.assignment - gone)

    def _held_with(self, given: list[TopicPartition]) -> Partitions:
        return self.assignment | _names(given) if self._is_cooperative else _names(given)

    def _now_holds(self, partitions: Partitions) -> None:
        self.assignment = partitions
        self.assignments.append(partitions)


def share(members: Iterable[Member], topic: str, partitions: int) -> bool:
    """Whether the members hold all partitions of the topic, each once, and nobody has none."""
    held = [member.assignment for member in members]
    together = [name for each in held for name in each]
    everything = {(topic, partition) for partition in range(partitions)}
    return all(held) and len(together) == partitions and set(together) == everything


def settle(members: Iterable[Member], topic: str, partitions: int) -> None:
    """Wait until the members share the topic among themselves."""
    everyone = list(members)
    eventually(
        lambda: share(everyone, topic, partitions),
        because=f"{len(everyone)} members share {partitions} partitions",
    )


def _names(partitions: list[TopicPartition]) -> Partitions:
    return frozenset((each.topic, each.partition) for each in partitions)
