"""Quotas of share consumers: they are slowed, and what they acknowledge counts all the same."""

from __future__ import annotations

from typing import Any

import pytest

from goqueue.loop.promise import Cancellation
from goqueue.model.errors import QuotaExceeded
from goqueue.model.session import Session
from goqueue.model.share_groups import AckBatch, AckType, ShareAcks, ShareFetch, ShareWanted
from goqueue.wire.kafka.messages import API_BY_NAME, share_fetch
from tests.unit.wire.kafka.client import Client
from tests.unit.wire.kafka.share_requests import share_fetch_request
from tests.unit.wire.kafka.test_handlers_share import Consumer
from tests.unit.wire.kafka.test_handlers_share import client as _client
from tests.unit.wire.kafka.test_quotas import limit

VALUE = b"x" * 1_000
SHARE_FETCH = API_BY_NAME["ShareFetch"]
client = _client


def fetched(consumer: Consumer, *accepted: tuple[int, int], **fields: Any) -> Any:
    """The answer to a fetch that also accepts ranges."""
    request = share_fetch_request(consumer.subject, epoch=consumer.epoch, **fields)
    request.topics[0].partitions[0].acknowledgement_batches = [
        share_fetch.AcknowledgementBatch(first, last, [AckType.ACCEPT]) for first, last in accepted
    ]
    consumer.epoch += 1
    answer = consumer.peer.call("ShareFetch", SHARE_FETCH.version_stable_max, request)
    assert answer.error_code == 0
    return answer


def acquired(answer: Any) -> list[tuple[int, int]]:
    return [
        (one.first_offset, one.last_offset)
        for topic in answer.responses
        for part in topic.partitions
        for one in part.acquired_records
    ]


def ack_errors(answer: Any) -> list[int]:
    return [part.acknowledge_error_code for topic in answer.responses for part in topic.partitions]


@pytest.mark.parametrize(
    "quota", [{"consumer_byte_rate": 2_500}, {"consumer_message_rate": 2}], ids=str
)
def test_a_share_consumer_over_its_quota_gets_nothing_and_is_not_read_until_it_may_go_on(
    client: Client, quota: dict[str, float]
) -> None:
    for _ in range(8):
        client.produce(VALUE)
    consumer = Consumer(client, "one")
    limit(client, {"user": None}, **quota)
    first = fetched(consumer, max_records=4)
    last = max(last for _, last in acquired(first))
    answer = first if first.throttle_time_ms else fetched(consumer)
    waited_ms = answer.throttle_time_ms
    assert waited_ms > 0
    assert consumer.peer.connection.is_blocked
    second = Consumer(client, "two")
    assert acquired(fetched(second)) == [], "another connection of the same user"
    client.node.run_for(waited_ms + 2_000)
    assert not consumer.peer.connection.is_blocked
    again = fetched(consumer, (0, last), max_records=1)
    assert acquired(again)
    assert ack_errors(again) == [0]


def test_a_fetch_over_the_quota_still_acknowledges(client: Client) -> None:
    client.produce(VALUE, VALUE, VALUE)
    client.produce(VALUE)
    consumer = Consumer(client, "one")
    assert acquired(fetched(consumer, max_records=3)) == [(0, 2)]
    limit(client, {"user": None}, consumer_message_rate=1)
    other = Consumer(client, "two")
    assert acquired(fetched(other, max_records=1)) == [(3, 3)]
    client.produce(VALUE)
    fetched(other, (3, 3))
    answer = fetched(consumer, (0, 2))
    assert (acquired(answer), ack_errors(answer)) == ([], [0])
    [offset, *_] = client.node.wait(
        client.node.broker.gate.share_groups.offsets(
            Session("test"), group=client.subject.share_group
        )
    )
    assert offset.start_offset == 4


def test_acknowledgements_make_room_under_a_quota_of_messages_in_flight(client: Client) -> None:
    """They come with a fetch; refused with it, they would never make room."""
    client.produce(VALUE, VALUE)
    client.produce(VALUE)
    limit(client, {"tenant": None}, in_flight_messages=2)
    consumer = Consumer(client, "one")
    assert acquired(fetched(consumer)) == [(0, 1)]
    assert acquired(fetched(consumer)) == []
    answer = fetched(consumer, (0, 1))
    assert ack_errors(answer) == [0]
    client.node.run_for(1_000)
    assert acquired(fetched(consumer)) == [(2, 2)]


def test_the_owner_acknowledges_for_a_client_whose_quota_is_used_up_there(client: Client) -> None:
    client.produce(VALUE, VALUE)
    consumer = Consumer(client, "one")
    assert acquired(fetched(consumer)) == [(0, 1)]
    limit(client, {"user": None}, consumer_message_rate=1)
    session = Session("test")
    meter = client.node.broker.gate.client_limits.meter(session)
    assert meter is not None
    meter.consumed(0, 10)
    meter.take_wait()

    def exchange(*acks: ShareAcks) -> Any:
        wanted = (ShareWanted("orders", 0),)
        call = ShareFetch(
            client.subject.share_group, consumer.subject.share_member, wanted, acks=acks
        )
        return client.node.wait(
            client.node.broker.gate.share_groups.exchange(
                session, call=call, aligned_ends=(0,), wait_ms=0, cancellation=Cancellation()
            )
        )

    with pytest.raises(QuotaExceeded):
        exchange()
    accepted = ShareAcks("orders", 0, (AckBatch(0, 1, bytes((AckType.ACCEPT,))),))
    answer = exchange(accepted)
    assert [one.error for one in answer.acked] == [None]
    assert answer.leased == ()


def test_requests_of_share_consumers_are_counted(client: Client) -> None:
    consumer = Consumer(client, "one")
    limit(client, {"user": None}, request_rate=5)
    count = 1
    while not fetched(consumer).throttle_time_ms:
        count += 1
    assert count <= 7
    assert consumer.peer.connection.is_blocked
