"""The scheduled messages of one partition of the internal topic, and their state.

The agenda applies the records of that partition in order, and determines which messages are due. A
message waits, is in flight while it is being released, and has ended. Whether it is cancelled or
released is decided here, once: a message in flight can no longer be cancelled, and a cancelled one
is never taken for release.

Which messages wait, and for which topics, is a compact table by number. Numbers are offsets of a
log, so they are added in long runs and removed in any order. The table is divided into pages of
65,536 numbers. A page with many entries is a plain array, one with few has sorted positions; a
million messages cost a few megabytes, whether they are close together or not.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import repeat

from goqueue.delivery.schedules.checkpoint import (
    PAGE_BITS,
    PAGE_NUMBERS,
    Checkpoint,
    Target,
    WaitingState,
)
from goqueue.delivery.schedules.records import (
    LeaderEpochs,
    NumberRange,
    PendingTransactions,
    ProducerStates,
    ScheduledMessage,
    is_release,
    message_size,
    read_key,
    read_message,
    read_move,
    replay_source,
)
from goqueue.delivery.schedules.releases import Intent, TargetKey, read_intent, read_target
from goqueue.delivery.schedules.timetable import NEVER_MS, Bucket, Timetable
from goqueue.model.batch import Record
from goqueue.model.errors import ScheduleReleased, UnknownSchedule, UnsupportedVersion
from goqueue.storage.disk import Disk

SPARSE_MAX = 8192  # with more entries a page becomes a plain array
DENSE_MIN = 2048  # with fewer it becomes sorted positions again
RELEASED_PAGES_MAX = 64  # kept: the newest four million numbers

_MASK = PAGE_NUMBERS - 1
_BITMAP_BYTES = PAGE_NUMBERS // 8

Entry = tuple[int, int]  # due time and number of a message


class Agenda:
    """The scheduled messages of one partition."""

    def __init__(self, disk: Disk, folder: str, *, topic_id: bytes) -> None:
        self._disk = disk
        self._folder = folder
        self.timetable = Timetable(disk, folder, self.is_current)
        self.producers = ProducerStates()
        self.leader_epochs = LeaderEpochs()
        self.pending = PendingTransactions()
        self.intents: dict[TargetKey, Intent] = {}  # the newest per partition; many are completed
        self.moved: dict[int, int] = {}  # changed due times, which differ from the message's own
        self.released_count = 0
        self.cancelled_count = 0
        self._topic_id = topic_id
        self._waiting = Waiting()
        self._released = Released()
        self._in_flight: dict[int, int] = {}
        self._watched: dict[int, Callable[[], None]] = {}  # of those in flight
        self._targets: dict[int, Target] = {}
        self._target_numbers: dict[bytes, int] = {}

    # Records

    def schedule(self, first: int, messages: Sequence[ScheduledMessage]) -> None:
        """Add stored messages with consecutive numbers from `first` on."""
        self.activate(first, messages)

    def activate(self, first: int, messages: Sequence[ScheduledMessage]) -> None:
        """Make messages wait for their due time: new ones, or those of a committed transaction."""
        start = 0
        while start < len(messages):
            topic_id = messages[start].topic_id
            stop = start + 1
            while stop < len(messages) and messages[stop].topic_id == topic_id:
                stop += 1
            target = self._target_number(messages[start])
            self._waiting.add(first + start, stop - start, target)
            self._targets[target].count += stop - start
            self._targets[target].size += sum(map(message_size, messages[start:stop]))
            start = stop
        self.timetable.add_many(first, [message.due_ms for message in messages])

    def pend(self, producer_id: int, first: int, last: int) -> None:
        """Note a range of messages that are scheduled only if their transaction commits."""
        self.pending.add(producer_id, first, last)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> list[NumberRange]:
        """End a producer's transaction; return the ranges to activate if it is committed."""
        ranges = self.pending.end(producer_id)
        if is_commit:
            return ranges
        if ranges:
            self.producers.forget_aborted(producer_id, ranges)
        return []

    def note_producer(self, number: int, message: ScheduledMessage, at_ms: int) -> None:
        """Remember the producer of a message that is read back from the log.

        The producer's record later in the batch supersedes this; earlier versions wrote none.
        """
        state = self.producers.after(message, number, now_ms=at_ms)
        if state is not None:
            self.producers.put(state)

    def move(self, number: int, due_ms: int) -> None:
        """Change the due time of a waiting message."""
        if self._waiting.get(number):
            self.moved[number] = due_ms
            self.timetable.add(due_ms, number)

    def end(self, number: int, *, is_released: bool) -> None:
        """End a waiting message."""
        self.end_many((number,), is_released=is_released)

    def end_many(self, numbers: Sequence[int], *, is_released: bool) -> None:
        """End waiting messages; those that no longer wait are skipped."""
        remove, in_flight, moved = self._waiting.remove, self._in_flight, self.moved
        ended: list[int] = []
        targets: list[int] = []
        for number in numbers:
            target = remove(number)
            if target:
                ended.append(number)
                targets.append(target)
                in_flight.pop(number, None)
                if moved:
                    moved.pop(number, None)
        for target, count in Counter(targets).items():
            self._forget(target, count)
        if is_released:
            self._released.add_many(ended)
            self.released_count += len(ended)
        else:
            self.cancelled_count += len(ended)
        for number in ended if self._watched else ():
            self._land(number)

    def replay(self, record: Record) -> None:
        """Apply one record of the log; raise `CorruptBatch` if it is not valid.

        Raise `UnsupportedVersion` for a record of a later release, which must not be skipped.
        """
        known = read_key(record.key)
        if known is None:
            if not self.replay_source(record):
                self._replay_intent(record)
            return
        number, is_move = known
        if record.value is None:
            if not is_move:
                self.end(number, is_released=is_release(record))
        elif is_move:
            self.move(number, read_move(record.value))
        elif number == record.offset:
            message = read_message(record.value)
            self.schedule(number, [message])
            self.note_producer(number, message, record.timestamp_ms)

    def replay_source(self, record: Record) -> bool:
        """Apply a record about producers or leaders; return whether it is one."""
        return replay_source(record, self.producers, self.leader_epochs)

    def _replay_intent(self, record: Record) -> None:
        target = read_target(record.key)
        if record.value is None:
            if target is not None:
                self.intents.pop(target, None)
        elif target is None:
            raise UnsupportedVersion(
                f"A record of the schedules has the unknown key {(record.key or b'')[:20]!r}; "
                "upgrade this node."
            )
        else:
            self.intents[target] = read_intent(record.value)

    def renew_timetable(self) -> None:
        """Replace a damaged timetable by an empty one, to be filled by `refile`."""
        serial_next = self.timetable.serial_next
        self.timetable = Timetable(self._disk, self._folder, self.is_current)
        self.timetable.restore([], serial_next=serial_next)

    def refile(self, record: Record) -> None:
        """Put the message of a log record into the timetable, if it still waits."""
        known = read_key(record.key)
        if known is not None and record.value is not None and not known[1]:
            number = known[0]
            if self._waiting.get(number):
                due_ms = read_message(record.value).due_ms
                self.timetable.add(self.moved.get(number, due_ms), number)

    # Queries

    def is_current(self, number: int, due_ms: int) -> bool:
        """Whether an entry of the timetable is still valid."""
        return (
            self._waiting.get(number) != 0
            and number not in self._in_flight
            and (not self.moved or self.moved.get(number, due_ms) == due_ms)
        )

    def is_waiting(self, number: int) -> bool:
        return self._waiting.get(number) != 0

    def is_in_flight(self, number: int) -> bool:
        return number in self._in_flight

    def check_changeable(self, number: int, schedule_id: str) -> None:
        """Raise the reason if a message can no longer be cancelled or moved."""
        if number in self._in_flight or number in self._released:
            raise ScheduleReleased(schedule_id)
        if not self._waiting.get(number):
            raise UnknownSchedule(schedule_id)

    def topic_of(self, number: int) -> str:
        """Return the topic of a waiting message; empty if it does not wait."""
        target = self._waiting.get(number)
        return self._targets[target].topic if target else ""

    def count(self, topics: Collection[str] | None = None) -> int:
        """How many messages wait, for some topics or for all."""
        return sum(
            target.count
            for target in self._targets.values()
            if topics is None or target.topic in topics
        )

    def counts(self) -> dict[str, int]:
        """How many messages wait, by topic."""
        counts: dict[str, int] = {}
        for target in self._targets.values():
            counts[target.topic] = counts.get(target.topic, 0) + target.count
        return counts

    def sizes(self) -> dict[str, int]:
        """How many bytes the waiting messages have, by topic.

        Which of them have ended is not remembered, so each takes with it the average of its topic.
        """
        sizes: dict[str, int] = {}
        for target in self._targets.values():
            sizes[target.topic] = sizes.get(target.topic, 0) + target.size
        return sizes

    def blocks(self, from_ms: int, until_ms: int) -> Iterator[tuple[int, Iterator[array[int]]]]:
        """Return entries of a time range, as `Timetable.sources`, without those in flight."""
        return self.timetable.sources(from_ms, until_ms)

    # Release

    def take_due(self, now_ms: int, count_max: int) -> list[Entry]:
        """Take messages to be released now; in flight until they end or are given back."""
        in_flight = self._in_flight
        taken = []
        for due_ms, number in self.timetable.take_due(now_ms, count_max):
            if number not in in_flight:  # A bucket may have an entry twice.
                in_flight[number] = due_ms
                taken.append((due_ms, number))
        return taken

    def hold(self, number: int) -> None:
        """Keep a waiting message from being taken until it ends or is given back."""
        self._in_flight[number] = 0  # 0 retains all files, as its due time is not known here.

    def give_back(self, number: int, *, retry_ms: int | None = None) -> None:
        """Return a message that could not be released: due as before, or at `retry_ms`."""
        due_ms = self._in_flight.pop(number)
        if retry_ms is None:
            self.timetable.put_back(due_ms, number)
        else:
            if number in self.moved:
                self.moved[number] = retry_ms
            self.timetable.add(retry_ms, number)
        self._land(number)

    def watch(self, number: int, landed: Callable[[], None]) -> None:
        """Call `landed` once, when a message in flight has ended or is given back."""
        self._watched[number] = landed

    def _land(self, number: int) -> None:
        landed = self._watched.pop(number, None)
        if landed is not None:
            landed()

    # Checkpoints

    def checkpoint(
        self, offset: int, *, clean_epoch: int = -1, leader_epoch: int = -1
    ) -> tuple[Checkpoint, list[Bucket]]:
        """Return the state before `offset`, and the buckets to sync before it is written."""
        outstanding_ms = min(self._in_flight.values(), default=NEVER_MS)
        buckets, dirty = self.timetable.checkpoint(outstanding_ms)
        checkpoint = Checkpoint(
            topic_id=self._topic_id,
            offset=offset,
            serial_next=self.timetable.serial_next,
            buckets=buckets,
            waiting=self._waiting.state(),
            released=self._released.state(),
            targets={
                number: Target(one.topic, one.topic_id, one.count, one.size)
                for number, one in self._targets.items()
            },
            moved=dict(self.moved),
            producers=self.producers.state(),
            released_count=self.released_count,
            cancelled_count=self.cancelled_count,
            clean_epoch=clean_epoch,
            pending=self.pending.state(),
            leader_epoch=leader_epoch,
            intents=list(self.intents.values()),
            leader_epochs=self.leader_epochs.state(),
        )
        return checkpoint, dirty

    def restore(self, checkpoint: Checkpoint) -> None:
        """Load a checkpoint; raise `DamagedBucket` if its files do not match."""
        self.timetable.restore(checkpoint.buckets, serial_next=checkpoint.serial_next)
        self._waiting.load(checkpoint.waiting)
        self._released = Released(checkpoint.released)
        self._targets = checkpoint.targets
        self._target_numbers = {one.topic_id: number for number, one in self._targets.items()}
        self.moved = checkpoint.moved
        self.producers = ProducerStates(checkpoint.producers)
        self.leader_epochs = LeaderEpochs(checkpoint.leader_epochs)
        self.pending = PendingTransactions(checkpoint.pending)
        self.intents = {intent.target: intent for intent in checkpoint.intents}
        self.released_count = checkpoint.released_count
        self.cancelled_count = checkpoint.cancelled_count

    def _target_number(self, message: ScheduledMessage) -> int:
        number = self._target_numbers.get(message.topic_id)
        if number is None:
            number = len(self._targets) + 1
            while number in self._targets:
                number -= 1
            self._targets[number] = Target(message.topic, message.topic_id)
            self._target_numbers[message.topic_id] = number
        return number

    def _forget(self, number: int, count: int) -> None:
        target = self._targets[number]
        target.size -= target.size * count // target.count
        target.count -= count
        if not target.count:
            del self._targets[number]
            del self._target_numbers[target.topic_id]


class _SparsePage:
    __slots__ = ("positions", "topics")

    def __init__(self) -> None:
        self.positions = array("H")
        self.topics = array("I")

    def __len__(self) -> int:
        return len(self.positions)

    def get(self, position: int) -> int:
        index = bisect_left(self.positions, position)
        if index < len(self.positions) and self.positions[index] == position:
            return self.topics[index]
        return 0

    def add(self, position: int, count: int, topic: int) -> None:
        if not self.positions or self.positions[-1] < position:
            self.positions.extend(range(position, position + count))
            self.topics.extend(repeat(topic, count))
            return
        for one in range(position, position + count):
            index = bisect_left(self.positions, one)
            if index == len(self.positions) or self.positions[index] != one:
                self.positions.insert(index, one)
                self.topics.insert(index, topic)

    def remove(self, position: int) -> int:
        index = bisect_left(self.positions, position)
        if index == len(self.positions) or self.positions[index] != position:
            return 0
        del self.positions[index]
        return self.topics.pop(index)


class _DensePage:
    __slots__ = ("_count", "topics")

    def __init__(self, topics: array[int], count: int) -> None:
        self.topics = topics
        self._count = count

    def __len__(self) -> int:
        return self._count

    def get(self, position: int) -> int:
        return self.topics[position]

    def add(self, position: int, count: int, topic: int) -> None:
        self._count += self.topics[position : position + count].count(0)
        self.topics[position : position + count] = array("I", repeat(topic, count))

    def remove(self, position: int) -> int:
        topic = self.topics[position]
        if topic:
            self.topics[position] = 0
            self._count -= 1
        return topic


class Waiting:
    """The waiting numbers, each with the number of its topic, which is never 0."""

    __slots__ = ("_pages",)

    def __init__(self) -> None:
        self._pages: dict[int, _SparsePage | _DensePage] = {}

    def get(self, number: int) -> int:
        """Return the topic of a number; 0 if it does not wait."""
        page = self._pages.get(number >> PAGE_BITS)
        return page.get(number & _MASK) if page is not None else 0

    def add(self, first: int, count: int, topic: int) -> None:
        """Add `count` numbers from `first` on, none of which waits yet."""
        while count > 0:
            position = first & _MASK
            run = min(count, PAGE_NUMBERS - position)
            key = first >> PAGE_BITS
            page = self._pages.get(key)
            if page is None:
                page = self._pages[key] = _SparsePage()
            if isinstance(page, _SparsePage) and len(page) + run > SPARSE_MAX:
                page = self._pages[key] = _to_dense(page)
            page.add(position, run, topic)
            first += run
            count -= run

    def remove(self, number: int) -> int:
        """Remove a number; return its topic, or 0 if it did not wait."""
        key = number >> PAGE_BITS
        page = self._pages.get(key)
        if page is None:
            return 0
        topic = page.remove(number & _MASK)
        if not len(page):
            del self._pages[key]
        elif len(page) < DENSE_MIN and isinstance(page, _DensePage):
            self._pages[key] = _to_sparse(page)
        return topic

    def state(self) -> WaitingState:
        """Return a copy for a checkpoint."""
        return [
            (key, page.positions.tobytes(), page.topics.tobytes())
            if isinstance(page, _SparsePage)
            else (key, b"", page.topics.tobytes())
            for key, page in self._pages.items()
        ]

    def load(self, state: WaitingState) -> None:
        for key, positions, topics in state:
            if positions:
                sparse = _SparsePage()
                sparse.positions.frombytes(positions)
                sparse.topics.frombytes(topics)
                self._pages[key] = sparse
            else:
                table = array("I", topics)
                self._pages[key] = _DensePage(table, PAGE_NUMBERS - table.count(0))

    def counts(self) -> dict[int, int]:
        """Count the waiting numbers of each topic from scratch."""
        counts: dict[int, int] = {}
        for page in self._pages.values():
            for topic in set(page.topics) - {0}:
                counts[topic] = counts.get(topic, 0) + page.topics.count(topic)
        return counts


def _to_dense(page: _SparsePage) -> _DensePage:
    topics = array("I", bytes(4 * PAGE_NUMBERS))
    for position, topic in zip(page.positions, page.topics, strict=True):
        topics[position] = topic
    return _DensePage(topics, len(page))


def _to_sparse(page: _DensePage) -> _SparsePage:
    sparse = _SparsePage()
    for position, topic in enumerate(page.topics):
        if topic:
            sparse.positions.append(position)
            sparse.topics.append(topic)
    return sparse


class Released:
    """Which of the newest numbers were released, so that a late cancel gets the reason."""

    __slots__ = ("_pages",)

    def __init__(self, pages: dict[int, bytes] | None = None) -> None:
        self._pages = {key: bytearray(bits) for key, bits in (pages or {}).items()}

    def __contains__(self, number: int) -> bool:
        page = self._pages.get(number >> PAGE_BITS)
        position = number & _MASK
        return page is not None and bool(page[position >> 3] & 1 << (position & 7))

    def add(self, number: int) -> None:
        self.add_many((number,))

    def add_many(self, numbers: Iterable[int]) -> None:
        pages = self._pages
        for number in numbers:
            page = pages.get(number >> PAGE_BITS) or self._new_page(number >> PAGE_BITS)
            position = number & _MASK
            page[position >> 3] |= 1 << (position & 7)

    def _new_page(self, key: int) -> bytearray:
        page = self._pages[key] = bytearray(_BITMAP_BYTES)
        if len(self._pages) > RELEASED_PAGES_MAX:
            del self._pages[min(self._pages)]
        return page

    def state(self) -> dict[int, bytes]:
        return {key: bytes(bits) for key, bits in self._pages.items()}
