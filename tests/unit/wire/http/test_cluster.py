"""The cluster over HTTP: a node that is alone, and answers of many nodes as one."""

from __future__ import annotations

from typing import Any

from goqueue.model.support import LEVEL_MAX
from tests.unit.wire.http.client import Client


def test_a_node_that_is_alone_is_a_cluster_of_one(client: Client) -> None:
    client.post("/v1/topics", {"name": "orders", "partitions": 2})
    about = client.get("/v1/admin/cluster")
    assert (about["nodes"], about["nodes_running"], about["partitions"]) == (1, 1, 2)
    assert (about["leaderless"], about["under_replicated"], about["moving"]) == (0, 0, 0)
    assert client.get("/v1/admin/cluster/health") == {
        "status": "ok",
        "problems": [],
        "kinds": [],
    }
    [node] = client.get("/v1/admin/nodes")["nodes"]
    assert (node["state"], node["leaders"], node["controller"]) == ("running", 2, True)
    number = node["id"]
    assert client.get(f"/v1/admin/nodes/{number}") == node
    placed = client.get("/v1/admin/partitions?topic=orders")["partitions"]
    assert [(one["leader"], one["in_sync"]) for one in placed] == [(number, [number])] * 2
    assert client.get("/v1/admin/partitions?state=under_replicated") == {"partitions": []}
    assert client.get("/v1/admin/reassignments")["reassignments"] == []


def test_partitions_are_listed_in_pages(client: Client) -> None:
    for name, count in (("orders", 12), ("mails", 2)):
        client.post("/v1/topics", {"name": name, "partitions": count})
    path, cursor, pages = "/v1/admin/partitions", "", []
    while not pages or cursor:
        page = client.get(path, limit=5, cursor=cursor)
        assert page["total"] == 14
        pages.append([(one["topic"], one["partition"]) for one in page["partitions"]])
        cursor = page["cursor"]
    every = [(one["topic"], one["partition"]) for one in client.get(path)["partitions"]]
    assert [len(page) for page in pages] == [5, 5, 4]
    assert [one for page in pages for one in page] == every
    assert client.refused("GET", path, limit=5, cursor="no").json["code"] == "invalid_field"


def test_reassignments_are_planned_before_anything_moves(client: Client) -> None:
    client.post("/v1/topics", {"name": "orders", "partitions": 2})
    number = client.get("/v1/admin/nodes")["nodes"][0]["id"]
    path = "/v1/admin/reassignments/plan"
    assert client.post(path, {"topics": ["orders"], "nodes": [number]}) == {"moves": []}
    assert client.refused("POST", path, {"away_from": number}).json["code"] == "invalid_request"
    for body in ({}, {"topics": ["orders"]}, {"nodes": [1]}, {"nodes": [1], "away_from": 1}):
        assert client.refused("POST", path, body).json["code"] == "invalid_field"
    unknown = {"topics": ["orders"], "nodes": [77]}
    assert client.refused("POST", path, unknown).json["code"] == "unknown_node"


def test_what_a_node_that_is_alone_cannot_do_is_refused(client: Client) -> None:
    client.post("/v1/topics", {"name": "orders"})
    number = client.get("/v1/admin/nodes")["nodes"][0]["id"]
    refused = client.refused("POST", f"/v1/admin/nodes/{number}/drain", {})
    assert (refused.status, refused.json["code"]) == (409, "node_in_use")
    assert client.refused("POST", "/v1/admin/nodes/77/drain", {}).json["code"] == "unknown_node"
    assert client.refused("DELETE", f"/v1/admin/nodes/{number}").json["code"] == "node_in_use"
    assert client.post(f"/v1/admin/nodes/{number}/undrain", {})["draining"] is False
    # It is where it should be, and led as it should be.
    assert client.post("/v1/admin/partitions/elect", {}) == {"results": [], "failed": 0}
    here = {"moves": [{"topic": "orders", "partition": 0, "replicas": [number]}]}
    assert client.post("/v1/admin/reassignments", here)["failed"] == 0
    there = {"moves": [{"topic": "orders", "partition": 0, "replicas": [number, 77]}]}
    [result] = client.post("/v1/admin/reassignments", there)["results"]
    assert result["problem"]["code"] == "invalid_replica_assignment"
    cancelled = client.send("DELETE", "/v1/admin/reassignments?topic=orders&partition=0").json
    assert cancelled["results"][0]["problem"]["code"] == "no_reassignment"


def test_a_node_that_is_alone_votes_alone(client: Client) -> None:
    told = client.get("/v1/admin/voters")
    [voter] = told["voters"]
    number = voter["id"]
    assert voter == {"id": number, "voter": True, "controller": True, "running": True}
    assert told["majority"] == 1
    assert client.send("PUT", f"/v1/admin/voters/{number}", {}).json == told
    refused = client.refused("DELETE", f"/v1/admin/voters/{number}")
    assert (refused.status, refused.json["code"]) == (409, "quorum_at_risk")
    assert client.refused("PUT", "/v1/admin/voters/77", {}).json["code"] == "unknown_node"


def test_throttles_are_for_what_is_moving(client: Client) -> None:
    client.post("/v1/topics", {"name": "orders"})
    path = "/v1/admin/reassignments"
    nothing = client.send("PATCH", path, {"throttle_bytes_per_second": 5}).json
    assert nothing == {"results": [], "failed": 0}
    named = {"topic": "orders", "partition": 0, "throttle_bytes_per_second": None}
    [result] = client.send("PATCH", path, named).json["results"]
    assert result["problem"]["code"] == "no_reassignment"
    for body in ({}, {"throttle_bytes_per_second": 0}, {"throttle_bytes_per_second": "50MB"}):
        assert client.refused("PATCH", path, body).json["code"] == "invalid_field"
    lost = {"partition": 0, "throttle_bytes_per_second": 5}
    assert client.refused("PATCH", path, lost).json["code"] == "invalid_field"


def test_a_dry_run_names_nodes_that_are_not_registered(client: Client) -> None:
    client.post("/v1/topics", {"name": "orders"})
    number = client.get("/v1/admin/nodes")["nodes"][0]["id"]

    def request(replicas: list[int]) -> dict[str, Any]:
        move = {"topic": "orders", "partition": 0, "replicas": replicas}
        return {"moves": [move], "dry_run": True}

    [result] = client.post("/v1/admin/reassignments", request([number]))["results"]
    assert result == {"topic": "orders", "partition": 0, "replicas": [number]}
    for replicas, detail in (
        ([number, 77, 78], "No node 77, 78 is registered"),
        ([number, number], "name each node once"),
    ):
        refused = client.refused("POST", "/v1/admin/reassignments", request(replicas))
        assert (refused.status, refused.json["code"]) == (400, "invalid_replica_assignment")
        assert detail in refused.json["detail"]


def test_moves_that_make_no_sense_are_refused(client: Client) -> None:
    for body in ({}, {"moves": [], "away_from": 1}, {"away_from": 1, "moves": None, "topic": 3}):
        answer = client.refused("POST", "/v1/admin/reassignments", body)
        assert (answer.status, answer.json["code"]) == (400, "invalid_field")
    assert client.refused("POST", "/v1/admin/reassignments", {"away_from": 77}).status == 404
    for path in ("/v1/admin/partitions?topic=nowhere", "/v1/admin/nodes/77"):
        assert client.refused("GET", path).status == 404


def test_a_single_node_has_the_level_of_its_release(client: Client) -> None:
    found = client.get("/v1/admin/cluster/level")
    assert found["level"] == found["supported"] == LEVEL_MAX
    assert found["nodes"][0]["release"]
    assert found["nodes"][0]["level_max"] == LEVEL_MAX
    assert client.post("/v1/admin/cluster/level", {}) == found
    refused = client.refused("POST", "/v1/admin/cluster/level", {"level": LEVEL_MAX + 1})
    assert refused.json["code"] == "invalid_request"
