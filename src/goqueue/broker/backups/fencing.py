"""Ends what producers had begun when their cluster was lost: restored logs of transactions.

A producer that outlives its cluster may believe in a transaction of which the restored logs lack
the end, or the beginning. So each transactional id gets a new producer id: whoever had it
must initialise again. Transactions that were open are aborted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from goqueue.model.batch import Record, decode_batch
from goqueue.transactions.records import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    QueryStanding,
    Standing,
    decode_key,
    decode_query,
    decode_query_key,
    decode_standing,
    encode_key,
    encode_standing,
)
from goqueue.transactions.steps import fenced_off
from goqueue.transactions.views import TransactionState


def fencing_records(
    batches: Iterable[bytes], producer_ids: Iterator[int], *, now_ms: int
) -> list[Record]:
    """Return the records to append to a partition of the transaction log.

    `producer_ids` are new ones, one for each transactional id.
    """
    standings: dict[str, Standing] = {}
    queries: dict[str, QueryStanding] = {}
    for batch in batches:
        for record in decode_batch(batch):
            _apply(record, standings, queries)
    decided = {
        (one.transactional_id, one.identity) for query in queries.values() for one in query.decided
    }
    records = []
    for name, standing in standings.items():
        if (name, standing.identity) in decided and standing.is_open:
            continue  # It is committed: the record of its query says so.
        fenced = fence(standing, next(producer_ids), now_ms=now_ms)
        records.append(Record(encode_key(name), encode_standing(fenced), timestamp_ms=now_ms))
    return records


def _apply(
    record: Record, standings: dict[str, Standing], queries: dict[str, QueryStanding]
) -> None:
    key = record.key or b""
    name, query_id = decode_key(key), decode_query_key(key)
    if name is not None:
        standing = None if record.value is None else decode_standing(record.value)
        if standing is None:
            standings.pop(name, None)
        else:
            standings[name] = standing
    elif query_id is not None:
        query = None if record.value is None else decode_query(record.value)
        if query is None:
            queries.pop(query_id, None)
        else:
            queries[query_id] = query


def fence(standing: Standing, producer_id: int, *, now_ms: int) -> Standing:
    """Return the state of an id whose producers, whatever epoch they had, are refused.

    The lost cluster may have assigned any number of epochs after the backup, so the next producer
    gets another producer id.
    """
    if standing.is_open:
        standing = fenced_off(standing, now_ms)
    if standing.is_preparing:
        # Its markers belong to the former producer.
        return replace(standing, next_producer_id=producer_id)
    return replace(
        standing,
        state=TransactionState.EMPTY,
        producer_id=producer_id,
        epoch=0,
        last_producer_id=NO_PRODUCER_ID,
        last_epoch=NO_EPOCH,
    )
