"""Views of live objects under the names that the clients of a tenant see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from goqueue.broker.gate.views import DamagedView, NamedView, PageView, PlaceView, RecordStream
from goqueue.broker.gate.views import TopicView as LiveTopic
from goqueue.loop.promise import Promise
from goqueue.model.batch import Record
from goqueue.model.errors import CorruptBatch, GoQueueError
from goqueue.model.names import TopicPartition
from goqueue.tenancy.namespaces import Namespace


class PlainTopic:
    """A topic."""

    __slots__ = ("_topic", "name")

    def __init__(self, space: Namespace, topic: LiveTopic) -> None:
        self.name = space.strip(topic.name)
        self._topic = topic

    @property
    def id(self) -> bytes:
        return self._topic.id

    @property
    def is_internal(self) -> bool:
        return self._topic.is_internal

    @property
    def partition_count(self) -> int:
        return self._topic.partition_count

    @property
    def own_settings(self) -> Mapping[str, str]:
        return self._topic.own_settings


class _Partition:
    """The name of a partition."""

    __slots__ = ("name",)

    def __init__(self, space: Namespace, partition: NamedView) -> None:
        inside = partition.name
        self.name = TopicPartition(space.strip(inside.topic), inside.partition)


class _Place:
    __slots__ = ("offset", "partition")

    def __init__(self, space: Namespace, place: PlaceView) -> None:
        self.partition = _Partition(space, place.partition)
        self.offset = place.offset


class _Damaged:
    __slots__ = ("error", "next_offset", "offset", "partition")

    def __init__(self, space: Namespace, damaged: DamagedView) -> None:
        self.partition = _Partition(space, damaged.partition)
        self.offset = damaged.offset
        self.next_offset = damaged.next_offset
        error = space.error(damaged.error)
        assert isinstance(error, CorruptBatch)
        self.error = error


class PlainPage:
    """The result of one read."""

    __slots__ = ("_page", "_space")

    def __init__(self, space: Namespace, page: PageView) -> None:
        self._space = space
        self._page = page

    @property
    def records(self) -> Sequence[tuple[NamedView, Record]]:
        known: dict[int, _Partition] = {}
        found = []
        for partition, record in self._page.records:
            number = partition.name.partition
            if number not in known:
                known[number] = _Partition(self._space, partition)
            found.append((known[number], record))
        return found

    @property
    def places(self) -> Sequence[PlaceView]:
        return [_Place(self._space, one) for one in self._page.places]

    @property
    def damaged(self) -> Sequence[DamagedView]:
        return [_Damaged(self._space, one) for one in self._page.damaged]


class PlainStream:
    """A reader that continues where its last page ended."""

    __slots__ = ("_space", "_stream")

    def __init__(self, space: Namespace, stream: RecordStream) -> None:
        self._space = space
        self._stream = stream

    @property
    def places(self) -> Sequence[PlaceView]:
        return [_Place(self._space, one) for one in self._stream.places]

    def next(self, *, records_max: int, bytes_max: int, wait_ms: int) -> Promise[PageView]:
        shown: Promise[PageView] = Promise()

        def arrived(page: PageView | None, error: Exception | None) -> None:
            if page is not None:
                shown.resolve(PlainPage(self._space, page))
            else:
                known = isinstance(error, GoQueueError)
                shown.reject(self._space.error(error) if known else error)  # type: ignore[arg-type]

        self._stream.next(records_max=records_max, bytes_max=bytes_max, wait_ms=wait_ms).then(
            arrived
        )
        return shown

    def close(self) -> None:
        self._stream.close()
