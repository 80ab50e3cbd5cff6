"""What a fetch brings, as front ends see it: whole batches in files, and where a partition ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from goqueue.model.errors import GoQueueError
from goqueue.model.names import TopicPartition


class SendableFile(Protocol):
    """A file whose bytes go to a socket."""

    path: str

    def read_at_once(self, position: int, length: int) -> bytes | None: ...

    def prefetch(self, position: int, length: int) -> None: ...

    def fileno(self) -> int: ...

    def pin(self) -> None: ...

    def unpin(self) -> None: ...


class FetchedBatches(Protocol):
    """Whole batches in a file. Those that are trusted may be sent without being read."""

    @property
    def file(self) -> SendableFile: ...

    @property
    def position(self) -> int: ...

    @property
    def length(self) -> int: ...

    @property
    def is_trusted(self) -> bool: ...

    def read(self) -> bytes:
        """The bytes, verified unless they are trusted; raises if the first batch is damaged."""


class FetchedPartition(Protocol):
    """Where a partition begins and ends."""

    @property
    def name(self) -> TopicPartition: ...

    @property
    def start_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def last_stable_offset(self) -> int: ...

    def unreadable(self, error: OSError) -> GoQueueError:
        """The error for a reader whom the disk has failed."""

    def damaged(self, error: GoQueueError) -> GoQueueError:
        """The error for a reader who met a damaged batch."""


class AbortedRange(Protocol):
    """Batches of an aborted transaction: a producer's, from an offset to its marker."""

    @property
    def producer_id(self) -> int: ...

    @property
    def first_offset(self) -> int: ...


class FetchedData(Protocol):
    """What is in one place: safe batches, or nothing yet, or an error."""

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
