"""Applications with transactions in a cluster: whom they ask, and what every copy must show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from goqueue.broker.publishing.split_batches import Split
from goqueue.broker.streams.coordinators import Groups
from goqueue.broker.topics.topics import Topic
from goqueue.broker.transactions.joining import Joining
from goqueue.broker.transactions.transactions import Transactions
from goqueue.client.aborted import AbortedTransaction, AbortedTransactions
from goqueue.groups import CommitOffsets, OffsetErrors
from goqueue.loop.promise import Promise
from goqueue.model.batch import decode_batch, read_header
from goqueue.model.errors import CoordinatorNotAvailable, GoQueueError, NotLeader
from goqueue.model.names import OFFSETS_TOPIC, TRANSACTION_TOPIC, ProducerIdentity, TopicPartition
from goqueue.partition import Appended, Partition
from tests.simulation.cluster_world import ClusterNode, ClusterWorld
from tests.simulation.transactions_model import (
    INPUT,
    OUTPUTS,
    TIMEOUT_MS,
    Application,
    ConnectionLost,
    Instance,
    Stage,
)

T = TypeVar("T")

POSITIONS = 6
ENDLESS = 10_000  # more than anybody gets to while there is trouble
REQUEST_TIMEOUT_MS = 4_000
ASKED_MAX = 50
STRUCK_AT_THE_END = 0.15  # how often that happens, where it does
STALE = 0.15  # how often a client asks whomever it thinks of first


class ClusterStage(Stage):
    """The nodes of a cluster in place of one."""

    def __init__(self, world: ClusterWorld) -> None:
        self.cluster = world
        super().__init__(_Clients(self, world))  # type: ignore[arg-type]
        self.shown: dict[TopicPartition, set[str]] = {name: set() for name in OUTPUTS}
        self.strikes = False  # whether coordinators fail just when they have answered

    def ask(self, call: Callable[[], Promise[T]]) -> Promise[T]:
        """A request of which nothing is heard for long is given up."""
        answer = super().ask(call)

        def give_up() -> None:
            if answer in self._open:
                del self._open[answer]
                answer.reject(ConnectionLost("The node does not answer."))

        self.cluster.clock.call_later(REQUEST_TIMEOUT_MS, give_up)
        return answer

    def node_for(self, topic: str, number: int) -> ClusterNode:
        """The node that a client believes to lead a partition."""
        world = self.cluster
        if not world.up():
            raise ConnectionLost("All nodes are down.")
        if not self.is_quiet and self.random.random() < STALE:
            return self.random.choice(world.up())
        node = world.leader_of(topic, number)
        if node is None:
            raise CoordinatorNotAvailable("Nobody leads; retry.")
        return node

    def groups_for(self, group_id: str) -> Groups:
        number = self.any_node().broker.groups.partition_of(group_id)
        return self.node_for(OFFSETS_TOPIC, number).broker.groups

    def wait_for_offset(self, group_id: str) -> int:
        """Leaders move now and then, so it may take another try."""
        for _ in range(ASKED_MAX - 1):
            try:
                return self.cluster.wait(self.offset_of(group_id))
            except GoQueueError as error:
                if not error.retryable:
                    raise
            self.cluster.run_for(100)
        return self.cluster.wait(self.offset_of(group_id))

    def any_node(self) -> ClusterNode:
        if not self.cluster.up():
            raise ConnectionLost("All nodes are down.")
        return self.cluster.up()[0]

    def partition(self, name: TopicPartition) -> Partition:
        node = self.node_for(name.topic, name.partition)
        found = node.partition(name.topic, name.partition)
        if found is None:
            raise NotLeader(name, -1)
        return found

    def check(self) -> None:
        """What must be true of every copy at every moment, but for those that have rotted."""
        for node in self.cluster.up():
            for name in OUTPUTS if not node.is_rotten else ():
                if self._has_copy(node, name):
                    self.shown[name] |= self._check_copy(node, name)

    def _has_copy(self, node: ClusterNode, name: TopicPartition) -> bool:
        partition = node.partition(name.topic, name.partition)
        return partition is not None and node.broker.topics.keeps(partition)

    def _check_copy(self, node: ClusterNode, name: TopicPartition) -> set[str]:
        copy = Copy(node)
        values = copy.read(name)
        where = f"seed {self.cluster.seed}: {name} on node {node.number}"
        assert len(values) == len(set(values)), f"{where} shows something twice"
        attempts = {value.rpartition("/")[0] for value in values}
        assert attempts <= self.committable, f"{where} shows what nobody committed"
        assert not attempts & self.aborted, f"{where} shows what was aborted"
        held_up = copy.held_up(name)
        for attempt in attempts:
            shown = {value for value in values if value.rpartition("/")[0] == attempt}
            missing = self.sent[name][attempt] - shown
            assert missing <= held_up, f"{where} shows a part of {attempt}"
        return attempts

    def note_end(self, instance: Instance, attempt: str, *, is_commit: bool) -> None:
        """A node that does not know yet that it is deposed repeats what was decided before, but
        nobody says yes to whoever was replaced before it asked."""
        assert attempt not in self.impossible, f"seed {self.cluster.seed}: {attempt} came too late"
        (self.committed if is_commit else self.aborted).add(attempt)
        is_struck = self.strikes and not self.is_quiet
        if is_struck and self.random.random() < STRUCK_AT_THE_END:
            self._strike_coordinator(instance.name)

    def _strike_coordinator(self, transactional_id: str) -> None:
        """Now that it has answered, what it has answered must not hang on it."""
        world = self.cluster
        number = self.any_node().broker.transactions.partition_of(transactional_id)
        node = world.leader_of(TRANSACTION_TOPIC, number)
        what = self.random.random()
        if what < 0.4:  # What was on its way to others is lost as well, unless it was durable.
            for one in world.up():
                one.crash()
            self.lose_connections()
        elif what < 0.7 and node is not None:
            node.crash()
            self.lose_connections()
        elif node is not None:
            world.network.cut([node.number], [one for one in world.nodes if one != node.number])
        world.clock.call_later(self.random.uniform(50, 2_000), self.mend)

    def mend(self) -> None:
        """All nodes are up and see each other."""
        self.cluster.network.faults.cut.clear()
        for node in self.cluster.nodes.values():
            if not node.is_up:
                node.start()

    def check_settled(self, applications: list[Application]) -> None:
        self.check()
        for node in self.cluster.up():
            for name in OUTPUTS:
                if not self._has_copy(node, name):
                    continue
                now = self._check_copy(node, name)
                gone = self.shown[name] - now
                assert not gone, f"seed {self.cluster.seed}: {name} does not show {gone} any more"
                self.seen[name] = now
                partition = node.partition(name.topic, name.partition)
                assert partition is not None
                assert partition.last_stable_offset == partition.end_offset, f"{name} is held up"
        self._check_whole(applications)

    def _check_whole(self, applications: list[Application]) -> None:
        everything = set().union(*(self.seen[name] for name in OUTPUTS))
        lost = self.committed - everything
        assert not lost, f"seed {self.cluster.seed}: commits were answered and are lost: {lost}"
        for attempt in everything:
            for name in OUTPUTS:
                assert (attempt in self.sent[name]) == (attempt in self.seen[name]), (
                    f"seed {self.cluster.seed}: {attempt} is not visible everywhere"
                )
        for application in applications:
            positions = sorted(
                int(attempt.split(":")[1])
                for attempt in everything
                if attempt.startswith(f"{application.name}:")
            )
            offset = application.committed_offset()
            assert positions == list(range(offset)), (
                f"seed {self.cluster.seed}: {application.name}: {positions} {offset}"
            )


class Copy(Stage):
    """What one node shows."""

    def __init__(self, node: ClusterNode) -> None:
        self.world = node  # type: ignore[assignment]

    def partition(self, name: TopicPartition) -> Partition:
        return self.world.broker.topics.get(name.topic).partition(name.partition)

    def read(self, name: TopicPartition) -> list[str]:
        """A follower refuses clients, but other parts of the broker read from it like this."""
        values: list[str] = []
        partition = self.partition(name)
        offset = partition.start_offset
        while True:
            found = partition.read(offset, bytes_max=1 << 20, is_committed_only=True)
            if found is None:
                return values
            aborted = AbortedTransactions(
                AbortedTransaction(one.first_offset, one.producer_id)
                for one in partition.aborted_in(found)
            )
            data, position = found.read(), 0
            while position < len(data):
                header = read_header(data, position)
                batch = data[position : position + header.size]
                position += header.size
                if not aborted.covers(header, batch) and not header.is_control:
                    values += [(record.value or b"").decode() for record in decode_batch(batch)]
                offset = header.next_offset


class _Clients:
    """What a client sees in place of a world with one node: calls go to whom they belong."""

    def __init__(self, stage: ClusterStage, world: ClusterWorld) -> None:
        self.stage = stage
        self.clock = world.clock
        self.seed = world.seed
        self.broker = self
        self.transactions = self
        self.topics = self
        self.producing = self

    def _coordinator(self, transactional_id: str) -> Transactions:
        some = self.stage.any_node().broker.transactions
        number = some.partition_of(transactional_id)
        return self.stage.node_for(TRANSACTION_TOPIC, number).broker.transactions

    def initialise(self, transactional_id: str, **call: Any) -> Promise[ProducerIdentity]:
        return self._coordinator(transactional_id).initialise(transactional_id, **call)

    def add_partitions(self, transactional_id: str, *call: Any) -> Promise[None]:
        return self._coordinator(transactional_id).add_partitions(transactional_id, *call)

    def add_group(self, transactional_id: str, *call: Any) -> Promise[None]:
        return self._coordinator(transactional_id).add_group(transactional_id, *call)

    def end(self, transactional_id: str, *call: Any, **how: Any) -> Promise[ProducerIdentity]:
        return self._coordinator(transactional_id).end(transactional_id, *call, **how)

    def finish(self, transactional_id: str, *call: Any, **how: Any) -> Promise[ProducerIdentity]:
        return self._coordinator(transactional_id).finish(transactional_id, *call, **how)

    def commit_offsets(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        call: CommitOffsets,
        *,
        joins_transaction: bool,
    ) -> Promise[OffsetErrors]:
        number = self.stage.any_node().broker.groups.partition_of(call.group_id)
        transactions = self.stage.node_for(OFFSETS_TOPIC, number).broker.transactions
        return transactions.commit_offsets(
            transactional_id, identity, call, joins_transaction=joins_transaction
        )

    def get(self, topic: str) -> str:
        return topic

    def produce(
        self, topic: str, partition: Partition, batch: memoryview, **how: Any
    ) -> Appended | Split | Joining:
        for node in self.stage.cluster.up():
            found: Topic | None = node.broker.topics.find(topic)
            if found is not None and partition in found.partitions:
                return node.broker.producing.produce(found, partition, batch, **how)
        raise NotLeader(partition.name, -1)


def begin(seed: int) -> ClusterStage:
    """Three nodes with the topics of the applications."""
    world = ClusterWorld(seed)
    world.heal()
    world.create(INPUT, min_insync_replicas="2")
    for topic in dict.fromkeys(name.topic for name in OUTPUTS):
        world.create(topic, partitions=2, min_insync_replicas="2")
    world.run_until(
        lambda: all(
            node.broker.topics.find(name.topic) is not None
            for node in world.up()
            for name in OUTPUTS
        )
    )
    return ClusterStage(world)


def applications_on(stage: ClusterStage, *, positions: int = POSITIONS) -> list[Application]:
    """Four applications, of both protocols."""
    return [
        Application(stage, f"app{number}", bumps_epoch=number % 2 == 1, positions=positions)
        for number in range(4)
    ]


def run(stage: ClusterStage, applications: list[Application], ms: float) -> None:
    """Let applications work for a while; those that died are started again."""
    for application in applications:
        if not application.alive:
            application.start_instance()
    stage.cluster.run_for(ms)
    stage.check()


def settle(stage: ClusterStage, applications: list[Application]) -> None:
    """No more trouble: everybody comes to an end, and everything to rest."""
    stage.is_quiet = True
    stage.cluster.heal()
    for _ in range(300):
        if all(one.is_done for one in applications):
            break
        for application in applications:
            if not application.alive and not application.is_done:
                application.start_instance()
        stage.cluster.run_for(200)
        stage.check()
    stage.cluster.run_for(2 * TIMEOUT_MS)
    stage.cluster.heal()
    stage.cluster.run_for(1_000)
    stage.check_settled(applications)
    assert [one.committed_offset() for one in applications] == [
        one.positions for one in applications
    ]
