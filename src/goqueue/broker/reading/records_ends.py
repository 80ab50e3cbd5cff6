"""Finds where the records of partitions end, without holding up the event loop.

A log may end with any number of markers and aborted records. They are searched in slices, and what
was found is remembered by the partition.
"""

from __future__ import annotations

from collections.abc import Iterable

from goqueue.loop.clock import Clock
from goqueue.loop.turns import turn
from goqueue.partition import Partition
from goqueue.partition.records_end import SEARCH_BATCHES_MAX, SLICE_BATCHES

PARTITIONS_PER_SLICE = 20


async def search_records_ends(clock: Clock, partitions: Iterable[Partition]) -> None:
    """Search until `records_end` of each partition is quick, or the limit of a search is reached.

    A partition that was searched up to its high watermark is not read again.
    """
    searched = 0
    for partition in partitions:
        for _ in range(SEARCH_BATCHES_MAX // SLICE_BATCHES):
            if partition.without_records.is_end_of(partition.high_watermark):
                break
            partition.records_end(batches_max=SLICE_BATCHES)
            searched += 1
            is_long = not partition.without_records.is_end_of(partition.high_watermark)
            if is_long or searched % PARTITIONS_PER_SLICE == 0:
                await turn(clock)
