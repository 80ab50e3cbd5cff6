"""Messages: browsing, searching, following, opening and writing them."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Locator, expect

from goqueue.client import LogClient
from tests.e2e.console.browser import Api, Console
from tests.e2e.console.conftest import NewTopic
from tests.e2e.console.scenes import produce
from tests.integration.process import Broker

HOUR_MS = 3_600_000
ORDERS = 300


@pytest.fixture(scope="module")
def orders(broker: Broker, client: LogClient) -> str:
    """A topic of two partitions with the orders of three hours, one every 36 s."""
    topic = "shop.orders"
    client.topics.create(topic, partition_count=2)
    begin = int(time.time() * 1000) - 3 * HOUR_MS
    produce(
        broker,
        topic,
        [
            (
                b"customer-%d" % (number % 17),
                json.dumps(
                    {
                        "order": number,
                        "status": ("paid", "shipped", "failed")[number % 3],
                        "total": number * 1.5,
                        "items": [{"sku": f"A-{number:05}", "count": 1 + number % 4}],
                    }
                ).encode(),
                [("source", b"web" if number % 2 else b"shop"), ("trace", b"%032x" % number)],
                begin + number * 36_000,
                number % 2,
            )
            for number in range(ORDERS)
        ],
        in_batches_of=4,  # counts over time are exact to a batch
    )
    return topic


def rows_of(console: Console, topic: str) -> Locator:
    return console.rows(f"Messages of {topic}")


def search(console: Console) -> None:
    console.page.get_by_role("button", name="Search", exact=True).click()


def test_messages_are_browsed_from_the_newest_the_oldest_a_time_and_an_offset(
    console: Console, orders: str
) -> None:
    page, rows = console.page, rows_of(console, orders)
    console.visit(f"topics/{orders}", orders)
    expect(rows).to_have_count(100)
    expect(rows.first).to_contain_text('"order": 299')
    expect(page.get_by_text("100 messages in")).to_be_visible()
    console.check_accessibility()
    console.picture("messages")

    page.get_by_role("link", name="Next").click()
    expect(rows.first).to_contain_text('"order": 199')
    page.get_by_label("Start", exact=True).select_option("Oldest")
    expect(rows.first).to_contain_text('"order": 0,')
    expect(rows.first).to_contain_text("0:0")

    page.get_by_label("Start", exact=True).select_option("Offset…")
    page.get_by_label("Offset", exact=True).fill("140")
    search(console)
    expect(rows.first).to_contain_text("0:140")
    expect(rows).to_have_count(10)
    expect(page).to_have_url(re.compile("offset=140"))
    page.get_by_label("Partition", exact=True).select_option("1")
    expect(rows.first).to_contain_text("1:140")

    page.get_by_label("Start", exact=True).select_option("Time…")
    page.get_by_label("Partition", exact=True).select_option("All")
    expect(rows.first).to_contain_text('"order": 20')  # an hour ago, or one or two later
    page.reload()
    expect(rows.first).to_contain_text('"order": 20')


def test_a_bar_of_the_histogram_leads_to_its_time(console: Console, orders: str) -> None:
    page, rows = console.page, rows_of(console, orders)
    console.visit(f"topics/{orders}?order=oldest", orders)
    bars = page.get_by_role("group", name="Messages over time").get_by_role("button")
    expect(bars).to_have_count(90)
    expect(bars.nth(45)).to_have_accessible_name(re.compile(r": [1-9] messages"))
    bars.nth(45).click()
    expect(page).to_have_url(re.compile(r"(?=.*from=\d+)(?=.*until=\d+)"))
    expect(rows.first).to_contain_text(re.compile('"order": 1(4[89]|5[0-3])'))
    assert 2 <= rows.count() <= 5
    expect(bars.nth(45)).to_have_attribute("aria-pressed", "true")
    page.get_by_label("Start", exact=True).select_option("Newest")
    expect(page).not_to_have_url(re.compile("until="))
    expect(rows.first).to_contain_text('"order": 299')


def test_the_server_searches_by_text_key_header_and_expression(
    console: Console, orders: str
) -> None:
    page, rows = console.page, rows_of(console, orders)
    console.visit(f"topics/{orders}", orders)
    page.get_by_label("Contains").fill('"status": "failed"')
    page.get_by_label("Contains").press("Enter")
    expect(rows).to_have_count(100)
    expect(rows.first).to_contain_text('"order": 299')
    expect(rows.nth(1)).to_contain_text('"order": 296')

    page.get_by_label("Contains").fill("")
    page.get_by_text("More filters").click()
    page.get_by_label("Key", exact=True).fill("customer-3")
    search(console)
    expect(rows).to_have_count(18)
    page.get_by_label("Header", exact=True).fill("source")
    page.get_by_label("Header value").fill("web")
    search(console)
    expect(rows).to_have_count(9)
    console.check_accessibility()
    console.picture("messages-filters")
    page.get_by_role("button", name="Clear filters").click()
    expect(rows).to_have_count(100)
    page.get_by_label("Regular expression").fill("A-0010[0-4]")
    search(console)
    expect(rows).to_have_count(5)
    page.get_by_label("Regular expression").fill("A-(")
    search(console)
    expect(page.get_by_role("alert")).to_be_visible()
    console.allow_faults(r"(status 400: GET|status of 400).*/browse")


def test_a_javascript_filter_runs_in_the_browser(console: Console, orders: str) -> None:
    page, rows = console.page, rows_of(console, orders)
    console.visit(f"topics/{orders}?limit=50", orders)
    page.get_by_text("More filters").click()
    script = page.get_by_label("JavaScript filter")
    script.fill('message.value.total > 400 && message.headers.source === "web"')
    search(console)
    expect(rows).to_have_count(17)  # the odd orders from 267 on
    expect(page.get_by_text("left out by the script")).to_be_visible()
    script.fill("message.value.no.such.field")
    search(console)
    expect(page.get_by_role("alert")).to_contain_text("The script failed on some messages")
    script.fill("(() => { for (;;); })()")
    search(console)
    expect(page.get_by_role("alert")).to_contain_text("took more than 2 s")
    # The script may compute, and reach nothing.
    reached: list[str] = []
    page.on("requestfinished", lambda request: reached.append(request.url))
    console.allow_faults("csp")
    script.fill("(fetch('/v1/whoami?stolen=1').catch(() => 0), true)")
    search(console)
    expect(rows).to_have_count(50)
    script.fill("importScripts('/v1/whoami?stolen=1')")
    search(console)
    expect(page.get_by_role("alert")).to_contain_text("The script failed on some messages")
    script.fill("(new Worker('/v1/whoami?stolen=1'), true)")
    search(console)
    expect(page.get_by_text("messages in")).to_be_visible()
    script.fill("message.offset >= 0")
    search(console)
    expect(rows).to_have_count(50)
    page.reload()
    expect(rows).to_have_count(50)
    assert reached
    assert not [url for url in reached if "/v1/" in url and "stolen=1" in url]


def test_live_tail_shows_messages_as_they_are_written(
    console: Console, broker: Broker, new_topic: NewTopic
) -> None:
    topic, page = new_topic(name="shop.visits"), console.page
    console.visit(topic_path := f"topics/{topic}", topic)
    expect(page.get_by_role("heading", name="No messages")).to_be_visible()
    console.check_accessibility()
    page.get_by_role("button", name="Live", exact=True).click()
    expect(page.get_by_text("Waiting for new messages")).to_be_visible()
    expect(page).to_have_url(re.compile(f"{re.escape(topic_path)}.*live=1"))
    rows = rows_of(console, topic)
    for number in range(3):
        produce(broker, topic, [(None, b"live-%d" % number, [], 0, 0)])
        expect(rows.first).to_contain_text(f"live-{number}")
    expect(rows).to_have_count(3)
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("Stopped · 3 messages")).to_be_visible()
    page.get_by_role("button", name="Leave live").click()
    expect(rows).to_have_count(3)


def test_a_long_search_shows_its_progress_and_can_be_stopped(
    console: Console, broker: Broker, new_topic: NewTopic
) -> None:
    """No message matches, so the whole log is read; the answer is slowed down to see it."""
    topic, page = new_topic(), console.page
    produce(broker, topic, [(None, b"x" * 1000, [], 0, 0)] * 500)
    release: list[str] = []

    def slow(route: object) -> None:
        release.append("asked")

    page.route(f"**/v1/topics/{topic}/browse?*text=nothing*", slow)
    console.visit(f"topics/{topic}", topic)
    expect(rows_of(console, topic)).to_have_count(100)
    page.get_by_label("Contains").fill("nothing")
    search(console)
    expect(page.get_by_role("progressbar", name="Searching")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("Stopped · 0 messages")).to_be_visible()
    assert release
    page.unroute_all()
    search(console)
    expect(page.get_by_text("0 messages in")).to_be_visible()
    expect(page.get_by_text("end of the log")).to_be_visible()


def test_one_message_with_headers_journey_and_deliveries(
    console: Console, api: Api, orders: str
) -> None:
    page = console.page
    api.put("/v1/groups/packers", {"kind": "queue", "settings": {"start": "earliest"}})
    leased = api.post(
        "/v1/groups/packers/receive",
        {"topic": orders, "consumer": "packer-1", "max_messages": 1},
    )["messages"][0]
    place = f"{leased['partition']}:{leased['offset']}"
    console.visit(f"topics/{orders}?order=oldest", orders)
    page.get_by_role(
        "button", name=f"Open partition {leased['partition']}, offset {leased['offset']}"
    ).click()
    dialog = console.dialog(re.compile("Partition .*, offset"))
    expect(page).to_have_url(re.compile("open="))
    expect(dialog.locator("pre")).to_contain_text('"sku": "A-')
    console.check_accessibility()
    console.picture("message")
    dialog.get_by_role("button", name="Headers (2)").click()
    expect(dialog.get_by_text("source")).to_be_visible()
    dialog.get_by_role("button", name="Journey").click()
    expect(page).to_have_url(re.compile("part=journey"))
    expect(dialog.get_by_text("delivered", exact=True).first).to_be_visible()
    expect(dialog.get_by_text("packer-1").first).to_be_visible()
    console.check_accessibility()
    console.picture("message-journey")
    dialog.get_by_role("button", name="Groups").click()
    row = console.rows("Groups").filter(has_text="packers")
    expect(row).to_contain_text("packer-1")
    expect(row).to_contain_text("leased")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(page).not_to_have_url(re.compile("open=|part="))
    page.goto(f"/console/topics/{orders}?open={place}")
    expect(dialog.locator("pre")).to_contain_text('"sku": "A-')


def test_one_goes_from_message_to_message(console: Console, orders: str) -> None:
    page = console.page
    console.visit(f"topics/{orders}?order=oldest&open=0:1&part=headers", orders)
    first = console.dialog("Partition 0, offset 1")
    expect(first.get_by_role("button", name="Headers (2)")).to_have_attribute(
        "aria-pressed", "true"
    )
    expect(console.rows(f"Messages of {orders}")).to_have_count(100)
    page.keyboard.press("j")
    after = console.dialog("Partition 1, offset 1")
    expect(after.get_by_text(f"{3:032x}")).to_be_visible()
    expect(page).to_have_url(re.compile("open=1%3A1.*part=headers|part=headers.*open=1%3A1"))
    after.get_by_role("button", name="Previous message").click()
    page.keyboard.press("k")
    page.keyboard.press("k")
    begin = console.dialog("Partition 0, offset 0")
    expect(begin.get_by_role("button", name="Previous message")).to_be_disabled()
    expect(begin.get_by_text(f"{0:032x}")).to_be_visible()
    console.check_accessibility()


def test_decoders_say_why_they_could_not_decode(
    console: Console, broker: Broker, new_topic: NewTopic
) -> None:
    topic, page = new_topic(name="shop.events"), console.page
    packed = msgspec.msgpack.encode({"packed": True, "n": 2**40})
    values = [b"\x00\x00\x00\x30\x39rest", b'{"half": ', b"\xff\xfe broken", packed]
    produce(broker, topic, [(None, value, [], 0, 0) for value in values])
    console.allow_faults(r"(status 404: GET|status of 404).*/registry/schemas/ids/12345")
    console.visit(f"topics/{topic}?order=oldest&open=0:0", topic)
    opened = console.dialog(re.compile("offset 0"))
    opened.get_by_text("Why not decoded otherwise").click()
    expect(opened.locator(".tried")).to_contain_text("12345")
    expect(opened.locator("pre").first).to_contain_text("00 00 00 30 39 72 65 73 74")
    page.goto(f"/console/topics/{topic}?order=oldest&open=0:1")
    opened = console.dialog(re.compile("offset 1"))
    opened.get_by_text("Why not decoded otherwise").click()
    expect(opened.locator(".tried")).to_contain_text("JSON")
    expect(opened.locator("pre").first).to_have_text('{"half": ')
    console.check_accessibility()
    console.picture("message-decoders")
    page.goto(f"/console/topics/{topic}?order=oldest&open=0:3")
    opened = console.dialog(re.compile("offset 3"))
    opened.get_by_label("Decode as").select_option("MessagePack")
    expect(opened.locator("pre").first).to_contain_text('"n": 1099511627776')
    page.goto(f"/console/topics/{topic}?order=oldest&value_as=hex")
    expect(rows_of(console, topic).nth(2)).to_contain_text("ff fe 20")


HOSTILE = [
    b"<script>document.title='owned'</script><img src=x onerror=alert(1)>",
    "order \u202e\u2066evil\u2069 \u200b end".encode(),
    b"\xff\xfe\x00\x80 no UTF-8",
    b'{"__proto__": {"polluted": 1}, "<b>": "</script><script>alert(1)</script>"}',
    b"=HYPERLINK(1)",
    b"\x1b[31mred\x07",
]


def test_hostile_contents_are_text(console: Console, broker: Broker, new_topic: NewTopic) -> None:
    topic, page = new_topic(name="shop.comments"), console.page
    messages = [(value, value, [("<i>h", value)], 0, 0) for value in HOSTILE]
    produce(broker, topic, messages)
    console.visit(f"topics/{topic}?order=oldest", topic)
    rows = rows_of(console, topic)
    expect(rows).to_have_count(len(HOSTILE))
    expect(rows.nth(0)).to_contain_text("<script>document.title='owned'</script>")
    expect(rows.nth(1)).to_contain_text("U+202E")
    expect(rows.nth(1)).to_contain_text("U+200B")
    expect(rows.nth(5)).to_contain_text("U+001B")
    assert "\u202e" not in rows.nth(1).inner_text()
    for number in range(len(HOSTILE)):
        page.goto(f"/console/topics/{topic}?order=oldest&open=0:{number}")
        opened = console.dialog(re.compile(f"offset {number}"))
        expect(opened.locator("pre").first).not_to_be_empty()
        opened.get_by_role("button", name="Headers (1)").click()
        expect(opened.get_by_text("<i>h")).to_be_visible()
        assert page.locator("pre script, pre img, td script, td img, dialog i").count() == 0
    assert page.evaluate("({}).polluted") is None
    expect(page).to_have_title(re.compile(re.escape(topic)))


def test_a_message_of_a_megabyte_is_opened_and_not_loaded_into_the_list(
    console: Console, broker: Broker, client: LogClient, new_topic: NewTopic
) -> None:
    topic, page = new_topic(), console.page
    value = json.dumps({"lines": ["y" * 100] * 9500, "end": "the end"}).encode()
    assert 950_000 < len(value) < 1_000_000
    produce(broker, topic, [(b"big", value, [], 0, 0)])
    received: list[int] = []
    page.on(
        "response",
        lambda answer: received.append(len(answer.body())) if "/browse" in answer.url else None,
    )
    console.visit(f"topics/{topic}", topic)
    row = rows_of(console, topic).first
    expect(row).to_contain_text("KiB")
    assert all(size < 100_000 for size in received)
    row.get_by_role("button", name="Open partition 0, offset 0").click()
    opened = console.dialog(re.compile("offset 0"))
    opened.get_by_role("button", name=re.compile("Show all .* characters")).click()
    expect(opened.locator("pre").first).to_contain_text("the end")


def test_a_message_of_nothing_but_brackets_is_opened(
    console: Console, broker: Broker, new_topic: NewTopic
) -> None:
    """With every level set in further, its text would not fit into the memory of the tab."""
    topic = new_topic()
    produce(broker, topic, [(b"deep", b"[" * 200_000 + b"]" * 200_000, [], 0, 0)])
    console.visit(f"topics/{topic}?order=oldest&open=0:0", topic)
    opened = console.dialog(re.compile("offset 0"))
    expect(opened.locator("pre").first).to_contain_text("[")
    expect(opened.get_by_role("button", name=re.compile("Show all .* characters"))).to_be_visible()


def test_messages_are_exported(console: Console, orders: str, tmp_path: Path) -> None:
    page = console.page
    console.visit(f"topics/{orders}?order=oldest", orders)
    expect(rows_of(console, orders)).to_have_count(100)
    with page.expect_download() as waiting:
        page.get_by_role("button", name="JSON", exact=True).click()
    lines = Path(waiting.value.path()).read_text().splitlines()
    assert len(lines) == 100
    first = json.loads(lines[0])
    assert json.loads(first["value_text"])["order"] == 0
    assert first["key_text"] == "customer-0"
    with page.expect_download() as waiting:
        page.get_by_role("button", name="CSV", exact=True).click()
    table = list(csv.reader(io.StringIO(Path(waiting.value.path()).read_text())))
    assert table[0] == ["time", "partition", "offset", "key", "value", "cut"]
    assert len(table) == 101
