"""Reads whole topics as Kafka clients do: all the time, and once more in the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

Place = tuple[str, int, int]  # topic, partition, offset


class TopicReader:
    """Reads topics from their beginning, and remembers where and when it first saw what."""

    def __init__(
        self, bootstrap: str, topics: Mapping[str, int], isolation: str, now: Callable[[], float]
    ) -> None:
        self.places: dict[Place, str] = {}
        self.seen: dict[str, float] = {}
        self.wrong: list[str] = []
        self._partitions = [(topic, one) for topic, count in topics.items() for one in range(count)]
        self._ends: dict[tuple[str, int], int] = {}
        self._now = now
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "history",
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                # A position that no leader knows is a loss; do not hide it by going elsewhere.
                "auto.offset.reset": "error",
                "reconnect.backoff.max.ms": 500,
                "fetch.wait.max.ms": 200,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(*one, 0) for one in self._partitions])
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._consumer.close()

    def read_to_the_end(self, *, seconds_max: float) -> str:
        """Without `start`: read all there is; what could not be read in time."""
        deadline = time.monotonic() + seconds_max
        wanted = {one: self._end_of(one, deadline) for one in self._partitions}
        while left := [one for one, end in wanted.items() if self._ends.get(one, 0) < end]:
            if time.monotonic() > deadline:
                return ", ".join(
                    f"{one[0]}/{one[1]} read to {self._ends.get(one, 0)} of {wanted[one]}"
                    for one in left
                )
            self._take(self._consumer.consume(1000, 0.5))
        return ""

    def values(self, topic: str) -> dict[int, list[str]]:
        """What each partition of a topic holds, in order."""
        found: dict[int, list[str]] = {one: [] for name, one in self._partitions if name == topic}
        for (name, partition, _), value in sorted(self.places.items()):
            if name == topic:
                found[partition].append(value)
        return found

    def _end_of(self, partition: tuple[str, int], deadline: float) -> int:
        left = max(1.0, deadline - time.monotonic())
        _, end = self._consumer.get_watermark_offsets(TopicPartition(*partition), timeout=left)
        return int(end)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._take(self._consumer.consume(500, 0.2))

    def _take(self, messages: list[Message]) -> None:
        now = self._now()
        for message in messages:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None
            assert partition is not None
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                if error.code() == KafkaError._AUTO_OFFSET_RESET:
                    self.wrong.append(f"what was read of {topic}/{partition} is gone: {error}")
                continue
            assert offset is not None
            key = (topic, partition)
            if error is not None:
                self._ends[key] = max(offset, self._ends.get(key, 0))
                continue
            if offset < self._ends.get(key, 0):
                self.wrong.append(f"{topic}/{partition}: {offset} came after a later one")
            self._ends[key] = max(self._ends.get(key, 0), offset + 1)
            value = (message.value() or b"").decode()
            self.seen.setdefault(value, now)
            if self.places.setdefault((topic, partition, offset), value) != value:
                self.wrong.append(f"{topic}/{partition}: {offset} is {value} now")
