"""What the journal of a cluster must say about messages, compared with what clients have seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from goqueue.delivery.ranges import RangeSet
from goqueue.delivery.redrive import read_source
from goqueue.delivery.schedules import ScheduleIds
from goqueue.model.attributes import SCHEDULE_ID_HEADER
from goqueue.model.batch import decode_batch
from goqueue.model.dead_letters import read_origin
from goqueue.model.names import JOURNEYS_TOPIC, SCHEDULED_TOPIC
from goqueue.partition import Partition
from goqueue.tracing.events import Event, Kind, Link, Source
from tests.simulation.cluster_queues import GROUPS, History
from tests.simulation.cluster_world import ClusterWorld
from tests.simulation.journal import Entry, entries

SETTLED_MS = 12_000  # a call that got lost is given up after five seconds, and then repeated
Place = tuple[str, int, int]


class Journal:
    """All journeys of a cluster, once everything that happened is in them."""

    def __init__(self, world: ClusterWorld) -> None:
        self.world = world
        world.run_for(SETTLED_MS)
        self.entries = [one for log in self._logs() for one in entries([log])]
        self.linked = 0  # messages that were moved, in both directions
        self.by_place: dict[tuple[str, int], list[Event]] = {}
        for entry in self.entries:
            place = entry.place.topic, entry.place.partition
            self.by_place.setdefault(place, []).append(entry.event)

    def _logs(self) -> list[Partition]:
        return [self._led(JOURNEYS_TOPIC, number) for number in self._numbers(JOURNEYS_TOPIC)]

    def _numbers(self, topic: str) -> range:
        found = self.world.up()[0].broker.topics.find(topic)
        return range(0 if found is None else len(found.partitions))

    def _led(self, topic: str, number: int) -> Partition:
        leader = self.world.leader_of(topic, number)
        assert leader is not None
        return leader.broker.topics.get(topic).partition(number)

    def of(self, place: Place, *kinds: Kind, group: str = "") -> list[Event]:
        """Return the events of a message that are of these kinds, and of a group."""
        topic, number, offset = place
        return [
            event
            for event in self.by_place.get((topic, number), ())
            if event.first <= offset < event.end
            and event.kind in kinds
            and event.details.group == group
        ]

    # What must be true

    def check_spans(self) -> None:
        """Nothing of a source is missing, and nothing is there twice."""
        for log in self._logs():
            ends: dict[Source, int] = {}
            before = None
            for entry in entries([log]):
                span = entry.span
                if span == before:
                    continue
                before = span
                if not span.is_reset:
                    known = ends.get(span.source, span.first)
                    # Parts without events are noted in records of their own.
                    assert span.first >= known, f"{self._told} {log.name}: {span} after {known}"
                ends[span.source] = span.end

    def check_stored(self, topics: Iterable[str]) -> None:
        for topic in topics:
            for number in self._numbers(topic):
                log = self._led(topic, number)
                start, end = log.start_offset, log.high_watermark
                for header, batch in log.log.batches(start, until_offset=end):
                    for record in decode_batch(batch) if not header.is_control else ():
                        self._check_once((topic, number, record.offset), Kind.RECEIVED)
                        self._check_once((topic, number, record.offset), Kind.STORED)

    def _check_once(self, place: Place, kind: Kind, group: str = "") -> None:
        found = self.of(place, kind, group=group)
        told = f"{self._told} {place}: {found} of {kind.name} {group}"
        assert len(found) == 1 or (not found and self.of(place, Kind.RECOVERED, group=group)), told

    def check_groups(self, history: History) -> None:
        for group in GROUPS:
            for number, offset in history.acked[group]:
                self._check_once((history.topic, number, offset), Kind.ACKED, group)
            for number, offset in history.seen[group]:
                place = (history.topic, number, offset)
                attempts = Counter(
                    one.details.attempt for one in self.of(place, Kind.DELIVERED, group=group)
                )
                is_marked = bool(self.of(place, Kind.RECOVERED, group=group))
                assert attempts or is_marked, f"{self._told} {group}: {place} was delivered"
                # What was delivered to somebody who was gone is delivered again under its number.
                # Its return may be among what was lost where journeys were derived again.
                returned = self.of(place, Kind.RETURNED, group=group)
                again = attempts.total() - len(attempts)
                assert is_marked or again <= len(returned), (
                    f"{self._told} {group}: {place} {attempts}"
                )

    def check_letters(self, topic: str) -> None:
        """Each dead letter is linked with its message; its record names the message too."""
        letters = f"{topic}.dlq"
        for number in self._numbers(letters):
            log = self._led(letters, number)
            start, end = log.start_offset, log.high_watermark
            for _, batch in log.log.batches(start, until_offset=end):
                for record in decode_batch(batch):
                    origin = read_origin(record.headers)
                    assert origin is not None
                    place = (origin.topic, origin.partition, origin.offset)
                    self._check_once(place, Kind.DEAD_LETTERED, origin.group)
                    here = Link(letters, number, record.offset)
                    links = [
                        one.link_of(origin.offset)
                        for one in self.of(place, Kind.DEAD_LETTERED, group=origin.group)
                    ]
                    assert links in ([here], []), f"{self._told} {place}: {links}, not {here}"
                    back = [
                        one.link_of(record.offset)
                        for one in self.of(
                            (letters, number, record.offset), Kind.ARRIVED, group=origin.group
                        )
                    ]
                    # The arrival may be in another part of the journal, that missed it.
                    assert back in ([Link(*place)], []), f"{self._told} {here}: {back}"
                    self.linked += len(back)

    def check_releases(self, topic: str) -> None:
        """Each released message is linked with its schedule, in both directions.

        What was derived from the schedule log has no link; the record names its schedule.
        """
        ids = ScheduleIds(self.world.up()[0].broker.topics.get(SCHEDULED_TOPIC).id)
        for number in self._numbers(topic):
            log = self._led(topic, number)
            start, end = log.start_offset, log.high_watermark
            for _, batch in log.log.batches(start, until_offset=end):
                for record in decode_batch(batch):
                    name, schedule_id = record.headers[-1]
                    assert name == SCHEDULE_ID_HEADER
                    log_number, position = ids.read((schedule_id or b"").decode())
                    waiting = (SCHEDULED_TOPIC, log_number, position)
                    self._check_once(waiting, Kind.SCHEDULED)
                    self._check_once(waiting, Kind.RELEASED)
                    here = (topic, number, record.offset)
                    [released] = self.of(waiting, Kind.RELEASED)
                    link = released.link_of(position)
                    arrived = [one.link_of(record.offset) for one in self.of(here, Kind.ARRIVED)]
                    told = f"{self._told} {waiting}: {link} {arrived} {here}"
                    if link is not None and link.offset >= 0:
                        assert link == Link(*here), told
                        # The arrival may be in another part of the journal, that missed it.
                        assert arrived in ([Link(*waiting)], []), told
                        self.linked += len(arrived)

    def check_consumed(
        self, group: str, topic: str, number: int, offset: int, *, is_there: bool = True
    ) -> None:
        """Everything before a committed offset was consumed, and, if it `is_there`, no more."""
        events = self._of_place(topic, number, Kind.CONSUMED, group)
        told = f"{self._told} {group} has committed {offset} of {topic}/{number}:"
        marks = self._of_place(topic, number, Kind.RECOVERED, group)
        missing = list(_covered([*events, *marks]).gaps(0, offset))
        assert not missing, f"{told} {missing} were not consumed: {events}"
        end = self._led(topic, number).high_watermark
        beyond = [one for one in events if one.end > end]
        assert not (beyond and is_there), f"{told} {beyond} are beyond {end}"

    def check_retired(self, topic: str) -> None:
        """What is gone from the start of a log was removed, and nothing twice.

        A new leader may not know of all that its predecessor has removed.
        """
        for number in self._numbers(topic):
            start = self._led(topic, number).start_offset
            events = self._of_place(topic, number, Kind.RETIRED)
            told = f"{self._told} {topic}/{number} starts at {start}: {events}"
            covered = _covered(events)
            assert not list(covered.gaps(0, start)), told
            size = sum(one.end - one.first for one in events)
            assert size == sum(end - first for first, end in covered), told

    def check_redriven(self, topic: str) -> int:
        """Each letter that is back in its topic was redriven to where it is, or is marked.

        Returns how many are not marked.
        """
        letters, linked = f"{topic}.dlq", 0
        for number in self._numbers(topic):
            log = self._led(topic, number)
            start, end = log.start_offset, log.high_watermark
            for header, batch in log.log.batches(start, until_offset=end):
                for record in decode_batch(batch) if not header.is_control else ():
                    source = read_source(record)
                    if source is None:
                        continue
                    here = (topic, number, record.offset)
                    letter = (letters, source.partition, source.offset)
                    linked += self._check_redrive(letter, here)
        return linked

    def _check_redrive(self, letter: Place, here: Place) -> bool:
        links = [one.link_of(letter[2]) for one in self.of(letter, Kind.REDRIVEN)]
        back = [one.link_of(here[2]) for one in self.of(here, Kind.ARRIVED)]
        told = f"{self._told} {letter}: {links} {back}, not {here}"
        known = [one for one in links if one is not None and one.offset >= 0]
        assert len(links) <= 1, told
        assert known in ([Link(*here)], []), told
        # The arrival may be in another part of the journal, that missed it.
        assert back in ([Link(*letter)], []), told
        # One of both directions is enough to follow the message.
        assert links or back or self.of(letter, Kind.RECOVERED), told
        return bool(known)

    def check_deduplicated(self, topic: str) -> int:
        """Duplicates were refused of messages that are there; returns how many."""
        found = 0
        for number in self._numbers(topic):
            end = self._led(topic, number).high_watermark
            events = self._of_place(topic, number, Kind.DEDUPLICATED)
            assert all(one.end <= end for one in events), f"{self._told} {events} of {end}"
            found += len(events)
        return found

    def _of_place(self, topic: str, number: int, kind: Kind, group: str = "") -> list[Event]:
        return [
            one
            for one in self.by_place.get((topic, number), ())
            if one.kind is kind and one.details.group == group
        ]

    @property
    def _told(self) -> str:
        return f"seed {self.world.seed}:"

    def recovered(self) -> list[Entry]:
        return [one for one in self.entries if one.event.details.is_recovered]


def _covered(events: Iterable[Event]) -> RangeSet:
    covered = RangeSet()
    for one in events:
        covered.add(one.first, one.end)
    return covered
