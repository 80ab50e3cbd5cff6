"""Members of stream groups: join, heartbeat, poll, commit, leave."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from goqueue.client.http.failures import error_of_problem
from goqueue.client.http.messages import Message, message_of
from goqueue.client.http.moments import Duration, duration_ms
from goqueue.client.http.request import (
    Repeat,
    Request,
    body_of,
    nothing,
    path_of,
    query_of,
    reading,
)
from goqueue.model.errors import GoQueueError
from goqueue.model.names import TopicPartition
from goqueue.wire.carrier.problems import Problem
from goqueue.wire.http.bodies import groups as bodies
from goqueue.wire.http.bodies.groups import PartitionReset
from goqueue.wire.http.bodies.messages import Damage
from goqueue.wire.http.fields import Start

Partitions = frozenset[TopicPartition]

_read_member = reading(bodies.Member)
_read_polled = reading(bodies.Polled)
_read_committed = reading(bodies.Committed)


class MemberResult(msgspec.Struct, frozen=True, kw_only=True):
    """The broker's instructions to a member; no assignment means that it is unchanged."""

    member_id: str
    member_epoch: int
    heartbeat_ms: int
    assignment: Partitions | None


class Polled(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of a poll, and the instructions that came with them."""

    messages: tuple[Message, ...]
    member_epoch: int
    assignment: Partitions | None
    resets: tuple[PartitionReset, ...] = ()
    damaged: tuple[Damage, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberRequests:
    """Requests of one member of one group."""

    group: str
    member_id: str
    instance_id: str | None = None

    def join(
        self,
        topics: Iterable[str],
        *,
        topic_pattern: str = "",
        rebalance_timeout: Duration = 60,
    ) -> Request[MemberResult]:
        body = bodies.Join(
            topics=list(topics),
            topic_pattern=topic_pattern,
            member_id=self.member_id,
            instance_id=self.instance_id,
            rebalance_timeout_ms=duration_ms(rebalance_timeout),
        )
        return Request(
            "POST", path_of("groups", self.group, "join"), _member_result, body=body_of(body)
        )

    def heartbeat(self, epoch: int, owned: Partitions | None = None) -> Request[MemberResult]:
        body = bodies.Heartbeat(
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance_id,
            owned=None if owned is None else by_topic(owned),
        )
        path = path_of("groups", self.group, "heartbeat")
        return Request("POST", path, _member_result, body=body_of(body))

    def revoke(self, epoch: int, kept: Partitions) -> Request[MemberResult]:
        body = bodies.Revoke(
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance_id,
            owned=by_topic(kept),
        )
        return Request(
            "POST", path_of("groups", self.group, "revoke"), _member_result, body=body_of(body)
        )

    def poll(
        self, epoch: int, *, limit: int, wait: Duration, auto_commit: bool, start: Start
    ) -> Request[Polled]:
        query = bodies.Poll(
            member_id=self.member_id,
            member_epoch=epoch,
            limit=limit,
            wait_ms=duration_ms(wait),
            auto_commit=auto_commit,
            start=start,
        )
        # Not repeatable: the broker advances with each response, so a second poll would skip the
        # messages of a lost response. A member that loses one joins again.
        return Request(
            "GET",
            path_of("groups", self.group, "poll"),
            _polled,
            query_of(query),
            repeat=Repeat.AMBIGUOUS,
            wait_ms=query.wait_ms,
        )

    def commit(
        self, epoch: int, offsets: Mapping[TopicPartition, int]
    ) -> Request[dict[TopicPartition, GoQueueError]]:
        """Commit offsets; return the partitions that were refused, with their errors."""
        body = bodies.Commit(
            offsets=[
                bodies.OffsetToCommit(topic=one.topic, partition=one.partition, offset=offset)
                for one, offset in offsets.items()
            ],
            member_id=self.member_id,
            member_epoch=epoch,
        )
        path = path_of("groups", self.group, "commit")
        return Request("POST", path, _refused, body=body_of(body))

    def leave(self, *, restarts: bool = False) -> Request[None]:
        body = bodies.Leave(
            member_id=self.member_id, instance_id=self.instance_id, restarts=restarts
        )
        return Request("POST", path_of("groups", self.group, "leave"), nothing, body=body_of(body))


def by_topic(partitions: Partitions) -> list[bodies.TopicPartitions]:
    topics: dict[str, list[int]] = {}
    for one in sorted(partitions):
        topics.setdefault(one.topic, []).append(one.partition)
    return [
        bodies.TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in topics.items()
    ]


def _flat(assignment: list[bodies.TopicPartitions] | None) -> Partitions | None:
    if assignment is None:
        return None
    return frozenset(
        TopicPartition(one.topic, number) for one in assignment for number in one.partitions
    )


def _member_result(data: bytes) -> MemberResult:
    answer = _read_member(data)
    return MemberResult(
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_ms=answer.heartbeat_interval_ms,
        assignment=_flat(answer.assignment),
    )


def _polled(data: bytes) -> Polled:
    answer = _read_polled(data)
    return Polled(
        messages=tuple(map(message_of, answer.messages)),
        member_epoch=answer.member_epoch,
        assignment=_flat(answer.assignment),
        resets=tuple(answer.resets),
        damaged=tuple(answer.damaged),
    )


def _refused(data: bytes) -> dict[TopicPartition, GoQueueError]:
    return {
        TopicPartition(one.topic, one.partition): error_of_problem(one.problem)
        for one in _read_committed(data).results
        if isinstance(one.problem, Problem)
    }
