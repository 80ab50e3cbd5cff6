"""What this node's copies are worth, told to the controller when somebody has to know.

A power cut tears what was being written, and what is torn is cut off at the next start. So is, now
and then, something that was acknowledged and has rotted since, because the two look alike. A node
that has cut something off therefore does not claim to have everything that it had; of all copies
the one that has most of it is to lead. A copy that turns out to be damaged later is given up in
favour of one that is not, and had again from there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from goqueue.broker.controller.metadata import FactLog
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.cluster import elections
from goqueue.cluster.commands import ClaimCopies, CopyClaim, GiveUpCopy
from goqueue.cluster.elections import Standing
from goqueue.cluster.facts import NOTHING_CLAIMED, Claim, PartitionFact, PartitionKey
from goqueue.cluster.metadata import Metadata
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise
from goqueue.model.errors import GoQueueError
from goqueue.partition import Partition

LOOK_MS = 500
LOOKS_PER_SEARCH = 4  # Damage shows only when somebody reads, and all copies have to be looked at.
CLAIMS_MAX = 5_000  # in one command; the rest is for the next

_log = logging.getLogger(__name__)

Ask = Callable[[ClaimCopies | GiveUpCopy], Promise[None]]


class ReplicaIntegrity:
    """Looks after the copies whose contents are not sure."""

    def __init__(
        self,
        node_id: int,
        incarnation: bytes,
        log: FactLog,
        clock: Clock,
        topics: Topics,
        *,
        ask: Ask,
    ) -> None:
        """`ask` hands a command to the controller, once."""
        self._node_id = node_id
        self._incarnation = incarnation
        self._log = log
        self._clock = clock
        self._topics = topics
        self._ask = ask
        self._looks = 0
        self._is_stopped = False

    def start(self) -> None:
        self._clock.call_later(LOOK_MS, self._look)

    def stop(self) -> None:
        self._is_stopped = True

    def of_copies(self) -> tuple[CopyClaim, ...]:
        """The copies that somebody counts on, and that may lack what was reported as durable.

        That is so only where nobody leads: elsewhere nobody counts on who has just started.
        """
        return tuple(
            self._claim(fact)
            for fact in self._metadata.partitions.leaderless()
            if self._node_id in {*fact.in_sync, *fact.claimed} and self._is_suspect(fact)
        )

    def role_changed(self, topic: Topic, partition: Partition, leads: bool) -> None:
        """Look at a partition as soon as it is led, when whoever coordinates by it has read it."""
        if leads:
            self._clock.call_soon(partial(self._look_at, (topic.id, partition.name.partition)))

    def is_unfit(self, topic_id: bytes, number: int) -> bool:
        """Whether this node's copy is known to have a hole, and is not the last hope.

        Another can lead in its place, or has to be in sync before anything counts here.
        """
        fact = self._metadata.partitions.get(topic_id, number)
        partition = None if fact is None else self._copy(fact)
        if fact is None or partition is None or partition.first_damage is None:
            return False
        return partition.shortage is not None or self._to_give_up(fact) is not None

    def is_curable(self, topic_id: bytes, number: int) -> bool:
        """Whether what cannot be read now of a partition will be, for another copy may have it.

        Whoever reads here reads the copy of this node, or asks the leader where there is none.
        """
        fact = self._metadata.partitions.get(topic_id, number)
        if fact is None or len(fact.members) == 1:
            return False
        if self._copy(fact) is None:
            after = elections.given_up(fact, fact.leader, Standing(self._metadata.nodes))
            return after is not fact
        return fact.leader != self._node_id or self.is_unfit(topic_id, number)

    @property
    def _metadata(self) -> Metadata:
        return self._log.metadata

    def _look(self) -> None:
        if self._is_stopped:
            return
        self._clock.call_later(LOOK_MS, self._look)
        me = self._metadata.nodes.get(self._node_id)
        if me is None or me.is_fenced or me.incarnation != self._incarnation:
            return
        self._answer()
        self._looks += 1
        if self._looks % LOOKS_PER_SEARCH == 0:
            self._give_up_damaged()

    def _answer(self) -> None:
        """Tell what this node has where those in sync are in doubt, once it can open its copy."""
        asked = [
            fact
            for fact in self._metadata.partitions.leaderless()
            if elections.is_claim_due(fact, self._node_id) and self._copy(fact) is not None
        ]
        if asked:
            copies = tuple(self._claim(fact) for fact in asked[:CLAIMS_MAX])
            self._tell(ClaimCopies(self._node_id, self._incarnation, copies))

    def _look_at(self, place: PartitionKey) -> None:
        fact = self._metadata.partitions.get(*place)
        if fact is not None and not self._is_stopped:
            self._give_up_if_damaged(fact)

    def _give_up_damaged(self) -> None:
        for fact in self._metadata.partitions.of_node(self._node_id):
            self._give_up_if_damaged(fact)

    def _give_up_if_damaged(self, fact: PartitionFact) -> None:
        partition = self._to_give_up(fact)
        if partition is None:
            return
        _log.error(
            "%s: offset %d cannot be read here; another node is to lead, if it does not yet, and "
            "this one to have it again from there",
            partition.name,
            partition.first_damage,
        )
        self._tell(
            GiveUpCopy(self._node_id, self._incarnation, fact.topic_id, fact.number, fact.version)
        )

    def _tell(self, command: ClaimCopies | GiveUpCopy) -> None:
        def answered(_: None, error: Exception | None) -> None:
            # Whatever was not heard, or came too late, is said again if it is still to be said.
            if error is not None and not isinstance(error, GoQueueError):
                raise error

        self._ask(command).then(answered)

    # Copies

    def _to_give_up(self, fact: PartitionFact) -> Partition | None:
        """The copy of a partition, if it has a hole and another can lead in its place."""
        partition = self._copy(fact)
        if partition is None or partition.first_damage is None:
            return None
        after = elections.given_up(fact, self._node_id, Standing(self._metadata.nodes))
        return None if after is fact else partition

    def _is_suspect(self, fact: PartitionFact) -> bool:
        partition = self._copy(fact)
        return partition is None or partition.is_suspect or partition.first_damage is not None

    def _claim(self, fact: PartitionFact) -> CopyClaim:
        partition = self._copy(fact)
        claim = NOTHING_CLAIMED if partition is None else Claim(*partition.whole_until)
        return CopyClaim(fact.topic_id, fact.number, claim)

    def _copy(self, fact: PartitionFact) -> Partition | None:
        """The copy of a partition; None when there is no room for it, or it cannot be read."""
        topic = self._topics.find_by_id(fact.topic_id)
        partition = None if topic is None else topic.partition(fact.number)
        return partition if partition is not None and self._topics.keeps(partition) else None
