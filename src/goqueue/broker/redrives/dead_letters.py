"""Dead letters: the messages of dead-letter topics that have not been redriven.

A dead-letter topic is a log like any other. A ledger records which of its letters have been
redriven, as the ledger of a queue group records what is acknowledged. In a cluster one node owns
these ledgers, and calls to other nodes are refused with `NotCoordinator`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from goqueue.broker.queues.positions import Look
from goqueue.broker.reading.records import Damaged, Place, Reading
from goqueue.broker.reading.remote import Bounds
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.delivery import Done, Event, Finish, Ledger, LedgerKey
from goqueue.delivery.ranges import ranges_of
from goqueue.delivery.redrive import Letter, LetterFilter, read_letter
from goqueue.delivery.settings import DEAD_LETTER_SUFFIX
from goqueue.loop.promise import Promise
from goqueue.model.errors import UnknownTopic
from goqueue.model.names import TopicPartition

LEDGER_GROUP = "__deadletters"
RUN_LETTERS_MAX = 500
RUN_BYTES_MAX = 1 << 20
# A call examines at most this many letters, to bound its duration.
SCAN_LETTERS_MAX = 100_000


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
    ) -> LetterPage:
        """Return dead letters from `positions` on, oldest first in each partition."""
        found = self.find(topic, dead_letter_topic)
        if found is None:
            return LetterPage([], [], [])
        bounds = await self.bounds(found)
        at = [one.start_offset for one in bounds]
        for number, position in enumerate((positions or [])[: len(at)]):
            at[number] = max(at[number], position)
        page = LetterPage([], at, [])
        scanned = 0
        for number, one in enumerate(bounds):
            until = one.last_stable_offset
            while at[number] < until and scanned < SCAN_LETTERS_MAX:
                if len(page.letters) == count_max:
                    return page
                run = await self.read(found, number, at[number], until)
                page.damaged.extend(run.damaged)
                scanned += RUN_LETTERS_MAX
                position = _take(run, filter, page.letters, count_max)
                if position <= at[number]:
                    break  # A new leader has not caught up with the high watermark yet.
                at[number] = position
        return page

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

    async def read(self, topic: Topic, number: int, offset: int, until: int) -> LetterRun:
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

    def report_redriven(self, source: TopicPartition, offsets: list[int]) -> None:
        """Report the redriven letters of a partition to the observer."""
        observer = self._topics.observer
        if observer is not None and offsets:
            observer.redriven(source, ranges_of(sorted(offsets)))


def _take(run: LetterRun, filter: LetterFilter, letters: list[Letter], count_max: int) -> int:
    """Add the matching letters of a run; return where the next search begins."""
    for letter in run.letters:
        if len(letters) == count_max:
            return letter.record.offset
        if filter.accepts(letter):
            letters.append(letter)
    return run.next_offset
