"""Dead letters: which there are and why; redriving one, some or all of them as a job."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import NewTopic
from tests.e2e.console.browser import Api, Console
from tests.e2e.console.scenes import HOSTILE, HOSTILE_SHOWN, fill, receive, reject
from tests.integration.waiting import eventually

GROUP = "billing"


@pytest.fixture
def unique() -> str:
    """A name that no other test has, and that looks well in a picture."""
    return f"orders-{uuid.uuid4().hex[:6]}"


@pytest.fixture
def orders(api: Api, new_topic: NewTopic) -> str:
    """A topic of one partition with twelve dead letters: of three reasons and ten keys."""
    topic = new_topic(1)
    fill(api, topic, 12)
    taken = receive(api, GROUP, topic, 12)
    for part, reason in (
        (taken[:6], "declined"),
        (taken[6:10], "no answer"),
        (taken[10:], HOSTILE),
    ):
        reject(api, GROUP, part, reason)
    eventually(lambda: left(api, topic) == 12, because="all are dead letters")
    return topic


def left(api: Api, topic: str) -> int:
    return int(api.get(f"/v1/deadletters/{topic}")["total"])


def jobs(api: Api, topic: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get(f"/v1/deadletters/{topic}/redrives")["redrives"]
    return found


def letters_of(topic: str) -> str:
    return f"Dead letters of {topic}"


def test_topics_with_dead_letters_lead_to_them(console: Console, api: Api, orders: str) -> None:
    console.visit("dead-letters", "Dead letters")
    console.page.get_by_label("Filter dead letters").fill(orders)
    row = console.rows("Dead letters")
    expect(row).to_have_count(1)
    expect(row.get_by_role("cell").nth(2)).to_have_text("12")
    console.check_accessibility()
    console.picture("dead-letters")
    row.get_by_role("link", name=orders, exact=True).click()
    console.heading(orders)
    expect(console.rows(letters_of(orders))).to_have_count(12)


def test_dead_letters_are_sorted_out_by_reason_key_and_time(console: Console, orders: str) -> None:
    console.visit(f"dead-letters/{orders}", orders)
    rows = console.rows(letters_of(orders))
    console.page.get_by_role("button", name="declined 6").click()
    expect(rows).to_have_count(6)
    expect(console.page.get_by_text("6 of 6")).to_be_visible()
    expect(console.page).to_have_url(re.compile("reason=declined"))
    console.check_accessibility()
    console.picture("dead-letters-of-topic")
    console.page.get_by_role("searchbox", name="Key").fill("key-1")
    expect(rows).to_have_count(1)
    console.page.reload()
    expect(rows).to_have_count(1)
    console.page.get_by_role("button", name="Clear filters").click()
    expect(rows).to_have_count(12)
    console.page.get_by_role("group", name="Key").get_by_role("button", name="key-0 2").click()
    expect(rows).to_have_count(2)
    console.page.get_by_role("button", name="Clear filters").click()
    console.page.get_by_label("Until", exact=True).fill("1h")
    expect(console.page.get_by_text("Nothing matches")).to_be_visible()


def test_reasons_and_contents_are_shown_as_text(console: Console, orders: str) -> None:
    console.visit(f"dead-letters/{orders}", orders)
    row = console.rows(letters_of(orders)).filter(has_text=HOSTILE_SHOWN)
    expect(row).to_have_count(2)
    row.first.get_by_role("button", name="0:10").click()
    letter = console.dialog("Dead letter")
    expect(letter).to_contain_text(HOSTILE_SHOWN)
    expect(letter.get_by_label("Value")).to_contain_text('"number": 10')
    expect(console.page.locator("main img")).to_have_count(0)
    console.check_accessibility()
    console.picture("dead-letter")


def test_names_of_headers_are_shown_as_text_and_an_address_of_nowhere_costs_nothing(
    console: Console, api: Api, new_topic: NewTopic
) -> None:
    topic, headers = new_topic(1), [{"name": HOSTILE, "value": "one"}] * 2
    api.post(f"/v1/topics/{topic}/publish", {"value": "x", "headers": headers})
    reject(api, GROUP, receive(api, GROUP, topic), "declined")
    eventually(lambda: left(api, topic) == 1, because="it is a dead letter")
    console.visit(f"dead-letters/{topic}?letter=0:0", topic)
    names = console.dialog("Dead letter").get_by_role("term").filter(has_text=HOSTILE_SHOWN)
    expect(names).to_have_count(2)
    console.visit(f"dead-letters/{topic}?letter=4294967295:0", topic)
    expect(console.dialog("Dead letter").get_by_role("alert")).to_contain_text("no longer kept")


def test_one_dead_letter_is_redriven(console: Console, api: Api, orders: str) -> None:
    console.visit(f"dead-letters/{orders}", orders)
    rows = console.rows(letters_of(orders))
    rows.nth(3).get_by_role("checkbox").check()
    console.page.get_by_role("button", name="Redrive 1 chosen").click()
    dialog = console.dialog("Redrive")
    dialog.get_by_role("button", name="Redrive").click()
    expect(rows).to_have_count(11)
    assert left(api, orders) == 11
    [again] = receive(api, GROUP, orders)
    assert again["value"] == '{"number":3}'


def test_an_opened_dead_letter_is_in_the_address_and_is_redriven_from_there(
    console: Console, api: Api, new_topic: NewTopic
) -> None:
    topic, reason = new_topic(3), "x" * 300
    fill(api, topic, 12)
    reject(api, GROUP, receive(api, GROUP, topic, 12), reason)
    eventually(lambda: left(api, topic) == 12, because="all are dead letters")
    console.visit(f"dead-letters/{topic}", topic)
    rows = console.rows(letters_of(topic))
    expect(rows.last).to_contain_text("x" * 120 + "…")
    opener = rows.last.get_by_role("button", name=re.compile(r"^\d:\d+$"))
    source = opener.inner_text()
    opener.click()
    expect(console.page).to_have_url(re.compile(r"letter=\d"))
    console.page.reload()
    letter = console.dialog("Dead letter")
    expect(letter).to_contain_text(f"{topic}:{source}")
    expect(letter).to_contain_text(reason)
    console.check_accessibility()
    letter.get_by_role("button", name="Redrive").click()
    dialog = console.dialog("Redrive")
    expect(dialog.get_by_role("list", name="Chosen")).to_contain_text(f"{topic} {source}, xxx")
    dialog.get_by_role("button", name="Redrive").click()
    expect(rows).to_have_count(11)
    expect(letter).to_be_hidden()
    assert left(api, topic) == 11


def test_chosen_dead_letters_that_a_filter_hides_are_not_redriven(
    console: Console, orders: str
) -> None:
    console.visit(f"dead-letters/{orders}", orders)
    console.rows(letters_of(orders)).first.get_by_role("checkbox").check()
    act = console.page.get_by_role("button", name=re.compile("^Redrive . chosen"))
    expect(act).to_be_visible()
    console.page.get_by_role("button", name="no answer 4").click()
    expect(console.rows(letters_of(orders))).to_have_count(4)
    expect(act).to_have_count(0)


def test_matching_dead_letters_are_redriven_after_a_preview(
    console: Console, api: Api, orders: str, new_topic: NewTopic
) -> None:
    elsewhere = new_topic(1)
    console.visit(f"dead-letters/{orders}?reason=declined", orders)
    console.page.get_by_role("button", name="Redrive matching").click()
    dialog = console.dialog("Redrive")
    dialog.get_by_label("At most").fill("4")
    dialog.get_by_label("To topic").fill(elsewhere)
    dialog.get_by_label("Keep a copy here").check()
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog).to_contain_text("6 match; the first 4 go back.")
    console.check_accessibility()
    console.picture("redrive")
    assert jobs(api, orders) == []
    dialog.get_by_role("button", name="Redrive").click()
    job = console.rows("Redrives")
    expect(job).to_contain_text("done")
    expect(job).to_contain_text("4 moved")
    assert left(api, orders) == 12
    found = api.get(f"/v1/topics/{elsewhere}/messages")["messages"]
    assert [one["value"] for one in found] == [f'{{"number":{one}}}' for one in range(4)]


def test_a_redrive_of_all_is_slowed_paused_resumed_and_cancelled(
    console: Console, api: Api, orders: str
) -> None:
    console.visit(f"dead-letters/{orders}", orders)
    console.page.get_by_role("button", name="Redrive all").click()
    dialog = console.dialog("Redrive")
    dialog.get_by_label("Messages per second").fill("1")
    dialog.get_by_role("button", name="Redrive").click()
    job = console.rows("Redrives")
    job.get_by_role("button", name="Pause").click()
    expect(job).to_contain_text("paused")
    assert [one["state"] for one in jobs(api, orders)] == ["paused"]
    assert jobs(api, orders)[0]["rate_per_s"] == 1
    console.check_accessibility()
    job.get_by_role("button", name="Resume").click()
    expect(job).to_contain_text("running")
    job.get_by_role("button", name="Cancel").click()
    expect(job).to_contain_text("cancelled")
    [ended] = jobs(api, orders)
    assert ended["state"] == "cancelled"
    assert ended["moved"] + left(api, orders) == 12
    expect(console.rows(letters_of(orders))).to_have_count(left(api, orders))


def test_a_redrive_to_a_topic_that_does_not_exist_is_explained(
    console: Console, api: Api, orders: str
) -> None:
    console.allow_faults("40")
    console.visit(f"dead-letters/{orders}", orders)
    console.page.get_by_role("button", name="Redrive all").click()
    dialog = console.dialog("Redrive")
    dialog.get_by_label("To topic").fill("no such topic")
    dialog.get_by_role("button", name="Redrive").click()
    expect(dialog.get_by_role("alert")).to_be_visible()
    assert left(api, orders) == 12
