"""Progress of one follower as seen by its leader, and what to send it next."""

from __future__ import annotations

from collections import deque
from enum import Enum, auto

from goqueue.cluster.raft.messages import AppendAnswer, SnapshotAnswer
from goqueue.cluster.raft.ready import Snapshot


class Pace(Enum):
    PROBING = auto()  # empty appends, one at a time, find where the logs diverge
    STREAMING = auto()  # entries are sent ahead of their acknowledgements
    SNAPSHOT = auto()  # the follower needs entries that the log no longer has


class Progress:
    """The leader first assumes that a follower's log matches its own, until that is refused."""

    def __init__(self, *, next_index: int, now_ms: int) -> None:
        self.pace = Pace.STREAMING
        self.match_index = 0  # durably identical up to here
        self.next_index = next_index
        self.in_flight: deque[int] = deque()  # last index of each unacknowledged append
        self.commit_index_sent = 0
        self.round_sent = 0
        self.round_answered = 0
        self.heard_ms = now_ms
        self.snapshot: Snapshot | None = None
        self.snapshot_offset = 0
        self.chunk_sent_ms: int | None = None  # None: the next chunk may be sent

    def hear(self, now_ms: int, round_answered: int = 0) -> None:
        self.heard_ms = now_ms
        self.round_answered = max(self.round_answered, round_answered)

    def accept(self, answer: AppendAnswer) -> bool:
        """Note how far the logs match; return whether that is further than before."""
        is_news = answer.match_index > self.match_index
        self.match_index = max(self.match_index, answer.match_index)
        while self.in_flight and self.in_flight[0] <= self.match_index:
            self.in_flight.popleft()
        if self.pace is Pace.STREAMING:
            self.next_index = max(self.next_index, self.match_index + 1)
        elif self.pace is Pace.PROBING or self._has_snapshot():
            self._stream()
        return is_news

    def refuse(self, answer: AppendAnswer, *, try_index: int) -> bool:
        """Step back to probe at `try_index`; return False for an answer that is too late."""
        is_late = answer.refused_index <= self.match_index
        if self.pace is Pace.PROBING:
            is_late = answer.refused_index != self.next_index - 1
        if is_late or self.pace is Pace.SNAPSHOT:
            return False
        self.pace = Pace.PROBING
        self.in_flight.clear()
        self.next_index = max(self.match_index, min(answer.refused_index - 1, try_index)) + 1
        return True

    def begin_snapshot(self, snapshot: Snapshot) -> None:
        self.pace = Pace.SNAPSHOT
        self.in_flight.clear()
        self.snapshot = snapshot
        self.snapshot_offset = 0
        self.chunk_sent_ms = None

    def accept_chunk(self, answer: SnapshotAnswer) -> None:
        """Note where the next chunk must start, ahead or behind."""
        snapshot = self.snapshot
        if snapshot is None or answer.last != snapshot.last:
            return
        if answer.offset != self.snapshot_offset and answer.offset <= len(snapshot.data):
            self.snapshot_offset = answer.offset
            self.chunk_sent_ms = None

    def _has_snapshot(self) -> bool:
        return self.snapshot is not None and self.match_index >= self.snapshot.last.index

    def _stream(self) -> None:
        self.pace = Pace.STREAMING
        self.snapshot = None
        self.next_index = self.match_index + 1
        self.in_flight.clear()
