"""Transactions of all front ends, the queries whose writers use them, and reports of jobs."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka import KafkaException, Producer
from playwright.sync_api import expect

from goqueue.client.http import Client
from goqueue.spark.pipelines import write_report
from goqueue.spark.pipelines.letters import Triage, TriageRow, save_triage
from tests.e2e.conftest import NewTopic
from tests.e2e.console.browser import Api, Console
from tests.e2e.console.scenes import HOSTILE, HOSTILE_SHOWN
from tests.integration.process import Broker

LIST = "Transactions"


@pytest.fixture
def unique() -> str:
    """A name that no other test has, and that looks well in a picture."""
    return f"payments-{uuid.uuid4().hex[:6]}"


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    return new_topic(2)


def begin(api: Api, name: str, topic: str) -> dict[str, Any]:
    """Begin a transaction, and publish a message in it."""
    body = {"transactional_id": name, "timeout_ms": 600_000}
    found: dict[str, Any] = api.post("/v1/transactions", body)
    api.post(
        f"/v1/transactions/{found['id']}/publish",
        {"messages": [{"topic": topic, "value": "one", "partition": 1}]},
    )
    return found


def test_open_transactions_are_listed_by_state_and_age(
    console: Console, api: Api, topic: str, unique: str
) -> None:
    begin(api, f"{unique}-{HOSTILE}", topic)
    done = begin(api, f"{unique}-done", topic)
    api.post(f"/v1/transactions/{done['id']}/commit")
    console.visit(f"transactions?prefix={unique}", LIST)
    rows = console.rows(LIST)
    # Those that have ended are shown when one asks for them.
    expect(rows).to_have_count(1)
    console.page.get_by_label("State").select_option("all")
    expect(rows).to_have_count(2)
    console.check_accessibility()
    console.picture("transactions")
    console.page.get_by_label("State").select_option("ongoing")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text(f"{unique}-{HOSTILE_SHOWN}")
    expect(rows).to_contain_text("ongoing")
    console.page.get_by_label("Age", exact=True).select_option("600000")
    expect(console.page.get_by_text("Nothing matches")).to_be_visible()
    expect(console.page).to_have_url(re.compile("state=ongoing&older_than_ms=600000"))


def test_transactions_are_listed_in_pages(
    console: Console, api: Api, topic: str, unique: str
) -> None:
    for number in range(27):
        begin(api, f"{unique}-{number:02}", topic)
    console.visit(f"transactions?prefix={unique}&limit=25", LIST)
    rows = console.go_to_next_page(LIST, first=25, second=2)
    expect(rows.last).to_contain_text(f"{unique}-26")
    console.page.get_by_role("link", name="Previous").click()
    expect(rows).to_have_count(25)
    expect(console.page.get_by_role("link", name="Previous")).to_have_count(0)


def test_a_transaction_of_a_kafka_producer_is_aborted(
    console: Console, api: Api, broker: Broker, topic: str, unique: str
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": unique})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"never seen", partition=1)
    assert producer.flush(30) == 0
    console.visit(f"transactions?prefix={unique}", LIST)
    console.rows(LIST).get_by_role("link", name=unique).click()
    shown = console.dialog("Transaction")
    expect(shown).to_contain_text(f"{topic}/1")
    console.check_accessibility()
    console.picture("transaction")
    shown.get_by_role("button", name="Abort transaction").click()
    dialog = console.dialog("Abort transaction")
    dialog.get_by_role("button", name="Abort transaction").click()
    expect(dialog).to_be_hidden()
    expect(shown).to_contain_text("complete abort")
    expect(shown.get_by_role("button", name="Abort transaction")).to_have_count(0)
    [found] = api.get("/v1/transactions", prefix=unique)["transactions"]
    assert found["state"] == "complete_abort"
    assert api.get(f"/v1/topics/{topic}/messages")["messages"] == []
    with pytest.raises(KafkaException):
        producer.commit_transaction(30)
    shown.get_by_role("button", name="Close").click()
    expect(console.page).to_have_url(re.compile("/console/transactions"))


def test_a_transaction_that_is_gone_is_said(console: Console) -> None:
    console.allow_faults("40[04]")
    console.visit("transactions/AAAA", LIST)
    expect(console.dialog("Transaction").get_by_role("alert")).to_be_visible()


def test_queries_that_write_exactly_once_have_their_newest_epoch(
    console: Console, api: Api, topic: str, unique: str
) -> None:
    api.post(f"/v1/queries/{unique}/open")
    for epoch in (0, 1):
        writer = begin(api, f"__query~{unique}~1~{epoch}~writer", topic)
        api.post(f"/v1/transactions/{writer['id']}/prepare")
        if epoch == 0:
            body = {"run": 1, "transactions": [writer["id"]]}
            api.post(f"/v1/queries/{unique}/epochs/0/commit", body)
    console.visit("pipelines", "Pipelines")
    row = console.rows("Pipelines").filter(has_text=unique)
    cells = row.get_by_role("cell")
    expect(cells.nth(2)).to_have_text("1")
    expect(cells.nth(3)).to_have_text("0")
    expect(cells.nth(4)).to_have_text("1")
    console.check_accessibility()
    console.picture("pipelines")
    row.get_by_role("link", name=unique).click()
    console.heading(LIST)
    expect(console.page).to_have_url(re.compile(re.escape(quote(f"__query~{unique}~", safe="~"))))
    expect(console.rows(LIST)).to_have_count(1)
    expect(console.rows(LIST)).to_contain_text("prepared")


def test_reports_of_jobs_are_shown_as_texts_and_tables(
    console: Console, broker: Broker, unique: str, tmp_path: Path
) -> None:
    rows = [TriageRow(what=HOSTILE, letters=1200, first_ms=0, last_ms=None)]
    save_triage(tmp_path, Triage(topic="orders.dlq", time_ms=0, tables={"reason": rows}))
    with Client(broker.http) as client:
        write_report(
            tmp_path / "page.html", now_ms=5, dead_letters=tmp_path, client=client, name=unique
        )
        assert client.topics.describe("goqueue.reports").settings["cleanup_policy"] == "compact"
        assert [one.name for one in client.reports.list_all(match=unique)] == [unique]
        assert client.reports.get(unique).written_at == 5
    console.visit("pipelines", "Pipelines")
    console.page.get_by_role("link", name="Reports").click()
    row = console.rows("Reports").filter(has_text=unique)
    expect(row).to_contain_text("1,200 dead letters")
    console.check_accessibility()
    console.picture("reports")
    row.get_by_role("link", name=unique).click()
    console.heading(unique)
    table = console.rows("By reason")
    expect(table).to_contain_text(HOSTILE_SHOWN)
    expect(table.get_by_role("cell").nth(1)).to_have_text("1,200")
    expect(console.page.locator("main img")).to_have_count(0)
    console.check_accessibility()
    console.picture("report")
    console.allow_faults("404")
    console.visit("pipelines/reports/none", "none")
    expect(console.page.get_by_role("alert")).to_contain_text("Not found")
