"""What is scheduled in one partition of the internal topic, and what became of it.

The agenda is fed by the records of that partition, in order, and says which messages are due. A
message waits, is in flight while its release is under way, and is over. Whether it is cancelled or
released is decided here, once: a message in flight can no longer be cancelled, and one that was
cancelled is never taken.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from goqueue.delivery.schedules.buckets import Bucket
from goqueue.delivery.schedules.checkpoint import Checkpoint, Target
from goqueue.delivery.schedules.intents import Intent, LaneKey, read_intent, read_lane
from goqueue.delivery.schedules.origins import LeaderEpochs, Origins, replay_source
from goqueue.delivery.schedules.payload import (
    ScheduledMessage,
    is_release,
    read_key,
    read_message,
    read_move,
)
from goqueue.delivery.schedules.pending import Pending, Stretch
from goqueue.delivery.schedules.timetable import NEVER_MS, Timetable
from goqueue.delivery.schedules.waiting import Released, Waiting
from goqueue.model.batch import Record
from goqueue.model.errors import ScheduleReleased, UnknownSchedule
from goqueue.storage.disk import Disk

Entry = tuple[int, int]  # due time and number of a message


class Agenda:
    """The scheduled messages of one partition."""

    def __init__(self, disk: Disk, folder: str, *, topic_id: bytes) -> None:
        self._disk = disk
        self._folder = folder
        self.timetable = Timetable(disk, folder, self.is_current)
        self.origins = Origins()
        self.leader_epochs = LeaderEpochs()
        self.pending = Pending()
        self.intents: dict[LaneKey, Intent] = {}  # the newest for each partition; many are over
        self.moved: dict[int, int] = {}  # due times that differ from the one in the message
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
        """These messages are stored, one after the other, from the number `first` on."""
        self.activate(first, messages)

    def activate(self, first: int, messages: Sequence[ScheduledMessage]) -> None:
        """Let messages wait for their time: new ones, or those of a committed transaction."""
        start = 0
        while start < len(messages):
            topic_id = messages[start].topic_id
            stop = start + 1
            while stop < len(messages) and messages[stop].topic_id == topic_id:
                stop += 1
            target = self._target_number(messages[start])
            self._waiting.add(first + start, stop - start, target)
            self._targets[target].count += stop - start
            start = stop
        self.timetable.add_many(first, [message.due_ms for message in messages])

    def pend(self, producer_id: int, first: int, last: int) -> None:
        """What is stored from one number to another is scheduled if its transaction commits."""
        self.pending.add(producer_id, first, last)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> list[Stretch]:
        """A producer's transaction is over; the stretches to be activated, if it is committed."""
        stretches = self.pending.end(producer_id)
        if is_commit:
            return stretches
        if stretches:
            self.origins.forget_aborted(producer_id, stretches)
        return []

    def note_origin(self, number: int, message: ScheduledMessage, at_ms: int) -> None:
        """Remember the producer of a message that is read back from the log.

        What follows in the same batch says more, unless an earlier version has written it.
        """
        state = self.origins.after(message, number, now_ms=at_ms)
        if state is not None:
            self.origins.put(state)

    def move(self, number: int, due_ms: int) -> None:
        """A message that waits has a new due time."""
        if self._waiting.get(number):
            self.moved[number] = due_ms
            self.timetable.add(due_ms, number)

    def end(self, number: int, *, is_released: bool) -> None:
        """A message waits no longer."""
        self.end_many((number,), is_released=is_released)

    def end_many(self, numbers: Sequence[int], *, is_released: bool) -> None:
        """Messages wait no longer; those that did not wait any more are passed over."""
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
        """Take one record of the log into account; raise `CorruptBatch` when it makes no sense."""
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
            self.note_origin(number, message, record.timestamp_ms)

    def replay_source(self, record: Record) -> bool:
        """Take a record about producers and leaders into account; whether it is one."""
        return replay_source(record, self.origins, self.leader_epochs)

    def _replay_intent(self, record: Record) -> None:
        lane = read_lane(record.key)
        if lane is not None and record.value is not None:
            self.intents[lane] = read_intent(record.value)
        elif lane is not None:
            self.intents.pop(lane, None)

    def renew_timetable(self) -> None:
        """Begin an empty timetable, to be filled by `refile`, because the old one is damaged."""
        serial_next = self.timetable.serial_next
        self.timetable = Timetable(self._disk, self._folder, self.is_current)
        self.timetable.restore([], serial_next=serial_next)

    def refile(self, record: Record) -> None:
        """Put the message in a record of the log into the timetable, if it still waits."""
        known = read_key(record.key)
        if known is not None and record.value is not None and not known[1]:
            number = known[0]
            if self._waiting.get(number):
                due_ms = read_message(record.value).due_ms
                self.timetable.add(self.moved.get(number, due_ms), number)

    # Questions

    def is_current(self, number: int, due_ms: int) -> bool:
        """Whether an entry of the timetable still counts."""
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
        """Raise when a message can no longer be cancelled or moved, and say why."""
        if number in self._in_flight or number in self._released:
            raise ScheduleReleased(schedule_id)
        if not self._waiting.get(number):
            raise UnknownSchedule(schedule_id)

    def topic_of(self, number: int) -> str:
        """The topic that a message waits for; empty when it does not wait."""
        target = self._waiting.get(number)
        return self._targets[target].topic if target else ""

    def count(self, topic: str | None = None) -> int:
        """How many messages wait, for one topic or for all."""
        return sum(
            target.count
            for target in self._targets.values()
            if topic is None or target.topic == topic
        )

    def blocks(self, from_ms: int, until_ms: int) -> Iterator[tuple[int, Iterator[array[int]]]]:
        """Entries of a stretch of time, as `Timetable.sources`; those in flight are not among."""
        return self.timetable.sources(from_ms, until_ms)

    # Release

    def take_due(self, now_ms: int, count_max: int) -> list[Entry]:
        """Messages to be released now; they are in flight until they end or are given back."""
        in_flight = self._in_flight
        taken = []
        for due_ms, number in self.timetable.take_due(now_ms, count_max):
            if number not in in_flight:  # A bucket may have an entry twice.
                in_flight[number] = due_ms
                taken.append((due_ms, number))
        return taken

    def hold(self, number: int) -> None:
        """Let a message that waits not be taken until it ends or is given back."""
        self._in_flight[number] = 0  # It keeps all files, since its due time is not known here.

    def give_back(self, number: int, *, retry_ms: int | None = None) -> None:
        """A message could not be released now: it is due as before, or again at a time."""
        due_ms = self._in_flight.pop(number)
        if retry_ms is None:
            self.timetable.put_back(due_ms, number)
        else:
            if number in self.moved:
                self.moved[number] = retry_ms
            self.timetable.add(retry_ms, number)
        self._land(number)

    def watch(self, number: int, landed: Callable[[], None]) -> None:
        """Have somebody told, once, when a message in flight has ended or is given back."""
        self._watched[number] = landed

    def _land(self, number: int) -> None:
        landed = self._watched.pop(number, None)
        if landed is not None:
            landed()

    # Checkpoints

    def checkpoint(
        self, offset: int, *, clean_epoch: int = -1, leader_epoch: int = -1
    ) -> tuple[Checkpoint, list[Bucket]]:
        """All that is known before `offset`, and the buckets to be synced before it is written."""
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
                number: Target(one.topic, one.topic_id, one.count)
                for number, one in self._targets.items()
            },
            moved=dict(self.moved),
            origins=self.origins.state(),
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
        """Begin with what a checkpoint says; raise `DamagedBucket` when its files are not so."""
        self.timetable.restore(checkpoint.buckets, serial_next=checkpoint.serial_next)
        self._waiting.load(checkpoint.waiting)
        self._released = Released(checkpoint.released)
        self._targets = checkpoint.targets
        self._target_numbers = {one.topic_id: number for number, one in self._targets.items()}
        self.moved = checkpoint.moved
        self.origins = Origins(checkpoint.origins)
        self.leader_epochs = LeaderEpochs(checkpoint.leader_epochs)
        self.pending = Pending(checkpoint.pending)
        self.intents = {intent.lane: intent for intent in checkpoint.intents}
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
        target.count -= count
        if not target.count:
            del self._targets[number]
            del self._target_numbers[target.topic_id]
