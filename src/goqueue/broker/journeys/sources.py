"""What happens to messages, by the log that it follows from, until it is written to the journal.

The source of an event is the partition from whose log it could be derived again: for the messages
of a producer their own partition, for deliveries a partition of `__delivery`, for schedules one of
`__scheduled`. The leader of a source collects its events, and sends them as pieces, each of which
begins where the last one for the same partition of the journal ended.

From `start` on, the events of a source are collected here; those before are derived from the log.
Until that is done a source is held: it collects, and sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from goqueue.broker.journeys.pieces import NO_RESET, REMOVAL_BASE, Piece
from goqueue.model.names import TopicPartition
from goqueue.model.observer import Range
from goqueue.model.session import Session
from goqueue.partition import Partition
from goqueue.tracing.encoding import encode_events
from goqueue.tracing.events import Details, Event, Kind, Place, Source, Span
from goqueue.tracing.gathering import MERGED_MS_MAX, merge

BATCHES_MAX = 20_000  # of a partition, merged ones, collected and not committed

Numbered = tuple[int, Piece]  # the partition of the journal, and what is for it


class LiveSource:
    """A source whose partition this node leads."""

    def __init__(self, source: Source, partition: Partition) -> None:
        self.source = source
        self.partition = partition
        self.epoch = partition.leader_epoch
        self.start = 0
        self.is_held = False
        self.is_collecting = True
        self.is_closed = False
        self.hold_count = 0  # how often it was held, or fell behind
        # By partition of the journal: up to where pieces were made.
        self.sent: dict[int, int] = {}

    @property
    def name(self) -> TopicPartition:
        return self.partition.name

    def hold(self, start: int | None = None) -> None:
        """Drop the events so far, and collect those from an offset on; send nothing yet.

        Without an offset, those of what is not yet written.
        """
        self.clear()
        self.hold_count += 1
        self.start = self._end if start is None else start
        self.is_held = self.is_collecting = True

    @property
    def _end(self) -> int:
        """Up to where there is something that events follow from."""
        return self.partition.log.end_offset

    def fall_behind(self) -> None:
        """Drop the events so far, and collect none until `hold`."""
        self.clear()
        self.hold_count += 1
        self.is_held, self.is_collecting = True, False

    def clear(self) -> None:
        raise NotImplementedError

    @property
    def count(self) -> int:
        """The number of events that are collected."""
        raise NotImplementedError

    def take(self) -> list[Numbered]:
        """Return what can be sent, as pieces."""
        raise NotImplementedError

    def piece(self, number: int, end: int, events: Mapping[Place, Sequence[Event]]) -> Piece:
        """Return the next piece for a partition of the journal."""
        span = Span(self.source, self.epoch, self.sent.get(number, 0), end)
        self.sent[number] = end
        return piece_of(span, events)


def piece_of(
    span: Span, events: Mapping[Place, Sequence[Event]], *, reset_from: int = NO_RESET
) -> Piece:
    """Encode events, by what they are about, that were derived from a part of a source's log."""
    records = [encode_events(place, span, some) for place, some in events.items()]
    count = sum(map(len, events.values()))
    return Piece(*span.source, span.epoch, span.first, span.end, records, reset_from, count)


def merged(events: Mapping[Place, Iterable[Event]]) -> dict[Place, list[Event]]:
    """Merge the events about each partition."""
    return {place: merge(some) for place, some in events.items()}


class PlaceSource(LiveSource):
    """A source whose events are all about its partition, and in one partition of the journal."""

    def __init__(self, source: Source, place: Place, partition: Partition, number: int) -> None:
        super().__init__(source, partition)
        self.place = place
        self.number = number


class _Batches:
    """Batches that one client has appended one after the other, within `MERGED_MS_MAX`."""

    __slots__ = ("end", "first", "last_ms", "session", "size", "time_ms")

    def __init__(
        self, offsets: Range, time_ms: int, last_ms: int, size: int, session: Session | None
    ) -> None:
        """`last_ms` is when the last of them was appended."""
        self.first, self.end = offsets
        self.time_ms = time_ms
        self.last_ms = last_ms
        self.size = size
        self.session = session

    def split(self, until: int) -> _Batches:
        """Remove and return those before an offset. Sizes and times are divided by messages."""
        count, before = self.end - self.first, until - self.first
        size = self.size * before // count
        time_ms = self.time_ms + (self.last_ms - self.time_ms) * before // count
        removed = _Batches((self.first, until), self.time_ms, time_ms, size, self.session)
        self.first, self.time_ms, self.size = until, time_ms, self.size - size
        return removed


class _Commit:
    """Up to where records were committed, within `MERGED_MS_MAX`."""

    __slots__ = ("end", "last_ms", "time_ms")

    def __init__(self, end: int, time_ms: int) -> None:
        self.end = end
        self.time_ms = self.last_ms = time_ms


class TopicSource(PlaceSource):
    """The records that producers have appended to a partition, and when they were committed.

    Both are merged at once, since most writes of a busy partition follow closely.
    """

    def __init__(
        self,
        place: Place,
        partition: Partition,
        *,
        number: int,
        node: int,
        replica_count: Callable[[bytes, int], int],
    ) -> None:
        """`number` is the partition of the journal for events about this partition."""
        source = Source(place.topic_id, place.partition)
        super().__init__(source, place, partition, number)
        self._node = node
        self._replica_count = replica_count
        self._batches: list[_Batches] = []
        self._commits: list[_Commit] = []

    @property
    def count(self) -> int:
        return len(self._batches) + len(self._commits)

    def clear(self) -> None:
        self._batches, self._commits = [], []

    def appended(self, offsets: Range, now_ms: int, size: int, session: Session | None) -> bool:
        """Return whether more is collected than may wait for its commit."""
        if self._batches:
            newest = self._batches[-1]
            if (
                newest.end == offsets[0]
                and newest.time_ms <= now_ms <= newest.time_ms + MERGED_MS_MAX
                and (newest.session is session or newest.session == session)
            ):
                newest.end, newest.last_ms = offsets[1], now_ms
                newest.size += size
                return False
        if not self.is_collecting or offsets[0] < self.start:
            return False
        self._batches.append(_Batches(offsets, now_ms, now_ms, size, session))
        return len(self._batches) > BATCHES_MAX

    def committed(self, end: int, now_ms: int) -> bool:
        """Return whether this is one event more, rather than a part of the last one."""
        if self._commits:
            newest = self._commits[-1]
            if newest.time_ms <= now_ms <= newest.time_ms + MERGED_MS_MAX:
                newest.end, newest.last_ms = end, now_ms
                return False
        if not self.is_collecting or end <= self.start:
            return False
        self._commits.append(_Commit(end, now_ms))
        return True

    def take(self) -> list[Numbered]:
        if self.is_held or not self._commits:
            return []
        first, end = self.sent.get(self.number, 0), self._commits[-1].end
        if end <= first:
            return []
        events = [*self._received(end), *self._stored(first)]
        return [(self.number, self.piece(self.number, end, {self.place: events}))]

    def _received(self, until: int) -> Iterator[Event]:
        """Take the committed batches."""
        batches, count = self._batches, 0
        if not batches:
            return
        session = batches[0].session
        details = self._details_of(session)
        for one in batches:
            if one.end > until:
                if one.first >= until:
                    break
                one = one.split(until)
            else:
                count += 1
            if one.session is not session and one.session != session:
                session = one.session
                details = self._details_of(session)
            yield Event(details, one.first, one.end, one.time_ms, one.last_ms, one.size)
        del batches[:count]

    def _details_of(self, session: Session | None) -> Details:
        if session is None:
            return Details(Kind.RECEIVED, self._node)
        return Details(
            Kind.RECEIVED,
            self._node,
            principal=session.principal,
            client_id=session.client_id,
            listener=session.listener,
        )

    def _stored(self, first: int) -> Iterator[Event]:
        """Take the commits after an offset."""
        details = Details(Kind.STORED, self._node, replicas=self._replica_count(*self.source))
        commits, self._commits = self._commits, []
        for one in commits:
            if one.end > first:
                yield Event(details, first, one.end, one.time_ms, one.last_ms)
                first = one.end


class LogSource(LiveSource):
    """Events about any partitions that follow from the records of an internal partition."""

    def __init__(self, source: Source, partition: Partition) -> None:
        super().__init__(source, partition)
        self._events: dict[int, dict[Place, list[Event]]] = {}
        self._count = 0
        self.reported = 0  # everything before this offset is collected, or was sent

    @property
    def count(self) -> int:
        return self._count

    def clear(self) -> None:
        self._events, self._count = {}, 0

    def add(self, number: int, place: Place, event: Event) -> None:
        """Collect an event, for a partition of the journal."""
        self._events.setdefault(number, {}).setdefault(place, []).append(event)
        self._count += 1

    def take(self) -> list[Numbered]:
        if self.is_held:
            return []
        pieces: list[Numbered] = []
        for number, events in list(self._events.items()):
            # Events of a marker that was committed before others may be reported after them.
            if self.sent.get(number, 0) < self.reported:
                del self._events[number]
                self._count -= sum(map(len, events.values()))
                pieces.append((number, self.piece(number, self.reported, merged(events))))
        return pieces

    def take_rest(self) -> list[Numbered]:
        """Return empty pieces for partitions of the journal that had no event for a while."""
        if self.is_held or self._count:
            return []
        late = [number for number, end in self.sent.items() if end < self.reported]
        return [(number, self.piece(number, self.reported, {})) for number in late]


class RemovalSource(PlaceSource):
    """The removal of the oldest records of a partition: the start of its log, as it rises."""

    def __init__(self, place: Place, partition: Partition, *, number: int) -> None:
        source = Source(place.topic_id, REMOVAL_BASE + place.partition)
        super().__init__(source, place, partition, number)
        self._events: list[Event] = []

    @property
    def _end(self) -> int:
        return self.partition.log.start_offset

    @property
    def count(self) -> int:
        return len(self._events)

    def clear(self) -> None:
        self._events = []

    def removed(self, event: Event) -> None:
        """Collect that records were removed."""
        if self.is_collecting and event.end > self.start:
            self._events.append(event)

    def take(self) -> list[Numbered]:
        if self.is_held:
            return []
        events, self._events = self._events, []
        sent = self.sent.get(self.number, 0)
        # A former leader may have removed more than this one.
        news = [one._replace(first=max(one.first, sent)) for one in events if one.end > sent]
        if not news:
            return []
        return [(self.number, self.piece(self.number, news[-1].end, {self.place: news}))]
