"""The task side of a sink: begin a transaction, write the rows, and leave it prepared."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from goqueue.client import LogClient, ProducerSettings, ProducerTransaction
from goqueue.client.http import Client, RetrySettings
from goqueue.model.errors import AccessDenied, GoQueueError, UnknownTransaction
from goqueue.model.names import ProducerIdentity
from goqueue.model.queries import PREFIX, Attempt
from goqueue.spark.access import OPEN, Access
from goqueue.spark.connecting import PATIENCE_MS, connect_again, http_settings, http_url
from goqueue.spark.sink.options import WriteOptions
from goqueue.spark.sink.row_batches import RowWriter
from goqueue.spark.sink.writers import Written
from goqueue.wire.http.bodies.queries import Query
from goqueue.wire.http.bodies.transactions import Begun

# A broker restart must not end a job. Waits are random, up to a second, half on average.
_RETRIES_MAX = 2 * PATIENCE_MS // 1000
_BACKOFF_MS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Part:
    """Which epoch of which query a task writes for."""

    query_id: str
    run_name: str
    epoch: int


def control(address: str, access: Access = OPEN) -> Client:
    """Return a client, with long retries, of the API at which transactions begin and end."""
    retry = RetrySettings(retries_max=_RETRIES_MAX, backoff_ms_max=_BACKOFF_MS_MAX)
    return Client(http_url(address, access), http_settings(access, retry))


def write_part(options: WriteOptions, part: Part, batches: Iterator[pa.RecordBatch]) -> Written:
    """Write the rows of one task; they are invisible before the commit."""
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return Written(part.query_id, 0, part.epoch, None)
    if not options.is_exactly_once:
        with connect_again(options.bootstrap, options.access) as client:
            _write(options, client, None, first, filled)
        return Written(part.query_id, 0, part.epoch, None)
    with (
        control(options.http, options.access) as api,
        connect_again(options.bootstrap, options.access) as client,
    ):
        run, begun = _begin(options, api, part)
        if begun is None:
            _drain(filled)
            return Written(part.query_id, run, part.epoch, None)
        try:
            _write(options, client, begun, first, filled)
            api.queries.prepare(begun.id)
        except BaseException:
            with contextlib.suppress(GoQueueError):
                api.transactions.abort(begun.id)
            raise
    return Written(part.query_id, run, part.epoch, begun.id)


def _begin(options: WriteOptions, api: Client, part: Part) -> tuple[int, Begun | None]:
    """Return the run, and a transaction in it; None when the epoch is already committed."""
    attempt_name = f"task-{uuid.uuid4().hex[:16]}"
    is_fresh = False
    while True:
        opened = _open(options, api, part, is_fresh=is_fresh)
        if opened.epoch is not None and opened.epoch >= part.epoch:
            return opened.run, None
        attempt = Attempt(part.query_id, opened.run, part.epoch, attempt_name)
        try:
            return opened.run, api.queries.begin(attempt, timeout=options.timeout_ms / 1000)
        except UnknownTransaction:
            # The query had nothing to commit for so long that the broker has removed it.
            if is_fresh:
                raise
            is_fresh = True


# The broker shows nothing of transactions to those who may not use them.
NOT_ALLOWED = (
    "This user may not write in transactions of queries: WRITE on transactional ids that begin "
    f"with {PREFIX!r} is needed."
)
_opened: dict[tuple[str, str, str], Query] = {}


def _open(options: WriteOptions, api: Client, part: Part, *, is_fresh: bool) -> Query:
    """Return the state of the query when this process first opened this run of it."""
    key = (options.http, part.query_id, part.run_name)
    if is_fresh or key not in _opened:
        try:
            opened = api.queries.open(part.query_id, run_name=part.run_name)
        except UnknownTransaction as hidden:
            raise AccessDenied.with_text(NOT_ALLOWED) from hidden
        _opened.clear()  # A worker serves one query at a time.
        _opened[key] = opened
    return _opened[key]


def _write(
    options: WriteOptions,
    client: LogClient,
    begun: Begun | None,
    first: pa.RecordBatch,
    others: Iterator[pa.RecordBatch],
) -> None:
    settings = ProducerSettings(compression=options.compression, delivery_ms_max=PATIENCE_MS)
    transaction = None
    if begun is not None:
        identity = ProducerIdentity(begun.producer_id, begun.producer_epoch)
        transaction = ProducerTransaction(begun.transactional_id, identity)
    with client.producer(settings, transaction=transaction) as producer:
        writer = RowWriter(producer, options.topic)
        writer.write(first)
        for batch in others:
            writer.write(batch)
        writer.push()


def _drain(batches: Iterator[pa.RecordBatch]) -> None:
    """Consume the remaining rows, as Spark expects."""
    for _ in batches:
        pass
