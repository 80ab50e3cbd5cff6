"""A world in one thread: production code on a virtual clock and a disk that can lose power.

Everything random comes from the seed, so a failing seed replays exactly.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

from goqueue.broker import Broker
from goqueue.broker.topics.topics import Topic
from goqueue.config import Settings, load
from goqueue.loop.promise import Promise
from goqueue.model.batch import Record, decode_batch, encode_batch
from goqueue.model.errors import CorruptBatch, GoQueueError
from goqueue.model.observer import Observer
from goqueue.partition import Partition
from goqueue.wire.kafka.front_end import FrontEnd, Limits
from tests.simulation.clock import VirtualClock
from tests.simulation.disk import SimulatedDisk
from tests.simulation.kafka_peer import KafkaPeer

T = TypeVar("T")


class World:
    """One node, its disk, and the time it lives in."""

    def __init__(
        self,
        seed: int = 0,
        *,
        limits: Limits | None = None,
        observer: Observer | None = None,
        **settings: str,
    ) -> None:
        """Settings are given as `storage__fsync="none"`."""
        self._observer = observer
        self.seed = seed
        self.random = random.Random(seed)
        self.clock = VirtualClock(self.random)
        self.disk = SimulatedDisk(self.random)
        self.settings: Settings = load(
            environ={},
            overrides={name.replace("__", ".", 1): value for name, value in settings.items()},
        )
        self._limits = limits or Limits()
        self._watermarks: dict[tuple[bytes, int], int] = {}
        self._stable: dict[tuple[bytes, int], int] = {}
        self.start()

    def start(self) -> None:
        self._node = self.clock.node()
        self.broker = Broker(
            self.settings, self.disk, self._node, self.random, observer=self._observer
        )
        self.broker.open()
        self.front = FrontEnd(
            self.broker.local_gate, self._limits, advertised=lambda _: ("localhost", 9092)
        )
        self._watermarks.clear()
        self._stable.clear()

    def crash(self) -> None:
        """Cut the power. The node is gone, and of its unsynced writes whatever the seed says."""
        self._node.die()
        self.disk.crash()

    def kill(self) -> None:
        """Kill the process; the operating system still has everything that was written."""
        self._node.die()
        self.disk.life += 1

    def stop(self) -> None:
        """Stop cleanly."""
        done: list[bool] = []
        self.broker.close(lambda: done.append(True))
        self.clock.run_until(lambda: bool(done))
        self._node.die()
        self.disk.life += 1

    def peer(self, *, client_id: str = "peer") -> KafkaPeer:
        return KafkaPeer(self.front, lambda reached: self.run_until(reached), client_id=client_id)

    def run_for(self, ms: float) -> None:
        self.clock.run_for(ms)
        self.check_invariants()

    def run_until(self, is_reached: Callable[[], bool]) -> None:
        self.clock.run_until(is_reached, ms_max=60_000)
        self.check_invariants()

    def wait(self, promise: Promise[T]) -> T:
        """The value of a promise, when its time has come."""
        self.run_until(lambda: promise.is_done)
        outcome: list[tuple[T | None, Exception | None]] = []
        promise.then(lambda value, error: outcome.append((value, error)))
        value, error = outcome[0]
        if error is not None:
            raise error
        return value  # type: ignore[return-value]

    def check_invariants(self) -> None:
        """What must be true at every moment."""
        for topic in self.broker.topics:
            for number, partition in enumerate(topic.partitions):
                key = (topic.id, number)
                mark = partition.high_watermark
                assert mark >= self._watermarks.get(key, 0), f"seed {self.seed}: {key} went back"
                assert partition.start_offset <= mark <= partition.end_offset
                self._watermarks[key] = mark
                stable = partition.last_stable_offset
                assert stable >= self._stable.get(key, 0), f"seed {self.seed}: {key} is undecided"
                assert partition.start_offset <= stable <= mark
                self._stable[key] = stable

    # A client's work

    def create(self, name: str, partitions: int = 1, **settings: str) -> Topic:
        return self.wait(
            self.broker.topics.create(name, partition_count=partitions, settings=settings)
        )

    def append(
        self,
        partition: Partition,
        records: list[Record],
        acked: Callable[[GoQueueError | None], None],
        *,
        producer: tuple[int, int] = (-1, -1),
    ) -> None:
        """Send a batch; `acked` is told the outcome when there is one."""
        producer_id, sequence = producer
        batch = encode_batch(
            records,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
        )
        topic = self.broker.topics.get(partition.name.topic)
        try:
            appended = self.broker.producing.produce(topic, partition, memoryview(batch))
        except GoQueueError as error:
            acked(error)
            return
        partition.when_committed(appended.last_offset, acked)

    def produce(self, topic: str, values: list[str], *, partition: int = 0) -> None:
        """Send values, one batch each, and wait until all are acknowledged."""
        target = self.broker.topics.get(topic).partition(partition)
        outcomes: list[GoQueueError | None] = []
        for value in values:
            record = Record(None, value.encode(), timestamp_ms=self._node.now_ms())
            self.append(target, [record], outcomes.append)
        self.run_until(lambda: len(outcomes) == len(values))
        errors = [error for error in outcomes if error is not None]
        if errors:
            raise errors[0]

    def consume(self, topic: str, *, partition: int = 0, from_offset: int = 0) -> list[Record]:
        """All committed records of a partition.

        A power cut can leave a batch torn that was never acknowledged, between others that reached
        the disk. A reader is told so and where to go on; this one does.
        """
        target = self.broker.topics.get(topic).partition(partition)
        offset = max(from_offset, target.start_offset)
        records: list[Record] = []
        while offset < target.high_watermark:
            try:
                for header, batch in target.log.batches(offset, until_offset=target.high_watermark):
                    records += decode_batch(batch)
                    offset = header.next_offset
                break
            except CorruptBatch as error:
                if error.next_offset is None or error.next_offset <= offset:
                    raise
                offset = error.next_offset
        return records
