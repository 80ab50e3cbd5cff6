"""Topics: the list and everything that can be done to one."""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64encode

import pytest
from playwright.sync_api import Locator, expect

from goqueue.client import LogClient
from tests.e2e.conftest import end_of, write
from tests.e2e.console.browser import Api, Console
from tests.e2e.console.conftest import NewTopic
from tests.e2e.console.scenes import receive

TOPICS = 130


@pytest.fixture(scope="module")
def many(client: LogClient) -> str:
    """The common beginning of the names of many topics, of which three hold messages."""
    prefix = "shop.europe."
    for number in range(TOPICS):
        client.topics.create(f"{prefix}{number:04}", partition_count=1 + number % 3)
    for number, messages in ((7, 30), (70, 20), (99, 10)):
        write(client, f"{prefix}{number:04}", [b"x" * 100] * messages)
    return prefix


def cursor_after(name: str) -> str:
    """Return the cursor of the page after a topic, in a list by name."""
    return urlsafe_b64encode(json.dumps([0, name]).encode()).decode().rstrip("=")


def names(rows: Locator) -> list[str]:
    return rows.locator("td:first-child bdi").all_inner_texts()


def test_list_is_paged_sorted_and_filtered_by_the_server_and_by_the_address(
    console: Console, many: str
) -> None:
    page, rows = console.page, console.rows("Topics")
    console.visit("topics", "Topics")
    page.get_by_role("searchbox", name="Filter topics").fill(many)
    expect(page.get_by_text(f"50 of {TOPICS}")).to_be_visible()
    expect(rows).to_have_count(50)
    expect(page).to_have_url(re.compile("match=shop"))
    console.check_accessibility()
    console.picture("topics")

    page.get_by_role("link", name="Next").click()
    expect(rows.first).to_contain_text(f"{many}0050")
    page.goto("/console/topics?match=shop.europe&limit=65")
    expect(rows).to_have_count(65)
    page.get_by_role("link", name="Next").click()
    expect(rows.first).to_contain_text(f"{many}0065")
    expect(rows).to_have_count(65)
    expect(page.get_by_role("link", name="Next")).to_have_count(0)
    page.goto("/console/topics?match=none&cursor=" + cursor_after(f"{many}9"))
    expect(page.get_by_role("heading", name="No more rows")).to_be_visible()
    page.goto(f"/console/topics?match={many}")
    page.get_by_label("Per page").select_option("25")
    expect(rows.first).to_contain_text(f"{many}0000")
    expect(rows).to_have_count(25)

    page.get_by_role("button", name="Messages").click()
    expect(rows.first).to_contain_text(f"{many}0007")
    assert names(rows)[:3] == [f"{many}{number:04}" for number in (7, 70, 99)]
    expect(page.get_by_role("columnheader", name="Messages")).to_have_attribute(
        "aria-sort", "descending"
    )
    page.get_by_role("button", name="Topic", exact=True).click()
    expect(rows.first).to_contain_text(f"{many}0000")

    page.reload()
    expect(rows).to_have_count(25)
    expect(page.get_by_role("searchbox", name="Filter topics")).to_have_value(many)
    page.go_back()
    expect(rows.first).to_contain_text(f"{many}0007")

    page.get_by_role("searchbox", name="Filter topics").fill("no topic has this name")
    expect(page.get_by_role("heading", name="Nothing matches")).to_be_visible()
    page.get_by_role("button", name="Clear filters").click()
    expect(rows.first).to_be_visible()


def test_a_topic_is_created_with_settings_that_are_explained(console: Console, api: Api) -> None:
    page, topic = console.page, "shop.refunds"
    console.visit("topics", "Topics")
    page.get_by_role("button", name="Create topic").click()
    dialog = console.dialog("Create topic")
    dialog.get_by_label("Topic").fill("not a name!")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_role("alert")).to_be_visible()
    console.allow_faults(r"(status 400: POST|status of 400).*/v1/topics")

    dialog.get_by_label("Topic").fill(topic)
    dialog.get_by_label("Partitions").fill("3")
    dialog.get_by_text("Settings", exact=True).click()
    dialog.get_by_role("searchbox", name="Filter settings").fill("retention_ms")
    expect(dialog.get_by_text(re.compile("default", re.I)).first).to_be_attached()
    dialog.get_by_label("retention_ms", exact=True).fill("3600000")
    console.check_accessibility()
    console.picture("topic-create")
    dialog.get_by_role("button", name="Create").click()
    console.heading(topic)
    created = api.get(f"/v1/topics/{topic}")
    assert created["partitions"] == 3
    assert created["settings"] == {"retention_ms": 3600000}


def test_settings_of_a_topic_are_changed_and_reset(
    console: Console, api: Api, new_topic: NewTopic
) -> None:
    topic, page = new_topic(name="shop.payments"), console.page
    console.visit(f"topics/{topic}/settings", topic)
    console.check_accessibility()
    console.picture("topic-settings")
    page.get_by_label("retention_ms", exact=True).fill("60000")
    page.get_by_label("cleanup_policy", exact=True).select_option("compact")
    page.get_by_role("button", name="Save 2 changes").click()
    expect(page.get_by_role("status").get_by_text("Saved")).to_be_visible()
    settings = api.get(f"/v1/topics/{topic}")["settings"]
    assert settings == {"retention_ms": 60000, "cleanup_policy": "compact"}

    row = page.locator(".setting", has=page.get_by_label("retention_ms", exact=True))
    row.get_by_role("button", name="Reset").click()
    page.get_by_role("button", name="Save 1 change").click()
    expect(row.get_by_role("button", name="Reset")).to_have_count(0)
    assert api.get(f"/v1/topics/{topic}")["settings"] == {"cleanup_policy": "compact"}


def test_a_wrong_setting_says_what_is_wrong(console: Console, new_topic: NewTopic) -> None:
    topic, page = new_topic(), console.page
    console.visit(f"topics/{topic}/settings", topic)
    page.get_by_label("retention_ms", exact=True).fill("soon")
    page.get_by_role("button", name="Save 1 change").click()
    expect(page.get_by_role("alert")).to_contain_text("retention_ms")
    console.allow_faults(r"(status 4\d\d: PATCH|status of 4\d\d).*/v1/topics")


def test_a_topic_grows_is_truncated_and_deleted(
    console: Console, api: Api, client: LogClient, new_topic: NewTopic
) -> None:
    topic, page = new_topic(name="shop.invoices"), console.page
    write(client, topic, [b"old"] * 5)
    console.visit(f"topics/{topic}/partitions", topic)
    expect(console.rows("Partitions")).to_have_count(1)
    page.get_by_role("button", name="Add partitions").click()
    dialog = console.dialog("Add partitions")
    dialog.get_by_label("Partitions").fill("4")
    dialog.get_by_role("button", name="Add partitions").click()
    expect(dialog).to_have_count(0)
    expect(console.rows("Partitions")).to_have_count(4)
    assert api.get(f"/v1/topics/{topic}")["partitions"] == 4
    console.check_accessibility()
    console.picture("topic-partitions")

    page.get_by_role("button", name="Truncate").click()
    dialog = console.dialog("Truncate")
    remove = dialog.get_by_role("button", name="Truncate")
    expect(remove).to_be_disabled()
    dialog.get_by_label(f"Type {topic} to confirm").fill(topic[:-1])
    expect(remove).to_be_disabled()
    dialog.get_by_label(f"Type {topic} to confirm").fill(topic)
    remove.click()
    expect(dialog).to_have_count(0)
    partitions = api.get(f"/v1/topics/{topic}/partitions")["partitions"]
    assert [one["start_offset"] for one in partitions] == [5, 0, 0, 0]
    assert end_of(client, topic) == 5

    page.get_by_role("button", name="Delete", exact=True).click()
    dialog = console.dialog("Delete topic")
    dialog.get_by_label(f"Type {topic} to confirm").fill(topic)
    console.check_accessibility()
    dialog.get_by_role("button", name="Delete topic").click()
    console.heading("Topics")
    assert api.status(f"/v1/topics/{topic}") == 404


def test_many_partitions_have_pages_and_a_field(
    console: Console, client: LogClient, new_topic: NewTopic
) -> None:
    topic, page = new_topic(partitions=501), console.page
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url) if "/v1/" in one.url else None)
    console.visit(f"topics/{topic}/partitions", topic)
    rows = console.rows("Partitions")
    expect(rows).to_have_count(50)
    expect(page.get_by_text("50 of 501")).to_be_visible()
    page.get_by_role("link", name="Next").click()
    expect(rows.first).to_contain_text("50")
    rows.first.get_by_role("link", name="50", exact=True).click()
    console.heading(topic)
    expect(page.get_by_label("Partition", exact=True)).to_have_value("50")
    page.get_by_label("Partition", exact=True).fill("500")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page).to_have_url(re.compile("partition=500"))
    assert all("limit=50" in one for one in asked if "/partitions" in one)


def test_groups_and_rates_of_a_topic(
    console: Console, api: Api, client: LogClient, new_topic: NewTopic
) -> None:
    topic = new_topic()
    write(client, topic, [b"x"] * 40)
    api.put(f"/v1/groups/{topic}-workers", {"kind": "queue", "settings": {"start": "earliest"}})
    receive(api, f"{topic}-workers", topic, 3)
    offsets = [{"topic": topic, "partition": 0, "offset": 28}]
    assert api.post(f"/v1/groups/{topic}-readers/commit", {"offsets": offsets})["failed"] == 0
    console.visit(f"topics/{topic}/groups", topic)
    cells = console.rows("Groups").filter(has_text=f"{topic}-workers").locator("td")
    expect(cells.nth(1)).to_have_text("queue")
    expect(cells.nth(3)).to_have_text("1")
    expect(cells.nth(4)).to_have_text("40")
    expect(cells.nth(5)).to_have_text(re.compile("[0-9] m?s"))
    expect(cells.nth(6)).to_have_text("3")
    cells = console.rows("Groups").filter(has_text=f"{topic}-readers").locator("td")
    expect(cells.nth(1)).to_have_text("stream")
    expect(cells.nth(4)).to_have_text("12")
    expect(cells.nth(6)).to_have_text("0")
    console.check_accessibility()
    console.page.get_by_role("link", name="Rates", exact=True).click()
    expect(console.page.get_by_role("heading", name="Over time")).to_be_visible()
    console.check_accessibility()


def test_a_topic_that_does_not_exist_says_so(console: Console) -> None:
    console.allow_faults(r"(status 404: GET|status of 404).*/v1/topics/nowhere")
    console.visit("topics/nowhere/partitions", "nowhere")
    expect(console.page.get_by_role("alert").first).to_contain_text("Not found")


def test_without_topics_the_list_says_how_they_begin(console: Console, api: Api) -> None:
    console.page.route(
        "**/v1/topics?*", lambda route: route.fulfill(json={"topics": [], "total": 0})
    )
    console.visit("topics", "Topics")
    expect(console.page.get_by_role("heading", name="No topics yet")).to_be_visible()
    console.check_accessibility()
