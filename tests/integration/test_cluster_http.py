"""Any node of three answers any HTTP request, whoever owns what it is about."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import ElectionType, KafkaError, TopicPartition

from .cluster import Cluster
from .waiting import eventually

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("http-cluster"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="module")
def nodes(cluster: Cluster) -> Iterator[dict[int, httpx.Client]]:
    """A client of each node."""
    clients = {
        number: httpx.Client(base_url=node.http, timeout=40)
        for number, node in cluster.nodes.items()
    }
    yield clients
    for client in clients.values():
        client.close()


def good(response: httpx.Response) -> Any:
    assert response.is_success, response.text
    return response.json() if response.content else None


def create(
    cluster: Cluster, nodes: dict[int, httpx.Client], topic: str, *, partitions: int = 3
) -> None:
    body = {"name": topic, "partitions": partitions, "replication": 3}
    created = good(nodes[1].post("/v1/topics", json=body))
    assert (created["partitions"], created["replication"]) == (partitions, 3)
    cluster.until_in_sync(topic)
    # Each node is to lead some of it.
    moves = [
        {
            "topic": topic,
            "partition": number,
            "replicas": [1 + (number + one) % 3 for one in (0, 1, 2)],
        }
        for number in range(partitions)
    ]
    moved = good(nodes[2].post("/v1/admin/reassignments", json={"moves": moves}))
    assert moved["failed"] == 0, moved
    good(nodes[3].post("/v1/admin/partitions/elect", json={"topic": topic}))
    wanted = {number: 1 + number % 3 for number in range(partitions)}
    eventually(
        lambda: all(leaders({1: one}, topic) == wanted for one in nodes.values()),
        because="each node leads some partitions",
    )


def leaders(nodes: dict[int, httpx.Client], topic: str) -> dict[int, int]:
    found = good(nodes[1].get(f"/v1/topics/{topic}/partitions"))["partitions"]
    return {one["partition"]: one["leader"] for one in found}


def test_every_node_publishes_to_every_partition(
    cluster: Cluster, nodes: dict[int, httpx.Client]
) -> None:
    create(cluster, nodes, "everywhere")
    assert set(leaders(nodes, "everywhere").values()) == {1, 2, 3}
    for number, client in nodes.items():
        for partition in range(3):
            body = {"value": f"{number}>{partition}", "partition": partition}
            told = good(client.post("/v1/topics/everywhere/publish", json=body))
            assert told["partition"] == partition
            for other in nodes.values():
                place = f"/v1/topics/everywhere/messages/{partition}/{told['offset']}"
                assert good(other.get(place))["value"] == f"{number}>{partition}"


def test_first_uses_at_all_nodes_at_once_make_one_topic(nodes: dict[int, httpx.Client]) -> None:
    def first_uses(round_: int, number: int) -> list[httpx.Response]:
        topic, group = f"first-{round_}", f"firsts-{round_}"
        published = nodes[number].post(f"/v1/topics/{topic}/publish", json={"value": str(number)})
        received = nodes[number].post(f"/v1/groups/{group}/receive", json={"topic": topic})
        return [published, received]

    for round_ in range(3):
        with ThreadPoolExecutor(6) as pool:
            calls = [pool.submit(first_uses, round_, number) for number in [*nodes, *nodes]]
        answers = [answer for call in calls for answer in call.result()]
        assert {one.status_code for one in answers} == {200}, [one.text for one in answers]
        read = good(nodes[1].get(f"/v1/topics/first-{round_}/messages", params={"limit": 20}))
        assert sorted(one["value"] for one in read["messages"]) == ["1", "1", "2", "2", "3", "3"]


def test_a_batch_has_a_result_for_each_message_wherever_it_goes(
    cluster: Cluster, nodes: dict[int, httpx.Client]
) -> None:
    create(cluster, nodes, "mixed")
    for client in nodes.values():
        messages: list[dict[str, object]] = [
            {"value": str(n), "key": f"key-{n}"} for n in range(100)
        ]
        messages[7] = {"value": "x", "partition": 99}
        told = good(client.post("/v1/topics/mixed/batch", json={"messages": messages}))
        assert told["failed"] == 1
        assert told["results"][7]["problem"]["code"] == "unknown_partition"
        published = [one["published"] for one in told["results"] if "published" in one]
        found = {(one["partition"], one["offset"]) for one in published}
        assert len(found) == 99
        assert {partition for partition, _ in found} == {0, 1, 2}
    described = [good(one.get("/v1/topics/mixed")) for one in nodes.values()]
    assert [one["messages"] for one in described] == [297, 297, 297]


def test_every_node_reads_all_partitions_as_one(
    cluster: Cluster, nodes: dict[int, httpx.Client]
) -> None:
    create(cluster, nodes, "readable")
    values = [str(number) for number in range(60)]
    for number, value in enumerate(values):
        client = nodes[1 + number % 3]
        good(client.post("/v1/topics/readable/publish", json={"value": value, "key": value}))
    for client in nodes.values():
        seen: list[str] = []
        cursor = None
        while len(seen) < 60:
            query: dict[str, str | int] = {"limit": 7, "wait_ms": 2_000}
            if cursor is not None:
                query["cursor"] = cursor
            page = good(client.get("/v1/topics/readable/messages", params=query))
            assert 1 <= len(page["messages"]) <= 7
            seen += [one["value"] for one in page["messages"]]
            cursor = page["cursor"]
        assert sorted(seen) == sorted(values)
        recent: dict[str, str | int] = {"from": "1h", "limit": 100}
        assert (
            len(good(client.get("/v1/topics/readable/messages", params=recent))["messages"]) == 60
        )


def test_a_long_poll_at_one_node_sees_what_another_takes(
    cluster: Cluster, nodes: dict[int, httpx.Client]
) -> None:
    create(cluster, nodes, "waited")
    for reader, writer in ((1, 2), (2, 3), (3, 1)):
        for partition in range(3):
            path = "/v1/topics/waited/messages"
            end = good(nodes[reader].get(path, params={"from": "latest"}))["cursor"]
            page: dict[str, Any] = {}

            def wait(
                page: dict[str, Any] = page, reader: int = reader, path: str = path, end: str = end
            ) -> None:
                query: dict[str, str | int] = {"cursor": end, "wait_ms": 20_000}
                page.update(good(nodes[reader].get(path, params=query)))

            # It reads on from the end, so it has to bring the message whoever is quicker.
            waiting = threading.Thread(target=wait)
            waiting.start()
            body = {"value": "now", "partition": partition}
            good(nodes[writer].post("/v1/topics/waited/publish", json=body))
            waiting.join(15)
            assert not waiting.is_alive()
            assert [one["value"] for one in page["messages"]] == ["now"]


def test_a_stream_of_events_brings_what_all_nodes_take(
    cluster: Cluster, nodes: dict[int, httpx.Client]
) -> None:
    create(cluster, nodes, "streamed")
    wanted = [str(number) for number in range(30)]
    turns = cycle(nodes.values())
    for number in nodes:
        for value in wanted:
            good(next(turns).post("/v1/topics/streamed/publish", json={"value": value}))
        events: list[str] = []
        path = f"{cluster.nodes[number].http}/v1/topics/streamed/stream?from=earliest"
        with httpx.stream("GET", path, timeout=20) as response:
            for line in response.iter_lines():
                if line.startswith("data: "):
                    events.append(json.loads(line.removeprefix("data: "))["value"])
                if len(events) >= 30 * number:
                    break
        assert sorted(events) == sorted(wanted * number)


def test_members_of_a_stream_group_use_any_node(
    cluster: Cluster, nodes: dict[int, httpx.Client]
) -> None:
    create(cluster, nodes, "grouped")
    for number in range(30):
        body = {"value": str(number), "key": str(number)}
        good(nodes[1 + number % 3].post("/v1/topics/grouped/publish", json=body))
    for group in ("alpha", "beta", "gamma", "delta"):
        turns = cycle(nodes.values())
        path = f"/v1/groups/{group}"
        told = good(next(turns).post(f"{path}/join", json={"topics": ["grouped"]}))
        member: dict[str, Any] = {
            "member_id": told["member_id"],
            "member_epoch": told["member_epoch"],
        }
        seen: list[str] = []
        deadline = time.monotonic() + 30
        while len(seen) < 30 and time.monotonic() < deadline:
            query = member | {"wait_ms": 1_000, "start": "earliest", "limit": 4}
            polled = good(next(turns).get(f"{path}/poll", params=query))
            member["member_epoch"] = polled["member_epoch"]
            seen += [one["value"] for one in polled["messages"]]
        assert sorted(seen, key=int) == [str(number) for number in range(30)]
        good(next(turns).post(f"{path}/heartbeat", json=member))
        offsets = [{"topic": "grouped", "partition": number, "offset": 1} for number in range(3)]
        committed = good(next(turns).post(f"{path}/commit", json=member | {"offsets": offsets}))
        assert committed["failed"] == 0
        for client in nodes.values():
            found = good(client.get(f"{path}/offsets"))["offsets"]
            assert [one["offset"] for one in found] == [1, 1, 1]
            assert good(client.get(f"{path}/lag"))["lag"] == 27
            assert len(good(client.get(f"{path}/assignment"))["members"]) == 1
            assert good(client.get(f"{path}/rebalances"))["count"] >= 1
            names = {one["name"] for one in good(client.get("/v1/groups"))["groups"]}
            assert group in names
        good(next(turns).post(f"{path}/leave", json={"member_id": told["member_id"]}))
        reset = {"topic": "grouped", "to": "earliest"}
        moved = good(next(turns).post(f"{path}/reset", json=reset))["offsets"]
        assert [one["offset"] for one in moved] == [0, 0, 0]
        good(next(turns).delete(path))
        assert next(turns).get(path).status_code == 404


def test_topics_are_changed_by_any_node(cluster: Cluster, nodes: dict[int, httpx.Client]) -> None:
    create(cluster, nodes, "changed", partitions=2)
    good(nodes[2].patch("/v1/topics/changed", json={"settings": {"retention_ms": 86_400_000}}))
    changed = {"retention_ms": 86_400_000}
    eventually(
        lambda: all(
            good(one.get("/v1/topics/changed"))["settings"] == changed for one in nodes.values()
        ),
        because="all nodes know the setting",
    )
    good(nodes[3].post("/v1/topics/changed/partitions", json={"partitions": 4}))
    cluster.until_in_sync("changed")
    for partition in range(4):
        for number in range(5):
            body = {"value": str(number), "partition": partition}
            good(nodes[1].post("/v1/topics/changed/publish", json=body))
    deleted = good(nodes[2].delete("/v1/topics/changed/records"))["partitions"]
    assert [one["start_offset"] for one in deleted] == [5, 5, 5, 5]
    for client in nodes.values():
        assert good(client.get("/v1/topics/changed"))["messages"] == 0
    good(nodes[3].delete("/v1/topics/changed"))
    eventually(
        lambda: all(one.get("/v1/topics/changed").status_code == 404 for one in nodes.values()),
        because="all nodes have forgotten the topic",
    )


def test_what_is_wrong_is_told_in_the_same_words_by_every_node(
    nodes: dict[int, httpx.Client],
) -> None:
    for path in ("/v1/topics/nowhere", "/v1/groups/nobody", "/v1/admin/nodes/77"):
        answers = [client.get(path) for client in nodes.values()]
        assert {one.status_code for one in answers} == {404}
        assert len({one.json()["detail"] for one in answers}) == 1


def test_a_queue_group_is_used_through_any_node(
    cluster: Cluster, nodes: dict[int, httpx.Client]
) -> None:
    create(cluster, nodes, "queued")
    for number in range(12):
        body = {"value": str(number), "key": str(number)}
        good(nodes[1].post("/v1/topics/queued/publish", json=body))
    for group in ("red", "green", "blue"):
        turns = cycle(nodes.values())
        path = f"/v1/groups/{group}"
        seen: list[str] = []
        deadline = time.monotonic() + 30
        while len(seen) < 12 and time.monotonic() < deadline:
            wanted = {"topic": "queued", "max_messages": 5, "wait_ms": 2_000}
            received = good(next(turns).post(f"{path}/receive", json=wanted))["messages"]
            seen += [one["value"] for one in received]
            receipts = {"receipts": [one["receipt"] for one in received]}
            if received:
                assert good(next(turns).post(f"{path}/extend", json=receipts))["failed"] == 0
                assert good(next(turns).post(f"{path}/ack", json=receipts))["failed"] == 0
        assert sorted(seen, key=int) == [str(number) for number in range(12)]
        for client in nodes.values():
            stats = good(client.get(f"{path}/stats", params={"topic": "queued"}))
            assert (stats["ready"], stats["in_flight"]) == (0, 0)
            assert good(client.get(path))["kind"] == "queue"
            assert good(client.get(f"{path}/lag"))["lag"] == 0
            assert client.get("/v1/deadletters/queued").is_success


def test_a_receive_that_is_given_up_leases_nothing(
    cluster: Cluster, nodes: dict[int, httpx.Client]
) -> None:
    create(cluster, nodes, "given-up", partitions=1)
    good(nodes[1].put("/v1/groups/leavers", json={"kind": "queue"}))
    wanted = {"topic": "given-up", "wait_ms": 30_000}
    hasty = httpx.Timeout(20, read=0.5)
    for node in cluster.nodes.values():
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{node.http}/v1/groups/leavers/receive", json=wanted, timeout=hasty)
    # Those who have left are no longer in line, at whichever node they stood.
    good(nodes[1].post("/v1/topics/given-up/publish", json={"value": "for who is there"}))
    received = good(nodes[2].post("/v1/groups/leavers/receive", json=wanted | {"wait_ms": 5_000}))
    assert [one["value"] for one in received["messages"]] == ["for who is there"]


def test_delayed_messages_and_schemas_are_known_to_every_node(
    cluster: Cluster, nodes: dict[int, httpx.Client]
) -> None:
    create(cluster, nodes, "later")
    for number, client in nodes.items():
        other = nodes[1 + number % 3]
        body = {"value": "later", "delay_ms": 600_000}
        ids = [
            good(client.post("/v1/topics/later/publish", json=body))["schedule_id"]
            for _ in range(3)
        ]
        assert good(other.get(f"/v1/schedules/{ids[0]}"))["value"] == "later"
        good(other.patch(f"/v1/schedules/{ids[0]}", json={"delay_ms": 900_000}))
        good(other.delete(f"/v1/schedules/{ids[0]}"))
        cancelled = good(other.post("/v1/schedules/cancel", json={"ids": [*ids, "none"]}))
        assert cancelled["failed"] == 2
        assert good(client.get("/v1/schedules/count", params={"topic": "later"}))["count"] == 0
        subject = f"/registry/subjects/later-{number}/versions"
        schema_id = good(client.post(subject, json={"schema": '"string"'}))["id"]
        schema = f"/registry/schemas/ids/{schema_id}"

        def is_known(schema: str = schema) -> bool:
            return all(one.get(schema).is_success for one in nodes.values())

        eventually(is_known, because="every node reads the schema")


def test_a_transaction_goes_on_at_any_node(
    cluster: Cluster, nodes: dict[int, httpx.Client]
) -> None:
    create(cluster, nodes, "together")
    for number in nodes:
        turns = cycle(nodes.values())
        begun = good(next(turns).post("/v1/transactions", json={"transactional_id": f"t{number}"}))
        path = f"/v1/transactions/{begun['id']}"
        messages = [
            {"topic": "together", "value": f"{number}-{one}", "partition": one} for one in range(3)
        ]
        for _ in range(2):
            told = good(next(turns).post(f"{path}/publish", json={"messages": messages}))
            assert told["failed"] == 0, told
        shown = good(next(turns).get(path))
        assert len(shown["participants"]) == 3
        assert good(next(turns).post(f"{path}/commit"))["outcome"] == "committed"
        for client in nodes.values():
            found = good(client.get("/v1/topics/together/messages"))["messages"]
            assert len(found) == 6 * number
            listed = good(client.get("/v1/transactions"))["transactions"]
            assert f"t{number}" in {one["transactional_id"] for one in listed}
    good(nodes[1].post("/v1/transactions", json={}))


def test_publishing_by_any_node_outlives_the_leader(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    try:
        cluster.start()
        nodes = {
            number: httpx.Client(base_url=node.http, timeout=40)
            for number, node in cluster.nodes.items()
        }
        create(cluster, nodes, "orders", partitions=1)
        victim = leaders(nodes, "orders")[0]
        others = [client for number, client in nodes.items() if number != victim]
        acked: list[str] = []
        stop = threading.Event()

        def write(client: httpx.Client, name: str) -> None:
            number = 0
            while not stop.is_set():
                value = f"{name}-{number}"
                good(client.post("/v1/topics/orders/publish", json={"value": value}))
                acked.append(value)
                number += 1

        writers = [
            threading.Thread(target=write, args=(client, f"writer-{place}"))
            for place, client in enumerate(others)
        ]
        for writer in writers:
            writer.start()
        eventually(lambda: len(acked) > 100, because="some are published")
        cluster.nodes[victim].kill()
        before = len(acked)
        eventually(lambda: len(acked) > before + 200, because="publishing goes on")
        stop.set()
        for writer in writers:
            writer.join(40)
        read: list[str] = []
        cursor = None
        while len(read) < len(acked):
            query: dict[str, str | int] = {"limit": 1000}
            if cursor is not None:
                query["cursor"] = cursor
            page = good(others[0].get("/v1/topics/orders/messages", params=query))
            assert page["messages"], "what was acknowledged is lost"
            read += [one["value"] for one in page["messages"]]
            cursor = page["cursor"]
        # Nobody was refused and had to publish again, and nothing was stored twice on the way.
        assert sorted(read) == sorted(acked)
    finally:
        cluster.close()


def test_a_cluster_is_run_from_the_command_line(
    cluster: Cluster, nodes: dict[int, httpx.Client]
) -> None:
    create(cluster, nodes, "managed")

    def run(node: int, *words: str) -> Any:
        return cluster.cli("cluster", *words, node=node)

    about = run(1, "info")
    assert (about["nodes"], about["nodes_running"], about["voters"]) == (3, 3, "1,2,3")
    assert [one["id"] for one in run(2, "nodes")] == [1, 2, 3]
    assert run(3, "health") == {"status": "ok", "problems": []}
    moved = run(1, "reassign", "managed", "--replicas", "2,3")
    assert [one["replicas"] for one in moved] == [[2, 3], [3, 2], [2, 3]]
    placed = run(2, "partitions", "managed")
    assert [sorted(one["in_sync"]) for one in placed] == [[2, 3]] * 3
    # Node 1 keeps nothing of it any more, and serves it all the same.
    good(nodes[1].post("/v1/topics/managed/publish", json={"value": "x", "partition": 0}))
    found = good(nodes[1].get("/v1/topics/managed/messages"))["messages"]
    assert [one["value"] for one in found] == ["x"]
    assert run(1, "drain", "3")["leaders"] == 0
    assert {one["leader"] for one in run(2, "partitions", "managed")} == {2}
    assert [one["state"] for one in run(2, "nodes")] == ["running", "running", "draining"]
    assert run(3, "undrain", "3")["draining"] is False
    run(2, "elect", "managed")
    assert [one["leader"] for one in run(2, "partitions", "managed")] == [2, 3, 2]
    assert run(2, "reassign", "--status") == []
    planned = run(1, "reassign", "--all", "--replicas", "1,2,3", "--dry-run")
    assert {one["topic"] for one in planned} >= {"managed"}
    assert sorted(one["replicas"][0] for one in planned if one["topic"] == "managed") == [1, 2, 3]


def test_kafka_tools_elect_leaders(cluster: Cluster, nodes: dict[int, httpx.Client]) -> None:
    create(cluster, nodes, "elected")
    wanted = [TopicPartition("elected", number) for number in range(3)]
    elected = cluster.admin.elect_leaders(ElectionType.PREFERRED, wanted).result(timeout=20)
    assert {error.code() for error in elected.values()} == {KafkaError.ELECTION_NOT_NEEDED}
