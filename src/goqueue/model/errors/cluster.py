"""Nodes of a cluster, the controller, and the placement of replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.model.errors.base import GoQueueError

if TYPE_CHECKING:
    from goqueue.model.names import TopicPartition


class NoOwner(GoQueueError):
    """The node that could handle the call is unknown, or regards another one as the owner."""

    code = "no_owner"
    retryable = True

    def __init__(self) -> None:
        super().__init__("The resource is moving to another node; nothing was done. Retry.")


class UpgradeInProgress(GoQueueError):
    """A node of an older release must answer, or the feature level of the cluster is too low."""

    code = "upgrade_in_progress"
    retryable = True


class NotController(GoQueueError):
    """Another node is the active controller; `controller` is -1 if it is unknown."""

    code = "not_controller"
    retryable = True

    def __init__(self, controller: int) -> None:
        self.controller = controller
        who = f"Node {controller}" if controller >= 0 else "A node that is not known yet"
        super().__init__(f"{who} is the active controller; retry there.")


class UnknownNode(GoQueueError):
    code = "unknown_node"

    def __init__(self, node: int) -> None:
        super().__init__(
            f"No node {node} is registered in this cluster; list the nodes to see all."
        )


class NodeConflict(GoQueueError):
    """Two processes register as the same node."""

    code = "node_conflict"

    def __init__(self, node: int) -> None:
        super().__init__(
            f"Node {node} is running at another address. Give this one another node.id, or stop "
            "that one and wait until its session has expired."
        )


class StaleIncarnation(GoQueueError):
    """A request from an earlier run of a node."""

    code = "stale_incarnation"

    def __init__(self, node: int) -> None:
        super().__init__(f"Node {node} has registered again since; register anew.")


class NodeInUse(GoQueueError):
    code = "node_in_use"


class QuorumAtRisk(GoQueueError):
    """With these voters the cluster would have no quorum, or soon might not."""

    code = "quorum_at_risk"


class ForeignCluster(GoQueueError):
    code = "foreign_cluster"

    def __init__(self, theirs: str, ours: str) -> None:
        super().__init__(
            f"The node belongs to the cluster {theirs!r}, and this is {ours!r}. Give it the "
            "addresses of its own cluster, or an empty data folder to join this one."
        )


class StalePartitionVersion(GoQueueError):
    """A change based on a partition state that is no longer current."""

    code = "stale_partition_version"


class IneligibleReplica(GoQueueError):
    """A node that may not be in sync now: it is fenced, about to stop, or has restarted."""

    code = "ineligible_replica"


class NoReassignment(GoQueueError):
    code = "no_reassignment"

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(f"The replicas of {partition} are not being moved.")


class ElectionNotNeeded(GoQueueError):
    code = "election_not_needed"

    def __init__(self, partition: TopicPartition, leader: int) -> None:
        super().__init__(f"Node {leader} leads {partition} already.")


class PreferredLeaderNotAvailable(GoQueueError):
    code = "preferred_leader_not_available"
    retryable = True


class NoEligibleLeader(GoQueueError):
    code = "no_eligible_leader"
    retryable = True
