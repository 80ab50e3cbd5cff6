"""What is sent again under one deduplication id is not stored again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from goqueue.broker.named_queues import sending as named_queue_sending
from goqueue.broker.named_queues.claims import NoClaims
from goqueue.broker.named_queues.deduplication_ids import RecentIds
from goqueue.broker.named_queues.named_queues import NamedQueueSpec, Posted, Posting
from goqueue.broker.named_queues.sending import QueueSender
from goqueue.broker.publishing.publisher import Outgoing, PublishResult
from goqueue.delivery.deduplication import WINDOW_MS
from goqueue.loop.promise import Promise
from goqueue.model.attributes import DEDUPLICATION_HEADER
from goqueue.model.batch import Header, Record
from goqueue.model.dead_letters import Origin, write_origin
from goqueue.model.errors import (
    DeduplicationFull,
    GoQueueError,
    InvalidRequest,
    RecordTooLarge,
    RequestTimedOut,
    UnknownGroup,
)
from goqueue.model.session import NOBODY, Session
from tests.unit.broker.node import Node

Results = Promise[list[Posted | GoQueueError]]


class Sending(Node):
    """A node with an ordered queue."""

    def prepare(self) -> None:
        spec = NamedQueueSpec("orders", is_ordered=True, queue_settings={"key_order": True})
        self.wait(self.broker.named_queues.create(spec))

    def begin(self, *ids: str, key: bytes = b"k", value: bytes = b"v", **options: Any) -> Results:
        queue = self.broker.named_queues.get("orders")
        postings = [
            Posting(Record(key, value), f"{one}-{self.turn}", deduplication_id=one, **options)
            for one in ids
        ]
        self.turn += 1
        return self.broker.named_queues.send(queue, postings)

    turn = 1

    def post(self, *ids: str, **options: Any) -> list[Any]:
        return self.wait(self.begin(*ids, **options))

    def stored(self) -> int:
        topic = self.broker.topics.get("orders")
        return sum(
            len(self.consume("orders", partition=one)) for one in range(len(topic.partitions))
        )


@pytest.fixture
def node() -> Sending:
    node = Sending(topics__partitions="3")
    node.prepare()
    return node


def test_the_second_of_an_id_is_told_of_the_first(node: Sending) -> None:
    assert node.post("a", "b") == [Posted("a-1", 0), Posted("b-1", 1)]
    assert node.post("b", "c") == [Posted("b-1", 1, is_duplicate=True), Posted("c-2", 2)]
    assert node.stored() == 3


def test_one_call_may_hold_an_id_twice(node: Sending) -> None:
    assert node.post("a", "a") == [Posted("a-1", 0), Posted("a-1", 0, is_duplicate=True)]
    assert node.stored() == 1


def test_of_two_that_come_at_the_same_time_the_second_waits_for_the_first(node: Sending) -> None:
    first, second = node.begin("a"), node.begin("a", "b")
    assert node.wait(second) == [Posted("a-1", 0, is_duplicate=True), Posted("b-2", 1)]
    assert node.wait(first) == [Posted("a-1", 0)]
    assert node.stored() == 2


def test_ids_count_in_the_whole_queue_or_for_each_key(node: Sending) -> None:
    node.post("a", key=b"one")
    assert node.post("a", key=b"two")[0].is_duplicate
    assert not node.post("a", key=b"two", scope="key")[0].is_duplicate
    assert node.post("a", key=b"one", scope="key")[0].is_duplicate
    assert node.post("a", key=b"two", scope="key")[0].is_duplicate
    assert node.post("a", key=b"three")[0].is_duplicate
    assert node.stored() == 2


@pytest.mark.parametrize("how", ["stop", "kill", "crash"])
def test_ids_are_known_after_a_restart_for_what_is_left_of_their_time(
    node: Sending, how: str
) -> None:
    node.post("a")
    node.run_for(WINDOW_MS - 60_000)
    node.post("b", key=b"other")
    getattr(node, how)()
    node.start()
    assert [one.is_duplicate for one in node.post("a", "b")] == [True, True]
    node.run_for(61_000)
    assert [one.is_duplicate for one in node.post("a", "b")] == [False, True]
    assert node.stored() == 3


def test_a_duplicate_does_not_make_an_id_last_longer(node: Sending) -> None:
    node.post("a")
    node.run_for(WINDOW_MS - 1000)
    assert node.post("a")[0].is_duplicate
    node.run_for(2000)
    assert not node.post("a")[0].is_duplicate


def test_many_pages_of_records_are_read_back(
    node: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("goqueue.broker.named_queues.deduplication_ids.PAGE_RECORDS_MAX", 7)
    ids = [f"n{number}" for number in range(100)]
    for at in range(0, 100, 10):
        node.post(*ids[at : at + 10], key=b"%d" % at)
    node.produce("orders", ["of somebody who knows no ids"] * 5)
    node.restart_after_crash()
    assert all(one.is_duplicate for one in node.post(*ids))
    assert node.stored() == 105


def test_a_copy_that_is_stored_later_was_not_sent_again(node: Sending) -> None:
    """It was brought back from the dead letters, say, with all the headers that it had."""
    node.post("a")
    [first] = [one for number in range(3) for one in node.consume("orders", partition=number)]
    node.run_for(WINDOW_MS + 1000)
    copy = first._replace(timestamp_ms=node.clock.now_ms(), offset=-1)
    node.wait(node.broker.publish("orders", [copy]))
    node.restart_after_crash()
    assert not node.post("a")[0].is_duplicate


def test_a_dead_letter_was_not_sent_to_where_it_lies(node: Sending) -> None:
    origin = write_origin(Origin("mail", 0, 0, "mail", "broken", 1, 5))
    node.post("a")
    [first] = [one for number in range(3) for one in node.consume("orders", partition=number)]
    letter = Record(b"k", b"v", first.headers + origin)
    node.wait(node.broker.publish("orders", [letter._replace(headers=_renamed(letter, "b"))]))
    node.restart_after_crash()
    assert [one.is_duplicate for one in node.post("a", "b")] == [True, False]


def _renamed(record: Record, name: str) -> tuple[Header, ...]:
    """The headers with another deduplication id."""
    return tuple(
        (one, name.encode() if one == DEDUPLICATION_HEADER else content)
        for one, content in record.headers
    )


def test_what_was_refused_may_be_sent_again(node: Sending) -> None:
    huge = b"x" * (2 << 20)
    [refused] = node.post("a", value=huge)
    assert isinstance(refused, RecordTooLarge)
    assert node.post("a") == [Posted("a-2", 0)]


def test_who_waits_for_one_that_is_refused_is_stored_itself(node: Sending) -> None:
    first = node.begin("a", value=b"x" * (2 << 20))
    second = node.begin("a")
    assert node.wait(second) == [Posted("a-2", 0)]
    assert isinstance(node.wait(first)[0], RecordTooLarge)


def test_there_is_a_bound_and_it_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_queue_sending, "IDS_MAX", 3)
    node = Sending()
    node.prepare()
    results = node.post("a", "b", "c", "d")
    assert isinstance(results[3], DeduplicationFull)
    assert results[3].retryable
    assert node.post("a")[0].is_duplicate
    node.run_for(WINDOW_MS + 1)
    assert not isinstance(node.post("d")[0], GoQueueError)


def test_an_id_and_a_delay_of_its_own_do_not_go_together(node: Sending) -> None:
    [refused] = node.post("a", delay_ms=5)
    assert isinstance(refused, InvalidRequest)
    assert "delay the queue" in str(refused)


def test_a_queue_whose_group_is_gone_says_so(node: Sending) -> None:
    node.wait(node.broker.queues.groups.delete("orders"))
    with pytest.raises(UnknownGroup):
        node.post("a")


# What nobody is sure of


class Unsure:
    """Stores what it is given, and tells that nobody knows."""

    def __init__(self, node: Sending) -> None:
        self._node = node
        self.is_unsure = True

    def __call__(
        self,
        topic: str,
        outgoing: Sequence[Record | Outgoing],
        *,
        session: Session | None = None,
    ) -> Promise[list[PublishResult]]:
        stored = self._node.broker.publish(topic, outgoing, session=session)
        if not self.is_unsure:
            return stored
        answer: Promise[list[PublishResult]] = Promise()
        error = RequestTimedOut("Nobody knows.")
        stored.then(lambda results, _: answer.resolve([error] * len(results or ())))
        return answer


def test_what_may_have_been_stored_is_looked_for_before_it_is_stored_again(node: Sending) -> None:
    broker, publish = node.broker, Unsure(node)
    sender = QueueSender(
        broker.clock,
        broker.topics,
        broker.queues,
        publish,
        RecentIds(broker.clock, look=broker.reads.look, read=broker.reads.read),
        NoClaims(publish),
    )
    queue = broker.named_queues.get("orders")
    posting = Posting(Record(b"k", b"v"), "first", deduplication_id="a")
    other = Posting(Record(b"k", b"v"), "second", deduplication_id="a")
    unsure, waiting = sender.send(queue, [posting], NOBODY), sender.send(queue, [other], NOBODY)
    assert isinstance(node.wait(unsure)[0], RequestTimedOut)
    assert node.wait(waiting) == [Posted("first", 0, is_duplicate=True)]
    publish.is_unsure = False
    assert node.wait(sender.send(queue, [other], NOBODY)) == [Posted("first", 0, is_duplicate=True)]
    assert node.stored() == 1
