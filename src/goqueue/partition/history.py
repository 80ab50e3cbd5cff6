"""Side files of a partition's log, and the recovery of its state from them and the log.

Producer states, open transactions and leader epochs are a function of the log. The files only avoid
reading all of it again: whatever they lack is replayed from the batches after them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from goqueue.partition.epochs import LeaderEpochs
from goqueue.partition.producers import Producers, ProducersState
from goqueue.partition.transactions import Transactions
from goqueue.storage.aborted import read_marker, restore_aborted, seal_aborted
from goqueue.storage.disk import Disk
from goqueue.storage.framed import read_framed, write_framed
from goqueue.storage.log import Log, SyncPoint

_PRODUCERS_FILE = "producers"
_PRODUCERS_MAGIC = b"GQPR"
_PRODUCERS_VERSION = 2
_PRODUCERS_VERSION_PLAIN = 1  # before transactions were supported
_EPOCHS_FILE = "leader-epochs"
_EPOCHS_MAGIC = b"GQLE"
_EPOCHS_VERSION = 1
FIRST_EPOCH = (0, 0)

_log = logging.getLogger(__name__)


class Flush:
    """One round of making a partition durable; `run` blocks and touches only files.

    It may run in a thread. Code that changes these files meanwhile must cancel it first.
    """

    __slots__ = (
        "_disk",
        "_folder",
        "_lock",
        "_producers",
        "epochs",
        "has_saved",
        "is_cancelled",
        "point",
    )

    def __init__(
        self,
        disk: Disk,
        folder: str,
        point: SyncPoint,
        producers: ProducersState | None,
        epochs: list[tuple[int, int]] | None,
        lock: threading.Lock,
    ) -> None:
        self.point = point
        self.epochs = epochs
        self.has_saved = False
        self.is_cancelled = False
        self._lock = lock
        self._disk = disk
        self._folder = folder
        self._producers = producers

    @property
    def tail_bytes(self) -> int | None:
        """Return how much the commit journal would have to store instead; None if it cannot."""
        if self.epochs is not None or self._producers is not None:
            return None
        return self.point.tail_bytes

    def run(self) -> None:
        with self._lock:
            if self.is_cancelled:
                return
            self.point.sync()
            try:
                self.has_saved = self._save()
            except OSError as error:
                # The files only avoid replaying the log, so they can wait.
                _log.warning("%s: producers and epochs were not saved: %s", self._folder, error)

    @property
    def is_running(self) -> bool:
        """Return whether a thread is using the files."""
        return self._lock.locked()

    def give_up(self) -> None:
        """Write no more side files: their content may be obsolete. Does not wait."""
        self.is_cancelled = True

    def cancel(self) -> None:
        """Cancel because its content is about to be undone. Waits for a running `run`."""
        with self._lock:
            self.is_cancelled = True

    def _save(self) -> bool:
        """Write the epochs first: with a producer snapshot, recovery does not replay them."""
        if self.is_cancelled:
            return False
        if self.epochs is not None:
            save_epochs(self._disk, self._folder, self.epochs)
        if self._producers is not None:
            path = f"{self._folder}/{_PRODUCERS_FILE}"
            write_framed(
                self._disk,
                path,
                magic=_PRODUCERS_MAGIC,
                version=_PRODUCERS_VERSION,
                body=self._producers,
                is_durable=False,
            )
        return True


def save_epochs(disk: Disk, folder: str, epochs: list[tuple[int, int]]) -> None:
    """Save the leader epochs durably. Blocks."""
    path = f"{folder}/{_EPOCHS_FILE}"
    write_framed(disk, path, magic=_EPOCHS_MAGIC, version=_EPOCHS_VERSION, body=epochs)


def saved_history(disk: Disk, log: Log) -> tuple[ProducersState, list[tuple[int, int]]]:
    """Load the saved producer states and leader epochs.

    A log of the first epoch only has no epoch file. If the file is corrupted, the whole log is
    replayed: without its epochs it could not be compared with another log.
    """
    producers, epochs = saved_producers(disk, log), _read_epochs(disk, log.folder)
    if epochs is not None:
        return producers, epochs
    if disk.exists(f"{log.folder}/{_EPOCHS_FILE}"):
        mark = producers.high_watermark
        producers = _located(ProducersState(log.start_offset, [], high_watermark=mark), log)
    return producers, [] if producers.offset <= log.start_offset else [FIRST_EPOCH]


def _read_epochs(disk: Disk, folder: str) -> list[tuple[int, int]] | None:
    return read_framed(
        disk,
        f"{folder}/{_EPOCHS_FILE}",
        magic=_EPOCHS_MAGIC,
        version=_EPOCHS_VERSION,
        body=list[tuple[int, int]],
    )


def saved_producers(disk: Disk, log: Log) -> ProducersState:
    """Load the saved producer states; those of the log's start if none are usable."""
    path = f"{log.folder}/{_PRODUCERS_FILE}"
    saved = None
    for version in (_PRODUCERS_VERSION, _PRODUCERS_VERSION_PLAIN):
        if saved is None:
            saved = read_framed(
                disk, path, magic=_PRODUCERS_MAGIC, version=version, body=ProducersState
            )
    if saved is None or saved.offset > log.end_offset:
        saved = ProducersState(log.start_offset, [])
    if saved.offset < log.start_offset:
        # Their markers may have been deleted; what is left of them is found in the log.
        saved.transactions, saved.ended = [], []
    return _located(saved, log)


def _located(saved: ProducersState, log: Log) -> ProducersState:
    """Add the segment in which it ends, which the version before transactions lacks."""
    if saved.segment_base < 0:
        before = [one.base_offset for one in log.segments if one.base_offset < saved.offset]
        saved.segment_base = before[-1] if before else log.segments[0].base_offset
    return saved


def cut_unsynced(log: Log, saved: ProducersState, before_cut: Callable[[], None]) -> list[str]:
    """Truncate a replica at the first damage of its unsynced end, and report it. Blocks.

    A single replica keeps intact batches after a torn one, because no other node may have them. A
    replica must drop them: other replicas have the torn batch too, and two logs that agree at an
    offset must agree before it. Everything covered by the snapshot was synced, so damage before it
    was not caused by the power failure.
    """
    damaged = log.damaged_from
    if damaged is None or damaged < saved.offset:
        return []
    before_cut()
    report = (
        f"{log.folder}: truncated offsets {damaged} to {log.end_offset}, which were not synced at "
        "the power failure; the leader has them if they were acknowledged."
    )
    truncate_durably(log, damaged)
    return [report]


def truncate_durably(log: Log, offset: int) -> None:
    """Drop everything from `offset` on so that no crash brings any of it back. Blocks.

    A mix of the old and the new end would look like an intact log. So would stale index entries
    that point to positions where something else is written now, which would not be verified.
    """
    log.truncate(offset)
    active = log.active
    active.file.sync()
    for index in (active.times, active.index, active.aborted):
        if index.file is not None:
            index.file.sync()


def forget_saved_producers(disk: Disk, log: Log, *, after_offset: int) -> None:
    """Remove a snapshot of records about to be dropped, before they are dropped. Blocks.

    Otherwise it could later be taken for one of what is written in the same place.
    """
    path = f"{log.folder}/{_PRODUCERS_FILE}"
    if disk.exists(path) and saved_producers(disk, log).offset > after_offset:
        disk.remove(path)
        disk.sync_folder(log.folder)


def forget_history(disk: Disk, folder: str) -> None:
    """Remove all side files before the log starts again elsewhere. Blocks."""
    path = f"{folder}/{_PRODUCERS_FILE}"
    if disk.exists(path):
        disk.remove(path)
        disk.sync_folder(folder)
    if disk.exists(f"{folder}/{_EPOCHS_FILE}"):
        save_epochs(disk, folder, [])


def replayed(
    log: Log, saved: ProducersState, epochs: LeaderEpochs, *, now_ms: int
) -> tuple[Producers, Transactions]:
    """Replay the log on top of the saved states of producers and transactions."""
    producers = Producers(saved.producers)
    transactions = Transactions(saved.transactions, saved.ended)
    restore_aborted(log, saved.offset, base_offset=saved.segment_base, count=saved.aborted_count)
    for segment, located in log.located(saved.offset):
        header = located.header
        epochs.note(header.leader_epoch, header.base_offset)
        # Records may be deleted up to the middle of a batch, whose rest is still there.
        if header.producer_id < 0 or header.last_offset < saved.offset:
            continue
        producers.note(header, now_ms=now_ms)
        if header.is_control:
            marker = read_marker(segment, located)
            if marker is None:
                # Its outcome is unknown. The transaction stays open until the next marker.
                _log.error("%s: the marker at offset %d is damaged", log.folder, header.base_offset)
                continue
            producers.note_marker(header, marker, now_ms=now_ms)
            aborted = transactions.end(header, is_commit=marker.is_commit)
            if aborted is not None:
                segment.note_aborted(aborted)
        elif header.is_transactional:
            transactions.note(header)
    seal_aborted(log)
    return producers, transactions
