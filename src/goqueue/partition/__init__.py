"""Append, fetch, watermarks, epochs and producer sequence numbers of one partition.

`storage` keeps batches; this room decides which batches may be written, when they count as
committed, and who is told. It holds no timers and knows no clients.
"""

from goqueue.partition.copy import Committed, Watcher
from goqueue.partition.history import Flush
from goqueue.partition.partition import Appended, Partition, PartitionState
from goqueue.partition.rules import PartitionSettings
from goqueue.partition.transactions import AbortedSpans, AbortedTransaction, OpenTransaction

__all__ = [
    "AbortedSpans",
    "AbortedTransaction",
    "Appended",
    "Committed",
    "Flush",
    "OpenTransaction",
    "Partition",
    "PartitionSettings",
    "PartitionState",
    "Watcher",
]
