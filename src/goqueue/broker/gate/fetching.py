"""The result of a fetch, as front ends see it: batches in files, and the bounds of partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from goqueue.model.errors import CorruptBatch, GoQueueError
from goqueue.model.names import TopicPartition


class SendableFile(Protocol):
    """A file whose bytes are sent to a socket."""

    path: str

    def read_at_once(self, position: int, length: int) -> bytes | None: ...

    def prefetch(self, position: int, length: int) -> None: ...

    def fileno(self) -> int: ...

    def pin(self) -> None: ...

    def unpin(self) -> None: ...


class FetchedBatches(Protocol):
    """Whole batches in a file. Trusted ones may be sent without reading them (zero-copy)."""

    @property
    def file(self) -> SendableFile: ...

    @property
    def position(self) -> int: ...

    @property
    def length(self) -> int: ...

    @property
    def is_trusted(self) -> bool: ...

    def read(self) -> bytes:
        """Return the bytes, verified unless trusted; raise if the first batch is damaged."""


class FetchedPartition(Protocol):
    """The bounds of a partition."""

    @property
    def name(self) -> TopicPartition: ...

    @property
    def start_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def last_stable_offset(self) -> int: ...

    def unreadable(self, error: OSError | CorruptBatch) -> GoQueueError:
        """Return the error for a reader when the disk has failed, or a batch is damaged."""


class AbortedRange(Protocol):
    """The range of an aborted transaction: from a producer's first offset to its marker."""

    @property
    def producer_id(self) -> int: ...

    @property
    def first_offset(self) -> int: ...


class FetchedData(Protocol):
    """The data of one requested partition: committed batches, nothing yet, or an error."""

    @property
    def partition(self) -> FetchedPartition | None: ...

    @property
    def batches(self) -> FetchedBatches | None: ...

    @property
    def error(self) -> GoQueueError | None: ...

    @property
    def aborted(self) -> Sequence[AbortedRange]: ...


FetchDone = Callable[[Sequence[FetchedData]], None]


class Waiting(Protocol):
    """A fetch that has not been answered yet."""

    def cancel(self) -> None: ...
