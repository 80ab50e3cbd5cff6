"""Sessions of nodes with the active controller, and how far a drain has come.

A session is what the controller heard, not a fact: the next controller begins to count anew, so a
change of controllers never costs a node its partitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from goqueue.cluster.facts import NodeFact
from goqueue.cluster.metadata import Metadata


@dataclass(slots=True)
class Session:
    """When a node was heard, and where in the log its present standing is written."""

    heard_ms: int
    index: int | None  # None until the log has it
    is_over: bool = False  # before its time: the node was found to be gone, and not heard since
    is_assumed: bool = False  # nothing was heard of the node yet; it was alive for a predecessor


@dataclass(slots=True)
class Sessions:
    """Which nodes are heard. Silence counts only while this controller listens."""

    session_ms: int
    ticked_ms: int
    _by_node: dict[int, Session] = field(default_factory=dict)

    def begin(self, nodes: Iterable[int], *, index: int, now_ms: int) -> None:
        """Listen to nodes that were registered before this controller became active."""
        for node in nodes:
            self._by_node[node] = Session(now_ms, index, is_assumed=True)

    def registered(self, node: int, now_ms: int) -> None:
        self._by_node[node] = Session(now_ms, None)

    def heard(self, node: int, now_ms: int) -> Session:
        session = self._by_node[node]
        session.heard_ms, session.is_over, session.is_assumed = now_ms, False, False
        return session

    def end(self, node: int) -> None:
        """Somebody knows that a node is gone. Should that be wrong, it will be heard again."""
        if node in self._by_node:
            self._by_node[node].is_over = True

    def written(self, node: int, index: int) -> None:
        """The log has a new word about a node; it must have read it before it is trusted."""
        if node in self._by_node:
            self._by_node[node].index = index

    def decided(self, node: int) -> None:
        """Something about a node is decided, which the log does not have yet."""
        self._by_node[node].index = None

    def forget(self, node: int) -> None:
        self._by_node.pop(node, None)

    def is_heard(self, node: int, now_ms: int) -> bool:
        session = self._by_node.get(node)
        if session is None or session.is_over:
            return False
        return now_ms - session.heard_ms < self.session_ms

    def is_assumed(self, node: int) -> bool:
        """Whether this controller has yet to find out if a node is alive."""
        session = self._by_node.get(node)
        return session is not None and session.is_assumed

    def expired(self, nodes: Iterable[NodeFact], now_ms: int) -> list[int]:
        """The nodes, fenced ones aside, that were not heard for the length of a session."""
        self._forgive_pause(now_ms)
        return [
            node.id for node in nodes if not node.is_fenced and not self.is_heard(node.id, now_ms)
        ]

    def _forgive_pause(self, now_ms: int) -> None:
        """A controller that stood still has heard nobody, and that is not the nodes' fault."""
        paused_ms = now_ms - self.ticked_ms
        self.ticked_ms = now_ms
        if paused_ms > self.session_ms // 2:
            for session in self._by_node.values():
                session.heard_ms = min(session.heard_ms + paused_ms, now_ms)


@dataclass(frozen=True, slots=True)
class DrainReport:
    """How far a node is from leading nothing."""

    node: int
    leader_count: int
    stuck: tuple[tuple[str, int], ...]  # led by it because nobody else is in sync, the first few

    @property
    def is_done(self) -> bool:
        return self.leader_count == 0


STUCK_SHOWN_MAX = 100


def drain_report(metadata: Metadata, node: int) -> DrainReport:
    """To be asked of committed metadata, or a node might stop on a decision that gets lost."""
    led = metadata.partitions.led_by(node)
    stuck = []
    for fact in led[:STUCK_SHOWN_MAX]:
        topic = metadata.topic_by_id(fact.topic_id)
        assert topic is not None
        stuck.append((topic.name, fact.number))
    return DrainReport(node, len(led), tuple(sorted(stuck)))
