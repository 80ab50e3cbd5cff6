"""The members of share groups, on the node that coordinates groups of their names."""

from __future__ import annotations

from collections.abc import Iterator

from goqueue.broker.queues.groups import QueueGroups
from goqueue.broker.queues.host import HostedGroup
from goqueue.broker.streams.coordinators import Groups
from goqueue.broker.topics.topics import Topics
from goqueue.delivery import QueueSettings
from goqueue.groups.share import MemberTimes, ShareMembership
from goqueue.loop.clock import Clock
from goqueue.model.errors import GroupKindMismatch, GroupNotEmpty, UnknownMember
from goqueue.model.share_groups import (
    JOIN_EPOCH,
    ShareGroupDescription,
    ShareHeartbeat,
    ShareHeartbeatResult,
)

# The settings of a group that its first member creates: what members of share groups expect.
NEW_GROUP = {"deliveries_max": 5, "start": "latest", "error_headers": True}
SHARE_GROUPS_LEVEL = 3  # the feature level that they have come with
# How often memberships are dropped whose members are gone or are coordinated elsewhere.
SWEEP_MS = 30_000


class ShareMembers:
    """The memberships of the groups that this node coordinates."""

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        streams: Groups,
        queue_groups: QueueGroups,
        *,
        node_id: int,
    ) -> None:
        self._node_id = node_id
        self._clock = clock
        self._topics = topics
        self._streams = streams
        self._queue_groups = queue_groups
        # By name, with the id of the group: another group of the same name has other members.
        self._memberships: dict[str, tuple[str, ShareMembership]] = {}
        self._swept_ms = 0

    async def heartbeat(self, call: ShareHeartbeat) -> ShareHeartbeatResult:
        """Let a member join, stay or leave; the first one of a missing group creates it."""
        await self._streams.ensure_topic()
        self._check_here(call.group_id)
        if call.member_epoch == JOIN_EPOCH:
            # Leases of its members may have more records than an older node can read.
            self._queue_groups.check_level(SHARE_GROUPS_LEVEL, "Share groups")
        if not self._queue_groups.is_known(call.group_id):
            if call.member_epoch != JOIN_EPOCH:
                raise UnknownMember(call.group_id, call.member_id)
            await self._queue_groups.create(call.group_id, NEW_GROUP, keeps_known=True)
            self._check_here(call.group_id)
        group = self._queue_groups.get(call.group_id)
        self._sweep()
        return self._membership(group).heartbeat(
            call,
            self._clock.now_ms(),
            times=_times(group.settings),
            partition_count=self._partition_count,
        )

    def describe(self, name: str) -> ShareGroupDescription:
        """Describe a group that this node coordinates."""
        self._check_here(name)
        return self._describe(self._queue_groups.get(name))

    def all(self) -> Iterator[ShareGroupDescription]:
        """Yield the groups that this node coordinates."""
        for group in self._queue_groups.known():
            if self._is_here(group.fact.name):
                yield self._describe(group)

    def counts(self) -> Iterator[tuple[str, int]]:
        """Yield the groups that this node coordinates and that have members, with how many."""
        for name in list(self._memberships):
            count = self.count(name)
            if count:
                yield name, count

    def count(self, name: str) -> int:
        """Return how many members a group has, if this node coordinates it."""
        known = self._memberships.get(name)
        if known is None or not self._queue_groups.is_known(name) or not self._is_here(name):
            return 0
        _, membership = known
        membership.expire(self._clock.now_ms(), _times(self._queue_groups.get(name).settings))
        return membership.member_count

    def check_empty(self, name: str) -> None:
        """Raise unless a group exists, is coordinated here and has no members."""
        if self.describe(name).members:
            raise GroupNotEmpty(name)

    def _describe(self, group: HostedGroup) -> ShareGroupDescription:
        membership = self._membership(group)
        membership.expire(self._clock.now_ms(), _times(group.settings))
        return membership.describe(group.fact.name)

    def _membership(self, group: HostedGroup) -> ShareMembership:
        known = self._memberships.get(group.fact.name)
        if known is None or known[0] != group.id:
            known = self._memberships[group.fact.name] = (group.id, ShareMembership())
        return known[1]

    def _sweep(self) -> None:
        """Drop memberships that have ended, so that memory does not grow with former groups."""
        now_ms = self._clock.now_ms()
        if now_ms < self._swept_ms + SWEEP_MS:
            return
        self._swept_ms = now_ms
        for name, (_, membership) in list(self._memberships.items()):
            if self._queue_groups.is_known(name) and self._is_here(name):
                membership.expire(now_ms, _times(self._queue_groups.get(name).settings))
                if not membership.is_empty:
                    continue
            del self._memberships[name]

    def _is_here(self, name: str) -> bool:
        return self._streams.coordinator_of(name) == self._node_id

    def _check_here(self, name: str) -> None:
        """Raise unless this node coordinates a group that is no stream group."""
        if not self._is_here(name):
            raise self._streams.shards.elsewhere()
        if self._queue_groups.is_stream_group(name):
            raise GroupKindMismatch(name, is_queue=False)

    def _partition_count(self, name: str) -> int:
        topic = self._topics.find(name)
        return 0 if topic is None or topic.is_internal else len(topic.partitions)


def _times(settings: QueueSettings) -> MemberTimes:
    return MemberTimes(settings.member_session_ms, settings.member_heartbeat_ms)
