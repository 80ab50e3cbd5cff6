"""Operations on the committed offsets of stream groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from goqueue.broker.gate.forwarding import coordinator, coordinator_of_call
from goqueue.broker.gate.operation import Area, group, operation, topic
from goqueue.broker.reading.positions import Position
from goqueue.broker.streams.progress import FetchedOffsets, ResetOffset
from goqueue.groups import CommitOffsets, CommittedOffset, OffsetErrors, OffsetToCommit
from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.errors import GoQueueError
from goqueue.model.session import Session
from goqueue.model.tenants import GroupName, Text, TopicName

__all__ = [
    "CommitOffsets",
    "CommittedOffset",
    "FetchedOffsets",
    "GroupOffsetsArea",
    "OffsetErrors",
    "OffsetToCommit",
    "ResetOffset",
]

Wanted = dict[TopicName, list[int]]  # partitions by topic


class GroupOffsetsArea(Area):
    """Committed offsets: commit, fetch, delete, reset."""

    @operation(Action.READ, group("call.group_id"), owner=coordinator_of_call)
    async def commit(self, session: Session, *, call: CommitOffsets) -> OffsetErrors:
        """Commit offsets, for a member or for a group without members; return the errors."""
        denied = self._denied(session, Action.READ, [one.topic for one in call.offsets])
        if not denied:
            return await self._broker.stream_progress.commit(call)
        errors = {
            (one.topic, one.partition): denied[one.topic]
            for one in call.offsets
            if one.topic in denied
        }
        allowed = [one for one in call.offsets if one.topic not in denied]
        if allowed:
            call = msgspec.structs.replace(call, offsets=allowed)
            errors |= (await self._broker.stream_progress.commit(call)).errors
        return OffsetErrors(errors)

    @operation(Action.DESCRIBE, group(), owner=coordinator, is_reading=True)
    async def fetch(
        self,
        session: Session,
        *,
        group: GroupName,
        partitions: Wanted | None = None,
        member_id: Text = "",
        member_epoch: int = -1,
        is_stable: bool = False,
        must_exist: bool = False,
    ) -> FetchedOffsets:
        """Return committed offsets of these partitions or of all, and which topics are denied."""
        fetched = await self._broker.stream_progress.fetch(
            group,
            partitions,
            member_id=member_id,
            member_epoch=member_epoch,
            is_stable=is_stable,
        )
        if must_exist:
            self._broker.groups.describe(group)
        denied = self._denied(session, Action.DESCRIBE, [*fetched.offsets, *(partitions or ())])
        if not denied:
            return fetched
        return FetchedOffsets(
            {name: found for name, found in fetched.offsets.items() if name not in denied},
            frozenset(one for one in fetched.unstable if one[0] not in denied),
            # If all offsets are requested, topics that the session may not see are left out.
            {name: error for name, error in denied.items() if name in (partitions or ())},
        )

    @operation(Action.DELETE, group(), owner=coordinator)
    async def delete(
        self, session: Session, *, group: GroupName, partitions: Wanted
    ) -> OffsetErrors:
        """Delete committed offsets; return the errors by partition."""
        denied = self._denied(session, Action.READ, partitions)
        allowed = {name: numbers for name, numbers in partitions.items() if name not in denied}
        deleted = await self._broker.stream_progress.delete(group, allowed)
        if not denied:
            return deleted
        errors: dict[tuple[str, int], GoQueueError] = {
            (name, number): error for name, error in denied.items() for number in partitions[name]
        }
        return OffsetErrors({**errors, **deleted.errors})

    @operation(Action.READ, group(), topic(), owner=coordinator, is_change=True)
    async def reset(
        self,
        session: Session,
        *,
        group: GroupName,
        topic: TopicName,
        partitions: list[int] | None,
        target: Position,
        is_dry_run: bool,
    ) -> list[ResetOffset]:
        """Move the committed offsets of a group without members, or show where they would go."""
        return await self._broker.stream_progress.reset(
            group, topic, partitions, target, is_dry_run=is_dry_run
        )

    def _denied(
        self, session: Session, action: Action, topics: Sequence[str] | Mapping[str, object]
    ) -> dict[str, GoQueueError]:
        """Return an error for each of these topics to which the session is denied access."""
        if self._authoriser.is_open(session):
            return {}
        resources = {name: Resource(ResourceKind.TOPIC, name) for name in topics}
        return {
            name: self._denial(session, action, resource)
            for name, resource in resources.items()
            if not self._may(session, action, resource)
        }
