"""Replicas of one partition on simulated nodes, a network that errs, a controller that does not.

The controller is a stand-in that decides at once and forgets nothing; what it decides reaches the
nodes late, in part, or twice. Everything else is production code.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from goqueue.broker.durability.flusher import Flusher
from goqueue.broker.replication.followed import FollowedPartition
from goqueue.broker.replication.led import LedPartition
from goqueue.cluster.facts import PartitionFact
from goqueue.cluster.replication import (
    FetchStatus,
    FollowerNotice,
    Following,
    ProposeInSync,
    ReplicaFetch,
    ReplicaReport,
    ReplicaSet,
    decode_answers,
    decode_follower_notice,
    encode_answers,
    encode_follower_notice,
)
from goqueue.config import ReplicationSettings
from goqueue.model.names import TopicPartition
from goqueue.partition import Partition, PartitionSettings, recover_partition
from goqueue.storage.commit_journal import CommitJournal
from tests.simulation.clock import NodeClock, VirtualClock
from tests.simulation.disk import PowerLost, SimulatedDisk

NAME = TopicPartition("orders", 0)
FOLDER = "logs/orders/0"
TOPIC_ID = b"t" * 16
KEY = TOPIC_ID + bytes(4)
JOURNAL_FILE_BYTES = 24 << 10
TICK_MS = 20
LAG_MS = 250
RETRY_MS = 60
FETCH_WAIT_MS = 50
SESSION_MS = 250
CONTROLLER = -1


@dataclass(frozen=True)
class View:
    """What the controller has decided, as of one of its decisions."""

    index: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    leader: int
    leader_epoch: int
    version: int
    alive: dict[int, bytes]

    @property
    def fact(self) -> PartitionFact:
        return PartitionFact(
            TOPIC_ID, 0, self.replicas, self.in_sync, self.leader, self.leader_epoch, self.version
        )


@dataclass
class Faults:
    """How bad the world is just now."""

    loss: float = 0.0
    duplication: float = 0.0
    delay_ms: float = 2.0
    late: float = 0.0  # how likely a message is very late
    cut: set[tuple[int, int]] = field(default_factory=set)  # from, to


class FailingDisk(SimulatedDisk):
    """A disk that says itself whether the power has failed in the middle of something."""

    has_lost_power = False

    def operation(self, kind: str, path: str) -> None:
        try:
            super().operation(kind, path)
        except PowerLost:
            self.has_lost_power = True
            raise

    def crash(self) -> None:
        self.has_lost_power = False
        super().crash()


class Cluster:
    """Nodes 0, 1, 2, … each with a replica, and the one controller."""

    def __init__(
        self,
        seed: int,
        *,
        node_count: int,
        in_sync_min: int,
        is_unclean: bool = False,
        fsync: str = "every",
        settings: PartitionSettings | None = None,
    ) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.clock = VirtualClock(self.random)
        self.clock.blocking_ms_max = 2.0
        self.faults = Faults()
        self.in_sync_min = in_sync_min
        self.fsync = fsync
        self.settings = settings or PartitionSettings()
        self.nodes: list[Node] = []
        self.controller = Controller(self, node_count, is_unclean=is_unclean)
        self.nodes += [Node(self, number) for number in range(node_count)]
        for node in self.nodes:
            node.start()

    def send(self, source: int, target: int, deliver: Callable[[], None]) -> None:
        """Have `deliver` called by and by: late, twice or never."""
        faults, chance = self.faults, self.random
        if (source, target) in faults.cut:
            return
        for _ in range(1 + (chance.random() < faults.duplication)):
            if chance.random() >= faults.loss:
                delay = chance.uniform(0.05, faults.delay_ms)
                if chance.random() < faults.late:
                    delay += chance.uniform(0, 600)
                self.clock.call_later(delay, deliver)

    def run_for(self, ms: float) -> None:
        """Let time go by; a node whose disk loses power in the middle of something dies."""
        until = self.clock.now_ms() + ms
        while (left := until - self.clock.now_ms()) > 0:
            try:
                self.clock.run_for(left)
            except PowerLost:
                next(one for one in self.nodes if one.disk.has_lost_power).crash()

    @property
    def leader(self) -> Node | None:
        number = self.controller.leader
        return self.nodes[number] if number >= 0 else None


class Controller:
    """Decides who is in sync and who leads. Nothing it has decided is ever forgotten."""

    def __init__(self, cluster: Cluster, node_count: int, *, is_unclean: bool) -> None:
        self.cluster = cluster
        self.replicas = tuple(range(node_count))
        self.in_sync: tuple[int, ...] = self.replicas
        self.leader = -1
        self.leader_epoch = 0
        self.version = 0
        self.index = 0
        self.is_unclean = is_unclean
        self.unclean_elections = 0
        self.elections = 0
        self.incarnations: dict[int, bytes] = {}
        self.gone: set[bytes] = set()
        self.alive: dict[int, bytes] = {}
        self.heard_ms: dict[int, int] = {}
        cluster.clock.call_later(TICK_MS, self._tick)

    def view(self) -> View:
        return View(
            self.index,
            self.replicas,
            self.in_sync,
            self.leader,
            self.leader_epoch,
            self.version,
            dict(self.alive),
        )

    def heartbeat(self, node: int, incarnation: bytes) -> None:
        """A node is there. A new life of it has to catch up before it is in sync again."""
        known = self.incarnations.get(node)
        if (known is not None and incarnation < known) or incarnation in self.gone:
            return  # A word from an earlier life.
        self.heard_ms[node] = self.cluster.clock.now_ms()
        if known != incarnation:
            self.incarnations[node] = incarnation
            self.alive.pop(node, None)
            if known is not None:
                self._lose(node)
        if self.alive.get(node) != incarnation:
            self.alive[node] = incarnation
            self._publish()
            self._elect_if_needed()

    def forget(self, node: int) -> None:
        """What this node had is gone; whatever is known of it is about something else."""
        self.gone.add(self.incarnations[node])
        self.alive.pop(node, None)
        self._publish()

    def change_in_sync(self, node: int, proposal: ProposeInSync) -> int | None:
        """Accept a proposal, or refuse it by naming the version that is known."""
        members = set(proposal.in_sync)
        is_known = all(
            self.alive.get(one) == incarnation
            for one, incarnation in proposal.incarnations.items()
            if one not in self.in_sync
        )
        if (
            (node, proposal.leader_epoch, proposal.version)
            != (self.leader, self.leader_epoch, self.version)
            or not is_known
            or node not in members
        ):
            return self.version
        self.in_sync = tuple(one for one in self.replicas if one in members)
        self.version += 1
        self._publish()
        return None

    def move_leader(self) -> None:
        """Let another one lead that is in sync and alive, if there is one."""
        others = [one for one in self.in_sync if one in self.alive and one != self.leader]
        if others:
            self._lead(self.cluster.random.choice(others), self.in_sync)

    def elect_unclean(self) -> None:
        """Nobody in sync is there: lead with what there is, and lose the rest."""
        if self.is_unclean and self.leader < 0 and self.alive:
            chosen = self.cluster.random.choice(sorted(self.alive))
            self.unclean_elections += 1
            self._lead(chosen, (chosen,))

    def _tick(self) -> None:
        cluster = self.cluster
        cluster.clock.call_later(TICK_MS, self._tick)
        for node in sorted(self.alive):
            if cluster.clock.now_ms() - self.heard_ms[node] > SESSION_MS:
                del self.alive[node]
                self._lose(node)
        for node in cluster.nodes:
            if cluster.random.random() < 0.5:
                self._tell(node)

    def _lose(self, node: int) -> None:
        """A node is gone, or comes back without what it was: nobody relies on it any more."""
        if node in self.in_sync and len(self.in_sync) > 1:
            self.in_sync = tuple(one for one in self.in_sync if one != node)
            self.version += 1
        if self.leader == node:
            self.leader = -1
        self._publish()
        self._elect_if_needed()

    def _elect_if_needed(self) -> None:
        able = [one for one in self.in_sync if one in self.alive]
        if self.leader < 0 and able:
            self._lead(self.cluster.random.choice(able), self.in_sync)

    def _lead(self, node: int, in_sync: tuple[int, ...]) -> None:
        self.leader, self.in_sync = node, in_sync
        self.leader_epoch += 1
        self.version += 1
        self.elections += 1
        self._publish()

    def _publish(self) -> None:
        self.index += 1
        for node in self.cluster.nodes:
            self._tell(node)

    def _tell(self, node: Node) -> None:
        view = self.view()
        self.cluster.send(CONTROLLER, node.number, lambda: node.learn(view))


class Node:
    """One life after the other of a replica and what drives it."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster = cluster
        self.number = number
        self.disk = FailingDisk(cluster.random)
        self.life = 0
        self.is_up = False
        self.clock: NodeClock
        self.partition: Partition
        self.view: View | None = None
        self.role: LedPartition | FollowedPartition | None = None
        self.parked: list[tuple[int, bytes, ReplicaFetch, int]] = []
        self.restarts = 0
        self.cuts = 0

    # Lives

    def start(self) -> None:
        cluster = self.cluster
        self.life += 1
        self.is_up = True
        self.incarnation = self.life.to_bytes(8, "big") + bytes([self.number])
        self.clock = cluster.clock.node(skew_ms=cluster.random.randint(-5000, 5000))
        self.clock.extra_ms = self.disk.take_delay_ms
        journal = CommitJournal(self.disk, file_bytes=JOURNAL_FILE_BYTES)
        is_every = cluster.fsync == "every"
        self.flusher = Flusher(
            self.clock,
            mode="every" if is_every else "none",
            interval_ms=100,
            journal=journal if is_every else None,
        )
        journal.redo(KEY, FOLDER)
        self.partition, self.reports = recover_partition(
            NAME,
            self.disk,
            FOLDER,
            cluster.settings,
            key=KEY,
            leader_epoch=0,
            waits_for_sync=is_every,
            mark_dirty=self.flusher.mark,
            now_ms=self.clock.now_ms(),
            is_replica=True,
        )
        journal.clear()
        self.view, self.role, self.parked = None, None, []
        self._tick()

    def crash(self) -> None:
        """The power fails."""
        if self.is_up:
            self.is_up = False
            self.clock.die()
            self.disk.crash()

    def kill(self) -> None:
        """The process dies, and what it has written is there when the next one comes."""
        if self.is_up:
            self.is_up = False
            self.clock.die()
            self.disk.life += 1
            self.disk.crash_at(None)

    def lose_disk(self) -> None:
        """The disk is replaced by an empty one."""
        self.crash()
        self.disk = FailingDisk(self.cluster.random)

    @property
    def leading(self) -> LedPartition | None:
        return self.role if isinstance(self.role, LedPartition) else None

    # Metadata

    def learn(self, view: View) -> None:
        """Act on what the controller has decided, unless something newer is known."""
        if not self.is_up or (self.view is not None and view.index <= self.view.index):
            return
        if view.alive.get(self.number) != self.incarnation:
            return  # Not registered yet as what it is now.
        self.view = view
        is_new = self.role is None or view.leader_epoch > self.partition.leader_epoch
        if view.leader == self.number and is_new:
            self._lead(view)
        elif view.leader == self.number and self.leading is not None:
            now_ms = self.clock.now_ms()
            self.leading.replicas.nodes_changed(view.alive, now_ms=now_ms)
            self.leading.changed(view.fact, now_ms=now_ms)
        elif view.leader != self.number and (is_new or view.leader < 0):
            self._follow(view)
        elif isinstance(self.role, FollowedPartition):
            self.role.following.version = view.version

    def _lead(self, view: View) -> None:
        self._leave_role()
        partition, now_ms = self.partition, self.clock.now_ms()
        partition.replica.become_leader(view.leader_epoch)
        replicas = ReplicaSet(
            view.fact,
            partition.replica,
            ReplicationSettings(lag_ms=LAG_MS, retry_ms=RETRY_MS),
            in_sync_min=self.cluster.in_sync_min,
            alive=view.alive,
            now_ms=now_ms,
        )
        self.role = LedPartition(view.fact, partition, replicas, self._propose)
        partition.on_written = lambda: self.clock.call_soon(self._unpark)

    def _follow(self, view: View) -> None:
        self._leave_role()
        self.partition.replica.become_follower(view.leader_epoch, leader=view.leader)
        if view.leader < 0:
            return
        settings = ReplicationSettings(
            lag_ms=LAG_MS,
            retry_ms=RETRY_MS,
            fetch_bytes_max=self.cluster.random.choice([200, 2000, 100_000]),
        )
        first_request = self.life * 1_000_000
        self.role = FollowedPartition(
            self.partition,
            Following(self.partition.replica, view.fact, settings, first_request=first_request),
            is_in_sync=False,
            clear_journal=self.flusher.clear_journal,
            tell=self._tell_durable,
            resume=self._pump,
        )
        self.role.start(self.clock.now_ms())
        self._pump()

    def _leave_role(self) -> None:
        if self.role is not None:
            self.role.stop()
        self.role, self.parked = None, []

    def _propose(self, proposal: ProposeInSync) -> None:
        controller, life = self.cluster.controller, self.life

        def arrive() -> None:
            version = controller.change_in_sync(self.number, proposal)
            if version is not None:
                self.cluster.send(CONTROLLER, self.number, lambda: refused(version))

        def refused(version: int) -> None:
            leading = self.leading
            if not self.is_up or self.life != life or leading is None:
                return
            if leading.partition.leader_epoch == proposal.leader_epoch:
                leading.replicas.proposal_refused(version=version, now_ms=self.clock.now_ms())

        self.cluster.send(self.number, CONTROLLER, arrive)

    # Time

    def _tick(self) -> None:
        self.clock.call_later(TICK_MS, self._tick)
        number, incarnation = self.number, self.incarnation
        controller = self.cluster.controller
        self.cluster.send(number, CONTROLLER, lambda: controller.heartbeat(number, incarnation))
        if self.leading is not None:
            self.leading.tick(self.clock.now_ms())
            self._unpark()
        self._pump()

    # Following

    def _pump(self) -> None:
        role = self.role
        if not isinstance(role, FollowedPartition):
            return
        fetch = role.fetch(self.clock.now_ms())
        if fetch is not None:
            self._say(role.leader, FollowerNotice(self.incarnation, [fetch]))

    def _tell_durable(self, report: ReplicaReport) -> None:
        role = self.role
        if isinstance(role, FollowedPartition):
            self._say(role.leader, FollowerNotice(self.incarnation, reports=[report]))

    def _say(self, leader: int, notice: FollowerNotice) -> None:
        target, source = self.cluster.nodes[leader], self.number
        data = encode_follower_notice(notice)
        self.cluster.send(source, leader, lambda: target.told(source, data))

    def answered(self, data: bytes, body: bytes) -> None:
        for message, batches in decode_answers(data, memoryview(body)):
            if self.is_up and isinstance(self.role, FollowedPartition):
                before = self.partition.end_offset
                self.role.received(message, batches, self.clock.now_ms())
                self.restarts += message.status is FetchStatus.BELOW_START
                self.cuts += message.status is FetchStatus.DIVERGING and before > 0
                self._pump()

    # Leading

    def told(self, source: int, data: bytes) -> None:
        notice, now_ms = decode_follower_notice(data), self.clock.now_ms()
        if not self.is_up or self.leading is None:
            return
        for report in notice.reports:
            self.leading.reported(source, notice.incarnation, report, now_ms)
        for fetch in notice.fetches:
            self._serve(source, notice.incarnation, fetch, now_ms + FETCH_WAIT_MS)

    def _serve(self, source: int, incarnation: bytes, fetch: ReplicaFetch, until_ms: int) -> None:
        assert self.leading is not None
        now_ms = self.clock.now_ms()
        answer, batches = self.leading.serve(source, incarnation, fetch, now_ms)
        if answer.status is FetchStatus.OK and not batches and now_ms < until_ms:
            self.parked.append((source, incarnation, fetch, until_ms))
            return
        target, data = self.cluster.nodes[source], encode_answers([answer])
        self.cluster.send(self.number, source, lambda: target.answered(data, batches))

    def _unpark(self) -> None:
        parked, self.parked = self.parked, []
        for one in parked:
            if self.leading is not None:
                self._serve(*one)
