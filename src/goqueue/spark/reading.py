"""Reads the batches of an offset range for one task, fetching ahead while others are decoded."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import Full, Queue

from goqueue.client import LogClient, PartitionRange, RawBatch, Reader, ReaderSettings
from goqueue.model.errors import GoQueueError, OffsetOutOfRange, UnknownPartition, UnknownTopic
from goqueue.spark import losses
from goqueue.spark.options import ReadOptions
from goqueue.spark.planning import OffsetRange
from goqueue.spark.workers import leave_client, settle_process, take_client

FETCH_BYTES = 4 << 20  # larger fetches leave the CPU caches before they are decoded
FETCHES_AHEAD = 2
THREAD_NAME = "goqueue-fetch"
# A broker that reports more records but returns none so many times will not return them.
EMPTY_POLLS_MAX = 120
_WAKE_S = 0.2  # how soon a thread notices that its batches are no longer needed
_CLOSE_S = 5.0  # how long a task waits for a fetch that is no longer needed


def read_batches(options: ReadOptions, wanted: OffsetRange) -> Iterator[RawBatch]:
    """Yield the batches that contain the requested offsets and still exist."""
    settle_process()
    client = take_client(options.bootstrap, options.access)
    is_done = False
    try:
        for batch in _ahead(RangeReader(client, options, wanted)):
            # A response is filled up with batches after the range.
            if batch.header.base_offset < wanted.end:
                yield batch
        is_done = True
    finally:
        # After an error, or when the rest is not needed, a response may still be in flight.
        if is_done:
            leave_client(options.bootstrap, client, options.access)
        else:
            client.close()


class RangeReader:
    """Fetches a range that existed when it was planned; what no longer exists is a loss."""

    def __init__(self, client: LogClient, options: ReadOptions, wanted: OffsetRange) -> None:
        self._client = client
        self._wanted = wanted
        self._is_fatal = options.fails_on_data_loss
        self._is_committed_only = options.is_committed_only
        self._reader = Reader(
            client.cluster,
            {wanted.partition: wanted.start},
            ends={wanted.partition: wanted.end},
            settings=ReaderSettings(
                bytes_max=2 * FETCH_BYTES,
                partition_bytes_max=FETCH_BYTES,
                is_committed_only=options.is_committed_only,
            ),
        )

    @property
    def position(self) -> int:
        return self._reader.positions[self._wanted.partition]

    def rounds(self) -> Iterator[list[RawBatch]]:
        """Yield batches, several at a time, to the end of the range or of what is left of it."""
        empty = 0
        try:
            if not self._is_same_topic():
                losses.report(
                    [losses.recreated(self._wanted.partition.topic)], is_fatal=self._is_fatal
                )
                return
            while not self._reader.is_at_end:
                before = self.position
                batches = self._poll()
                if batches is None:
                    return
                yield batches
                empty = empty + 1 if self.position == before else 0
                if empty > EMPTY_POLLS_MAX:
                    raise GoQueueError(
                        f"The broker sends nothing of {self._wanted.partition} from offset "
                        f"{before} on, though it says that there is more; look at its log."
                    )
            # If the topic had been recreated meanwhile, offsets would match and records would not.
            self._check_topic()
        except (UnknownTopic, UnknownPartition):
            losses.report([losses.gone(self._wanted.partition)], is_fatal=self._is_fatal)

    def _poll(self) -> list[RawBatch] | None:
        """Return the next batches, or None when there will be no more."""
        before = self.position
        try:
            batches = self._reader.poll_batches()
        except OffsetOutOfRange:
            return self._pass_over(self._kept())
        if self.position == before:
            kept = self._kept()
            if kept.end < self._wanted.end:
                return self._pass_over(kept)
        return batches

    def _pass_over(self, kept: PartitionRange) -> list[RawBatch] | None:
        """Continue at the start of the log, or end where it ends."""
        partition, wanted = self._wanted.partition, self._wanted
        self._check_topic()
        is_expired = self.position < kept.start
        start = min(kept.start, wanted.end)
        loss = (
            losses.expired(partition, self.position, start)
            if is_expired
            else losses.truncated(partition, wanted.end, kept.end)
        )
        losses.report([loss], is_fatal=self._is_fatal)
        if not is_expired:
            return None
        self._reader.positions[partition] = start
        return []

    def _kept(self) -> PartitionRange:
        partition = self._wanted.partition
        return self._client.offsets.ranges([partition], is_committed_only=self._is_committed_only)[
            partition
        ]

    def _check_topic(self) -> None:
        """Fail if the topic was recreated: its records may have been returned already."""
        self._client.cluster.forget()
        if not self._is_same_topic():
            losses.report([losses.recreated(self._wanted.partition.topic)], is_fatal=True)

    def _is_same_topic(self) -> bool:
        cluster = self._client.cluster
        view = cluster.retrying(lambda: cluster.topic(self._wanted.partition.topic))
        return view.id.hex() == self._wanted.topic_id


def _ahead(reader: RangeReader) -> Iterator[RawBatch]:
    """Yield the batches of the reader, from a thread, so that fetching and decoding overlap."""
    fetched: Queue[list[RawBatch] | BaseException | None] = Queue(FETCHES_AHEAD)
    is_over = threading.Event()

    def put(item: list[RawBatch] | BaseException | None) -> None:
        while not is_over.is_set():
            try:
                fetched.put(item, timeout=_WAKE_S)
                return
            except Full:
                continue

    def fetch() -> None:
        try:
            for batches in reader.rounds():
                put(batches)
                if is_over.is_set():
                    return
            put(None)
        except BaseException as error:
            put(error)

    thread = threading.Thread(target=fetch, name=THREAD_NAME, daemon=True)
    thread.start()
    try:
        while (item := fetched.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield from item
    finally:
        is_over.set()
        thread.join(_CLOSE_S)
