"""CreateAcls, DescribeAcls and DeleteAcls, with Kafka's codes, filters and error codes."""

from __future__ import annotations

from typing import Any

import pytest

from goqueue.loop.promise import promised
from goqueue.model.access import Acl, Action, PatternKind, Permission, ResourceKind
from goqueue.model.session import ANONYMOUS
from goqueue.wire.kafka.errors import ErrorCode
from goqueue.wire.kafka.messages.create_acls import AclCreation, CreateAclsRequest
from goqueue.wire.kafka.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from goqueue.wire.kafka.messages.describe_acls import DescribeAclsRequest
from tests.unit.wire.kafka.client import Client, error_codes

ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, TOKEN, USER = range(2, 8)
ALL, READ, WRITE = 2, 3, 4
DENY, ALLOW = 2, 3


@pytest.fixture
def client() -> Client:
    """The anonymous client of these tests is a super user."""
    return Client(security__access_control="on", security__super_users=ANONYMOUS)


def creation(name: str = "orders", **other: Any) -> AclCreation:
    values = {
        "resource_type": TOPIC,
        "resource_pattern_type": LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
    }
    return AclCreation(resource_name=name, **{**values, **other})


def create(client: Client, *wanted: AclCreation) -> list[int]:
    answer = client.call("CreateAcls", CreateAclsRequest(creations=list(wanted)))
    assert all((one.error_code == 0) is (one.error_message is None) for one in answer.results)
    return [one.error_code for one in answer.results]


def filter_fields(**other: Any) -> dict[str, Any]:
    values = {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    return {**values, **other}


def describe(client: Client, **other: Any) -> list[tuple[str, int, str]]:
    """Names, pattern types and principals of the rules that a filter selects."""
    answer = client.call("DescribeAcls", DescribeAclsRequest(**filter_fields(**other)))
    assert error_codes(answer) == set()
    return [
        (one.resource_name, one.pattern_type, acl.principal)
        for one in answer.resources
        for acl in one.acls
    ]


def delete(client: Client, **other: Any) -> Any:
    wanted = DeleteAclsFilter(**filter_fields(**other))
    answer = client.call("DeleteAcls", DeleteAclsRequest(filters=[wanted]))
    return answer.filter_results[0]


def test_rules_are_created_described_and_deleted(client: Client) -> None:
    wanted = [
        creation(),
        creation(principal="User:bob", operation=ALL, permission_type=DENY, host="10.0.0.1"),
        creation("ord", resource_pattern_type=PREFIXED),
        creation("g", resource_type=GROUP),
        creation("kafka-cluster", resource_type=CLUSTER, operation=7),
        creation("till", resource_type=TRANSACTIONAL_ID, operation=15),
    ]
    assert create(client, *wanted) == [0] * 6
    assert create(client, *wanted) == [0] * 6  # again: no difference
    assert len(describe(client)) == 6
    assert describe(client, resource_type_filter=TOPIC) == [
        ("ord", PREFIXED, "User:alice"),
        ("orders", LITERAL, "User:alice"),
        ("orders", LITERAL, "User:bob"),
    ]
    assert describe(client, principal_filter="User:bob") == [("orders", LITERAL, "User:bob")]
    assert describe(client, operation=15) == [("till", LITERAL, "User:alice")]
    [gone] = delete(client, principal_filter="User:bob").matching_acls
    assert (gone.resource_name, gone.host, gone.operation) == ("orders", "10.0.0.1", ALL)
    assert gone.permission_type == DENY
    assert len(delete(client).matching_acls) == 5
    assert describe(client) == []
    assert delete(client).matching_acls == []


def test_a_filter_can_match_all_that_applies_to_a_name(client: Client) -> None:
    create(
        client,
        creation(),
        creation("ord", resource_pattern_type=PREFIXED),
        creation("*"),
        creation("other"),
    )
    selected = {LITERAL: ["orders"], PREFIXED: [], ANY: ["orders"], MATCH: ["*", "ord", "orders"]}
    for pattern, names in selected.items():
        found = describe(client, resource_name_filter="orders", pattern_type_filter=pattern)
        assert [one[0] for one in found] == names


@pytest.mark.parametrize(
    "wrong",
    [
        creation(""),
        creation("other", resource_type=CLUSTER),
        creation(resource_type=ANY),
        creation(resource_type=0),
        creation(resource_type=TOKEN),
        creation(resource_type=USER, operation=13),
        creation(resource_type=99),
        creation(resource_pattern_type=ANY),
        creation(resource_pattern_type=MATCH),
        creation(operation=ANY),
        creation(operation=0),
        creation(operation=77),
        creation(permission_type=ANY),
        creation(principal="alice"),
        creation(principal="Group:alice"),
        creation(host="example.com"),
    ],
)
def test_an_invalid_rule_does_not_hinder_others(client: Client, wrong: AclCreation) -> None:
    assert create(client, creation("a"), wrong, creation("b")) == [0, ErrorCode.INVALID_REQUEST, 0]
    assert [one[0] for one in describe(client)] == ["a", "b"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"resource_type_filter": 0},
        {"pattern_type_filter": 0},
        {"operation": 0},
        {"permission_type": 0},
    ],
)
def test_an_invalid_filter_is_refused(client: Client, wrong: dict[str, int]) -> None:
    create(client, creation())
    answer = client.call("DescribeAcls", DescribeAclsRequest(**filter_fields(**wrong)))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert delete(client, **wrong).error_code == ErrorCode.INVALID_REQUEST
    assert len(describe(client)) == 1


def test_kinds_without_rules_have_none(client: Client) -> None:
    create(client, creation())
    assert describe(client, resource_type_filter=USER) == []
    assert delete(client, resource_type_filter=TOKEN).matching_acls == []


def test_who_may_not_alter_the_cluster_changes_nothing() -> None:
    client = Client(security__access_control="on")
    assert create(client, creation(), creation("b")) == [31, 31]
    answer = client.call("DescribeAcls", DescribeAclsRequest(**filter_fields()))
    assert (answer.error_code, answer.resources) == (31, [])
    denied = delete(client)
    assert (denied.error_code, denied.matching_acls) == (31, [])
    assert client.node.broker.topics.facts.log.metadata.acls == {}


def test_a_rule_takes_effect_at_once_and_after_a_restart() -> None:
    client = Client(security__access_control="on", security__super_users="User:root")
    node = client.node
    rules = node.broker.access
    answer = client.ask("Produce", 9)
    assert error_codes(answer) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    rule = Acl(
        ResourceKind.TOPIC,
        PatternKind.PREFIXED,
        "ord",
        ANONYMOUS,
        "*",
        Action.WRITE,
        Permission.ALLOW,
    )
    node.wait(promised(rules.add([rule])))
    assert error_codes(client.ask("Produce", 9)) == set()
    node.restart_after_crash()
    client.peer = node.peer()
    assert error_codes(client.ask("Produce", 9)) == set()
    node.wait(promised(node.broker.access.remove([rule])))
    assert error_codes(client.ask("Produce", 9)) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
