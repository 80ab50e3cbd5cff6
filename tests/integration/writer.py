"""An idempotent producer of numbered messages, for nodes that come and go under it."""

from __future__ import annotations

from confluent_kafka import KafkaError, Message, Producer

from .topics import read_all

FINISH_SECONDS_MAX = 110


class Writer:
    """Writes to every partition in turn, and remembers what was sent and acknowledged."""

    def __init__(self, bootstrap: str, topic: str, *, partitions: int, value_bytes: int) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 1000 * FINISH_SECONDS_MAX,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.max.ms": 200,
                "log_level": 2,  # a lost connection is the story here, not news
            }
        )
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._value_bytes = value_bytes
        self._sent = 0
        self.acknowledged = 0
        self.errors: list[KafkaError] = []

    def write(self, count: int) -> None:
        """Write on, without waiting for what was sent before."""
        for number in range(self._sent, self._sent + count):
            self._put(number)
        self._sent += count

    def write_until_acknowledged(self, count: int) -> None:
        """Keep writing until that many more messages are acknowledged."""
        wanted = self.acknowledged + count
        while self.acknowledged < wanted:
            self.write(50)
            self._producer.poll(0.01)
            assert not self.errors, self.errors[0]

    def finish(self) -> None:
        """Wait until everything is acknowledged."""
        assert self._producer.flush(FINISH_SECONDS_MAX) == 0
        assert not self.errors, self.errors[0]
        assert self.acknowledged == self._sent

    def assert_all_there_once_in_order(self) -> None:
        """Each partition holds exactly what was sent to it."""
        found: dict[int | None, list[int]] = {part: [] for part in range(self._partitions)}
        for message in read_all(self._bootstrap, self._topic, partitions=self._partitions):
            found[message.partition].append(int(message.value or b"-1"))
        for partition in range(self._partitions):
            # A list of a million numbers makes no readable difference, so compare step by step.
            expected = list(range(partition, self._sent, self._partitions))
            assert len(found[partition]) == len(expected), f"partition {partition}"
            assert found[partition] == expected, f"partition {partition} is out of order"

    def _put(self, number: int) -> None:
        value = b"%d" % number
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value.rjust(self._value_bytes, b"0"),
                    partition=number % self._partitions,
                    on_delivery=self._on_delivery,
                )
            except BufferError:
                self._producer.poll(0.1)
            else:
                break
        if number % 200 == 0:
            self._producer.poll(0)

    def _on_delivery(self, error: KafkaError | None, _: Message) -> None:
        if error:
            self.errors.append(error)
        else:
            self.acknowledged += 1
