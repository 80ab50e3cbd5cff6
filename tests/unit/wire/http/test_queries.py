"""The routes of queries: prepared transactions, and epochs that are committed once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.world import World
from tests.unit.wire.http.client import Client
from tests.unit.wire.http.test_transactions import Node


class QueryNode(Node):
    attempts = 0

    def write(self, run: int, epoch: int, *texts: str) -> str:
        self.attempts += 1
        name = f"__query~totals~{run}~{epoch}~task-{self.attempts}"
        path = self.begin(transactional_id=name)
        self.publish(path, *texts)
        self.post(f"{path}/prepare")
        return path

    def commit(self, run: int, epoch: int, *paths: str, status: int = 200, **body: object) -> Any:
        ids = [path.rpartition("/")[2] for path in paths]
        return self.post(
            f"/v1/queries/totals/epochs/{epoch}/commit",
            {"run": run, "transactions": ids, **body},
            status=status,
        )

    def open(self, **body: object) -> Any:
        return self.post("/v1/queries/totals/open", body)


@pytest.fixture
def node(world: World, client: Client) -> QueryNode:
    return QueryNode(world, client)


def test_an_epoch_appears_when_it_is_committed_and_a_repeated_one_does_not(
    node: QueryNode,
) -> None:
    opened = node.open()
    assert (opened["run"], opened["epoch"], opened["is_closed"]) == (1, None, False)
    first, second = node.write(1, 0, "a", "b"), node.write(1, 0, "c")
    assert node.get(first)["state"] == "prepared"
    assert node.get("/v1/transactions", state="prepared")["total"] == 2
    assert node.read() == []
    for _ in range(2):
        answer = node.commit(1, 0, first, second)
        assert (answer["outcome"], answer["epoch_newest"]) == ("committed", 0)
    assert node.read() == ["a", "b", "c"]
    again = node.write(node.open()["run"], 0, "a", "b", "c")
    assert node.commit(2, 0, again)["outcome"] == "already_committed"
    assert node.read() == ["a", "b", "c"]
    node.world.run_for(100)  # The abort is not waited for.
    assert node.get("/v1/transactions", prefix="__query")["total"] == 0


def test_a_driver_that_was_replaced_is_refused(node: QueryNode) -> None:
    assert node.open(run_name="blue")["run"] == node.open(run_name="blue")["run"] == 1
    old = node.write(1, 0, "old")
    assert node.open(run_name="green")["run"] == 2
    assert node.commit(1, 0, old, status=409)["code"] == "fenced_producer"
    assert node.post("/v1/queries/totals/open", {"run_name": "blue"}, status=409)
    assert node.read() == []
    node.commit(2, 0, node.write(2, 0, "new"), is_last=True)
    assert node.read() == ["new"]
    shown = node.get("/v1/queries/totals")
    assert (shown["run"], shown["run_name"], shown["epoch"]) == (2, "green", 0)
    assert shown["is_closed"]


def test_what_is_prepared_takes_no_more_messages_and_can_be_aborted(node: QueryNode) -> None:
    node.open()
    path = node.write(1, 0, "a")
    messages = [{"topic": "orders", "value": "late"}]
    late = node.post(f"{path}/publish", {"messages": messages}, status=409)
    assert late["code"] == "invalid_transaction_state"
    assert node.post(f"{path}/commit", status=409)["code"] == "invalid_transaction_state"
    node.post(f"{path}/abort")
    assert node.commit(1, 0, path, status=409)["code"] == "invalid_transaction_state"
    assert node.read(isolation="uncommitted") == ["a"]
    assert node.read() == []


def test_calls_that_make_no_sense_are_refused(node: QueryNode) -> None:
    assert node.get("/v1/queries/totals", status=404)["code"] == "unknown_transaction"
    node.open()
    assert node.get("/v1/queries/other", status=404)["code"] == "unknown_transaction"
    assert node.post("/v1/queries/a~b/open", status=400)["code"] == "invalid_request"
    plain = node.begin()
    node.publish(plain, "a")
    assert node.post(f"{plain}/prepare", status=400)["code"] == "invalid_request"
    assert node.post(f"{plain}/prepare", {"timeout_ms": 0}, status=400)["field"] == "timeout_ms"
    assert node.commit(1, 0, plain, status=400)["code"] == "invalid_request"
    assert node.commit(0, 0, status=400)["field"] == "run"
    path = "/v1/queries/totals/epochs/first/commit"
    assert node.post(path, {"run": 1, "transactions": []}, status=400)["field"] == "epoch"
    own = node.begin(transactional_id="__query~totals~1~0~a")
    node.publish(own, "b")
    too_long = node.post(f"{own}/prepare", {"timeout_ms": 1 << 30}, status=400)
    assert too_long["code"] == "invalid_transaction_timeout"


def test_queries_are_listed_in_pages_with_their_writers(node: QueryNode) -> None:
    for name in ("etl-b", "etl-a", "other"):
        run = node.client.post(f"/v1/queries/{name}/open")["run"]
        node.publish(node.begin(transactional_id=f"__query~{name}~{run}~0~one"), "text")
    first = node.client.get("/v1/queries", match="ETL", limit=1)
    [one] = first["queries"]
    assert (one["query"], one["run"], one["epoch"], one["writers"]) == ("etl-a", 1, None, 1)
    assert first["total"] == 2
    second = node.client.get("/v1/queries", match="ETL", limit=1, cursor=first["cursor"])
    assert [one["query"] for one in second["queries"]] == ["etl-b"]
    assert second["cursor"] == ""
