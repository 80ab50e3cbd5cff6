"""A leader's replica of a partition, with the progress of the followers."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Mapping

from goqueue.cluster.replication.messages import (
    FetchStatus,
    ReplicaFetch,
    ReplicaFetched,
    ReplicaReport,
    Served,
)
from goqueue.cluster.replication.replica_set import (
    AdvanceHighWatermark,
    Effect,
    ProposeInSync,
    ReplicaSet,
    SetShortage,
)
from goqueue.model.errors import CorruptBatch, NotEnoughReplicas, StorageFailed
from goqueue.partition import Partition

Propose = Callable[[ProposeInSync], None]

_log = logging.getLogger(__name__)


class Leading:
    """Answers followers, and performs what the replica set decides.

    The partition must already lead. `propose` sends a proposal to the controller.
    """

    def __init__(self, partition: Partition, replicas: ReplicaSet, propose: Propose) -> None:
        assert not partition.is_following
        assert partition.leader_epoch == replicas.leader_epoch
        self.partition = partition
        self.replicas = replicas
        # A follower has fetched what cannot be read here, and that has been reported.
        self.is_damaged = False
        self._served: dict[int, int] = {}  # by node: the offset of the last non-empty answer
        self._propose = propose
        partition.on_durable = self._durable
        self._perform(replicas.begin())

    def stop(self) -> None:
        """Stop: another node leads now, or none."""
        if self.partition.on_durable == self._durable:
            self.partition.on_durable = None

    # Followers

    def serve(self, node: int, incarnation: bytes, fetch: ReplicaFetch, now_ms: int) -> Served:
        """Return the answer to a follower, with batches unless it is at the end."""
        partition = self.partition
        status = self._standing(node, incarnation, fetch)
        if status is not FetchStatus.OK:
            return Served(self._answer(fetch, status))
        if fetch.last_epoch >= 0 or fetch.offset > partition.end_offset:
            epoch, end = partition.replica.epoch_end(fetch.last_epoch)
            if epoch != fetch.last_epoch or end < fetch.offset:
                return self._diverging(fetch, epoch, end)
        if fetch.offset < partition.start_offset and fetch.offset != self._first_offset():
            return self._cut_off(fetch, FetchStatus.BELOW_START)
        return self._read(node, incarnation, fetch, now_ms)

    def reported(self, node: int, incarnation: bytes, report: ReplicaReport, now_ms: int) -> None:
        """Process a report that a follower has made more durable."""
        is_meant = report.leader_epoch == self.partition.leader_epoch
        if is_meant and self.replicas.is_about_this(node, report.version):
            effects = self.replicas.follower_durable(
                node,
                incarnation,
                durable_offset=report.durable_offset,
                end_offset=self.partition.end_offset,
                now_ms=now_ms,
            )
            self._perform(effects)

    def _standing(self, node: int, incarnation: bytes, fetch: ReplicaFetch) -> FetchStatus:
        epoch = self.partition.leader_epoch
        if self.partition.is_following or self.partition.is_gone:
            return FetchStatus.NOT_LEADER
        if fetch.leader_epoch != epoch:
            is_old = fetch.leader_epoch < epoch
            return FetchStatus.FENCED_EPOCH if is_old else FetchStatus.UNKNOWN_EPOCH
        if not self.replicas.knows(node, incarnation):
            return FetchStatus.UNKNOWN_REPLICA
        if not self.replicas.is_about_this(node, fetch.version):
            return FetchStatus.UNKNOWN_REPLICA
        return FetchStatus.OK

    def _read(self, node: int, incarnation: bytes, fetch: ReplicaFetch, now_ms: int) -> Served:
        partition, data = self.partition, b""
        if self._served.get(node) == fetch.offset:
            # The answer was lost, or the bytes sent without verification differ from what was
            # written.
            partition.log.distrust(fetch.offset)
        try:
            batches = partition.replica.read(fetch.offset, bytes_max=fetch.bytes_max)
            if batches is not None and batches.offset < fetch.offset:
                # Compaction has merged several batches. A follower in the middle of them was not in
                # sync, so it can drop its own version of the beginning and fetch this instead.
                return self._diverging(fetch, fetch.last_epoch, batches.offset)
            data = b"" if batches is None else batches.read()
        except (CorruptBatch, StorageFailed, OSError) as error:
            self._note_damage(node, fetch.offset, error)
        if data:
            self._served[node] = fetch.offset
        if not data and fetch.offset < partition.end_offset:
            return Served(self._answer(fetch, FetchStatus.DAMAGED))
        effects = self.replicas.follower_fetched(
            node,
            incarnation,
            offset=fetch.offset,
            durable_offset=fetch.durable_offset,
            start_offset=fetch.start_offset,
            end_offset=partition.end_offset,
            now_ms=now_ms,
        )
        self._perform(effects)
        return Served(self._answer(fetch, FetchStatus.OK, batches_bytes=len(data)), data)

    def _note_damage(self, node: int, offset: int, error: Exception) -> None:
        """Record what prevents a follower from continuing, and log it once.

        The log itself records wrong checksums. Other errors may be transient, except for EIO.
        """
        cause = error if isinstance(error, OSError) else error.__cause__
        if isinstance(cause, OSError) and cause.errno == errno.EIO:
            self.partition.replica.note_damage(offset)
        if not self.is_damaged:
            self.is_damaged = True
            _log.error(
                "%s: follower %d needs records that are unreadable: %s Another in-sync replica "
                "will lead; if there is none, start its node, or delete records up to there.",
                self.partition.name,
                node,
                error,
            )

    def _diverging(self, fetch: ReplicaFetch, epoch: int, end: int) -> Served:
        return self._cut_off(fetch, FetchStatus.DIVERGING, diverging_epoch=epoch, diverging_end=end)

    def _cut_off(self, fetch: ReplicaFetch, status: FetchStatus, **diverging: int) -> Served:
        restart_offset = self._first_offset()
        if restart_offset is None:
            return Served(self._answer(fetch, FetchStatus.DAMAGED))
        return Served(self._answer(fetch, status, restart_offset=restart_offset, **diverging))

    def _first_offset(self) -> int | None:
        """Return the start of the batch that contains the log's start offset; None if damaged.

        Records can be deleted up to the middle of a batch, but only whole batches can be
        replicated.
        """
        partition = self.partition
        try:
            first = partition.replica.read(partition.start_offset, bytes_max=1)
        except (CorruptBatch, StorageFailed):
            return None
        return partition.end_offset if first is None else first.offset

    def _answer(
        self,
        fetch: ReplicaFetch,
        status: FetchStatus,
        *,
        diverging_epoch: int = -1,
        diverging_end: int = -1,
        restart_offset: int = -1,
        batches_bytes: int = 0,
    ) -> ReplicaFetched:
        return ReplicaFetched(
            topic_id=fetch.topic_id,
            partition=fetch.partition,
            request=fetch.request,
            leader_epoch=fetch.leader_epoch,
            last_epoch=fetch.last_epoch,
            offset=fetch.offset,
            status=status,
            high_watermark=self.partition.high_watermark,
            start_offset=self.partition.start_offset,
            diverging_epoch=diverging_epoch,
            diverging_end=diverging_end,
            restart_offset=restart_offset,
            batches_bytes=batches_bytes,
        )

    # The controller

    def tick(self, now_ms: int) -> None:
        self._perform(self.replicas.tick(now_ms))

    def in_sync_changed(
        self, *, replicas: Iterable[int], in_sync: Iterable[int], version: int, now_ms: int
    ) -> None:
        effects = self.replicas.in_sync_changed(
            replicas=replicas, in_sync=in_sync, version=version, now_ms=now_ms
        )
        self._perform(effects)

    def nodes_changed(self, alive: Mapping[int, bytes], *, now_ms: int) -> None:
        self._perform(self.replicas.nodes_changed(alive, now_ms=now_ms))

    def proposal_refused(self, *, version: int, now_ms: int) -> None:
        self._perform(self.replicas.proposal_refused(version=version, now_ms=now_ms))

    def in_sync_min_changed(self, in_sync_min: int) -> None:
        self._perform(self.replicas.in_sync_min_changed(in_sync_min))

    # Effects

    def _durable(self) -> None:
        self._perform(self.replicas.local_durable(self.partition.replica.durable_offset))

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, AdvanceHighWatermark):
                self.partition.replica.set_commit_limit(effect.offset)
            elif isinstance(effect, ProposeInSync):
                self._propose(effect)
            else:
                self.partition.replica.set_shortage(self._shortage(effect))

    def _shortage(self, effect: SetShortage) -> NotEnoughReplicas | None:
        if not effect.is_short:
            return None
        return NotEnoughReplicas(
            f"{self.partition.name} has {effect.in_sync_count} replicas in sync but needs "
            f"{effect.in_sync_min}; retry when more replicas are in sync."
        )
