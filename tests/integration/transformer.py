"""A process that consumes, transforms and produces in transactions, and may be killed at any time.

    python -m tests.integration.transformer ADDRESS SOURCE TARGET GROUP TRANSACTIONAL_ID SEED

Whatever it cannot put right itself ends it, and whoever started it starts another.

It reads the committed offsets itself and assigns every partition with a number to start at. When
librdkafka 2.16 looks them up, it can deliver messages twice although all responses are correct:

- A response to ListOffsets that arrives after a `seek` starts a timer. 500 ms later the partition
  is reset to `auto.offset.reset`, whatever has been read and committed in the meantime.
- If OffsetFetch returns UNSTABLE_OFFSET_COMMIT and the group rebalances before the retry, the
  partition is treated as one without a committed offset.
"""

from __future__ import annotations

import faulthandler
import random
import sys
import time

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from .transacting import READ_COMMITTED, transactional

BATCH = 50
GATHER_SECONDS = 0.1
CALL_SECONDS = 30
TIMEOUT_MS = 5_000
SESSION_MS = 3_000
# After a restart of its broker, librdkafka sometimes waits for ever in the midst of
# `send_offsets_to_transaction`, without asking the broker anything. Nothing but an end helps.
STALL_SECONDS_MAX = 10
REGRET = 0.1  # how often a transaction is aborted for no reason at all
TARGET_PARTITIONS = 3


class Transformer:
    """One consumer and one producer, joined by their transactions."""

    def __init__(
        self, bootstrap: str, source: str, target: str, group: str, transactional_id: str, seed: int
    ) -> None:
        self._target = target
        self._random = random.Random(seed)
        self._batch: list[Message] = []
        self._producer = transactional(
            bootstrap, transactional_id, transaction_timeout_ms=TIMEOUT_MS
        )
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 500,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": READ_COMMITTED,
                "reconnect.backoff.max.ms": 200,
                "log_level": 2,
            }
        )
        self._consumer.subscribe(
            [source], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def run(self) -> None:
        while True:
            faulthandler.dump_traceback_later(STALL_SECONDS_MAX, exit=True)
            batch = self._gather()
            if not batch:
                continue
            self._producer.begin_transaction()
            try:
                self._transform(batch)
                if self._random.random() < REGRET:
                    self._back_out()
                else:
                    self._commit()
            except KafkaException as error:
                if error.args[0].fatal():
                    raise
                self._back_out()

    def _assigned(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        self._batch.clear()
        consumer.assign(self._committed(places))

    def _revoked(self, _: Consumer, __: list[TopicPartition]) -> None:
        """Drop what was gathered: a rebalance revokes every partition and assigns them again."""
        self._batch.clear()

    def _gather(self) -> list[Message]:
        """Some messages of the partitions that are assigned at the end."""
        self._batch.clear()
        until = time.monotonic() + GATHER_SECONDS
        while len(self._batch) < BATCH and time.monotonic() < until:
            message = self._consumer.poll(GATHER_SECONDS)
            if message is not None and message.error() is None:
                self._batch.append(message)
        return self._batch

    def _transform(self, batch: list[Message]) -> None:
        offsets: dict[tuple[str, int], int] = {}
        for message in batch:
            place = message.topic(), message.partition()
            offsets[place] = message.offset() + 1
            number = int(message.value())
            self._producer.produce(
                self._target, b"%d" % number, partition=number % TARGET_PARTITIONS
            )
        self._producer.send_offsets_to_transaction(
            [TopicPartition(*place, offset) for place, offset in offsets.items()],
            self._consumer.consumer_group_metadata(),
            CALL_SECONDS,
        )

    def _commit(self) -> None:
        while True:
            try:
                self._producer.commit_transaction(CALL_SECONDS)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                return

    def _back_out(self) -> None:
        self._producer.abort_transaction(CALL_SECONDS)
        self._rewind()

    def _rewind(self) -> None:
        """Go on from what is committed, and not from what was read."""
        for place in self._committed(self._consumer.assignment()):
            self._consumer.seek(place)

    def _committed(self, places: list[TopicPartition]) -> list[TopicPartition]:
        """These partitions with their committed offsets; 0 if there is none."""
        found = self._consumer.committed(places, CALL_SECONDS)
        for place in found:
            if place.error is not None:
                raise KafkaException(place.error)
            place.offset = max(place.offset, 0)
        return found


if __name__ == "__main__":
    *names, seed = sys.argv[1:]
    Transformer(*names, seed=int(seed)).run()
