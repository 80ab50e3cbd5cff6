"""`goqueue.Client` against a real broker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from goqueue import Client, HttpSettings, Outgoing, RetrySettings
from goqueue.client.http import (
    LetterFilter,
    PartlyPublished,
    ReceivedMessage,
    Unreachable,
)
from goqueue.client.http.areas import Queue
from goqueue.model.errors import (
    InvalidPartitionCount,
    InvalidReceipt,
    ScheduleReleased,
    StaleReceipt,
    TopicExists,
    UnknownPartition,
    UnknownSchedule,
    UnknownTopic,
)

from .ports import quiet_port
from .process import Broker
from .waiting import eventually


@pytest.fixture
def api(broker: Broker) -> Iterator[Client]:
    with Client(broker.http) as client:
        yield client


@pytest.fixture
def topic(api: Client, unique: str) -> Iterator[str]:
    api.topics.create(unique, partitions=2)
    yield unique
    api.topics.delete(unique)


# Topics


@pytest.mark.on_cluster
def test_topics_are_administered(api: Client, unique: str) -> None:
    made = api.topics.create(unique, partitions=2, settings={"retention_ms": 60_000})
    assert (made.partitions, made.settings) == (2, {"retention_ms": 60_000})
    with pytest.raises(TopicExists, match="already exists"):
        api.topics.create(unique)
    assert unique in [one.name for one in api.topics.list_all(prefix=unique[:10])]
    assert api.topics.configure(unique, {"retention_ms": None}).settings == {}
    assert len(api.topics.grow(unique, partitions=4)) == 4
    with pytest.raises(InvalidPartitionCount):
        api.topics.grow(unique, partitions=1)
    api.publish_many(unique, [Outgoing(str(number), partition=1) for number in range(5)])
    assert [one.end_offset for one in api.topics.partitions(unique)] == [0, 5, 0, 0]
    deleted = api.topics.delete_records(unique, partition=1, before_offset=3)
    assert [(one.partition, one.start_offset) for one in deleted] == [(1, 3)]
    api.topics.delete(unique)
    with pytest.raises(UnknownTopic):
        api.topics.describe(unique)


def test_a_node_tells_how_it_is(api: Client) -> None:
    assert api.node.health().status == "ok"
    assert api.node.version().api == "v1"


def test_a_broker_that_is_not_there_is_named() -> None:
    address = f"127.0.0.1:{quiet_port()}"
    settings = HttpSettings(retry=RetrySettings(retries_max=1, backoff_ms_min=1))
    with Client(address, settings) as client, pytest.raises(Unreachable, match=address):
        client.topics.list_all()


# Publishing and reading


@pytest.mark.parametrize("content", [b"", b"text", "täxt", b"\xff\x00\xfe", b"\x00", None])
def test_what_is_published_is_read_again(
    api: Client, topic: str, content: bytes | str | None
) -> None:
    raw = content.encode() if isinstance(content, str) else content
    published = api.publish(topic, content, key=content, headers=[("h", content), ("h", "2")])
    assert published.partition is not None
    assert published.offset is not None
    message = api.read_one(topic, partition=published.partition, offset=published.offset)
    assert (message.key, message.value) == (raw, raw)
    assert message.headers == (("h", raw), ("h", b"2"))
    assert message.id == published.id


def test_a_list_is_published_in_order_and_read_in_pages(api: Client, topic: str) -> None:
    values = [str(number) for number in range(2500)]
    published = api.publish_many(topic, [Outgoing(one, partition=1) for one in values])
    assert [one.offset for one in published] == list(range(2500))
    assert [one.text for one in api.read(topic)] == values
    assert [one.text for one in api.read(topic, partition=1, offset=2490)] == values[2490:]
    assert [one.text for one in api.read(topic, limit=3)] == values[:3]


def test_a_list_that_is_partly_refused_says_what_was_published(api: Client, topic: str) -> None:
    with pytest.raises(PartlyPublished) as caught:
        api.publish_many(topic, ["good", Outgoing("bad", partition=99)])
    good, bad = caught.value.outcomes
    assert not isinstance(good, Exception)
    assert isinstance(bad, UnknownPartition)
    assert [one.text for one in api.read(topic)] == ["good"]


def test_reading_by_time(api: Client, topic: str) -> None:
    begin = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
    for minute in range(5):
        moment = int((begin + timedelta(minutes=minute)).timestamp() * 1000)
        api.publish(topic, str(minute), timestamp_ms=moment, partition=0)
    found = api.read(
        topic,
        from_=begin + timedelta(minutes=1),
        until=(begin + timedelta(minutes=3)).isoformat(),
        partition=0,
    )
    assert [one.text for one in found] == ["1", "2"]


def test_a_reader_goes_on_where_another_one_stopped(api: Client, topic: str) -> None:
    api.publish_many(topic, [str(number) for number in range(50)])
    first = api.read(topic)
    some = [next(first).text for _ in range(20)]
    rest = [one.text for one in api.read(topic, cursor=first.cursor)]
    assert sorted(some + rest, key=int) == [str(number) for number in range(50)]


def test_a_follower_sees_what_comes_and_resumes(api: Client, topic: str) -> None:
    api.publish(topic, "before")
    follower = api.follow(topic, wait=1)
    seen: list[str] = []

    def follow() -> None:
        for message in follower:
            seen.append(message.text)
            if message.text == "last":
                return

    thread = threading.Thread(target=follow)
    thread.start()
    eventually(lambda: follower.cursor, because="the follower has found its place")
    api.publish(topic, "first")
    api.publish(topic, "last")
    thread.join(30)
    assert seen == ["first", "last"]
    api.publish(topic, "later")
    follower.close()
    again = api.follow(topic, cursor=follower.cursor, wait=1)
    assert next(again).text == "later"


def test_a_follower_reads_partitions_that_are_added(api: Client, topic: str) -> None:
    follower = api.follow(topic, wait=0.2)
    seen: list[str] = []

    def follow() -> None:
        seen.append(next(follower).text)

    thread = threading.Thread(target=follow)
    thread.start()
    eventually(lambda: follower.cursor, because="the follower has found its place")
    api.topics.grow(topic, partitions=5)
    api.publish(topic, "new", partition=4)
    thread.join(30)
    assert seen == ["new"]


def test_a_producer_batches_and_tells_each_message_where_it_is(api: Client, topic: str) -> None:
    with api.producer() as producer:
        futures = [producer.send(topic, str(number), key="k") for number in range(3000)]
    offsets = [future.result().offset for future in futures]
    assert offsets == list(range(3000))
    assert [one.text for one in api.read(topic)] == [str(number) for number in range(3000)]


# Schedules


@pytest.mark.on_cluster
def test_a_delayed_message_waits_can_be_moved_and_taken_back(api: Client, topic: str) -> None:
    published = api.publish(topic, b"\xff", key="k", delay=timedelta(hours=1))
    assert published.is_scheduled
    schedule_id = published.schedule_id or ""
    waiting = api.schedules.get(schedule_id)
    assert (waiting.topic, waiting.value, waiting.key) == (topic, b"\xff", b"k")
    assert waiting.deliver_at_ms == published.deliver_at_ms
    assert api.schedules.count(topic=topic) == 1
    assert [one.id for one in api.schedules.list_all(topic=topic)] == [schedule_id]
    later = datetime(2040, 1, 1, tzinfo=UTC)
    assert api.schedules.reschedule(schedule_id, deliver_at=later) == 2_208_988_800_000
    assert api.schedules.count(topic=topic, until=later) == 0
    api.schedules.cancel(schedule_id)
    with pytest.raises((UnknownSchedule, ScheduleReleased)):
        api.schedules.cancel(schedule_id)
    (refusal,) = api.schedules.cancel_many([schedule_id])
    assert isinstance(refusal, UnknownSchedule)
    assert api.schedules.stats().cancelled >= 1
    assert list(api.read(topic)) == []


def test_a_delayed_message_appears_in_time(api: Client, topic: str) -> None:
    published = api.publish(topic, "late", delay=0.3)
    message = next(api.follow(topic, from_="earliest", wait=10))
    assert message.text == "late"
    assert message.timestamp_ms >= (published.deliver_at_ms or 0)


# Queue groups


@pytest.mark.on_cluster
def test_each_message_of_a_queue_is_settled_by_its_receipt(
    api: Client, topic: str, group: str
) -> None:
    api.publish_many(topic, [Outgoing(str(number), key="k") for number in range(4)])
    queue = api.queue(topic, group=group)
    first, second, third, fourth = queue.receive(10, wait=5, visibility=60)
    assert [first.attempt, first.priority, first.group] == [1, "normal", group]
    queue.ack(first)
    queue.nack(second, delay=0)
    queue.reject(third, reason="torn")
    queue.extend(fourth, visibility=120)
    queue.ack(first)  # The same call once more has the same answer.
    assert [type(one) for one in queue.ack_many([fourth, "forged", third])] == [
        type(None),
        InvalidReceipt,
        StaleReceipt,
    ]
    [again] = queue.receive(10, wait=5)
    assert (again.text, again.attempt) == (second.text, 2)
    queue.ack_many([again])
    totals = queue.stats().totals
    assert (totals.acked, totals.nacked, totals.rejected) == (3, 1, 1)
    assert queue.receive(10) == []


def test_urgent_messages_come_first(api: Client, topic: str, group: str) -> None:
    queue = api.queue(topic, group=group)
    assert queue.receive(1) == []
    api.publish_many(
        topic,
        [Outgoing("slow", priority="background"), Outgoing("now", priority="critical")],
    )
    # In a cluster the owner of a queue may hear of one a moment before the other.
    eventually(lambda: queue.stats().ready == 2)
    assert queue.receive(1, wait=5)[0].text == "now"
    assert {one.lane: one.stored for one in api.topics.lanes(topic).lanes}["background"] == 1


@pytest.mark.on_cluster
def test_a_queue_is_looked_at_rewound_and_purged(api: Client, topic: str, group: str) -> None:
    api.publish_many(topic, [Outgoing(str(number), partition=0) for number in range(3)])
    queue = api.queue(topic, group=group, consumer="me")
    received = queue.receive(2, wait=5)
    queue.ack(received[0])
    states = [(one.text, one.state, one.consumer) for one in queue.peek(partition=0, offset=0)]
    assert states == [("0", "done", None), ("1", "leased", "me"), ("2", "ready", None)]
    assert api.groups.lag(group).lag == 2
    queue.rewind("earliest")
    assert len(queue.receive(10, wait=5)) == 3
    queue.rewind(offsets={0: 2})
    assert [one.text for one in queue.receive(10, wait=5)] == ["2"]
    assert queue.purge()[0] == 3
    assert queue.receive(10) == []


def test_groups_are_made_changed_listed_and_deleted(api: Client, topic: str, group: str) -> None:
    made = api.groups.put_queue(group, {"deliveries_max": 1, "visibility_ms": 500})
    assert (made.settings.deliveries_max, made.settings.visibility_ms) == (1, 500)
    assert api.groups.describe(group) == made
    assert [one.kind for one in api.groups.list_all(prefix=group)] == ["queue"]
    api.groups.delete(group)
    assert api.groups.list_all(prefix=group) == []


@pytest.mark.on_cluster
def test_a_queue_is_served_wherever_its_messages_are(api: Client, unique: str, group: str) -> None:
    # In a cluster no node has a copy of every partition, whoever owns the group.
    api.topics.create(unique, partitions=6, replication=1)
    sent = {str(number) for number in range(60)}
    api.publish_many(unique, [Outgoing(one, key=one) for one in sent])
    queue = api.queue(unique, group=group)
    messages = _receive_all(queue, 60)
    assert {one.text for one in messages} == sent
    assert {one.partition for one in messages} == set(range(6))
    for message in messages:
        (queue.reject if int(message.text) % 10 == 0 else queue.ack)(message)
    letters = api.dead_letters(unique)
    eventually(lambda: letters.list_page().total == 6, because="six are dead")
    job = letters.redrive()
    eventually(lambda: letters.show_redrive(job.id).is_ended, because="they are brought back")
    assert {int(one.text) % 10 for one in _receive_all(queue, 6)} == {0}
    api.topics.delete(unique)
    api.topics.delete(f"{unique}.dlq")


@pytest.mark.on_cluster
def test_dead_letters_are_listed_and_brought_back(api: Client, topic: str, group: str) -> None:
    api.publish_many(topic, [Outgoing(str(number), key=str(number)) for number in range(6)])
    queue = api.queue(topic, group=group)
    for message in _receive_all(queue, 6):
        queue.reject(message, reason="torn" if int(message.text) % 2 else "odd")
    letters = api.dead_letters(topic)
    found = eventually(
        lambda: [one for one in letters.list_all() if letters.list_page().total == 6],
        because="all six are dead",
    )
    assert {(one.text, one.reason) for one in found} == {
        (str(number), "torn" if number % 2 else "odd") for number in range(6)
    }
    assert all(one.source is not None and one.source.group == group for one in found)
    torn = LetterFilter(reason="torn")
    assert len(list(letters.list_all(torn))) == 3
    assert letters.preview(torn).matching == 3
    job = letters.redrive(torn, rate_per_s=100)
    eventually(lambda: letters.show_redrive(job.id).is_ended, because="the job ends")
    ended = letters.show_redrive(job.id)
    assert (ended.state, ended.moved) == ("done", 3)
    assert [one.id for one in letters.redrives()] == [job.id]
    back = _receive_all(queue, 3)
    assert {one.text for one in back} == {"1", "3", "5"}
    assert {one.attempt for one in back} == {1}
    api.topics.delete(f"{topic}.dlq")


def _receive_all(queue: Queue, count: int) -> list[ReceivedMessage]:
    """Receive until so many messages are there."""
    messages: list[ReceivedMessage] = []

    def is_complete() -> bool:
        messages.extend(queue.receive(count, wait=1))
        return len(messages) >= count

    eventually(is_complete, because=f"{count} messages were received")
    assert len(messages) == count
    return messages
