"""Batches that the broker builds for a transaction, on behalf of its producer.

Clients of protocols without batches leave the sequence numbers to the broker. They continue from
the producer state of the partition, also after a restart.
"""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.model.batch import Record, encode_batch, read_header
from goqueue.model.names import ProducerIdentity
from goqueue.partition import Appended, Partition


def append_records(
    partition: Partition,
    records: Sequence[Record],
    identity: ProducerIdentity,
    *,
    now_ms: int,
) -> Appended:
    """Append records of a transaction to a topic by its rules; raise if they are refused."""
    return partition.append(_batch(partition, records, identity), now_ms=now_ms)


def write_records(
    partition: Partition,
    records: Sequence[Record],
    identity: ProducerIdentity,
    *,
    now_ms: int,
) -> Appended:
    """Append records of a transaction to an internal topic."""
    return write_batch(partition, _batch(partition, records, identity), now_ms=now_ms)


def write_batch(partition: Partition, batch: memoryview, *, now_ms: int) -> Appended:
    """Append a batch built by the broker; raise if its producer has been fenced."""
    if partition.failure is not None:
        raise partition.failure
    header = read_header(batch)
    earlier = partition.producers.check(header)
    assert earlier is None, "a sequence number is used once"
    partition.check_transaction(header)
    return partition.write(batch, now_ms=now_ms)


def next_sequence(partition: Partition, identity: ProducerIdentity) -> int:
    return partition.producers.next_sequence(identity.producer_id, identity.epoch)


def _batch(
    partition: Partition, records: Sequence[Record], identity: ProducerIdentity
) -> memoryview:
    return memoryview(
        encode_batch(
            records,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=next_sequence(partition, identity),
            is_transactional=True,
        )
    )
