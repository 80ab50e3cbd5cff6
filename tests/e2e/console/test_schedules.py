"""Messages that wait for their time: calendar and list; show, move and cancel one."""

from __future__ import annotations

import re
import time
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from tests.e2e.conftest import NewTopic
from tests.e2e.console.browser import Api, Console
from tests.e2e.console.scenes import HOSTILE, HOSTILE_SHOWN
from tests.integration.waiting import eventually

LIST = "Schedules"
HOUR_MS = 3_600_000


@pytest.fixture
def unique() -> str:
    """A name that no other test has, and that looks well in a picture."""
    return f"mails-{uuid.uuid4().hex[:6]}"


@pytest.fixture
def mails(api: Api, new_topic: NewTopic) -> str:
    """A topic with three messages that are due in one, two and three hours."""
    topic = new_topic(1)
    for hours in (1, 2, 3):
        due_ms = int(time.time() * 1000) + hours * HOUR_MS
        message = {"key": HOSTILE, "value": f"{hours} {HOSTILE}", "deliver_at": due_ms}
        api.post(f"/v1/topics/{topic}/publish", message)
    return topic


def pending(api: Api, topic: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get("/v1/schedules", topic=topic)["schedules"]
    return found


def open_list(console: Console, topic: str) -> Locator:
    console.visit(f"schedules?topic={topic}", LIST)
    rows = console.rows(LIST)
    expect(rows).to_have_count(3)
    return rows


def test_scheduled_messages_are_listed_by_time(console: Console, mails: str) -> None:
    rows = open_list(console, mails)
    expect(rows.first).to_contain_text(re.compile("in (59 m|1 h)"))
    expect(rows.last).to_contain_text(re.compile("in (2 h 59 m|3 h)"))
    console.check_accessibility()
    console.picture("schedules")
    console.page.reload()
    expect(rows).to_have_count(3)


def test_a_bar_of_the_calendar_selects_its_time(console: Console, mails: str) -> None:
    rows = open_list(console, mails)
    bars = console.page.get_by_role("region", name="Calendar")
    bars.get_by_role("button", name=re.compile(r"\b1 message")).nth(1).click()
    expect(rows).to_have_count(1)
    expect(console.page).to_have_url(re.compile(r"from=\d+&until=\d+"))
    expect(rows.first).to_contain_text(re.compile("in (1 h 59 m|2 h)"))
    expect(bars.locator("button[aria-pressed=true]")).to_have_count(1)
    expect(bars.get_by_label("From")).to_have_value(re.compile(r"^\d{4}-\d\d-\d\dT"))
    console.check_accessibility()
    bars.get_by_role("button", name="Any time").click()
    expect(rows).to_have_count(3)


def test_the_calendar_is_turned_to_other_days(console: Console, api: Api, mails: str) -> None:
    due_ms = int(time.time() * 1000) + 36 * HOUR_MS
    api.post(f"/v1/topics/{mails}/publish", {"value": "tomorrow", "deliver_at": due_ms})
    console.visit(f"schedules?topic={mails}", LIST)
    calendar = console.page.get_by_role("region", name="Calendar")
    due = calendar.get_by_role("button", name=re.compile(r": [1-9]\d* message"))
    expect(due).to_have_count(3)
    calendar.get_by_role("button", name="Later").click()
    expect(due).to_have_count(1)
    expect(console.page).to_have_url(re.compile(r"at=\d+"))
    calendar.get_by_role("button", name="Now").click()
    expect(due).to_have_count(3)
    until = datetime.fromtimestamp(due_ms / 1000 - 3600, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S")
    calendar.get_by_label("From").fill(until)
    expect(console.rows(LIST)).to_have_count(1)


def test_key_and_headers_are_shown(console: Console, api: Api, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    headers = [{"name": "source", "value": HOSTILE}]
    message = {"value": "x", "headers": headers, "delay_ms": HOUR_MS}
    api.post(f"/v1/topics/{topic}/publish", message)
    console.visit(f"schedules?topic={topic}", LIST)
    rows = console.rows(LIST)
    rows.first.get_by_role("button").filter(has_text=re.compile("^AA")).click()
    shown = console.dialog("Scheduled message")
    expect(shown).to_contain_text("Keynone")
    expect(shown).to_contain_text(f"source{HOSTILE_SHOWN}")


def test_the_content_is_shown_as_text(console: Console, mails: str) -> None:
    rows = open_list(console, mails)
    rows.first.get_by_role("button").filter(has_text=re.compile("^AA")).click()
    shown = console.dialog("Scheduled message")
    expect(shown.get_by_label("Value")).to_have_text(f"1 {HOSTILE_SHOWN}")
    expect(shown).to_contain_text(f"Key{HOSTILE_SHOWN}")
    console.check_accessibility()
    console.picture("schedule")


def test_a_message_is_moved(console: Console, api: Api, mails: str) -> None:
    rows = open_list(console, mails)
    first = pending(api, mails)[0]
    rows.first.get_by_role("button", name="Move").click()
    dialog = console.dialog("Move")
    due = datetime.fromtimestamp(first["deliver_at"] / 1000 + 86_400, tz=UTC)
    dialog.get_by_label("Due").fill(due.strftime("%Y-%m-%dT%H:%M:%S"))
    dialog.get_by_role("button", name="Move").click()
    expect(rows.last).to_contain_text(due.strftime("%Y-%m-%d %H:%M:%S"))
    moved = pending(api, mails)[-1]
    assert moved["id"] == first["id"]
    assert moved["deliver_at"] == int(due.timestamp()) * 1000


def test_a_message_is_cancelled(console: Console, api: Api, mails: str) -> None:
    rows = open_list(console, mails)
    ids = [one["id"] for one in pending(api, mails)]
    rows.nth(1).get_by_role("button", name="Cancel").click()
    dialog = console.dialog("Cancel message")
    expect(dialog).to_contain_text(mails)
    dialog.get_by_role("button", name="Cancel message").click()
    expect(rows).to_have_count(2)
    assert [one["id"] for one in pending(api, mails)] == [ids[0], ids[2]]


def test_a_message_that_was_delivered_meanwhile_is_not_cancelled(
    console: Console, api: Api, mails: str
) -> None:
    console.allow_faults("40[49]")
    rows = open_list(console, mails)
    first = pending(api, mails)[0]
    rows.first.get_by_role("button", name="Cancel").click()
    api.patch(f"/v1/schedules/{first['id']}", {"delay_ms": 0})
    eventually(
        lambda: api.get(f"/v1/topics/{mails}/messages")["messages"], because="it is delivered"
    )
    dialog = console.dialog("Cancel message")
    dialog.get_by_role("button", name="Cancel message").click()
    expect(dialog.get_by_role("alert")).to_be_visible()
    dialog.get_by_role("button", name="Cancel", exact=True).click()
    expect(dialog).to_be_hidden()


def test_nothing_scheduled_is_said(console: Console, new_topic: NewTopic) -> None:
    console.visit(f"schedules?topic={new_topic()}", LIST)
    expect(console.page.get_by_text("Nothing matches")).to_be_visible()
