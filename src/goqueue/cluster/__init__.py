"""What the whole cluster must agree on: topics, their settings, and who hands out producer ids.

This room holds the facts as one deterministic state machine fed by a log. It does not open
partitions or talk to clients; `broker` acts on the facts.
"""

from goqueue.cluster.metadata import (
    Fact,
    Metadata,
    NamedProducer,
    NextProducerId,
    QueueGroupFact,
    TopicFact,
)

__all__ = ["Fact", "Metadata", "NamedProducer", "NextProducerId", "QueueGroupFact", "TopicFact"]
