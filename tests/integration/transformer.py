"""A process that consumes, transforms and produces in transactions, and may be killed at any time.

    python -m tests.integration.transformer ADDRESS SOURCE TARGET GROUP TRANSACTIONAL_ID SEED

Whatever it cannot put right itself ends it, and whoever started it starts another.
"""

from __future__ import annotations

import faulthandler
import random
import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

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
        self._has_moved = False
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
            [source], on_assign=self._moved, on_revoke=self._moved, on_lost=self._moved
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

    def _moved(self, _: Consumer, __: list[TopicPartition]) -> None:
        self._has_moved = True

    def _gather(self) -> list[Message]:
        """Some messages; none if partitions came or went, for then some are another's now."""
        self._has_moved = False
        batch: list[Message] = []
        until = time.monotonic() + GATHER_SECONDS
        while len(batch) < BATCH and time.monotonic() < until:
            message = self._consumer.poll(GATHER_SECONDS)
            if message is not None and message.error() is None:
                batch.append(message)
        if self._has_moved:
            self._rewind()
            return []
        return batch

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
        for place in self._consumer.committed(self._consumer.assignment(), CALL_SECONDS):
            if place.offset < 0:
                place.offset = OFFSET_BEGINNING
            self._consumer.seek(place)


if __name__ == "__main__":
    *names, seed = sys.argv[1:]
    Transformer(*names, seed=int(seed)).run()
