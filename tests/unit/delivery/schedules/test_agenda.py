"""The agenda: what waits, what is in flight, what is over, and that a checkpoint says the same."""

from __future__ import annotations

import random

import pytest

from goqueue.delivery.schedules import (
    NEVER_MS,
    Agenda,
    ScheduledMessage,
    end_move_record,
    end_record,
    message_record,
    move_record,
    read_checkpoint,
    write_checkpoint,
)
from goqueue.model.batch import Record
from goqueue.model.errors import (
    CorruptBatch,
    ScheduleReleased,
    UnknownSchedule,
    UnsupportedVersion,
)
from tests.simulation.disk import SimulatedDisk

NOW_MS = 1_700_000_000_000
FOLDER = "schedules/0"
TOPIC_ID = b"s" * 16


def new_agenda(disk: SimulatedDisk | None = None) -> Agenda:
    agenda = Agenda(disk or SimulatedDisk(), FOLDER, topic_id=TOPIC_ID)
    agenda.timetable.restore([], serial_next=1)
    agenda.timetable.advance(NOW_MS)
    return agenda


def message(due_ms: int, topic: str = "orders") -> ScheduledMessage:
    return ScheduledMessage(due_ms, topic.encode().ljust(16), topic, -1, None, b"v")


def take(agenda: Agenda, now_ms: int) -> list[int]:
    agenda.timetable.advance(now_ms)
    while agenda.timetable.is_cascading:
        agenda.timetable.cascade()
    return [number for _, number in agenda.take_due(now_ms, 1000)]


def test_a_message_is_taken_once_when_it_is_due() -> None:
    agenda = new_agenda()
    agenda.schedule(5, [message(NOW_MS + 10), message(NOW_MS + 20)])
    assert take(agenda, NOW_MS + 9) == []
    assert take(agenda, NOW_MS + 10) == [5]
    assert take(agenda, NOW_MS + 20) == [6]
    assert take(agenda, NOW_MS + 99) == []
    agenda.end(5, is_released=True)
    assert (agenda.count(), agenda.released_count) == (1, 1)


def test_a_message_in_flight_cannot_be_changed_and_one_given_back_can() -> None:
    agenda = new_agenda()
    agenda.schedule(5, [message(NOW_MS)])
    agenda.check_changeable(5, "id")
    assert take(agenda, NOW_MS) == [5]
    with pytest.raises(ScheduleReleased):
        agenda.check_changeable(5, "id")
    agenda.give_back(5)
    agenda.check_changeable(5, "id")
    assert take(agenda, NOW_MS) == [5]
    agenda.give_back(5, retry_ms=NOW_MS + 50)
    assert take(agenda, NOW_MS + 49) == []
    assert take(agenda, NOW_MS + 50) == [5]


def test_who_watches_a_message_is_told_once_when_its_flight_is_over() -> None:
    agenda = new_agenda()
    agenda.schedule(5, [message(NOW_MS), message(NOW_MS)])
    told: list[tuple[int, bool]] = []
    assert take(agenda, NOW_MS) == [5, 6]
    for number in (5, 6):
        agenda.watch(number, lambda one=number: told.append((one, agenda.is_in_flight(one))))
    agenda.give_back(5)
    agenda.end(6, is_released=True)
    assert take(agenda, NOW_MS) == [5]
    agenda.end(5, is_released=True)
    assert told == [(5, False), (6, False)]


def test_the_reason_why_a_message_is_over_is_remembered() -> None:
    agenda = new_agenda()
    agenda.schedule(5, [message(NOW_MS), message(NOW_MS)])
    agenda.end(5, is_released=True)
    agenda.end(6, is_released=False)
    with pytest.raises(ScheduleReleased):
        agenda.check_changeable(5, "id")
    for number in (6, 7):
        with pytest.raises(UnknownSchedule):
            agenda.check_changeable(number, "id")
    agenda.end(6, is_released=True)  # again: nothing happens
    assert (agenda.released_count, agenda.cancelled_count) == (1, 1)


def test_a_message_that_was_cancelled_or_moved_away_is_not_taken() -> None:
    agenda = new_agenda()
    agenda.schedule(1, [message(NOW_MS + 5), message(NOW_MS + 5), message(NOW_MS + 5)])
    agenda.end(1, is_released=False)
    agenda.move(2, NOW_MS + 50)
    assert take(agenda, NOW_MS + 5) == [3]
    assert take(agenda, NOW_MS + 50) == [2]


def test_a_message_moved_to_an_earlier_time_comes_then_and_only_then() -> None:
    agenda = new_agenda()
    agenda.schedule(1, [message(NOW_MS + 90_000_000)])
    agenda.move(1, NOW_MS + 5)
    assert take(agenda, NOW_MS + 5) == [1]
    agenda.end(1, is_released=True)
    assert take(agenda, NOW_MS + 90_000_000) == []
    assert agenda.moved == {}


def test_messages_are_counted_by_topic_and_topics_are_forgotten() -> None:
    agenda = new_agenda()
    agenda.schedule(1, [message(NOW_MS, "a"), message(NOW_MS, "a"), message(NOW_MS, "b")])
    assert (agenda.count(), agenda.count("a"), agenda.count("b"), agenda.count("c")) == (3, 2, 1, 0)
    assert [agenda.topic_of(number) for number in range(5)] == ["", "a", "a", "b", ""]
    agenda.end(1, is_released=False)
    agenda.end(2, is_released=False)
    agenda.schedule(9, [message(NOW_MS, "c"), message(NOW_MS, "b")])
    assert (agenda.count("a"), agenda.count("b"), agenda.count("c")) == (0, 2, 1)


def test_a_record_that_makes_no_sense_is_told_and_one_of_another_kind_is_not_skipped() -> None:
    agenda = new_agenda()
    with pytest.raises(CorruptBatch):
        agenda.replay(Record((7).to_bytes(8, "big"), b"\x01nonsense", offset=7))
    with pytest.raises(UnsupportedVersion, match=r"unknown key b'another kind'"):
        agenda.replay(Record(b"another kind", b"x", offset=8))
    agenda.replay(Record(b"another kind", None, offset=9))
    assert agenda.count() == 0


def _some_records(chance: random.Random, count: int) -> list[Record]:
    records: list[Record] = []
    live: list[int] = []
    for offset in range(count):
        deed = chance.random()
        if deed < 0.6 or not live:
            due_ms = NOW_MS + chance.randint(0, 10 ** chance.randint(1, 11))
            made = message_record(offset, message(due_ms, chance.choice("abc")), NOW_MS)
            live.append(offset)
        elif deed < 0.75:
            made = move_record(chance.choice(live), NOW_MS + chance.randint(0, 10**6), NOW_MS)
        elif deed < 0.95:
            number = live.pop(chance.randrange(len(live)))
            made = end_record(number, NOW_MS, is_released=chance.random() < 0.5)
        else:
            made = end_move_record(chance.randrange(offset), NOW_MS)
        records.append(made._replace(offset=offset))
    return records


def _facts(agenda: Agenda, count: int) -> object:
    entries = sorted(
        entry
        for _, blocks in agenda.blocks(0, NEVER_MS)
        for block in blocks
        for entry in zip(block[::2], block[1::2], strict=True)
        if agenda.is_current(entry[1], entry[0])
    )
    reasons = []
    for number in range(count):
        try:
            agenda.check_changeable(number, "id")
            reasons.append("waits")
        except (ScheduleReleased, UnknownSchedule) as error:
            reasons.append(error.code)
    return (
        sorted(set(entries)),
        reasons,
        agenda.moved,
        [agenda.count(topic) for topic in "abc"],
        (agenda.released_count, agenda.cancelled_count),
    )


@pytest.mark.seeds(20)
def test_a_checkpoint_and_the_rest_of_the_log_say_the_same_as_the_whole_log(seed: int) -> None:
    chance = random.Random(seed)
    records = _some_records(chance, 400)
    whole = new_agenda()
    for record in records:
        whole.replay(record)
    disk = SimulatedDisk(seed)
    agenda = new_agenda(disk)
    at = 0
    while at < len(records):
        stop = min(len(records), at + chance.randint(1, 150))
        for record in records[at:stop]:
            agenda.replay(record)
        checkpoint, dirty = agenda.checkpoint(stop)
        for bucket in dirty:
            bucket.sync()
        write_checkpoint(disk, FOLDER, checkpoint)
        for record in records[stop : stop + 5]:
            agenda.replay(record)
        disk.crash()
        at = stop
        agenda = Agenda(disk, FOLDER, topic_id=TOPIC_ID)
        found = read_checkpoint(disk, FOLDER, topic_id=TOPIC_ID)
        assert found is not None
        assert found.offset == stop
        agenda.restore(found)
        agenda.timetable.advance(NOW_MS)
    assert _facts(agenda, len(records)) == _facts(whole, len(records))


def test_a_checkpoint_of_another_topic_or_a_damaged_one_is_not_used() -> None:
    disk = SimulatedDisk()
    agenda = new_agenda(disk)
    agenda.schedule(0, [message(NOW_MS)])
    write_checkpoint(disk, FOLDER, agenda.checkpoint(1)[0])
    assert read_checkpoint(disk, FOLDER, topic_id=TOPIC_ID) is not None
    assert read_checkpoint(disk, FOLDER, topic_id=b"o" * 16) is None
    disk.flip_bit(f"{FOLDER}/checkpoint", 400)
    assert read_checkpoint(disk, FOLDER, topic_id=TOPIC_ID) is None


def test_a_new_timetable_is_filled_from_the_log() -> None:
    agenda = new_agenda()
    records = _some_records(random.Random(1), 200)
    for record in records:
        agenda.replay(record)
    before = _facts(agenda, len(records))
    agenda.renew_timetable()
    agenda.timetable.advance(NOW_MS)
    for record in records:
        agenda.refile(record)
    assert _facts(agenda, len(records)) == before
