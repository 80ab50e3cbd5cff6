"""Read-only views of live objects, for front ends that read them in place, without a copy.

They are valid until control returns to the event loop: topics change, partitions move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from goqueue.broker.reading.remote import Bounds
from goqueue.broker.topics.placement import Placement
from goqueue.loop.promise import Promise
from goqueue.model.batch import Record
from goqueue.model.errors import CorruptBatch
from goqueue.model.names import TopicPartition

__all__ = [
    "Bounds",
    "DamagedView",
    "NamedView",
    "PageView",
    "PlaceView",
    "Placement",
    "RecordStream",
    "TopicView",
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
