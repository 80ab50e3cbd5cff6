"""Side files of a partition's log, and the recovery of its state from them and the log.

Producer states, open transactions and leader epochs are a function of the log. The files only avoid
reading all of it again: whatever they lack is replayed from the batches after them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from goqueue.model.batch import BatchHeader, Marker
from goqueue.partition.epochs import FIRST_EPOCH, Entries, LeaderEpochs
from goqueue.partition.producers import Producers, ProducersState
from goqueue.partition.transactions import Transactions
from goqueue.storage.aborted import read_marker, restore_aborted, seal_aborted
from goqueue.storage.framed import read_framed, write_framed
from goqueue.storage.log import Log
from goqueue.storage.segment import Segment

_PRODUCERS_FILE = "producers"
_PRODUCERS_MAGIC = b"GQPR"
_PRODUCERS_VERSION = 2
_PRODUCERS_VERSION_PLAIN = 1  # before transactions were supported
_EPOCHS_FILE = "leader-epochs"
_EPOCHS_MAGIC = b"GQLE"
_EPOCHS_VERSION = 1

_log = logging.getLogger(__name__)


class History:
    """What the batches of a log say about producers, transactions and leader epochs."""

    __slots__ = ("epochs", "log", "producers", "transactions")

    def __init__(self, log: Log, saved: ProducersState, epochs: Entries) -> None:
        """`epochs` are those in the file."""
        self.log = log
        self.epochs = LeaderEpochs(epochs)
        self.producers = Producers(saved.producers)
        self.producers.is_partial = log.start_offset > 0
        self.transactions = Transactions(saved.transactions, saved.ended)

    def replay(self, saved: ProducersState, *, now_ms: int) -> None:
        """Start again from saved states, and apply the batches after them."""
        log, producers, transactions = self.log, self.producers, self.transactions
        producers.reset(saved.producers)
        producers.is_partial = log.start_offset > 0
        transactions.reset(saved.transactions, saved.ended)
        restore_aborted(
            log, saved.offset, base_offset=saved.segment_base, count=saved.aborted_count
        )
        for segment, located in log.located(saved.offset):
            header = located.header
            self.epochs.note(header.leader_epoch, header.base_offset)
            # Records may be deleted up to the middle of a batch, whose rest is still there.
            if header.producer_id < 0 or header.last_offset < saved.offset:
                continue
            producers.note(header, now_ms=now_ms)
            if header.is_control:
                marker = read_marker(segment, located)
                if marker is None:
                    # Its outcome is unknown. The transaction stays open until the next marker.
                    _log.error(
                        "%s: the marker at offset %d is damaged", log.folder, header.base_offset
                    )
                    continue
                self.end_transaction(header, marker, segment, now_ms=now_ms)
            elif header.is_transactional:
                transactions.note(header)
        seal_aborted(log)

    def end_transaction(
        self, header: BatchHeader, marker: Marker, segment: Segment, *, now_ms: int
    ) -> None:
        """Note a marker, which is in this segment."""
        self.producers.note_marker(header, marker, now_ms=now_ms)
        aborted = self.transactions.end(header, is_commit=marker.is_commit)
        if aborted is not None:
            segment.indexes.add_aborted(aborted)

    def start_advanced(self) -> bool:
        """Drop state about records before the log's start; return whether transactions ended."""
        start = self.log.start_offset
        self.epochs.advance_start(start)
        self.producers.is_partial = True
        return self.transactions.forget_before(start)

    def expire_producers(self, *, before_ms: int, states_max: int) -> None:
        """Drop producers that are idle for long, and the oldest ones if there are too many."""
        still_open = {one.producer_id for one in self.transactions}
        self.producers.expire(before_ms=before_ms, states_max=states_max, kept=still_open)

    def state(self, *, high_watermark: int) -> ProducersState:
        """Return the states of producers and transactions, to be saved."""
        active = self.log.active
        return ProducersState(
            self.log.end_offset,
            self.producers.state(),
            self.transactions.state(),
            active.base_offset,
            active.indexes.aborted_count,
            high_watermark,
            self.transactions.ended(),
        )


def save_producers(log: Log, producers: ProducersState) -> None:
    """Save a snapshot of producers and transactions, not durably at once. Blocks."""
    write_framed(
        log.disk,
        f"{log.folder}/{_PRODUCERS_FILE}",
        magic=_PRODUCERS_MAGIC,
        version=_PRODUCERS_VERSION,
        body=producers,
        is_durable=False,
    )


def save_epochs(log: Log, epochs: Entries) -> None:
    """Save the leader epochs durably. Blocks."""
    path = f"{log.folder}/{_EPOCHS_FILE}"
    write_framed(log.disk, path, magic=_EPOCHS_MAGIC, version=_EPOCHS_VERSION, body=epochs)


def saved_history(log: Log) -> tuple[ProducersState, Entries]:
    """Load the saved producer states and leader epochs.

    A log of the first epoch only has no epoch file. If the file is corrupted, the whole log is
    replayed: without its epochs it could not be compared with another log.
    """
    producers, epochs = saved_producers(log), _read_epochs(log)
    if epochs is not None:
        return producers, epochs
    if log.disk.exists(f"{log.folder}/{_EPOCHS_FILE}"):
        mark = producers.high_watermark
        producers = _located(ProducersState(log.start_offset, [], high_watermark=mark), log)
    return producers, [] if producers.offset <= log.start_offset else [FIRST_EPOCH]


def _read_epochs(log: Log) -> Entries | None:
    return read_framed(
        log.disk,
        f"{log.folder}/{_EPOCHS_FILE}",
        magic=_EPOCHS_MAGIC,
        version=_EPOCHS_VERSION,
        body=Entries,
    )


def saved_producers(log: Log) -> ProducersState:
    """Load the saved producer states; those of the log's start if none are usable."""
    path = f"{log.folder}/{_PRODUCERS_FILE}"
    saved = None
    for version in (_PRODUCERS_VERSION, _PRODUCERS_VERSION_PLAIN):
        if saved is None:
            saved = read_framed(
                log.disk, path, magic=_PRODUCERS_MAGIC, version=version, body=ProducersState
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
    log.active.file.sync()
    for file in log.active.indexes.files:
        file.sync()


def forget_saved_producers(log: Log, *, after_offset: int = -1) -> None:
    """Remove a snapshot of records about to be dropped, before they are dropped. Blocks.

    Otherwise it could later be taken for one of what is written in the same place.
    """
    path = f"{log.folder}/{_PRODUCERS_FILE}"
    if log.disk.exists(path) and saved_producers(log).offset > after_offset:
        log.disk.remove(path)
        log.disk.sync_folder(log.folder)


def forget_history(log: Log) -> None:
    """Remove all side files before the log starts again elsewhere. Blocks."""
    forget_saved_producers(log)
    if log.disk.exists(f"{log.folder}/{_EPOCHS_FILE}"):
        save_epochs(log, [])
