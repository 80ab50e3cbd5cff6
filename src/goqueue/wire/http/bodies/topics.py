"""Topics: their partitions and their settings."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from goqueue.wire.carrier.bodies import Answer, Body
from goqueue.wire.http.fields import (
    INT32_MAX,
    Limit,
    ListCursor,
    Match,
    Moment,
    Offset,
    Order,
    PartitionCount,
    PartitionNumber,
    TopicName,
)

TopicSort = Literal[
    "name",
    "partitions",
    "messages",
    "bytes",
    "in_per_s",
    "in_bytes_per_s",
    "out_per_s",
    "out_bytes_per_s",
    "groups",
    "lag",
]
SettingValue = str | int | float | bool
Settings = Annotated[
    dict[str, SettingValue],
    Meta(
        description="Settings by name, as returned by `GET`.",
        examples=[{"retention_ms": 86_400_000}],
    ),
]


class CreateTopic(Body, kw_only=True):
    name: TopicName
    partitions: Annotated[
        PartitionCount | None, Meta(description="By default the node's setting.")
    ] = None
    replication: Annotated[
        Annotated[int, Meta(ge=1, le=INT32_MAX)] | None,
        Meta(description="Replicas of each partition; at most the number of nodes."),
    ] = None
    settings: Settings = {}


class ListTopics(Body, kw_only=True):
    prefix: Annotated[str, Meta(max_length=249, description="Only names with this prefix.")] = ""
    match: Match = ""
    internal: Annotated[bool, Meta(description="Include internal topics of the broker.")] = False
    sort: Annotated[TopicSort, Meta(description="What to sort by.")] = "name"
    order: Order = "asc"
    limit: Annotated[Limit | None, Meta(description="By default all topics.")] = None
    cursor: ListCursor = ""
    stats: Annotated[bool, Meta(description="Include figures of each topic.")] = False


class Topic(Answer, kw_only=True):
    name: str
    id: str
    partitions: int
    replication: int
    internal: bool
    settings: Annotated[
        dict[str, SettingValue],
        Meta(description="Settings of the topic itself; all others have their default."),
    ]


class TopicStats(Answer, kw_only=True):
    """Figures of a topic, as far as its leaders can be reached."""

    messages: Annotated[int, Meta(description="As in the description of the topic.")]
    bytes: int
    in_per_s: Annotated[float, Meta(description="Messages stored, in the last seconds.")]
    in_bytes_per_s: float
    out_per_s: Annotated[float, Meta(description="Messages read or delivered.")]
    out_bytes_per_s: Annotated[float, Meta(description="Bytes read by offset.")]
    groups: Annotated[int, Meta(description="Groups that read the topic.")]
    lag: Annotated[int, Meta(description="Messages left for the group that is furthest behind.")]


class ListedTopic(Topic, kw_only=True, omit_defaults=True):
    stats: TopicStats | UnsetType = UNSET


class TopicDescription(Topic, kw_only=True):
    effective_settings: dict[str, SettingValue]
    messages: Annotated[
        int,
        Meta(description="Size of the offset range; after compaction there may be fewer records."),
    ]
    bytes: int


class Topics(Answer, kw_only=True):
    """All topics, or a page of them if the request has a limit or other options of pages.

    Then `cursor` is the start of the next page, and empty at the end.
    """

    topics: list[ListedTopic]
    cursor: str | UnsetType = UNSET
    total: Annotated[int | UnsetType, Meta(description="Number of topics on all pages.")] = UNSET
    missing_nodes: Annotated[
        list[int] | UnsetType, Meta(description="Nodes whose part of the figures is missing.")
    ] = UNSET


class ChangeTopic(Body, kw_only=True):
    """A setting that is `null` is reset to its default; one that is not given is kept."""

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
    end_offset: Annotated[int, Meta(description="The offset of the next record to be appended.")]
    high_watermark: Annotated[int, Meta(description="Records below it are committed and readable.")]
    bytes: int


class ListTopicPartitions(Body, kw_only=True):
    limit: Annotated[Limit | None, Meta(description="By default all partitions.")] = None
    cursor: Annotated[
        str,
        Meta(
            pattern=r"^[0-9]{0,9}$",
            description="`cursor` of the last response; by default from the start.",
        ),
    ] = ""


class Partitions(Answer, kw_only=True):
    """All partitions, or a page of them if the request has a limit.

    Then `cursor` is the start of the next page, and empty at the end.
    """

    topic: str
    partitions: list[Partition]
    cursor: str | UnsetType = UNSET
    total: Annotated[int | UnsetType, Meta(description="Partitions on all pages.")] = UNSET


class Grow(Body, kw_only=True):
    partitions: Annotated[PartitionCount, Meta(description="New total number of partitions.")]


class DeleteRecords(Body, kw_only=True):
    """Delete the records of one partition or of all, before an offset or a time.

    Without either, all records that are readable now are deleted.
    """

    partition: PartitionNumber | None = None
    before_offset: Annotated[Offset | None, Meta(description="Needs a partition.")] = None
    before: Moment | None = None


class Deleted(Answer, kw_only=True):
    partition: int
    start_offset: Annotated[int, Meta(description="The first remaining offset.")]


class DeletedRecords(Answer, kw_only=True):
    topic: str
    partitions: list[Deleted]


class Compaction(Answer, kw_only=True):
    """The number of partitions queued for compaction, which runs in the background."""

    topic: str
    partitions: int
