"""The audit log of a real node: what real clients are denied is counted, and survives a kill."""

from __future__ import annotations

import base64
import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from goqueue.client.http import Client
from goqueue.model.errors import GoQueueError
from tests.integration.waiting import eventually
from tests.unit.tenancy.audit.test_ocsf import check

from .nodes import ADMIN, GuardedBroker
from .sasl_clients import Login, confluent_settings

BOB = Login("SCRAM-SHA-256", "bob", "bob-secret-1")
KNOCKS = 2_000
INTERVAL_S = 1


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    folder = tmp_path_factory.mktemp("audited")
    settings = {
        "security.access_control": "on",
        "security.audit_interval_ms": INTERVAL_S * 1000,
        "security.audit_file": folder / "audit.jsonl",
    }
    node = GuardedBroker(folder, settings)
    try:
        node.start()
        with admin(node) as client:
            client.users.create(BOB.user, BOB.password)
        yield node
    finally:
        node.close()


def admin(node: GuardedBroker) -> Client:
    return Client(node.http, username=ADMIN.user, password=ADMIN.password)


def events(node: GuardedBroker, **filters: Any) -> list[dict[str, Any]]:
    """The whole log, as far as filters select it."""
    found, cursor = [], "0"
    with admin(node) as client:
        while True:
            page = client.audit.read(cursor=cursor, limit=1000, **filters)
            found += page.events
            if page.end:
                return found
            cursor = page.cursor


def times(found: list[dict[str, Any]]) -> int:
    return sum(event.get("count", 1) for event in found)


def in_file(node: GuardedBroker) -> list[dict[str, Any]]:
    text = (node.directory / "audit.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_what_a_client_is_denied_is_counted(node: GuardedBroker) -> None:
    host, _, port = node.http.removeprefix("http://").partition(":")
    login = base64.b64encode(f"{BOB.user}:{BOB.password}".encode()).decode()
    connection = http.client.HTTPConnection(host, int(port))
    statuses = set()
    for number in range(KNOCKS):
        # Some of one name, and some of many.
        name = "secret" if number % 2 else f"secret-{number}"
        headers = {"Authorization": f"Basic {login}"}
        connection.request("GET", f"/v1/topics/{name}/partitions", headers=headers)
        answer = connection.getresponse()
        statuses.add(answer.status)
        answer.read()
    connection.close()
    assert statuses <= {403, 404}
    eventually(
        lambda: times(events(node, user="bob", outcome="denied", operation="topics")) >= KNOCKS / 2,
        because="the denials of one name are written",
    )
    eventually(
        lambda: times(events(node, user="bob", outcome="denied")) == KNOCKS,
        because="every denial is counted",
    )
    denied = events(node, user="bob", outcome="denied")
    assert len(denied) < KNOCKS / 2, "a flood is merged"
    for event in denied:
        check(event)
        assert event["src_endpoint"] == {"ip": "127.0.0.1"}


def test_kafka_clients_are_audited(node: GuardedBroker) -> None:
    mine = AdminClient(confluent_settings(node.bootstrap, ADMIN))
    mine.create_topics([NewTopic("made", 1)])["made"].result(10)
    other = AdminClient(confluent_settings(node.bootstrap, BOB))
    with pytest.raises(KafkaException):
        other.create_topics([NewTopic("not-made", 1)])["not-made"].result(10)
    wrong = confluent_settings(node.bootstrap, Login("PLAIN", "bob", "wrong-secret"))
    refused = AdminClient(wrong)
    with pytest.raises(KafkaException):
        refused.list_topics(timeout=2)
    eventually(lambda: events(node, resource="not-made", outcome="denied"), because="denied")
    [made] = events(node, resource="made", operation="topics.create")
    assert made["actor"]["user"]["name"] == "admin"
    assert made["dst_endpoint"]["svc_name"] == "kafka"
    failed = events(node, operation="logon", outcome="denied", user="bob")
    assert failed[0]["status_code"] == "authentication_failed"
    assert not any("wrong-secret" in json.dumps(one) for one in events(node))


def test_the_log_is_a_topic_that_nobody_can_write(node: GuardedBroker) -> None:
    settings = {
        **confluent_settings(node.bootstrap, ADMIN),
        "group.id": "auditors",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition("__audit", 0, 0)])
    record = eventually(lambda: consumer.poll(0.5), because="the log can be consumed")
    consumer.close()
    check(json.loads(record.value()))
    errors: list[Any] = []
    producer = Producer({**confluent_settings(node.bootstrap, ADMIN), "retries": 0})
    producer.produce("__audit", b"{}", on_delivery=lambda error, _: errors.append(error))
    producer.flush(10)
    assert errors[0] is not None


def test_the_command_shows_it(node: GuardedBroker) -> None:
    address = node.http.removeprefix("http://")
    command = [sys.executable, "-m", "goqueue", "--http", address, "--login", ADMIN.user]
    command += ["--login-password", "-"]
    command += ["--output", "json", "audit", "tail", "-n", "5", "--outcome", "denied"]
    shown = subprocess.run(
        command, input=ADMIN.password, capture_output=True, text=True, timeout=30, check=True
    )
    lines = [json.loads(line) for line in shown.stdout.splitlines()]
    assert len(lines) == 5
    assert all(one["unmapped"]["outcome"] == "denied" for one in lines)


def test_the_file_has_the_same_events(node: GuardedBroker) -> None:
    def same() -> bool:
        return {one["metadata"]["uid"] for one in in_file(node)} >= {
            one["metadata"]["uid"] for one in events(node)
        }

    eventually(same, because="both have the same events")
    path = Path(node.directory / "audit.jsonl")
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_kill_loses_the_last_moments_only(node: GuardedBroker) -> None:
    with Client(node.http, username=BOB.user, password=BOB.password) as client:
        for number in range(50):
            with pytest.raises(GoQueueError):
                client.topics.create(f"killed-{number}")
    eventually(
        lambda: events(node, user="bob", resource="killed-49"), because="the last one is written"
    )
    node.kill()
    node.start()
    found = events(node, user="bob")
    names = {one["resources"][0]["name"] for one in found if one.get("resources")}
    assert {f"killed-{number}" for number in range(50)} <= names
    eventually(lambda: len(events(node, operation="node")) == 2, because="both starts are there")
