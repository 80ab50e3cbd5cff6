"""Fetch sessions: partitions are named once, and then only what changes is said."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from goqueue.model.errors import InvalidFetchSessionEpoch, UnknownFetchSession
from goqueue.wire.kafka.errors import ErrorCode
from goqueue.wire.kafka.fetch_sessions import FetchSessions
from goqueue.wire.kafka.front_end import Limits
from goqueue.wire.kafka.messages import API_BY_NAME
from goqueue.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.unit.wire.kafka.client import Client, about, records_in
from tests.unit.wire.kafka.requests import Subject, fetch_request, produce_request, records_for

BY_NAME, BY_ID = 12, 18


class Consumer:
    """A consumer of the partitions 0 to 2, which remembers its offsets."""

    def __init__(self, client: Client, *, version: int = BY_NAME) -> None:
        self.client = client
        self.version = version
        self.session_id = 0
        self.epoch = 0
        self.offsets: dict[int, int] = {}

    def open(self, *partitions: int, **fields: Any) -> dict[int, list[bytes | None]]:
        """Begin a session over these partitions, from their start."""
        self.epoch, self.offsets = 0, dict.fromkeys(partitions, 0)
        return self._fetch(partitions, **fields)

    def go_on(self, *changed: int, **fields: Any) -> dict[int, list[bytes | None]]:
        """Fetch again, naming only the partitions whose offset has changed."""
        return self._fetch(changed, **fields)

    def _fetch(self, partitions: tuple[int, ...], **fields: Any) -> dict[int, list[bytes | None]]:
        request = fetch_request(
            self.client.subject,
            partitions=partitions,
            session=(self.session_id, self.epoch),
            **fields,
        )
        for topic in request.topics:
            for one in topic.partitions:
                one.fetch_offset = self.offsets.get(one.partition, 0)
        self.answer = self.client.call("Fetch", request, self.version)
        if self.answer.error_code:
            return {}
        self.session_id = self.answer.session_id
        self.epoch += 1
        found = {}
        for topic in self.answer.responses:
            for one in topic.partitions:
                found[one.partition_index] = records_in(one.records or b"")
                self.offsets[one.partition_index] = self.offsets.get(one.partition_index, 0) + len(
                    found[one.partition_index]
                )
        return found


@pytest.fixture(params=[7, BY_NAME, BY_ID], ids=["oldest", "by_name", "by_id"])
def consumer(request: pytest.FixtureRequest) -> Consumer:
    return Consumer(Client(), version=request.param)


def test_a_full_request_opens_a_session_and_is_answered_in_full(consumer: Consumer) -> None:
    consumer.client.produce(b"a", partition=1)
    assert consumer.open(0, 1, 2) == {0: [], 1: [b"a"], 2: []}
    assert consumer.session_id > 0


def test_partitions_without_news_are_left_out(consumer: Consumer) -> None:
    consumer.client.produce(b"a", partition=1)
    consumer.open(0, 1, 2)
    assert consumer.go_on(1) == {}
    consumer.client.produce(b"b", partition=2)
    assert consumer.go_on() == {2: [b"b"]}
    assert consumer.go_on(2) == {}


def test_a_session_speaks_of_topics_as_its_requests_do(consumer: Consumer) -> None:
    consumer.client.produce(b"a")
    consumer.open(0)
    (topic,) = consumer.answer.responses
    subject = consumer.client.subject
    if consumer.version == BY_ID:
        assert (topic.topic, topic.topic_id) == ("", subject.topic_id)
    else:
        assert topic.topic == subject.topic


def test_partitions_can_be_added_and_forgotten(consumer: Consumer) -> None:
    consumer.open(0)
    consumer.client.produce(b"a", partition=1)
    assert consumer.go_on() == {}
    assert consumer.go_on(1) == {1: [b"a"]}
    consumer.client.produce(b"b", partition=0)
    consumer.client.produce(b"b", partition=1)
    assert consumer.go_on(1, forgotten=(0,)) == {1: [b"b"]}


def test_a_moved_start_is_news(consumer: Consumer) -> None:
    consumer.client.produce(b"a")
    consumer.open(0)
    consumer.go_on(0)
    consumer.client.node.broker.administration.delete_records("orders", 0, before_offset=-1)
    assert consumer.go_on() == {0: []}
    assert consumer.answer.responses[0].partitions[0].log_start_offset == 1
    assert consumer.go_on() == {}


def test_an_error_is_told_again_and_again_and_its_end_is_news(consumer: Consumer) -> None:
    consumer.client.produce(b"a")
    consumer.open(0)
    consumer.offsets[0] = 99
    for _ in range(2):
        consumer.go_on(0)
        (one,) = consumer.answer.responses[0].partitions
        assert one.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    consumer.offsets[0] = 1
    assert consumer.go_on(0) == {0: []}
    assert consumer.go_on() == {}


def test_a_wrong_epoch_is_refused_and_the_session_goes_on(consumer: Consumer) -> None:
    consumer.open(0)
    for wrong in (2, 99):
        consumer.epoch = wrong
        consumer.go_on()
        assert consumer.answer.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert consumer.answer.responses == []
    consumer.epoch = 1
    assert consumer.go_on() == {}
    assert consumer.answer.error_code == 0


def test_a_session_that_is_not_known_is_refused(consumer: Consumer) -> None:
    consumer.session_id, consumer.epoch = 12345, 1
    consumer.go_on()
    assert consumer.answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_does_not_change_between_names_and_ids() -> None:
    consumer = Consumer(Client(), version=BY_NAME)
    consumer.open(0)
    consumer.version = BY_ID
    consumer.go_on()
    assert consumer.answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_the_final_epoch_ends_the_session(consumer: Consumer) -> None:
    consumer.client.produce(b"a")
    consumer.open(0)
    consumer.epoch = -1
    consumer.offsets[0] = 0
    ended = consumer.session_id
    assert consumer.go_on(0) == {0: [b"a"]}
    assert consumer.session_id == 0
    consumer.session_id, consumer.epoch = ended, 1
    consumer.go_on()
    assert consumer.answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_beginning_again_ends_the_old_session(consumer: Consumer) -> None:
    consumer.open(0)
    old = consumer.session_id
    consumer.open(0, 1)
    assert consumer.session_id != old
    assert len(consumer.client.node.front.fetch_sessions) == 1


def test_no_partition_starves_though_an_answer_has_room_for_one(consumer: Consumer) -> None:
    for number in range(3):
        for _ in range(4):
            consumer.client.produce(b"%d" % number, partition=number)
    served = [consumer.open(0, 1, 2, bytes_max=1, partition_bytes_max=1)]
    for _ in range(11):
        last = [number for number, values in served[-1].items() if values]
        served.append(consumer.go_on(*last, bytes_max=1, partition_bytes_max=1))
    order = [number for answer in served for number, values in answer.items() if values]
    assert order == [0, 1, 2] * 4


def test_a_waiting_session_is_answered_by_any_of_its_partitions(consumer: Consumer) -> None:
    client = consumer.client
    consumer.open(0, 1, 2)
    writer = client.node.peer()
    client.node.clock.call_later(100, lambda: _produce_later(client, writer))
    assert consumer.go_on(wait_ms=10_000) == {2: [b"late"]}


def _produce_later(client: Client, writer: Any) -> None:
    request = produce_request(9, about(client.subject, {"partition": 2}), records_for(9, b"late"))
    writer.send(writer.frame(API_BY_NAME["Produce"], 9, request))


# All sessions of a node


def request_for(*partitions: int, session: tuple[int, int] = (0, 0)) -> FetchRequest:
    return fetch_request(Subject(), partitions=partitions, session=session)  # type: ignore[no-any-return]


def test_the_session_unused_for_longest_makes_room() -> None:
    sessions = FetchSessions(2, Random(1))
    first, second = (sessions.open(request_for(0), uses_topic_ids=False) for _ in range(2))
    assert first is not None
    assert second is not None
    sessions.resume(request_for(session=(first.id, 1)), uses_topic_ids=False)
    third = sessions.open(request_for(0), uses_topic_ids=False)
    assert third is not None
    assert len(sessions) == 2
    with pytest.raises(UnknownFetchSession):
        sessions.resume(request_for(session=(second.id, 1)), uses_topic_ids=False)
    sessions.resume(request_for(session=(first.id, 2)), uses_topic_ids=False)


def test_a_node_may_have_no_sessions_at_all() -> None:
    consumer = Consumer(Client(limits=Limits(fetch_sessions_max=0)))
    consumer.client.produce(b"a")
    assert consumer.open(0) == {0: [b"a"]}
    assert consumer.session_id == 0


def test_a_request_for_nothing_opens_no_session() -> None:
    sessions = FetchSessions(2, Random(1))
    assert sessions.open(request_for(), uses_topic_ids=False) is None


def test_the_epoch_after_the_last_is_one() -> None:
    sessions = FetchSessions(2, Random(1))
    session = sessions.open(request_for(0), uses_topic_ids=False)
    assert session is not None
    last = (1 << 31) - 1
    session.epoch = last
    sessions.resume(request_for(session=(session.id, last)), uses_topic_ids=False)
    assert session.epoch == 1
    with pytest.raises(InvalidFetchSessionEpoch):
        sessions.resume(request_for(session=(session.id, 2)), uses_topic_ids=False)


def test_a_session_id_is_never_given_to_two_sessions() -> None:
    class Repeating(Random):
        draws = iter([5, 5, 5, 6])

        def randint(self, a: int, b: int) -> int:
            return next(self.draws)

    sessions = FetchSessions(9, Repeating())
    ids = [sessions.open(request_for(0), uses_topic_ids=False) for _ in range(2)]
    assert [one.id for one in ids if one is not None] == [5, 6]


def test_an_update_changes_the_offset_and_keeps_the_place() -> None:
    sessions = FetchSessions(2, Random(1))
    session = sessions.open(request_for(0, 1), uses_topic_ids=False)
    assert session is not None
    change = FetchRequest(
        session_id=session.id,
        session_epoch=1,
        topics=[
            FetchTopic(topic="orders", partitions=[FetchPartition(partition=0, fetch_offset=7)])
        ],
    )
    sessions.resume(change, uses_topic_ids=False)
    assert list(session.partitions) == [("orders", 0), ("orders", 1)]
    assert session.partitions["orders", 0].wanted.fetch_offset == 7
