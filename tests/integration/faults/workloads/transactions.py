"""Read, process and write in transactions: each input has its outputs once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer

from tests.integration.faults import rules
from tests.integration.faults.operations import Kind, Operation, Outcome

from .base import BACK_OFF_SECONDS, HttpCaller, KafkaSender, Logs, Site, Workload, turns

PARTITIONS = 2
PROCESSORS = 2
PACE_SECONDS = 0.3
INPUTS_MAX = 10
CALL_SECONDS = 20.0
TRANSACTION_MS = 20_000
COMMIT_ATTEMPTS_MAX = 8
ABORTED_OF_ALL = 0.15
LEASE_SECONDS = 12


class TransactionWorkload(Workload):
    """Inputs in one topic, outputs in two; a value is `input|transaction`."""

    source = ""
    group = ""
    targets: tuple[str, ...] = ()

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._numbers = count()

    def prepare(self) -> None:
        self.site.create(self.source, *self.targets, partitions=PARTITIONS)

    def clients(self) -> list[Callable[[], None]]:
        names = [f"processor-{number}" for number in range(PROCESSORS)]
        return [self._send, *((lambda name=name: self.process(name)) for name in names)]  # type: ignore[misc]

    def process(self, name: str) -> None:
        raise NotImplementedError

    def inspected(self) -> list[str]:
        return [
            "/v1/transactions",
            f"/v1/groups/{self.group}",
            f"/v1/groups/{self.group}/offsets",
            f"/v1/groups/{self.group}/assignment",
            f"/v1/groups/{self.group}/stats?topic={self.source}",
        ]

    def topics(self) -> dict[str, str]:
        return dict.fromkeys((self.source, *self.targets), "read_committed")

    def is_drained(self) -> bool:
        sends = self.history.of(self.name, Kind.SEND)
        done = {
            value.split("|")[0]
            for one in self.history.of(self.name, Kind.TRANSACTION)
            if one.outcome is not Outcome.REFUSED
            for value in one.values
        }
        return all(one.message in done for one in sends if one.outcome is Outcome.OK)

    def check(self, logs: Logs) -> list[rules.Violation]:
        sends = self.history.of(self.name, Kind.SEND)
        transactions = self.history.of(self.name, Kind.TRANSACTION)
        visible = {topic: logs.counts(topic) for topic in self.targets}
        inputs = logs.counts(self.source)
        outputs = {topic: _inputs_of(counts) for topic, counts in visible.items()}
        return [
            *rules.log_rules(sends, inputs),
            *rules.half_visible(transactions, visible),
            *rules.not_once(sorted(inputs), outputs),
        ]

    def _send(self) -> None:
        chance, sender = self.random("sender"), KafkaSender(self, "sender")
        for turn in turns(self.site, PACE_SECONDS, chance):
            for number in range(2):
                value = f"{self.name}:{turn}-{number}"
                sender.send(self.source, chance.randrange(PARTITIONS), value)
        sender.finish()

    def transaction(self, process: str, inputs: list[str]) -> Operation:
        name = f"{process}-{next(self._numbers)}"
        values = tuple(f"{one}|{name}" for one in inputs)
        return self.begin(process, Kind.TRANSACTION, f"{self.name}:{name}", values=values)


class KafkaTransactions(TransactionWorkload):
    """Consume, transform and produce, with the offsets in the transaction."""

    name = "kafka-transactions"
    source = "deposits"
    group = "kafka-transactions"
    targets = ("credits", "audits")

    def process(self, name: str) -> None:
        chance = self.random(name)
        while not self.site.over.is_set():
            try:
                self._live(name, chance)
            except KafkaException:
                # The next life fences this one: its open transaction is aborted.
                self.site.over.wait(BACK_OFF_SECONDS)

    def _live(self, name: str, chance: random.Random) -> None:
        """Work until a transaction fails."""
        producer = self._producer(name)
        consumer = self._consumer()
        try:
            producer.init_transactions(CALL_SECONDS)
            is_well = True
            while is_well and not self.site.over.is_set():
                messages = consumer.consume(INPUTS_MAX, 0.5)
                inputs = [one for one in messages if one.error() is None]
                if inputs:
                    is_well = self._one(name, producer, consumer, inputs, chance)
                self.site.pause(0.1)
        finally:
            consumer.close()

    def _one(
        self,
        name: str,
        producer: Producer,
        consumer: Consumer,
        inputs: list[Message],
        chance: random.Random,
    ) -> bool:
        """One transaction; whether the next can follow it."""
        operation = self.transaction(name, [_text(one) for one in inputs])
        try:
            producer.begin_transaction()
            partition = chance.randrange(PARTITIONS)
            for value in operation.values:
                for topic in self.targets:
                    producer.produce(topic, value.encode(), partition=partition)
            positions = consumer.position(consumer.assignment())
            metadata = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction(positions, metadata, CALL_SECONDS)
            if chance.random() < ABORTED_OF_ALL and not self.site.draining.is_set():
                producer.abort_transaction(CALL_SECONDS)
                self.history.end(operation, Outcome.REFUSED)
                return False
        except KafkaException as error:
            self._give_up(producer, operation, error)
            return False
        return self._commit(producer, operation)

    def _commit(self, producer: Producer, operation: Operation) -> bool:
        for _ in range(COMMIT_ATTEMPTS_MAX):
            try:
                producer.commit_transaction(CALL_SECONDS)
            except KafkaException as error:
                if error.args[0].retriable():
                    continue
                if error.args[0].txn_requires_abort():
                    self._give_up(producer, operation, error)
                else:
                    self.history.end(operation, Outcome.UNKNOWN, str(error))
                return False
            self.history.end(operation, Outcome.OK)
            return True
        self.history.end(operation, Outcome.UNKNOWN, "no answer")
        return False

    def _give_up(self, producer: Producer, operation: Operation, error: KafkaException) -> None:
        """Abort what was not committed; nobody asked for a commit that could still succeed."""
        note = str(error)
        try:
            producer.abort_transaction(CALL_SECONDS)
        except KafkaException as another:
            note += f"; {another}"
        self.history.end(operation, Outcome.REFUSED, note)

    def _producer(self, name: str) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self.site.bootstrap,
                "transactional.id": f"{self.name}-{name}",
                "transaction.timeout.ms": TRANSACTION_MS,
                "socket.timeout.ms": 5_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
                "error_cb": lambda error: None,
            }
        )

    def _consumer(self) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self.site.bootstrap,
                "group.id": self.group,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        consumer.subscribe([self.source])
        return consumer


class HttpTransactions(TransactionWorkload):
    """Receive from a queue group; publish and acknowledge in one transaction."""

    name = "http-transactions"
    source = "invoices"
    targets = ("payments", "receipts")
    group = "cashiers"

    def prepare(self) -> None:
        super().prepare()
        caller = HttpCaller(self.site, self.random("prepare"))
        body = {"kind": "queue", "settings": {"deliveries_max": 0, "backoff_ms": 100}}
        outcome, answer = caller.call("PUT", f"/v1/groups/{self.group}", body)
        assert outcome is Outcome.OK, answer

    def check(self, logs: Logs) -> list[rules.Violation]:
        operations = self.history.of(self.name, Kind.DELIVERY, Kind.ACK)
        return [*super().check(logs), *rules.settled_again(operations, self.site.stale)]

    def process(self, name: str) -> None:
        chance = self.random(name)
        caller = HttpCaller(self.site, chance)
        while not self.site.over.is_set():
            messages = self._receive(name, caller)
            if messages:
                self._one(name, caller, messages, chance)
            elif messages is None:
                self.site.over.wait(BACK_OFF_SECONDS)
            self.site.pause(0.1)

    def _receive(self, name: str, caller: HttpCaller) -> list[dict[str, Any]] | None:
        body = {"topic": self.source, "max_messages": INPUTS_MAX, "wait_ms": 1_000}
        body |= {"visibility_ms": LEASE_SECONDS * 1000}
        start = self.history.now()
        outcome, answer = caller.call("POST", f"/v1/groups/{self.group}/receive", body)
        if outcome is not Outcome.OK:
            return None
        for one in answer["messages"]:
            delivery = self.begin(name, Kind.DELIVERY, one["value"], receipt=one["receipt"])
            delivery.start = start
            self.history.end(delivery, Outcome.OK)
        messages: list[dict[str, Any]] = answer["messages"]
        return messages

    def _one(
        self,
        name: str,
        caller: HttpCaller,
        messages: list[dict[str, Any]],
        chance: random.Random,
    ) -> None:
        operation = self.transaction(name, [one["value"] for one in messages])
        path = self._write(name, caller, operation, [one["receipt"] for one in messages])
        if path is None:
            self.history.end(operation, Outcome.REFUSED, caller.note)
            return
        if chance.random() < ABORTED_OF_ALL and not self.site.draining.is_set():
            caller.call("POST", f"{path}/abort", {})
            self.history.end(operation, Outcome.REFUSED, "aborted")
            return
        outcome = self._commit(caller, path)
        self.history.end(operation, outcome, caller.note)
        for one in messages:
            ack = self.begin(name, Kind.ACK, one["value"], receipt=one["receipt"])
            self.history.end(ack, outcome)

    def _write(
        self, name: str, caller: HttpCaller, operation: Operation, receipts: list[str]
    ) -> str | None:
        """Begin, publish and acknowledge; where the transaction is, unless something failed."""
        body = {"transactional_id": f"{self.name}-{name}", "timeout_ms": TRANSACTION_MS}
        outcome, begun = caller.call("POST", "/v1/transactions", body)
        if outcome is not Outcome.OK:
            return None
        path = f"/v1/transactions/{begun['id']}"
        wanted = [
            {"topic": topic, "value": value} for value in operation.values for topic in self.targets
        ]
        outcome, answer = caller.call("POST", f"{path}/publish", {"messages": wanted})
        if outcome is not Outcome.OK or answer["failed"]:
            return None
        acks = {"group": self.group, "receipts": receipts}
        outcome, answer = caller.call("POST", f"{path}/ack", acks)
        if outcome is not Outcome.OK or answer["failed"]:
            return None
        return path

    def _commit(self, caller: HttpCaller, path: str) -> Outcome:
        """Commit, again where the outcome is unknown: it may be repeated."""
        for attempt in range(COMMIT_ATTEMPTS_MAX):
            outcome, answer = caller.call("POST", f"{path}/commit", {})
            if outcome is Outcome.OK:
                return outcome
            if outcome is Outcome.REFUSED and answer:
                # Fenced, timed out or aborted; after an unknown attempt that tells nothing.
                return outcome if attempt == 0 else Outcome.UNKNOWN
            self.site.over.wait(BACK_OFF_SECONDS)
        return Outcome.UNKNOWN


def _inputs_of(outputs: dict[str, int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for value, times in outputs.items():
        found[value.split("|")[0]] += times
    return found


def _text(message: Message) -> str:
    return (message.value() or b"").decode()
