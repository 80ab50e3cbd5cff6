"""Writing messages: with everything they may have, by a schema, and exactly as they were."""

from __future__ import annotations

import json
import re

import confluent_kafka
from playwright.sync_api import Locator, expect

from tests.e2e.console.browser import Api, Console
from tests.e2e.console.conftest import NewTopic
from tests.integration.process import Broker


def rows_of(console: Console, topic: str) -> Locator:
    return console.rows(f"Messages of {topic}")


def search(console: Console) -> None:
    console.page.get_by_role("button", name="Search", exact=True).click()


def produce_from_this(console: Console, topic: str, offset: int = 0) -> Locator:
    """Open the form that begins with a message."""
    console.visit(f"topics/{topic}?order=oldest&open=0:{offset}", topic)
    opened = console.dialog(re.compile(f"offset {offset}$"))
    opened.get_by_role("button", name="Produce from this").click()
    return console.dialog("Produce from a message")


def test_produce_with_everything_that_a_message_may_have(
    console: Console, api: Api, new_topic: NewTopic
) -> None:
    topic, page = new_topic(name="shop.notes", partitions=2), console.page
    console.visit(f"topics/{topic}", topic)
    page.get_by_role("button", name="Produce").click()
    dialog = console.dialog("Produce")
    dialog.get_by_label("Key as").select_option("Text")
    dialog.get_by_label("Key", exact=True).fill("customer-1")
    dialog.get_by_label("Value as").select_option("JSON, checked")
    dialog.get_by_label("Value", exact=True).fill('{"order": ')
    dialog.get_by_role("button", name="Produce").click()
    expect(dialog.get_by_role("alert")).to_contain_text("The value is not JSON")
    dialog.get_by_label("Value", exact=True).fill('{"order": 1}')
    dialog.get_by_role("button", name="Add header").click()
    dialog.get_by_label("Name").fill("source")
    dialog.get_by_role("group", name="Headers").get_by_label("Value").fill("console")
    dialog.get_by_label("Lane").select_option("high")
    dialog.get_by_label("Partition").fill("1")
    dialog.get_by_label("Time to live in seconds").fill("3600")
    console.check_accessibility()
    console.picture("produce")
    dialog.get_by_role("button", name="Produce").click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("status").get_by_text("Written as")).to_be_visible()
    sent = api.get(f"/v1/topics/{topic}/messages/1/0")
    assert (sent["key"], sent["value"]) == ("customer-1", '{"order": 1}')
    headers = {header["name"]: header["value"] for header in sent["headers"]}
    assert headers["source"] == "console"
    assert any("ttl" in name or "expires" in name for name in headers)

    search(console)
    page.get_by_role("button", name="Open partition 1, offset 0").click()
    page.get_by_role("button", name="Produce from this").click()
    dialog = console.dialog("Produce from a message")
    expect(dialog.get_by_label("Key", exact=True)).to_have_value("customer-1")
    expect(dialog.get_by_role("textbox", name="Value").first).to_have_value('{"order": 1}')
    dialog.get_by_label("Delay in seconds").fill("3600")
    dialog.get_by_role("button", name="Produce").click()
    expect(page.get_by_role("status").get_by_text("Scheduled as")).to_be_visible()
    schedules = api.get("/v1/schedules", topic=topic)["schedules"]
    assert len(schedules) == 1


def test_a_schema_of_the_registry_is_checked_and_decoded(
    console: Console, api: Api, new_topic: NewTopic
) -> None:
    topic, page = new_topic(), console.page
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
    }
    api.post(f"/registry/subjects/{topic}-value/versions", {"schema": json.dumps(schema)})
    console.visit(f"topics/{topic}", topic)
    page.get_by_role("button", name="Produce").click()
    dialog = console.dialog("Produce")
    dialog.get_by_label("Value as").select_option("JSON, by a registered schema")
    dialog.get_by_label("Subject").fill(f"{topic}-value")
    dialog.get_by_label("Value", exact=True).fill('{"id": "seven", "note": null}')
    dialog.get_by_role("button", name="Produce").click()
    expect(dialog.get_by_role("alert")).to_contain_text("id")
    dialog.get_by_label("Value", exact=True).fill(
        '{"id": 9223372036854775807, "note": {"string": "grüße"}}'
    )
    dialog.get_by_role("button", name="Produce").click()
    expect(dialog).to_have_count(0)
    search(console)
    row = rows_of(console, topic).first
    expect(row).to_contain_text("9223372036854775807")
    expect(row).to_contain_text("grüße")
    expect(row).to_contain_text("avro")
    row.get_by_role("button", name="Open partition 0, offset 0").click()
    opened = console.dialog(re.compile("offset 0"))
    expect(opened.get_by_text("AVRO schema")).to_be_visible()


# Bytes that a form would change, if it had them as text.
AWKWARD: list[tuple[bytes | None, bytes | None]] = [
    (b"key", b"plain\n\ttext"),
    (b"two\nlines", b"windows\r\nlines\r\n"),
    (b"\x00\x00\x00\x07", b"\x00\x00\x00\x01\x02valid UTF-8"),
    (b"\xff\xfe", b"\x80\x81"),
    (None, None),
    (b"", b""),
]


def test_a_message_produced_from_another_is_the_same(
    console: Console, broker: Broker, new_topic: NewTopic
) -> None:
    topic = new_topic()
    console.allow_faults(r"(status 404: GET|status of 404).*/registry/schemas/ids/258")
    headers = [("source", b"web"), ("none", None), ("raw", b"\xff\x00"), ("line", b"a\r\nb")]
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for key, value in AWKWARD:
        producer.produce(topic, key=key, value=value, headers=headers)
    assert producer.flush(60) == 0
    for offset in range(len(AWKWARD)):
        dialog = produce_from_this(console, topic, offset)
        names = dialog.get_by_role("group", name="Headers").get_by_label("Name")
        expect(names).to_have_count(4)
        expect(
            dialog.get_by_role("group", name="Headers").get_by_label("Value").first
        ).to_have_value("web")
        dialog.get_by_role("button", name="Produce").click()
        expect(dialog).to_have_count(0)
    records = consumed(broker, topic, 2 * len(AWKWARD))
    assert records[len(AWKWARD) :] == records[: len(AWKWARD)]
    assert records[0] == (b"key", b"plain\n\ttext", headers)


def consumed(broker: Broker, topic: str, count: int) -> list[tuple[object, object, object]]:
    """Return the key, the value and the headers of the first messages."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": topic, "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found = consumer.consume(count, timeout=60)
    consumer.close()
    return [(one.key(), one.value(), one.headers()) for one in found]
