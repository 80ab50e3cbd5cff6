"""Produce and fetch of clients that may not: no path leads around the check or outlives it."""

from __future__ import annotations

from typing import Any

import pytest

from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.session import Session
from goqueue.wire.kafka.errors import ErrorCode
from goqueue.wire.kafka.messages import API_BY_NAME
from tests.unit.wire.kafka.client import Client, error_codes
from tests.unit.wire.kafka.requests import fetch_request, produce_request, records_for

# By hand and in runs, by hand without runs, by the generated codec, and by topic id.
VERSIONS = (7, 9, 2, 13)
DENIED = {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
UNSEEN = {ErrorCode.UNKNOWN_TOPIC_ID}  # the answer to an id, if the client may not describe it


class Only:
    """A policy that allows some actions, with every topic."""

    def __init__(self, *actions: Action) -> None:
        self._actions = actions
        self.asked: list[tuple[Action, Resource]] = []

    def allows(self, session: Session, action: Action, resource: Resource) -> bool:
        assert session.listener == "kafka"
        self.asked.append((action, resource))
        return action in self._actions


def produce(client: Client, version: int) -> Any:
    request = produce_request(version, client.subject, records_for(version, b"a"))
    return client.call("Produce", request, version)


def fetch(client: Client, version: int) -> Any:
    return client.call("Fetch", fetch_request(client.subject), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_who_may_not_write_stores_nothing(version: int) -> None:
    client = Client()
    client.node.broker.local_gate.policy = Only(Action.READ)
    for _ in range(3):
        assert error_codes(produce(client, version)) == (UNSEEN if version >= 13 else DENIED)
    assert client.node.values("orders") == []


@pytest.mark.parametrize("version", VERSIONS)
def test_who_was_allowed_is_checked_again_under_another_policy(version: int) -> None:
    client = Client()
    for _ in range(3):
        assert error_codes(produce(client, version)) == set()
    client.node.broker.local_gate.policy = Only()
    for _ in range(3):
        assert error_codes(produce(client, version)) == (UNSEEN if version >= 13 else DENIED)
    assert client.node.values("orders") == [b"a"] * 3


@pytest.mark.parametrize("version", [4, 12, 17])
def test_who_may_not_read_gets_nothing(version: int) -> None:
    client = Client()
    client.produce(b"a")
    client.node.broker.local_gate.policy = Only(Action.WRITE)
    answer = fetch(client, version)
    assert error_codes(answer) == (UNSEEN if version >= 13 else DENIED)
    assert not answer.responses[0].partitions[0].records


def test_a_policy_is_asked_once_for_a_partition() -> None:
    client = Client()
    client.node.broker.local_gate.policy = policy = Only(Action.READ, Action.WRITE)
    for _ in range(3):
        produce(client, 9)
        fetch(client, 12)
    topic = Resource(ResourceKind.TOPIC, "orders")
    assert policy.asked == [(Action.WRITE, topic), (Action.READ, topic)]


def test_a_topic_that_was_made_again_is_found_anew() -> None:
    client = Client()
    produce(client, 9)
    client.node.wait(client.node.broker.topics.delete("orders"))
    assert error_codes(produce(client, 9)) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    client.node.create("orders")
    assert error_codes(produce(client, 9)) == set()
    assert client.node.values("orders") == [b"a"]


@pytest.mark.parametrize("version", [4, 12, 17])
def test_a_fetch_that_waits_withholds_what_arrives_after_the_right_to_it(version: int) -> None:
    client = Client()
    client.node.broker.local_gate.policy = Only(Action.READ, Action.DESCRIBE)
    request = fetch_request(client.subject)
    request.max_wait_ms, request.min_bytes = 10_000, 1
    api = API_BY_NAME["Fetch"]
    client.peer.send(client.peer.frame(api, version, request))
    client.node.run_for(100)
    client.node.broker.local_gate.policy = Only(Action.DESCRIBE)
    client.node.produce("orders", ["late"])
    client.node.run_for(10_000)
    answer = client.peer.take_answer(api, version)
    assert error_codes(answer) == DENIED
    assert not answer.responses[0].partitions[0].records
