"""What a partition writes beside its log, and how it is read back and brought up to date.

The producers, the open transactions and the leader epochs are a function of the log. The files
only spare reading all of it again: whatever they lack is learnt from the batches after them.
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
_PRODUCERS_VERSION_PLAIN = 1  # before there were transactions
_EPOCHS_FILE = "leader-epochs"
_EPOCHS_MAGIC = b"GQLE"
_EPOCHS_VERSION = 1
FIRST_EPOCH = (0, 0)

_log = logging.getLogger(__name__)


class Flush:
    """One round of making a partition durable; `run` blocks and touches only files.

    It may run in a thread. Whoever changes those files meanwhile cancels it first.
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
        """How much the commit journal would have to take instead; None when that would not do."""
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
                # The log says the same. These files only spare reading it again, so they can wait.
                _log.warning("%s: producers and epochs were not saved: %s", self._folder, error)

    @property
    def is_running(self) -> bool:
        """Whether a thread is at the files just now."""
        return self._lock.locked()

    def give_up(self) -> None:
        """Write nothing more beside the log: what this speaks of may be gone. Waits for nobody."""
        self.is_cancelled = True

    def cancel(self) -> None:
        """What it is to make durable is about to be undone. Waits for a run that has begun."""
        with self._lock:
            self.is_cancelled = True

    def _save(self) -> bool:
        """Write the epochs first: with a snapshot of the producers nobody looks for them."""
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
    """Write the leader epochs down, durably. Blocks."""
    path = f"{folder}/{_EPOCHS_FILE}"
    write_framed(disk, path, magic=_EPOCHS_MAGIC, version=_EPOCHS_VERSION, body=epochs)


def saved_history(disk: Disk, log: Log) -> tuple[ProducersState, list[tuple[int, int]]]:
    """The producers and the leader epochs as they were saved, together.

    A log of the first epoch alone has no file of epochs. One whose file has rotted is read again as
    a whole: with epochs missing it could not be told from another log.
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
    """The producers as they were saved, or as of the log's start when nothing usable was."""
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
        # Their markers may have gone with the records; what is left of them is found in the log.
        saved.transactions, saved.ended = [], []
    return _located(saved, log)


def _located(saved: ProducersState, log: Log) -> ProducersState:
    """With the segment that it ends in, which those from before there were transactions lack."""
    if saved.segment_base < 0:
        before = [one.base_offset for one in log.segments if one.base_offset < saved.offset]
        saved.segment_base = before[-1] if before else log.segments[0].base_offset
    return saved


def cut_unsynced(log: Log, saved: ProducersState, before_cut: Callable[[], None]) -> list[str]:
    """Cut off what a power cut has left of a replica's unsynced end, and say so. Blocks.

    A lone copy is kept with what is whole after a torn batch, because nothing else may have it. Of
    a replica the part after it must go: other replicas have the torn batch too, and where two logs
    agree at one offset they must agree before it. Whatever the snapshot speaks of was synced,
    so damage before it is none of the power cut's.
    """
    damaged = log.damaged_from
    if damaged is None or damaged < saved.offset:
        return []
    before_cut()
    report = (
        f"{log.folder}: cut off offsets {damaged} to {log.end_offset}, which were not synced when "
        "the power failed; the leader has them if anyone was told of them."
    )
    truncate_durably(log, damaged)
    return [report]


def truncate_durably(log: Log, offset: int) -> None:
    """Drop everything from `offset` on so that no crash brings any of it back. Blocks.

    Half of the old end with half of a new one would pass for a whole log. So would entries of an
    index that speak of places where something else is written now, which nobody would examine.
    """
    log.truncate(offset)
    active = log.active
    active.file.sync()
    for index in (active.times, active.index, active.aborted):
        if index.file is not None:
            index.file.sync()


def forget_saved_producers(disk: Disk, log: Log, *, after_offset: int) -> None:
    """Remove a snapshot of what is about to go, before that goes. Blocks.

    It would later pass for one of what has been written in the same place.
    """
    path = f"{log.folder}/{_PRODUCERS_FILE}"
    if disk.exists(path) and saved_producers(disk, log).offset > after_offset:
        disk.remove(path)
        disk.sync_folder(log.folder)


def forget_history(disk: Disk, folder: str) -> None:
    """Remove all that is written beside a log, before the log begins anew elsewhere. Blocks."""
    path = f"{folder}/{_PRODUCERS_FILE}"
    if disk.exists(path):
        disk.remove(path)
        disk.sync_folder(folder)
    if disk.exists(f"{folder}/{_EPOCHS_FILE}"):
        save_epochs(disk, folder, [])


def replayed(
    log: Log, saved: ProducersState, epochs: LeaderEpochs, *, now_ms: int
) -> tuple[Producers, Transactions]:
    """The producers and transactions that the log makes of those that were saved."""
    producers = Producers(saved.producers)
    transactions = Transactions(saved.transactions, saved.ended)
    restore_aborted(log, saved.offset, base_offset=saved.segment_base, count=saved.aborted_count)
    for segment, located in log.located(saved.offset):
        header = located.header
        epochs.note(header.leader_epoch, header.base_offset)
        # Records may be deleted up to the middle of a batch, of which the rest is still there.
        if header.producer_id < 0 or header.last_offset < saved.offset:
            continue
        producers.note(header, now_ms=now_ms)
        if header.is_control:
            marker = read_marker(segment, located)
            if marker is None:
                # Nobody knows what it said. Until the next one comes the transaction is open.
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
