"""Consumers, with threads and with coroutines: members of queue groups and of stream groups.

`Consumer` and `AsyncConsumer` call a handler for each message of a queue group and settle it;
`StreamConsumer` and `AsyncStreamConsumer` iterate over the partitions that a stream group assigns
to them. The decisions are made in state machines without threads or connections (`workload`,
`membership`). A message whose handler failed is not retried here: it goes back to the broker.
"""

from goqueue.client.http.consumers.async_consumer import AsyncConsumer
from goqueue.client.http.consumers.consumer import Consumer
from goqueue.client.http.consumers.membership import Rebalance
from goqueue.client.http.consumers.stream_consumer import AsyncStreamConsumer, StreamConsumer
from goqueue.client.http.consumers.workload import ConsumerSettings, Reject, Retry, Tally

__all__ = [
    "AsyncConsumer",
    "AsyncStreamConsumer",
    "Consumer",
    "ConsumerSettings",
    "Rebalance",
    "Reject",
    "Retry",
    "StreamConsumer",
    "Tally",
]
