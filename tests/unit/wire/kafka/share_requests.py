"""Valid requests of the APIs of share groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from goqueue.wire.kafka.messages import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
)


class Shared(Protocol):
    """What a request is about."""

    topic: str
    topic_id: bytes
    partition: int
    share_group: str
    share_member: str


def share_beat_request(subject: Shared, *, epoch: int = 0) -> Any:
    return share_group_heartbeat.ShareGroupHeartbeatRequest(
        group_id=subject.share_group,
        member_id=subject.share_member,
        member_epoch=epoch,
        subscribed_topic_names=[subject.topic] if epoch == 0 else None,
    )


def share_fetch_request(subject: Shared, *, epoch: int = 0, **fields: Any) -> Any:
    partition = share_fetch.FetchPartition(subject.partition)
    return share_fetch.ShareFetchRequest(
        **{
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            **fields,
        },
        group_id=subject.share_group,
        member_id=subject.share_member,
        share_session_epoch=epoch,
        topics=[share_fetch.FetchTopic(subject.topic_id, [partition])],
    )


def share_ack_request(subject: Shared, *, epoch: int = 1, **fields: Any) -> Any:
    partition = share_acknowledge.AcknowledgePartition(subject.partition)
    return share_acknowledge.ShareAcknowledgeRequest(
        group_id=subject.share_group,
        member_id=subject.share_member,
        share_session_epoch=epoch,
        topics=[share_acknowledge.AcknowledgeTopic(subject.topic_id, [partition])],
        **fields,
    )


def _describe_offsets(version: int, subject: Shared) -> Any:
    topic = describe_share_group_offsets.DescribeShareGroupOffsetsRequestTopic(
        subject.topic, [subject.partition]
    )
    group = describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(
        subject.share_group, [topic]
    )
    return describe_share_group_offsets.DescribeShareGroupOffsetsRequest([group])


def _alter_offsets(version: int, subject: Shared) -> Any:
    partition = alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition(
        subject.partition, 0
    )
    topic = alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic(subject.topic, [partition])
    return alter_share_group_offsets.AlterShareGroupOffsetsRequest(subject.share_group, [topic])


def _delete_offsets(version: int, subject: Shared) -> Any:
    topic = delete_share_group_offsets.DeleteShareGroupOffsetsRequestTopic(subject.topic)
    return delete_share_group_offsets.DeleteShareGroupOffsetsRequest(subject.share_group, [topic])


BUILDERS: dict[str, Callable[[int, Any], Any]] = {
    "ShareGroupHeartbeat": lambda version, one: share_beat_request(one),
    "ShareGroupDescribe": lambda version, one: share_group_describe.ShareGroupDescribeRequest(
        [one.share_group], include_authorized_operations=True
    ),
    "ShareFetch": lambda version, one: share_fetch_request(one),
    "ShareAcknowledge": lambda version, one: share_ack_request(one),
    "DescribeShareGroupOffsets": _describe_offsets,
    "AlterShareGroupOffsets": _alter_offsets,
    "DeleteShareGroupOffsets": _delete_offsets,
}
