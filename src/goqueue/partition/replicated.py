"""Checks of a follower on what its leader has sent."""

from __future__ import annotations

from collections.abc import Iterator

from goqueue.model.batch import HEADER_BYTES, BatchHeader, check_batch, read_header
from goqueue.model.errors import CorruptBatch, GoQueueError


def replicated_batches(
    data: memoryview, *, offset: int, epoch_min: int, epoch_max: int
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the batches in `data`, the first of which must start at `offset`.

    They keep their offsets and epochs, so both are checked like a checksum: offsets have no gaps,
    and epochs neither decrease nor exceed that of the leader.
    """
    at = 0
    while at < len(data):
        if len(data) - at < HEADER_BYTES:
            raise CorruptBatch(f"The leader's answer ends with {len(data) - at} extra bytes.")
        size = read_header(data, at).size
        batch = data[at : at + size]
        try:
            header = check_batch(batch)
        except CorruptBatch:
            raise
        except GoQueueError as error:
            raise CorruptBatch(f"The leader sent an invalid batch: {error}") from error
        if header.base_offset != offset:
            raise CorruptBatch(
                f"The leader sent a batch at offset {header.base_offset}; {offset} is expected."
            )
        if not epoch_min <= header.leader_epoch <= epoch_max:
            raise CorruptBatch(
                f"A batch of epoch {header.leader_epoch} cannot follow one of epoch {epoch_min} "
                f"under a leader of epoch {epoch_max}."
            )
        yield header, batch
        at, offset, epoch_min = at + size, header.next_offset, header.leader_epoch
