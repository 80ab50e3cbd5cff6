"""What all workloads have in common: threads, a history, and calls that may fail."""

from __future__ import annotations

import logging
import random
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.faults.machines import MachineBroker
from tests.integration.faults.operations import History, Kind, Operation, Outcome
from tests.integration.faults.rules import Stale, Violation

HTTP_TIMEOUT_SECONDS = 12.0  # longer than a node waits for a new owner
MESSAGE_TIMEOUT_MS = 180_000
OUT_MAX = 500  # more than so many unanswered messages tell nothing more
BACK_OFF_SECONDS = 0.3

_log = logging.getLogger(__name__)


@dataclass
class Site:
    """Where the clients of a campaign work: the nodes, the history, and when to stop."""

    nodes: dict[int, MachineBroker]
    history: History
    seed: int
    stale: Stale
    pace: float = 1.0  # pauses of clients are so many times as long
    sending: threading.Event = field(default_factory=threading.Event)  # set: senders go on
    draining: threading.Event = field(default_factory=threading.Event)  # set: settle everything
    over: threading.Event = field(default_factory=threading.Event)  # set: end

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    def create(self, *topics: str, partitions: int = 2) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        config = {"min.insync.replicas": "2"}
        wanted = [NewTopic(one, partitions, len(self.nodes), config=config) for one in topics]
        for future in admin.create_topics(wanted, operation_timeout=30).values():
            future.result(timeout=40)

    def pause(self, seconds: float) -> None:
        """Wait, but not after the end."""
        self.over.wait(seconds * self.pace)


class Workload:
    """Some clients and the rules for what they saw."""

    name = ""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.history = site.history
        self.failures: list[str] = []  # of the campaign itself

    def prepare(self) -> None:
        """Create what the clients need, while nothing is broken yet."""

    def clients(self) -> list[Callable[[], None]]:
        """What runs in threads of their own, until the campaign is over."""
        return []

    def is_drained(self) -> bool:
        """Whether nothing more is expected, once all is repaired and senders have stopped."""
        return True

    def inspected(self) -> list[str]:
        """Where the HTTP API shows why something is left, if something is."""
        return []

    def topics(self) -> dict[str, str]:
        """What is to be read in the end, each with its level of isolation."""
        return {}

    def check(self, logs: Logs) -> list[Violation]:
        raise NotImplementedError

    def start(self) -> list[threading.Thread]:
        threads = [
            threading.Thread(
                target=self._guarded, args=(client,), name=f"{self.name}-{number}", daemon=True
            )
            for number, client in enumerate(self.clients())
        ]
        for thread in threads:
            thread.start()
        return threads

    def begin(self, process: str, kind: Kind, message: str, **more: Any) -> Operation:
        return Operation(
            workload=self.name,
            process=process,
            kind=kind,
            message=message,
            start=self.history.now(),
            **more,
        )

    def random(self, process: str) -> random.Random:
        return random.Random(f"{self.site.seed} {self.name} {process}")

    def _guarded(self, client: Callable[[], None]) -> None:
        try:
            client()
        except BaseException:
            self.failures.append(traceback.format_exc())
            _log.exception("a client of %s has failed", self.name)


@dataclass
class Logs:
    """What topics hold in the end, and when it was first seen."""

    values: dict[str, dict[int, list[str]]] = field(default_factory=dict)
    seen: dict[str, float] = field(default_factory=dict)
    changed: list[Violation] = field(default_factory=list)

    def counts(self, topic: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for values in self.values[topic].values():
            for value in values:
                found[value] = found.get(value, 0) + 1
        return found


class KafkaSender:
    """An idempotent producer whose messages are all in the history."""

    def __init__(self, workload: Workload, process: str, **settings: object) -> None:
        self._workload = workload
        self._process = process
        self._out = 0
        self._numbers: dict[int, int] = {}
        self._producer = Producer(
            {
                "bootstrap.servers": workload.site.bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": MESSAGE_TIMEOUT_MS,
                "socket.timeout.ms": 5_000,
                "reconnect.backoff.max.ms": 500,
                "linger.ms": 2,
                "batch.num.messages": 10,
                "log_level": 0,
                **settings,
            }
        )

    def send(self, topic: str, partition: int, value: str, *, delay_seconds: float = 0.0) -> None:
        if self._out >= OUT_MAX:
            self._producer.poll(0.2)
            return
        number = self._numbers[partition] = self._numbers.get(partition, -1) + 1
        operation = self._workload.begin(
            self._process,
            Kind.SEND,
            value,
            group=f"{self._process}/{partition}",
            # A delayed message appears when it is due, so only the others are in order.
            number=-1 if delay_seconds else number,
            seconds=delay_seconds,
        )

        def done(error: KafkaError | None, message: Message) -> None:
            self._out -= 1
            outcome = Outcome.OK if error is None else Outcome.UNKNOWN
            self._workload.history.end(operation, outcome, "" if error is None else str(error))

        headers = [("goqueue-delay-ms", b"%d" % (delay_seconds * 1000))] if delay_seconds else []
        self._out += 1
        self._producer.produce(
            topic, value.encode(), partition=partition, headers=headers, on_delivery=done
        )
        self._producer.poll(0)

    def poll(self) -> None:
        self._producer.poll(0)

    def finish(self) -> None:
        left = self._producer.flush(MESSAGE_TIMEOUT_MS / 1000)
        if left:
            self._workload.failures.append(f"{left} messages of {self._process} have no answer")


class HttpCaller:
    """Asks one node, and another one after a failure."""

    def __init__(self, site: Site, chance: random.Random) -> None:
        self._nodes = list(site.nodes.values())
        self._at = chance.randrange(len(self._nodes))
        self._client = httpx.Client(timeout=HTTP_TIMEOUT_SECONDS)
        self.note = ""

    def next_node(self) -> None:
        self._at = (self._at + 1) % len(self._nodes)

    def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, **params: Any
    ) -> tuple[Outcome, dict[str, Any]]:
        """What the client knows afterwards, and the body of the answer."""
        node = self._nodes[self._at]
        try:
            answer = self._client.request(method, node.http + path, json=body, params=params)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            self._fail(repr(error))
            return Outcome.REFUSED, {}
        except (httpx.TransportError, OSError) as error:
            self._fail(repr(error))
            return Outcome.UNKNOWN, {}
        found = answer.json() if answer.content else {}
        if answer.status_code < 400:
            self.note = ""
            return Outcome.OK, found
        self._fail(f"node {node.node_id}: {answer.status_code} {found.get('code')}")
        return (Outcome.UNKNOWN if answer.status_code >= 500 else Outcome.REFUSED), found

    def _fail(self, note: str) -> None:
        self.note = note
        self.next_node()


def turns(site: Site, seconds: float, chance: random.Random) -> Iterator[int]:
    """Count while senders are wanted, with a pause in between."""
    number = 0
    while site.sending.is_set():
        yield number
        number += 1
        site.pause(seconds * chance.uniform(0.5, 1.5))
