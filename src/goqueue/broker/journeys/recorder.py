"""The observer that records journeys.

It is called within the turn of what it observes, and only collects. What was collected is encoded
and handed to the outlets a few times a second. If too much waits, because the journal is away, it
is dropped, and derived from the logs when the journal is back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from goqueue.broker.journeys.deriving import Names
from goqueue.broker.journeys.listening import Listener
from goqueue.broker.journeys.notes import Notes
from goqueue.broker.journeys.outlets import Outlets
from goqueue.broker.journeys.own import OwnEvents
from goqueue.broker.journeys.owners import JournalOwners
from goqueue.broker.journeys.recovery import Recovery
from goqueue.broker.journeys.sources import (
    LiveSource,
    LogSource,
    PlaceSource,
    RemovalSource,
    TopicSource,
)
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.cluster.facts import (
    TOPIC_PREFIX,
    ConfigFact,
    Decision,
    Forget,
    TopicFact,
    WholeState,
)
from goqueue.loop.clock import Clock, Handle
from goqueue.model.names import INTERNAL_TOPICS, TopicPartition
from goqueue.model.observer import Range, Target
from goqueue.model.session import Session
from goqueue.model.tenants import TopicName
from goqueue.partition import Partition
from goqueue.tracing.events import Event, Place, Source

FLUSH_MS = 1_000
# With events that no log has with all they say: where messages were moved to.
FLUSH_SOON_MS = 50
FLUSH_EVENTS_MAX = 10_000  # with more, they are handed on before the time
HELD_EVENTS_MAX = 100_000  # of sources that wait until their past is derived
REST_MS = 5_000  # how often the journal is told of sources without events for a part of it

JOURNEYS_SETTING = "goqueue_journeys_enable"


class Recorder(Listener):
    """Collects what happens to messages on this node."""

    observes_traffic = False

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        owners: JournalOwners,
        names: Callable[[], Names],
        *,
        notes: Notes,
        node_id: int,
        new_id: Callable[[], bytes],
        replica_count: Callable[[bytes, int], int],
    ) -> None:
        """`replica_count` returns how many replicas of a partition are in sync."""
        super().__init__(node_id, clock.wall_ms)
        self._clock = clock
        self._topics = topics
        self._owners = owners
        self._replica_count = replica_count
        self._own = OwnEvents(clock, notes, node_id=node_id, new_id=new_id)
        self.outlets = Outlets(
            clock, owners, self._own, refused=self._refused, overflowed=self._overflowed
        )
        self.recovery = Recovery(
            clock,
            owners,
            self.outlets,
            names,
            node_id=node_id,
            target=self._target,
            ready=self._touched,
        )
        # By topic and number; None if its messages are not recorded.
        self._of_topics: dict[str, dict[int, TopicSource | None]] = {}
        self._of_logs: dict[TopicPartition, LogSource] = {}
        self._removals: dict[TopicPartition, RemovalSource] = {}
        self._by_source: dict[Source, LiveSource] = {}
        self._targets: dict[TopicPartition, tuple[int, Place] | None] = {}
        self._touched_sources: dict[LiveSource, None] = {}
        self._count = 0  # events since the last flush, and those that are held
        self._timer: Handle | None = None
        self._due_ms = 0  # when it fires
        self._is_urgent = False
        self._rest_timer: Handle | None = None

    # Leadership

    def open_topic(self, topic: Topic, partition: Partition) -> None:
        """Record what happens to a partition that this node leads, and what is missing."""
        self._open_topic(topic, partition, None)

    def lead(self, partition: Partition) -> None:
        """Record what follows from an internal partition that this node leads now."""
        topic = self._topics.get(partition.name.topic)
        source = LogSource(Source(topic.id, partition.name.partition), partition)
        self._of_logs[partition.name] = source
        self._begin(source)

    def resign(self, partition: Partition) -> None:
        """Hand on what was recorded of a partition that this node no longer leads."""
        self._close(self._of_logs.pop(partition.name, None))
        self._drop(partition.name)

    def _open_topic(
        self, topic: Topic, partition: Partition, start: int | None
    ) -> TopicSource | None:
        """Record what happens from an offset on, without one from the end of the log on."""
        name = partition.name
        self._drop(name)
        of_topic = self._of_topics.setdefault(topic.name, {})
        if not self._is_recorded(topic):
            of_topic[name.partition] = None
            return None
        source = TopicSource(
            Place(topic.name, topic.id, name.partition),
            partition,
            number=self._owners.number_of(name),
            node=self.node_id,
            replica_count=self._replica_count,
        )
        of_topic[name.partition] = source
        self._targets.pop(name, None)
        self._begin(source, start)
        if partition.log.start_offset:
            self._open_removal(source.number, source.place, partition)
        return source

    def _open_removal(
        self, number: int, place: Place, partition: Partition, start: int | None = None
    ) -> RemovalSource:
        """Record which records are removed from an offset on, without one from now on."""
        source = RemovalSource(place, partition, number=number)
        self._removals[partition.name] = source
        self._begin(source, start)
        return source

    def _begin(self, source: LiveSource, start: int | None = None) -> None:
        self._by_source[source.source] = source
        source.hold(start)
        # A partition without records has no past, unless it was lost.
        if source.start:
            self.recovery.want(source)
        else:
            source.is_held = False
            source.sent = dict.fromkeys(self._numbers_for(source), 0)

    def _numbers_for(self, source: LiveSource) -> Iterable[int]:
        """Return the partitions of the journal that may have events of a source."""
        if isinstance(source, PlaceSource):
            return (source.number,)
        return range(self._owners.count)

    def _close(self, source: LiveSource | None) -> None:
        if source is not None:
            self._hand_on(source)
            source.is_closed = True
            self._touched_sources.pop(source, None)
            if self._by_source.get(source.source) is source:
                del self._by_source[source.source]

    def _is_recorded(self, topic: Topic) -> bool:
        default = self._topics.defaults.values[JOURNEYS_SETTING]
        return topic.fact.settings.get(JOURNEYS_SETTING, default) == "true"

    def _drop(self, name: TopicPartition) -> None:
        self._close(self._removals.pop(name, None))
        self._close(self._of_topics.get(name.topic, {}).pop(name.partition, None))

    # Changes of topics

    def decided(self, decision: Decision) -> None:
        """Follow topics that are deleted, and changes of their settings."""
        if isinstance(decision, WholeState):
            for name in list(self._of_topics):
                self._check(name)
        for change in decision:
            if isinstance(change, TopicFact):
                self._check(change.name)
            elif isinstance(change, ConfigFact):
                for name in list(self._of_topics):
                    self._check(name)
            elif isinstance(change, Forget) and change.key.startswith(TOPIC_PREFIX):
                self._check(change.key.removeprefix(TOPIC_PREFIX).decode())

    def _check(self, name: str) -> None:
        """Drop the sources of a topic that is gone, or whose messages are no longer recorded."""
        self._targets = {}
        topic = self._topics.find(name)
        is_recorded = topic is not None and self._is_recorded(topic)
        for number, source in list(self._of_topics.get(name, {}).items()):
            is_same = source is None or (topic is not None and source.place.topic_id == topic.id)
            if not is_same or is_recorded != (source is not None):
                self._drop(TopicPartition(TopicName(name), number))
        if topic is None:
            self._of_topics.pop(name, None)

    # Records of producers

    def stored(
        self,
        partition: TopicPartition,
        offsets: Range,
        *,
        size: int,
        session: Session | None,
        batches: int = 1,
    ) -> None:
        try:
            source = self._of_topics[partition.topic][partition.partition]
        except KeyError:
            source = self._found(partition, offsets[0])
        if source is not None and source.appended(offsets, self._time_ms(), size, session):
            self._derive_later(source)

    def replicated(self, partition: TopicPartition, offsets: Range) -> None:
        try:
            source = self._of_topics[partition.topic][partition.partition]
        except KeyError:
            source = self._found(partition, offsets[0])
        if source is not None and source.committed(offsets[1], self._time_ms()):
            self._touched(source)

    def _found(self, name: TopicPartition, first: int) -> TopicSource | None:
        """Return the source of a partition that is new here, where something happened to messages
        from an offset on.
        """
        topic = self._topics.find(name.topic)
        if topic is None:
            return None
        return self._open_topic(topic, topic.partition(name.partition), first)

    # Events that follow from internal logs, or from none

    def reported(self, log: TopicPartition, offset: int) -> None:
        events, source = self.take(), self._of_logs.get(log)
        if source is None or not source.is_collecting or offset <= source.start:
            return
        source.reported = max(source.reported, offset)
        self._count += len(events)
        for name, event in events:
            target = self._target(name)
            if target is not None:
                source.add(*target, event)
                self._is_urgent |= event.link is not None and event.link.offset >= 0
        self._touched(source)

    def redriven(self, source: TopicPartition, ranges: Sequence[Range], *, target: Target) -> None:
        super().redriven(source, ranges, target=target)
        self._add_own()

    def deduplicated(self, partition: TopicPartition, offsets: Range) -> None:
        super().deduplicated(partition, offsets)
        self._add_own()

    def retired(self, partition: TopicPartition, offsets: Range, *, reason: str) -> None:
        super().retired(partition, offsets, reason=reason)
        [(_, event)] = self.take()
        source = self._removals.get(partition) or self._found_removal(partition, offsets[0])
        if source is not None:
            source.removed(event)
            self._touched(source)

    def _found_removal(self, name: TopicPartition, first: int) -> RemovalSource | None:
        """Return the source of a partition that loses records for the first time here."""
        target = self._target(name)
        source = self._of_topics.get(name.topic, {}).get(name.partition)
        known = source or self._of_logs.get(name) or self._found(name, first)
        if target is None or known is None:
            return None
        return self._removals.get(name) or self._open_removal(*target, known.partition, first)

    def consumed(
        self, group: str, partition: TopicPartition, offsets: Range, *, consumer: str
    ) -> None:
        # Readers of the journal would otherwise never reach its end.
        if partition.topic not in INTERNAL_TOPICS:
            super().consumed(group, partition, offsets, consumer=consumer)

    def _add_own(self) -> None:
        """Collect events that follow from no log."""
        for name, event in self.take():
            self._note_own(name, event)

    def _note_own(self, name: TopicPartition, event: Event) -> None:
        target = self._target(name)
        if target is not None:
            self._own.add(*target, event)
            self._count += 1
            self._is_urgent |= event.link is not None and event.link.offset >= 0
            self._flush_soon()

    def _target(self, name: TopicPartition) -> tuple[int, Place] | None:
        """Return the partition of the journal for events about a partition; None if none is."""
        if name in self._targets:
            return self._targets[name]
        topic = self._topics.find(name.topic)
        target = None
        if topic is not None and (topic.is_internal or self._is_recorded(topic)):
            place = Place(topic.name, topic.id, name.partition)
            target = self._owners.number_of(name), place
        else:
            source = self._of_topics.get(name.topic, {}).get(name.partition)
            if source is not None:
                target = source.number, source.place  # It was just deleted.
        self._targets[name] = target
        return target

    # Handing on

    def stop(self, done: Callable[[], None]) -> None:
        """Hand on everything, and call `done` when it is written."""
        self._flush()
        if self._rest_timer is not None:
            self._rest_timer.cancel()
        self.outlets.when_empty(done)

    def start(self) -> None:
        self._rest_timer = self._clock.call_later(REST_MS, self._send_rests)

    def _touched(self, source: LiveSource) -> None:
        self._touched_sources[source] = None
        self._count += 1
        if self._timer is None or self._is_urgent or self._count >= FLUSH_EVENTS_MAX:
            self._flush_soon()

    def _flush_soon(self) -> None:
        if self._count >= FLUSH_EVENTS_MAX:
            self._flush()
            return
        due_ms = self._clock.now_ms() + (FLUSH_SOON_MS if self._is_urgent else FLUSH_MS)
        if self._timer is not None:
            if self._due_ms <= due_ms:
                return
            self._timer.cancel()
        self._due_ms = due_ms
        self._timer = self._clock.call_later(due_ms - self._clock.now_ms(), self._flush)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._count, self._is_urgent = None, 0, False
        touched, self._touched_sources = self._touched_sources, {}
        for source in touched:
            self._hand_on(source)
        for number, piece in self._own.take():
            self.outlets.add(number, piece)
        held = sum(source.count for source in touched)
        if held > HELD_EVENTS_MAX:
            self._overflowed()
        for source in touched:
            if source.count:
                self._touched_sources[source] = None

    def _hand_on(self, source: LiveSource) -> None:
        for number, piece in source.take():
            self.outlets.add(number, piece)

    def _send_rests(self) -> None:
        self._rest_timer = self._clock.call_later(REST_MS, self._send_rests)
        if marks := self._own.mark(lambda place: self._owners.number_of(_name_of(place))):
            self._count += marks
            self._flush_soon()
        for source in self._of_logs.values():
            for number, piece in source.take_rest():
                self.outlets.add(number, piece)

    # When the journal is away, or has something else

    def _refused(self, source: Source) -> None:
        known = self._by_source.get(source)
        if known is not None:
            self.outlets.drop(source)
            self._derive_later(known)

    def _overflowed(self) -> None:
        dropped = self.outlets.clear()
        for source in [*self._touched_sources, *map(self._by_source.get, dropped)]:
            if source is not None:
                self._derive_later(source)

    def _derive_later(self, source: LiveSource) -> None:
        source.fall_behind()
        self.recovery.want(source)


def _name_of(place: Place) -> TopicPartition:
    return TopicPartition(TopicName(place.topic), place.partition)
