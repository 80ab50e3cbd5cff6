"""Sessions of nodes with the active controller, and the progress of a drain.

A session is volatile state of the controller, not metadata: the next controller restarts all
sessions, so a change of controller never costs a node its partitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from goqueue.cluster.facts import NodeFact
from goqueue.cluster.metadata import Metadata


@dataclass(slots=True)
class Session:
    """When a node sent its last heartbeat, and which log entry has its current registration."""

    heard_ms: int
    index: int | None  # None until it is committed
    is_over: bool = False  # ended early: the node was found to be gone
    is_assumed: bool = False  # no heartbeat yet; the previous controller considered it alive


@dataclass(slots=True)
class Sessions:
    """The sessions of all nodes. Time counts only while this controller is running."""

    session_ms: int
    ticked_ms: int
    _by_node: dict[int, Session] = field(default_factory=dict)

    def begin(self, nodes: Iterable[int], *, index: int, now_ms: int) -> None:
        """Start sessions of nodes that were registered before this controller became active."""
        for node in nodes:
            self._by_node[node] = Session(now_ms, index, is_assumed=True)

    def registered(self, node: int, now_ms: int) -> None:
        self._by_node[node] = Session(now_ms, None)

    def heard(self, node: int, now_ms: int) -> Session:
        session = self._by_node[node]
        session.heard_ms, session.is_over, session.is_assumed = now_ms, False, False
        return session

    def end(self, node: int) -> None:
        """End the session of a node that was found to be gone; a heartbeat would renew it."""
        if node in self._by_node:
            self._by_node[node].is_over = True

    def written(self, node: int, index: int) -> None:
        """Note the log entry that a node must have applied before it is unfenced."""
        if node in self._by_node:
            self._by_node[node].index = index

    def decided(self, node: int) -> None:
        """Note that a decision about a node was made but is not committed yet."""
        self._by_node[node].index = None

    def forget(self, node: int) -> None:
        self._by_node.pop(node, None)

    def is_heard(self, node: int, now_ms: int) -> bool:
        session = self._by_node.get(node)
        if session is None or session.is_over:
            return False
        return now_ms - session.heard_ms < self.session_ms

    def is_assumed(self, node: int) -> bool:
        """Return whether this controller has yet to receive a heartbeat from a node."""
        session = self._by_node.get(node)
        return session is not None and session.is_assumed

    def expired(self, nodes: Iterable[NodeFact], now_ms: int) -> list[int]:
        """Return the unfenced nodes without a heartbeat for the length of a session."""
        self._forgive_pause(now_ms)
        return [
            node.id for node in nodes if not node.is_fenced and not self.is_heard(node.id, now_ms)
        ]

    def _forgive_pause(self, now_ms: int) -> None:
        """Extend sessions by a pause of the controller, in which it could receive no heartbeats."""
        paused_ms = now_ms - self.ticked_ms
        self.ticked_ms = now_ms
        if paused_ms > self.session_ms // 2:
            for session in self._by_node.values():
                session.heard_ms = min(session.heard_ms + paused_ms, now_ms)


@dataclass(frozen=True, slots=True)
class DrainReport:
    """How many partitions a node still leads while it is drained."""

    node: int
    leader_count: int
    stuck: tuple[tuple[str, int], ...]  # led by it because no other is in sync; the first few

    @property
    def is_done(self) -> bool:
        return self.leader_count == 0


STUCK_SHOWN_MAX = 100


def drain_report(metadata: Metadata, node: int) -> DrainReport:
    """Report the progress of a drain.

    Use committed metadata only, or a node might stop because of a decision that is then lost.
    """
    led = metadata.partitions.led_by(node)
    stuck = []
    for fact in led[:STUCK_SHOWN_MAX]:
        topic = metadata.topic_by_id(fact.topic_id)
        assert topic is not None
        stuck.append((topic.name, fact.number))
    return DrainReport(node, len(led), tuple(sorted(stuck)))
