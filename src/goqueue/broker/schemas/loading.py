"""Replays the registry from its topic, a piece at a time."""

from __future__ import annotations

import logging

from goqueue.model.batch import BatchHeader, Record, decode_batch
from goqueue.model.errors import CorruptBatch, UnsupportedVersion, UpgradeInProgress
from goqueue.partition import Partition
from goqueue.schemas.facts import CorruptSchemaState, read_record
from goqueue.schemas.registry import Registry

STEP_BYTES = 256 << 10  # some milliseconds of reading
IDS_LOST_MAX = 1000  # assumed at most, per damaged piece of the log

_log = logging.getLogger(__name__)


class Loading:
    """A registry that is being replayed; complete when `step` returns True."""

    def __init__(self, partition: Partition) -> None:
        self.registry = Registry()
        self.until_offset = partition.high_watermark
        self.partition = partition
        self.next_offset = partition.start_offset
        self.unreadable: UnsupportedVersion | None = None  # why it cannot go on

    def step(self) -> bool:
        """Replay some more; return True when nothing is left.

        Raise `UpgradeInProgress` if a later release has written what comes next.
        """
        self._check_readable()
        left = STEP_BYTES
        while self.next_offset < self.until_offset and left > 0:
            try:
                for header, batch in self.partition.log.batches(
                    self.next_offset, until_offset=self.until_offset
                ):
                    self.take(header, batch)
                    left -= header.size
                    if left <= 0:
                        return False
                self.next_offset = self.until_offset
            except CorruptBatch as error:
                self._step_over(error)
        return self.next_offset >= self.until_offset

    def take(self, header: BatchHeader, batch: bytes | memoryview) -> None:
        """Apply the next batch; raise `UpgradeInProgress` if a later release has written it."""
        try:
            for record in decode_batch(batch):
                self._apply(record)
        except UnsupportedVersion as error:
            self.unreadable = error
            self._check_readable()
        self.next_offset = header.next_offset

    def _check_readable(self) -> None:
        if self.unreadable is not None:
            raise UpgradeInProgress(
                f"This node cannot read all schemas; retry on another one. {self.unreadable}"
            )

    def _apply(self, record: Record) -> None:
        try:
            fact = read_record(record.key or b"", record.value)
            if fact is not None:
                self.registry.apply(fact)
        except (CorruptSchemaState, ValueError) as error:
            _log.error("a record of %s at %d: %s", self.partition.name, record.offset, error)

    def _step_over(self, error: CorruptBatch) -> None:
        _log.error("schemas are damaged: %s", error)
        following = error.next_offset
        self.next_offset = (
            self.until_offset if following is None else max(following, self.next_offset + 1)
        )
        # The most recently assigned ids may be among what is lost; none may be assigned again.
        self.registry.catalog.skip_ids(IDS_LOST_MAX)
