"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from typing import Any

import pytest

from goqueue.cluster import commands
from goqueue.wire.kafka.errors import ErrorCode
from tests.unit.wire.kafka.client import Client
from tests.unit.wire.kafka.requests import (
    alter_request,
    describe_configs_request,
    incremental_request,
)

SET, DELETE, APPEND, SUBTRACT = range(4)
DESCRIBE_VERSIONS = range(1, 5)
BROKER_RESOURCE = 4
GROUP_RESOURCE = 32


@pytest.fixture
def client() -> Client:
    client = Client()
    client.node.create("own", retention_ms="5000", segment_bytes="2048")
    return client


def own(client: Client, topic: str = "own") -> dict[str, str]:
    return dict(client.node.broker.topics.get(topic).fact.settings)


def describe(client: Client, name: str, version: int = 4, **fields: Any) -> Any:
    request = describe_configs_request(version, name, **fields)
    (result,) = client.call("DescribeConfigs", request, version).results
    return result


def alter(client: Client, version: int = 2, topic: str = "own", **fields: Any) -> Any:
    (one,) = client.call("AlterConfigs", alter_request(topic, **fields), version).responses
    return one


def change(client: Client, *changes: tuple[str, int, str | None], **fields: Any) -> Any:
    version = fields.pop("version", 1)
    request = incremental_request(fields.pop("topic", "own"), *changes, **fields)
    (one,) = client.call("IncrementalAlterConfigs", request, version).responses
    return one


# Describing


@pytest.mark.parametrize("version", DESCRIBE_VERSIONS)
def test_all_settings_of_a_topic_are_described(client: Client, version: int) -> None:
    result = describe(client, "own", version)
    assert (result.error_code, result.error_message) == (0, None)
    configs = {one.name: one for one in result.configs}
    assert configs["retention.ms"].value == "5000"
    assert configs["retention.ms"].config_source == 1
    assert configs["cleanup.policy"].config_source == 5
    assert not configs["retention.ms"].read_only
    assert [one.value for one in configs["retention.ms"].synonyms][:1] == ["5000"]
    assert bool(configs["retention.ms"].documentation) == (version >= 3)
    assert configs["retention.ms"].config_type == (5 if version >= 3 else 0)


@pytest.mark.parametrize("version", DESCRIBE_VERSIONS)
def test_only_the_settings_that_are_asked_for_are_described(client: Client, version: int) -> None:
    result = describe(client, "own", version, keys=["segment.bytes", "no.such.thing"])
    assert [(one.name, one.value) for one in result.configs] == [("segment.bytes", "2048")]


@pytest.mark.parametrize("version", DESCRIBE_VERSIONS)
def test_the_node_is_described(client: Client, version: int) -> None:
    result = describe(client, "1", version, kind=BROKER_RESOURCE)
    configs = {one.name: one for one in result.configs}
    assert configs["node.id"].value == "1"
    assert configs["node.id"].read_only


@pytest.mark.parametrize("version", DESCRIBE_VERSIONS)
@pytest.mark.parametrize(
    ("name", "kind", "code"),
    [
        ("nowhere", 2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("7", BROKER_RESOURCE, ErrorCode.INVALID_REQUEST),
        ("own", 8, ErrorCode.INVALID_REQUEST),
        ("own", 0, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_has_no_settings_is_an_error(
    client: Client, version: int, name: str, kind: int, code: ErrorCode
) -> None:
    result = describe(client, name, version, kind=kind)
    assert (result.error_code, result.resource_type, result.resource_name) == (code, kind, name)
    assert result.error_message
    assert result.configs == []


# Replacing


@pytest.mark.parametrize("version", range(3))
def test_altering_replaces_all_settings(client: Client, version: int) -> None:
    assert alter(client, version, retention_ms="7000").error_code == 0
    assert own(client) == {"retention_ms": "7000"}
    assert alter(client, version).error_code == 0
    assert own(client) == {}


@pytest.mark.parametrize("version", range(3))
def test_altering_is_durable_when_it_is_answered(client: Client, version: int) -> None:
    alter(client, version, retention_ms="7000")
    client.node.restart_after_crash()
    assert own(client) == {"retention_ms": "7000"}


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(
    ("configs", "words"),
    [
        ({"retention_ms": "soon"}, "retention.ms"),
        ({"retention_ms": "-2"}, "retention.ms"),
        ({"no_such_thing": "1"}, "no.such.thing"),
        ({"cleanup_policy": "burn"}, "delete, compact"),
    ],
)
def test_a_wrong_setting_is_named_and_nothing_is_changed(
    client: Client, version: int, configs: dict[str, Any], words: str
) -> None:
    before = own(client)
    one = alter(client, version, segment_bytes="4096", **configs)
    assert one.error_code == ErrorCode.INVALID_CONFIG
    assert words in one.error_message
    assert own(client) == before


@pytest.mark.parametrize("version", range(3))
def test_altering_may_only_be_tried(client: Client, version: int) -> None:
    before = own(client)
    assert alter(client, version, retention_ms="1", validate_only=True).error_code == 0
    wrong = alter(client, version, retention_ms="x", validate_only=True)
    assert wrong.error_code == ErrorCode.INVALID_CONFIG
    assert own(client) == before


def test_a_topic_that_is_not_there_cannot_be_altered(client: Client) -> None:
    assert alter(client, topic="nowhere").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert change(client, topic="nowhere").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", ["AlterConfigs", "IncrementalAlterConfigs"])
def test_the_node_is_not_altered_while_it_runs(client: Client, name: str) -> None:
    changes = [("num.partitions", SET, "3")]
    request = (
        alter_request("1", num_partitions="3")
        if name == "AlterConfigs"
        else incremental_request("1", *changes)
    )
    request.resources[0].resource_type = BROKER_RESOURCE
    (one,) = client.call(name, request).responses
    assert one.error_code == ErrorCode.INVALID_REQUEST
    assert "restart it" in one.error_message


@pytest.mark.parametrize(
    ("node", "change", "message"),
    [
        ("1", ("follower.replication.throttled.rate", SET, "fast"), "bytes per second"),
        ("1", ("follower.replication.throttled.rate", SET, "0"), "bytes per second"),
        ("1", ("follower.replication.throttled.rate", APPEND, "5"), "bytes per second"),
        ("1", ("replica.alter.log.dirs.io.max.bytes.per.second", SET, "5"), "one folder"),
        ("", ("leader.replication.throttled.rate", SET, "1000"), "Name a node"),
        ("7", ("leader.replication.throttled.rate", SET, "1000"), "Node 7 does not exist"),
    ],
)
def test_throttles_that_make_no_sense_are_refused(
    client: Client, node: str, change: tuple[str, int, str], message: str
) -> None:
    request = incremental_request(node, change)
    request.resources[0].resource_type = BROKER_RESOURCE
    (one,) = client.call("IncrementalAlterConfigs", request).responses
    assert one.error_code != 0
    assert message in one.error_message


def test_throttles_that_nobody_has_set_are_taken_back(client: Client) -> None:
    names = (
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
    request = incremental_request("1", *((name, DELETE, None) for name in names))
    request.resources[0].resource_type = BROKER_RESOURCE
    (one,) = client.call("IncrementalAlterConfigs", request).responses
    assert (one.error_code, one.error_message) == (0, None)


def test_lists_of_throttled_replicas_are_taken_and_kept(client: Client) -> None:
    name = "leader.replication.throttled.replicas"
    assert change(client, (name, SET, "0:1,0:2")).error_code == 0
    assert change(client, (name, APPEND, "1:2")).error_code == 0
    assert own(client)["leader_replication_throttled_replicas"] == "0:1,0:2,1:2"
    assert change(client, (name, DELETE, None)).error_code == 0


# Changing


@pytest.mark.parametrize("version", range(2))
def test_single_settings_are_set_and_deleted(client: Client, version: int) -> None:
    one = change(
        client, ("max.message.bytes", SET, "99"), ("retention.ms", DELETE, None), version=version
    )
    assert one.error_code == 0
    assert own(client) == {"segment_bytes": "2048", "max_message_bytes": "99"}


def test_words_are_added_to_a_list_and_taken_away(client: Client) -> None:
    assert change(client, ("cleanup.policy", APPEND, "compact")).error_code == 0
    assert own(client)["cleanup_policy"] == "delete,compact"
    assert change(client, ("cleanup.policy", APPEND, "compact")).error_code == 0
    assert own(client)["cleanup_policy"] == "delete,compact"
    assert change(client, ("cleanup.policy", SUBTRACT, "delete")).error_code == 0
    assert own(client)["cleanup_policy"] == "compact"


def test_a_topic_without_a_cleanup_policy_forgets_nothing(client: Client) -> None:
    assert change(client, ("cleanup.policy", SUBTRACT, "delete")).error_code == 0
    assert own(client)["cleanup_policy"] == ""
    settings = client.node.broker.topics.get("own").settings.log
    assert not settings.is_deleting
    assert not settings.is_compacting


@pytest.mark.parametrize(
    ("name", "operation", "value", "code"),
    [
        ("retention.ms", APPEND, "1", ErrorCode.INVALID_CONFIG),
        ("retention.ms", SUBTRACT, "1", ErrorCode.INVALID_CONFIG),
        ("retention.ms", SET, None, ErrorCode.INVALID_REQUEST),
        ("retention.ms", SET, "x", ErrorCode.INVALID_CONFIG),
        ("no.such.thing", SET, "1", ErrorCode.INVALID_CONFIG),
        ("no.such.thing", DELETE, None, ErrorCode.INVALID_CONFIG),
        ("cleanup.policy", 4, "delete", ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_impossible_change_is_refused_and_nothing_is_changed(
    client: Client, name: str, operation: int, value: str | None, code: ErrorCode
) -> None:
    before = own(client)
    one = change(client, ("segment.bytes", SET, "4096"), (name, operation, value))
    assert one.error_code == code
    assert one.error_message
    assert own(client) == before


def test_deleting_a_setting_that_is_not_set_does_no_harm(client: Client) -> None:
    assert change(client, ("flush.ms", DELETE, None)).error_code == 0


def test_a_change_may_only_be_tried(client: Client) -> None:
    before = own(client)
    assert change(client, ("retention.ms", SET, "1"), validate_only=True).error_code == 0
    assert own(client) == before


def test_a_change_takes_effect_at_once(client: Client) -> None:
    change(client, ("max.message.bytes", SET, "10"), topic="orders")
    answer = client.ask("Produce")
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.MESSAGE_TOO_LARGE


# Nodes and groups, while they run


def change_of(client: Client, kind: int, name: str, *changes: tuple[str, int, str | None]) -> Any:
    request = incremental_request(name, *changes)
    request.resources[0].resource_type = kind
    (one,) = client.call("IncrementalAlterConfigs", request).responses
    return one


def test_defaults_of_topics_change_at_once_and_survive_a_restart(client: Client) -> None:
    def largest() -> int:
        return client.node.broker.topics.get("orders").partitions[0].settings.message_bytes_max

    assert (
        change_of(client, BROKER_RESOURCE, "", ("message.max.bytes", SET, "5000")).error_code == 0
    )
    assert largest() == 5000
    changed = change_of(client, BROKER_RESOURCE, "1", ("message.max.bytes", SET, "6000"))
    assert (changed.error_code, largest()) == (0, 6000)
    client.node.restart_after_crash()
    assert largest() == 6000, "the node comes before all nodes"
    client.peer = client.node.peer()
    for name in ("1", ""):
        change_of(client, BROKER_RESOURCE, name, ("message.max.bytes", DELETE, None))
    assert largest() == 1048588
    assert client.node.broker.topics.facts.log.metadata.configs == {}


def test_a_setting_of_its_own_comes_before_defaults(client: Client) -> None:
    change(client, ("max.message.bytes", SET, "7000"))
    change_of(client, BROKER_RESOURCE, "1", ("message.max.bytes", SET, "5000"))
    topics = client.node.broker.topics
    assert topics.get("own").settings.message_bytes_max == 7000
    client.node.create("later", 1)
    assert topics.get("later").settings.message_bytes_max == 5000


def test_members_of_a_group_get_its_times(client: Client) -> None:
    client.have_groups()
    group = client.subject.consumer_group
    long = change_of(
        client,
        GROUP_RESOURCE,
        group,
        ("consumer.session.timeout.ms", SET, "7000"),
        ("consumer.heartbeat.interval.ms", SET, "200"),
    )
    assert long.error_code == 0
    beat = client.ask("ConsumerGroupHeartbeat")
    assert (beat.error_code, beat.heartbeat_interval_ms) == (0, 200)

    def members() -> int:
        return len(client.node.broker.groups.describe(group).members)

    client.node.run_for(6_500)
    assert members() == 1
    client.node.run_for(1_000)
    assert members() == 0, "its session is over"


def test_times_of_a_group_that_contradict_are_refused(client: Client) -> None:
    one = change_of(client, GROUP_RESOURCE, "g", ("consumer.heartbeat.interval.ms", SET, "60000"))
    assert one.error_code == ErrorCode.INVALID_CONFIG
    assert "shorter" in one.error_message


def test_settings_of_groups_are_bounded(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "CONFIGS_MAX", 2)
    setting = ("consumer.session.timeout.ms", SET, "50000")
    codes = [change_of(client, GROUP_RESOURCE, f"g{one}", setting).error_code for one in range(3)]
    assert codes == [0, 0, ErrorCode.INVALID_REQUEST]
    assert change_of(client, GROUP_RESOURCE, "g0", (setting[0], DELETE, None)).error_code == 0
    assert change_of(client, GROUP_RESOURCE, "g2", setting).error_code == 0
    long_name = change_of(client, GROUP_RESOURCE, "g" * 300, setting)
    assert long_name.error_code == ErrorCode.INVALID_GROUP_ID
