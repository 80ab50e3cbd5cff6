"""A node that is killed again and again while queues are filled and emptied.

Nothing that was answered is lost: a publish that was answered is delivered, an ack that was
answered is final, a schedule that was answered fires once and not early. What was delivered and not
acknowledged may come again, and is counted.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from .process import Broker
from .waiting import eventually

TOPIC = "work"
GROUP = "workers"
PARTITIONS = 3
PRODUCERS = 2
CONSUMERS = 3
BATCH = 20
VISIBILITY_MS = 3_000
KILLS = 5
# With more lives than this campaign has crashes, nothing is given up on.
DELIVERIES_MAX = 1000

StartBroker = Callable[..., Broker]

_log = logging.getLogger(__name__)


@dataclass
class Books:
    """What clients were told, kept outside the node."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    published: set[str] = field(default_factory=set)
    due_ms: dict[str, int] = field(default_factory=dict)
    deliveries: Counter[str] = field(default_factory=Counter)
    acked: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)

    def note_publish(self, values: list[str], results: list[dict[str, Any]]) -> None:
        with self.lock:
            for value, result in zip(values, results, strict=True):
                published = result.get("published")
                if published is not None:
                    self.published.add(value)

    def note_delivery(self, message: dict[str, Any]) -> None:
        value = message["value"]
        with self.lock:
            self.deliveries[value] += 1
            if value in self.acked:
                self.wrong.append(f"{value} came again after its ack was answered")
            due_ms = self.due_ms.get(value)
            if due_ms is not None and message["timestamp"] < due_ms:
                self.wrong.append(f"{value} came {due_ms - message['timestamp']} ms early")

    def note_acks(self, values: list[str], results: list[dict[str, Any]]) -> None:
        with self.lock:
            for value, result in zip(values, results, strict=True):
                if "problem" not in result:
                    self.acked.add(value)


class Campaign:
    """Producers and consumers that keep at it whatever becomes of the node."""

    def __init__(self, node: Broker, seed: int) -> None:
        self.node = node
        self.books = Books()
        self._random = random.Random(seed)
        self._producing = threading.Event()
        self._consuming = threading.Event()
        self._producing.set()
        self._consuming.set()
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._produce, args=(number,)) for number in range(PRODUCERS)
        ] + [threading.Thread(target=self._consume, args=(number,)) for number in range(CONSUMERS)]

    def run(self, kills: int) -> None:
        for thread in self._threads:
            thread.start()
        try:
            for _ in range(kills):
                # The moment of each crash is drawn, not waited for.
                self._over.wait(self._random.uniform(0.2, 1.2))
                self.node.kill()
                self.node.start()
            self._producing.clear()
            eventually(self._is_drained, because="the queue is empty and nothing is scheduled")
        finally:
            self._producing.clear()
            self._consuming.clear()
            self._over.set()
            for thread in self._threads:
                thread.join(30)

    def _is_drained(self) -> bool:
        with httpx.Client(base_url=self.node.http) as client:
            stats = client.get(f"/v1/groups/{GROUP}/stats", params={"topic": TOPIC}).json()
            waiting = client.get("/v1/schedules/count").json()["count"]
        return waiting + stats["ready"] + stats["in_flight"] + stats["retrying"] == 0

    def _produce(self, number: int) -> None:
        chance = random.Random(number)
        count = 0
        with httpx.Client(base_url=self.node.http, timeout=10) as client:
            while self._producing.is_set():
                values = [f"{number}-{count + one}" for one in range(BATCH)]
                count += BATCH
                messages: list[dict[str, Any]] = [
                    {"value": value, "priority": chance.choice(["high", "normal", "low"])}
                    for value in values
                ]
                for message in messages[::5]:
                    self._delay(message, chance)
                try:
                    answer = client.post(f"/v1/topics/{TOPIC}/batch", json={"messages": messages})
                except httpx.TransportError:
                    self._rest()
                    continue  # Nobody was told anything of these.
                if answer.status_code == 200:
                    self.books.note_publish(values, answer.json()["results"])

    def _rest(self) -> None:
        """Leave the machine to the node that is starting."""
        self._over.wait(0.05)

    def _delay(self, message: dict[str, Any], chance: random.Random) -> None:
        due_ms = int(time.time() * 1000) + chance.randint(1, 800)
        message["deliver_at"] = due_ms
        with self.books.lock:
            self.books.due_ms[message["value"]] = due_ms

    def _consume(self, number: int) -> None:
        body = {
            "topic": TOPIC,
            "max_messages": BATCH,
            "wait_ms": 300,
            "visibility_ms": VISIBILITY_MS,
            "consumer": f"consumer-{number}",
        }
        with httpx.Client(base_url=self.node.http, timeout=10) as client:
            while self._consuming.is_set():
                try:
                    answer = client.post(f"/v1/groups/{GROUP}/receive", json=body)
                    if answer.status_code != 200:
                        continue
                    messages = answer.json()["messages"]
                    for message in messages:
                        self.books.note_delivery(message)
                    if not messages:
                        continue
                    answer = client.post(
                        f"/v1/groups/{GROUP}/ack",
                        json={"receipts": [message["receipt"] for message in messages]},
                    )
                except httpx.TransportError:
                    self._rest()
                    continue  # The ack may have been taken or not: both are right.
                if answer.status_code == 200:
                    values = [message["value"] for message in messages]
                    self.books.note_acks(values, answer.json()["results"])


def create_queue(node: Broker) -> None:
    """Create the topic and the group of a campaign."""
    with httpx.Client(base_url=node.http) as client:
        made = client.post("/v1/topics", json={"name": TOPIC, "partitions": PARTITIONS})
        assert made.status_code == 201, made.text
        made = client.put(
            f"/v1/groups/{GROUP}",
            json={"kind": "queue", "settings": {"deliveries_max": DELIVERIES_MAX}},
        )
        assert made.status_code in (200, 201), made.text


@pytest.mark.single_node("test_cluster_queues.py kills owners of a cluster")
@pytest.mark.seeds(1)
@pytest.mark.timeout(180)
def test_nothing_that_was_answered_is_lost_when_the_node_is_killed(
    seed: int, start_broker: StartBroker
) -> None:
    node = start_broker()
    create_queue(node)
    campaign = Campaign(node, seed)
    campaign.run(KILLS)
    books = campaign.books
    again = sum(count - 1 for count in books.deliveries.values())
    _log.info(
        "seed %d: %d kills, %d published, %d delivered, %d of them again",
        seed,
        KILLS,
        len(books.published),
        len(books.deliveries),
        again,
    )
    assert books.wrong == []
    assert len(books.published) > 100
    # An ack whose answer was lost with the node may have been taken, so not all need be `acked`.
    assert books.published - books.deliveries.keys() == set()
    assert len(books.acked) > 100
