"""A snapshot that arrives in pieces."""

from __future__ import annotations

from goqueue.cluster.raft.messages import Position, SnapshotChunk
from goqueue.cluster.raft.ready import Snapshot


class SnapshotIntake:
    """Pieces of one snapshot, in order. A piece of another one begins anew."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._of: tuple[int, Position] | None = None  # term of the sender, end of the snapshot
        self._data = bytearray()

    def add(self, chunk: SnapshotChunk) -> Snapshot | None:
        """The whole snapshot, when this was the last piece that lacked."""
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
        """Where the next piece has to begin."""
        return len(self._data)

    def clear(self) -> None:
        self._of = None
        self._data = bytearray()
