"""Append, fetch, watermarks, epochs and producer sequence numbers of one partition.

`storage` keeps batches; this room decides which batches may be written, when they count as
committed, and who is told. It holds no timers and knows no clients.
"""

from goqueue.partition.partition import (
    Appended,
    Committed,
    Flush,
    Partition,
    PartitionState,
    Watcher,
)
from goqueue.partition.rules import PartitionSettings

__all__ = [
    "Appended",
    "Committed",
    "Flush",
    "Partition",
    "PartitionSettings",
    "PartitionState",
    "Watcher",
]
