"""Read-only views of live objects, for front ends that read them in place, without a copy.

Topics and pages of records are valid until control returns to the event loop: topics change,
partitions move. The result of a fetch is batches in files, which are pinned until they are sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from goqueue.broker.reading.remote import Bounds
from goqueue.broker.topics.placement import Placement
from goqueue.loop.promise import Promise
from goqueue.model.batch import Record
from goqueue.model.errors import CorruptBatch, GoQueueError
from goqueue.model.names import TopicPartition

__all__ = [
    "AbortedRange",
    "Bounds",
    "DamagedView",
    "FetchDone",
    "FetchedBatches",
    "FetchedData",
    "FetchedPartition",
    "NamedView",
    "PageView",
    "PlaceView",
    "Placement",
    "RecordStream",
    "SendableFile",
    "TopicView",
    "Waiting",
]


class TopicView(Protocol):
    """A topic."""

    @property
    def name(self) -> str: ...

    @property
    def id(self) -> bytes: ...

    @property
    def is_internal(self) -> bool: ...

    @property
    def partition_count(self) -> int: ...

    @property
    def own_settings(self) -> Mapping[str, str]: ...


class NamedView(Protocol):
    """A partition, of which only the name is needed."""

    @property
    def name(self) -> TopicPartition: ...


class PlaceView(Protocol):
    """Where reading continues."""

    @property
    def partition(self) -> NamedView: ...

    @property
    def offset(self) -> int: ...


class DamagedView(Protocol):
    """Offsets that cannot be read any more, and the reason."""

    @property
    def partition(self) -> NamedView: ...

    @property
    def offset(self) -> int: ...

    @property
    def next_offset(self) -> int: ...

    @property
    def error(self) -> CorruptBatch: ...


class PageView(Protocol):
    """The result of one read, oldest records first; `places` are where reading continues."""

    @property
    def records(self) -> Sequence[tuple[NamedView, Record]]: ...

    @property
    def places(self) -> Sequence[PlaceView]: ...

    @property
    def damaged(self) -> Sequence[DamagedView]: ...


class RecordStream(Protocol):
    """A reader that continues where its last page ended."""

    @property
    def places(self) -> Sequence[PlaceView]: ...

    def next(self, *, records_max: int, bytes_max: int, wait_ms: int) -> Promise[PageView]:
        """Read on, waiting for the first record; the page is empty after `wait_ms`."""

    def close(self) -> None:
        """Cancel a wait; its promise never resolves."""


# Fetches


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

    @property
    def offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

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

    def unreadable(self, error: OSError | CorruptBatch, offset: int | None = None) -> GoQueueError:
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
