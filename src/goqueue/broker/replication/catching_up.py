"""How far a node has come since its start: which of its replicas were not in sync again yet.

A rolling restart may go on to the next node only then. With `min_insync_replicas=2` of three, two
nodes that are not in sync at the same time refuse writes.
"""

from __future__ import annotations

from goqueue.broker.controller.metadata import FactLog
from goqueue.cluster.facts import NO_LEADER, Decision, PartitionFact, PartitionKey


class CatchingUp:
    """Replicas that have not been in sync since this node was unfenced.

    A replica that was in sync once is forgotten here: later lag is a matter of monitoring, and must
    not take the node out of service. So are replicas that are added later. One without a leader has
    nobody to catch up with, so it does not count.
    """

    def __init__(self, node_id: int, log: FactLog) -> None:
        self._node_id = node_id
        self._log = log
        self._behind: dict[PartitionKey, None] | None = None  # None until it begins
        log.on_applied(self._apply)

    def begin(self) -> None:
        """Begin when this node is unfenced: from then on its metadata is current."""
        facts = self._log.metadata.partitions.of_node(self._node_id)
        self._behind = {fact.place: None for fact in facts if self._is_behind(fact)}
        self._look()

    @property
    def waits_for(self) -> str:
        """Return what the node waits for, as a sentence; empty if it has caught up."""
        if self._behind is None:
            return "This node has not caught up with its cluster yet."
        if not self._behind:
            return ""
        return (
            "Replicas on this node that have not been in sync since its start: "
            f"{len(self._behind)}."
        )

    def _apply(self, decision: Decision) -> None:
        if not self._behind:
            return
        for change in decision:
            if isinstance(change, PartitionFact) and not self._is_behind(change):
                self._behind.pop(change.place, None)
        self._look()

    def _look(self) -> None:
        """Forget all of them once none can catch up."""
        assert self._behind is not None
        partitions = self._log.metadata.partitions  # Not kept: a snapshot replaces the table.
        for place in list(self._behind):  # Mostly, the first one decides.
            fact = partitions.get(*place)
            if fact is None:  # Its topic was deleted.
                del self._behind[place]
            elif fact.leader != NO_LEADER:
                return
        self._behind.clear()

    def _is_behind(self, fact: PartitionFact) -> bool:
        is_replica = self._node_id in fact.replicas and self._node_id not in fact.removing
        return is_replica and self._node_id not in fact.in_sync
