"""Topics: their partitions and their settings."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from goqueue.wire.carrier.bodies import Answer, Body
from goqueue.wire.http.fields import (
    INT32_MAX,
    Moment,
    Offset,
    PartitionCount,
    PartitionNumber,
    TopicName,
)

SettingValue = str | int | float | bool
Settings = Annotated[
    dict[str, SettingValue],
    Meta(description="By name, as `GET` shows them.", examples=[{"retention_ms": 86_400_000}]),
]


class CreateTopic(Body, kw_only=True):
    name: TopicName
    partitions: Annotated[
        PartitionCount | None, Meta(description="By default the node's setting.")
    ] = None
    replication: Annotated[
        Annotated[int, Meta(ge=1, le=INT32_MAX)] | None,
        Meta(description="Copies of each partition; as many as there are nodes at most."),
    ] = None
    settings: Settings = {}


class ListTopics(Body, kw_only=True):
    prefix: Annotated[str, Meta(max_length=249, description="Only names that begin so.")] = ""
    internal: Annotated[bool, Meta(description="Also those that the broker keeps itself.")] = False


class Topic(Answer, kw_only=True):
    name: str
    id: str
    partitions: int
    replication: int
    internal: bool
    settings: Annotated[
        dict[str, SettingValue], Meta(description="The topic's own; the rest are defaults.")
    ]


class TopicDescription(Topic, kw_only=True):
    effective_settings: dict[str, SettingValue]
    messages: Annotated[int, Meta(description="Offsets in use; compaction may have left fewer.")]
    bytes: int


class Topics(Answer, kw_only=True):
    topics: list[Topic]


class ChangeTopic(Body, kw_only=True):
    """A setting that is `null` goes back to its default; one that is not named stays."""

    settings: Annotated[
        dict[str, SettingValue | None], Meta(examples=[{"retention_ms": 86_400_000}])
    ]


class Partition(Answer, kw_only=True):
    partition: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    in_sync: list[int]
    start_offset: int
    end_offset: Annotated[int, Meta(description="The offset that the next record will get.")]
    high_watermark: Annotated[int, Meta(description="Below it records are durable and readable.")]
    bytes: int


class Partitions(Answer, kw_only=True):
    topic: str
    partitions: list[Partition]


class Grow(Body, kw_only=True):
    partitions: Annotated[PartitionCount, Meta(description="How many there shall be in all.")]


class DeleteRecords(Body, kw_only=True):
    """Forget the records of one partition or of all before an offset or a moment.

    Without either, everything that is readable now.
    """

    partition: PartitionNumber | None = None
    before_offset: Annotated[Offset | None, Meta(description="Needs a partition.")] = None
    before: Moment | None = None


class Deleted(Answer, kw_only=True):
    partition: int
    start_offset: Annotated[int, Meta(description="The first offset that is left.")]


class DeletedRecords(Answer, kw_only=True):
    topic: str
    partitions: list[Deleted]


class Compaction(Answer, kw_only=True):
    """Compaction runs in the background; this many partitions are now in line for it."""

    topic: str
    partitions: int
