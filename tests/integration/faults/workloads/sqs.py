"""SQS queues, standard and FIFO, by boto3."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, ClassVar

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
)

from tests.integration.faults import rules
from tests.integration.faults.machines import SQS_KEY, SQS_SECRET
from tests.integration.faults.operations import Kind, Outcome

from .base import BACK_OFF_SECONDS, HTTP_TIMEOUT_SECONDS, Logs, Site
from .queues import RECEIVED_MAX, WAIT_SECONDS, Consumer, QueueWorkload, Received, turns

PACE_SECONDS = 0.3
DELAYS_SECONDS = (0, 0, 0, 1, 3)
GROUPS_PER_SENDER = 2


class SqsCaller:
    """Asks one node by boto3, and another one after a failure."""

    def __init__(self, clients: list[Any], chance: random.Random) -> None:
        self._clients = clients
        self._at = chance.randrange(len(clients))
        self.note = ""

    def next_node(self) -> None:
        self._at = (self._at + 1) % len(self._clients)

    def call(self, action: str, **arguments: Any) -> tuple[Outcome, dict[str, Any]]:
        try:
            answer = getattr(self._clients[self._at], action)(**arguments)
        except ClientError as error:
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            self._fail(f"{status} {error.response['Error']['Code']}")
            return (Outcome.UNKNOWN if status >= 500 else Outcome.REFUSED), {"status": status}
        except (EndpointConnectionError, ConnectTimeoutError) as error:
            self._fail(type(error).__name__)
            return Outcome.REFUSED, {}
        except BotoCoreError as error:
            self._fail(type(error).__name__)
            return Outcome.UNKNOWN, {}
        self.note = ""
        return Outcome.OK, answer

    def _fail(self, note: str) -> None:
        self.note = f"node {self._at + 1}: {note}"
        self.next_node()


def connect(site: Site) -> list[Any]:
    """A client for each node, without retries: the history shall show every attempt."""
    config = Config(
        retries={"mode": "standard", "total_max_attempts": 1},
        connect_timeout=3,
        read_timeout=HTTP_TIMEOUT_SECONDS,
        max_pool_connections=20,
    )
    return [
        boto3.client(
            "sqs",
            endpoint_url=node.sqs,
            region_name="us-east-1",
            aws_access_key_id=SQS_KEY,
            aws_secret_access_key=SQS_SECRET,
            config=config,
        )
        for node in site.nodes.values()
    ]


class SqsStandard(QueueWorkload):
    """A standard queue: at least once, and once deleted never again."""

    name = "sqs-standard"
    topic = "mails"
    attributes: ClassVar[dict[str, str]] = {}

    def prepare(self) -> None:
        self._connections = connect(self.site)
        caller = SqsCaller(self._connections, self.random("prepare"))
        wanted = {"QueueName": self.topic, "Attributes": self.attributes}
        outcome, answer = caller.call("create_queue", **wanted)
        assert outcome is Outcome.OK, caller.note
        self._url = answer["QueueUrl"]

    def senders(self) -> list[Callable[[], None]]:
        return [lambda: self._send("one"), lambda: self._send("two")]

    def consumer(self, chance: random.Random) -> Consumer:
        return _SqsConsumer(self.caller(chance), self._url)

    def caller(self, chance: random.Random) -> SqsCaller:
        return SqsCaller(self._connections, chance)

    def _send(self, process: str) -> None:
        chance = self.random(process)
        caller = self.caller(chance)
        for turn in turns(self.site, PACE_SECONDS, chance):
            self._send_one(process, caller, f"{self.name}:{process}:{turn}", chance)

    def _send_one(
        self, process: str, caller: SqsCaller, value: str, chance: random.Random
    ) -> Outcome:
        delay = chance.choice(DELAYS_SECONDS)
        operation = self.begin(process, Kind.SEND, value, seconds=float(delay))
        outcome, _ = caller.call(
            "send_message", QueueUrl=self._url, MessageBody=value, DelaySeconds=delay
        )
        self.history.end(operation, outcome, caller.note)
        return outcome


class SqsFifo(SqsStandard):
    """A FIFO queue: once for each deduplication id, and each group in order."""

    name = "sqs-fifo"
    topic = "ledger.fifo"
    attributes: ClassVar[dict[str, str]] = {"FifoQueue": "true"}

    def check(self, logs: Logs) -> list[rules.Violation]:
        sends = self.history.of(self.name, Kind.SEND)
        operations = self.history.of(self.name, Kind.DELIVERY, Kind.ACK)
        return [
            *super().check(logs),
            *rules.disordered(sends, logs.values[self.topic]),
            *rules.overtaken(sends, operations, self.site.stale),
        ]

    def _send(self, process: str) -> None:
        """Send each message until it is acknowledged: the order of a group is known then."""
        chance = self.random(process)
        caller = self.caller(chance)
        for turn in turns(self.site, PACE_SECONDS, chance):
            group = f"{process}-{turn % GROUPS_PER_SENDER}"
            value = f"{self.name}:{process}:{turn}"
            while self._attempt(process, caller, value, group, turn) is not Outcome.OK:
                if self.site.over.wait(BACK_OFF_SECONDS):
                    return
            if chance.random() < 0.15:  # as a client does that lost the answer
                caller.next_node()
                self._attempt(process, caller, value, group, turn)

    def _attempt(
        self, process: str, caller: SqsCaller, value: str, group: str, turn: int
    ) -> Outcome:
        operation = self.begin(process, Kind.SEND, value, group=group, number=turn)
        outcome, _ = caller.call(
            "send_message",
            QueueUrl=self._url,
            MessageBody=value,
            MessageGroupId=group,
            MessageDeduplicationId=value.replace(":", "-"),
        )
        self.history.end(operation, outcome, caller.note)
        return outcome


class _SqsConsumer(Consumer):
    def __init__(self, caller: SqsCaller, url: str) -> None:
        self._caller = caller
        self._url = url

    def receive(self, lease_seconds: int) -> list[Received] | None:
        outcome, answer = self._caller.call(
            "receive_message",
            QueueUrl=self._url,
            MaxNumberOfMessages=RECEIVED_MAX,
            WaitTimeSeconds=WAIT_SECONDS,
            VisibilityTimeout=lease_seconds,
        )
        if outcome is not Outcome.OK:
            return None
        found = answer.get("Messages", [])
        return [Received(one["Body"], one["ReceiptHandle"]) for one in found]

    def ack(self, one: Received) -> Outcome:
        # Any node may be asked, whoever owns the queue now.
        self._caller.next_node()
        return self._settle("delete_message", one)

    def release(self, one: Received) -> Outcome:
        return self._settle("change_message_visibility", one, VisibilityTimeout=0)

    def extend(self, one: Received, seconds: int) -> Outcome:
        return self._settle("change_message_visibility", one, VisibilityTimeout=seconds)

    def _settle(self, action: str, one: Received, **more: Any) -> Outcome:
        arguments = {"QueueUrl": self._url, "ReceiptHandle": one.receipt}
        outcome, answer = self._caller.call(action, **arguments, **more)
        self.note = self._caller.note
        if outcome is Outcome.REFUSED and not answer:
            return Outcome.UNKNOWN  # nobody was there, which says nothing about a first attempt
        return outcome
