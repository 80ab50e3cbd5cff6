"""Cluster metadata: nodes, topics, partition leaders, configuration and producer ids.

This package keeps the metadata as one deterministic state machine fed by a log, and decides what is
written to that log. It opens no partitions and talks to no clients; `broker` acts on the metadata.
"""

from goqueue.cluster.controller import Controller
from goqueue.cluster.facts import (
    Change,
    ClusterFact,
    Decision,
    Fact,
    Forget,
    JobFact,
    NamedProducer,
    NamedQueueFact,
    NextProducerId,
    NodeFact,
    PartitionFact,
    QueueGroupFact,
    RoutingFact,
    TopicFact,
    decode_decision,
    encode_decision,
)
from goqueue.cluster.metadata import Metadata
from goqueue.cluster.nodes import DrainReport, drain_report
from goqueue.cluster.topic_changes import InternalTopic

__all__ = [
    "Change",
    "ClusterFact",
    "Controller",
    "Decision",
    "DrainReport",
    "Fact",
    "Forget",
    "InternalTopic",
    "JobFact",
    "Metadata",
    "NamedProducer",
    "NamedQueueFact",
    "NextProducerId",
    "NodeFact",
    "PartitionFact",
    "QueueGroupFact",
    "RoutingFact",
    "TopicFact",
    "decode_decision",
    "drain_report",
    "encode_decision",
]
