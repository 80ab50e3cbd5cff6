"""The driver's half of a queue on a real broker, in a world with a clock and a disk of its own."""

from __future__ import annotations

from typing import Any

import httpx

from goqueue.client.http import HttpSettings, RetrySettings
from goqueue.client.http.transport import Transport
from goqueue.spark.queues.epochs import QueueEpochs
from goqueue.spark.queues.offsets import QueueOffset, read_queue_offset
from goqueue.spark.queues.options import QueueOptions, queue_options
from goqueue.spark.queues.reader import QueuePlanner
from tests.simulation.world import World
from tests.unit.wire.http.client import Client

GROUP = "workers"


class QueueWorld:
    """A node with a topic and a queue group, and drivers that come and go."""

    def __init__(self, *, partitions: int = 2, **group_settings: object) -> None:
        self.world = World()
        self.http = Client(self.world)
        self.requests: list[str] = []
        self.answers_lost: list[str] = []  # how the paths of requests end whose answers get lost
        self.world.create("orders", partitions)
        self.put_group(GROUP, **group_settings)

    def put_group(self, name: str, **settings: object) -> None:
        answer = self.http.send("PUT", f"/v1/groups/{name}", {"settings": settings})
        assert answer.status == 200, answer

    def publish(self, count: int, *, partition: int = 0, **more: object) -> None:
        messages = [{"value": f"m{one}", "partition": partition, **more} for one in range(count)]
        for first in range(0, count, 1000):
            body = {"messages": messages[first : first + 1000]}
            assert self.http.post("/v1/topics/orders/batch", body)["failed"] == 0

    def restart(self) -> None:
        """The node is killed, and started again on what its disk has."""
        self.world.kill()
        self.world.start()
        self.http = Client(self.world)

    def driver(self, **options: str) -> QueuePlanner:
        """A driver that has just started."""
        chosen = an_options(**options)
        epochs = QueueEpochs(self.transport(), chosen, now_s=self._now_s, sleep=self._sleep)
        planner = QueuePlanner(chosen, epochs)
        planner.check()
        return planner

    def transport(self) -> Transport:
        settings = HttpSettings(retry=RetrySettings(retries_max=3))
        network = httpx.MockTransport(self._carry)
        return Transport("h:1", settings, network=network, sleep=lambda _: None)

    def _carry(self, request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode()
        self.requests.append(f"{request.method} {path}")
        body = request.content or None
        answer = self.http.send(request.method, path, body)
        if self.answers_lost and path.endswith(self.answers_lost[0]):
            self.answers_lost.pop(0)
            raise httpx.ReadError("the connection broke", request=request)
        return httpx.Response(answer.status, headers=answer.headers, content=answer.body)

    def _now_s(self) -> float:
        return self.world.broker.clock.now_ms() / 1000

    def _sleep(self, seconds: float) -> None:
        self.world.run_for(seconds * 1000)

    def stats(self) -> dict[str, Any]:
        found: dict[str, Any] = self.http.get(f"/v1/groups/{GROUP}/stats", topic="orders")
        return found

    def open_count(self) -> int:
        """Messages that are not done."""
        names = ("ready", "in_flight", "retrying", "dead_lettering")
        return sum(self.stats()[name] for name in names)

    def receive(self, count: int = 10) -> list[dict[str, Any]]:
        """Another consumer of the group."""
        body = {"topic": "orders", "max_messages": count, "consumer": "anna"}
        messages: list[dict[str, Any]] = self.http.post(f"/v1/groups/{GROUP}/receive", body)[
            "messages"
        ]
        return messages


def an_options(**options: str) -> QueueOptions:
    given = {"subscribe": "orders", "queue.group": GROUP, **options}
    return queue_options(given)


def as_checkpointed(offset: QueueOffset) -> QueueOffset:
    """What Spark gives back of what it was given."""
    return read_queue_offset(offset.to_json())


def offsets_of(offset: QueueOffset | None) -> list[tuple[int, int]]:
    """The messages of an epoch, by partition and offset."""
    assert offset is not None
    return [
        (one.partition, number)
        for one, runs in sorted(offset.runs.items())
        for run in runs
        for number in range(run.first, run.end)
    ]
