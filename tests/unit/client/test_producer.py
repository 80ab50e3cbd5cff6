"""What a producer promises when brokers refuse, forget and hang up."""

from __future__ import annotations

import pytest

from goqueue.client import (
    ACKS_LEADER,
    ACKS_NONE,
    Producer,
    ProducerSettings,
    ProducerTransaction,
    Stored,
)
from goqueue.client.partitioner import partition_of_key
from goqueue.model.batch import NO_PRODUCER, Record, check_batch
from goqueue.model.errors import (
    GoQueueError,
    InvalidRequest,
    OutOfOrderSequence,
    RecordTooLarge,
    UnknownPartition,
    UnknownTopic,
)
from goqueue.model.names import ProducerIdentity, TopicPartition
from tests.unit.client.fake_broker import (
    LOSE_ANSWER,
    LOSE_REQUEST,
    NOT_LEADER,
    OUT_OF_ORDER,
    REFUSE,
    FakeBroker,
    Fault,
)

ZERO = TopicPartition("orders", 0)
ONE_EACH = ProducerSettings(batch_records_max=1)  # every record is a batch of its own


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


def values(broker: FakeBroker, partition: TopicPartition = ZERO) -> list[bytes | None]:
    return [record.value for record in broker.records(partition)]


def send(producer: Producer, *texts: bytes) -> list[Stored]:
    deliveries = [producer.send("orders", text, partition=0) for text in texts]
    return [delivery.result() for delivery in deliveries]


def test_a_record_is_stored_where_its_key_belongs(broker: FakeBroker) -> None:
    producer = Producer(broker.cluster(), now_ms=lambda: 77)
    stored = producer.send("orders", b"v", key=b"k", headers=[("h", b"1")]).result()
    partition = partition_of_key(b"k", 3)
    assert stored == Stored("orders", partition, 0, 77)
    (record,) = broker.records(TopicPartition("orders", partition))
    assert (record.key, record.value, record.headers, record.timestamp_ms) == (
        b"k",
        b"v",
        (("h", b"1"),),
        77,
    )


def test_offsets_count_up_within_a_batch(broker: FakeBroker) -> None:
    stored = send(Producer(broker.cluster()), b"a", b"b", b"c")
    assert [each.offset for each in stored] == [0, 1, 2]
    assert len(broker.produce_requests) == 1


def test_a_slow_caller_is_not_held_back_by_the_linger(broker: FakeBroker) -> None:
    producer = Producer(broker.cluster(), ProducerSettings(linger_ms=100))
    producer.send("orders", b"a", partition=0)
    broker.clock.now += 0.2
    producer.send("orders", b"b", partition=1)
    assert values(broker) == [b"a"]


def test_several_requests_are_on_their_way_at_once(broker: FakeBroker) -> None:
    producer = Producer(broker.cluster(), ONE_EACH)
    deliveries = [producer.send("orders", b"%d" % number, partition=0) for number in range(9)]
    assert [delivery.is_done() for delivery in deliveries] == [True] * 4 + [False] * 5
    producer.flush()
    assert all(delivery.is_done() for delivery in deliveries)


@pytest.mark.parametrize("kind", [LOSE_REQUEST, LOSE_ANSWER])
@pytest.mark.parametrize("when", range(8))
def test_a_broken_connection_loses_nothing_and_stores_nothing_twice(
    broker: FakeBroker, kind: str, when: int
) -> None:
    broker.faults.extend([None] * when + [Fault(kind)])
    texts = [b"%d" % number for number in range(8)]
    producer = Producer(broker.cluster(), ONE_EACH)
    stored = send(producer, *texts)
    assert values(broker) == texts
    assert [each.offset for each in stored] == list(range(8))


@pytest.mark.parametrize("when", range(8))
def test_records_keep_their_order_when_a_leader_moves(broker: FakeBroker, when: int) -> None:
    broker.faults.extend([None] * when + [Fault(REFUSE, NOT_LEADER)] * 3)
    texts = [b"%d" % number for number in range(12)]
    send(Producer(broker.cluster(), ONE_EACH), *texts)
    assert values(broker) == texts
    assert broker.clock.slept


def test_many_partitions_recover_side_by_side(broker: FakeBroker) -> None:
    broker.faults.extend([None, Fault(LOSE_ANSWER), Fault(REFUSE, NOT_LEADER), Fault(LOSE_REQUEST)])
    producer = Producer(broker.cluster(), ONE_EACH)
    for number in range(30):
        producer.send("orders", b"%d" % number, partition=number % 3)
    producer.flush()
    for index in range(3):
        expected = [b"%d" % number for number in range(index, 30, 3)]
        assert values(broker, TopicPartition("orders", index)) == expected


def test_a_refused_record_fails_alone(broker: FakeBroker) -> None:
    broker.batch_bytes_max = 500
    producer = Producer(broker.cluster(), ONE_EACH)
    small = [producer.send("orders", b"%d" % number, partition=0) for number in range(2)]
    large = producer.send("orders", b"x" * 1000, partition=0)
    small += [producer.send("orders", b"%d" % number, partition=0) for number in range(2, 5)]
    with pytest.raises(RecordTooLarge):
        producer.flush()
    with pytest.raises(RecordTooLarge):
        large.result()
    assert [delivery.result().offset for delivery in small] == [0, 1, 2, 3, 4]
    assert values(broker) == [b"0", b"1", b"2", b"3", b"4"]
    producer.flush()  # a failure is told once


def test_after_a_refusal_the_partition_goes_on(broker: FakeBroker) -> None:
    broker.batch_bytes_max = 500
    producer = Producer(broker.cluster())
    with pytest.raises(RecordTooLarge):
        producer.send("orders", b"x" * 1000, partition=0).result()
    assert [each.offset for each in send(producer, b"a", b"b")] == [0, 1]


def test_a_broker_that_forgot_the_producer_gets_a_new_one(broker: FakeBroker) -> None:
    producer = Producer(broker.cluster(), ONE_EACH)
    send(producer, b"a")
    broker.faults.append(Fault(REFUSE, OUT_OF_ORDER))
    send(producer, b"b", b"c")
    assert values(broker) == [b"a", b"b", b"c"]
    assert len({check_batch(batch).producer_id for batch in broker.logs[ZERO]}) == 2


def test_a_record_that_may_be_stored_is_not_sent_under_a_new_name(broker: FakeBroker) -> None:
    producer = Producer(broker.cluster(), ONE_EACH)
    send(producer, b"a")
    broker.faults.extend([Fault(LOSE_ANSWER), Fault(REFUSE, OUT_OF_ORDER)])
    with pytest.raises(GoQueueError):
        send(producer, b"b")
    assert values(broker) == [b"a", b"b"]


def test_a_broker_that_stays_away_is_given_up_after_a_time(broker: FakeBroker) -> None:
    producer = Producer(broker.cluster(), ProducerSettings(delivery_ms_max=10_000))
    send(producer, b"a")
    broker.is_up = False
    delivery = producer.send("orders", b"b", partition=0)
    with pytest.raises(GoQueueError) as caught:
        delivery.result()
    assert caught.value.retryable
    assert 10 <= sum(broker.clock.slept) <= 12
    broker.is_up = True
    assert send(producer, b"c")[0].offset == 1


def test_records_of_a_transaction_are_marked_and_numbered_as_its_producer_says(
    broker: FakeBroker,
) -> None:
    transaction = ProducerTransaction("writer", ProducerIdentity(42, 7))
    producer = Producer(broker.cluster(), ONE_EACH, transaction=transaction)
    send(producer, b"a", b"b")
    headers = [check_batch(batch) for batch in broker.logs[ZERO]]
    assert [
        (one.producer_id, one.producer_epoch, one.base_sequence, one.is_transactional)
        for one in headers
    ] == [(42, 7, 0, True), (42, 7, 1, True)]
    assert {one.transactional_id for one in broker.produce_requests} == {"writer"}


def test_a_transaction_that_has_lost_a_record_goes_on_under_no_other_name(
    broker: FakeBroker,
) -> None:
    transaction = ProducerTransaction("writer", ProducerIdentity(42, 7))
    producer = Producer(broker.cluster(), ONE_EACH, transaction=transaction)
    send(producer, b"a")
    broker.faults.append(Fault(REFUSE, OUT_OF_ORDER))
    producer.send("orders", b"b", partition=0)
    with pytest.raises(OutOfOrderSequence):
        producer.flush()
    assert values(broker) == [b"a"]
    with pytest.raises(InvalidRequest):
        Producer(broker.cluster(), ProducerSettings(is_idempotent=False), transaction=transaction)


def test_without_acks_nothing_is_waited_for(broker: FakeBroker) -> None:
    settings = ProducerSettings(acks=ACKS_NONE, is_idempotent=False)
    (stored,) = send(Producer(broker.cluster(), settings), b"a")
    assert (stored.offset, values(broker)) == (-1, [b"a"])


def test_a_plain_producer_has_no_sequence(broker: FakeBroker) -> None:
    settings = ProducerSettings(acks=ACKS_LEADER, is_idempotent=False)
    broker.faults.append(Fault(REFUSE, NOT_LEADER))
    send(Producer(broker.cluster(), settings), b"a")
    assert check_batch(broker.logs[ZERO][0]).producer_id == NO_PRODUCER
    assert broker.producer_ids == 0


def test_an_unknown_topic_is_waited_for_only_briefly(broker: FakeBroker) -> None:
    with pytest.raises(UnknownTopic):
        Producer(broker.cluster()).send("nope", b"a")
    assert sum(broker.clock.slept) <= 3


def test_a_partition_that_is_not_there_is_refused_at_once(broker: FakeBroker) -> None:
    with pytest.raises(UnknownPartition):
        Producer(broker.cluster()).send("orders", b"a", partition=3)


def test_many_records_at_once_fill_batches_as_single_ones_do() -> None:
    texts = [b"%03d" % number for number in range(250)]
    for settings in (
        ProducerSettings(batch_records_max=100),
        ProducerSettings(batch_bytes_max=2000),
    ):
        one_by_one, at_once = FakeBroker(), FakeBroker()
        with Producer(one_by_one.cluster(), settings) as producer:
            for text in texts:
                producer.send("orders", text, partition=0, timestamp_ms=1)
        with Producer(at_once.cluster(), settings) as producer:
            producer.send_all(ZERO, [Record(None, text, (), 1) for text in texts[:120]])
            producer.send_all(ZERO, [Record(None, text, (), 1) for text in texts[120:]])
            producer.send_all(ZERO, [])
        assert values(at_once) == texts
        sizes = [len(batch) for batch in at_once.logs[ZERO]]
        assert sizes == [len(batch) for batch in one_by_one.logs[ZERO]]
        assert len(sizes) > 2


def test_closing_sends_what_is_left(broker: FakeBroker) -> None:
    with Producer(broker.cluster()) as producer:
        producer.send("orders", b"a", partition=0)
    assert values(broker) == [b"a"]


@pytest.mark.parametrize(
    "settings", [{"acks": 2}, {"acks": ACKS_LEADER}, {"in_flight_max": 6}, {"in_flight_max": 0}]
)
def test_settings_that_cannot_keep_their_promise_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(InvalidRequest):
        ProducerSettings(**settings)  # type: ignore[arg-type]
