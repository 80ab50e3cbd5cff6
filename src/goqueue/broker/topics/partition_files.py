"""Partitions on this node's disk: opening and closing them, and their folders."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Container, Iterable
from functools import partial

from goqueue.broker.durability.flusher import Flusher
from goqueue.cluster.facts import TopicFact
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise
from goqueue.model.errors import StorageFailed
from goqueue.model.names import INTERNAL_TOPICS, TopicPartition
from goqueue.model.observer import Observer
from goqueue.partition import (
    Partition,
    PartitionSettings,
    PartitionState,
    empty_state,
    recover_partition,
    reopen_partition,
)
from goqueue.storage.commit_journal import CommitJournal
from goqueue.storage.disk import Disk, is_unreadable
from goqueue.storage.framed import read_framed, read_framed_or_refuse, write_framed
from goqueue.storage.no_disk import NoDisk
from goqueue.storage.segment import LOG_SUFFIX

_ID_FILE = "id"
_ID_MAGIC = b"GQTI"
_STOP_FILE = "meta/clean-stop"
_STOP_MAGIC = b"GQST"
# While it exists, replicas on this disk may lack records that were acknowledged as durable.
_SUSPECT_FILE = "meta/doubt"
_SUSPECT_MAGIC = b"GQDB"
_VERSION = 1
_STOP_VERSION = 2  # version 1 stored all partitions of a topic together
_DELETED_PREFIX = "deleted~"  # no topic name may contain "~"
_LOST_PREFIX = "lost~"

# Opening a new partition takes some 70 µs, so other clients wait 15 ms for a slice of them.
OPENED_PER_TURN_MAX = 200

_NOWHERE = NoDisk()

_log = logging.getLogger(__name__)

# By the key of the partition, in hexadecimal.
_Closed = dict[str, PartitionState]


class PartitionFiles:
    """Opens partitions: immediately after a clean stop, by recovery otherwise."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        flusher: Flusher,
        commit_journal: CommitJournal,
        *,
        waits_for_sync: bool,
        new_id: Callable[[], bytes],
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._flusher = flusher
        self._commit_journal = commit_journal
        self._waits_for_sync = waits_for_sync
        self._new_id = new_id
        self._closed: _Closed = {}
        self._are_all_suspect = False
        # Keys of truncated replicas. If opening one then fails, the next attempt finds no trace of
        # it.
        self._cut: set[bytes] = set()
        # Keys of removed replicas of which the commit journal may still hold records.
        self._removed: set[bytes] = set()
        self._is_suspicion_reported = False
        # Whether there are replicas of an unknown topic, which cannot be opened.
        self._has_unknown = False
        self._is_closed = False
        self.observer: Observer | None = None  # of topics that are not internal

    # Start and stop

    def begin(self) -> None:
        """Load the state left by the last stop, if that was a clean one."""
        is_journal_empty = self._commit_journal.is_redone
        closed = read_framed(
            self._disk, _STOP_FILE, magic=_STOP_MAGIC, version=_STOP_VERSION, body=_Closed
        )
        if self._disk.exists(_STOP_FILE):
            self._disk.remove(_STOP_FILE)
            self._disk.sync_folder("meta")
        # A journal that could not be emptied means that the stop was not clean.
        self._closed = closed or {} if is_journal_empty else {}

    def close(self, partitions: list[Partition]) -> None:
        """Close partitions, which must be synced, and save their state for the next start."""
        self._is_closed = True
        closed: _Closed = {}
        for partition in partitions:
            state = _close(partition)
            if state is not None:
                closed[partition.key.hex()] = state
        try:
            write_framed(
                self._disk, _STOP_FILE, magic=_STOP_MAGIC, version=_STOP_VERSION, body=closed
            )
        except OSError as error:
            _log.warning("the next start will recover all logs: %s", error)

    # Opening

    def open(
        self,
        fact: TopicFact,
        settings: PartitionSettings,
        number: int,
        *,
        is_replica: bool = False,
        is_sole: bool = False,
    ) -> Partition:
        """Open a partition; `is_sole` means that no other node has a replica of it."""
        name = TopicPartition(fact.name, number)
        folder = partition_folder(fact.name, number)
        key = partition_key(fact.id, number)
        state = self._closed.pop(key.hex(), None)
        if state is not None:
            partition = reopen_partition(
                name,
                self._disk,
                folder,
                settings,
                state,
                key=key,
                leader_epoch=fact.leader_epoch,
                waits_for_sync=self._waits_for_sync,
                mark_dirty=self._flusher.mark,
                is_replica=is_replica,
            )
            partition.replica.is_suspect = is_replica and self._are_all_suspect
            self._observe(partition)
            return partition
        # In a cluster, the journal was replayed for all replicas at once, before leaders were
        # known.
        redone = [] if is_replica else self._commit_journal.redo(key, folder)
        partition, reports = recover_partition(
            name,
            self._disk,
            folder,
            settings,
            key=key,
            leader_epoch=fact.leader_epoch,
            waits_for_sync=self._waits_for_sync,
            mark_dirty=self._flusher.mark,
            now_ms=self._clock.wall_ms(),
            is_replica=is_replica,
            is_sole=is_sole,
            before_cut=partial(self._note_cut, key) if is_replica else _no_matter,
        )
        for report in redone + reports:
            _log.warning("%s", report)
        if is_replica and (self._are_all_suspect or key in self._cut):
            partition.replica.is_suspect = True
        self._cut.discard(key)
        self._observe(partition)
        return partition

    def _observe(self, partition: Partition) -> None:
        if partition.name.topic not in INTERNAL_TOPICS:
            partition.observer = self.observer

    def open_in_slices(
        self, fact: TopicFact, settings: PartitionSettings, numbers: Iterable[int]
    ) -> Promise[list[Partition]]:
        """Open partitions, at most `OPENED_PER_TURN_MAX` per event-loop turn."""
        opened: Promise[list[Partition]] = Promise()
        pending = deque(numbers)
        partitions: list[Partition] = []

        def open_some() -> None:
            if self._is_closed:
                return
            try:
                for _ in range(min(OPENED_PER_TURN_MAX, len(pending))):
                    partitions.append(self.open(fact, settings, pending.popleft()))
            except OSError as error:
                opened.reject(error)
                return
            if pending:
                self._clock.call_soon(open_some)
            else:
                opened.resolve(partitions)

        open_some()
        return opened

    def absent(self, fact: TopicFact, settings: PartitionSettings, number: int) -> Partition:
        """A partition that only other nodes store: a placeholder, empty here, that refuses
        writes.
        """
        # Opening it like another takes twice as long, and there may be thousands of them.
        return reopen_partition(
            TopicPartition(fact.name, number),
            _NOWHERE,
            partition_folder(fact.name, number),
            settings,
            empty_state(),
            key=partition_key(fact.id, number),
            leader_epoch=fact.leader_epoch,
            waits_for_sync=False,
            mark_dirty=_never_dirty,
            is_replica=True,
        )

    def redo_all(self) -> None:
        """Replay the commit journal for every replica on this disk.

        If it cannot be read, any of the replicas may lack records.
        """
        is_whole = not self._commit_journal.is_suspect
        unreadable: list[bytes] = []
        for name in self._disk.list("logs"):
            if _is_set_aside(name):
                continue
            try:
                topic_id = self._claimed(name)
            except StorageFailed as error:
                _log.error("the replicas in logs/%s may lack records: %s", name, error)
                is_whole = False
                self._has_unknown = True
                continue
            if topic_id is None:
                continue
            for number in self._disk.list(f"logs/{name}"):
                if number != _ID_FILE:
                    is_whole = self._redo(name, number, topic_id, unreadable) and is_whole
        if not is_whole:
            self._note_suspect()
        self._are_all_suspect = self._disk.exists(_SUSPECT_FILE)
        for key in unreadable:
            self._note_cut(key)
        self._commit_journal.clear()

    def _redo(self, name: str, number: str, topic_id: bytes, unreadable: list[bytes]) -> bool:
        """Replay the commit journal for a replica; return whether nothing is known to be missing.

        A replica that the disk cannot read is added to the unreadable ones, and costs no other.
        """
        key = partition_key(topic_id, int(number))
        try:
            reports = self._commit_journal.redo(key, f"logs/{name}/{number}")
        except OSError as error:
            if not is_unreadable(error):
                raise
            _log.error("the replica %s/%s may lack records: %s", name, number, error)
            unreadable.append(key)
            return True  # of all others
        for report in reports:
            _log.warning("%s", report)
        return not reports

    def check_journal(self) -> None:
        """Raise if the commit journal cannot be read, because no other node has what it holds."""
        self._commit_journal.check_readable()

    def finish_redo(self) -> None:
        """Finish the replay: every partition has what the commit journal held of it."""
        self._commit_journal.clear()

    # Suspect replicas

    def _note_cut(self, key: bytes) -> None:
        self._note_suspect()
        self._cut.add(key)

    def _note_suspect(self) -> None:
        """Persist that records may be missing, before recovery truncates every trace of them.

        If this node crashes before it has notified the others, the next start suspects all
        replicas.
        """
        if not self._is_suspicion_reported and not self._disk.exists(_SUSPECT_FILE):
            write_framed(
                self._disk, _SUSPECT_FILE, magic=_SUSPECT_MAGIC, version=_VERSION, body=True
            )

    def clear_suspects(self) -> None:
        """Remove the note: the cluster has recorded which replicas are suspect.

        Those that could not be opened were not reported; the next start suspects all again.
        """
        self._is_suspicion_reported = True
        if self._disk.exists(_SUSPECT_FILE) and not self._has_unknown:
            self._disk.remove(_SUSPECT_FILE)
            self._disk.sync_folder("meta")

    # Folders

    def claim(self, fact: TopicFact) -> None:
        """Assign a folder to this topic; remove what an earlier topic of that name left.

        Raise if it cannot be read to whom the folder belongs.
        """
        claimed = self._claimed(fact.name)
        if claimed == fact.id:
            return
        if claimed is not None:
            self.discard(fact.name, claimed)
        write_topic_id(self._disk, fact.name, fact.id)

    def is_taken_over(self, fact: TopicFact) -> bool:
        """Return whether the folder of that name may already belong to another topic."""
        try:
            return self._claimed(fact.name) not in (None, fact.id)
        except StorageFailed as error:
            _log.error("the folder of %s, which was deleted, is kept: %s", fact.name, error)
            return True

    def discard(self, name: str, topic_id: bytes) -> None:
        """Rename a folder durably, then delete it from the disk."""
        if not self._disk.exists(f"logs/{name}"):
            return
        deleted_folder = f"{_DELETED_PREFIX}{topic_id.hex()}"
        self._disk.rename(f"logs/{name}", f"logs/{deleted_folder}")
        # A crash could undo the rename, and a new topic of that name would find the old records.
        self._disk.sync_folder("logs")
        self._remove_later(deleted_folder)

    def discard_partition(self, partition: Partition) -> None:
        """Remove a replica that other nodes now store, also from the commit journal.

        If it comes back before that is done, and then this node crashes, the journal would be
        replayed over the new replica.
        """
        folder = partition_folder(partition.name.topic, partition.name.partition)
        if not self._disk.exists(folder):
            return
        self._removed.add(partition.key)
        self._flusher.clear_journal(partial(self._journal_cleared, partition))
        deleted_folder = f"{_DELETED_PREFIX}{self._new_id().hex()}"
        self._disk.rename(folder, f"logs/{deleted_folder}")
        self._disk.sync_folder("logs")
        self._remove_later(deleted_folder)

    def is_removed(self, fact: TopicFact, number: int) -> bool:
        """Return whether the commit journal may still hold records of a removed replica.

        Until it is cleared, soon or at the next start, there can be no new replica.
        """
        return partition_key(fact.id, number) in self._removed

    def _journal_cleared(self, partition: Partition, is_clear: bool) -> None:
        if is_clear:
            self._removed.discard(partition.key)
        else:
            _log.error(
                "%s was removed, and cannot be stored here again before this node is restarted: "
                "the commit journal has failed and still holds its records",
                partition.name,
            )

    def remove_strays(self, known: Container[str], deleted: Container[str]) -> None:
        """Finish deletions that a crash interrupted, and set aside folders that no one deleted."""
        for name in self._disk.list("logs"):
            if name.startswith(_DELETED_PREFIX):
                self._remove_later(name)
            elif name in known or name.startswith(_LOST_PREFIX):
                continue
            elif name in deleted or not self._has_records(name):
                self.discard(name, self._new_id())
            else:
                lost = f"{_LOST_PREFIX}{name}~{self._new_id().hex()}"
                _log.error("no topic is known for the folder logs/%s; kept as logs/%s", name, lost)
                self._disk.rename(f"logs/{name}", f"logs/{lost}")
                self._disk.sync_folder("logs")

    def _claimed(self, name: str) -> bytes | None:
        """The id of the topic that a folder belongs to, if recorded."""
        return read_framed_or_refuse(
            self._disk,
            f"logs/{name}/{_ID_FILE}",
            magic=_ID_MAGIC,
            version=_VERSION,
            body=bytes,
            remedy=f"The topic of these replicas is in it: restore the file, or move logs/{name} "
            "away, and this node fetches them from others.",
        )

    def _has_records(self, topic: str) -> bool:
        return any(
            self._disk.open(f"logs/{topic}/{number}/{name}").size()
            for number in self._disk.list(f"logs/{topic}")
            if number != _ID_FILE
            for name in self._disk.list(f"logs/{topic}/{number}")
            if name.endswith(LOG_SUFFIX)
        )

    def _remove_later(self, name: str) -> None:
        def removed(_: object, error: Exception | None) -> None:
            if error is not None:
                _log.warning("logs/%s could not be removed: %s", name, error)

        self._clock.run_blocking(partial(self._disk.remove_tree, f"logs/{name}"), removed)


def partition_key(topic_id: bytes, number: int) -> bytes:
    return topic_id + number.to_bytes(4, "big")


def partition_folder(topic: str, number: int) -> str:
    return f"logs/{topic}/{number}"


def write_topic_id(disk: Disk, topic: str, topic_id: bytes) -> None:
    """Assign the folder of a name to a topic."""
    path = f"logs/{topic}/{_ID_FILE}"
    write_framed(disk, path, magic=_ID_MAGIC, version=_VERSION, body=topic_id)


def _is_set_aside(name: str) -> bool:
    return name.startswith((_DELETED_PREFIX, _LOST_PREFIX))


def _no_matter() -> None:
    """Do nothing: a sole replica has no other to be compared with."""


def _never_dirty(partition: Partition) -> None:
    raise AssertionError(f"{partition.name} is not kept here")


def _close(partition: Partition) -> PartitionState | None:
    """The state of a closed partition, or None if only its files have it."""
    try:
        state = partition.close()
    except OSError as error:
        _log.warning("%s was not closed properly: %s", partition.name, error)
        return None
    return state if partition.failure is None else None
