"""Append, fetch, watermarks, epochs and producer sequence numbers of one partition.

`storage` stores batches; this package decides which batches may be written and when they are
committed, and notifies waiters. It has no timers and no clients.
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
