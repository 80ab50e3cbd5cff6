"""The leader's side: progress of each replica, the in-sync set, and what is committed.

A record is committed when every in-sync replica has it as durably as promised. The controller
decides who is in sync, because it chooses the next leader among them; the leader only proposes.
Between a proposal and its answer the controller may already have accepted it or not. So until the
version of the partition shows which, a record must be on the in-sync replicas of both views.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from goqueue.cluster.facts import PartitionFact
from goqueue.config import ReplicationSettings

NOT_KNOWN = -1


class LeaderLog(Protocol):
    """The view of the leader's own replica that the set starts from."""

    @property
    def epoch_start(self) -> int:
        """Where the log ended when this leader took over."""

    @property
    def high_watermark(self) -> int: ...

    @property
    def durable_offset(self) -> int: ...


@dataclass(frozen=True, slots=True)
class AdvanceHighWatermark:
    """All in-sync replicas have what is before `offset`."""

    offset: int


@dataclass(frozen=True, slots=True)
class ProposeInSync:
    """Requests this in-sync set from the controller, if nothing has changed since `version`.

    It must refuse a member that is not alive in the named incarnation: the leader's progress is
    about that one. A set equal to the current one still raises the version, which voids earlier
    proposals.
    """

    in_sync: tuple[int, ...]
    incarnations: Mapping[int, bytes]
    leader_epoch: int
    version: int


@dataclass(frozen=True, slots=True)
class SetShortage:
    """Too few replicas are in sync for acks=all producers, or enough again."""

    is_short: bool
    in_sync_count: int
    in_sync_min: int


Effect = AdvanceHighWatermark | ProposeInSync | SetShortage


@dataclass(slots=True)
class Progress:
    """Progress of a follower in this leader's epoch, in one incarnation."""

    incarnation: bytes
    caught_up_ms: int  # the last time at which it certainly had everything
    mark_ms: int
    mark_offset: int  # end of the log at `mark_ms`; once durable there, it had everything then
    offset: int = NOT_KNOWN
    durable_offset: int = NOT_KNOWN
    start_offset: int = NOT_KNOWN
    # The version of the partition in which it became a replica, if that was in this epoch. What it
    # sends before it has that version is about a former replica, which it has to delete.
    since_version: int = NOT_KNOWN


class ReplicaSet:
    """The replicas of one partition during the epoch of one leader."""

    def __init__(
        self,
        fact: PartitionFact,
        log: LeaderLog,
        settings: ReplicationSettings,
        *,
        in_sync_min: int,
        alive: Mapping[int, bytes],
        now_ms: int,
    ) -> None:
        """`alive` are the nodes that are not fenced, with their incarnations."""
        self.node = fact.leader
        self.replicas = frozenset(fact.members)
        self.in_sync = frozenset(fact.in_sync)
        self.in_sync_min = in_sync_min
        self.leader_epoch = fact.leader_epoch
        self.version = fact.version
        self.high_watermark = log.high_watermark
        self.durable_offset = log.durable_offset
        self.is_short = False
        self._epoch_start = log.epoch_start
        self._lag_ms = settings.lag_ms
        self._retry_ms = settings.retry_ms
        self._alive = dict(alive)
        self._pending: ProposeInSync | None = None
        self._pending_ms = 0
        self._quiet_until_ms = now_ms  # no new proposals before this, after a refusal
        # Members of refused proposals. A duplicate of one may still be in flight, so they count
        # until the version has changed.
        self._withdrawn: frozenset[int] = frozenset()
        self._progress = {one: self._fresh(one, now_ms) for one in self.replicas - {self.node}}

    # State

    @property
    def counting(self) -> frozenset[int]:
        """Return all nodes that the controller may consider in sync."""
        proposed = () if self._pending is None else self._pending.in_sync
        return self.in_sync.union(proposed, self._withdrawn)

    @property
    def low_watermark(self) -> int | None:
        """Return the lowest start offset of the in-sync followers; None if there are none.

        What was deleted below it does not come back with another leader. For a follower that has
        not fetched yet it is `NOT_KNOWN`, which is below everything.
        """
        followers = (self._progress.get(node) for node in self.counting - {self.node})
        return min(
            (NOT_KNOWN if one is None else one.start_offset for one in followers), default=None
        )

    def progress(self, node: int) -> Progress | None:
        return self._progress.get(node)

    def behind(self, end_offset: int, now_ms: int) -> tuple[int, int]:
        """Return how many records the slowest replica lacks, and for how long it has lacked some.

        An answer is under way to a follower that has just got everything, so a replica that is in
        time may seem to be behind for some milliseconds.
        """
        slow = [one for one in self._progress.values() if one.durable_offset < end_offset]
        records = max((end_offset - max(0, one.durable_offset) for one in slow), default=0)
        return records, max((now_ms - one.caught_up_ms for one in slow), default=0)

    def knows(self, node: int, incarnation: bytes) -> bool:
        """Return whether a node has a replica and is alive in this incarnation."""
        return node in self._progress and self._alive.get(node) == incarnation

    def is_about_this(self, node: int, version: int) -> bool:
        """Return whether a message with this version is about the follower's current replica."""
        progress = self._progress.get(node)
        return progress is not None and version >= progress.since_version

    # Events

    def begin(self) -> list[Effect]:
        """Return the effects of the initial state."""
        return self._judge()

    def local_durable(self, offset: int) -> list[Effect]:
        """Note that the leader's own replica is durable up to `offset`."""
        self.durable_offset = max(self.durable_offset, offset)
        return self._advance()

    def follower_fetched(
        self,
        node: int,
        incarnation: bytes,
        *,
        offset: int,
        durable_offset: int,
        start_offset: int,
        end_offset: int,
        now_ms: int,
    ) -> list[Effect]:
        """Note a fetch at `offset` by a follower whose log is a prefix of the leader's.

        Within an epoch its position never decreases, so a fetch that arrives late changes nothing.
        """
        if not self.knows(node, incarnation):
            return []
        progress = self._progress[node]
        progress.offset = max(progress.offset, offset)
        progress.start_offset = max(progress.start_offset, start_offset)
        return self._note_durable(node, progress, durable_offset, end_offset, now_ms)

    def follower_durable(
        self, node: int, incarnation: bytes, *, durable_offset: int, end_offset: int, now_ms: int
    ) -> list[Effect]:
        """Note that a follower has made more durable; ignored before its first fetch."""
        if not self.knows(node, incarnation) or self._progress[node].offset == NOT_KNOWN:
            return []
        return self._note_durable(node, self._progress[node], durable_offset, end_offset, now_ms)

    def nodes_changed(self, alive: Mapping[int, bytes], *, now_ms: int) -> None:
        """Note the live nodes and their incarnations; progress of a new incarnation is reset."""
        self._alive = dict(alive)
        for node, progress in self._progress.items():
            if alive.get(node, progress.incarnation) != progress.incarnation:
                since_version = progress.since_version
                self._progress[node] = self._fresh(node, now_ms, since_version=since_version)

    def in_sync_changed(self, fact: PartitionFact, *, now_ms: int) -> list[Effect]:
        """Apply a decision of the controller; ignore those that are older than the current one.

        Proposals made at an older version can no longer be accepted.
        """
        version = fact.version
        if version <= self.version:
            return []
        # The changes in between are unknown. A replica not in sync may have been removed, with its
        # data, and added again.
        has_missed = version > self.version + 1
        self.version = version
        self.replicas, self.in_sync = frozenset(fact.members), frozenset(fact.in_sync)
        self._pending, self._withdrawn = None, frozenset()
        followers = self.replicas - {self.node}
        known = {
            one: progress
            for one, progress in self._progress.items()
            if one in followers and (one in self.in_sync or not has_missed)
        }
        self._progress = {
            one: known.get(one) or self._fresh(one, now_ms, since_version=version)
            for one in followers
        }
        return self._judge()

    def proposal_refused(self, *, version: int, now_ms: int) -> None:
        """Note that the controller has refused a proposal, and the version it has.

        If that version is newer, the change will arrive here. Otherwise the proposal may still be
        accepted when a duplicate arrives, so `tick` voids it by another proposal.
        """
        if version != self.version or self._pending is None:
            return
        self._withdrawn |= frozenset(self._pending.in_sync) - self.in_sync
        self._pending = None
        self._quiet_until_ms = now_ms + self._retry_ms

    def in_sync_min_changed(self, in_sync_min: int) -> list[Effect]:
        """Apply a changed setting of the topic."""
        self.in_sync_min = in_sync_min
        return self._judge()

    def tick(self, now_ms: int) -> list[Effect]:
        """Propose to remove lagging replicas; repeat an unanswered proposal."""
        if self._pending is not None:
            if now_ms - self._pending_ms < self._retry_ms:
                return []
            self._pending_ms = now_ms
            return [self._pending]
        return self._repropose(now_ms) if now_ms >= self._quiet_until_ms else []

    # Consequences

    def _fresh(self, node: int, now_ms: int, *, since_version: int = NOT_KNOWN) -> Progress:
        return Progress(
            self._alive.get(node, b""),
            now_ms,
            now_ms,
            self._epoch_start,
            since_version=since_version,
        )

    def _note_durable(
        self, node: int, progress: Progress, durable_offset: int, end_offset: int, now_ms: int
    ) -> list[Effect]:
        durable = max(progress.durable_offset, min(durable_offset, end_offset))
        progress.durable_offset = durable
        if durable >= end_offset:
            progress.caught_up_ms = now_ms
        elif durable >= progress.mark_offset:
            progress.caught_up_ms = max(progress.caught_up_ms, progress.mark_ms)
        if durable >= progress.mark_offset:
            progress.mark_offset, progress.mark_ms = end_offset, now_ms
        effects = self._advance()
        is_free = self._pending is None and now_ms >= self._quiet_until_ms
        if is_free and node not in self.in_sync and self._may_join(node):
            effects += self._propose(self.in_sync | {node}, now_ms)
        return effects

    def _may_join(self, node: int) -> bool:
        """Return whether a follower has all that is committed, and all from before this epoch.

        The latter matters if the leader was elected without being in sync.
        """
        progress = self._progress[node]
        return (
            self._alive.get(node) == progress.incarnation
            and progress.durable_offset >= self.high_watermark
            and progress.durable_offset >= self._epoch_start
        )

    def _repropose(self, now_ms: int) -> list[Effect]:
        lagging = {
            node for node, one in self._progress.items() if now_ms - one.caught_up_ms > self._lag_ms
        }
        joining = {
            node for node in self._progress.keys() - self.in_sync - lagging if self._may_join(node)
        }
        wanted = (self.in_sync - lagging) | joining
        if self._withdrawn:
            wanted = self.in_sync  # void the refused proposals first
        elif wanted == self.in_sync:
            return []
        return self._propose(wanted, now_ms)

    def _propose(self, in_sync: frozenset[int], now_ms: int) -> list[Effect]:
        members = tuple(sorted(in_sync))
        incarnations = {
            one: self._progress[one].incarnation for one in members if one in self._progress
        }
        self._pending = ProposeInSync(members, incarnations, self.leader_epoch, self.version)
        self._pending_ms = now_ms
        return [self._pending]

    def _judge(self) -> list[Effect]:
        """Return the effects of the current in-sync set: shortage and commits."""
        effects: list[Effect] = []
        is_short = len(self.in_sync) < self.in_sync_min
        if is_short != self.is_short:
            self.is_short = is_short
            effects.append(SetShortage(is_short, len(self.in_sync), self.in_sync_min))
        return effects + self._advance()

    def _advance(self) -> list[Effect]:
        # With fewer in sync than the minimum nothing is committed: the last of them could lose it.
        # If the partition has fewer replicas than the minimum, all of them suffice.
        if len(self.in_sync) < min(self.in_sync_min, len(self.replicas)):
            return []
        offset = self.durable_offset
        for node in self.counting:
            if node != self.node:
                progress = self._progress.get(node)
                offset = min(offset, NOT_KNOWN if progress is None else progress.durable_offset)
        if offset <= self.high_watermark:
            return []
        self.high_watermark = offset
        return [AdvanceHighWatermark(offset)]
