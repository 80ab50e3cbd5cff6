"""Assembly of a snapshot that arrives in chunks."""

from __future__ import annotations

from goqueue.cluster.raft.messages import Position, SnapshotChunk
from goqueue.cluster.raft.ready import Snapshot


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
