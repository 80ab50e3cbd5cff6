"""Topics are made at their first use over HTTP, as for Kafka clients and by the same setting."""

from __future__ import annotations

import pytest

from tests.simulation.world import World
from tests.unit.wire.http.client import Client, request

PUBLISH = "/v1/topics/orders/publish"
RECEIVE = "/v1/groups/billing/receive"


def partitions(client: Client, topic: str) -> int:
    return len(client.get(f"/v1/topics/{topic}/partitions")["partitions"])


@pytest.fixture
def strict() -> Client:
    """A client of a node that makes no topics by itself."""
    return Client(World(topics__auto_create="false"))


def test_the_first_message_makes_its_topic() -> None:
    client = Client(World(topics__partitions="3"))
    published = client.post(PUBLISH, {"value": "a harp", "key": "k"})
    assert published["offset"] == 0
    assert partitions(client, "orders") == 3


def test_the_first_batch_makes_its_topic(client: Client) -> None:
    answer = client.post("/v1/topics/orders/batch", {"messages": [{"value": "a"}, {"value": "b"}]})
    assert (answer["failed"], len(answer["results"])) == (0, 2)


def test_the_first_delayed_message_makes_its_topic(client: Client) -> None:
    assert client.post(PUBLISH, {"value": "later", "delay_ms": 60_000})["schedule_id"]
    assert partitions(client, "orders") == 1


def test_the_first_receive_makes_its_topic(client: Client) -> None:
    assert client.post(RECEIVE, {"topic": "orders"})["messages"] == []
    client.post(PUBLISH, {"value": "a harp"})
    (message,) = client.post(RECEIVE, {"topic": "orders"})["messages"]
    assert message["value"] == "a harp"


def test_many_first_messages_at_once_make_one_topic(world: World, client: Client) -> None:
    wires = [client.wire() for _ in range(8)]
    for number, wire in enumerate(wires):
        wire.feed(request("POST", PUBLISH, {"value": str(number)}))
    world.run_until(lambda: all(wire.answers for wire in wires))
    assert [wire.answers[0].status for wire in wires] == [200] * 8
    offsets = [wire.answers[0].json["offset"] for wire in wires]
    assert sorted(offsets) == list(range(8))


def test_a_transaction_makes_topics_too(client: Client) -> None:
    begun = client.post("/v1/transactions", {"transactional_id": "t"})
    path = f"/v1/transactions/{begun['id']}"
    answer = client.post(f"{path}/publish", {"messages": [{"topic": "orders", "value": "a"}]})
    assert answer["failed"] == 0
    client.post(f"{path}/commit", {})
    assert partitions(client, "orders") == 1


def test_nothing_is_made_where_that_is_switched_off(strict: Client) -> None:
    for method, path, body in (
        ("POST", PUBLISH, {"value": "a"}),
        ("POST", "/v1/topics/orders/batch", {"messages": [{"value": "a"}]}),
        ("POST", RECEIVE, {"topic": "orders"}),
    ):
        refused = strict.refused(method, path, body)
        assert (refused.status, refused.json["code"]) == (404, "unknown_topic")
        assert "create it first" in refused.json["detail"]
    assert strict.get("/v1/topics")["topics"] == []


def test_reading_makes_nothing(client: Client) -> None:
    refused = client.refused("GET", "/v1/topics/orders/messages")
    assert refused.json["code"] == "unknown_topic"
    assert client.get("/v1/topics")["topics"] == []


@pytest.mark.parametrize("name", ["no%20good", "..", "a" * 250])
def test_a_name_that_no_topic_can_have_is_refused(client: Client, name: str) -> None:
    refused = client.refused("POST", f"/v1/topics/{name}/publish", {"value": "a"})
    assert (refused.status, refused.json["code"]) == (400, "invalid_topic_name")
    assert client.get("/v1/topics")["topics"] == []


def test_internal_topics_are_not_made_by_clients(client: Client) -> None:
    refused = client.refused("POST", "/v1/topics/__delivery/publish", {"value": "a"})
    assert refused.json["code"] in ("unknown_topic", "internal_topic")


def test_the_address_alone_says_what_answers(client: Client) -> None:
    found = client.get("/")
    assert found["name"] == "GoQueue"
    assert found["cluster_id"]
    for path in found["links"].values():
        assert client.send("GET", path).status == 200


@pytest.mark.parametrize("moment", [1, "2001-01-31T12:00:00Z"])
def test_a_time_that_has_passed_means_at_once(client: Client, moment: int | str) -> None:
    published = client.post(PUBLISH, {"value": "late", "deliver_at": moment})
    assert published["offset"] == 0
    assert "schedule_id" not in published
    (message,) = client.post(RECEIVE, {"topic": "orders"})["messages"]
    assert message["value"] == "late"
