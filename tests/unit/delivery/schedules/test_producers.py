"""Producer states: which batches of a producer have been scheduled, and who may send more."""

from __future__ import annotations

import pytest

from goqueue.delivery.schedules import (
    forget_leader_epoch_record,
    forget_producer_record,
    leader_epoch_record,
    producer_key,
    producer_value,
)
from goqueue.delivery.schedules.records import (
    BATCHES_REMEMBERED,
    LeaderEpochs,
    ProducerBatch,
    ProducerStates,
    ScheduledMessage,
    replay_source,
)
from goqueue.model.batch import Record
from goqueue.model.errors import (
    CorruptBatch,
    FencedLeaderEpoch,
    FencedProducer,
    OutOfOrderSequence,
)

TOPIC = b"t" * 16
OTHER = b"u" * 16
SEQUENCE_MAX = 0x7FFFFFFF


def _note(
    producers: ProducerStates,
    number: int,
    *,
    base: int,
    last: int = -1,
    producer: int = 1,
    epoch: int = 0,
    topic: bytes = TOPIC,
    now_ms: int = 0,
) -> None:
    origin = ProducerBatch(producer, epoch, base, base if last < 0 else last)
    message = ScheduledMessage(1, topic, "orders", 0, None, None, origin=origin)
    state = producers.after(message, number, now_ms=now_ms)
    assert state is not None
    producers.put(state)


def test_a_batch_is_known_by_producer_epoch_sequence_and_partition() -> None:
    producers = ProducerStates()
    _note(producers, 11, base=0, last=1)
    assert producers.find(TOPIC, 0, ProducerBatch(1, 0, 0)) == 11
    for other in (ProducerBatch(2, 0, 0), ProducerBatch(1, 1, 0), ProducerBatch(1, 0, 2)):
        assert producers.find(TOPIC, 0, other) is None
    assert producers.find(TOPIC, 1, ProducerBatch(1, 0, 0)) is None
    assert producers.find(OTHER, 0, ProducerBatch(1, 0, 0)) is None


def test_a_batch_stored_long_ago_is_not_taken_for_a_new_one() -> None:
    producers = ProducerStates()
    for number in range(4 * BATCHES_REMEMBERED):
        _note(producers, number, base=10 + 5 * number, last=12 + 5 * number)
    newest = 4 * BATCHES_REMEMBERED - 1
    for one in (producers, ProducerStates(producers.state())):
        assert one.find(TOPIC, 0, ProducerBatch(1, 0, 10 + 5 * newest)) == newest
        for number in range(newest):
            assert one.find(TOPIC, 0, ProducerBatch(1, 0, 10 + 5 * number)) is not None
        # Between two of them there may have been batches without delayed records; after the newest
        # there may be anything.
        assert one.find(TOPIC, 0, ProducerBatch(1, 0, 10 + 5 * newest + 3)) is None
        assert one.find(TOPIC, 0, ProducerBatch(1, 0, 10 + 5 * newest + 500)) is None


def test_what_comes_before_the_first_batch_seen_is_refused() -> None:
    producers = ProducerStates()
    _note(producers, 1, base=50)
    with pytest.raises(OutOfOrderSequence):
        producers.find(TOPIC, 0, ProducerBatch(1, 0, 30))


def test_sequence_numbers_begin_again() -> None:
    producers = ProducerStates()
    _note(producers, 1, base=SEQUENCE_MAX - 1, last=SEQUENCE_MAX)
    assert producers.find(TOPIC, 0, ProducerBatch(1, 0, 0)) is None
    _note(producers, 2, base=0, last=3)
    for base in range(4, 4 + BATCHES_REMEMBERED):
        _note(producers, base, base=base)
    assert producers.find(TOPIC, 0, ProducerBatch(1, 0, SEQUENCE_MAX - 1)) is not None
    assert producers.find(TOPIC, 0, ProducerBatch(1, 0, 100)) is None


def test_a_new_epoch_fences_the_old_one() -> None:
    producers = ProducerStates()
    _note(producers, 1, base=5)
    _note(producers, 2, base=0, epoch=1)
    with pytest.raises(FencedProducer):
        producers.find(TOPIC, 0, ProducerBatch(1, 0, 5))
    assert producers.find(TOPIC, 0, ProducerBatch(1, 1, 0)) == 2
    assert producers.find(TOPIC, 0, ProducerBatch(1, 1, 1)) is None


def test_a_batch_that_was_aborted_is_not_stored_any_more() -> None:
    producers = ProducerStates()
    _note(producers, 10, base=0)
    _note(producers, 20, base=1)
    _note(producers, 30, base=0, producer=2)
    producers.forget_aborted(1, [(15, 25)])
    assert producers.find(TOPIC, 0, ProducerBatch(1, 0, 1)) is None
    assert producers.find(TOPIC, 0, ProducerBatch(1, 0, 0)) == 10
    producers.forget_aborted(1, [(0, 12)])
    assert producers.find(TOPIC, 0, ProducerBatch(1, 0, 0)) is None
    assert producers.find(TOPIC, 0, ProducerBatch(2, 0, 0)) == 30


def test_silent_producers_those_of_deleted_topics_and_too_many_are_forgotten() -> None:
    producers = ProducerStates()
    for producer in range(6):
        _note(producers, 1, producer=producer, base=0, now_ms=producer)
    _note(producers, 1, producer=9, base=0, topic=OTHER, now_ms=9)
    _note(producers, 1, producer=0, base=1, now_ms=10)

    def gone(before_ms: int, states_max: int) -> set[int]:
        keys = producers.expired(
            before_ms=before_ms, states_max=states_max, is_known=lambda topic_id: topic_id == TOPIC
        )
        return {producer for _, _, producer in keys}

    assert gone(0, 100) == {9}
    assert gone(3, 100) == {9, 1, 2}
    assert gone(0, 2) == {9, 1, 2, 3, 4}


def test_a_former_leader_is_turned_away_by_what_was_seen_or_is_known() -> None:
    epochs = LeaderEpochs()
    source = (TOPIC, 0)
    assert epochs.check(source, 5, known=-1)
    epochs.put(source, 5)
    assert not epochs.check(source, 5, known=5)
    assert epochs.check(source, 6, known=5)
    for epoch, known in ((4, -1), (5, 6), (4, 6)):
        with pytest.raises(FencedLeaderEpoch):
            epochs.check(source, epoch, known=known)
    assert epochs.check((TOPIC, 1), 1, known=1)
    assert epochs.expired(is_known=lambda _: True) == []
    assert epochs.expired(is_known=lambda _: False) == [source]
    assert LeaderEpochs(epochs.state()).get(source) == 5


def test_records_say_it_all_again() -> None:
    producers, epochs = ProducerStates(), LeaderEpochs()
    for number in range(7):
        _note(producers, number, base=number)
    (state,) = producers.state()
    again = ProducerStates()
    assert replay_source(Record(producer_key(state.key), producer_value(state)), again, epochs)
    assert again.state() == producers.state()
    assert replay_source(leader_epoch_record((TOPIC, 3), 7, 0), again, epochs)
    assert epochs.get((TOPIC, 3)) == 7
    assert replay_source(forget_producer_record(state.key, 0), again, epochs)
    assert replay_source(forget_leader_epoch_record((TOPIC, 3), 0), again, epochs)
    assert not len(again)
    assert not len(epochs)
    assert not replay_source(Record(None, b""), again, epochs)
    assert not replay_source(Record(b"lane" + bytes(20), b""), again, epochs)


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x01", b"\x01\xc1"])
def test_damaged_records_are_named_as_such(value: bytes) -> None:
    for key in (producer_key((TOPIC, 0, 1)), leader_epoch_record((TOPIC, 0), 1, 0).key):
        with pytest.raises(CorruptBatch):
            replay_source(Record(key, value), ProducerStates(), LeaderEpochs())
