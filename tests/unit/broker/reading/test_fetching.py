"""Long polls: as much as is asked for, now or when it has come; and nobody waits for ever."""

from __future__ import annotations

from typing import Any

import pytest

from goqueue.broker.reading.fetching import Fetch, Fetched, Wanted
from goqueue.model.batch import Record, encode_batch
from goqueue.model.errors import (
    FencedLeaderEpoch,
    GoQueueError,
    OffsetOutOfRange,
    StorageFailed,
    UnknownTopic,
)
from goqueue.partition import Partition
from tests.unit.broker.node import Node

TOPIC = "orders"
WAIT_MS = 500
BATCH_BYTES = len(encode_batch([Record(None, b"0123456789", timestamp_ms=1)]))


class Reader:
    """A node with three partitions, and what a consumer gets from them."""

    def __init__(self, **settings: str) -> None:
        self.node = Node(**settings)
        self.node.create(TOPIC, 3)
        self.answers: list[list[Fetched]] = []

    def partition(self, number: int) -> Partition:
        return self.node.broker.topics.get(TOPIC).partition(number)

    def write(self, *numbers: int) -> None:
        """Store one batch of BATCH_BYTES in each of the partitions."""
        for number in numbers:
            self.node.produce(TOPIC, ["0123456789"], partition=number)

    def fetch(
        self,
        *places: tuple[int, int],
        bytes_min: int = 1,
        bytes_max: int = 1 << 20,
        wait_ms: int = WAIT_MS,
        partition_bytes_max: int = 1 << 20,
        also: GoQueueError | None = None,
        leader_epoch: int = -1,
    ) -> Fetch:
        wanted = [
            Wanted(self.partition(number), offset, partition_bytes_max, leader_epoch)
            for number, offset in places
        ]
        if also is not None:
            wanted.append(Wanted(also, 0, 1 << 20))
        return self.node.broker.reads.fetch(
            wanted,
            bytes_min=bytes_min,
            bytes_max=bytes_max,
            wait_ms=wait_ms,
            done=self.answers.append,
        )

    @property
    def sizes(self) -> list[int]:
        """How many batches the only answer has, for each partition."""
        (answer,) = self.answers
        return [0 if one.batches is None else one.batches.length // BATCH_BYTES for one in answer]

    @property
    def watchers(self) -> int:
        return sum(len(one.watchers) for one in self.node.broker.topics.get(TOPIC).partitions)


def test_what_is_there_is_answered_at_once() -> None:
    reader = Reader()
    reader.write(0, 0, 2)
    reader.fetch((0, 0), (1, 0), (2, 0))
    assert reader.sizes == [2, 0, 1]
    assert reader.watchers == 0


def test_nothing_new_is_waited_for_and_answered_when_it_comes() -> None:
    reader = Reader()
    reader.write(0)
    reader.fetch((0, 1), (1, 0))
    assert (reader.answers, reader.watchers) == ([], 2)
    reader.write(1)
    reader.node.run_for(1)
    assert reader.sizes == [0, 1]
    assert reader.watchers == 0


def test_waiting_ends_when_its_time_is_over() -> None:
    reader = Reader()
    reader.fetch((0, 0))
    reader.node.run_for(WAIT_MS - 1)
    assert reader.answers == []
    reader.node.run_for(1)
    assert reader.sizes == [0]
    assert reader.watchers == 0
    reader.write(0)
    assert len(reader.answers) == 1


@pytest.mark.parametrize("wait_ms", [0, -1])
def test_who_does_not_want_to_wait_is_answered_with_nothing(wait_ms: int) -> None:
    reader = Reader()
    reader.fetch((0, 0), wait_ms=wait_ms)
    assert reader.sizes == [0]


def test_who_wants_nothing_is_answered_at_once() -> None:
    reader = Reader()
    reader.fetch()
    assert reader.answers == [[]]


def test_less_than_the_least_is_waited_for_too() -> None:
    reader = Reader()
    reader.write(0)
    reader.fetch((0, 0), (1, 0), bytes_min=3 * BATCH_BYTES)
    assert reader.answers == []
    reader.write(1)
    reader.node.run_for(1)
    assert reader.answers == [], "two of three"
    reader.write(0)
    reader.node.run_for(1)
    assert reader.sizes == [2, 1]


def test_less_than_the_least_is_handed_out_when_the_time_is_over() -> None:
    reader = Reader()
    reader.write(0)
    reader.fetch((0, 0), bytes_min=3 * BATCH_BYTES)
    reader.node.run_for(WAIT_MS)
    assert reader.sizes == [1]


def test_records_count_when_they_are_committed_not_when_they_are_written() -> None:
    reader = Reader()
    reader.fetch((0, 0))
    reader.node.append(reader.partition(0), [Record(None, b"x", timestamp_ms=1)], lambda _: None)
    assert reader.answers == []
    reader.node.run_for(10)
    assert len(reader.answers) == 1


def test_one_round_of_syncing_is_one_answer() -> None:
    reader = Reader()
    reader.fetch((0, 0), (1, 0), (2, 0))
    for number in range(3):
        record = Record(None, b"0123456789", timestamp_ms=1)
        reader.node.append(reader.partition(number), [record], lambda _: None)
    reader.node.run_for(20)
    assert reader.sizes == [1, 1, 1]


# How much


def test_the_most_is_the_most_for_all_partitions_together() -> None:
    reader = Reader()
    reader.write(0, 0, 1, 1, 2)
    reader.fetch((0, 0), (1, 0), (2, 0), bytes_max=3 * BATCH_BYTES)
    assert reader.sizes == [2, 1, 0]


def test_every_partition_has_a_most_of_its_own() -> None:
    reader = Reader()
    reader.write(0, 0, 1, 1, 2)
    reader.fetch((0, 0), (1, 0), (2, 0), partition_bytes_max=BATCH_BYTES)
    assert reader.sizes == [1, 1, 1]


@pytest.mark.parametrize("most", [-5, 0, 1, BATCH_BYTES - 1])
def test_the_first_batch_is_handed_out_however_small_the_most_is(most: int) -> None:
    reader = Reader()
    reader.write(1, 1, 2)
    reader.fetch((0, 0), (1, 0), (2, 0), bytes_max=most, partition_bytes_max=most)
    assert reader.sizes == [0, 1, 0]


def test_a_later_batch_that_does_not_fit_any_more_is_left_for_the_next_time() -> None:
    reader = Reader()
    reader.write(0, 1)
    reader.fetch((0, 0), (1, 0), bytes_max=2 * BATCH_BYTES - 1)
    assert reader.sizes == [1, 0]


def test_a_partition_without_room_still_tells_its_watermark() -> None:
    reader = Reader()
    reader.write(0, 1)
    reader.fetch((0, 0), (1, 0), bytes_max=1)
    assert reader.answers[0][1].partition is reader.partition(1)


# Errors


def test_an_error_is_answered_at_once_with_what_the_others_have() -> None:
    reader = Reader()
    reader.write(0)
    gone = UnknownTopic("nowhere")
    reader.fetch((0, 0), (1, 0), also=gone, bytes_min=1 << 20)
    assert [one.error for one in reader.answers[0]] == [None, None, gone]
    assert reader.sizes == [1, 0, 0]
    assert reader.watchers == 0


def test_an_error_is_told_though_there_is_no_room_left() -> None:
    reader = Reader()
    reader.write(0)
    gone = UnknownTopic("nowhere")
    reader.fetch((0, 0), also=gone, bytes_max=1)
    assert [one.error for one in reader.answers[0]] == [None, gone]


@pytest.mark.parametrize("offset", [-1, 2])
def test_an_offset_out_of_range_is_answered_at_once(offset: int) -> None:
    reader = Reader()
    reader.write(0)
    reader.fetch((0, offset))
    assert isinstance(reader.answers[0][0].error, OffsetOutOfRange)


def test_a_wrong_epoch_is_answered_at_once() -> None:
    reader = Reader()
    reader.partition(0).leader_epoch = 3
    reader.fetch((0, 0), leader_epoch=2)
    assert isinstance(reader.answers[0][0].error, FencedLeaderEpoch)


def test_a_disk_that_cannot_be_read_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader()
    reader.write(0)

    def broken(*_: Any, **__: Any) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(type(reader.partition(0).log), "read", broken)
    reader.fetch((0, 0))
    assert isinstance(reader.answers[0][0].error, StorageFailed)


def test_who_waits_for_a_topic_that_is_deleted_is_told_so() -> None:
    reader = Reader()
    reader.fetch((0, 0), (1, 0), bytes_min=1000)
    reader.node.wait(reader.node.broker.topics.delete(TOPIC))
    reader.node.run_for(1)
    assert [type(one.error) for one in reader.answers[0]] == [UnknownTopic, UnknownTopic]


# Hanging up


def test_a_cancelled_poll_leaves_nobody_behind_and_is_never_answered() -> None:
    reader = Reader()
    poll = reader.fetch((0, 0), (1, 0))
    poll.cancel()
    assert reader.watchers == 0
    reader.write(0)
    reader.node.run_for(2 * WAIT_MS)
    assert reader.answers == []


def test_a_poll_that_is_cancelled_when_its_answer_is_due_is_not_answered() -> None:
    reader = Reader()
    poll = reader.fetch((0, 0))
    poll.partition_advanced(reader.partition(0))
    poll.cancel()
    reader.node.run_for(2 * WAIT_MS)
    assert reader.answers == []


def test_cancelling_twice_or_after_the_answer_does_no_harm() -> None:
    reader = Reader()
    reader.write(0)
    poll = reader.fetch((0, 0))
    poll.cancel()
    poll.cancel()
    assert len(reader.answers) == 1


def test_a_poll_may_name_a_partition_twice() -> None:
    reader = Reader()
    reader.fetch((0, 0), (0, 0))
    reader.write(0)
    reader.node.run_for(1)
    assert reader.sizes == [1, 1]
    assert reader.watchers == 0
