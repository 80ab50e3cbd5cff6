"""Integrity of this node's replicas, reported to the controller when it matters.

A power failure tears what was being written, and recovery truncates it at the next start. The same
happens to an acknowledged batch that was corrupted later, because the two look alike. A replica
that was truncated by recovery is therefore suspect; among suspect replicas the most complete one is
to lead. A replica that is found damaged later yields leadership to an intact one, and is repaired
from there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from goqueue.broker.controller.metadata import FactLog
from goqueue.broker.controller.node import NodeIdentity
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.cluster import elections
from goqueue.cluster.commands import ClaimCopies, CopyClaim, GiveUpCopy
from goqueue.cluster.elections import Standing
from goqueue.cluster.facts import NOTHING_CLAIMED, Claim, PartitionFact, PartitionKey
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise
from goqueue.model.errors import GoQueueError
from goqueue.partition import Partition

LOOK_MS = 500
LOOKS_PER_SEARCH = 4  # damage shows only on reads, so all replicas have to be checked
CLAIMS_MAX = 5_000  # per command; the rest follows in the next

_log = logging.getLogger(__name__)

Ask = Callable[[ClaimCopies | GiveUpCopy], Promise[None]]


class ReplicaIntegrity:
    """Reports and repairs replicas whose content is not certain."""

    def __init__(
        self,
        identity: NodeIdentity,
        log: FactLog,
        topics: Topics,
        clock: Clock,
        *,
        ask: Ask,
    ) -> None:
        """`ask` sends a command to the controller, once."""
        self._identity = identity
        self._metadata = log.metadata
        self._topics = topics
        self._clock = clock
        self._ask = ask
        self._looks = 0
        self._is_stopped = False

    def start(self) -> None:
        self._clock.call_later(LOOK_MS, self._look)

    def stop(self) -> None:
        self._is_stopped = True

    def of_copies(self) -> tuple[CopyClaim, ...]:
        """Return claims for replicas that count as in sync and may lack durable records.

        That is so only for partitions without a leader: elsewhere a node that has just started is
        not in sync.
        """
        return tuple(
            self._claim(fact)
            for fact in self._metadata.partitions.leaderless()
            if self._identity.id in {*fact.in_sync, *fact.claimed} and self._is_suspect(fact)
        )

    def role_changed(self, topic: Topic, partition: Partition, leads: bool) -> None:
        """Check a partition as soon as it is led, when its coordinator has read it."""
        if leads:
            self._clock.call_soon(partial(self._look_at, (topic.id, partition.name.partition)))

    def is_unfit(self, topic_id: bytes, number: int) -> bool:
        """Return whether this node's replica has a gap and is not the last resort.

        Another node can lead instead, or must be in sync before anything is committed here.
        """
        fact = self._metadata.partitions.get(topic_id, number)
        partition = None if fact is None else self._copy(fact)
        if fact is None or partition is None or partition.replica.first_damage is None:
            return False
        return partition.shortage is not None or self._to_give_up(fact) is not None

    def is_curable(self, topic_id: bytes, number: int) -> bool:
        """Return whether unreadable records of a partition may be recovered from another replica.

        Reads on this node use its own replica, or the leader's where there is none.
        """
        fact = self._metadata.partitions.get(topic_id, number)
        if fact is None or len(fact.members) == 1:
            return False
        if self._copy(fact) is None:
            after = elections.given_up(fact, fact.leader, Standing(self._metadata.nodes))
            return after is not fact
        return fact.leader != self._identity.id or self.is_unfit(topic_id, number)

    def _look(self) -> None:
        if self._is_stopped:
            return
        self._clock.call_later(LOOK_MS, self._look)
        if not self._identity.is_trusted(self._metadata):
            return
        self._answer()
        self._looks += 1
        if self._looks % LOOKS_PER_SEARCH == 0:
            self._give_up_damaged()

    def _answer(self) -> None:
        """Claim this node's replicas of leaderless partitions where suspect replicas wait."""
        asked = [
            fact
            for fact in self._metadata.partitions.leaderless()
            if elections.is_claim_due(fact, self._identity.id) and self._copy(fact) is not None
        ]
        if asked:
            copies = tuple(self._claim(fact) for fact in asked[:CLAIMS_MAX])
            self._tell(ClaimCopies(self._identity.id, self._identity.incarnation, copies))

    def _look_at(self, place: PartitionKey) -> None:
        fact = self._metadata.partitions.get(*place)
        if fact is not None and not self._is_stopped:
            self._give_up_if_damaged(fact)

    def _give_up_damaged(self) -> None:
        for fact in self._metadata.partitions.of_node(self._identity.id):
            self._give_up_if_damaged(fact)

    def _give_up_if_damaged(self, fact: PartitionFact) -> None:
        partition = self._to_give_up(fact)
        if partition is None:
            return
        _log.error(
            "%s: offset %d cannot be read here; another node should lead, and this replica is "
            "then repaired from it",
            partition.name,
            partition.replica.first_damage,
        )
        self._tell(
            GiveUpCopy(
                self._identity.id,
                self._identity.incarnation,
                fact.topic_id,
                fact.number,
                fact.version,
            )
        )

    def _tell(self, command: ClaimCopies | GiveUpCopy) -> None:
        def answered(_: None, error: Exception | None) -> None:
            # A lost or late report is repeated while it still applies.
            if error is not None and not isinstance(error, GoQueueError):
                raise error

        self._ask(command).then(answered)

    # Replicas

    def _to_give_up(self, fact: PartitionFact) -> Partition | None:
        """Return the replica of a partition, if it has a gap and another node can lead instead."""
        partition = self._copy(fact)
        if partition is None or partition.replica.first_damage is None:
            return None
        after = elections.given_up(fact, self._identity.id, Standing(self._metadata.nodes))
        return None if after is fact else partition

    def _is_suspect(self, fact: PartitionFact) -> bool:
        partition = self._copy(fact)
        return (
            partition is None
            or partition.replica.is_suspect
            or partition.replica.first_damage is not None
        )

    def _claim(self, fact: PartitionFact) -> CopyClaim:
        partition = self._copy(fact)
        claim = NOTHING_CLAIMED if partition is None else Claim(*partition.replica.whole_until)
        return CopyClaim(fact.topic_id, fact.number, claim)

    def _copy(self, fact: PartitionFact) -> Partition | None:
        """Return the replica of a partition; None if the disk is full or it cannot be read."""
        topic = self._topics.find_by_id(fact.topic_id)
        partition = None if topic is None else topic.partition(fact.number)
        return partition if partition is not None and self._topics.keeps(partition) else None
