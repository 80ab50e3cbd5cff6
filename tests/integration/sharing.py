"""Share consumers (confluent-kafka), alone, side by side, or as processes that can be killed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from confluent_kafka import AcknowledgeType, KafkaException, Message, Producer, ShareConsumer

from tests.judge.asking import Asking
from tests.judge.share_cases import configure as change

from .process import END_WITH_US

POLL_SECONDS = 0.2
COMMIT_SECONDS = 30.0


def configure(bootstrap: str, group: str, **configs: str) -> None:
    """Set settings of a group, named with underscores for dots."""
    with Asking(bootstrap.split(",")[0]) as ask:
        got = change(ask, group, **configs)
        assert got == [0], got


def fill(bootstrap: str, topic: str, values: Sequence[str], *, partitions: int = 1) -> None:
    """Store values, spread over the partitions."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 2})
    for number, value in enumerate(values):
        producer.produce(
            topic,
            value.encode(),
            partition=number % partitions,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not failed


@contextmanager
def share_consumer(
    bootstrap: str, group: str, *topics: str, is_explicit: bool = True, **settings: object
) -> Iterator[ShareConsumer]:
    """A member of a share group. Its name has the settings of confluent-kafka, with underscores."""
    consumer = ShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "explicit" if is_explicit else "implicit",
            "reconnect.backoff.max.ms": 200,
            "log_level": 2,
        }
        | {name.replace("_", "."): value for name, value in settings.items()}
    )
    consumer.subscribe(list(topics))
    try:
        yield consumer
    finally:
        consumer.close()


def received(consumer: ShareConsumer) -> list[Message]:
    """Poll once; errors are those of the test, unless they pass."""
    return [one for one in consumer.poll(POLL_SECONDS) if one.error() is None]


def commit(consumer: ShareConsumer) -> None:
    """Commit what was acknowledged; nothing may fail."""
    outcomes = consumer.commit_sync(COMMIT_SECONDS)
    assert not [one for one in outcomes.values() if one is not None], outcomes


def text(message: Message) -> str:
    value = message.value()
    assert isinstance(value, bytes)
    return value.decode()


class Books:
    """What consumers were told, whatever becomes of the nodes."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.deliveries: Counter[str] = Counter()
        self.settled: Counter[str] = Counter()
        self.unanswered: set[str] = set()  # accepted, but nothing says whether the node knows
        self.refused: list[str] = []
        self.wrong: list[str] = []

    def deliver(self, values: Sequence[str]) -> None:
        """Note what came; nothing may that was settled before."""
        with self.lock:
            self.deliveries.update(values)
            again = [one for one in values if one in self.settled]
            self.wrong += [f"{one} came again after its acceptance was confirmed" for one in again]

    def ask(self, values: Sequence[str]) -> None:
        """Note that these are about to be accepted."""
        with self.lock:
            self.unanswered.update(values)

    def settle(self, values: Sequence[str]) -> None:
        with self.lock:
            self.settled.update(values)
            self.unanswered.difference_update(values)


Choose = Callable[[Message], int]


def accept(_: Message) -> int:
    return int(AcknowledgeType.ACCEPT)


class Workers:
    """Members of a share group that settle what they get until they are stopped."""

    def __init__(
        self, bootstrap: str, group: str, topic: str, *, count: int, choose: Choose = accept
    ) -> None:
        self.books = Books()
        self.by_worker: Counter[int] = Counter()
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, args=(number, bootstrap, group, topic, choose))
            for number in range(count)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)

    def _work(self, number: int, bootstrap: str, group: str, topic: str, choose: Choose) -> None:
        with share_consumer(bootstrap, group, topic) as consumer:
            while not self._over.is_set():
                try:
                    self._turn(number, consumer, choose)
                except KafkaException as error:
                    self.books.refused.append(str(error))

    def _turn(self, number: int, consumer: ShareConsumer, choose: Choose) -> None:
        messages = received(consumer)
        by_partition: dict[tuple[str, int], list[str]] = {}
        for message in messages:
            consumer.acknowledge(message, AcknowledgeType(choose(message)))
            place = (message.topic(), message.partition())
            by_partition.setdefault(place, []).append(text(message))
        self.books.deliver([text(one) for one in messages])
        self.by_worker[number] += len(messages)
        if not messages:
            return
        self.books.ask([text(one) for one in messages])
        for partition, error in consumer.commit_sync(COMMIT_SECONDS).items():
            if error is None:
                self.books.settle(by_partition.get((partition.topic, partition.partition), []))
            else:
                self.books.refused.append(str(error))


class Process:
    """A share consumer in a process of its own, which never acknowledges what it prints."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        command = [sys.executable, "-m", "tests.integration.sharing", bootstrap, group, topic]
        self._process = subprocess.Popen(
            [*END_WITH_US, *command], stdout=subprocess.PIPE, text=True
        )

    def read(self) -> Mapping[str, int]:
        """The first values that it gets, and how often each was delivered."""
        assert self._process.stdout is not None
        found: dict[str, int] = json.loads(self._process.stdout.readline())
        return found

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def main(bootstrap: str, group: str, topic: str) -> None:
    with share_consumer(bootstrap, group, topic) as consumer:
        messages: list[Message] = []
        while not messages:
            messages = received(consumer)
        found = {text(one): one.delivery_count() for one in messages}
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
