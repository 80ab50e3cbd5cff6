"""Read-only views of live objects, for front ends that read them in place instead of a copy.

What is here is valid until control returns to the event loop: topics change, partitions move.
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
    """A partition, of which only the name matters."""

    @property
    def name(self) -> TopicPartition: ...


class PlaceView(Protocol):
    """Where to go on reading."""

    @property
    def partition(self) -> NamedView: ...

    @property
    def offset(self) -> int: ...


class DamagedView(Protocol):
    """Offsets that cannot be read any more, and why."""

    @property
    def partition(self) -> NamedView: ...

    @property
    def offset(self) -> int: ...

    @property
    def next_offset(self) -> int: ...

    @property
    def error(self) -> CorruptBatch: ...


class PageView(Protocol):
    """What one read found, the oldest records first; `places` says where to go on."""

    @property
    def records(self) -> Sequence[tuple[NamedView, Record]]: ...

    @property
    def places(self) -> Sequence[PlaceView]: ...

    @property
    def damaged(self) -> Sequence[DamagedView]: ...


class RecordStream(Protocol):
    """A reader that goes on where its last page ended."""

    @property
    def places(self) -> Sequence[PlaceView]: ...

    def next(self, *, records_max: int, bytes_max: int, wait_ms: int) -> Promise[PageView]:
        """Read on, waiting for the first record; a page without any after `wait_ms`."""

    def close(self) -> None:
        """End a wait; its promise never resolves."""
