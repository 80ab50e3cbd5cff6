"""Schedules as a front end sees them: what can be asked, changed and refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from goqueue.broker.schedules.changes import FLIGHT_MS_MAX
from goqueue.broker.schedules.courier import ReleaseCourier
from goqueue.broker.schedules.listing import LIST_MAX
from goqueue.broker.schedules.log import ScheduleLog
from goqueue.broker.schedules.observation import Move
from goqueue.broker.schedules.release import RUN_PAUSE_MS, SEARCHES_MAX, Releaser
from goqueue.broker.schedules.schedules import Delayed
from goqueue.delivery.schedules import Agenda, number_key
from goqueue.loop.promise import Promise
from goqueue.model.attributes import DELAY_MS_MAX
from goqueue.model.batch import Record, encode_batch
from goqueue.model.dead_letters import read_origin
from goqueue.model.errors import (
    GoQueueError,
    InternalTopic,
    InvalidAttribute,
    InvalidRecord,
    InvalidRequest,
    RecordTooLarge,
    RequestTimedOut,
    ScheduleReleased,
    StorageFull,
    UnknownPartition,
    UnknownSchedule,
    UnknownTopic,
    UnsupportedVersion,
)
from goqueue.model.key_hash import partition_of_key
from goqueue.model.names import JOURNEYS_TOPIC, SCHEDULED_TOPIC
from goqueue.partition import Appended
from tests.unit.broker.node import Node

DAY_MS = 86_400_000
SYNC_MS_MAX = 20  # of the simulated disk


class Desk(Node):
    """A node, and what a client of its schedules does."""

    @property
    def now_ms(self) -> int:
        return self.broker.clock.now_ms()

    def later(self, *delays_ms: int, topic: str = "orders", partition: int = -1) -> list[str]:
        """Schedule one message for each delay, whose value is the delay."""
        delayed = [
            Delayed(Record(None, b"%d" % delay_ms), self.now_ms + delay_ms, partition)
            for delay_ms in delays_ms
        ]
        return self.wait(self.broker.schedules.schedule(topic, delayed))

    def refusal(self, delayed: Delayed, topic: str = "orders") -> Exception:
        with pytest.raises(GoQueueError) as refusal:
            self.wait(self.broker.schedules.schedule(topic, [delayed]))
        return refusal.value


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.create("orders")
    return desk


def test_nothing_is_made_before_the_first_message_comes(desk: Desk) -> None:
    assert desk.broker.topics.find("__scheduled") is None
    assert desk.wait(desk.broker.schedules.count()) == 0
    assert desk.wait(desk.broker.schedules.list()).entries == []
    assert desk.broker.schedules.stats().next_due_ms is None
    with pytest.raises(UnknownSchedule):
        desk.broker.schedules.get("A" * 16)
    desk.later(1000)
    assert desk.broker.topics.get("__scheduled").is_internal


def test_a_message_is_shown_as_it_was_given(desk: Desk) -> None:
    headers = (("a", b"1"), ("goqueue-delay-ms", b"5"), ("goqueue-priority", b"0"))
    record = Record(b"k", b"v", headers, 77)
    due_ms = desk.now_ms + 5_000
    (schedule_id,) = desk.wait(
        desk.broker.schedules.schedule("orders", [Delayed(record, due_ms, 0)])
    )
    found = desk.broker.schedules.get(schedule_id)
    assert (found.id, found.topic, found.partition, found.due_ms) == (
        schedule_id,
        "orders",
        0,
        due_ms,
    )
    assert (found.key, found.value, found.timestamp_ms) == (b"k", b"v", 77)
    assert found.headers == (("a", b"1"), ("goqueue-priority", b"0"))
    desk.run_for(6_000)
    (released,) = desk.consume("orders")
    assert (released.key, released.value) == (b"k", b"v")
    assert released.headers == (
        ("a", b"1"),
        ("goqueue-priority", b"0"),
        ("goqueue-schedule-id", schedule_id.encode()),
    )
    assert released.timestamp_ms >= due_ms


def test_messages_appear_in_the_order_of_their_times(desk: Desk) -> None:
    desk.later(300, 100, 200)
    desk.later(150, 50)
    desk.run_for(1_000)
    assert desk.values("orders") == [b"50", b"100", b"150", b"200", b"300"]


def test_a_key_goes_to_its_partition_and_a_chosen_partition_is_kept(desk: Desk) -> None:
    desk.create("wide", 4)
    due_ms = desk.now_ms + 10
    delayed = [Delayed(Record(b"key", b"v"), due_ms), Delayed(Record(b"key", b"w"), due_ms, 3)]
    desk.wait(desk.broker.schedules.schedule("wide", delayed))
    desk.run_for(100)
    found = {number: desk.values("wide", partition=number) for number in range(4)}
    home = partition_of_key(b"key", 4)
    assert b"v" in found[home]
    assert b"w" in found[3]


def test_what_makes_no_sense_is_refused(desk: Desk) -> None:
    due_ms = desk.now_ms + 1000
    good = Record(None, b"v")
    assert isinstance(desk.refusal(Delayed(good, due_ms), "nowhere"), UnknownTopic)
    assert isinstance(desk.refusal(Delayed(good, due_ms, 9)), UnknownPartition)
    too_far = Delayed(good, desk.now_ms + DELAY_MS_MAX + 60_000)
    assert isinstance(desk.refusal(too_far), InvalidAttribute)
    large = Delayed(Record(None, bytes(2 << 20)), due_ms)
    assert isinstance(desk.refusal(large), RecordTooLarge)
    desk.create("compacted", cleanup_policy="compact")
    assert isinstance(desk.refusal(Delayed(good, due_ms), "compacted"), InvalidRecord)
    with pytest.raises(InvalidRequest):
        desk.wait(desk.broker.schedules.schedule("orders", []))
    desk.later(1000)
    assert isinstance(desk.refusal(Delayed(good, due_ms), "__scheduled"), InternalTopic)
    desk.disk.fill_after(0)
    desk.run_for(2_000)
    assert isinstance(desk.refusal(Delayed(good, due_ms)), StorageFull)


def test_a_cancelled_message_never_appears_and_cannot_be_cancelled_again(desk: Desk) -> None:
    first, second = desk.later(1_000, 1_000)
    desk.wait(desk.broker.schedules.cancel(first))
    for call in (
        desk.broker.schedules.cancel,
        lambda one: desk.broker.schedules.reschedule(one, 1),
    ):
        with pytest.raises(UnknownSchedule):
            desk.wait(call(first))
    with pytest.raises(UnknownSchedule):
        desk.broker.schedules.get(first)
    desk.run_for(2_000)
    assert len(desk.values("orders")) == 1
    with pytest.raises(ScheduleReleased):
        desk.wait(desk.broker.schedules.cancel(second))
    with pytest.raises(ScheduleReleased):
        desk.broker.schedules.get(second)


def test_two_cancels_of_one_turn_have_one_winner(desk: Desk) -> None:
    (schedule_id,) = desk.later(1_000)
    first = desk.broker.schedules.cancel(schedule_id)
    second = desk.broker.schedules.cancel(schedule_id)
    with pytest.raises(UnknownSchedule):
        desk.broker.schedules.get(schedule_id)
    desk.wait(first)
    with pytest.raises(UnknownSchedule):
        desk.wait(second)


def test_a_cancel_that_cannot_be_stored_leaves_the_message(desk: Desk) -> None:
    (schedule_id,) = desk.later(3_000)
    desk.disk.fill_after(0)
    with pytest.raises(StorageFull):
        desk.wait(desk.broker.schedules.cancel(schedule_id))
    desk.disk.make_room()
    desk.run_for(4_000)
    assert desk.values("orders") == [b"3000"]


def test_many_are_cancelled_with_one_batch_for_each_log(desk: Desk) -> None:
    ids = [one for _ in range(8) for one in desk.later(*range(1_000, 1_100))]
    logs = desk.broker.topics.get("__scheduled").partitions
    before = sum(log.records_in for log in logs)
    assert desk.broker.schedules.stats().next_due_ms is not None
    outcomes = desk.wait(desk.broker.schedules.cancel_many([*ids, ids[0], "nonsense"]))
    assert desk.broker.schedules.stats().next_due_ms is None
    assert outcomes[:800] == [None] * 800
    assert all(isinstance(one, UnknownSchedule) for one in outcomes[800:])
    assert sum(log.records_in for log in logs) == before + 800
    desk.run_for(2_000)
    assert desk.values("orders") == []
    assert desk.broker.schedules.stats().cancelled == 800
    assert desk.wait(desk.broker.schedules.cancel_many([])) == []


def test_many_cancels_that_cannot_be_stored_leave_their_messages(desk: Desk) -> None:
    ids = desk.later(3_000, 3_000)
    desk.disk.fill_after(0)
    outcomes = desk.wait(desk.broker.schedules.cancel_many([*ids, "nonsense"]))
    assert [type(one) for one in outcomes] == [StorageFull, StorageFull, UnknownSchedule]
    desk.disk.make_room()
    desk.run_for(4_000)
    assert desk.values("orders") == [b"3000"] * 2


def test_a_message_is_moved_to_and_fro(desk: Desk) -> None:
    early, late = desk.later(1_000, DAY_MS)
    desk.wait(desk.broker.schedules.reschedule(early, desk.now_ms + 5_000))
    desk.wait(desk.broker.schedules.reschedule(late, desk.now_ms + 500))
    desk.run_for(2_000)
    assert desk.values("orders") == [b"%d" % DAY_MS]
    desk.restart_after_crash()
    assert desk.broker.schedules.get(early).due_ms > desk.now_ms
    desk.run_for(4_000)
    assert desk.values("orders") == [b"%d" % DAY_MS, b"1000"]


def test_lists_go_by_due_time_page_by_page(desk: Desk) -> None:
    desk.create("other")
    delays_ms = [5, 90_000, 2 * DAY_MS, 400 * DAY_MS, 50 * DAY_MS, 3_600_000, 61_000]
    start_ms = desk.now_ms
    for delay_ms in delays_ms:
        desk.later(1_000 + delay_ms, 1_000 + delay_ms)
        desk.later(1_000 + delay_ms, topic="other")
    pages, cursor = [], ""
    while True:
        page = desk.wait(desk.broker.schedules.list(topic="orders", limit=3, after=cursor))
        pages.append(page.entries)
        cursor = page.next_cursor
        if not cursor:
            break
    entries = [entry for page in pages for entry in page]
    assert [len(page) for page in pages] == [3, 3, 3, 3, 2]
    assert len({entry.id for entry in entries}) == 14
    assert [entry.due_ms for entry in entries] == sorted(entry.due_ms for entry in entries)
    assert {entry.topic for entry in entries} == {"orders"}
    far = desk.wait(desk.broker.schedules.list(from_ms=start_ms + DAY_MS))
    assert len(far.entries) == 9
    near = desk.wait(desk.broker.schedules.list(until_ms=start_ms + DAY_MS))
    assert len(near.entries) == 12


def test_messages_are_counted_by_topic_and_time(desk: Desk) -> None:
    desk.create("other")
    start_ms = desk.now_ms
    ids = desk.later(1_000, 70_000, DAY_MS, 400 * DAY_MS)
    desk.later(70_000, topic="other")
    count = desk.broker.schedules.count
    assert desk.wait(count()) == 5
    assert desk.wait(count(topic="orders")) == 4
    assert desk.wait(count(topic="none")) == 0
    assert desk.wait(count(from_ms=start_ms + 60_000)) == 4
    assert desk.wait(count(topic="other", until_ms=start_ms + DAY_MS)) == 1
    for due_ms in (start_ms + 2 * DAY_MS, start_ms + DAY_MS, start_ms + 2 * DAY_MS):
        desk.wait(desk.broker.schedules.reschedule(ids[0], due_ms))
    assert desk.wait(count(from_ms=start_ms + DAY_MS + 10_000)) == 2
    assert desk.wait(count(until_ms=start_ms + 60_000)) == 0


@pytest.mark.parametrize("limit", [0, LIST_MAX + 1])
def test_a_list_has_a_bound(desk: Desk, limit: int) -> None:
    with pytest.raises(InvalidRequest):
        desk.wait(desk.broker.schedules.list(limit=limit))


@pytest.mark.parametrize("cursor", ["x", "12~nonsense", "~", "x~" + "A" * 16])
def test_a_wrong_cursor_is_refused(desk: Desk, cursor: str) -> None:
    desk.later(1_000)
    with pytest.raises(InvalidRequest, match="cursor"):
        desk.wait(desk.broker.schedules.list(after=cursor))


def test_the_statistics_say_what_happened(desk: Desk) -> None:
    ids = desk.later(100, 200, 300, DAY_MS)
    desk.wait(desk.broker.schedules.cancel(ids[2]))
    desk.run_for(1_000)
    stats = desk.broker.schedules.stats()
    assert (stats.pending, stats.released, stats.cancelled) == (1, 2, 1)
    assert 0 <= stats.late_ms_p50 <= stats.late_ms_p99 <= stats.late_ms_max < 50
    assert stats.next_due_ms is not None
    assert abs(stats.next_due_ms - desk.now_ms - DAY_MS) < 5_000


def test_a_message_for_a_deleted_topic_goes_to_its_dead_letters(desk: Desk) -> None:
    desk.create("gone")
    desk.create("gone.dlq")
    desk.later(100, topic="gone")
    desk.wait(desk.broker.topics.delete("gone"))
    desk.create("gone")  # another topic of the same name
    desk.run_for(1_000)
    assert desk.values("gone") == []
    (letter,) = desk.consume("gone.dlq")
    assert letter.value == b"100"
    origin = read_origin(letter.headers)
    assert origin is not None
    assert (origin.topic, origin.reason) == ("gone", "topic_deleted")
    assert desk.broker.schedules.stats().dead_lettered == 1


def test_without_dead_letters_it_is_dropped_and_counted(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.create("gone")
    desk.later(100, topic="gone")
    desk.wait(desk.broker.topics.delete("gone"))
    desk.run_for(1_000)
    stats = desk.broker.schedules.stats()
    assert (stats.dropped, stats.pending) == (1, 0)
    assert "topic_deleted" in caplog.text


def test_a_topic_that_cannot_be_written_to_gets_its_messages_later(desk: Desk) -> None:
    desk.later(100, 200)
    partition = desk.broker.topics.get("orders").partition(0)
    partition.failure = StorageFull("broken for a while")
    desk.run_for(3_000)
    assert desk.values("orders") == []
    assert desk.broker.schedules.stats().pending == 2
    partition.failure = None
    desk.run_for(3_000)
    assert sorted(value or b"" for value in desk.values("orders")) == [b"100", b"200"]


def test_damaged_buckets_are_made_anew_from_the_log(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.later(*range(2 * DAY_MS, 2 * DAY_MS + 50))
    desk.stop()
    buckets = [
        f"schedules/{number}/{name}"
        for number in range(4)
        for name in desk.disk.list(f"schedules/{number}")
        if name.startswith("day")
    ]
    assert buckets
    for path in buckets:
        desk.disk.flip_bit(path, 8 * 40)
    desk.start()
    desk.kill()
    desk.clock.run_for(3 * DAY_MS)
    desk.start()
    desk.run_for(2_000)
    assert len(set(desk.values("orders"))) == len(desk.values("orders")) == 50
    assert "are rebuilt" in caplog.text


def test_a_start_after_a_clean_stop_reads_no_log(desk: Desk) -> None:
    desk.later(*range(1_000, 1_300))
    desk.run_for(1_100)
    desk.stop()
    desk.disk.bytes_read.clear()
    desk.start()
    read = [path for path in desk.disk.bytes_read if path.startswith("logs/")]
    assert not [path for path in read if not path.startswith(f"logs/{JOURNEYS_TOPIC}/")]
    desk.run_for(1_000)
    assert len(desk.values("orders")) == 300


def test_a_start_after_a_crash_reads_only_what_came_after_the_checkpoint(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(20):
        desk.later(*[DAY_MS] * 100)
    desk.run_for(70_000)
    desk.later(DAY_MS)
    replayed: list[Record] = []
    replay = Agenda.replay

    def spy(self: Agenda, record: Record) -> None:
        replayed.append(record)
        replay(self, record)

    monkeypatch.setattr(Agenda, "replay", spy)
    desk.kill()
    desk.start()
    assert len(replayed) == 1
    assert desk.broker.schedules.stats().pending == 2001


def test_compaction_keeps_what_waits_and_nothing_else() -> None:
    desk = Desk(
        compaction__check_ms="1000",
        compaction__dirty_ratio_min="0.01",
        schedules__checkpoint_ms="1000",
    )
    desk.create("orders")
    kept = desk.later(DAY_MS)
    for _ in range(10):
        desk.later(*[50] * 100)
        desk.run_for(200)
    desk.wait(desk.broker.schedules.reschedule(kept[0], desk.now_ms + 2 * DAY_MS))
    topic = desk.broker.topics.get("__scheduled")
    before = sum(partition.log.size for partition in topic.partitions)
    for partition in topic.partitions:
        partition.log.settings.segment_ms = 1
        partition.log.settings.compaction_lag_ms_min = 0
    desk.run_for(20_000)
    assert sum(partition.log.size for partition in topic.partitions) < before / 2
    assert desk.broker.schedules.get(kept[0]).due_ms > desk.now_ms + DAY_MS
    desk.disk.remove_tree("schedules")
    desk.kill()
    desk.start()
    assert desk.broker.schedules.stats().pending == 1
    desk.kill()
    desk.clock.run_for(2 * DAY_MS)
    desk.start()
    desk.run_for(1_000)
    assert desk.values("orders").count(b"%d" % DAY_MS) == 1


class IdempotentDesk(Desk):
    """Also a producer of batches with delayed records."""

    def send(
        self, *values: bytes, sequence: int, delay_ms: int = 50, producer_id: int = 9
    ) -> Promise[None]:
        headers = (("goqueue-delay-ms", b"%d" % delay_ms),) if delay_ms else ()
        batch = encode_batch(
            [Record(None, value, headers, self.now_ms) for value in values],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )
        done: Promise[None] = Promise()
        topic = self.broker.topics.get("orders")
        partition = topic.partitions[0]
        appended = self.broker.producing.produce(topic, partition, memoryview(batch))
        if isinstance(appended, Appended):
            partition.when_committed(appended.last_offset, lambda error: done.settle(None, error))
        else:
            appended.when_committed(lambda error: done.settle(None, error))
        return done

    def states(self) -> int:
        """How many producers are remembered where delayed records wait."""
        return sum(len(one.log.agenda.producers) for one in self.broker.schedules.shards)


def _lose_the_topic(desk: Desk) -> None:
    """Have the partition forget its producers, as a leader does that has not got the batch."""
    desk.broker.topics.get("orders").partitions[0].producers._states.pop(9, None)


def test_a_producers_batches_are_recognised_after_compaction_and_without_a_checkpoint() -> None:
    desk = IdempotentDesk(
        compaction__check_ms="1000",
        compaction__dirty_ratio_min="0.01",
        schedules__checkpoint_ms="1000",
    )
    desk.create("orders")
    count = 30
    for number in range(count):
        desk.wait(desk.send(b"v%d" % number, sequence=number))
    desk.run_for(1_000)
    topic = desk.broker.topics.get("__scheduled")
    before = sum(partition.log.size for partition in topic.partitions)
    for partition in topic.partitions:
        partition.log.settings.segment_ms = 1
        partition.log.settings.compaction_lag_ms_min = 0
    desk.run_for(20_000)
    assert sum(partition.log.size for partition in topic.partitions) < before / 2
    desk.disk.remove_tree("schedules")
    desk.kill()
    desk.start()
    assert desk.states() == 1
    for number in (0, 7, count - 6, count - 1):
        _lose_the_topic(desk)
        desk.wait(desk.send(b"v%d" % number, sequence=number))
    desk.run_for(1_000)
    assert sorted(desk.values("orders")) == sorted(b"v%d" % number for number in range(count))


def test_the_memory_of_producers_ends_as_that_of_a_partition_does() -> None:
    desk = IdempotentDesk(
        producers__id_expiry_ms="10m",
        producers__states_per_partition_max="3",
        schedules__partitions="1",
    )
    desk.create("orders")
    for producer_id in range(100, 105):
        desk.wait(desk.send(b"v", sequence=0, producer_id=producer_id))
    assert desk.states() == 5
    desk.run_for(70_000)
    assert desk.states() == 3
    desk.run_for(300_000)
    desk.wait(desk.send(b"v", sequence=1, producer_id=104))
    desk.run_for(400_000)
    assert desk.states() == 1
    # It is forgotten in the log as well.
    desk.disk.remove_tree("schedules")
    desk.kill()
    desk.start()
    assert desk.states() == 1
    desk.wait(desk.broker.topics.delete("orders"))
    desk.run_for(70_000)
    assert desk.states() == 0


def test_a_log_of_schedules_that_fails_lets_no_later_batch_pass() -> None:
    desk = IdempotentDesk(schedules__partitions="1")
    desk.create("orders")
    desk.wait(desk.send(b"d0", sequence=0))
    (shard,) = desk.broker.schedules.shards
    shard.log.partition.fail(OSError(5, "broken"))
    for sequence, delay_ms in ((1, 50), (2, 0), (3, 50)):
        with pytest.raises(GoQueueError):
            desk.wait(desk.send(b"v%d" % sequence, sequence=sequence, delay_ms=delay_ms))
    desk.run_for(1_000)
    assert desk.values("orders") == []


def test_what_is_due_close_together_shares_its_syncs(desk: Desk) -> None:
    desk.later(*range(1_000, 1_400))
    desk.run_for(900)
    before = desk.broker.flusher.rounds
    desk.run_for(1_000)
    assert desk.values("orders") == [b"%d" % one for one in range(1_000, 1_400)]
    assert desk.broker.schedules.stats().released == 400
    # One for each pause of 5 ms carries new messages and the ends of those before them.
    assert desk.broker.flusher.rounds - before < 400 / RUN_PAUSE_MS * 1.5
    assert desk.broker.schedules.stats().late_ms_max <= RUN_PAUSE_MS + SYNC_MS_MAX


def test_many_that_are_due_at_once_are_released_without_a_pause(desk: Desk) -> None:
    desk.later(*[1_000] * 5_000)
    desk.run_for(2_000)
    assert len(desk.values("orders")) == 5_000
    assert desk.broker.schedules.stats().late_ms_max < 200


def test_what_its_topic_has_is_not_counted_as_waiting(desk: Desk) -> None:
    """The end of a release is recorded after a short pause, or when somebody asks."""
    desk.later(100, DAY_MS)
    while not desk.values("orders"):
        desk.run_for(1)
    assert desk.broker.schedules.stats().pending == 1
    assert desk.wait(desk.broker.schedules.count()) == 1


def test_a_release_is_marked_later_when_its_log_takes_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ids = desk.later(100, 2_000)
    refusing = {"times": 2}
    end = ScheduleLog.end

    def refuse(
        log: ScheduleLog, numbers: list[int], *, is_released: bool, moves: Sequence[Move] = ()
    ) -> int:
        if is_released and refusing["times"]:
            refusing["times"] -= 1
            raise StorageFull("no room for a while")
        return end(log, numbers, is_released=is_released, moves=moves)

    monkeypatch.setattr(ScheduleLog, "end", refuse)
    desk.run_for(500)
    assert desk.values("orders") == [b"100"]
    assert desk.broker.schedules.stats().pending == 2
    with pytest.raises(ScheduleReleased):
        desk.wait(desk.broker.schedules.cancel(ids[0]))
    desk.run_for(6_000)
    assert desk.values("orders") == [b"100", b"2000"]
    assert desk.broker.schedules.stats().pending == 0
    assert "cannot be recorded" in caplog.text


def test_who_wants_to_change_a_message_in_flight_waits_until_its_release_is_sure(
    desk: Desk,
) -> None:
    schedules = desk.broker.schedules
    (schedule_id,) = desk.later(100)
    told: list[tuple[Exception | None, list[bytes | None]]] = []
    (log,) = [one.log for one in schedules.shards if one.log.agenda.count()]
    while not log.agenda.is_in_flight(0):
        desk.run_for(1)
    assert desk.values("orders") == []
    for call in (schedules.cancel(schedule_id), schedules.reschedule(schedule_id, desk.now_ms)):
        assert not call.is_done
        call.then(lambda _, error: told.append((error, desk.values("orders"))))
    desk.run_for(200)
    assert [type(error) for error, _ in told] == [ScheduleReleased, ScheduleReleased]
    assert [values for _, values in told] == [[b"100"], [b"100"]]


def test_a_release_that_takes_long_is_neither_confirmed_nor_cancelled(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = desk.later(100, 60_000)
    with monkeypatch.context() as patch:
        patch.setattr(ReleaseCourier, "_note_soon", lambda *_: None)
        desk.run_for(500)
        outcomes = desk.broker.schedules.cancel_many([first, second])
        desk.run_for(FLIGHT_MS_MAX - 100)
        assert not outcomes.is_done
        assert desk.wait(desk.broker.schedules.count()) == 1  # The other one did not wait for it.
        refusal, accepted = desk.wait(outcomes)
    assert isinstance(refusal, RequestTimedOut)
    assert accepted is None


def test_a_message_whose_release_was_refused_is_cancelled_for_whoever_waited(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    (schedule_id,) = desk.later(100)
    monkeypatch.setattr(ReleaseCourier, "_send", lambda *_: None)
    desk.run_for(500)
    cancel = desk.broker.schedules.cancel(schedule_id)
    desk.run_for(100)
    assert not cancel.is_done
    (log,) = [one.log for one in desk.broker.schedules.shards if one.log.agenda.count()]
    log.agenda.give_back(0, retry_ms=desk.now_ms + 60_000)
    desk.wait(cancel)
    assert desk.broker.schedules.stats().cancelled == 1


def test_nobody_waits_for_a_release_by_a_node_that_has_lost_the_log(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    (schedule_id,) = desk.later(100)
    monkeypatch.setattr(ReleaseCourier, "_send", lambda *_: None)
    desk.run_for(500)
    cancel = desk.broker.schedules.cancel(schedule_id)
    (shard,) = [one for one in desk.broker.schedules.shards if one.log.agenda.count()]
    shard.changes.close()
    desk.run_for(FLIGHT_MS_MAX // 10)
    assert cancel.is_done
    with pytest.raises(RequestTimedOut):
        desk.wait(cancel)


def test_after_a_crash_nothing_that_was_released_is_released_again(desk: Desk) -> None:
    desk.later(*range(100, 140))
    desk.run_for(120)
    desk.restart_after_crash()
    desk.run_for(3_000)
    assert sorted(desk.values("orders")) == sorted(b"%d" % one for one in range(100, 140))


def test_after_a_start_only_a_few_batches_are_searched_in_one_turn(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    due_ms = desk.now_ms + 60_000
    for _ in range(200):
        delayed = [Delayed(Record(None, b"v"), due_ms)] * 2
        desk.wait(desk.broker.schedules.schedule("orders", delayed))
    desk.stop()
    desk.start()
    searches: list[int] = []
    take = Releaser._take

    def counted(releaser: Releaser, log: ScheduleLog, now_ms: int) -> bool:
        before = log.search_count
        has_more = take(releaser, log, now_ms)
        searches.append(log.search_count - before)
        return has_more

    monkeypatch.setattr(Releaser, "_take", counted)
    desk.run_for(62_000)
    assert desk.values("orders") == [b"v"] * 400
    assert sum(searches) == 200
    assert max(searches) == SEARCHES_MAX


def test_a_single_node_announces_nothing_and_its_logs_share_batches(desk: Desk) -> None:
    due_ms = desk.now_ms + 1_000
    for number in range(4):
        delayed = [Delayed(Record(None, b"%d" % number), due_ms)]
        desk.wait(desk.broker.schedules.schedule("orders", delayed))
    assert [shard.log.agenda.count() for shard in desk.broker.schedules.shards] == [1] * 4
    desk.run_for(2_000)
    log = desk.broker.topics.get("orders").partitions[0].log
    (batch,) = [header for header, _ in log.batches(0, until_offset=log.end_offset)]
    assert batch.record_count == 4
    assert not any(shard.log.agenda.intents for shard in desk.broker.schedules.shards)


def append(desk: Desk, value: bytes) -> None:
    """Append a record of a message to the schedule log that its owner has not written."""
    partition = desk.broker.topics.get(SCHEDULED_TOPIC).partition(0)
    record = Record(number_key(partition.end_offset), value)
    partition.append(memoryview(encode_batch([record])), now_ms=desk.now_ms)
    desk.run_for(SYNC_MS_MAX)


def test_a_record_that_cannot_be_decoded_hides_no_other_message() -> None:
    desk = Desk(schedules__partitions="1")
    desk.create("orders")
    desk.later(DAY_MS)
    append(desk, b"\x01nonsense")
    desk.later(DAY_MS)
    desk.restart_after_crash()
    assert desk.broker.schedules.shards.owned[0].log.agenda.count() == 2


def test_a_single_node_does_not_start_with_messages_of_a_later_release(desk: Desk) -> None:
    desk.later(DAY_MS)
    append(desk, b"\x02later")
    desk.crash()
    with pytest.raises(UnsupportedVersion, match=r"version 2.*upgrade this node"):
        desk.start()
