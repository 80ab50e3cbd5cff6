"""Groups of both kinds: create, describe, configure, reset and delete them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from goqueue.client.http.group_results import QueueGroup, StreamGroup
from goqueue.client.http.moments import Position, position_text
from goqueue.client.http.request import (
    Repeat,
    Request,
    body_of,
    body_with,
    nothing,
    path_of,
    query_of,
    reading,
)
from goqueue.wire.http.bodies import groups as bodies
from goqueue.wire.http.bodies.groups import (
    Assignment,
    CommittedOffset,
    DeletedOffsets,
    Group,
    GroupKind,
    Lag,
    Rebalances,
    ResetOffset,
)
from goqueue.wire.http.fields import Start

_read_groups = reading(bodies.Groups)
_read_queue_group = reading(QueueGroup)
_read_stream_group = reading(StreamGroup)
_read_group = reading(QueueGroup | StreamGroup)  # type: ignore[arg-type]  # unions are no type
_read_lag = reading(Lag)
_read_offsets = reading(bodies.Offsets)
_read_assignment = reading(Assignment)
_read_rebalances = reading(Rebalances)
_read_deleted = reading(DeletedOffsets)
_read_reset = reading(bodies.ResetDone)


class GroupRequests:
    def list_all(self, *, kind: GroupKind | None = None, prefix: str = "") -> Request[list[Group]]:
        """Return the groups, by name."""
        query = query_of(bodies.ListGroups(kind=kind, prefix=prefix))
        return Request("GET", path_of("groups"), lambda data: _read_groups(data).groups, query)

    def put_queue(
        self, group: str, settings: Mapping[str, object] | None = None
    ) -> Request[QueueGroup]:
        """Create a queue group or replace its settings; those not given get their defaults.

        Without `settings` an existing group stays unchanged.
        """
        body = body_with(kind="queue", settings=None if settings is None else dict(settings))
        return Request("PUT", path_of("groups", group), _read_queue_group, body=body)

    def configure_queue(self, group: str, settings: Mapping[str, object]) -> Request[QueueGroup]:
        """Change settings of a queue group; None resets one to its default."""
        body = msgspec.json.encode({"settings": dict(settings)})
        return Request("PATCH", path_of("groups", group), _read_queue_group, body=body)

    def put_stream(
        self, group: str, topics: Iterable[str], *, start: Start = "earliest"
    ) -> Request[StreamGroup]:
        """Set where a stream group starts in topics for which it has no committed offset."""
        body = body_with(kind="stream", topics=list(topics), start=start)
        return Request("PUT", path_of("groups", group), _read_stream_group, body=body)

    def describe(self, group: str) -> Request[QueueGroup | StreamGroup]:
        """Describe a group of either kind."""
        return Request("GET", path_of("groups", group), _read_group)

    def delete(self, group: str) -> Request[None]:
        """Delete a group and its state."""
        return Request("DELETE", path_of("groups", group), nothing, repeat=Repeat.AMBIGUOUS)

    def lag(self, group: str) -> Request[Lag]:
        """Return how much the group has still to read, or to acknowledge."""
        return Request("GET", path_of("groups", group, "lag"), _read_lag)

    def offsets(self, group: str) -> Request[list[CommittedOffset]]:
        """Return the committed offsets of a stream group."""
        path = path_of("groups", group, "offsets")
        return Request("GET", path, lambda data: _read_offsets(data).offsets)

    def delete_offsets(
        self, group: str, topic: str, partitions: Iterable[int] | None = None
    ) -> Request[DeletedOffsets]:
        """Delete committed offsets of a topic that no member reads; by default all of them."""
        numbers = None if partitions is None else list(partitions)
        body = body_of(bodies.DeleteOffsets(topic=topic, partitions=numbers))
        path = path_of("groups", group, "offsets", "delete")
        return Request("POST", path, _read_deleted, body=body)

    def reset(
        self,
        group: str,
        topic: str,
        to: Position,
        *,
        partitions: Iterable[int] | None = None,
        dry_run: bool = False,
    ) -> Request[list[ResetOffset]]:
        """Move the committed offsets of a stream group that has no members.

        `to` may also be an offset, as `offset:42`.
        """
        body = body_with(
            topic=topic,
            to=position_text(to),
            partitions=None if partitions is None else list(partitions),
            dry_run=dry_run,
        )
        path = path_of("groups", group, "reset")
        return Request("POST", path, lambda data: _read_reset(data).offsets, body=body)

    def assignment(self, group: str) -> Request[Assignment]:
        """Return the current and the target assignment of a stream group."""
        return Request("GET", path_of("groups", group, "assignment"), _read_assignment)

    def rebalances(self, group: str) -> Request[Rebalances]:
        """Return how often, why and for how long a stream group rebalanced."""
        return Request("GET", path_of("groups", group, "rebalances"), _read_rebalances)
