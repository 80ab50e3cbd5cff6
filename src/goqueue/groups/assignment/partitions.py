"""Sets of partitions, the data type of assignments.

An assignment of thousands of partitions is compared on every rebalance. Plain tuples hash in C,
so whole assignments are intersected and subtracted without running Python per partition.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from goqueue.model.tenants import TopicName

Partition = tuple[TopicName, int]
Partitions = frozenset[Partition]

NO_PARTITIONS: Partitions = frozenset()


def flatten(nested: Mapping[str, Iterable[int]]) -> Partitions:
    """`{"a": [0, 1]}` becomes `{("a", 0), ("a", 1)}`."""
    return frozenset(
        (topic, partition) for topic, partitions in nested.items() for partition in partitions
    )


def nest(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    """The reverse of `flatten`, in sorted order."""
    nested: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        nested[topic].append(partition)
    return dict(nested)
