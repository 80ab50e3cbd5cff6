"""Every API in every version is answered in bytes of that version, whatever it is asked about."""

from __future__ import annotations

import pytest

from goqueue.wire.kafka.errors import ErrorCode
from tests.unit.wire.kafka.client import Client, error_codes, failures
from tests.unit.wire.kafka.requests import EVERY_VERSION, SERVED

__all__ = ["failures"]

NO_SUCH_ID = b"no topic has this"[:16]
# These ask about nothing that could be missing.
ALWAYS_SUCCEED = {
    "AlterUserScramCredentials",
    "DescribeUserScramCredentials",
    "ApiVersions",
    "CreateTopics",
    "DescribeCluster",
    "DescribeLogDirs",
    "FindCoordinator",
    "InitProducerId",
    "JoinGroup",
    "ListGroups",
    "ListConfigResources",
    "ListTransactions",
    "ConsumerGroupHeartbeat",
    "ShareGroupHeartbeat",
    "OffsetFetch",
    "Metadata",
    "Produce",
    "ListPartitionReassignments",
    "DescribeClientQuotas",
    "AlterClientQuotas",
    "GetTelemetrySubscriptions",
}
# A node that is alone leads everything, and there is no other one to forget. Rules would have no
# effect, because access control is off.
NOTHING_TO_DO = {
    "CreateAcls": {ErrorCode.SECURITY_DISABLED},
    "DescribeAcls": {ErrorCode.SECURITY_DISABLED},
    "DeleteAcls": {ErrorCode.SECURITY_DISABLED},
    "ElectLeaders": {ErrorCode.ELECTION_NOT_NEEDED},
    # Nobody has asked what to push.
    "PushTelemetry": {ErrorCode.UNKNOWN_SUBSCRIPTION_ID},
    "UnregisterBroker": {ErrorCode.BROKER_ID_NOT_REGISTERED},
    # The listener of these tests requires no authentication.
    "SaslHandshake": {ErrorCode.ILLEGAL_SASL_STATE},
    "SaslAuthenticate": {ErrorCode.ILLEGAL_SASL_STATE},
}
NEED_AN_EMPTY_GROUP = {"DeleteGroups", "OffsetDelete"}
NEED_AN_EMPTY_SHARE_GROUP = {"AlterShareGroupOffsets", "DeleteShareGroupOffsets"}
NAMES = [api.name for api in SERVED]


def versions_of(name: str) -> list[int]:
    return [version for one, version in EVERY_VERSION if one == name]


@pytest.mark.parametrize(("name", "version"), EVERY_VERSION)
def test_a_request_about_what_exists_succeeds(
    name: str, version: int, failures: list[Exception]
) -> None:
    client = Client()
    client.produce(b"a")
    client.have_groups()
    client.have_share_groups()
    client.have_transaction()
    if name in NEED_AN_EMPTY_GROUP:
        client.subject.group = "idle"
    if name in NEED_AN_EMPTY_SHARE_GROUP:
        client.subject.share_group = "idle-share"
    if name == "WriteTxnMarkers":
        # The coordinator here decides about its own; this is for those of other nodes.
        client.subject.producer_id += 1000
    answer = client.ask(name, version)
    assert error_codes(answer) == NOTHING_TO_DO.get(name, set())
    assert failures == []


@pytest.mark.parametrize(("name", "version"), EVERY_VERSION)
@pytest.mark.parametrize("has_groups", [False, True], ids=["first_contact", "in_use"])
def test_a_request_about_what_does_not_exist_is_answered_with_an_error(
    name: str, version: int, has_groups: bool, failures: list[Exception]
) -> None:
    client = Client(topics__auto_create="false")
    if has_groups:
        client.have_groups()
        client.have_share_groups()
        client.have_transaction()
    answer = client.ask(
        name,
        version,
        topic="nowhere",
        topic_id=NO_SUCH_ID,
        partition=7,
        group="nobody",
        consumer_group="nobody-next",
        share_group="nobody-share",
        member="stranger",
        generation=3,
        transaction="nothing",
        producer_id=77,
        producer_epoch=3,
    )
    codes = error_codes(answer)
    assert codes or name in ALWAYS_SUCCEED or (name == "DescribeGroups" and version < 6)
    assert ErrorCode.UNKNOWN_SERVER_ERROR not in codes
    assert failures == []


@pytest.mark.parametrize("name", NAMES)
def test_a_request_with_empty_names_is_answered(name: str, failures: list[Exception]) -> None:
    for version in versions_of(name):
        client = Client()
        client.have_groups()
        client.have_share_groups()
        client.have_transaction()
        nothing = {"topic": "", "topic_id": bytes(16), "group": "", "consumer_group": ""}
        nothing |= {"transaction": "", "share_group": "", "share_member": ""}
        client.ask(name, version, **nothing, member="")
        assert failures == [], f"version {version}"


@pytest.mark.parametrize("name", NAMES)
def test_a_request_that_meets_a_broken_disk_is_answered(
    name: str, failures: list[Exception]
) -> None:
    for version in versions_of(name):
        client = Client()
        client.produce(b"a")
        client.have_groups()
        client.have_share_groups()
        client.have_transaction()
        for partition in client.node.broker.topics.partitions():
            partition.fail(OSError(5, "Input/output error"))
        client.ask(name, version)
        assert failures == [], f"version {version}"


@pytest.mark.parametrize("name", NAMES)
def test_a_request_that_meets_a_full_disk_is_answered(name: str, failures: list[Exception]) -> None:
    for version in versions_of(name):
        client = Client()
        client.produce(b"a")
        client.have_groups()
        client.have_share_groups()
        client.have_transaction()
        client.node.disk.fill_after(0)
        client.ask(name, version)
        assert failures == [], f"version {version}"


def test_the_versions_that_are_announced_are_those_that_have_a_request_here() -> None:
    announced = {
        one.api_key: (one.min_version, one.max_version)
        for one in Client().ask("ApiVersions").api_keys
    }
    assert announced == {
        api.key: (min(versions_of(api.name)), max(versions_of(api.name))) for api in SERVED
    }
