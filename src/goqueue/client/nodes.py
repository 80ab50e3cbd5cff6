"""The brokers of the cluster and their data folders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from goqueue.client.cluster import Cluster, Node
from goqueue.client.errors import check
from goqueue.model.names import TopicPartition
from goqueue.wire.kafka.messages import describe_cluster, describe_log_dirs


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    id: str
    controller_id: int
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class LogDir:
    """One data folder of one broker; sizes in bytes, -1 if the broker does not report them."""

    node_id: int
    path: str
    total_bytes: int
    usable_bytes: int
    sizes: Mapping[TopicPartition, int]


class Nodes:
    """Describes the cluster.

    >>> [node.address for node in client.nodes.describe().nodes]
    [Address(host='127.0.0.1', port=9092)]
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def describe(self) -> ClusterDescription:
        """Describe the cluster: its id, its controller and its brokers."""

        def attempt() -> ClusterDescription:
            request = describe_cluster.DescribeClusterRequest()
            response = self._cluster.call_controller(describe_cluster, request)
            check(response.error_code, response.error_message)
            nodes = [
                Node(each.broker_id, each.host, each.port, each.rack) for each in response.brokers
            ]
            nodes.sort(key=lambda node: node.id)
            return ClusterDescription(response.cluster_id, response.controller_id, tuple(nodes))

        return self._cluster.retrying(attempt)

    def log_dirs(self, topics: Mapping[str, list[int]] | None = None) -> list[LogDir]:
        """The data folders of every broker, with the given partitions, or with all."""
        wanted = (
            None
            if topics is None
            else [
                describe_log_dirs.DescribableLogDirTopic(name, indexes)
                for name, indexes in topics.items()
            ]
        )

        def attempt() -> list[LogDir]:
            request = describe_log_dirs.DescribeLogDirsRequest(wanted)
            nodes = self._cluster.nodes()
            responses = self._cluster.call_leaders(describe_log_dirs, dict.fromkeys(nodes, request))
            return [
                _log_dir(node, found)
                for node, response in zip(nodes, responses, strict=True)
                for found in _results(response)
            ]

        return self._cluster.retrying(attempt)


def _results(
    response: describe_log_dirs.DescribeLogDirsResponse,
) -> list[describe_log_dirs.DescribeLogDirsResult]:
    check(response.error_code)
    for found in response.results:
        check(found.error_code)
    return response.results


def _log_dir(node: Node, found: describe_log_dirs.DescribeLogDirsResult) -> LogDir:
    sizes = {
        TopicPartition(topic.name, each.partition_index): each.partition_size
        for topic in found.topics
        for each in topic.partitions
        if not each.is_future_key
    }
    return LogDir(node.id, found.log_dir, found.total_bytes, found.usable_bytes, sizes)
