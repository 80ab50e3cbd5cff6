"""Durable state of the quorum on one disk: term, vote, log and snapshot.

A folder holds `snapshot`, which is replaced as a whole, and one log file, `log-N`. Each save
appends one frame to the log; with a snapshot, the log is rewritten under the next number and the
old one is removed.

A frame is written only after the previous one was synced. So a bad frame followed by a good one is
corruption, and the node must not start: it could have lost a vote. After each sync an empty frame
is appended, unsynced, so that the last real frame is nearly always proven in the same way. A bad
frame is cut off only at the very end, and only if it looks like a write torn by a power failure.
"""

from __future__ import annotations

import errno
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from crc32c import crc32c

from goqueue.cluster.raft.frames import (
    SECTOR_END,
    DamagedQuorumFile,
    Frame,
    check_is_torn,
    decode_frame,
    encode_frame,
    frame_at,
    marked,
    position_of,
    unmarked,
)
from goqueue.cluster.raft.messages import COUNTER_MAX, Entry, Members, Position
from goqueue.cluster.raft.ready import START, HardState, RaftState, Ready, Snapshot
from goqueue.model.errors import StorageFailed, StorageFull
from goqueue.storage.disk import Disk, File

_SNAPSHOT_VERSION = 1
_LOG_VERSION = 2
_LOG_VERSION_UNMARKED = 1  # without sector marks; rewritten at the next start

_LOG_MAGIC = b"GQRL"
_SNAPSHOT_MAGIC = b"GQRS"
_HEADER = struct.Struct(">4sHI")  # magic, version, checksum of the body
_LOG_NAME = re.compile(r"log-(\d{8,})")
_FULL = (errno.ENOSPC, errno.EDQUOT)
# Start of a log that begins with existing data. It is not START, or members that join later would
# consider themselves up to date without the data.
_AFTER_FIRST_DATA = Position(1, 1)


_encoder = msgspec.msgpack.Encoder()
_snapshot_decoder = msgspec.msgpack.Decoder(Snapshot)


class RaftStorage:
    """All methods block; call `save` in a thread, one call at a time."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self._snapshot_path = f"{folder}/snapshot"
        self._file: File | None = None
        self._number = 0
        self._size = 0  # of the intact part of the log file
        self._is_marked = True  # the log file has sector marks
        self._sequence = 0
        self._owes_snapshot = False  # the last save failed before its snapshot was stored
        self._failure: str | None = None

    # Start-up

    def load(self) -> RaftState | None:
        """Load what was saved; None if this folder was never used."""
        numbers = self._log_numbers()
        has_snapshot = self._disk.exists(self._snapshot_path)
        if not numbers and not has_snapshot:
            return None
        self._number = numbers[-1] if numbers else 1
        path = self._log_path(self._number)
        if not numbers:
            raise DamagedQuorumFile(path, "It is missing, though a snapshot exists")
        found = _replay(self._read_log(path), path)
        if not has_snapshot:
            if found in _UNUSED:
                return None  # The first start was interrupted before any promise was made.
            raise DamagedQuorumFile(self._snapshot_path, "It is missing, though a log exists")
        snapshot = self._read_snapshot()
        log = _join(found, snapshot, path)
        if log is not found:
            self._write_log(log.hard, log.base, log.entries)
        for number in numbers[:-1]:
            self._disk.remove(self._log_path(number))
        for name in self._disk.list(self._folder):
            if name.endswith(".new"):  # an interrupted replacement
                self._disk.remove(f"{self._folder}/{name}")
        return RaftState(log.hard, snapshot, log.base, log.entries)

    def secure(self, state: RaftState) -> None:
        """Rewrite what was loaded before any promise is based on it.

        It may never have reached the disk: after a failed sync in an earlier process it may exist
        only in the page cache, as clean pages that no later sync writes.
        """
        self._write_snapshot(state.snapshot)
        self._write_log(state.hard, state.base, state.entries)

    def begin(self, members: Members, data: bytes = b"") -> RaftState:
        """Initialise an unused folder; without members, the node is added by others later.

        `data` is an initial state for all members, which only this node has.
        """
        state = RaftState.new(members)
        if data:
            last = _AFTER_FIRST_DATA
            state = RaftState(HardState(last.term, None), Snapshot(last, members, data), last)
        self._write_log(state.hard, state.base, [])
        self._write_snapshot(state.snapshot)
        return state

    # Running

    def save(self, readies: Sequence[Ready]) -> None:
        """Make all of these durable, in their order.

        After `StorageFull` the same call must be retried before any other. After `StorageFailed`
        the content of the disk is unknown; the node must restart from `load`.
        """
        if self._failure is not None:
            raise StorageFailed(self._failure)
        hard_state: HardState | None = None
        entries: list[Entry] = []
        snapshot: Snapshot | None = None
        base: Position | None = None
        for ready in readies:
            if ready.snapshot is not None:
                snapshot, base, entries = ready.snapshot, ready.base, []
            hard_state = ready.hard_state or hard_state
            entries += ready.entries
        if snapshot is not None:
            assert base is not None
            assert hard_state is not None
            self._replace(snapshot, hard_state, base, entries)
        elif hard_state is not None or entries:
            assert not self._owes_snapshot, "a save that failed was left out"
            self._append(Frame(hard_state, entries))

    def _append(self, frame: Frame) -> None:
        assert self._file is not None, "save before load or begin"
        data = self._placed(encode_frame(frame, self._sequence + 1))
        try:
            self._file.append(data)
        except OSError as error:
            self._take_back(error)
        try:
            self._file.sync()
        except OSError as error:
            # After a failed sync the operating system may drop dirty pages and report success the
            # next time, so only reading the file again shows what is there.
            raise self._failed("synced", error) from error
        self._sequence += 1
        self._size += len(data)
        self._mark_synced()

    def _mark_synced(self) -> None:
        """Append an empty frame that proves that everything before it was synced.

        Losing the mark loses nothing.
        """
        assert self._file is not None
        data = self._placed(encode_frame(None, self._sequence + 1))
        try:
            self._file.append(data)
        except OSError as error:
            self._take_back(error, is_only_a_mark=True)
            return
        self._sequence += 1
        self._size += len(data)

    def _take_back(self, error: OSError, *, is_only_a_mark: bool = False) -> None:
        """Truncate what a failed write may have left at the end."""
        assert self._file is not None
        try:
            self._file.truncate(self._size)
        except OSError as second:
            raise self._failed("truncated", second) from second
        if not is_only_a_mark:
            raise self._unwritten("written", error) from error

    def _unwritten(self, what: str, error: OSError) -> StorageFull | StorageFailed:
        if error.errno in _FULL:
            return StorageFull(
                f"The quorum's files in {self._folder} could not be {what}: {error}; free space."
            )
        return self._failed(what, error)

    def _failed(self, what: str, error: OSError) -> StorageFailed:
        self._failure = (
            f"The quorum's files in {self._folder} could not be {what}: {error}; "
            "repair the disk and restart the node."
        )
        return StorageFailed(self._failure)

    def _replace(
        self, snapshot: Snapshot, hard: HardState, base: Position, entries: list[Entry]
    ) -> None:
        # A crash between the two writes leaves a new snapshot with an old log, which `load` joins.
        self._owes_snapshot = True
        try:
            self._write_snapshot(snapshot)
            self._write_log(hard, base, entries)
        except OSError as error:
            raise self._unwritten("replaced", error) from error
        self._owes_snapshot = False

    # Files

    def _placed(self, data: bytes) -> bytes:
        """Return the bytes to write for `data` at the end of the log file."""
        return marked(data, self._size) if self._is_marked else data

    def _log_path(self, number: int) -> str:
        return f"{self._folder}/log-{number:08d}"

    def _log_numbers(self) -> list[int]:
        names = (_LOG_NAME.fullmatch(name) for name in self._disk.list(self._folder))
        return sorted(int(name[1]) for name in names if name)

    def _write_snapshot(self, snapshot: Snapshot) -> None:
        if max(snapshot.last.index, snapshot.last.term) > COUNTER_MAX:
            raise ValueError(f"A snapshot ends at {snapshot.last}, beyond the limit {COUNTER_MAX}.")
        body = _encoder.encode(snapshot)
        head = _HEADER.pack(_SNAPSHOT_MAGIC, _SNAPSHOT_VERSION, crc32c(body))
        self._disk.replace_whole(self._snapshot_path, head + body)

    def _read_snapshot(self) -> Snapshot:
        data = self._disk.read_whole(self._snapshot_path)
        body = _checked_body(self._snapshot_path, data, _SNAPSHOT_MAGIC, (_SNAPSHOT_VERSION,))
        try:
            return _snapshot_decoder.decode(body)
        except (msgspec.MsgspecError, ValueError) as error:
            raise DamagedQuorumFile(self._snapshot_path, f"It is malformed: {error}") from error

    def _write_log(self, hard: HardState, base: Position, entries: list[Entry]) -> None:
        """Write the next log file as a whole, and remove the previous one."""
        old = self._log_path(self._number) if self._file is not None else None
        path = self._log_path(self._number + 1)
        number = struct.pack(">Q", self._number + 1)
        data = _HEADER.pack(_LOG_MAGIC, _LOG_VERSION, crc32c(number)) + number
        data += encode_frame(Frame(hard, entries, base), 1)
        data = marked(data + encode_frame(None, 2), 0)
        self._disk.replace_whole(path, data)
        self._number += 1
        self._file = self._disk.open(path)
        self._size, self._sequence, self._is_marked = len(data), 2, True
        if old is not None:
            self._disk.remove(old)

    def _read_log(self, path: str) -> list[Frame]:
        stored = self._disk.read_whole(path)
        versions = (_LOG_VERSION, _LOG_VERSION_UNMARKED)
        _checked_body(path, stored[: _HEADER.size + 8], _LOG_MAGIC, versions)
        self._is_marked = _HEADER.unpack_from(stored)[1] == _LOG_VERSION
        data = unmarked(stored) if self._is_marked else stored
        frames: list[Frame] = []
        at, sequence = _HEADER.size + 8, 0
        while at < len(data):
            found = frame_at(data, at)
            if found is None or found[0] != sequence + 1:
                break
            sequence, body, at = found
            if body:
                frames.append(decode_frame(path, body))
        if at < len(data):
            check_is_torn(path, data, at, stored if self._is_marked else None)
        if not frames:
            raise DamagedQuorumFile(path, "Its first frame is missing")
        self._file = self._disk.open(path)
        self._size, self._sequence = position_of(at) if self._is_marked else at, sequence
        if self._size < len(stored):
            self._file.truncate(self._size)
            self._file.sync()
        elif self._size > len(stored):
            self._file.append(SECTOR_END)  # only the mark is torn off; the next sync covers it
        return frames


def _checked_body(path: str, data: bytes, magic: bytes, versions: tuple[int, ...]) -> bytes:
    if len(data) < _HEADER.size:
        raise DamagedQuorumFile(path, "It is shorter than its header")
    found_magic, version, checksum = _HEADER.unpack_from(data)
    body = data[_HEADER.size :]
    if found_magic != magic:
        raise DamagedQuorumFile(path, "Its magic number is wrong")
    if version not in versions:
        raise DamagedQuorumFile(
            path, f"It has version {version}, and this release supports up to {max(versions)}"
        )
    if crc32c(body) != checksum:
        raise DamagedQuorumFile(path, "Its checksum is wrong")
    return body


@dataclass(slots=True)
class _Log:
    """The content of a log file."""

    hard: HardState
    base: Position
    entries: list[Entry]


_UNUSED = (
    _Log(HardState(0, None), START, []),
    _Log(HardState(_AFTER_FIRST_DATA.term, None), _AFTER_FIRST_DATA, []),
)


def _replay(frames: list[Frame], path: str) -> _Log:
    """Return the log after all frames."""
    base = frames[0].base
    if base is None or frames[0].hard_state is None:
        raise DamagedQuorumFile(path, "Its first frame lacks the start of the log")
    log = _Log(frames[0].hard_state, base, [])
    for frame in frames:
        log.hard = frame.hard_state or log.hard
        for entry in frame.entries:
            kept = entry.index - base.index - 1
            if not 0 <= kept <= len(log.entries):
                last_index = base.index + len(log.entries)
                raise DamagedQuorumFile(path, f"Entry {entry.index} follows entry {last_index}")
            del log.entries[kept:]
            log.entries.append(entry)
    return log


def _join(log: _Log, snapshot: Snapshot, path: str) -> _Log:
    """Return the log, or its replacement if the snapshot is not part of its history.

    That happens if a crash came after a leader's snapshot was stored and before the log was.
    """
    last = snapshot.last
    if log.base.index > last.index:
        raise DamagedQuorumFile(
            path, f"It starts after entry {log.base.index}, but the snapshot ends at {last.index}"
        )
    at = last.index - log.base.index
    if at <= len(log.entries):
        term = log.entries[at - 1].term if at else log.base.term
        if term == last.term:
            return log
    # In the snapshot's term this node has made no promise that could be lost, because promises wait
    # for the log.
    hard = log.hard if log.hard.term >= last.term else HardState(last.term, None)
    return _Log(hard, last, [])
