"""Opening of partitions: from their files after a crash, or from the state of a clean stop."""

from __future__ import annotations

from collections.abc import Callable

from goqueue.model.names import TopicPartition
from goqueue.partition.history import History, cut_unsynced, saved_history
from goqueue.partition.partition import Partition, PartitionState
from goqueue.partition.producers import ProducersState
from goqueue.partition.rules import PartitionSettings
from goqueue.storage.disk import Disk
from goqueue.storage.log import Log, LogState
from goqueue.storage.segment import SegmentState


def recover_partition(
    name: TopicPartition,
    disk: Disk,
    folder: str,
    settings: PartitionSettings,
    *,
    key: bytes,
    leader_epoch: int,
    waits_for_sync: bool,
    mark_dirty: Callable[[Partition], None],
    now_ms: int,
    is_replica: bool = False,
    is_sole: bool = False,
    before_cut: Callable[[], None] = lambda: None,
) -> tuple[Partition, list[str]]:
    """Open a partition after a crash, or for the first time; also report what was damaged.

    `is_sole` means that no other node has a replica. `before_cut` is called before something is
    truncated that may have been acknowledged and corrupted since.
    """
    is_cut = False

    def cutting() -> None:
        nonlocal is_cut
        before_cut()
        is_cut = True

    log, reports = Log.recover(disk, folder, settings.log, now_ms=now_ms, before_cut=cutting)
    saved, epochs_saved = saved_history(log)
    if is_replica and not is_sole:
        reports += cut_unsynced(log, saved, cutting)
    history = History(log, saved, epochs_saved)
    history.epochs.truncate(log.end_offset)
    history.replay(saved, now_ms=now_ms)
    partition = Partition(
        name,
        history,
        settings,
        key=key,
        leader_epoch=leader_epoch,
        waits_for_sync=waits_for_sync,
        mark_dirty=mark_dirty,
        replica_mark=saved.high_watermark if is_replica else None,
    )
    partition.replica.damaged_from = log.damaged_from
    partition.replica.is_suspect = is_replica and is_cut
    return partition, reports


def reopen_partition(
    name: TopicPartition,
    disk: Disk,
    folder: str,
    settings: PartitionSettings,
    state: PartitionState,
    *,
    key: bytes,
    leader_epoch: int,
    waits_for_sync: bool,
    mark_dirty: Callable[[Partition], None],
    is_replica: bool = False,
) -> Partition:
    """Open a cleanly closed partition without reading its files."""
    log = Log.reopen(disk, folder, settings.log, state.log)
    return Partition(
        name,
        History(log, state.producers, state.epochs),
        settings,
        key=key,
        leader_epoch=leader_epoch,
        waits_for_sync=waits_for_sync,
        mark_dirty=mark_dirty,
        replica_mark=state.producers.high_watermark if is_replica else None,
    )


def empty_state() -> PartitionState:
    """The state of a partition that has never stored anything."""
    segment = SegmentState(0, 0, 0, max_timestamp=-1, created_ms=0)
    return PartitionState(LogState(0, [segment]), ProducersState(0, [], segment_base=0), [])
