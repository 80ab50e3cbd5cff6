"""Topics: their partitions and settings."""

from __future__ import annotations

from collections.abc import Mapping

from goqueue.client.http.group_results import Lanes
from goqueue.client.http.moments import Position, position_text
from goqueue.client.http.request import (
    Repeat,
    Request,
    body_of,
    nothing,
    path_of,
    query_of,
    reading,
)
from goqueue.wire.http.bodies import topics as bodies
from goqueue.wire.http.bodies.topics import (
    Deleted,
    Partition,
    SettingValue,
    Topic,
    TopicDescription,
)

_read_description = reading(bodies.TopicDescription)
_read_topics = reading(bodies.Topics)
_read_partitions = reading(bodies.Partitions)
_read_deleted = reading(bodies.DeletedRecords)
_read_compaction = reading(bodies.Compaction)
_read_lanes = reading(Lanes)


class TopicRequests:
    def create(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication: int | None = None,
        settings: Mapping[str, SettingValue] | None = None,
    ) -> Request[TopicDescription]:
        """Create a topic; settings not given have the node's defaults."""
        body = bodies.CreateTopic(
            name=name,
            partitions=partitions,
            replication=replication,
            settings=dict(settings or {}),
        )
        return Request(
            "POST",
            path_of("topics"),
            _read_description,
            body=body_of(body),
            repeat=Repeat.AMBIGUOUS,
        )

    def list_all(self, *, prefix: str = "", internal: bool = False) -> Request[list[Topic]]:
        """Return the topics with a name prefix, by name."""
        query = query_of(bodies.ListTopics(prefix=prefix, internal=internal))
        return Request("GET", path_of("topics"), _topics, query)

    def describe(self, topic: str) -> Request[TopicDescription]:
        """Return a topic with its settings and its size."""
        return Request("GET", path_of("topics", topic), _read_description)

    def configure(
        self, topic: str, settings: Mapping[str, SettingValue | None]
    ) -> Request[TopicDescription]:
        """Change settings; None resets one to its default."""
        body = bodies.ChangeTopic(settings=dict(settings))
        return Request("PATCH", path_of("topics", topic), _read_description, body=body_of(body))

    def delete(self, topic: str) -> Request[None]:
        """Delete a topic and all its messages."""
        return Request("DELETE", path_of("topics", topic), nothing, repeat=Repeat.AMBIGUOUS)

    def partitions(self, topic: str) -> Request[list[Partition]]:
        """Return the partitions of a topic: leader, offsets, size."""
        return Request("GET", path_of("topics", topic, "partitions"), _partitions)

    def grow(self, topic: str, *, partitions: int) -> Request[list[Partition]]:
        """Add partitions up to this total."""
        return Request(
            "POST",
            path_of("topics", topic, "partitions"),
            _partitions,
            body=body_of(bodies.Grow(partitions=partitions)),
            repeat=Repeat.AMBIGUOUS,
        )

    def compact(self, topic: str) -> Request[int]:
        """Request compaction of a topic; return how many partitions are queued for it."""
        path = path_of("topics", topic, "compact")
        return Request("POST", path, lambda data: _read_compaction(data).partitions, body=b"{}")

    def delete_records(
        self,
        topic: str,
        *,
        partition: int | None = None,
        before_offset: int | None = None,
        before: Position | None = None,
    ) -> Request[list[Deleted]]:
        """Delete the oldest records, before an offset of a partition or before a time."""
        query = bodies.DeleteRecords(
            partition=partition,
            before_offset=before_offset,
            before=None if before is None else position_text(before),
        )
        return Request("DELETE", path_of("topics", topic, "records"), _deleted, query_of(query))

    def lanes(self, topic: str) -> Request[Lanes]:
        """Return the lanes of a topic, their contents, and the state of each queue group."""
        return Request("GET", path_of("topics", topic, "lanes"), _read_lanes)


def _topics(data: bytes) -> list[Topic]:
    return list(_read_topics(data).topics)


def _partitions(data: bytes) -> list[Partition]:
    return _read_partitions(data).partitions


def _deleted(data: bytes) -> list[Deleted]:
    return _read_deleted(data).partitions
