"""The replicas on this node, in the roles that the cluster has decided for them.

Leaders and followers come from the metadata. `led` and `followed` implement the two roles. Fetches
of a follower and answers of a leader for many partitions share a message; each is independent, so
that one may be lost, late or duplicated without harm.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from itertools import islice

from goqueue.broker.controller.metadata import FactLog
from goqueue.broker.controller.node import NodeIdentity
from goqueue.broker.durability.flusher import Flusher
from goqueue.broker.replication.followed import FollowedPartition, FollowedPartitions
from goqueue.broker.replication.led import LedPartition, LedPartitions
from goqueue.broker.topics.partition_files import OPENED_PER_TURN_MAX
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.cluster.commands import ChangeInSync
from goqueue.cluster.facts import (
    CONFIG_PREFIX,
    NO_LEADER,
    Decision,
    NodeFact,
    PartitionFact,
    PartitionKey,
    TopicFact,
)
from goqueue.cluster.replication import Following, ProposeInSync, ReplicaSet
from goqueue.config import ReplicationSettings
from goqueue.loop.clock import Clock
from goqueue.loop.peers import Peers
from goqueue.loop.promise import Promise
from goqueue.model.errors import (
    GoQueueError,
    NoEligibleLeader,
    StalePartitionVersion,
    StorageFailed,
)
from goqueue.partition import Partition

TICK_MS = 100

_log = logging.getLogger(__name__)

RoleChanged = Callable[[Topic, Partition, bool], None]


class Replicas:
    """Leads and follows partitions."""

    def __init__(
        self,
        identity: NodeIdentity,
        log: FactLog,
        topics: Topics,
        flusher: Flusher,
        peers: Peers,
        clock: Clock,
        settings: ReplicationSettings,
        *,
        ask: Callable[[ChangeInSync], Promise[None]],
    ) -> None:
        """`ask` sends a proposal to the controller, once."""
        self.node_id = identity.id
        self._identity = identity
        self._metadata = log.metadata
        self._topics = topics
        self._flusher = flusher
        self._clock = clock
        self._settings = settings
        self._ask = ask
        self.led = LedPartitions(peers, clock, settings)
        self.followed = FollowedPartitions(identity.incarnation, peers, clock)
        self._unkept: dict[PartitionKey, None] = {}  # those that cannot be opened yet
        # Those that wait for a later turn of the event loop, and how many were opened in this one.
        self._put_off: dict[PartitionKey, None] = {}
        self._opened_in_turn = 0
        self._role_changed: list[RoleChanged] = []
        self._is_registered = False
        self._is_stopped = False
        self._first_request = 0
        log.on_applied(self._apply)

    def on_role(self, changed: RoleChanged) -> None:
        """Register a callback for when this node starts or stops leading a partition."""
        self._role_changed.append(changed)

    def start(self) -> None:
        # Answers to an earlier incarnation of this node must not be taken for answers to this one.
        self._first_request = int.from_bytes(self._identity.incarnation[:5], "big") << 20
        self._note_throttles()
        self._tick()

    def stop(self) -> None:
        """Stop leading and following; the partitions are about to be closed."""
        self._is_stopped = True
        self.led.stop()
        self.followed.stop()

    def leads(self, topic_id: bytes, number: int) -> bool:
        return self.led.get((topic_id, number)) is not None

    def has_failed(self) -> bool:
        """Return whether a partition led here can no longer be written because its disk failed."""
        return any(led.partition.failure is not None for led in self.led)

    def when_deleted(self, place: PartitionKey, offset: int, *, timeout_ms: int) -> Promise[int]:
        """Resolve when no in-sync replica has records before `offset`; here they are deleted."""
        led = self.led.get(place)
        if led is None:
            raise NoEligibleLeader("This node has not taken over the partition yet; retry.")
        return self.led.when_deleted(led, offset, timeout_ms=timeout_ms)

    # Decisions of the cluster

    def _apply(self, decision: Decision) -> None:
        if self._is_stopped:
            return
        changed_nodes = [one for one in decision if isinstance(one, NodeFact)]
        if any(one.id == self.node_id for one in changed_nodes):
            self._note_registration()
            self._note_throttles()
        if changed_nodes and self._is_registered:
            alive, now_ms = self._alive(), self._clock.now_ms()
            for led in self.led:
                led.replicas.nodes_changed(alive, now_ms=now_ms)
        for change in decision:
            if isinstance(change, PartitionFact):
                self._assign(change)
            elif isinstance(change, TopicFact):
                self._configure(change)
            elif change.key.startswith(CONFIG_PREFIX):
                for topic in self._topics:
                    self._configure(topic.fact)
        self._forget_gone()

    def _note_registration(self) -> None:
        """Start to act on decisions when this incarnation is registered.

        A starting node replays decisions that were superseded long ago. Acting on them, it would
        delete a replica that was moved away and back, or that belongs to a recreated topic. At its
        registration the metadata is current, and all roles are assumed at once.
        """
        is_registered = self._identity.registration(self._metadata) is not None
        if is_registered and not self._is_registered:
            self._is_registered = True
            for topic in self._metadata.topics():
                for placed in self._metadata.partitions.of_topic(topic.id):
                    self._assign(placed, in_slices=False)

    def _note_throttles(self) -> None:
        fact = self._metadata.nodes.get(self.node_id)
        self.led.limit(0 if fact is None else fact.feeding_bytes_per_second)
        self.followed.limit(0 if fact is None else fact.catching_up_bytes_per_second)

    def _alive(self) -> dict[int, bytes]:
        nodes = self._metadata.nodes.values()
        return {node.id: node.incarnation for node in nodes if not node.is_fenced}

    def _assign(self, fact: PartitionFact, *, in_slices: bool = True) -> None:
        topic = self._topics.find_by_id(fact.topic_id)
        if topic is None or not self._is_registered:
            return
        is_mine = self.node_id in fact.members
        if not is_mine:
            self._leave(fact.place, topic)
            self._topics.release(topic, fact)
            return
        if not self._topics.may_keep(topic, fact.number):
            self._unkept[fact.place] = None
            return
        if in_slices and self._must_wait(fact, topic):
            return
        try:
            is_sole = len(fact.members) == 1
            partition = self._topics.keep(topic, fact.number, is_sole=is_sole)
        except (OSError, StorageFailed) as error:
            # For example a full disk, or a folder that may belong to another topic.
            if fact.place not in self._unkept:
                _log.error("%s/%d cannot be opened, retrying: %s", topic.name, fact.number, error)
            self._unkept[fact.place] = None
            return
        self._unkept.pop(fact.place, None)
        if fact.leader == self.node_id:
            self._lead(fact, topic, partition)
        else:
            self._follow(fact, topic, partition)

    def _must_wait(self, fact: PartitionFact, topic: Topic) -> bool:
        """Put off a replica that is yet to be opened, if enough were opened in this turn.

        Until it is open this node neither leads nor follows it, as if the disk were full: clients
        retry, and with acks=all nothing is acknowledged without it while it is in sync. Internal
        topics are exempt: their coordinators start in the turn that creates them.
        """
        if topic.is_internal or self._topics.keeps(topic.partition(fact.number)):
            return False
        if self._opened_in_turn == 0:
            self._clock.call_soon(self._open_put_off)
        elif self._opened_in_turn >= OPENED_PER_TURN_MAX:
            self._put_off[fact.place] = None
            return True
        self._opened_in_turn += 1
        return False

    def _open_put_off(self) -> None:
        """Open the next replicas; what was decided about them meanwhile counts."""
        self._opened_in_turn = 0
        if self._is_stopped:
            return
        for place in list(islice(self._put_off, OPENED_PER_TURN_MAX)):
            del self._put_off[place]
            fact = self._metadata.partitions.get(*place)
            if fact is not None:
                self._assign(fact)
        if self._put_off and not self._opened_in_turn:
            self._clock.call_soon(self._open_put_off)

    def _lead(self, fact: PartitionFact, topic: Topic, partition: Partition) -> None:
        known = self.led.get(fact.place)
        if known is not None and partition.leader_epoch == fact.leader_epoch:
            self.led.changed(known, fact)
            return
        self._leave(fact.place, topic)
        partition.replica.become_leader(fact.leader_epoch)
        replicas = ReplicaSet(
            fact,
            partition.replica,
            self._settings,
            in_sync_min=self._in_sync_min(topic),
            alive=self._alive(),
            now_ms=self._clock.now_ms(),
        )
        self.led.begin(LedPartition(fact, partition, replicas, partial(self._propose, fact.place)))
        _log.info("%s: leading in epoch %d", partition.name, fact.leader_epoch)
        for changed in self._role_changed:
            changed(topic, partition, True)

    def _follow(self, fact: PartitionFact, topic: Topic, partition: Partition) -> None:
        known = self.followed.get(fact.place)
        is_same = known is not None and (known.leader, partition.leader_epoch) == (
            fact.leader,
            fact.leader_epoch,
        )
        is_in_sync = self.node_id in fact.in_sync
        if known is not None and is_same:
            known.changed(version=fact.version, is_in_sync=is_in_sync)
            return
        self._leave(fact.place, topic)
        partition.replica.become_follower(fact.leader_epoch, leader=fact.leader)
        if fact.leader == NO_LEADER:
            return
        followed = FollowedPartition(
            partition,
            Following(partition.replica, fact, self._settings, first_request=self._first_request),
            is_in_sync=is_in_sync,
            clear_journal=self._flusher.clear_journal,
            tell=partial(self.followed.report, fact.place, fact.leader),
            resume=partial(self.followed.question, fact.place),
        )
        self.followed.begin(fact.place, followed)

    def _leave(self, place: PartitionKey, topic: Topic | None) -> None:
        """End the role of this node in a partition."""
        self.followed.end(place)
        led = self.led.end(place)
        if led is not None and topic is not None:
            for changed in self._role_changed:
                changed(topic, led.partition, False)

    def _keep_again(self) -> None:
        """Retry to open replicas that could not be opened: nothing else triggers it."""
        for place in list(self._unkept):
            fact = self._metadata.partitions.get(*place)
            if fact is None or self.node_id not in fact.members:
                del self._unkept[place]
            else:
                self._assign(fact)

    def _forget_gone(self) -> None:
        """End the roles in deleted topics."""
        places = [*(led.place for led in self.led), *self.followed.places()]
        for place in [one for one in places if self._is_gone(one)]:
            self._leave(place, None)

    def _is_gone(self, place: PartitionKey) -> bool:
        return self._topics.find_by_id(place[0]) is None

    def _configure(self, fact: TopicFact) -> None:
        topic = self._topics.find_by_id(fact.id)
        if topic is None:
            return
        for number in range(fact.partition_count):
            led = self.led.get((fact.id, number))
            if led is not None:
                led.in_sync_min_changed(self._in_sync_min(topic))

    def _in_sync_min(self, topic: Topic) -> int:
        return self._topics.defaults.in_sync_min(topic.fact.settings)

    # Proposals

    def _propose(self, place: PartitionKey, proposal: ProposeInSync) -> None:
        topic_id, number = place
        command = ChangeInSync(
            self.node_id,
            topic_id,
            number,
            proposal.in_sync,
            dict(proposal.incarnations),
            proposal.leader_epoch,
            proposal.version,
        )

        def answered(_: None, error: Exception | None) -> None:
            led = self.led.get(place)
            # A lost proposal is repeated; a stale one has been superseded.
            if led is None or error is None or getattr(error, "retryable", False):
                return
            if not isinstance(error, GoQueueError):
                raise error
            if not isinstance(error, StalePartitionVersion):
                now_ms = self._clock.now_ms()
                led.replicas.proposal_refused(version=proposal.version, now_ms=now_ms)

        self._ask(command).then(answered)

    # Time

    def _tick(self) -> None:
        if self._is_stopped:
            return
        self._clock.call_later(TICK_MS, self._tick)
        self._keep_again()
        self.led.tick(self._clock.now_ms())
        self.followed.tick()
