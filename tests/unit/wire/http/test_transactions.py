"""The routes of transactions, and what readers of each isolation see."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.world import World
from tests.unit.wire.http.client import Client, request
from tests.unit.wire.http.test_streams import values


class Node:
    def __init__(self, world: World, client: Client) -> None:
        self.world = world
        self.client = client
        world.create("orders")

    def post(self, path: str, body: Any = None, *, status: int = 200) -> Any:
        answer = self.client.send("POST", path, {} if body is None else body)
        assert answer.status == status, answer.body
        return answer.json

    def get(self, path: str, *, status: int = 200, **query: object) -> Any:
        answer = self.client.send("GET", path, **query)
        assert answer.status == status, answer.body
        return answer.json

    def begin(self, **body: object) -> str:
        return "/v1/transactions/" + str(self.post("/v1/transactions", body, status=201)["id"])

    def publish(self, transaction: str, *texts: str) -> Any:
        messages = [{"topic": "orders", "value": one} for one in texts]
        return self.post(f"{transaction}/publish", {"messages": messages})

    def read(self, **query: object) -> list[str]:
        page = self.get("/v1/topics/orders/messages", **query)
        return [one["value"] for one in page["messages"]]


@pytest.fixture
def node(world: World, client: Client) -> Node:
    return Node(world, client)


def test_isolation_decides_what_a_reader_sees(node: Node) -> None:
    transaction = node.begin()
    node.publish(transaction, "open")
    node.world.produce("orders", ["plain"])
    assert node.read() == []
    assert node.read(isolation="uncommitted") == ["open", "plain"]
    path = "/v1/topics/orders/messages/0/0"
    assert node.get(path, status=404)["code"] == "unknown_message"
    assert node.get(path, isolation="uncommitted")["value"] == "open"
    node.post(f"{transaction}/commit")
    assert node.read() == ["open", "plain"]
    assert node.get(path)["value"] == "open"
    assert node.get("/v1/topics/orders/messages", status=400, isolation="x")["field"] == "isolation"


def test_a_stream_brings_messages_when_they_are_committed(node: Node) -> None:
    wires = {}
    kept, dropped = node.begin(), node.begin()
    node.publish(kept, "kept")
    for isolation in ("committed", "uncommitted"):
        wire = wires[isolation] = node.client.wire()
        path = "/v1/topics/orders/stream"
        wire.feed(request("GET", path, isolation=isolation))
    node.publish(dropped, "dropped")
    node.world.run_for(50)
    assert {name: values(wire) for name, wire in wires.items()} == {
        "committed": [],
        "uncommitted": ["dropped"],
    }
    node.post(f"{dropped}/abort")
    node.post(f"{kept}/commit")
    node.world.run_for(50)
    # The latest message, for whoever sees what is decided, was behind the open transaction.
    assert values(wires["committed"]) == ["kept"]


def test_a_long_poll_wakes_up_with_the_commit(node: Node) -> None:
    transaction = node.begin()
    wire = node.client.wire()
    wire.feed(request("GET", "/v1/topics/orders/messages", wait_ms=10_000))
    node.publish(transaction, "a")
    node.world.run_for(100)
    assert not wire.answers
    node.post(f"{transaction}/commit")
    node.world.run_for(100)
    assert [one["value"] for one in wire.answers[0].json["messages"]] == ["a"]


def test_a_transaction_is_shown_with_what_takes_part(node: Node) -> None:
    path = node.begin(transactional_id="writer", timeout_ms=5000)
    shown = node.get(path)
    assert (shown["state"], shown["started_at"], shown["participants"]) == ("empty", None, [])
    node.publish(path, "a")
    shown = node.get(path)
    assert shown["participants"] == [{"topic": "orders", "partition": 0}]
    assert (shown["transactional_id"], shown["timeout_ms"]) == ("writer", 5000)
    assert shown["started_at"] <= shown["updated_at"]
    listed = node.get("/v1/transactions", older_than_ms=0)
    node.world.run_for(10)
    listed = node.get("/v1/transactions", older_than_ms=0)
    assert [one["id"] for one in listed["transactions"]] == [path.rpartition("/")[2]]
    assert node.get("/v1/transactions", state="complete_commit")["transactions"] == []
    assert node.get("/v1/transactions", producer_id=shown["producer_id"])["total"] == 1
    assert node.get("/v1/transactions", prefix="other")["total"] == 0
    problem = node.get("/v1/transactions", status=400, state="sleeping")
    assert problem["field"] == "state"


def test_bodies_that_make_no_sense_are_refused(node: Node) -> None:
    path = node.begin()
    for verb, body in (
        ("publish", {"messages": []}),
        ("publish", {"messages": [{"value": "no topic"}]}),
        ("ack", {"receipts": ["r"]}),
        ("ack", {"group": "g", "receipts": []}),
        ("offsets", {"group": "g", "offsets": []}),
        ("commit", {"surely": True}),
    ):
        assert node.post(f"{path}/{verb}", body, status=400)["code"] == "invalid_field"
    offsets = [{"topic": "nowhere", "partition": 0, "offset": 1}]
    answer = node.post(f"{path}/offsets", {"group": "g", "offsets": offsets})
    assert (answer["failed"], answer["results"][0]["problem"]["code"]) == (1, "unknown_topic")
    lone = {"group": "g", "offsets": offsets, "member_id": "m"}
    assert node.post(f"{path}/offsets", lone, status=400)["field"] == "member_epoch"
    for wrong in ({"timeout_ms": 0}, {"transactional_id": ""}, {"transactional_id": "x" * 250}):
        node.post("/v1/transactions", wrong, status=400)


def test_transactions_are_listed_in_pages(node: Node) -> None:
    for name in ("c", "a", "b", "d"):
        path = node.begin(transactional_id=f"page-{name}")
        node.publish(path, "one")
    node.post(f"{path}/commit")

    def page(**query: object) -> tuple[list[str], str, int]:
        found = node.client.get("/v1/transactions", prefix="page-", limit=2, **query)
        names = [one["transactional_id"] for one in found["transactions"]]
        return names, found["cursor"], found["total"]

    assert page() == (["page-a", "page-b"], "page-b", 4)
    assert page(cursor="page-b") == (["page-c", "page-d"], "", 4)
    assert page(cursor="page-b", open="true") == (["page-c"], "", 3)
    assert page(state="complete_commit", open="true") == (["page-d"], "", 1)
