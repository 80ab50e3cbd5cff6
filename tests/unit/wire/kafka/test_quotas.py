"""Quotas on Kafka connections: answers at once with the throttle time, then silence until then."""

from __future__ import annotations

from typing import Any

import pytest

from goqueue.model.observer import Observer
from goqueue.model.session import Session
from goqueue.wire.kafka.errors import ErrorCode
from goqueue.wire.kafka.messages import API_BY_NAME
from goqueue.wire.kafka.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from goqueue.wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from goqueue.wire.kafka.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from tests.simulation.kafka_peer import KafkaPeer
from tests.unit.wire.kafka.client import Client, about, error_codes
from tests.unit.wire.kafka.requests import fetch_request, produce_request, records_for, request_of

PRODUCE = API_BY_NAME["Produce"]
VALUE = b"x" * 1_000


class Watcher(Observer):
    def __init__(self) -> None:
        self.seen: list[tuple[str, str, int]] = []

    def throttled(self, session: Session, limit: str, wait_ms: int) -> None:
        self.seen.append((session.principal, limit, wait_ms))


def limit(client: Client, entity: dict[str, str | None], **limits: float | None) -> Any:
    """Change quotas as Kafka's tools do; the only entry of the answer."""
    entry = RequestEntryData(
        entity=[RequestEntityData(kind, name) for kind, name in entity.items()],
        ops=[
            OpData(name, 0 if value is None else value, remove=value is None)
            for name, value in limits.items()
        ],
    )
    answer = client.call("AlterClientQuotas", AlterClientQuotasRequest(entries=[entry]))
    return answer.entries[0]


def produce(
    client: Client, *values: bytes, peer: KafkaPeer | None = None, version: int = 11
) -> Any:
    request = produce_request(version, client.subject, records_for(version, *values))
    return (peer or client.peer).call("Produce", version, request)


def test_a_producer_over_its_quota_is_answered_at_once_and_then_not_read() -> None:
    client = Client()
    assert limit(client, {"user": None}, producer_byte_rate=1_000).error_code == 0
    began_ms = client.node.clock.now_ms()
    answer = produce(client, VALUE, VALUE)
    assert error_codes(answer) == set()
    assert client.node.clock.now_ms() - began_ms < 100
    assert 900 < answer.throttle_time_ms < 1_300
    connection = client.peer.connection
    assert connection.is_blocked
    assert connection.is_busy  # not idle: it must not be closed
    frame = client.peer.frame(API_BY_NAME["Metadata"], 9, request_of("Metadata", 9, client.subject))
    assert client.peer.send(frame) == 0
    client.node.run_for(answer.throttle_time_ms + 5)
    assert client.peer.is_unblocked
    assert client.peer.send(frame) == len(frame)


@pytest.mark.parametrize("version", [3, 7, 8, 9, 11, 13])
def test_every_version_of_produce_carries_the_throttle_time(version: int) -> None:
    client = Client()
    limit(client, {"client-id": None}, producer_byte_rate=100)
    assert produce(client, VALUE, version=version).throttle_time_ms > 1_000


def test_a_client_that_waits_as_told_is_not_delayed_further() -> None:
    client = Client()
    limit(client, {"user": None}, producer_byte_rate=10_000)
    first = produce(client, *[VALUE] * 12)
    client.node.run_for(first.throttle_time_ms + 1)
    began_ms = client.node.clock.now_ms()
    produce(client, b"small")
    assert client.node.clock.now_ms() - began_ms < 50


def test_the_rate_is_held_by_connections_that_ignore_the_throttle_time() -> None:
    client = Client()
    limit(client, {"user": None}, producer_byte_rate=50_000)
    peers = [client.node.peer() for _ in range(3)]
    began_ms, sent = client.node.clock.now_ms(), 0
    while client.node.clock.now_ms() - began_ms < 20_000:
        for peer in peers:
            frame = peer.frame(
                PRODUCE, 11, produce_request(11, client.subject, records_for(11, *[VALUE] * 10))
            )
            if peer.send(frame):
                sent += 10_000
        client.node.run_for(10)
    seconds = (client.node.clock.now_ms() - began_ms) / 1_000
    assert sent <= 50_000 * (seconds + 1) + 3 * 10_100
    assert sent >= 50_000 * seconds * 0.9


def test_another_user_s_connection_is_not_affected() -> None:
    client = Client()
    limit(client, {"client-id": "noisy"}, producer_byte_rate=100)
    noisy = client.node.peer(client_id="noisy")
    assert produce(client, VALUE, peer=noisy).throttle_time_ms > 1_000
    assert produce(client, VALUE).throttle_time_ms == 0
    assert not client.peer.connection.is_blocked


def test_reconnecting_does_not_pay_the_debt() -> None:
    client = Client()
    limit(client, {"client-id": "noisy"}, producer_byte_rate=100)
    first = client.node.peer(client_id="noisy")
    produce(client, VALUE, VALUE, peer=first)
    first.connection.closed()
    client.node.run_for(1_000)
    second = client.node.peer(client_id="noisy")
    assert produce(client, b"x", peer=second).throttle_time_ms > 15_000


def test_a_connection_that_closes_while_muted_leaves_no_timer() -> None:
    client = Client()
    limit(client, {"user": None}, producer_byte_rate=100)
    produce(client, VALUE)
    connection = client.peer.connection
    connection.closed()
    assert not connection.throttle_ms or connection.is_closed
    client.node.run_for(60_000)
    assert not client.peer.is_unblocked


def test_a_fetch_is_limited_and_the_next_one_is_empty() -> None:
    client = Client()
    for _ in range(20):
        produce(client, VALUE)
    limit(client, {"user": None}, consumer_byte_rate=2_000)
    other = client.node.peer()
    request = fetch_request(client.subject, offset=0)
    first = client.peer.call("Fetch", 11, request)
    assert 1_000 < len(first.responses[0].partitions[0].records) <= 2_000
    second = other.call("Fetch", 11, fetch_request(client.subject, session=(0, 0)))
    assert second.responses[0].partitions[0].records  # the burst was not used up
    assert second.throttle_time_ms > 0
    for session in ((0, -1), (0, 0)):
        third = client.node.peer().call("Fetch", 11, fetch_request(client.subject, session=session))
        assert (third.responses, third.error_code, third.session_id) == ([], 0, 0)
        assert third.throttle_time_ms > 0
    client.node.run_for(second.throttle_time_ms + 5)
    resumed = other.call(
        "Fetch", 11, fetch_request(client.subject, session=(second.session_id, 1), offset=2)
    )
    assert resumed.responses[0].partitions[0].records


def test_a_message_rate_counts_records_not_bytes() -> None:
    client = Client()
    limit(client, {"user": None}, producer_message_rate=10)
    assert produce(client, *[b"x"] * 10).throttle_time_ms == 0
    assert produce(client, *[b"x"] * 10).throttle_time_ms > 500


def test_requests_are_limited_whatever_they_ask() -> None:
    client = Client()
    limit(client, {"user": None}, request_rate=2)
    answers = [client.ask("ListGroups") for _ in range(2)]
    assert [one.throttle_time_ms for one in answers] == [0, 0]
    assert client.ask("ListGroups").throttle_time_ms > 0


def test_time_on_the_loop_is_limited() -> None:
    client = Client()
    limit(client, {"user": None}, request_percentage=0.001)  # ten microseconds per second
    answers = [client.ask("Metadata") for _ in range(1)]
    assert answers[0].throttle_time_ms > 0


def create(client: Client, name: str, version: int, partitions: int = 1) -> Any:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return client.call("CreateTopics", CreateTopicsRequest(topics=[topic]), version)


def test_topics_beyond_the_mutation_rate_are_refused_on_versions_that_know_the_error() -> None:
    client = Client()
    limit(client, {"user": None}, controller_mutation_rate=1)
    assert error_codes(create(client, "a", 7, partitions=5)) == set()
    answer = create(client, "b", 7)
    assert error_codes(answer) == {ErrorCode.THROTTLING_QUOTA_EXCEEDED}
    assert 3_000 < answer.throttle_time_ms <= 4_000
    client.node.run_for(answer.throttle_time_ms + 5)
    assert error_codes(create(client, "b", 7)) == set()


def test_topics_beyond_the_mutation_rate_wait_on_older_versions() -> None:
    client = Client()
    limit(client, {"user": None}, controller_mutation_rate=1)
    create(client, "a", 5, partitions=3)
    began_ms = client.node.clock.now_ms()
    assert error_codes(create(client, "b", 5)) == set()
    assert client.node.clock.now_ms() - began_ms >= 1_900


def test_topics_and_partitions_of_a_tenant_are_counted_exactly() -> None:
    client = Client(partitions=4)
    limit(client, {"tenant": None}, topics=2, partitions=7)
    assert error_codes(create(client, "a", 7, partitions=4)) == {ErrorCode.POLICY_VIOLATION}
    assert error_codes(create(client, "a", 7, partitions=3)) == set()
    assert error_codes(create(client, "b", 7)) == {ErrorCode.POLICY_VIOLATION}
    limit(client, {"tenant": None}, topics=None)
    assert error_codes(create(client, "b", 7)) == {ErrorCode.POLICY_VIOLATION}
    limit(client, {"tenant": None}, partitions=None)
    assert error_codes(create(client, "b", 7)) == set()


def test_a_tenant_that_stores_as_much_as_it_may_is_refused() -> None:
    client = Client()
    limit(client, {"tenant": None}, storage_bytes=3_000)
    assert error_codes(produce(client, VALUE, VALUE)) == set()
    assert error_codes(produce(client, VALUE)) == set()
    assert error_codes(produce(client, VALUE)) == {ErrorCode.POLICY_VIOLATION}
    limit(client, {"tenant": None}, storage_bytes=None)
    assert error_codes(produce(client, VALUE)) == set()


def test_a_user_has_no_more_connections_than_its_quota() -> None:
    client = Client()
    limit(client, {"user": None}, connections=2)
    first = client.node.peer(client_id="first")
    first.call("ListGroups", 3, request_of("ListGroups", 3, client.subject))
    client.ask("ListGroups")  # counts this connection, which was there before the quota
    late = client.node.peer(client_id="late")
    frame = late.frame(API_BY_NAME["ListGroups"], 3, request_of("ListGroups", 3, client.subject))
    with pytest.raises(Exception, match="connections"):
        late.send(frame)
    first.connection.closed()
    third = client.node.peer(client_id="third")
    third.call("ListGroups", 3, request_of("ListGroups", 3, client.subject))


def test_changes_take_effect_on_open_connections_and_removal_ends_them() -> None:
    client = Client()
    assert produce(client, VALUE, VALUE).throttle_time_ms == 0
    limit(client, {"user": None, "client-id": "peer"}, producer_byte_rate=100)
    throttled = produce(client, VALUE)
    assert throttled.throttle_time_ms > 1_000
    client.node.run_for(throttled.throttle_time_ms + 1)
    limit(client, {"user": None, "client-id": "peer"}, producer_byte_rate=None)
    assert produce(client, *[VALUE] * 50).throttle_time_ms == 0
    assert not client.node.broker.quotas.is_active


def test_throttling_is_reported_to_the_observer() -> None:
    watcher = Watcher()
    client = Client(observer=watcher)
    limit(client, {"user": None}, producer_byte_rate=100)
    produce(client, VALUE)
    assert [(who, what) for who, what, _ in watcher.seen] == [
        ("User:ANONYMOUS", "producer_byte_rate")
    ]


def test_quotas_survive_a_restart() -> None:
    client = Client()
    limit(client, {"user": None}, producer_byte_rate=100)
    client.node.crash()
    client.node.start()
    assert produce(client, VALUE, peer=client.node.peer()).throttle_time_ms > 1_000


# Management


def describe(client: Client, *components: ComponentData, strict: bool = False) -> list[Any]:
    request = DescribeClientQuotasRequest(components=list(components), strict=strict)
    answer = client.call("DescribeClientQuotas", request)
    assert answer.error_code == 0, answer.error_message
    return sorted(
        tuple((one.entity_type, one.entity_name or "default") for one in entry.entity)
        for entry in answer.entries
    )


def test_quotas_are_described_by_exact_default_and_any_names() -> None:
    client = Client()
    limit(client, {"user": "alice"}, request_rate=1_000)
    limit(client, {"user": None}, request_rate=1_000)
    limit(client, {"user": "alice", "client-id": "a"}, request_rate=1_000)
    limit(client, {"ip": "10.0.0.1"}, connection_creation_rate=10)
    alice, default = (("user", "alice"),), (("user", "default"),)
    both = (("client-id", "a"), ("user", "alice"))
    assert len(describe(client)) == 4
    assert describe(client, ComponentData("user", 0, "alice")) == [both, alice]
    assert describe(client, ComponentData("user", 0, "alice"), strict=True) == [alice]
    assert describe(client, ComponentData("user", 1, None)) == [default]
    assert len(describe(client, ComponentData("user", 2, None))) == 3
    assert describe(client, ComponentData("ip", 2, None)) == [(("ip", "10.0.0.1"),)]


@pytest.mark.parametrize(
    ("entity", "limits"),
    [
        ({"user": "a"}, {"unknown": 1}),
        ({"user": "a"}, {"producer_byte_rate": -1}),
        ({"ip": "10.0.0.1"}, {"producer_byte_rate": 1}),
        ({"group": "a"}, {"request_rate": 1}),
        ({"user": ""}, {"request_rate": 1}),
    ],
)
def test_wrong_quotas_are_refused(entity: dict[str, str], limits: dict[str, float]) -> None:
    client = Client()
    refused = limit(client, dict(entity), **limits)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert refused.error_message
    assert describe(client) == []


def test_a_dry_run_changes_nothing() -> None:
    client = Client()
    entry = RequestEntryData(
        entity=[RequestEntityData("user", "a")], ops=[OpData("request_rate", 5)]
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=True)
    assert client.call("AlterClientQuotas", request).entries[0].error_code == 0
    assert describe(client) == []


def test_runs_of_small_batches_carry_the_throttle_time() -> None:
    """The fast path answers many requests at once; each answer has it."""
    client = Client()
    limit(client, {"user": None}, producer_byte_rate=1_000)
    frames = b"".join(
        client.peer.frame(
            PRODUCE, 9, produce_request(9, about(client.subject, {}), records_for(9, VALUE))
        )
        for _ in range(3)
    )
    assert client.peer.send(frames) > 0
    client.node.run_for(5)
    answer = client.peer.take_answer(PRODUCE, 9)
    assert error_codes(answer) == set()
    assert answer.throttle_time_ms > 0
