"""A batch that waits until its partition is a participant in the producer's transaction."""

from __future__ import annotations

from collections.abc import Callable

from goqueue.broker.publishing.split_batches import Split
from goqueue.loop.promise import Promise
from goqueue.model.batch import CRC_START, HEADER_BYTES, TRANSACTIONAL
from goqueue.model.errors import GoQueueError
from goqueue.partition import Appended, Committed, Partition

_ATTRIBUTES_AT = CRC_START + 1  # the low byte of the attributes, the first the checksum covers


def is_transactional(batch: memoryview) -> bool:
    """Whether a producer's batch is marked as part of a transaction."""
    return len(batch) >= HEADER_BYTES and bool(batch[_ATTRIBUTES_AT] & TRANSACTIONAL)


class Joining:
    """The future result of an append; it has offset and time when `when_committed` calls back."""

    __slots__ = ("_append", "_appended", "_failure", "_partition", "_waiting")

    def __init__(
        self,
        partition: Partition,
        joined: Promise[None],
        append: Callable[[], Appended | Split],
    ) -> None:
        self._partition = partition
        self._append = append
        self._appended: Appended | Split | None = None
        self._failure: GoQueueError | None = None
        self._waiting: list[Committed] = []
        joined.then(self._joined)

    @property
    def base_offset(self) -> int:
        return -1 if self._appended is None else self._appended.base_offset

    @property
    def last_offset(self) -> int:
        return -1 if self._appended is None else self._appended.last_offset

    @property
    def timestamp_ms(self) -> int:
        return -1 if self._appended is None else self._appended.timestamp_ms

    def when_committed(self, committed: Committed) -> None:
        """Call `committed` once the batch is stored with the promised durability, or is refused."""
        if self._failure is not None:
            committed(self._failure)
        elif self._appended is None:
            self._waiting.append(committed)
        else:
            self._pass_on(self._appended, committed)

    def _joined(self, _: None, error: Exception | None) -> None:
        try:
            if error is not None:
                raise error
            self._appended = self._append()
        except GoQueueError as refusal:
            self._failure = refusal
        waiting, self._waiting = self._waiting, []
        for committed in waiting:
            self.when_committed(committed)

    def _pass_on(self, appended: Appended | Split, committed: Committed) -> None:
        if isinstance(appended, Split):
            appended.when_committed(committed)
        else:
            self._partition.when_committed(appended.last_offset, committed)
