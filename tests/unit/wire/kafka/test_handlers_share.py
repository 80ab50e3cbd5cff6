"""Share consumers that hang up, reconnect, or name what they should not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from goqueue.model.share_groups import AckType
from goqueue.wire.kafka.connection import LONG_POLL_GRACE_MS
from goqueue.wire.kafka.errors import ErrorCode
from goqueue.wire.kafka.front_end import Limits
from goqueue.wire.kafka.messages import API_BY_NAME, share_acknowledge, share_fetch
from tests.simulation.kafka_peer import KafkaPeer
from tests.unit.wire.kafka.client import Client, about, failures
from tests.unit.wire.kafka.requests import produce_request, records_for, request_of
from tests.unit.wire.kafka.share_requests import (
    share_ack_request,
    share_beat_request,
    share_fetch_request,
)

__all__ = ["failures"]

EARLIEST = {"start": "earliest"}
PRODUCE = API_BY_NAME["Produce"]


@pytest.fixture
def client() -> Client:
    client = Client()
    client.node.host_groups()
    group = client.subject.share_group
    client.node.wait(client.node.broker.queues.groups.create(group, EARLIEST))
    return client


class Consumer:
    """A member of the group with a connection of its own, unless it shares another's."""

    def __init__(self, client: Client, name: str, peer: KafkaPeer | None = None) -> None:
        self.peer = client.node.peer() if peer is None else peer
        self.subject = about(client.subject, {"share_member": name})
        self.epoch = 0
        self._call("ShareGroupHeartbeat", share_beat_request(self.subject))

    def fetch(self, **fields: Any) -> list[tuple[int, int, int]]:
        """Return first and last offset and the delivery count of what was acquired."""
        self.send("ShareFetch", share_fetch_request(self.subject, epoch=self.epoch, **fields))
        return self.acquired()

    def acquired(self) -> list[tuple[int, int, int]]:
        """Return the same of a fetch that was sent before."""
        answer = self.take("ShareFetch")
        assert answer.error_code == 0
        self.epoch += 1
        return [
            (one.first_offset, one.last_offset, one.delivery_count)
            for topic in answer.responses
            for part in topic.partitions
            for one in part.acquired_records
        ]

    def wait_for_records(self) -> None:
        """Send a fetch that waits, and do not wait for the answer."""
        request = share_fetch_request(self.subject, epoch=self.epoch, max_wait_ms=20_000)
        self.send("ShareFetch", request)

    def acknowledge(self, *ranges: tuple[int, int, AckType], epoch: int | None = None) -> Any:
        request = share_ack_request(self.subject, epoch=self.epoch if epoch is None else epoch)
        request.topics[0].partitions[0].acknowledgement_batches = [
            share_acknowledge.AcknowledgementBatch(first, last, [kind])
            for first, last, kind in ranges
        ]
        return self._call("ShareAcknowledge", request)

    def hang_up(self) -> None:
        self.peer.connection.closed()

    def send(self, name: str, request: Any) -> None:
        """Send a request, and do not wait for the answer."""
        api = API_BY_NAME[name]
        self.peer.send(self.peer.frame(api, api.version_stable_max, request))

    def take(self, name: str) -> Any:
        """Return the next answer, which must be to such a request."""
        self.peer.wait()
        return self.peer.take_answer(API_BY_NAME[name], API_BY_NAME[name].version_stable_max)

    def _call(self, name: str, request: Any) -> Any:
        self.send(name, request)
        return self.take(name)


def test_a_consumer_that_hangs_up_returns_what_it_held(client: Client) -> None:
    client.produce(b"a", b"b")
    one, two = Consumer(client, "one"), Consumer(client, "two")
    assert one.fetch() == [(0, 1, 1)]
    one.hang_up()
    assert two.fetch(max_wait_ms=1_000) == [(0, 1, 2)]


def test_all_sessions_of_a_connection_end_with_it(client: Client) -> None:
    client.produce(b"a")
    client.produce(b"b")
    one = Consumer(client, "one")
    other, two = Consumer(client, "other", one.peer), Consumer(client, "two")
    assert one.fetch(max_records=1) == [(0, 0, 1)]
    assert other.fetch(max_records=1) == [(1, 1, 1)]
    one.hang_up()
    assert len(client.node.front.share_sessions) == 0
    assert two.fetch(max_wait_ms=1_000) == [(0, 1, 2)]


def test_what_comes_after_a_waiting_consumer_hung_up_is_not_delivered_to_it(
    client: Client,
) -> None:
    one, two = Consumer(client, "one"), Consumer(client, "two")
    one.fetch()
    one.wait_for_records()
    client.node.run_for(10)
    one.hang_up()
    client.produce(b"a")
    assert two.fetch(max_wait_ms=1_000) == [(0, 0, 1)]


def test_a_consumer_that_comes_back_on_another_connection_takes_its_session_over(
    client: Client,
) -> None:
    client.produce(b"a")
    one = Consumer(client, "one")
    assert one.fetch() == [(0, 0, 1)]
    again = Consumer(client, "one")
    assert again.fetch(max_wait_ms=1_000) == [(0, 0, 2)]
    one.hang_up()  # The late end of the first connection does not end the second's session.
    assert again.acknowledge((0, 0, AckType.ACCEPT)).error_code == 0


def test_records_that_were_never_acquired_cannot_be_acknowledged(client: Client) -> None:
    client.produce(b"a")
    one, two = Consumer(client, "one"), Consumer(client, "two")
    assert one.fetch() == [(0, 0, 1)]
    two.fetch()
    for first, last in ((0, 0), (1, 1), (0, 1 << 62)):
        answer = two.acknowledge((first, last, AckType.ACCEPT))
        two.epoch += 1
        [[partition]] = [topic.partitions for topic in answer.responses]
        assert partition.error_code == ErrorCode.INVALID_RECORD_STATE
    assert one.acknowledge((0, 0, AckType.ACCEPT)).responses[0].partitions[0].error_code == 0


@pytest.mark.parametrize("epoch", [2, 0, -1, -2, (1 << 31) - 1])
def test_a_wrong_epoch_changes_nothing(client: Client, epoch: int) -> None:
    client.produce(b"a")
    one, stranger = Consumer(client, "one"), Consumer(client, "stranger")
    assert one.fetch() == [(0, 0, 1)]
    answer = stranger.acknowledge((0, 0, AckType.REJECT), epoch=epoch)
    assert answer.error_code in (
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    )
    assert one.acknowledge((0, 0, AckType.ACCEPT)).responses[0].partitions[0].error_code == 0


def test_a_session_names_partitions_that_do_not_exist(client: Client) -> None:
    client.produce(b"a")
    one = Consumer(client, "one")
    request = share_fetch_request(one.subject)
    request.topics.append(share_fetch.FetchTopic(b"n" * 16, [share_fetch.FetchPartition(0)]))
    request.topics[0].partitions.append(share_fetch.FetchPartition(1_000))
    answer = client.call("ShareFetch", request)
    errors = {
        (topic.topic_id == client.subject.topic_id, one.partition_index): one.error_code
        for topic in answer.responses
        for one in topic.partitions
    }
    assert errors == {
        (True, 0): 0,
        (True, 1_000): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (False, 0): ErrorCode.UNKNOWN_TOPIC_ID,
    }


def test_the_id_of_a_member_is_no_credential_and_its_session_belongs_to_its_user(
    client: Client,
) -> None:
    """As in Kafka, except that there the session does not belong to anybody either."""
    client.produce(b"a")
    client.produce(b"b")
    one = Consumer(client, "one")
    assert one.fetch(max_records=1) == [(0, 0, 1)]
    other = Consumer(client, "one")
    session = other.peer.connection.session
    other.peer.connection.identify(msgspec.structs.replace(session, principal="User:other"))
    answer = other.acknowledge((0, 0, AckType.ACCEPT), epoch=1)
    assert answer.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert other.fetch(max_records=1) == [(0, 0, 2)], "opening a session returns what is held"
    assert one.fetch(max_records=1) == [(1, 1, 1)]
    answer = other.acknowledge((1, 1, AckType.ACCEPT))
    assert answer.responses[0].partitions[0].error_code == 0


# Requests behind a fetch that waits


def test_a_waiting_fetch_is_answered_when_it_delays_the_answer_to_another_request(
    client: Client,
) -> None:
    one = Consumer(client, "one")
    one.fetch()
    started_ms = client.node.clock.now_ms()
    one.wait_for_records()
    one.send("Metadata", request_of("Metadata", 12, one.subject))
    assert one.acquired() == []
    one.take("Metadata")
    assert client.node.clock.now_ms() - started_ms <= 2 * LONG_POLL_GRACE_MS
    client.produce(b"a")
    assert one.fetch() == [(0, 0, 1)]  # The session has gone on.


def test_a_fetch_that_delays_nobody_waits(client: Client) -> None:
    one = Consumer(client, "one")
    one.fetch()
    one.send("Metadata", request_of("Metadata", 12, one.subject))
    one.wait_for_records()
    one.take("Metadata")
    client.node.run_for(10 * LONG_POLL_GRACE_MS)
    assert not one.peer.has_answer
    client.produce(b"a")
    assert one.acquired() == [(0, 0, 1)]


def test_waiting_members_on_one_connection_get_what_arrives_for_any_of_them(
    client: Client,
) -> None:
    first = Consumer(client, "first")
    members = [first, *(Consumer(client, f"{number}", first.peer) for number in range(20))]
    for one in members:
        one.fetch()
    last = members[-1]
    last.subject.partition = 1
    for one in members:
        one.wait_for_records()
    started_ms = client.node.clock.now_ms()
    producer = client.node.peer()
    batch = records_for(PRODUCE.version_stable_max, b"a")
    place = about(client.subject, {"partition": 1})
    producer.call(
        "Produce",
        PRODUCE.version_stable_max,
        produce_request(PRODUCE.version_stable_max, place, batch),
    )
    found = [one.acquired() for one in members]
    assert found == [[]] * 20 + [[(0, 0, 1)]]
    assert client.node.clock.now_ms() - started_ms < 1_000


def test_a_client_with_a_request_behind_every_fetch_gets_records(client: Client) -> None:
    one = Consumer(client, "one")
    one.fetch()
    one.wait_for_records()
    one.send("Metadata", request_of("Metadata", 12, one.subject))
    client.produce(b"a")
    assert one.acquired() == [(0, 0, 1)]
    one.take("Metadata")


def test_the_pause_before_a_refusal_does_not_delay_other_answers() -> None:
    client = Client(limits=Limits(share_sessions_max=0))
    client.node.host_groups()
    one = Consumer(client, "one")
    started_ms = client.node.clock.now_ms()
    one.wait_for_records()
    one.send("Metadata", request_of("Metadata", 12, one.subject))
    assert one.take("ShareFetch").error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    one.take("Metadata")
    assert client.node.clock.now_ms() - started_ms <= 2 * LONG_POLL_GRACE_MS


def test_who_hangs_up_while_a_fetch_gives_way_leaves_nothing(client: Client) -> None:
    one, two = Consumer(client, "one"), Consumer(client, "two")
    one.fetch()
    one.wait_for_records()
    one.send("Metadata", request_of("Metadata", 12, one.subject))
    one.hang_up()
    client.node.run_for(2 * LONG_POLL_GRACE_MS)
    assert not one.peer.connection.long_polls
    client.produce(b"a")
    assert two.fetch(max_wait_ms=1_000) == [(0, 0, 1)]
