"""JavaScript filters and exports: of whole values, exact numbers, run at a person's will."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from goqueue.client import LogClient
from tests.e2e.console.browser import Api, Console
from tests.e2e.console.conftest import NewTopic
from tests.e2e.console.scenes import produce
from tests.integration.process import Broker

LARGE_BYTES = 100_000  # more than the list loads of a value
TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(scope="module")
def reports(broker: Broker, client: LogClient) -> str:
    """A topic with six large messages whose last field tells them apart."""
    topic = "shop.reports"
    client.topics.create(topic)
    values = [
        json.dumps({"lines": "y" * LARGE_BYTES, "number": number}).encode() for number in range(6)
    ]
    produce(broker, topic, [(None, value, [], 0, 0) for value in values])
    return topic


def filtered(topic: str, script: str, **query: object) -> str:
    """Return the path of the messages of a topic with a JavaScript filter in the address."""
    more = "".join(f"&{name}={value}" for name, value in query.items())
    return f"topics/{topic}?order=oldest&js={quote(script)}{more}"


def run_linked(page: Page) -> None:
    page.get_by_role("button", name="Run the filter").click()


def test_a_filter_sees_the_whole_of_a_large_value(console: Console, reports: str) -> None:
    rows = console.rows(f"Messages of {reports}")
    console.visit(filtered(reports, "message.value.number % 2 === 1"), reports)
    run_linked(console.page)
    expect(rows).to_have_count(3)
    expect(console.page.get_by_text("3 left out by the script")).to_be_visible()
    expect(console.page.get_by_text("could not be judged")).to_have_count(0)


def test_messages_that_a_filter_cannot_judge_are_counted(console: Console, reports: str) -> None:
    """A page of many messages has at most 32 MiB of values, so they are cut shorter."""
    page, rows = console.page, console.rows(f"Messages of {reports}")
    script = "!message.is_cut && message.value.number % 2 === 1"
    console.visit(filtered(reports, script, limit=500), reports)
    run_linked(page)
    expect(page.get_by_text("6 could not be judged, their values are too large")).to_be_visible()
    expect(rows).to_have_count(0)
    console.check_accessibility()


def test_a_filter_compares_integers_of_64_bits(
    console: Console, broker: Broker, new_topic: NewTopic
) -> None:
    topic = new_topic()
    values = [b'{"id": %d}' % (2**53 + number) for number in range(4)]
    produce(broker, topic, [(None, value, [], 0, 0) for value in values])
    console.visit(filtered(topic, f"message.value.id === {2**53 + 1}n"), topic)
    run_linked(console.page)
    rows = console.rows(f"Messages of {topic}")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text(str(2**53 + 1))


def test_a_script_in_a_link_runs_after_a_click(
    console: Console, broker: Broker, new_topic: NewTopic
) -> None:
    topic, page = new_topic(), console.page
    produce(broker, topic, [(None, b'{"n": %d}' % number, [], 0, 0) for number in range(8)])
    rows = console.rows(f"Messages of {topic}")
    started: list[str] = []
    page.on("worker", lambda worker: started.append(worker.url))
    console.visit(filtered(topic, "message.value.n < 2"), topic)
    expect(rows).to_have_count(8)
    expect(page.get_by_text("It does not run before you say so")).to_be_visible()
    page.get_by_label("Partition", exact=True).select_option("0")  # says nothing about the script
    expect(page).to_have_url(re.compile("partition=0"))
    expect(rows).to_have_count(8)
    assert not started
    console.check_accessibility()
    run_linked(page)
    expect(rows).to_have_count(2)
    page.reload()
    expect(rows).to_have_count(2)
    page.get_by_label("JavaScript filter").fill("message.value.n < 3")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(rows).to_have_count(3)


def test_the_live_tail_follows_a_trace(
    console: Console, broker: Broker, new_topic: NewTopic
) -> None:
    topic, page = new_topic(), console.page
    rows = console.rows(f"Messages of {topic}")
    console.visit(f"topics/{topic}?live=1&trace_id={TRACE[3:35].decode()}", topic)
    expect(page.get_by_text("Waiting for new messages")).to_be_visible()
    produce(
        broker,
        topic,
        [(None, b"other", [], 0, 0), (None, b"wanted", [("traceparent", TRACE)], 0, 0)],
    )
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("wanted")


def exported(page: Page, kind: str) -> str:
    with page.expect_download() as waiting:
        page.get_by_role("button", name=kind, exact=True).click()
    return Path(waiting.value.path()).read_text()


def test_an_export_has_whole_values_and_marks_what_is_cut(
    console: Console, api: Api, broker: Broker, new_topic: NewTopic
) -> None:
    topic, page = new_topic(), console.page
    value = b"z" * LARGE_BYTES
    produce(broker, topic, [(b"-1+cmd|x", value, [], 0, 0), (None, b"short", [], 0, 0)])
    console.visit(f"topics/{topic}?order=oldest", topic)
    expect(console.rows(f"Messages of {topic}")).to_have_count(2)
    table = list(csv.reader(io.StringIO(exported(page, "CSV"))))
    assert table[1][3:] == ["'-1+cmd|x", value.decode(), ""]
    assert table[2][4:] == ["short", ""]
    lines = [json.loads(line) for line in exported(page, "JSON").splitlines()]
    assert (lines[0]["value_text"], lines[0]["is_cut"]) == (value.decode(), False)
    api.delete(f"/v1/topics/{topic}/records?before=latest")
    console.allow_faults("status 4(04|10|00|16): GET|status of 4")
    table = list(csv.reader(io.StringIO(exported(page, "CSV"))))
    assert table[1][5] == "cut"
    assert len(table[1][4]) < LARGE_BYTES
    expect(page.get_by_text("1 value is cut in the file")).to_be_visible()
