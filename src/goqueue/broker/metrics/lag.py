"""How far stream groups are behind: in messages, and in seconds.

The coordinator of a group has its committed offsets, and the leaders of partitions have the
records. So before a scrape, the coordinator asks each leader about all its groups at once: how many
messages are left from an offset on, and when the first of them was written. The time is that of the
record itself, found by the index of its log, so it is exact. It is looked up in a thread, and
remembered, because it does not change: a group that has not moved costs nothing.

A group has a lag in all partitions of the topics that it reads, as everywhere else where lag is
shown (`streams.progress`): where it has committed nothing, from the start of the log. Markers and
aborted records at the end of a log are no messages.

A leader that does not answer in time leaves what it last said in effect.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from goqueue.broker.reading.records_ends import search_records_ends
from goqueue.broker.replication.leaders import Leaders
from goqueue.broker.streams.coordinators import Groups
from goqueue.broker.topics.topics import Topics
from goqueue.groups.group import Group
from goqueue.loop.clock import Clock
from goqueue.loop.peers import Answer, PeerKind, Peers, read_answer
from goqueue.loop.promise import Promise, promised
from goqueue.loop.turns import turn
from goqueue.metrics import Registry, Samples
from goqueue.metrics import catalogue as c
from goqueue.model.errors import GoQueueError
from goqueue.partition import AbortedSpans, Partition
from goqueue.storage.aborted import find_aborted
from goqueue.storage.disk import Disk
from goqueue.storage.record_times import NOTHING_MS, UNKNOWN_MS, Search, find_time, search_for

REFRESH_MS = 1_000  # what was asked less than that ago is used again
ANSWER_MS_MAX = 2_000  # less than a scrape may take
PLACES_PER_CALL = 1_000
PLACES_PER_SLICE = 200
# Where transactions were aborted, the first message is searched for up to this far on.
ABORTED_OFFSETS_MAX = 10_000
TIMES_MAX = 200_000  # remembered; as many again are forgotten one after the other

_NOT_LED = -1
_GONE = -1  # the start of a partition that is not led here
_NO_COMMIT = -1  # the offset of a group that has committed none in a partition

_Place = tuple[bytes, int, int]  # topic id, partition and offset

_log = logging.getLogger(__name__)
_encode = msgspec.msgpack.Encoder().encode


class _OfGroup(NamedTuple):
    """A partition that a group reads."""

    group: str
    topic: str
    number: int


class PartitionBehind(NamedTuple):
    """What a group has left in a partition."""

    group: str
    topic: str
    number: int
    messages: int
    time_ms: int  # when the first of them was written; negative if that is not known


class Behind(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a group that has read up to an offset has left in a partition."""

    messages: int  # -1: the node does not lead the partition
    time_ms: int = UNKNOWN_MS  # when the first of them was written
    start: int = _GONE  # of the log


_places_decoder = msgspec.msgpack.Decoder(list[_Place])
_answer_decoder = msgspec.msgpack.Decoder(list[Behind])
_NOT_HERE = Behind(_NOT_LED)


class _Times:
    """Timestamps of records, by place. The least recently used ones are forgotten."""

    def __init__(self) -> None:
        self._recent: dict[_Place, int] = {}
        self._older: dict[_Place, int] = {}

    def get(self, place: _Place) -> int | None:
        found = self._recent.get(place)
        if found is None and (found := self._older.get(place)) is not None:
            self.put(place, found)
        return found

    def put(self, place: _Place, time_ms: int) -> None:
        if len(self._recent) >= TIMES_MAX:
            self._recent, self._older = {}, self._recent
        self._recent[place] = time_ms


class RecordTimes:
    """Answers for partitions that this node leads."""

    def __init__(self, clock: Clock, disk: Disk, topics: Topics) -> None:
        self._clock = clock
        self._disk = disk
        self._topics = topics
        self._times = _Times()

    async def look(self, places: Sequence[_Place]) -> list[Behind]:
        """Return what is left from each of these places on."""
        await self._search_ends(places)
        found: list[Behind | None] = []
        searches: list[tuple[int, _Place, Behind, Search]] = []
        for number, place in enumerate(places):
            if number % PLACES_PER_SLICE == PLACES_PER_SLICE - 1:
                await turn(self._clock)
            partition = self._led(place)
            known = _NOT_HERE if partition is None else self._known(partition, place)
            found.append(known)
            if known.messages > 0 and known.time_ms == UNKNOWN_MS and partition is not None:
                search = _search(partition, max(place[2], partition.start_offset))
                searches.append((number, place, known, search))
        if searches:
            times: Promise[list[int]] = Promise()
            work = partial(_find_all, self._disk, [one[3] for one in searches])
            self._clock.run_blocking(work, times.settle)
            for (number, place, known, _), time_ms in zip(searches, await times, strict=True):
                found[number] = self._timed(place, known, time_ms)
        return [one for one in found if one is not None]

    async def _search_ends(self, places: Sequence[_Place]) -> None:
        """Find where the records end of partitions that are not read to their end."""
        behind: dict[Partition, None] = {}
        for number, place in enumerate(places):
            if number % PLACES_PER_SLICE == PLACES_PER_SLICE - 1:
                await turn(self._clock)
            partition = self._led(place)
            if partition is not None and place[2] < partition.high_watermark:
                behind[partition] = None
        for partition in behind:
            try:
                await search_records_ends(self._clock, [partition])
            except GoQueueError as error:
                _log.info("the end of the records of %s is not known: %s", partition.name, error)

    def _led(self, place: _Place) -> Partition | None:
        try:
            partition = self._topics.get_by_id(place[0]).partition(place[1])
        except GoQueueError:
            return None  # It was deleted.
        is_led = self._topics.keeps(partition) and not partition.is_following
        return partition if is_led else None

    def _known(self, partition: Partition, place: _Place) -> Behind:
        """Return what is known without reading."""
        start, end = partition.start_offset, partition.high_watermark
        if partition.without_records.until == end:
            end = partition.without_records.since  # Only markers and aborted records follow.
        messages = max(0, end - max(place[2], start))
        if not messages:
            return Behind(0, NOTHING_MS, start)
        known = self._times.get((place[0], place[1], max(place[2], start)))
        return Behind(messages, UNKNOWN_MS if known is None else known, start)

    def _timed(self, place: _Place, known: Behind, time_ms: int) -> Behind:
        if time_ms == NOTHING_MS:
            return Behind(0, NOTHING_MS, known.start)
        if time_ms >= 0 and self._is_settled(place):
            self._times.put((place[0], place[1], max(place[2], known.start)), time_ms)
        return Behind(known.messages, time_ms, known.start)

    def _is_settled(self, place: _Place) -> bool:
        """Whether no open transaction can still take records from a partition."""
        partition = self._led(place)
        return partition is not None and (partition.last_stable_offset == partition.high_watermark)


def _search(partition: Partition, offset: int) -> Search:
    """Return the search for the time of the first message from an offset on."""
    log, until = partition.log, partition.high_watermark
    if not log.has_aborted(offset):
        return search_for(log, offset, until=until)
    until = min(until, offset + ABORTED_OFFSETS_MAX)
    aborted = AbortedSpans(
        one
        for one in find_aborted(log, offset, until)
        if one.last_offset < partition.high_watermark
    )
    search = search_for(log, offset, until=until, aborted=aborted)
    is_whole = search.is_whole and until == partition.high_watermark
    return search._replace(is_whole=is_whole)


def _find_all(disk: Disk, searches: Sequence[Search]) -> list[int]:
    return [find_time(disk, one) for one in searches]


class _Row(msgspec.Struct, frozen=True, gc=False):
    """A committed offset of a group, or none, and what is left from there on."""

    offset: int
    behind: Behind


class GroupLag:
    """The lag of the groups that this node coordinates."""

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        leaders: Leaders,
        groups: Groups,
        times: RecordTimes,
        registry: Registry,
        *,
        peers: Peers | None,
    ) -> None:
        self._clock = clock
        self._topics = topics
        self._leaders = leaders
        self._groups = groups
        self._times = times
        self._peers = peers
        self._overtaken = registry.counters(c.GROUP_OVERTAKEN)
        self._rows: dict[_OfGroup, _Row] = {}
        self._refreshed_ms = -REFRESH_MS
        self._refreshing: Promise[None] | None = None

    # Before a scrape

    def refresh(self) -> Promise[None]:
        """Ask the leaders, unless that was done a moment ago."""
        if self._refreshing is None:
            self._refreshing = promised(self._refresh())
        if self._refreshing.is_done and self._clock.now_ms() - self._refreshed_ms >= REFRESH_MS:
            self._refreshing = promised(self._refresh())
        return self._refreshing

    async def look(self, groups: Iterable[Group]) -> list[PartitionBehind]:
        """Ask the leaders about some groups now."""
        rows = await self._positions(groups)
        known = await self._ask_leaders(rows)
        found = []
        for key, offset in rows.items():
            topic = self._topics.find(key.topic)
            behind = topic and known.get((topic.id, key.number, offset))
            if behind and behind.messages != _NOT_LED:
                found.append(_shown(key, behind))
        return found

    def known(self) -> Iterator[PartitionBehind]:
        """Yield what the last refresh has found."""
        for key, row in list(self._rows.items()):
            if row.behind.messages != _NOT_LED:
                yield _shown(key, row.behind)

    async def _ask_leaders(self, rows: Mapping[_OfGroup, int]) -> dict[_Place, Behind]:
        by_node = await self._by_node(rows)
        asked = [promised(self._ask_all(*one)) for one in by_node.items()]
        known: dict[_Place, Behind] = {}
        for one in asked:
            known.update(await one)
        return known

    async def _refresh(self) -> None:
        rows = await self._positions(_each(self._groups))
        known = await self._ask_leaders(rows)
        after: dict[_OfGroup, _Row] = {}
        while rows:
            # Released one by one, because that takes time too.
            key, offset = rows.popitem()
            # A scrape may be collecting what is known so far.
            before, topic = self._rows.get(key), self._topics.find(key.topic)
            behind = topic and known.get((topic.id, key.number, offset))
            if behind:
                after[key] = self._row(key, offset, behind, before)
            if len(rows) % PLACES_PER_SLICE == 0:
                await turn(self._clock)
        replaced, self._rows = self._rows, after
        self._refreshed_ms = self._clock.now_ms()
        while replaced:
            replaced.popitem()
            if len(replaced) % PLACES_PER_SLICE == 0:
                await turn(self._clock)

    async def _positions(self, groups: Iterable[Group]) -> dict[_OfGroup, int]:
        """Return the committed offsets of groups, in all partitions of the topics they read."""
        rows: dict[_OfGroup, int] = {}
        seen = 0  # groups, and topics that they read, since the last turn
        for group in groups:
            read = set(group.membership.topics_read())
            seen += 1 + len(read)
            if seen >= PLACES_PER_SLICE:
                seen = 0
                await turn(self._clock)
            for topic, number, committed in list(group.offsets):
                if len(rows) % PLACES_PER_SLICE == 0:
                    await turn(self._clock)
                found = self._topics.find(topic)
                if found is not None and committed.is_of(found.id):
                    rows[_OfGroup(group.group_id, topic, number)] = committed.offset
                    read.add(topic)
            for topic in read:
                await self._add_partitions(rows, group.group_id, topic)
        return rows

    async def _add_partitions(self, rows: dict[_OfGroup, int], group: str, name: str) -> None:
        """Add the partitions of a topic where a group has committed nothing."""
        topic = self._topics.find(name)
        for number in range(0 if topic is None else topic.partition_count):
            if number % PLACES_PER_SLICE == PLACES_PER_SLICE - 1:
                await turn(self._clock)
            rows.setdefault(_OfGroup(group, name, number), _NO_COMMIT)

    async def _by_node(self, rows: Mapping[_OfGroup, int]) -> dict[int, list[_Place]]:
        """Return the places to ask about by the leader of their partition."""
        by_node: dict[int, dict[_Place, None]] = {}
        for number, (key, offset) in enumerate(rows.items()):
            if number % PLACES_PER_SLICE == 0:
                await turn(self._clock)
            topic = self._topics.find(key.topic)
            if topic is not None and key.number < topic.partition_count:
                node = self._leaders.node_of(topic, key.number)
                by_node.setdefault(node, {})[topic.id, key.number, offset] = None
        return {node: list(places) for node, places in by_node.items()}

    async def _ask_all(self, node: int, places: Sequence[_Place]) -> dict[_Place, Behind]:
        found: dict[_Place, Behind] = {}
        for at in range(0, len(places), PLACES_PER_CALL):
            some = places[at : at + PLACES_PER_CALL]
            try:
                answer = await self._ask(node, some)
            except GoQueueError:
                answer = [_NOT_HERE] * len(some)
            found.update(zip(some, answer, strict=True))
        return found

    def _ask(self, node: int, places: Sequence[_Place]) -> Promise[list[Behind]]:
        if node == self._leaders.node_id:
            return promised(self._times.look(places))
        if self._peers is None or node < 0:
            nowhere: Promise[list[Behind]] = Promise()
            nowhere.resolve([_NOT_HERE] * len(places))
            return nowhere
        called = self._peers.call(node, PeerKind.LAG, _encode(places), timeout_ms=ANSWER_MS_MAX)
        return read_answer(called, lambda answer: _answer_decoder.decode(answer.head))

    def _row(self, key: _OfGroup, offset: int, behind: Behind, before: _Row | None) -> _Row:
        overtaken = self._overtaken.child((key.group, key.topic))  # It begins at 0.
        if behind.messages == _NOT_LED:
            return before or _Row(offset, behind)
        is_known = before is not None and before.behind.messages != _NOT_LED
        if before is not None and is_known and offset != _NO_COMMIT:
            # What retention took from the group between two scrapes.
            overtaken.value += max(0, behind.start - max(before.behind.start, offset))
        return _Row(offset, behind)

    # Answering other nodes

    def answer(self, head: bytes) -> Promise[Answer]:
        """Answer a node that coordinates groups of partitions that are led here."""
        return promised(self._answer(_places_decoder.decode(head)))

    async def _answer(self, places: list[_Place]) -> Answer:
        return Answer(_encode(await self._times.look(places)))

    # Collecting

    def collect(self, samples: Samples) -> Iterator[None]:
        """Add the lag of each group, as of the last refresh, and its members."""
        if samples.wants(c.GROUP_MEMBERS):
            for group in _each(self._groups):
                samples.set(c.GROUP_MEMBERS, group.membership.member_count, group.group_id)
                yield
        is_detailed = samples.wants(c.GROUP_PARTITION_LAG_MESSAGES)
        if is_detailed or samples.wants(c.GROUP_LAG_MESSAGES):
            now_ms, shards = self._clock.wall_ms(), self._groups.shards
            rows = list(reversed(self._rows.items()))
            while rows:
                key, row = rows.pop()
                if row.behind.messages != _NOT_LED and shards.is_here(key.group):
                    _add(samples, key, row, now_ms, is_detailed=is_detailed)
                yield


def _add(samples: Samples, key: _OfGroup, row: _Row, now_ms: int, *, is_detailed: bool) -> None:
    messages, time_ms, _ = msgspec.structs.astuple(row.behind)
    age = max(0, now_ms - time_ms) / 1000 if time_ms >= 0 else 0
    if is_detailed:
        labels = key.group, key.topic, str(key.number)
        samples.set(c.GROUP_PARTITION_LAG_MESSAGES, messages, *labels)
        samples.set(c.GROUP_PARTITION_LAG_SECONDS, age, *labels)
        if row.offset != _NO_COMMIT:
            samples.set(c.GROUP_PARTITION_COMMITTED, row.offset, *labels)
    else:
        samples.add(c.GROUP_LAG_MESSAGES, messages, key.group, key.topic)
        samples.maximum(c.GROUP_LAG_SECONDS, age, key.group, key.topic)


def _shown(key: _OfGroup, behind: Behind) -> PartitionBehind:
    return PartitionBehind(*key, behind.messages, behind.time_ms)


def _each(groups: Groups) -> Iterator[Group]:
    """Yield every group here; groups may come and go meanwhile."""
    for shard in list(groups.shards):
        yield from shard.machine.groups()
