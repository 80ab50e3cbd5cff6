"""The follower's side: store the leader's entries and snapshots, and acknowledge them."""

from __future__ import annotations

from goqueue.cluster.raft.log import RaftLog
from goqueue.cluster.raft.messages import (
    Append,
    AppendAnswer,
    Position,
    SnapshotAnswer,
    SnapshotChunk,
)
from goqueue.cluster.raft.ready import START, Outbox, Snapshot
from goqueue.cluster.raft.settings import RaftSettings


class Following:
    """Handles the leader's messages; `Raft` passes only those of the current term's leader."""

    def __init__(self, node_id: int, log: RaftLog, outbox: Outbox, settings: RaftSettings) -> None:
        self._node_id = node_id
        self._log = log
        self._outbox = outbox
        self._intake = SnapshotIntake(settings.snapshot_bytes_max)

    def receive_append(self, message: Append, *, is_term_saved: bool) -> None:
        matched = self._log.accept(message.previous, message.entries)
        if matched is None:
            self._refuse(message)
            return
        self._log.commit_to(min(message.commit_index, matched))
        self._answer(message, matched, message.round, is_term_saved=is_term_saved)

    def receive_chunk(self, message: SnapshotChunk, *, is_term_saved: bool) -> None:
        if message.last.index <= self._log.commit_index:
            self._intake.clear()
            self._answer(message, self._log.commit_index, 0, is_term_saved=is_term_saved)
            return
        snapshot = self._intake.add(message)
        if snapshot is not None:
            self._log.install(snapshot)
            self._answer(message, snapshot.last.index, 0, is_term_saved=is_term_saved)
            return
        self._outbox.send_now(
            SnapshotAnswer(
                self._node_id, message.sender, message.term, message.last, self._intake.offset
            )
        )

    def _refuse(self, message: Append) -> None:
        """Refuse entries because the logs differ before them; hint where they may match."""
        previous = message.previous
        hint = self._log.hint_for(previous.index, previous.term)
        self._outbox.send_now(
            AppendAnswer(
                self._node_id,
                message.sender,
                message.term,
                message.round,
                False,
                0,
                previous.index,
                hint,
            )
        )

    def _answer(
        self, message: Append | SnapshotChunk, matched: int, round: int, *, is_term_saved: bool
    ) -> None:
        """Acknowledge up to where the logs match, once that is on disk.

        A heartbeat is also answered at once, with what is on disk now: a slow disk must not look
        like a dead node.
        """

        def answer(index: int) -> AppendAnswer:
            return AppendAnswer(
                self._node_id, message.sender, message.term, round, True, index, 0, START
            )

        saved_index = self._log.saved_index
        if is_term_saved and matched <= saved_index:
            self._outbox.send_now(answer(matched))
            return
        if is_term_saved and isinstance(message, Append) and not message.entries:
            self._outbox.send_now(answer(min(matched, saved_index)))
        self._outbox.send_after_saving(answer(matched))


class SnapshotIntake:
    """Chunks of one snapshot, in order. A chunk of another snapshot starts over."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._of: tuple[int, Position] | None = None  # term of the sender, end of the snapshot
        self._data = bytearray()

    def add(self, chunk: SnapshotChunk) -> Snapshot | None:
        """Add a chunk; return the snapshot when it is complete."""
        if self._of != (chunk.term, chunk.last):
            self.clear()
            self._of = (chunk.term, chunk.last)
        if chunk.offset == len(self._data) and chunk.total_bytes <= self._bytes_max:
            self._data += chunk.data
        if len(self._data) < chunk.total_bytes:
            return None
        snapshot = Snapshot(chunk.last, chunk.members, bytes(self._data))
        self.clear()
        return snapshot

    @property
    def offset(self) -> int:
        """Return where the next chunk must start."""
        return len(self._data)

    def clear(self) -> None:
        self._of = None
        self._data = bytearray()
