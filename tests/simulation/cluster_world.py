"""Whole brokers in a cluster: production code on a virtual clock, disks and a network that fail."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TypeVar

from goqueue.broker import Broker
from goqueue.config import load
from goqueue.loop.promise import Promise
from goqueue.model.batch import Record, decode_batch, encode_batch
from goqueue.model.errors import GoQueueError
from goqueue.model.observer import Observer
from goqueue.model.support import SUPPORT, Support
from goqueue.partition import Appended, Partition
from tests.simulation.clock import START_MS, VirtualClock
from tests.simulation.cluster_watch import Watch
from tests.simulation.disk import PowerLost, SimulatedDisk
from tests.simulation.network import Network

T = TypeVar("T")

TICK_MS = 50  # between two looks at what must always be true

NODE_SETTINGS = {
    "groups.offsets_partitions": "3",
    "transactions.state_partitions": "2",
    "delivery.partitions": "2",
    "schedules.partitions": "2",
    "cluster.heartbeat_ms": "200",
    "cluster.session_ms": "1000",
    "replication.lag_ms": "2000",
    "replication.retry_ms": "100",
}


class ClusterNode:
    """One life after the other of a node."""

    def __init__(self, world: ClusterWorld, number: int, disk: SimulatedDisk | None = None) -> None:
        """Start a node of the world, with an empty disk or one that somebody has used before."""
        self.world = world
        self.number = number
        self.disk = disk or SimulatedDisk(world.random)
        self.is_up = False
        self.is_rotten = False  # bits of its disk have flipped
        # What of its copies was durable when its power failed last. The rest may have holes.
        self.durable: dict[tuple[str, int], int] = {}
        self._crash_at: int | None = None  # the operation of its disk before which power fails
        self._is_performing = False
        self.life = 0
        self._has_broker = False  # in this life
        world.nodes[number] = self
        self.start()

    def start(self) -> None:
        world = self.world
        self.is_up, self._has_broker = True, False
        self.life += 1
        self.clock = world.clock.node(skew_ms=world.random.randint(-3000, 3000))
        self.clock.extra_ms = self.disk.take_delay_ms
        self.clock.perform = self._perform
        self._perform(self._open)

    def _open(self) -> None:
        world = self.world
        settings = load(
            environ={},
            overrides={
                **NODE_SETTINGS,
                **world.settings,
                "node.id": str(self.number),
                "cluster.peers": world.peers,
            },
        )
        self.broker = Broker(
            settings,
            self.disk,
            self.clock,
            world.random,
            peers=world.network.join(
                self.number, self.clock, world.supports.get(self.number, SUPPORT)
            ),
            addresses=lambda: {
                "internal": f"node-{self.number}:7000",
                "kafka": f"node-{self.number}:9092",
            },
            observer=world.observers.get(self.number),
        )
        self._has_broker = True
        self.broker.open()

    def kill(self) -> None:
        """Kill the process; the operating system still has everything that was written."""
        self._die()
        self.world.network.end(self.number)
        self.disk.life += 1
        self.disk.fail_syncs(0)

    def crash_after(self, operations: int | None) -> None:
        """Cut the power after so many more operations of the disk, in the middle of what the node
        does then, be it its start."""
        self._crash_at = None if operations is None else self.disk.operations + operations

    def _perform(self, action: Callable[[], T]) -> T | None:
        """Do something that this node does, up to where its power fails."""
        if self._crash_at is None or self._is_performing:
            return action()
        self._is_performing = True
        self.disk.crash_at(max(0, self._crash_at - self.disk.operations))
        try:
            return action()
        except PowerLost:
            self.crash()
            return None
        finally:
            self._is_performing = False
            self.disk.crash_at(None)

    def crash(self) -> None:
        """Cut the power."""
        self._note_durable()
        self._die()
        self.world.network.leave(self.number)
        self.disk.crash()

    def _note_durable(self) -> None:
        for topic in self.broker.topics if self._has_broker else ():
            for number, partition in enumerate(topic.partitions):
                if self.broker.topics.keeps(partition):
                    _, whole = partition.replica.whole_until
                    durable = partition.replica.durable_offset
                    self.durable[topic.name, number] = min(whole, durable)

    def _die(self) -> None:
        self.is_up = False
        self._crash_at = None
        self.disk.crash_at(None)
        self.clock.die()

    @property
    def is_paused(self) -> bool:
        return self.is_up and self.clock.is_paused

    def pause(self) -> None:
        """Stop the process for a while; it keeps its memory and its beliefs."""
        self.clock.pause()

    def resume(self) -> None:
        if self.is_paused:
            self.clock.resume()

    def leads(self, topic: str, number: int = 0) -> bool:
        """Whether this node believes that it leads a partition."""
        found, cluster = self.broker.topics.find(topic), self.broker.cluster
        assert cluster is not None
        return found is not None and cluster.replicas.leads(found.id, number)

    def partition(self, topic: str, number: int = 0) -> Partition | None:
        found = self.broker.topics.find(topic)
        return None if found is None else found.partition(number)


class ClusterWorld:
    """Nodes 1, 2, 3, … all of which vote."""

    def __init__(
        self,
        seed: int,
        *,
        node_count: int = 3,
        observers: Mapping[int, Observer] | None = None,
        supports: Mapping[int, Support] | None = None,
        **settings: str,
    ) -> None:
        """Settings are given as `storage__fsync="none"`; observers by the number of their node.

        So is what the releases of nodes support, if that is not the newest.
        """
        self.seed = seed
        self.observers = observers or {}
        self.supports = dict(supports or {})
        self.random = random.Random(seed)
        self.clock = VirtualClock(self.random)
        self.clock.blocking_ms_max = 2.0
        self.network = Network(self.clock)
        self.settings = {name.replace("__", ".", 1): value for name, value in settings.items()}
        self.peers = ",".join(f"{one}@node-{one}:7000" for one in range(1, node_count + 1))
        self.watch = Watch(self)
        self.nodes: dict[int, ClusterNode] = {}
        for number in range(1, node_count + 1):
            ClusterNode(self, number)
        self._tick()

    # Time

    @property
    def age_ms(self) -> int:
        return self.clock.now_ms() - START_MS

    def _tick(self) -> None:
        self.clock.call_later(TICK_MS, self._tick)
        self.check()

    def run_for(self, ms: float) -> None:
        self.clock.run_for(ms)
        self.check()

    def run_until(self, is_reached: Callable[[], bool], *, ms_max: float = 60_000) -> None:
        self.clock.run_until(is_reached, ms_max=ms_max)
        self.check()

    def wait(self, promise: Promise[T]) -> T:
        self.run_until(lambda: promise.is_done)
        outcome: list[tuple[T | None, Exception | None]] = []
        promise.then(lambda value, error: outcome.append((value, error)))
        value, error = outcome[0]
        if error is not None:
            raise error
        return value  # type: ignore[return-value]

    def heal(self) -> None:
        """End all trouble, and wait until every copy is in sync and led."""
        self.network.heal()
        for node in self.nodes.values():
            node.crash_after(None)
            node.resume()
            if not node.is_up:
                node.start()
        self.run_until(self.is_whole, ms_max=120_000)

    def is_whole(self) -> bool:
        controllers = [one for one in self.up() if one.broker.cluster.quorum.is_controller]  # type: ignore[union-attr]
        if len(controllers) != 1:
            return False
        quorum = controllers[0].broker.cluster.quorum  # type: ignore[union-attr]
        indexes = {one.broker.cluster.quorum.applied_index for one in self.up()}  # type: ignore[union-attr]
        facts = [
            fact
            for topic in quorum.metadata.topics()
            for fact in quorum.metadata.partitions.of_topic(topic.id)
        ]
        return (
            len(indexes) == 1
            and len(facts) > 0
            and all(one.broker.cluster.membership.is_trusted for one in self.up())  # type: ignore[union-attr]
            and all(
                fact.leader >= 0 and set(fact.in_sync) == set(fact.members) and not fact.is_moving
                for fact in facts
            )
        )

    # Nodes

    def up(self) -> list[ClusterNode]:
        """The nodes that run, and are not paused."""
        return [node for node in self.nodes.values() if node.is_up and not node.is_paused]

    def leader_of(
        self, topic: str, number: int = 0, *, or_paused: bool = False
    ) -> ClusterNode | None:
        """The node that leads a partition; who was not told of its successor yet is none.

        With `or_paused` it may be a paused node, which clients cannot tell from a slow one.
        """
        leaders = []
        for node in [one for one in self.nodes.values() if one.is_up] if or_paused else self.up():
            partition = node.partition(topic, number)
            if partition is not None and node.leads(topic, number):
                leaders.append((partition.leader_epoch, node.number))
        return self.nodes[max(leaders)[1]] if leaders else None

    # A client's work

    def create(self, name: str, *, partitions: int = 1, **settings: str) -> None:
        node = self.random.choice(self.up())
        self.wait(node.broker.topics.create(name, partition_count=partitions, settings=settings))
        self.run_until(
            lambda: all(self.leader_of(name, one) is not None for one in range(partitions))
        )

    def produce(
        self,
        topic: str,
        values: list[str],
        acked: Callable[[list[str], GoQueueError | None], None],
        *,
        number: int = 0,
    ) -> None:
        """Send one batch to whoever leads; `acked` is told when there is an outcome (acks=all)."""
        node = self.leader_of(topic, number)
        if node is None:
            acked(values, GoQueueError("nobody leads"))
            return
        partition = node.partition(topic, number)
        assert partition is not None
        batch = encode_batch([Record(b"", value.encode()) for value in values])
        found = node.broker.topics.get(topic)
        try:
            if partition.shortage is not None:
                raise partition.shortage
            appended = node.broker.producing.produce(found, partition, memoryview(batch))
        except GoQueueError as error:
            acked(values, error)
            return
        assert isinstance(appended, Appended)
        partition.when_committed(appended.last_offset, lambda error: acked(values, error))

    def read(self, node: ClusterNode, topic: str, number: int = 0) -> list[str]:
        """All committed values in one node's copy."""
        partition = node.partition(topic, number)
        assert partition is not None
        values: list[str] = []
        offset = partition.start_offset
        while offset < partition.high_watermark:
            found = partition.read(offset, bytes_max=1 << 20)
            if found is None:
                break
            data = memoryview(found.read())
            at = 0
            while at < len(data):
                size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
                records = decode_batch(bytes(data[at : at + size]))
                values += [(record.value or b"").decode() for record in records]
                offset = max([offset, *(record.offset + 1 for record in records)])
                at += size
            offset = max(offset, found.end_offset)
        return values

    # What must be true at every moment

    def check(self) -> None:
        self.watch.check()
