"""Append, fetch, watermarks, epochs and producer sequence numbers of one partition.

`storage` stores batches; this package decides which batches may be written and when they are
committed, and notifies waiters. It has no timers and no clients.

A `Partition` appends, reads and waits; its parts are `durability` (syncs and snapshots), `replica`
(roles, truncation, integrity), `retention` and `history` (producers, transactions, epochs).
"""

from goqueue.partition.durability import Flush
from goqueue.partition.opening import empty_state, recover_partition, reopen_partition
from goqueue.partition.partition import Appended, Committed, Partition, PartitionState, Watcher
from goqueue.partition.replica import NO_LEADER
from goqueue.partition.rules import KeyFiltering, PartitionSettings
from goqueue.partition.transactions import OpenTransaction
from goqueue.storage.index import AbortedSpans, AbortedTransaction

__all__ = [
    "NO_LEADER",
    "AbortedSpans",
    "AbortedTransaction",
    "Appended",
    "Committed",
    "Flush",
    "KeyFiltering",
    "OpenTransaction",
    "Partition",
    "PartitionSettings",
    "PartitionState",
    "Watcher",
    "empty_state",
    "recover_partition",
    "reopen_partition",
]
