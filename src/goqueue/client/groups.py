"""Consumer groups: members, committed offsets, lag, and changing committed offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from goqueue.client.assignment import read_assignment, read_subscription
from goqueue.client.cluster import Cluster
from goqueue.client.errors import ErrorContext, check
from goqueue.client.offsets import Offsets
from goqueue.model.errors import (
    GroupNotEmpty,
    RebalanceInProgress,
    UnknownGroup,
    UnknownMember,
    UnknownPartition,
    UnknownTopic,
    UnsupportedVersion,
)
from goqueue.model.names import TopicPartition
from goqueue.wire.kafka.messages import (
    consumer_group_describe,
    delete_groups,
    describe_groups,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    share_group_describe,
)

T = TypeVar("T")

NOT_COMMITTED = -1
CLASSIC, CONSUMER, SHARE = "classic", "consumer", "share"
EMPTY, _DEAD = "Empty", "Dead"


@dataclass(frozen=True, slots=True)
class GroupSummary:
    name: str
    kind: str  # classic, consumer or share; empty if the broker does not report it
    state: str
    protocol: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]
    topics: tuple[str, ...] = ()  # subscribed by name


@dataclass(frozen=True, slots=True)
class GroupDescription:
    name: str
    kind: str
    state: str
    assignor: str
    members: tuple[GroupMember, ...]


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    offset: int
    metadata: str = ""
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The progress of a group in one partition."""

    partition: TopicPartition
    committed: int | None
    start: int | None  # of the log; None if the partition was deleted, as for the two ends
    end: int | None  # of the log
    records_end: int | None  # after the last record, not counting markers and aborted records
    member: GroupMember | None = field(default=None)

    @property
    def position(self) -> int | None:
        """Where the group continues: at its committed offset, but not before the log start."""
        if self.start is None:
            return self.committed
        return self.start if self.committed is None else max(self.committed, self.start)

    @property
    def lag(self) -> int | None:
        """Records not read yet, estimated from offsets; None if the partition was deleted."""
        if self.position is None or self.records_end is None:
            return None
        return max(0, self.records_end - self.position)


class Groups:
    """Manages consumer groups.

    >>> [(each.partition.partition, each.lag) for each in client.groups.lag("billing")]
    [(0, 0), (1, 17)]
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def list_all(self) -> list[GroupSummary]:
        """The groups of all brokers, by name."""

        def attempt() -> list[GroupSummary]:
            request = list_groups.ListGroupsRequest()
            nodes = self._cluster.nodes()
            found = []
            for response in self._cluster.call_leaders(list_groups, dict.fromkeys(nodes, request)):
                check(response.error_code)
                found += [
                    GroupSummary(
                        each.group_id,
                        each.group_type.lower(),
                        each.group_state,
                        each.protocol_type,
                    )
                    for each in response.groups
                ]
            return sorted(found, key=lambda group: group.name)

        return self._cluster.retrying(attempt)

    def describe(self, group: str) -> GroupDescription:
        """Describe a group and its members."""

        def attempt() -> GroupDescription:
            try:
                return self._describe_consumer(group)
            except (UnknownGroup, UnsupportedVersion):
                return self._describe_classic(group)

        return self._cluster.retrying(attempt)

    def describe_share(self, group: str) -> GroupDescription:
        """Describe a share group and its members; on GoQueue, every queue group is one."""
        request = share_group_describe.ShareGroupDescribeRequest([group])

        def attempt() -> GroupDescription:
            response = self._cluster.call_coordinator(group, share_group_describe, request)
            found = response.groups[0]
            check(found.error_code, found.error_message, ErrorContext(group=group))
            members = tuple(_share_member(each) for each in found.members)
            return GroupDescription(group, SHARE, found.group_state, found.assignor_name, members)

        return self._cluster.retrying(attempt)

    def delete(self, group: str) -> None:
        """Delete a group that has no members, with its offsets."""
        request = delete_groups.DeleteGroupsRequest([group])

        def attempt() -> None:
            response = self._cluster.call_coordinator(group, delete_groups, request)
            for each in response.results:
                check(each.error_code, None, ErrorContext(group=group))

        self._cluster.retrying(attempt)

    def committed(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """The committed offsets of a group; partitions without one are left out."""
        wanted = None if partitions is None else _by_topic(partitions)
        topics = (
            None
            if wanted is None
            else [
                offset_fetch.OffsetFetchRequestTopics(name, partition_indexes=indexes)
                for name, indexes in wanted.items()
            ]
        )
        group_request = offset_fetch.OffsetFetchRequestGroup(group, topics=topics)
        request = offset_fetch.OffsetFetchRequest(groups=[group_request])

        def attempt() -> dict[TopicPartition, CommittedOffset]:
            found = self._cluster.call_coordinator(group, offset_fetch, request).groups[0]
            check(found.error_code, None, ErrorContext(group=group))
            return _committed(found)

        return self._cluster.retrying(attempt)

    def commit(
        self, group: str, offsets: Mapping[TopicPartition, int], *, metadata: str = ""
    ) -> None:
        """Commit offsets for a group that has no members."""
        topics = [
            offset_commit.OffsetCommitRequestTopic(
                name,
                partitions=[
                    offset_commit.OffsetCommitRequestPartition(
                        index, offsets[TopicPartition(name, index)], committed_metadata=metadata
                    )
                    for index in indexes
                ],
            )
            for name, indexes in _by_topic(offsets).items()
        ]
        request = offset_commit.OffsetCommitRequest(group, topics=topics)

        def attempt() -> None:
            response = self._cluster.call_coordinator(group, offset_commit, request)
            for topic in response.topics:
                for each in topic.partitions:
                    check(
                        each.error_code,
                        None,
                        ErrorContext(topic.name, each.partition_index, group),
                    )

        self._changing(group, attempt)

    def delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete the committed offsets of some partitions."""
        topics = [
            offset_delete.OffsetDeleteRequestTopic(
                name, [offset_delete.OffsetDeleteRequestPartition(index) for index in indexes]
            )
            for name, indexes in _by_topic(partitions).items()
        ]
        request = offset_delete.OffsetDeleteRequest(group, topics)

        def attempt() -> None:
            response = self._cluster.call_coordinator(group, offset_delete, request)
            check(response.error_code, None, ErrorContext(group=group))
            for topic in response.topics:
                for each in topic.partitions:
                    check(each.error_code, None, ErrorContext(topic.name, each.partition_index))

        self._changing(group, attempt)

    def lag(self, group: str) -> list[PartitionLag]:
        """Describe the progress of the group in each partition of the topics it reads.

        These are the topics of which a member owns a partition or to which it subscribes by name,
        and those with a committed offset. A partition without one counts from the log start.
        """
        description = self.describe(group)
        owners = {
            partition: member for member in description.members for partition in member.partitions
        }
        committed = self.committed(group)
        read = {each.topic for each in (*owners, *committed)}
        read |= {topic for member in description.members for topic in member.topics}
        existing = [
            partition
            for topic in self._cluster.retrying(self._cluster.topics)
            if topic.name in read
            for partition in topic.names
        ]
        offsets = Offsets(self._cluster)
        # The log end is requested after the end of the records, so that it is not lower.
        records_ends = offsets.records_ends(existing)
        ranges = offsets.ranges(existing)
        return [
            PartitionLag(
                partition,
                committed[partition].offset if partition in committed else None,
                ranges[partition].start if partition in ranges else None,
                ranges[partition].end if partition in ranges else None,
                records_ends.get(partition),
                owners.get(partition),
            )
            for partition in sorted({*owners, *committed, *existing})
        ]

    def _describe_consumer(self, group: str) -> GroupDescription:
        request = consumer_group_describe.ConsumerGroupDescribeRequest([group])
        response = self._cluster.call_coordinator(group, consumer_group_describe, request)
        found = response.groups[0]
        check(found.error_code, found.error_message, ErrorContext(group=group))
        members = [
            GroupMember(
                each.member_id,
                each.instance_id,
                each.client_id,
                each.client_host.removeprefix("/"),
                tuple(
                    TopicPartition(topic.topic_name, index)
                    for topic in each.assignment.topic_partitions
                    for index in topic.partitions
                ),
                tuple(each.subscribed_topic_names),
            )
            for each in found.members
        ]
        return GroupDescription(
            group, CONSUMER, found.group_state, found.assignor_name, tuple(members)
        )

    def _describe_classic(self, group: str) -> GroupDescription:
        request = describe_groups.DescribeGroupsRequest([group])
        found = self._cluster.call_coordinator(group, describe_groups, request).groups[0]
        check(found.error_code, None, ErrorContext(group=group))
        # Older versions return no error for a group that does not exist.
        if found.group_state == _DEAD:
            raise UnknownGroup(group)
        is_consumer = found.protocol_type == CONSUMER
        members = [
            GroupMember(
                each.member_id,
                each.group_instance_id,
                each.client_id,
                each.client_host.removeprefix("/"),
                tuple(read_assignment(each.member_assignment) if is_consumer else ()),
                read_subscription(each.member_metadata) if is_consumer else (),
            )
            for each in found.members
        ]
        return GroupDescription(
            group, CLASSIC, found.group_state, found.protocol_data, tuple(members)
        )

    def _changing(self, group: str, attempt: Callable[[], T]) -> T:
        """Run a change that requires a group without members; the error says so if it has some."""
        try:
            return self._cluster.retrying(
                attempt, final=(UnknownTopic, UnknownPartition, RebalanceInProgress)
            )
        except (UnknownMember, RebalanceInProgress) as error:
            raise GroupNotEmpty(group) from error


def _share_member(each: share_group_describe.Member) -> GroupMember:
    partitions = (
        TopicPartition(topic.topic_name, index)
        for topic in each.assignment.topic_partitions
        for index in topic.partitions
    )
    return GroupMember(
        each.member_id,
        None,
        each.client_id,
        each.client_host.removeprefix("/"),
        tuple(partitions),
        tuple(each.subscribed_topic_names),
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for each in partitions:
        found.setdefault(each.topic, []).append(each.partition)
    return found


def _committed(
    found: offset_fetch.OffsetFetchResponseGroup,
) -> dict[TopicPartition, CommittedOffset]:
    offsets = {}
    for topic in found.topics:
        for each in topic.partitions:
            check(each.error_code, None, ErrorContext(topic.name, each.partition_index))
            if each.committed_offset != NOT_COMMITTED:
                offsets[TopicPartition(topic.name, each.partition_index)] = CommittedOffset(
                    each.committed_offset, each.metadata or "", each.committed_leader_epoch
                )
    return offsets
