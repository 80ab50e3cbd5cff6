"""A member of a consumer group, and the steps by which it reaches its target.

A member owns `assigned`, must release `revoking`, and will have `target`. It first revokes,
confirms that by the partitions it reports as owned, and only then moves to the new epoch, where it
gets those partitions of its target that no other member holds any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from goqueue.groups.assignment.partitions import NO_PARTITIONS, Partition, Partitions, flatten, nest
from goqueue.groups.calls import STATIC_LEAVE_EPOCH
from goqueue.groups.classic.roster import Protocols
from goqueue.groups.records import MemberRecord
from goqueue.groups.results import MemberDescription
from goqueue.groups.timers import Timer


@dataclass(slots=True, eq=False)
class ConsumerMember:
    member_id: str
    session: Timer
    rebalance_timer: Timer  # runs while a revocation, a join or a sync of the member is outstanding
    session_timeout_ms: int
    rebalance_timeout_ms: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    protocols: Protocols = ()  # of a classic member
    topics: tuple[str, ...] = ()
    regex: str = ""
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = -1
    assigned: Partitions = NO_PARTITIONS
    revoking: Partitions = NO_PARTITIONS
    target: Partitions = NO_PARTITIONS
    releases_seen: int = -1  # the group's count when it last checked for free partitions

    @property
    def is_classic(self) -> bool:
        return bool(self.protocols)

    @property
    def has_left(self) -> bool:
        """Whether it is a static member that is restarting; its partitions are reserved for it."""
        return self.epoch == STATIC_LEAVE_EPOCH

    @property
    def held(self) -> Partitions:
        return self.assigned | self.revoking

    def to_record(self) -> MemberRecord:
        return MemberRecord(
            member_id=self.member_id,
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            protocols=self.protocols,
            topics=self.topics,
            regex=self.regex,
            assignor=self.assignor,
            epoch=self.epoch,
            previous_epoch=self.previous_epoch,
            assigned=nest(self.assigned),
            revoking=nest(self.revoking),
            target=nest(self.target),
        )

    def load(self, record: MemberRecord) -> None:
        """Restore a stored member."""
        self.rebalance_timeout_ms = record.rebalance_timeout_ms
        self.instance_id = record.instance_id
        self.rack_id = record.rack_id
        self.client_id = record.client_id
        self.client_host = record.client_host
        self.protocols = record.protocols
        self.topics = record.topics
        self.regex = record.regex
        self.assignor = record.assignor
        self.epoch = record.epoch
        self.previous_epoch = record.previous_epoch
        self.assigned = flatten(record.assigned)
        self.revoking = flatten(record.revoking)
        self.target = flatten(record.target)

    def describe(self) -> MemberDescription:
        return MemberDescription(
            member_id=self.member_id,
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            is_classic=self.is_classic,
            epoch=self.epoch,
            subscribed_topics=self.topics,
            subscribed_regex=self.regex,
            assigned=self.assigned,
            target=self.target,
        )


class Step(NamedTuple):
    epoch: int
    assigned: Partitions
    revoking: Partitions


def next_step(
    member: ConsumerMember,
    *,
    target_epoch: int,
    owned: Partitions | None,
    owners: Mapping[Partition, str],
) -> Step:
    """The next step towards the target, given the partitions reported as owned, if any."""
    if member.revoking and _still_owns(owned, member.revoking):
        return Step(member.epoch, member.assigned, member.revoking)
    kept = member.assigned & member.target
    dropped = member.assigned - member.target
    if dropped and _still_owns(owned, dropped):
        return Step(member.epoch, kept, dropped)
    free = {
        partition
        for partition in member.target - kept
        if owners.get(partition, member.member_id) == member.member_id
    }
    return Step(target_epoch, kept | free, NO_PARTITIONS)


def _still_owns(owned: Partitions | None, partitions: Partitions) -> bool:
    return owned is None or not owned.isdisjoint(partitions)
