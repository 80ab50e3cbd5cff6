"""Settings through the gate: of topics, nodes and groups."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from goqueue.broker.gate.areas.configs import HEARTBEAT_MS, SESSION_MS, Change, ChangeKind
from goqueue.model.errors import InternalTopic, InvalidRequest, InvalidTopicSetting
from tests.unit.broker.gate.areas.policies import ALICE
from tests.unit.broker.node import Node

RATE = "feeding_bytes_per_second"


@pytest.fixture
def node() -> Node:
    node = Node()
    node.create("orders", retention_ms="5", cleanup_policy="delete")
    return node


def change(node: Node, *changes: Change, **options: bool) -> Mapping[str, str]:
    configs = node.broker.gate.configs
    node.wait(configs.change_topic(ALICE, topic="orders", changes=changes, **options))
    return configs.of_topic(ALICE, topic="orders")


def test_changes_are_merged_into_the_settings_of_a_topic(node: Node) -> None:
    append = Change("cleanup_policy", ChangeKind.APPEND, "compact")
    changed = change(node, append, Change("retention_ms", ChangeKind.DELETE))
    assert changed == {"cleanup_policy": "delete,compact"}
    subtract = Change("cleanup_policy", ChangeKind.SUBTRACT, "delete")
    assert change(node, subtract, dry_run=True) == changed
    assert change(node, subtract) == {"cleanup_policy": "compact"}
    whole = Change("retention_ms", ChangeKind.SET, "7")
    assert change(node, whole, is_whole=True) == {"retention_ms": "7"}


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (Change("nonsense", ChangeKind.SET, "1"), InvalidTopicSetting),
        (Change("retention_ms", ChangeKind.SET, "soon"), InvalidTopicSetting),
        (Change("retention_ms", ChangeKind.APPEND, "1"), InvalidTopicSetting),
        (Change("retention_ms", ChangeKind.SET), InvalidRequest),
    ],
)
def test_a_change_that_makes_no_sense_changes_nothing(
    node: Node, wrong: Change, error: type[Exception]
) -> None:
    with pytest.raises(error):
        change(node, Change("retention_ms", ChangeKind.DELETE), wrong)
    assert node.broker.gate.configs.of_topic(ALICE, topic="orders")["retention_ms"] == "5"


def test_internal_topics_are_changed_only_on_purpose(node: Node) -> None:
    node.host_groups()
    configs = node.broker.gate.configs
    segment = [Change("segment_bytes", ChangeKind.SET, "2048")]
    with pytest.raises(InternalTopic):
        node.wait(configs.change_topic(ALICE, topic="__consumer_offsets", changes=segment))
    node.wait(
        configs.change_topic(
            ALICE, topic="__consumer_offsets", changes=segment, may_be_internal=True
        )
    )
    assert configs.of_topic(ALICE, topic="__consumer_offsets")["segment_bytes"] == "2048"


def test_defaults_come_from_the_first_layer_that_has_them(node: Node) -> None:
    configs, here = node.broker.gate.configs, node.broker.node_id
    before = configs.topic_defaults(ALICE).value("retention_ms")

    def set_default(of: int | None, value: str) -> str:
        node.wait(
            configs.change_nodes(
                ALICE,
                node=of,
                changes=[Change("retention_ms", ChangeKind.SET, value)],
                throttles={},
            )
        )
        return configs.topic_defaults(ALICE).value("retention_ms")

    assert set_default(None, "1000") == "1000"
    assert set_default(here, "2000") == "2000"
    assert set_default(None, "3000") == "2000"
    assert configs.topic_defaults(ALICE).built_in["retention_ms"] == before


def test_throttles_are_those_of_one_node(node: Node) -> None:
    configs, here = node.broker.gate.configs, node.broker.node_id

    def throttle(of: int | None, rate: int) -> None:
        node.wait(configs.change_nodes(ALICE, node=of, changes=[], throttles={RATE: rate}))

    throttle(here, 5)
    assert configs.throttles(ALICE)[RATE] == 5
    throttle(here, 0)
    assert configs.throttles(ALICE)[RATE] == 0
    for of in (None, here + 1):
        with pytest.raises(InvalidRequest):
            throttle(of, 5)


def test_settings_of_a_group_are_its_own(node: Node) -> None:
    configs = node.broker.gate.configs
    session = Change(SESSION_MS, ChangeKind.SET, "30000")
    node.wait(configs.change_group(ALICE, group="shop", changes=[session]))
    assert configs.of_group(ALICE, group="shop") == {SESSION_MS: "30000"}
    assert configs.groups(ALICE) == ["shop"]
    for wrong in (
        Change("retention_ms", ChangeKind.SET, "1"),
        Change(HEARTBEAT_MS, ChangeKind.APPEND, "1"),
        Change(HEARTBEAT_MS, ChangeKind.SET, "60000"),
    ):
        with pytest.raises(InvalidTopicSetting):
            node.wait(configs.change_group(ALICE, group="shop", changes=[wrong]))
    with pytest.raises(InvalidRequest):
        configs.of_group(ALICE, group="")
