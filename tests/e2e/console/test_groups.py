"""Groups of all kinds: lag, members, settings, reset, rewind, purge, and messages in flight."""

from __future__ import annotations

import re
import uuid

import pytest
from confluent_kafka import AcknowledgeType, Consumer, TopicPartition
from playwright.sync_api import expect

from tests.e2e.conftest import NewTopic
from tests.e2e.console.browser import Api, Console
from tests.e2e.console.scenes import HOSTILE, HOSTILE_SHOWN, fill, queue_stats, receive
from tests.integration.process import Broker
from tests.integration.sharing import commit, received, share_consumer
from tests.integration.waiting import eventually

LIST = "Groups and queues"


@pytest.fixture
def unique() -> str:
    """A name that no other test has, and that looks well in a picture."""
    return f"billing-{uuid.uuid4().hex[:6]}"


@pytest.fixture
def orders(api: Api, new_topic: NewTopic) -> str:
    """A topic of three partitions with 30 messages."""
    topic = new_topic(3)
    fill(api, topic, 30)
    return topic


def stream_group(api: Api, name: str, topic: str, *, start: str = "earliest") -> None:
    api.put(f"/v1/groups/{name}", {"kind": "stream", "topics": [topic], "start": start})


# The list


def test_groups_of_all_kinds_are_in_one_list_that_the_address_describes(
    console: Console, api: Api, orders: str, unique: str
) -> None:
    stream_group(api, f"{unique}-stream", orders)
    receive(api, f"{unique}-queue", orders, 4)
    console.visit(f"groups?match={unique}", LIST)
    rows = console.rows(LIST)
    expect(rows).to_have_count(2)
    queue = rows.filter(has_text=f"{unique}-queue")
    cells = queue.get_by_role("cell")
    expect(cells.nth(1)).to_have_text("queue")
    expect(cells.nth(5)).to_have_text("30")
    expect(cells.nth(6)).to_have_text(re.compile(r"\d+ (ms|s|m)"))
    expect(cells.nth(7)).to_have_text("4")
    console.page.get_by_label("Kind").select_option(label="Stream groups")
    expect(rows).to_have_count(1)
    expect(console.page).to_have_url(re.compile(r"kind=stream"))
    console.page.get_by_label("State").select_option(label="Empty")
    expect(console.page).to_have_url(re.compile(r"state=Empty"))
    console.page.reload()
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text(f"{unique}-stream")
    console.page.go_back()
    console.visit(f"groups?match={unique}&sort=lag&order=desc", LIST)
    console.table(LIST).get_by_role("button", name="Members").click()
    expect(console.page).to_have_url(re.compile("sort=members"))
    console.check_accessibility()
    console.picture("groups")


def test_a_list_is_paged_by_the_server(
    console: Console, api: Api, orders: str, unique: str
) -> None:
    for number in range(27):
        stream_group(api, f"{unique}-{number:02}", orders)
    console.visit(f"groups?match={unique}&limit=25", LIST)
    rows = console.go_to_next_page(LIST, first=25, second=2)
    expect(rows.last).to_contain_text(f"{unique}-26")
    console.page.reload()
    expect(rows).to_have_count(2)
    console.page.get_by_role("link", name="First page").click()
    expect(rows).to_have_count(25)


def test_nothing_found_and_an_unknown_group_are_said(console: Console, unique: str) -> None:
    console.visit(f"groups?match={unique}-none", LIST)
    expect(console.page.get_by_text("Nothing matches")).to_be_visible()
    console.allow_faults("404")
    console.visit(f"groups/{unique}-none", f"{unique}-none")
    expect(console.page.get_by_role("alert").first).to_contain_text("Not found")
    console.check_accessibility()


@pytest.mark.parametrize("kind", ["queue", "stream"])
def test_a_group_is_created(
    console: Console, api: Api, orders: str, unique: str, kind: str
) -> None:
    console.visit("groups", LIST)
    console.page.get_by_role("button", name="Create group").click()
    dialog = console.dialog("Create group")
    dialog.get_by_label("Group").fill(unique)
    dialog.get_by_label("Kind").select_option(kind)
    if kind == "stream":
        dialog.get_by_label("Topic").fill(orders)
        dialog.get_by_label("Start at").select_option("latest")
    dialog.get_by_role("button", name="Create").click()
    console.heading(unique)
    found = api.get(f"/v1/groups/{unique}")
    assert found["kind"] == kind
    if kind == "stream":
        assert api.get(f"/v1/groups/{unique}/lag")["lag"] == 0


def test_a_name_that_the_node_refuses_is_explained_in_the_dialog(console: Console) -> None:
    console.allow_faults("400")
    console.visit("groups?new=1", LIST)
    dialog = console.dialog("Create group")
    dialog.get_by_label("Group").fill("x" * 300)
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_role("alert")).to_be_visible()
    expect(dialog.get_by_label("Group")).to_have_value("x" * 300)


# Stream groups


def test_a_stream_group_shows_its_lag_members_and_rebalances(
    console: Console, api: Api, orders: str, unique: str
) -> None:
    stored = api.get(f"/v1/topics/{orders}/messages", partition=0)["messages"]
    offset = {"topic": orders, "partition": 0, "offset": 1}
    api.post(f"/v1/groups/{unique}/commit", {"offsets": [offset]})
    body = {"topics": [orders], "member_id": HOSTILE[:28]}
    api.post(f"/v1/groups/{unique}/join", body)
    console.visit(f"groups/{unique}", unique)
    lag = console.rows("Lag")
    expect(lag).to_have_count(3)
    first = lag.filter(has=console.page.get_by_role("cell", name="0", exact=True)).first
    expect(first.get_by_role("cell").nth(2)).to_have_text("1")
    expect(first.get_by_role("cell").nth(4)).to_have_text(str(len(stored) - 1))
    expect(first.get_by_role("cell").nth(5)).to_have_text(re.compile(r"\d+ (ms|s)"))
    console.page.get_by_role("link", name="Members", exact=True).click()
    expect(console.rows("Members")).to_contain_text("<img src=x onerror=alert(1)>")
    expect(console.rows("Members")).to_contain_text(f"{orders}: 0, 1, 2")
    console.check_accessibility()
    console.picture("group-members")
    console.page.get_by_role("link", name="Rebalances").click()
    expect(console.rows("Rebalances").first).to_be_visible()


def test_offsets_are_reset_after_a_preview(
    console: Console, api: Api, orders: str, unique: str
) -> None:
    stream_group(api, unique, orders, start="latest")
    assert api.get(f"/v1/groups/{unique}/lag")["lag"] == 0
    console.visit(f"groups/{unique}", unique)
    dialog = console.open_dialog("Reset offsets")
    act = dialog.get_by_role("button", name="Reset offsets")
    expect(act).to_be_disabled()
    dialog.get_by_label("To", exact=True).fill("earliest")
    dialog.get_by_role("button", name="Preview").click()
    preview = dialog.get_by_role("region", name="Preview").locator("tbody tr")
    expect(preview).to_have_count(3)
    expect(preview.first.get_by_role("cell").nth(2)).to_have_text("0")
    # It is at the end of each partition, and would read all 30 messages again.
    expect(dialog).to_contain_text("30 messages are read from there on")
    before = preview.first.get_by_role("cell").nth(1).inner_text()
    expect(preview.first.get_by_role("cell").nth(3)).to_have_text(before)
    assert api.get(f"/v1/groups/{unique}/lag")["lag"] == 0
    console.check_accessibility()
    console.picture("group-reset")
    act.click()
    expect(dialog).to_be_hidden()
    assert api.get(f"/v1/groups/{unique}/lag")["lag"] == 30


def test_offsets_are_reset_to_an_offset(
    console: Console, api: Api, orders: str, unique: str
) -> None:
    stream_group(api, unique, orders)
    console.visit(f"groups/{unique}", unique)
    dialog = console.open_dialog("Reset offsets")
    dialog.get_by_label("To", exact=True).fill("offset:2")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog).to_contain_text("24 messages are read from there on")
    dialog.get_by_role("button", name="Reset offsets").click()
    expect(dialog).to_be_hidden()
    assert api.get(f"/v1/groups/{unique}/lag")["lag"] == 24


def test_committed_offsets_of_a_topic_are_deleted(
    console: Console, api: Api, orders: str, unique: str
) -> None:
    stream_group(api, unique, orders)
    console.visit(f"groups/{unique}", unique)
    dialog = console.open_dialog("Delete offsets")
    dialog.get_by_label("Partitions").fill("0, 2")
    dialog.get_by_label(f"Type {orders} to confirm").fill(orders)
    dialog.get_by_role("button", name="Delete offsets").click()
    expect(console.page.get_by_role("status").get_by_text("2 offsets are deleted")).to_be_visible()
    left = api.get(f"/v1/groups/{unique}/offsets")["offsets"]
    assert [one["partition"] for one in left] == [1]
    api.post(f"/v1/groups/{unique}/join", {"topics": [orders], "member_id": "one"})
    console.page.get_by_role("button", name="Delete offsets").click()
    dialog.get_by_label(f"Type {orders} to confirm").fill(orders)
    dialog.get_by_role("button", name="Delete offsets").click()
    expect(dialog.get_by_role("alert")).to_contain_text("1 offset is not deleted")


def test_lag_of_many_partitions_comes_in_pages(
    console: Console, api: Api, new_topic: NewTopic, unique: str
) -> None:
    for partitions in (30, 2):
        topic = new_topic(partitions)
        fill(api, topic, 40)
        stream_group(api, unique, topic)
    console.visit(f"groups/{unique}?limit=25", unique)
    expect(console.rows("Lag")).to_have_count(25)
    expect(console.page.get_by_text("25 of 32")).to_be_visible()
    console.page.get_by_role("link", name="Next").click()
    expect(console.rows("Lag")).to_have_count(7)
    console.page.get_by_label("Topic").select_option(topic)
    expect(console.rows("Lag")).to_have_count(2)


def test_a_group_with_members_is_not_reset_and_the_reason_is_shown(
    console: Console, api: Api, orders: str, unique: str
) -> None:
    api.post(f"/v1/groups/{unique}/join", {"topics": [orders], "member_id": "one"})
    console.allow_faults("409")
    console.visit(f"groups/{unique}", unique)
    dialog = console.open_dialog("Reset offsets")
    dialog.get_by_role("button", name="Preview").click()
    dialog.get_by_role("button", name="Reset offsets").click()
    expect(dialog.get_by_role("alert")).to_contain_text("members")
    dialog.get_by_label("To", exact=True).fill("no time at all")
    console.allow_faults("400")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_role("alert").first).to_contain_text("no time at all")


# Queue groups


def test_a_queue_group_is_rewound_after_a_preview(
    console: Console, api: Api, orders: str, unique: str
) -> None:
    taken = receive(api, unique, orders, 30)
    api.post(f"/v1/groups/{unique}/ack", {"receipts": [one["receipt"] for one in taken]})
    left = 30 - len(taken)
    assert queue_stats(api, unique, orders)["ready"] == left
    console.visit(f"groups/{unique}", unique)
    console.page.get_by_role("button", name="Rewind").click()
    dialog = console.dialog("Rewind")
    dialog.get_by_label("To", exact=True).fill("earliest")
    dialog.get_by_role("button", name="Preview").click()
    preview = dialog.get_by_role("region", name="Preview").locator("tbody tr")
    expect(preview).to_have_count(3)
    expect(preview.first.get_by_role("cell").nth(1)).not_to_have_text("–")
    expect(dialog).to_contain_text("30 messages are read from there on")
    assert queue_stats(api, unique, orders)["ready"] == left
    dialog.get_by_role("button", name="Rewind").click()
    expect(dialog).to_be_hidden()
    assert queue_stats(api, unique, orders)["ready"] == 30


def test_a_queue_group_is_purged_when_its_name_is_typed(
    console: Console, api: Api, orders: str, unique: str
) -> None:
    receive(api, unique, orders, 2)
    console.visit(f"groups/{unique}/lanes", unique)
    expect(console.page.get_by_role("region", name="Lanes").get_by_role("table")).to_be_visible()
    console.check_accessibility()
    console.picture("group-queue")
    console.page.get_by_role("button", name="Purge").click()
    dialog = console.dialog("Purge")
    act = dialog.get_by_role("button", name="Purge")
    expect(act).to_be_disabled()
    dialog.get_by_label(f"Type {unique} to confirm").fill(unique)
    act.click()
    expect(dialog).to_be_hidden()
    stats = queue_stats(api, unique, orders)
    assert (stats["ready"], stats["in_flight"]) == (0, 0)


def test_settings_of_a_queue_group_are_explained_and_changed(
    console: Console, api: Api, orders: str, unique: str
) -> None:
    receive(api, unique, orders)
    console.visit(f"groups/{unique}/settings", unique)
    console.page.get_by_label("visibility_ms").fill("45000")
    console.page.get_by_role("button", name="Save 1 change").click()
    expect(console.page.get_by_role("status").get_by_text("Saved")).to_be_visible()
    assert api.get(f"/v1/groups/{unique}")["settings"]["visibility_ms"] == 45_000
    console.check_accessibility()
    console.picture("group-settings")
    console.allow_faults("400")
    console.page.get_by_label("deliveries_max").fill("-1")
    console.page.get_by_role("button", name="Save 1 change").click()
    expect(console.page.get_by_role("alert")).to_be_visible()


def test_a_group_is_deleted_when_its_name_is_typed(
    console: Console, api: Api, orders: str, unique: str
) -> None:
    receive(api, unique, orders)
    console.visit(f"groups/{unique}", unique)
    console.page.get_by_role("button", name="Delete").click()
    dialog = console.dialog("Delete group")
    act = dialog.get_by_role("button", name="Delete group")
    expect(act).to_be_disabled()
    dialog.get_by_label(f"Type {unique} to confirm").fill(unique)
    act.click()
    console.heading(LIST)
    assert api.status(f"/v1/groups/{unique}") == 404


def test_members_of_a_share_group_have_partitions_and_messages_in_flight(
    console: Console, api: Api, broker: Broker, orders: str, unique: str
) -> None:
    api.put(f"/v1/groups/{unique}", {"kind": "queue", "settings": {"start": "earliest"}})
    with share_consumer(broker.bootstrap, unique, orders, client_id="till-7") as consumer:
        held = eventually(lambda: received(consumer), because="the member has messages")
        console.visit(f"groups?match={unique}", LIST)
        expect(console.rows(LIST).get_by_role("cell").nth(1)).to_have_text("share")
        console.visit(f"topics/{orders}/groups", orders)
        row = console.rows("Groups").filter(has_text=unique)
        expect(row.get_by_role("cell").nth(1)).to_have_text("share")
        console.visit(f"groups/{unique}/members", unique)
        row = console.rows("Members")
        expect(row).to_contain_text("till-7")
        expect(row).to_contain_text(f"{orders}: 0, 1, 2")
        console.check_accessibility()
        console.picture("share-group-members")
        console.page.get_by_role("link", name="In flight").click()
        expect(console.rows("In flight").first).to_be_visible()
        for one in held:
            consumer.acknowledge(one, AcknowledgeType.ACCEPT)
        commit(consumer)
    console.visit(f"groups/{unique}/members", unique)
    expect(console.page.get_by_text("No members")).to_be_visible()


# Messages in flight


def test_messages_in_flight_show_their_holder_as_text(
    console: Console, api: Api, orders: str, unique: str
) -> None:
    receive(api, unique, orders, 2, consumer=HOSTILE)
    receive(api, unique, orders, 3, consumer="worker-2")
    console.visit(f"groups/{unique}/in-flight", unique)
    rows = console.rows("In flight")
    expect(rows).to_have_count(5)
    expect(rows.filter(has_text=HOSTILE_SHOWN)).to_have_count(2)
    expect(console.page.locator("main img")).to_have_count(0)
    expect(rows.first).to_contain_text("in 9 m")
    console.check_accessibility()
    console.picture("group-in-flight")
    console.page.get_by_role("link", name="Members").click()
    holders = console.rows("Consumers with messages in flight")
    expect(holders).to_have_count(2)
    expect(holders.filter(has_text=HOSTILE_SHOWN)).to_contain_text("2")
    console.check_accessibility()
    holders.filter(has_text="worker-2").get_by_role("link", name="worker-2").click()
    expect(rows).to_have_count(3)
    console.visit(f"groups/{unique}/in-flight", unique)
    expect(rows).to_have_count(5)
    console.page.get_by_label("Consumer").fill("worker-2")
    expect(rows).to_have_count(3)
    expect(console.page).to_have_url(re.compile("consumer=worker-2"))


@pytest.mark.parametrize(
    ("action", "counts"),
    [
        ("Release", {"in_flight": 1}),
        ("Acknowledge", {"in_flight": 1, "acked": 2}),
        ("Dead-letter", {"in_flight": 1, "rejected": 2}),
    ],
)
def test_messages_in_flight_are_settled_by_hand(
    console: Console, api: Api, orders: str, unique: str, action: str, counts: dict[str, int]
) -> None:
    taken = receive(api, unique, orders, 3)
    console.visit(f"groups/{unique}/in-flight", unique)
    for one in taken[:2]:
        console.page.get_by_role("checkbox", name=f"Choose {one['id']}").check()
    console.page.get_by_role("button", name=f"{action} (2)").click()
    dialog = console.dialog(action)
    if action == "Dead-letter":
        dialog.get_by_label("Reason").fill("by hand")
    dialog.get_by_role("button", name=action).click()
    expect(console.page.get_by_role("status").get_by_text("2 messages done")).to_be_visible()
    expect(console.rows("In flight")).to_have_count(1)

    def found() -> dict[str, int]:
        stats = queue_stats(api, unique, orders)
        known = {**stats["totals"], "in_flight": stats["in_flight"]}
        return {name: known[name] for name in counts}

    eventually(lambda: found() == counts, because=f"{action} has taken effect")
    [left] = taken[2:]
    settled = api.post(f"/v1/groups/{unique}/ack", {"receipts": [left["receipt"]]})
    assert settled["failed"] == 0


def test_figures_of_a_queue_are_shown_for_each_of_its_topics(
    console: Console, api: Api, new_topic: NewTopic, unique: str
) -> None:
    topics = sorted(new_topic(1) for _ in range(2))
    for number, topic in enumerate(topics, 1):
        fill(api, topic, 5)
        receive(api, unique, topic, number)
    console.visit(f"groups/{unique}/lanes", unique)
    lanes = console.page.get_by_role("region", name="Lanes").get_by_role("row")
    expect(lanes.filter(has_text="normal").get_by_role("cell").nth(2)).to_have_text("1")
    console.page.get_by_label("Topic").select_option(topics[1])
    expect(lanes.filter(has_text="normal").get_by_role("cell").nth(2)).to_have_text("2")
    expect(console.page).to_have_url(re.compile(f"topic={topics[1]}"))


def test_only_messages_that_are_in_the_list_and_named_in_the_dialog_are_settled(
    console: Console, api: Api, new_topic: NewTopic, unique: str
) -> None:
    held = {}
    for _ in range(2):
        topic = new_topic(1)
        fill(api, topic, 2)
        held[topic] = receive(api, unique, topic, 2)
    one, other = sorted(held)
    console.visit(f"groups/{unique}/in-flight?topic={one}", unique)
    rows = console.rows("In flight")
    expect(rows).to_have_count(2)
    rows.first.get_by_role("checkbox").check()
    expect(console.page.get_by_role("button", name="Acknowledge (1)")).to_be_visible()
    console.page.get_by_label("Topic").select_option(other)
    expect(console.page.get_by_role("button", name=re.compile("^Acknowledge"))).to_have_count(0)
    rows.first.get_by_role("checkbox").check()
    console.page.get_by_role("button", name="Acknowledge (1)").click()
    dialog = console.dialog("Acknowledge")
    expect(dialog.get_by_role("list", name="Chosen")).to_contain_text(f"{other} 0:")
    console.check_accessibility()
    dialog.get_by_role("button", name="Acknowledge").click()
    expect(rows).to_have_count(1)
    assert [queue_stats(api, unique, name)["in_flight"] for name in (one, other)] == [2, 1]
    rows.first.get_by_role("checkbox").check()
    console.page.get_by_label("Consumer").fill("nobody")
    expect(console.page.get_by_text("Nothing matches")).to_be_visible()
    expect(console.page.get_by_role("button", name=re.compile("^Acknowledge"))).to_have_count(0)


def test_leases_are_extended_by_hand(console: Console, api: Api, orders: str, unique: str) -> None:
    [taken] = receive(api, unique, orders)
    console.visit(f"groups/{unique}/in-flight", unique)
    console.page.get_by_role("checkbox", name=f"Choose {taken['id']}").check()
    console.page.get_by_role("button", name="Extend (1)").click()
    dialog = console.dialog("Extend")
    dialog.get_by_label("Seconds from now").fill("3600")
    dialog.get_by_role("button", name="Extend").click()
    expect(console.rows("In flight").first).to_contain_text(re.compile("in (59 m|1 h)"))
    [held] = api.get(f"/v1/groups/{unique}/in-flight", topic=orders)["messages"]
    assert held["leased_until"] > taken["leased_until"] + 2_000_000


def test_a_group_of_a_kafka_client_may_have_any_name(
    console: Console, api: Api, broker: Broker, orders: str, unique: str
) -> None:
    name = f"{unique} a/b?c=#d&e %41 {HOSTILE}"
    options = {"bootstrap.servers": broker.bootstrap, "group.id": name}
    consumer = Consumer({**options, "auto.offset.reset": "earliest"})
    offsets = [TopicPartition(orders, number, 1) for number in range(3)]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()
    console.visit(f"groups?match={unique}", LIST)
    row = console.rows(LIST)
    expect(row).to_have_count(1)
    expect(console.page.locator("main img")).to_have_count(0)
    row.get_by_role("link").click()
    console.heading(f"{unique} a/b?c=#d&e %41 {HOSTILE_SHOWN}")
    expect(console.rows("Lag")).to_have_count(3)
    console.page.reload()
    expect(console.rows("Lag")).to_have_count(3)
    console.page.get_by_role("link", name="Members", exact=True).click()
    expect(console.page.get_by_text("No members")).to_be_visible()
