"""Attacks over Kafka by a tenant's user, who knows what no client should: ids of another tenant.

Each attack sends requests by hand. What is of another tenant has to be answered exactly as what
does not exist, and nothing of it may change.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest

from goqueue.groups.classic.embedded_protocol import encode_subscription
from goqueue.wire.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from goqueue.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from goqueue.wire.kafka.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from goqueue.wire.kafka.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    RequestTopicPartitions,
)
from goqueue.wire.kafka.messages.create_acls import AclCreation, CreateAclsRequest
from goqueue.wire.kafka.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from goqueue.wire.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from goqueue.wire.kafka.messages.end_txn import EndTxnRequest
from goqueue.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from goqueue.wire.kafka.messages.init_producer_id import InitProducerIdRequest
from goqueue.wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from goqueue.wire.kafka.messages.list_transactions import ListTransactionsRequest
from goqueue.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from goqueue.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from goqueue.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from goqueue.wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from goqueue.wire.kafka.messages.sync_group import SyncGroupRequest
from goqueue.wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from goqueue.wire.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.unit.wire.kafka.requests import records_for

from .raw_kafka import RawClient
from .sasl_clients import Login, confluent_settings
from .secured import ADMIN, ADMIN_PASSWORD
from .tenants import TenantsBroker, login_of

SECRET = b"only for other"
ALL, ANY = 2, 1  # of the numbers of access rules
TOPIC, LITERAL, PREFIXED, DENY = 2, 3, 4, 2


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TenantsBroker]:
    made = TenantsBroker(tmp_path_factory.mktemp("attacked"))
    try:
        made.start()
        producer = confluent_kafka.Producer(settings_of(made, "other"))
        for topic in ("secret", "orders"):
            producer.produce(topic, SECRET)
        assert producer.flush(20) == 0
        with made.api("acme") as api:
            assert api.post("/v1/topics", json={"name": "orders"}).status_code == 201
        yield made
    finally:
        made.close()


def settings_of(node: TenantsBroker, tenant: str) -> dict[str, Any]:
    return confluent_settings(node.bootstrap, Login("PLAIN", *login_of(tenant)))


@pytest.fixture
def acme(node: TenantsBroker) -> Iterator[RawClient]:
    """The attacker, who may do everything in their own tenant."""
    with RawClient(node.bootstrap, *login_of("acme")) as client:
        yield client


@pytest.fixture
def other(node: TenantsBroker) -> Iterator[RawClient]:
    with RawClient(node.bootstrap, *login_of("other")) as client:
        yield client


def id_of(client: RawClient, topic: str) -> bytes:
    request = MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    found: bytes = client.call("Metadata", request).topics[0].topic_id
    assert any(found)
    return found


def shown(answer: Any, *hidden: bytes) -> str:
    """An answer as text, without the ids that a request had."""
    text = re.sub(r"<memory at \w+>", "", repr(answer))
    for one in hidden:
        text = text.replace(repr(one), "ID").replace(one.hex(), "ID")
    return text


def errors_in(answer: Any) -> set[int]:
    return {int(one) for one in re.findall(r"error_code=(-?\d+)", repr(answer))}


def fetch_by(topic_id: bytes) -> FetchRequest:
    topic = FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition_max_bytes=1 << 20)])
    return FetchRequest(max_wait_ms=1, topics=[topic])


def produce_by(topic_id: bytes) -> ProduceRequest:
    data = PartitionProduceData(records=records_for(13, b"forged"))
    topic = TopicProduceData(topic_id=topic_id, partition_data=[data])
    return ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[topic])


def commit_by(topic_id: bytes) -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(committed_offset=1)]
    topic = OffsetCommitRequestTopic(topic_id=topic_id, partitions=partitions)
    return OffsetCommitRequest(group_id="thieves", topics=[topic])


def committed_by(topic_id: bytes) -> OffsetFetchRequest:
    topic = OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0])
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup("thieves", topics=[topic])])


def join_with(topic_id: bytes) -> ConsumerGroupHeartbeatRequest:
    """A member that says that it already reads a partition."""
    return ConsumerGroupHeartbeatRequest(
        group_id=f"claims-{os.urandom(4).hex()}",
        member_id="AAAAAAAAAAAAAAAAAAAAAA",
        rebalance_timeout_ms=5_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[RequestTopicPartitions(topic_id, [0])],
    )


BY_ID: dict[str, Callable[[bytes], Any]] = {
    "Metadata": lambda one: MetadataRequest([MetadataRequestTopic(topic_id=one, name=None)]),
    "Fetch": fetch_by,
    "Produce": produce_by,
    "DeleteTopics": lambda one: DeleteTopicsRequest(
        topics=[DeleteTopicState(topic_id=one)], timeout_ms=5_000
    ),
    "OffsetCommit": commit_by,
    "OffsetFetch": committed_by,
    "ConsumerGroupHeartbeat": join_with,
}


@pytest.mark.parametrize("api", BY_ID)
def test_a_topic_id_of_another_tenant_is_one_that_does_not_exist(
    acme: RawClient, other: RawClient, api: str
) -> None:
    known, unknown = id_of(other, "secret"), os.urandom(16)
    answers = [shown(acme.call(api, BY_ID[api](one)), one) for one in (known, unknown)]
    assert answers[0] == answers[1]
    assert "secret" not in answers[0]
    assert SECRET.decode() not in answers[0]
    assert b"".join(values(other, "secret")) == SECRET


def values(client: RawClient, topic: str) -> list[bytes]:
    """What a fetch of the whole topic returns: its batches, of which the values are looked for."""
    answer = client.call("Fetch", fetch_by(id_of(client, topic)))
    [data] = [one for found in answer.responses for one in found.partitions]
    assert data.error_code == 0
    return re.findall(re.escape(SECRET) + rb"|forged", bytes(data.records))


def test_a_fetch_session_is_nobody_else_s(acme: RawClient, other: RawClient) -> None:
    request = fetch_by(id_of(other, "secret"))
    request.session_epoch = 0
    session_id = other.call("Fetch", request).session_id
    assert session_id > 0
    stolen = FetchRequest(session_id=session_id, session_epoch=1, max_wait_ms=1)
    nothing = FetchRequest(session_id=session_id ^ 1, session_epoch=1, max_wait_ms=1)
    answers = [shown(acme.call("Fetch", one)) for one in (stolen, nothing)]
    assert answers[0] == answers[1]
    # Nor does an attempt to close it end it.
    acme.call("Fetch", FetchRequest(session_id=session_id, session_epoch=-1))
    assert other.call("Fetch", stolen).error_code == 0


# Transactions


def test_a_transaction_of_another_tenant_cannot_be_driven(
    node: TenantsBroker, acme: RawClient, other: RawClient
) -> None:
    """The attacker has a transactional id of the same name, and knows the producer's identity."""
    producer = other.call("InitProducerId", InitProducerIdRequest("loader", 60_000))
    own = acme.call("InitProducerId", InitProducerIdRequest("loader", 60_000))
    assert producer.error_code == own.error_code == 0
    stolen = producer.producer_id, producer.producer_epoch
    victim = ("secret", 0)
    for name in ("loader", "~other~loader"):
        transaction = AddPartitionsToTxnTransaction(
            name, *stolen, topics=[AddPartitionsToTxnTopic("orders", [0])]
        )
        alone = AddPartitionsToTxnRequest([], name, *stolen, transaction.topics)
        answer = acme.call("AddPartitionsToTxn", alone, version=3)
        assert errors_in(answer) - {0}, answer
        answer = acme.call(
            "AddPartitionsToTxn", AddPartitionsToTxnRequest([transaction]), version=4
        )
        assert errors_in(answer) - {0}, answer
        assert acme.call("AddOffsetsToTxn", AddOffsetsToTxnRequest(name, *stolen, "g")).error_code
        for committed in (True, False):
            assert acme.call("EndTxn", EndTxnRequest(name, *stolen, committed)).error_code
        taken = acme.call("InitProducerId", InitProducerIdRequest(name, 60_000, *stolen))
        assert taken.error_code or taken.producer_id != stolen[0]
        topic = TxnOffsetCommitRequestTopic(
            name="orders", partitions=[TxnOffsetCommitRequestPartition(committed_offset=1)]
        )
        offsets = TxnOffsetCommitRequest(name, "g", *stolen, topics=[topic])
        [found] = acme.call("TxnOffsetCommit", offsets, version=4).topics
        assert found.partitions[0].error_code
    for topic_name in ("secret", "~other~secret"):
        marker = WritableTxnMarker(*stolen, True, [WritableTxnMarkerTopic(topic_name, [0])])
        [result] = acme.call("WriteTxnMarkers", WriteTxnMarkersRequest([marker])).markers
        assert all(one.error_code for each in result.topics for one in each.partitions)

    begun = AddPartitionsToTxnRequest(
        [], "loader", *stolen, [AddPartitionsToTxnTopic(victim[0], [victim[1]])]
    )
    answer = other.call("AddPartitionsToTxn", begun, version=3)
    assert not answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    assert other.call("EndTxn", EndTxnRequest("loader", *stolen, True)).error_code == 0
    listed = acme.call("ListTransactions", ListTransactionsRequest())
    ids = {one.producer_id for one in listed.transaction_states}
    assert own.producer_id in ids
    assert stolen[0] not in ids


@pytest.mark.parametrize("pattern", ["x)|(?:.*", ".*)(?:|", "~other~.*", "(?i).*"])
def test_a_pattern_cannot_leave_its_tenant(acme: RawClient, other: RawClient, pattern: str) -> None:
    other.call("InitProducerId", InitProducerIdRequest("hidden-job", 60_000))
    listed = acme.call(
        "ListTransactions", ListTransactionsRequest(transactional_id_pattern=pattern)
    )
    assert "hidden-job" not in repr(listed)
    joined = ConsumerGroupHeartbeatRequest(
        group_id=f"pattern-{os.urandom(4).hex()}",
        member_id="AAAAAAAAAAAAAAAAAAAAAA",
        rebalance_timeout_ms=5_000,
        subscribed_topic_regex=pattern,
        topic_partitions=[],
    )
    answer = acme.call("ConsumerGroupHeartbeat", joined)
    assert repr(id_of(other, "secret")) not in repr(answer)


def test_a_member_s_subscription_shows_no_topic_of_another_tenant(
    node: TenantsBroker, acme: RawClient
) -> None:
    """Classic members send their topics in bytes of their own, which the broker reads for lag."""
    named = encode_subscription(["secret", "~other~secret", "orders"])
    request = JoinGroupRequest(
        group_id="lagging",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", named)],
    )
    joined = acme.call("JoinGroup", request)
    request.member_id = joined.member_id
    joined = acme.call("JoinGroup", request)
    assert joined.error_code == 0, joined
    synced = SyncGroupRequest("lagging", joined.generation_id, joined.member_id)
    synced.protocol_type, synced.protocol_name = "consumer", "range"
    assert acme.call("SyncGroup", synced).error_code == 0
    with node.api("acme") as api:
        lag = api.get("/v1/groups/lagging/lag")
        assert lag.status_code == 200, lag.text
        assert {one["topic"] for one in lag.json()["partitions"]} == {"orders"}


# Users and rules


@pytest.mark.parametrize("user", [ADMIN, login_of("other")[0]])
def test_passwords_of_others_cannot_be_set(acme: RawClient, node: TenantsBroker, user: str) -> None:
    salted = ScramCredentialUpsertion(user, 2, 8_192, b"salt" * 4, b"p" * 64)
    request = AlterUserScramCredentialsRequest(upsertions=[salted])
    assert acme.call("AlterUserScramCredentials", request).results[0].error_code
    request = AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(user, 2)])
    assert acme.call("AlterUserScramCredentials", request).results[0].error_code
    password = ADMIN_PASSWORD if user == ADMIN else login_of("other")[1]
    RawClient(node.bootstrap, user, password)


def test_rules_stay_in_their_tenant(acme: RawClient, other: RawClient, node: TenantsBroker) -> None:
    """The attacker denies everything to everybody, under each name that could mean all topics."""

    def others() -> list[dict[str, str]]:
        return [one for one in node.cli_json("acl", "list") if "acme" not in one["name"]]

    before = others()
    assert any(one["principal"] == "User:other-admin" for one in before)
    names = ("", "*", "~", "~other~", "~other~secret", "~acme~", "__", "s")
    rules = [
        AclCreation(TOPIC, name, pattern, "User:*", "*", ALL, DENY)
        for name in names
        for pattern in (LITERAL, PREFIXED)
    ]
    created = acme.call("CreateAcls", CreateAclsRequest(rules))
    assert 0 in {one.error_code for one in created.results}
    assert others() == before
    assert values(other, "secret") == [SECRET]
    with node.api("other") as api:
        assert api.get("/v1/topics").json()["topics"]
    everything = DeleteAclsFilter(ANY, None, ANY, None, None, ANY, ANY)
    acme.call("DeleteAcls", DeleteAclsRequest([everything]))
    assert others() == before
