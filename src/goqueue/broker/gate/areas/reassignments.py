"""Operations on the placement of partitions: elect leaders, move replicas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from goqueue.broker.administration import PartitionView, plan_away, plan_spread
from goqueue.broker.gate.operation import Area, Arguments, cluster, operation, query
from goqueue.broker.topics.topics import Topic
from goqueue.loop.promise import Promise
from goqueue.model.access import Action
from goqueue.model.errors import GoQueueError, InvalidReplicationFactor
from goqueue.model.names import TopicPartition
from goqueue.model.session import Session
from goqueue.model.tenants import TopicName

__all__ = ["Move", "MoveProgress", "PartitionView", "ReassignmentsArea", "ReplicaProgress"]

PROGRESS_MAX = 0.99  # until the new replicas are in sync

Outcomes = list[GoQueueError | None]
_Begin = Callable[[Topic, int], Promise[None]]


class Move(NamedTuple):
    """New replicas for a partition; None cancels its move."""

    topic: TopicName
    partition: int
    replicas: Sequence[int] | None = None


class ReplicaProgress(msgspec.Struct, array_like=True):
    """The progress of one node's replica."""

    node: int
    start_offset: int
    end_offset: int
    size: int
    bytes_per_second: int


class MoveProgress(msgspec.Struct, array_like=True):
    """A move in progress, with the replicas of the nodes that have answered."""

    view: PartitionView
    replicas: list[ReplicaProgress]
    progress: float = 0.0
    bytes_left: int = 0
    bytes_per_second: int = 0
    remaining_ms: int | None = None


def _merge(_: Arguments, answers: Sequence[list[MoveProgress]]) -> list[MoveProgress]:
    """Merge moves: those of the node that was called, with the replicas of all nodes."""
    moves = {(one.view.topic, one.view.number): one for one in answers[-1]}
    for answer in answers[:-1]:
        for other in answer:
            mine = moves.get((other.view.topic, other.view.number))
            if mine is not None:
                mine.replicas += other.replicas
    for one in moves.values():
        one.replicas.sort(key=lambda replica: replica.node)
        one.progress = _progress(one)
        _estimate(one)
    return list(moves.values())


class ReassignmentsArea(Area):
    """The placement of partitions: show, elect leaders, move replicas."""

    # Inspection

    @query(Action.DESCRIBE, cluster)
    def placed(
        self,
        session: Session,
        *,
        topic: TopicName | None = None,
        numbers: Sequence[int] | None = None,
    ) -> list[PartitionView]:
        """Return partitions by topic and number: of all topics, of one, or some of one."""
        administration = self._broker.administration
        if topic is None:
            return list(administration.partitions())
        found = self._broker.topics.get(topic)
        if numbers is None:
            return list(administration.partitions(found))
        return [administration.partition(found, number) for number in numbers]

    @query(Action.DESCRIBE, cluster)
    def moving(
        self, session: Session, *, topic: TopicName | None = None, partition: int | None = None
    ) -> list[PartitionView]:
        """Return the moving partitions of all topics or of one, or one named partition."""
        if topic is not None:
            found = self._broker.topics.get(topic)
            if partition is not None:
                return [self._broker.administration.partition(found, partition)]
        moving = self._broker.administration.moving()
        return [one for one in moving if topic in (None, one.topic)]

    @operation(Action.DESCRIBE, cluster, merge=_merge, is_reading=True)
    async def progress(
        self, session: Session, *, topic: TopicName | None = None
    ) -> list[MoveProgress]:
        """Return the moves in progress, with the progress of the replicas on all nodes.

        Each node answers for its own replicas. A single node has no moves.
        """
        moving = self._broker.administration.moving()
        return [self._progress_here(one) for one in moving if topic in (None, one.topic)]

    def _progress_here(self, view: PartitionView) -> MoveProgress:
        broker = self._broker
        if broker.node_id not in (*view.replicas, *view.adding):
            return MoveProgress(view, [])
        topic = broker.topics.get(view.topic)
        partition = topic.partition(view.number)
        here = ReplicaProgress(
            broker.node_id,
            partition.start_offset,
            partition.end_offset,
            partition.log.size,
            broker.administration.copy_bytes_per_second(topic, view.number),
        )
        return MoveProgress(view, [here])

    @query(Action.DESCRIBE, cluster)
    def plan_away(
        self, session: Session, *, node: int, topic: TopicName | None = None
    ) -> list[PartitionView]:
        """Plan to move all replicas of a node to other nodes."""
        administration = self._broker.administration
        administration.node(node)
        found = None if topic is None else self._broker.topics.get(topic)
        views = list(administration.partitions(found))
        return plan_away(views, leaving=node, nodes=administration.nodes())

    @query(Action.DESCRIBE, cluster)
    def plan_spread(
        self, session: Session, *, topics: Sequence[TopicName], nodes: Sequence[int]
    ) -> list[PartitionView]:
        """Plan to spread topics over these nodes; partitions that need no move are left out."""
        administration = self._broker.administration
        chosen = [administration.node(number) for number in dict.fromkeys(nodes)]
        views = [
            view
            for name in dict.fromkeys(topics)
            for view in administration.partitions(self._broker.topics.get(name))
        ]
        return plan_spread(views, nodes=chosen)

    @query(Action.DESCRIBE, cluster)
    def check(self, session: Session, *, moves: Sequence[Move]) -> None:
        """Raise if replicas of these moves are no different nodes of the cluster."""
        self._broker.administration.check_replicas(
            one.replicas for one in moves if one.replicas is not None
        )

    # Changing: all start at once, and each partition has its own outcome.

    @operation(Action.ALTER, cluster)
    async def elect(
        self,
        session: Session,
        *,
        partitions: Sequence[TopicPartition],
        is_unclean: bool = False,
    ) -> Outcomes:
        """Make the preferred replica of each partition leader or, if `is_unclean`, any replica."""

        def begin(topic: Topic, number: int) -> Promise[None]:
            return self._broker.administration.elect(topic, number, is_unclean=is_unclean)

        return await self._each([(one, begin) for one in partitions])

    @operation(Action.ALTER, cluster)
    async def reassign(
        self,
        session: Session,
        *,
        moves: Sequence[Move],
        throttle_bytes_per_second: int | None = None,
        may_resize: bool = True,
    ) -> Outcomes:
        """Move the replicas of partitions to other nodes, or cancel moves."""

        def begin_of(move: Move) -> _Begin:
            return lambda topic, _: self._begin_move(
                topic, move, throttle_bytes_per_second, may_resize=may_resize
            )

        return await self._each(
            [(TopicPartition(one.topic, one.partition), begin_of(one)) for one in moves]
        )

    @operation(Action.ALTER, cluster)
    async def throttle(
        self, session: Session, *, partitions: Sequence[TopicPartition], bytes_per_second: int
    ) -> Outcomes:
        """Limit the rate of moves in progress; 0 is unlimited."""

        def begin(topic: Topic, number: int) -> Promise[None]:
            return self._broker.administration.throttle_reassignment(
                topic, number, bytes_per_second
            )

        return await self._each([(one, begin) for one in partitions])

    def _begin_move(
        self, topic: Topic, move: Move, throttle: int | None, *, may_resize: bool
    ) -> Promise[None]:
        administration = self._broker.administration
        view = administration.partition(topic, move.partition)
        if move.replicas is None:
            return administration.cancel_reassignment(topic, view.number)
        if not may_resize and len(move.replicas) != len(view.replicas):
            raise InvalidReplicationFactor(
                f"{topic.name}/{view.number} has {len(view.replicas)} replicas; name as many, or "
                "allow the request to change the replication factor."
            )
        return administration.reassign(
            topic, view.number, move.replicas, throttle_bytes_per_second=throttle
        )

    async def _each(self, wanted: Sequence[tuple[TopicPartition, _Begin]]) -> Outcomes:
        """Start all, then wait; an error affects only its own partition."""
        begun: list[Promise[None] | GoQueueError] = []
        for partition, begin in wanted:
            try:
                topic = self._broker.topics.get(partition.topic)
                begun.append(begin(topic, partition.partition))
            except GoQueueError as error:
                begun.append(error)
        outcomes: Outcomes = []
        for one in begun:
            try:
                if isinstance(one, GoQueueError):
                    raise one
                await one
            except GoQueueError as error:
                outcomes.append(error)
            else:
                outcomes.append(None)
        return outcomes


def _progress(move: MoveProgress) -> float:
    """Return the fraction of the leader's records that the slowest new replica has."""
    view = move.view
    if all(node in view.in_sync for node in view.adding):
        return 1.0
    replicas = {one.node: one for one in move.replicas}
    leader = replicas.get(view.leader)
    if leader is None:
        return 0.0
    total = leader.end_offset - leader.start_offset
    ends = [replicas[node].end_offset if node in replicas else 0 for node in view.adding]
    have = max(0, min(ends) - leader.start_offset)
    return min(PROGRESS_MAX, have / total) if total else PROGRESS_MAX


def _estimate(move: MoveProgress) -> None:
    """Compute how much is left to copy, at which rate, and how long it will take."""
    view = move.view
    replicas = {one.node: one for one in move.replicas}
    leader = replicas.get(view.leader)
    behind = [
        replicas[node] for node in view.adding if node in replicas and node not in view.in_sync
    ]
    move.bytes_per_second = sum(one.bytes_per_second for one in behind)
    if leader is None:
        return
    lefts = [(max(0, leader.size - one.size), one.bytes_per_second) for one in behind]
    move.bytes_left = sum(left for left, _ in lefts)
    is_known = all(rate > 0 or not left for left, rate in lefts)
    if is_known and all(node in replicas for node in view.adding):
        times = [left * 1000 // rate for left, rate in lefts if left]
        move.remaining_ms = max(times, default=0)
