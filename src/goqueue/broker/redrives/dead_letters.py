"""Dead letters: the messages of dead-letter topics that have not been redriven.

A dead-letter topic is a log like any other. A ledger records which of its letters have been
redriven, as the ledger of a queue group records what is acknowledged. In a cluster one node owns
these ledgers, and calls to other nodes are refused with `NotCoordinator`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from goqueue.broker.queues.positions import Look
from goqueue.broker.reading.records import Damaged, Place, Reading
from goqueue.broker.reading.remote import Bounds
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.delivery import Done, Event, Finish, Ledger, LedgerKey
from goqueue.delivery.ranges import ranges_of
from goqueue.delivery.redrive import LEDGER_GROUP, Letter, LetterFilter, read_letter
from goqueue.delivery.settings import DEAD_LETTER_SUFFIX
from goqueue.loop.promise import Promise
from goqueue.model.batch import Record
from goqueue.model.errors import UnknownTopic
from goqueue.model.names import TopicPartition
from goqueue.model.observer import Target
from goqueue.model.tenants import Text

RUN_LETTERS_MAX = 500
RUN_BYTES_MAX = 1 << 20
# A call examines at most this many letters, to bound its duration.
SCAN_LETTERS_MAX = 100_000
# A summary counts at most this many, so that a page can show it again and again.
SUMMARY_LETTERS_MAX = 10_000
# The matches of a filter are counted among so many, because they are counted with every first page.
MATCHES_LETTERS_MAX = 10_000
SUMMARY_ROWS_MAX = 20


class Ledgers(Protocol):
    """Stores which messages are done."""

    def number_of(self, group_id: str) -> int:
        """Return the journal partition that holds the ledgers of a group id."""

    def check_here(self, group_id: str) -> None:
        """Raise unless this node leads that partition."""

    def ledger(self, key: LedgerKey) -> Ledger: ...

    def write(self, key: LedgerKey, events: list[Event]) -> Promise[None]:
        """Apply events to a ledger; resolves when they are durable."""


class Read(Protocol):
    """Reads records of partitions, from their leaders."""

    def __call__(self, places: Sequence[Place], *, records_max: int, bytes_max: int) -> Reading: ...


class Allowance(Protocol):
    """How much a call may read for a client."""

    is_used_up: bool

    def charge(self, records: Sequence[Record]) -> None: ...


class _Unlimited:
    """For the node itself."""

    is_used_up = False

    def charge(self, records: Sequence[Record]) -> None:
        """Charge nobody."""


UNLIMITED: Allowance = _Unlimited()


class LetterRun(NamedTuple):
    """The letters in one part of a partition, and the offset of the next part."""

    letters: list[Letter]
    next_offset: int
    damaged: list[Damaged]


class LetterPage(NamedTuple):
    """Dead letters, where each partition continues, and what could not be read."""

    letters: list[Letter]
    positions: list[int]
    damaged: list[Damaged]
    is_last: bool  # nothing is left after the positions


class Matches(NamedTuple):
    """How many dead letters match a filter, and whether all were examined."""

    letters: int
    is_complete: bool


class Summary(NamedTuple):
    """How many dead letters there are of each kind; the most frequent kinds first."""

    letters: int
    reasons: list[tuple[Text | None, int]]
    groups: list[tuple[Text, int]]
    keys: list[tuple[bytes, int]]
    first_ms: int | None  # when the first and the last of them died
    last_ms: int | None
    is_complete: bool


class DeadLetters:
    """Finds, reads and counts dead letters, and marks those that were redriven."""

    def __init__(
        self,
        topics: Topics,
        ledgers: Ledgers,
        *,
        look: Look,
        read: Read,
    ) -> None:
        """`look` and `read` query the leaders of dead-letter topics."""
        self._topics = topics
        self._ledgers = ledgers
        self._look = look
        self._read = read

    @property
    def shard(self) -> int:
        """The partition of the delivery journal that holds these ledgers."""
        return self._ledgers.number_of(LEDGER_GROUP)

    def check_here(self) -> None:
        self._ledgers.check_here(LEDGER_GROUP)

    def find(self, topic: str, dead_letter_topic: str | None) -> Topic | None:
        """Return the dead-letter topic of a topic; None if there are no dead letters yet."""
        self.check_here()
        found = self._topics.find(dead_letter_topic or topic + DEAD_LETTER_SUFFIX)
        if found is None and self._topics.find(topic) is None:
            raise UnknownTopic(topic)
        return found

    async def bounds(self, topic: Topic) -> Sequence[Bounds]:
        """Return the start and end of the partitions of a dead-letter topic."""
        return await self._look(topic, range(len(topic.partitions)))

    async def page(
        self,
        topic: str,
        *,
        filter: LetterFilter,
        count_max: int,
        positions: list[int] | None = None,
        dead_letter_topic: str | None = None,
        allowance: Allowance = UNLIMITED,
    ) -> LetterPage:
        """Return dead letters from `positions` on, oldest first in each partition."""
        found = self.find(topic, dead_letter_topic)
        if found is None:
            return LetterPage([], [], [], is_last=True)
        bounds = await self.bounds(found)
        at = [one.start_offset for one in bounds]
        for number, position in enumerate((positions or [])[: len(at)]):
            at[number] = max(at[number], position)
        found_letters: list[Letter] = []
        damaged: list[Damaged] = []
        scanned = 0
        for number, one in enumerate(bounds):
            until = one.last_stable_offset
            while at[number] < until and scanned < SCAN_LETTERS_MAX and not allowance.is_used_up:
                if len(found_letters) == count_max:
                    return LetterPage(found_letters, at, damaged, is_last=False)
                run = await self.read(found, number, at[number], until, allowance)
                damaged.extend(run.damaged)
                scanned += RUN_LETTERS_MAX
                position = _take(run, filter, found_letters, count_max)
                if position <= at[number]:
                    break  # A new leader has not caught up with the high watermark yet.
                at[number] = position
        ends = zip(at, bounds, strict=True)
        is_last = all(position >= one.last_stable_offset for position, one in ends)
        return LetterPage(found_letters, at, damaged, is_last=is_last)

    async def matches(
        self,
        topic: str,
        filter: LetterFilter,
        dead_letter_topic: str | None = None,
        allowance: Allowance = UNLIMITED,
    ) -> Matches:
        """Count the dead letters that match a filter, among the first ones."""
        positions: list[int] | None = None
        count = examined = 0
        while examined < MATCHES_LETTERS_MAX and not allowance.is_used_up:
            page = await self.page(
                topic,
                filter=LetterFilter(),
                count_max=RUN_LETTERS_MAX,
                positions=positions,
                dead_letter_topic=dead_letter_topic,
                allowance=allowance,
            )
            count += sum(map(filter.accepts, page.letters))
            if page.is_last:
                return Matches(count, is_complete=True)
            if page.positions == positions:
                break  # A new leader has not caught up with the high watermark yet.
            examined, positions = examined + RUN_LETTERS_MAX, page.positions
        return Matches(count, is_complete=False)

    async def count(self, topic: str, dead_letter_topic: str | None = None) -> int:
        """Count the dead letters, including offsets lost by compaction or damage."""
        found = self.find(topic, dead_letter_topic)
        if found is None:
            return 0
        total = 0
        for number, one in enumerate(await self.bounds(found)):
            ledger = self.ledger(found.id, number)
            first = max(one.start_offset, ledger.floor)
            done = sum(end - max(start, first) for start, end in ledger.done if end > first)
            total += max(0, one.last_stable_offset - first - done)
        return total

    async def summary(
        self,
        topic: str,
        dead_letter_topic: str | None = None,
        allowance: Allowance = UNLIMITED,
    ) -> Summary:
        """Count dead letters by reason, group and key: of each partition an equal part."""
        found = self.find(topic, dead_letter_topic)
        counts = _Counts()
        if found is None:
            return counts.summary(is_complete=True)
        bounds = await self.bounds(found)
        each_max = SUMMARY_LETTERS_MAX // max(1, len(bounds))
        is_complete = True
        for number, one in enumerate(bounds):
            offset, read = one.start_offset, 0
            while offset < one.last_stable_offset:
                if read >= each_max or allowance.is_used_up:
                    is_complete = False
                    break
                run = await self.read(found, number, offset, one.last_stable_offset, allowance)
                counts.add(run.letters)
                if run.next_offset <= offset:
                    break  # A new leader has not caught up with the high watermark yet.
                offset, read = run.next_offset, read + len(run.letters)
        return counts.summary(is_complete=is_complete)

    async def read(
        self,
        topic: Topic,
        number: int,
        offset: int,
        until: int,
        allowance: Allowance = UNLIMITED,
    ) -> LetterRun:
        """Return the letters in the next part of a partition, before `until`."""
        [bounds] = await self._look(topic, [number])
        ledger = self.ledger(topic.id, number)
        first = max(offset, bounds.start_offset, ledger.floor)
        if first >= until:
            return LetterRun([], max(offset, until), [])
        page = await self._read(
            [Place(topic.partitions[number], first, until)],
            records_max=RUN_LETTERS_MAX,
            bytes_max=RUN_BYTES_MAX,
        ).promise
        allowance.charge([record for _, record in page.records])
        letters = [
            read_letter(number, record)
            for _, record in page.records
            if not ledger.is_done(record.offset)
        ]
        return LetterRun(letters, page.places[0].offset, page.damaged)

    async def at(self, topic: Topic, number: int, offsets: list[int]) -> list[Letter] | None:
        """Return the letters at these offsets, redriven or not, except those that are gone.

        Returns None while a new leader has not yet caught up with all of them.
        """
        [bounds] = await self._look(topic, [number])
        if bounds.last_stable_offset <= max(offsets):
            return None
        wanted = set(offsets)
        first = max(min(offsets), bounds.start_offset)
        found: list[Letter] = []
        while first <= max(offsets):
            page = await self._read(
                [Place(topic.partitions[number], first, max(offsets) + 1)],
                records_max=RUN_LETTERS_MAX,
                bytes_max=RUN_BYTES_MAX,
            ).promise
            found += [
                read_letter(number, record) for _, record in page.records if record.offset in wanted
            ]
            if page.places[0].offset <= first:
                break
            first = page.places[0].offset
        return found

    def ledger(self, topic_id: bytes, number: int) -> Ledger:
        return self._ledgers.ledger(LedgerKey(LEDGER_GROUP, topic_id, number))

    def finish(self, topic_id: bytes, number: int, offsets: list[int]) -> Promise[None]:
        """Mark letters as redriven; resolves when that is durable."""
        key = LedgerKey(LEDGER_GROUP, topic_id, number)
        return self._ledgers.write(key, [Done(Finish.ACKED, ranges_of(sorted(offsets)))])

    def report_redriven(
        self, source: TopicPartition, offsets: Sequence[int], target: Target
    ) -> None:
        """Report letters of a partition that were stored as one batch to the observer."""
        observer = self._topics.observer
        if observer is not None:
            observer.redriven(source, ranges_of(offsets), target=target)


class _Counts:
    """Dead letters by kind, while they are counted."""

    def __init__(self) -> None:
        self._reasons: Counter[str | None] = Counter()
        self._groups: Counter[str] = Counter()
        self._keys: Counter[bytes] = Counter()
        self._first_ms: int | None = None
        self._last_ms: int | None = None

    def add(self, letters: Sequence[Letter]) -> None:
        for letter in letters:
            origin, key = letter.origin, letter.record.key
            died_ms = letter.record.timestamp_ms if origin is None else origin.time_ms
            self._reasons[None if origin is None else origin.reason] += 1
            if origin is not None:
                self._groups[origin.group] += 1
            if key is not None:
                self._keys[key] += 1
            self._first_ms = died_ms if self._first_ms is None else min(self._first_ms, died_ms)
            self._last_ms = died_ms if self._last_ms is None else max(self._last_ms, died_ms)

    def summary(self, *, is_complete: bool) -> Summary:
        return Summary(
            self._reasons.total(),
            self._reasons.most_common(SUMMARY_ROWS_MAX),
            self._groups.most_common(SUMMARY_ROWS_MAX),
            self._keys.most_common(SUMMARY_ROWS_MAX),
            self._first_ms,
            self._last_ms,
            is_complete,
        )


def _take(run: LetterRun, filter: LetterFilter, letters: list[Letter], count_max: int) -> int:
    """Add the matching letters of a run; return where the next search begins."""
    for letter in run.letters:
        if len(letters) == count_max:
            return letter.record.offset
        if filter.accepts(letter):
            letters.append(letter)
    return run.next_offset
