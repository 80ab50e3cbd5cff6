"""Long lists: made in slices, encoded in a thread, and sent in the order of their requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from goqueue.wire.kafka.handlers import configs, groups
from goqueue.wire.kafka.messages import API_BY_NAME
from goqueue.wire.kafka.messages.api_versions import ApiVersionsRequest
from goqueue.wire.kafka.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from goqueue.wire.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from goqueue.wire.kafka.messages.describe_groups import DescribeGroupsRequest
from goqueue.wire.kafka.messages.list_groups import ListGroupsRequest
from tests.unit.wire.kafka.client import Client

NAMES = [f"group-{number}" for number in range(9)]
TOPICS = [f"topic-{number}" for number in range(9)]
REQUESTS = {
    "ListGroups": ListGroupsRequest(),
    "DescribeGroups": DescribeGroupsRequest(groups=[*NAMES, "nobody"]),
    "ConsumerGroupDescribe": ConsumerGroupDescribeRequest(group_ids=NAMES),
    "DescribeConfigs": DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=2, resource_name=one, configuration_keys=None)
            for one in [*TOPICS, "nothing"]
        ]
    ),
}


@pytest.fixture
def client() -> Client:
    client = Client()
    client.node.host_groups()
    for name in NAMES:
        client.node.commit(name, 1)
    for name in TOPICS:
        client.node.create(name)
    return client


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def make_small() -> None:
        monkeypatch.setattr(groups, "_LISTED_PER_TURN", 2)
        monkeypatch.setattr(groups, "_DESCRIBED_PER_TURN", 2)
        monkeypatch.setattr(configs, "_DESCRIBED_PER_TURN", 2)

    return make_small


@pytest.mark.parametrize("name", REQUESTS)
def test_a_long_list_is_the_same_in_every_version(
    client: Client, slices: Callable[[], None], name: str
) -> None:
    api = API_BY_NAME[name]
    versions = range(api.version_min, api.version_stable_max + 1)
    short = [client.call(name, REQUESTS[name], version) for version in versions]
    slices()
    for version, expected in zip(versions, short, strict=True):
        assert client.call(name, REQUESTS[name], version) == expected


@pytest.mark.parametrize("name", REQUESTS)
def test_what_is_asked_after_a_long_list_is_answered_after_it(
    client: Client, slices: Callable[[], None], name: str
) -> None:
    slices()
    asked: list[tuple[str, Any]] = [
        (name, REQUESTS[name]),
        ("ApiVersions", ApiVersionsRequest("client", "1")),
        ("ListGroups", REQUESTS["ListGroups"]),
    ]
    frames = b""
    for one, request in asked:
        version = API_BY_NAME[one].version_stable_max
        frames += client.peer.frame(API_BY_NAME[one], version, request)
    client.peer.send(frames)
    assert not client.peer.has_answer, "the list takes several turns"
    answers = []
    for one, _ in asked:
        client.peer.wait()
        api = API_BY_NAME[one]
        answers.append(client.peer.take_answer(api, api.version_stable_max))
    assert answers[1].api_keys
    assert [one.group_id for one in answers[2].groups] == NAMES


def test_a_client_that_leaves_before_its_long_list_is_encoded_hurts_nobody(
    client: Client, slices: Callable[[], None]
) -> None:
    slices()
    leaving = client.node.peer()
    api = API_BY_NAME["ListGroups"]
    frame = leaving.frame(api, api.version_stable_max, REQUESTS["ListGroups"])
    leaving.send(frame)
    leaving.connection.closed()
    client.node.run_for(1_000)
    assert leaving.received == b""
    assert len(client.call("ListGroups", REQUESTS["ListGroups"]).groups) == len(NAMES)
