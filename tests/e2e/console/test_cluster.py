"""A cluster of three nodes: its map, drains, reassignments, and a node that fails meanwhile."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, expect

from tests.e2e.console.browser import Api, Console
from tests.e2e.console.conftest import OpenConsole
from tests.e2e.console.scenes import fill
from tests.integration.cluster import Cluster
from tests.integration.waiting import eventually

MOVES = "Reassignments"
PLACES = "Partitions"


@pytest.fixture
def unique() -> str:
    """A name that no other test has, and that looks well in a picture."""
    return f"orders-{uuid.uuid4().hex[:6]}"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    nodes = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        nodes.start()
        yield nodes
    finally:
        nodes.close()


@pytest.fixture(scope="module")
def first(cluster: Cluster) -> Iterator[Api]:
    """The API of node 1."""
    api = Api(cluster.nodes[1])
    yield api
    api.close()


@pytest.fixture
def shown(open_console: OpenConsole, cluster: Cluster) -> Console:
    """The console of node 1."""
    return open_console(cluster.nodes[1])


def create(cluster: Cluster, api: Api, name: str, *, partitions: int, replication: int) -> str:
    body = {"name": name, "partitions": partitions, "replication": replication}
    api.post("/v1/topics", body)
    cluster.until_in_sync(name)
    return name


def node(console: Console, number: int) -> Locator:
    return console.page.get_by_role("region", name=f"Node {number}")


def placed(api: Api, topic: str) -> list[list[int]]:
    found = api.get("/v1/admin/partitions", topic=topic)["partitions"]
    return [one["replicas"] for one in found]


def test_nodes_and_partitions_are_mapped(
    shown: Console, cluster: Cluster, first: Api, unique: str
) -> None:
    topic = create(cluster, first, unique, partitions=3, replication=2)
    shown.visit("cluster", "Cluster")
    for number in (1, 2, 3):
        expect(node(shown, number)).to_contain_text("running")
        expect(node(shown, number)).to_contain_text("voter")
    expect(shown.page.get_by_text("controller", exact=True)).to_have_count(1)
    expect(node(shown, 2)).to_contain_text(cluster.nodes[2].bootstrap)
    shown.check_accessibility()
    shown.picture("cluster")
    shown.visit(f"cluster/partitions?topic={topic}", "Cluster")
    rows = shown.rows(PLACES)
    expect(rows).to_have_count(3)
    for row, replicas in zip(rows.all(), placed(first, topic), strict=True):
        expect(row.get_by_text("Leader", exact=True)).to_have_count(1)
        expect(row.get_by_text("in sync", exact=True)).to_have_count(len(replicas) - 1)
    shown.check_accessibility()
    shown.page.get_by_label("State").select_option("under_replicated")
    expect(shown.page.get_by_text("Nothing matches")).to_be_visible()
    shown.visit("cluster/partitions?limit=25&node=2", "Cluster")
    internal = shown.rows(PLACES).filter(has_text="__")
    expect(shown.rows(PLACES).first).to_be_visible()
    expect(internal).to_have_count(0)
    shown.page.get_by_label("Which topics").select_option(label="With internal topics")
    expect(internal.first).to_be_visible()
    shown.picture("cluster-partitions")


def test_partitions_are_moved_as_planned(
    shown: Console, cluster: Cluster, first: Api, unique: str
) -> None:
    topic = create(cluster, first, unique, partitions=4, replication=1)
    fill(first, topic, 200)
    shown.visit("cluster", "Cluster")
    shown.page.get_by_role("button", name="Reassign partitions").click()
    dialog = shown.dialog("Reassign partitions")
    start = dialog.get_by_role("button", name=re.compile("^Move"))
    expect(start).to_be_disabled()
    dialog.get_by_label("What").select_option(label="Topics to some nodes")
    dialog.get_by_label("Topics", exact=True).fill(topic)
    for number in (1, 2):
        dialog.get_by_role("checkbox", name=f"Node {number}").uncheck()
    dialog.get_by_role("button", name="Preview").click()
    moving = sum(replicas != [3] for replicas in placed(first, topic))
    expect(dialog.get_by_role("region", name="Preview").locator("tbody tr")).to_have_count(moving)
    shown.check_accessibility()
    shown.picture("cluster-reassign")
    start.click()
    expect(dialog).to_be_hidden()
    eventually(lambda: placed(first, topic) == [[3]] * 4, because="all have moved")
    assert sum(one["messages"] for one in [first.get(f"/v1/topics/{topic}")]) == 200
    shown.visit("cluster/reassignments", "Cluster")
    expect(shown.page.get_by_text("No partition is moving")).to_be_visible()


def test_replicas_are_picked_by_hand(
    shown: Console, cluster: Cluster, first: Api, unique: str
) -> None:
    topic = create(cluster, first, unique, partitions=2, replication=2)
    shown.visit("cluster", "Cluster")
    shown.page.get_by_role("button", name="Reassign partitions").click()
    dialog = shown.dialog("Reassign partitions")
    dialog.get_by_label("What").select_option(label="Replicas by hand")
    dialog.get_by_label("Topic", exact=True).fill(topic[:-1])
    expect(dialog.locator(f"datalist option[value='{topic}']")).to_have_count(1)
    dialog.get_by_label("Topic", exact=True).fill(topic)
    dialog.get_by_label("Partition", exact=True).fill("1")
    dialog.get_by_label("Replicas", exact=True).fill("9, 1")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_role("alert")).to_contain_text("different nodes of 1, 2, 3")
    [before] = [one for number, one in enumerate(placed(first, topic)) if number == 1]
    after = [3, 2, 1][:2] if before != [3, 2] else [1, 2]
    dialog.get_by_label("Replicas", exact=True).fill(", ".join(map(str, after)))
    dialog.get_by_role("button", name="Preview").click()
    preview = dialog.get_by_role("region", name="Preview").locator("tbody tr")
    expect(preview).to_have_count(1)
    expect(preview).to_contain_text(f"{topic}/1")
    shown.check_accessibility()
    dialog.get_by_role("button", name="Move 1 partition").click()
    eventually(lambda: placed(first, topic)[1] == after, because="it has moved")


def test_a_slow_move_shows_its_progress_and_is_cancelled(
    shown: Console, cluster: Cluster, first: Api, unique: str
) -> None:
    topic = create(cluster, first, unique, partitions=1, replication=1)
    [[before]] = placed(first, topic)
    after = before % 3 + 1
    value = "x" * 500_000
    for _ in range(8):
        first.post(f"/v1/topics/{topic}/publish", {"value": value})
    move = {"topic": topic, "partition": 0, "replicas": [after]}
    body = {"moves": [move], "throttle_bytes_per_second": 10_000}
    assert first.post("/v1/admin/reassignments", body)["failed"] == 0
    shown.visit("cluster/reassignments", "Cluster")
    row = shown.rows(MOVES)
    expect(row).to_contain_text(f"{topic}/0")
    expect(row.get_by_role("progressbar")).to_be_visible()
    expect(row).to_contain_text(re.compile(r"\d+ %"))
    shown.check_accessibility()
    shown.picture("cluster-reassignments")
    shown.page.get_by_role("button", name="Cancel all").click()
    dialog = shown.dialog("Cancel all")
    dialog.get_by_role("button", name="Cancel all").click()
    expect(shown.page.get_by_text("No partition is moving")).to_be_visible()
    assert placed(first, topic) == [[before]]
    # Its only replica would keep a node from being drained.
    first.delete(f"/v1/topics/{topic}")


def test_a_plan_that_is_not_possible_is_explained(shown: Console, first: Api) -> None:
    shown.allow_faults("40")
    shown.visit("cluster", "Cluster")
    shown.page.get_by_role("button", name="Reassign partitions").click()
    dialog = shown.dialog("Reassign partitions")
    dialog.get_by_label("What").select_option(label="Topics to some nodes")
    dialog.get_by_label("Topics", exact=True).fill("no-such-topic")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Not found")


def test_a_node_is_drained_and_leads_again(
    shown: Console, cluster: Cluster, first: Api, unique: str
) -> None:
    create(cluster, first, unique, partitions=6, replication=3)
    shown.visit("cluster", "Cluster")
    node(shown, 2).get_by_role("button", name="Drain").click()
    dialog = shown.dialog("Drain: Node 2")
    dialog.get_by_role("button", name="Drain").click()
    expect(node(shown, 2)).to_contain_text("draining")
    eventually(lambda: first.get("/v1/admin/nodes/2")["leaders"] == 0, because="it is drained")
    expect(node(shown, 2).locator("dd").first).to_have_text("0")
    expect(node(shown, 2)).to_contain_text("It leads nothing any more")
    shown.check_accessibility()
    node(shown, 2).get_by_role("button", name="End drain").click()
    shown.dialog("End drain: Node 2").get_by_role("button", name="End drain").click()
    expect(node(shown, 2)).to_contain_text("running")
    assert first.get("/v1/admin/nodes/2")["state"] == "running"


def test_a_node_that_dies_is_seen_and_its_return_too(
    shown: Console, cluster: Cluster, first: Api, unique: str
) -> None:
    topic = create(cluster, first, unique, partitions=3, replication=3)
    first.put(f"/v1/groups/{unique}", {"kind": "stream", "topics": [topic]})
    shown.visit("cluster", "Cluster")
    expect(node(shown, 3)).to_contain_text("running")
    totals = first.get("/v1/totals")
    assert ([one["id"] for one in totals["nodes"]], totals["missing_nodes"]) == ([1, 2, 3], [])
    cluster.nodes[3].kill()
    expect(node(shown, 3)).to_contain_text("fenced")
    totals = first.get("/v1/totals")
    assert ([one["id"] for one in totals["nodes"]], totals["missing_nodes"]) == ([1, 2], [3])
    shown.check_accessibility()
    shown.picture("cluster-node-down")
    shown.page.get_by_role("link", name="Overview").click()
    shown.heading("Overview")
    expect(shown.page.get_by_role("main")).to_contain_text("cannot be reached: 3.")
    expect(shown.page.get_by_role("region", name="Over time")).to_contain_text(
        "Node 3 is stopped or did not answer: what it has is not included."
    )
    for tile in ("Lag of all groups", "On disk"):
        expect(shown.page.locator(".tile").filter(has_text=tile)).to_contain_text("without node 3")
    lacking = shown.page.get_by_role("listitem").filter(has_text="not in sync")
    expect(lacking.get_by_role("link", name="Show them")).to_have_attribute(
        "href", "/console/cluster/partitions?state=under_replicated"
    )
    shown.picture("overview-degraded")
    shown.page.get_by_role("link", name="Groups and queues").click()
    expect(shown.rows("Groups and queues").filter(has_text=unique)).to_have_count(1)
    shown.visit("cluster", "Cluster")
    cluster.nodes[3].start()
    expect(node(shown, 3)).to_contain_text("running")


def test_the_console_waits_for_its_own_node(open_console: OpenConsole, cluster: Cluster) -> None:
    console = open_console(cluster.nodes[2])
    console.allow_faults("failed request|ERR_CONNECTION|ERR_EMPTY|ERR_SOCKET|status 503|503")
    console.visit("cluster", "Cluster")
    expect(node(console, 2)).to_contain_text("running")
    cluster.nodes[2].kill()
    banner = console.page.get_by_role("alert").filter(has_text="What is shown may be old")
    expect(banner).to_be_visible()
    expect(node(console, 2)).to_be_visible()
    console.check_accessibility()
    console.picture("cluster-offline")
    cluster.nodes[2].start()
    expect(banner).to_be_hidden()
    expect(node(console, 2)).to_contain_text("running")
