"""What clients wrote and read while nodes failed, and whether the two go together."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

MESSAGE_TIMEOUT_MS = 120_000
OUT_MAX = 1_000  # more than so many unanswered messages tell nothing more
PACE_SECONDS = 0.02
BATCH = 5

Place = tuple[int, int]  # partition, offset


@dataclass
class Verdict:
    """How many messages met which fate."""

    acked: int = 0
    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    disordered: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    hasty_acked: int = 0
    hasty_lost: int = 0  # allowed: acks=1 promises no more
    refused: int = 0

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.twice or self.disordered or self.changed or self.moved)

    def __str__(self) -> str:
        return (
            f"{self.acked} acknowledged by all, {len(self.lost)} lost, {len(self.twice)} twice, "
            f"{len(self.disordered)} out of order, {len(self.changed)} changed after they were "
            f"read, {len(self.moved)} elsewhere than acknowledged, {self.refused} refused; "
            f"{self.hasty_acked} acknowledged by the leader alone, {self.hasty_lost} of them lost"
        )


class Writer:
    """Writes numbered values to all partitions in turn, until told to stop."""

    def __init__(self, name: str, bootstrap: str, topic: str, partitions: int, **settings: object):
        self.name = name
        self.acked: dict[str, Place] = {}
        self.refused: list[KafkaError] = []
        self.acks_s: list[float] = []  # when
        self._topic = topic
        self._partitions = partitions
        self._out = 0
        self._stop = threading.Event()
        self.fatal: KafkaError | None = None
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "message.timeout.ms": MESSAGE_TIMEOUT_MS,
                "socket.timeout.ms": 5_000,
                "reconnect.backoff.max.ms": 500,
                "linger.ms": 2,
                "batch.num.messages": 20,
                "log_level": 0,
                **settings,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Wait for all answers; raise if the client has given up for another reason than its own.

        When a large batch is sent again, librdkafka may find a part of it waiting a little longer
        than the rest, and then ends itself: it cannot build the same batch any more.
        """
        self._stop.set()
        self._thread.join()
        if self.fatal is not None:
            assert self.fatal.code() == KafkaError._INCONSISTENT, self.fatal
            return
        unanswered = self._producer.flush(MESSAGE_TIMEOUT_MS / 1000)
        assert unanswered == 0, f"{unanswered} messages of {self.name} have no answer at all"

    def _run(self) -> None:
        try:
            self._write()
        except KafkaException as error:
            self.fatal = error.args[0]

    def _write(self) -> None:
        number = 0
        while not self._stop.is_set():
            for _ in range(BATCH if self._out < OUT_MAX else 0):
                partition = number % self._partitions
                value = f"{self.name}:{number}"
                self._out += 1
                self._producer.produce(
                    self._topic, value.encode(), partition=partition, on_delivery=self._done
                )
                number += 1
            # `poll` would return with the first answer, and writers would take all of the machine.
            self._stop.wait(PACE_SECONDS)
            self._producer.poll(0)

    def _done(self, error: KafkaError | None, message: Message) -> None:
        self._out -= 1
        if error is not None:
            self.refused.append(error)
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self.acked[_text(message)] = (partition, offset)
        self.acks_s.append(time.monotonic())


class Reader:
    """Reads everything from the beginning, on and on, and remembers where it saw what."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.seen: dict[Place, str] = {}
        self.disordered: list[str] = []
        self.changed: list[str] = []
        self._ends: dict[int, int] = {}
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "history",
                "enable.auto.commit": False,
                # A position that no leader knows is a loss; do not hide it by going elsewhere.
                "auto.offset.reset": "error",
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, one, 0) for one in range(partitions)])
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._consumer.close()

    def read_up_to(self, ends: dict[int, int], *, seconds_max: float) -> None:
        """Without `start`: read until these offsets."""
        deadline = time.monotonic() + seconds_max
        while any(self._ends.get(one, 0) < end for one, end in ends.items()):
            assert time.monotonic() < deadline, f"read up to {self._ends}, not up to {ends}"
            self._take(self._consumer.consume(1000, 0.5))

    def _run(self) -> None:
        while not self._stop.is_set():
            self._take(self._consumer.consume(500, 0.2))

    def _take(self, messages: Iterable[Message]) -> None:
        for message in messages:
            if message.error() is not None:
                self._note_error(message)
                continue
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            if offset < self._ends.get(partition, 0):
                self.disordered.append(f"{partition}/{offset} came after a later one")
            self._ends[partition] = max(self._ends.get(partition, 0), offset + 1)
            value = _text(message)
            if self.seen.setdefault((partition, offset), value) != value:
                self.changed.append(f"{partition}/{offset} is {value} now")

    def _note_error(self, message: Message) -> None:
        error = message.error()
        assert error is not None
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            self.changed.append(f"what was read of {message.partition()} is gone: {error.str()}")


def judge(writers: list[Writer], hasty: Writer, live: Reader, final: Reader) -> Verdict:
    """Compare what was acknowledged and what was read meanwhile with what is there in the end."""
    verdict = Verdict(
        acked=sum(len(writer.acked) for writer in writers),
        refused=sum(len(writer.refused) for writer in (*writers, hasty)),
        hasty_acked=len(hasty.acked),
        disordered=[*live.disordered, *final.disordered],
        changed=[*live.changed, *final.changed],
    )
    places = {value: place for place, value in final.seen.items()}
    counts = Counter(final.seen.values())
    verdict.hasty_lost = sum(value not in places for value in hasty.acked)
    for writer in writers:
        verdict.lost += [value for value in writer.acked if value not in places]
        verdict.moved += [
            value
            for value, place in writer.acked.items()
            if place[1] >= 0 and places.get(value, place) != place
        ]
        prefix = f"{writer.name}:"
        verdict.twice += [
            value for value, count in counts.items() if value.startswith(prefix) and count > 1
        ]
        verdict.disordered += _disordered(prefix, final)
    verdict.changed += [
        f"{place} was {value}, is {final.seen.get(place)}"
        for place, value in live.seen.items()
        if final.seen.get(place) != value
    ]
    return verdict


def _disordered(prefix: str, reader: Reader) -> list[str]:
    """What a writer sent earlier and is stored later, in one partition."""
    last: dict[int, int] = {}
    found = []
    for (partition, _), value in sorted(reader.seen.items()):
        if value.startswith(prefix):
            number = int(value.removeprefix(prefix))
            if number < last.get(partition, -1):
                found.append(value)
            last[partition] = number
    return found


def _text(message: Message) -> str:
    value = message.value()
    assert isinstance(value, bytes)
    return value.decode()
