"""What the whole cluster must agree on: nodes, topics, who leads what, who hands out producer ids.

This room holds the facts as one deterministic state machine fed by a log, and decides what becomes
fact. It does not open partitions or talk to clients; `broker` acts on the facts.
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
