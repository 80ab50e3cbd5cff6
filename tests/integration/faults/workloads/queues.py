"""Consumers that lease messages, hold them across faults, and settle them in every way."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.integration.faults import rules
from tests.integration.faults.operations import Kind, Operation, Outcome

from .base import BACK_OFF_SECONDS, HttpCaller, KafkaSender, Logs, Site, Workload, turns

PARTITIONS = 2
CONSUMERS = 3
RECEIVED_MAX = 5
WAIT_SECONDS = 1
PACE_SECONDS = 0.25
LEASES_SECONDS = (3, 8, 15)
ACK_ATTEMPTS_MAX = 4  # of an ack whose outcome is unknown
# After everything is repaired: whatever is not settled comes again within this time.
QUIET_SECONDS = max(LEASES_SECONDS) + 5.0


@dataclass(slots=True)
class Received:
    """One message as a consumer got it."""

    value: str
    receipt: str
    lease_seconds: float = 0.0
    settle_at: float = 0.0


class Consumer:
    """What a protocol offers to a consumer; every call says what is known afterwards."""

    note = ""

    def receive(self, lease_seconds: int) -> list[Received] | None:
        raise NotImplementedError

    def ack(self, one: Received) -> Outcome:
        raise NotImplementedError

    def release(self, one: Received) -> Outcome:
        raise NotImplementedError

    def extend(self, one: Received, seconds: int) -> Outcome:
        raise NotImplementedError


@dataclass(slots=True)
class Worker:
    """One consumer at work, and what it will settle later."""

    process: str
    consumer: Consumer
    chance: random.Random
    held: list[Received] = field(default_factory=list)


class QueueWorkload(Workload):
    """A queue with consumers that settle at once, later, not at all, or give back."""

    topic = ""
    group = ""  # if it has another name than the topic

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self.settled: set[str] = set()
        self._lock = threading.Lock()
        self._draining_since = 0.0

    def consumer(self, chance: random.Random) -> Consumer:
        raise NotImplementedError

    def senders(self) -> list[Callable[[], None]]:
        raise NotImplementedError

    def clients(self) -> list[Callable[[], None]]:
        names = [f"consumer-{number}" for number in range(CONSUMERS)]
        return [*self.senders(), *((lambda name=name: self._consume(name)) for name in names)]  # type: ignore[misc]

    def inspected(self) -> list[str]:
        name = self.group or self.topic
        return [f"/v1/groups/{name}/stats?topic={self.topic}"]

    def topics(self) -> dict[str, str]:
        return {self.topic: "read_committed"}

    def is_drained(self) -> bool:
        """Everything that was acknowledged to senders is settled, and nothing comes again.

        An ack without an answer may have been carried out: then the message does not come again.
        """
        operations = self.history.of(self.name, Kind.SEND, Kind.ACK, Kind.DELIVERY)
        acked = {
            one.message
            for one in operations
            if one.kind is Kind.ACK and one.outcome is not Outcome.REFUSED
        }
        quiet_since = self._draining_since = self._draining_since or self.history.now()
        for one in operations:
            if one.kind is Kind.SEND and one.outcome is Outcome.OK and one.message not in acked:
                return False
            if one.kind is Kind.DELIVERY and not one.is_settled:
                quiet_since = max(quiet_since, one.end)
        return self.history.now() > quiet_since + QUIET_SECONDS

    def check(self, logs: Logs) -> list[rules.Violation]:
        sends = self.history.of(self.name, Kind.SEND)
        kinds = (Kind.DELIVERY, Kind.ACK, Kind.RELEASE, Kind.EXTEND)
        operations = self.history.of(self.name, *kinds)
        counts = logs.counts(self.topic)
        return [
            *rules.queue_rules(sends, operations, counts, self.site.stale),
            *rules.early(sends, _first(operations, logs.seen), self.history.clocks),
        ]

    # One consumer

    def _consume(self, process: str) -> None:
        chance = self.random(process)
        worker = Worker(process, self.consumer(chance), chance)
        number = 0
        while not self.site.over.is_set():
            number += 1
            self._settle_due(worker)
            lease_seconds = chance.choice(LEASES_SECONDS)
            call = f"{process}-{number}"
            start = self.history.now()
            received = worker.consumer.receive(lease_seconds)
            if received is None:
                self.site.over.wait(BACK_OFF_SECONDS)
                continue
            for one in self._note(process, received, start, call, lease_seconds):
                self._choose(worker, one)
            self.site.pause(0.05)

    def _note(
        self, process: str, received: list[Received], start: float, call: str, lease_seconds: float
    ) -> list[Received]:
        """Record deliveries; those that are not known to be settled."""
        fresh = []
        for one in received:
            one.lease_seconds = lease_seconds
            delivery = Operation(
                workload=self.name,
                process=process,
                kind=Kind.DELIVERY,
                message=one.value,
                start=start,
                seconds=lease_seconds,
                receipt=one.receipt,
                call=call,
                is_settled=one.value in self.settled,
            )
            self.history.end(delivery, Outcome.OK)
            # A settled message is not settled again: if its ack was lost, it comes on and on.
            if not delivery.is_settled:
                fresh.append(one)
        return fresh

    def _choose(self, worker: Worker, one: Received) -> None:
        draw = 0.0 if self.site.draining.is_set() else worker.chance.random()
        if draw < 0.55:
            self._ack(worker, one)
        elif draw < 0.75:
            self._hold(worker, one, one.lease_seconds)
        elif draw < 0.85:
            self._change(worker, one, Kind.RELEASE, 0)
        elif draw < 0.95:
            seconds = worker.chance.choice(LEASES_SECONDS)
            if self._change(worker, one, Kind.EXTEND, seconds) is Outcome.OK:
                self._hold(worker, one, seconds)
        # else it is dropped, and comes again when its lease ends

    def _hold(self, worker: Worker, one: Received, seconds: float) -> None:
        """Settle a message before its lease ends, but not now."""
        one.settle_at = self.history.now() + worker.chance.uniform(0.3, 0.9) * seconds
        worker.held.append(one)

    def _settle_due(self, worker: Worker) -> None:
        for one in list(worker.held):
            if one.settle_at <= self.history.now() or self.site.draining.is_set():
                worker.held.remove(one)
                self._ack(worker, one)

    def _ack(self, worker: Worker, one: Received) -> None:
        for _ in range(ACK_ATTEMPTS_MAX):
            outcome = self._ack_once(worker, one)
            if outcome is not Outcome.UNKNOWN or self.site.over.is_set():
                return
            self.site.over.wait(BACK_OFF_SECONDS)

    def _ack_once(self, worker: Worker, one: Received) -> Outcome:
        operation = self.begin(worker.process, Kind.ACK, one.value, receipt=one.receipt)
        outcome = worker.consumer.ack(one)
        self.history.end(operation, outcome, worker.consumer.note)
        if outcome is Outcome.OK:
            with self._lock:
                self.settled.add(one.value)
        return outcome

    def _change(self, worker: Worker, one: Received, kind: Kind, seconds: int) -> Outcome:
        consumer = worker.consumer
        operation = self.begin(
            worker.process, kind, one.value, receipt=one.receipt, seconds=seconds
        )
        is_release = kind is Kind.RELEASE
        outcome = consumer.release(one) if is_release else consumer.extend(one, seconds)
        self.history.end(operation, outcome, consumer.note)
        return outcome


class HttpQueue(QueueWorkload):
    """A queue group over HTTP on a topic that Kafka producers write to."""

    name = "http-queue"
    topic = "work"
    group = "workers"

    def prepare(self) -> None:
        self.site.create(self.topic, partitions=PARTITIONS)
        caller = HttpCaller(self.site, self.random("prepare"))
        settings = {"deliveries_max": 0, "backoff_ms": 100}
        body = {"kind": "queue", "settings": settings}
        outcome, answer = caller.call("PUT", f"/v1/groups/{self.group}", body)
        assert outcome is Outcome.OK, answer

    def senders(self) -> list[Callable[[], None]]:
        return [lambda: self._send("one")]

    def consumer(self, chance: random.Random) -> Consumer:
        return _HttpConsumer(HttpCaller(self.site, chance), self.group, self.topic)

    def _send(self, process: str) -> None:
        chance, sender = self.random(process), KafkaSender(self, process)
        for turn in turns(self.site, PACE_SECONDS, chance):
            for number in range(3):
                value = f"{self.name}:{process}:{turn}-{number}"
                sender.send(self.topic, chance.randrange(PARTITIONS), value)
        sender.finish()


class _HttpConsumer(Consumer):
    def __init__(self, caller: HttpCaller, group: str, topic: str) -> None:
        self._caller = caller
        self._group = group
        self._topic = topic

    def receive(self, lease_seconds: int) -> list[Received] | None:
        body = {
            "topic": self._topic,
            "max_messages": RECEIVED_MAX,
            "wait_ms": WAIT_SECONDS * 1000,
            "visibility_ms": lease_seconds * 1000,
        }
        outcome, answer = self._caller.call("POST", f"/v1/groups/{self._group}/receive", body)
        if outcome is not Outcome.OK:
            return None
        return [Received(one["value"], one["receipt"]) for one in answer["messages"]]

    def ack(self, one: Received) -> Outcome:
        return self._settle("ack", one)

    def release(self, one: Received) -> Outcome:
        return self._settle("nack", one, delay_ms=0)

    def extend(self, one: Received, seconds: int) -> Outcome:
        return self._settle("extend", one, visibility_ms=seconds * 1000)

    def _settle(self, how: str, one: Received, **more: Any) -> Outcome:
        body = {"receipts": [one.receipt], **more}
        outcome, answer = self._caller.call("POST", f"/v1/groups/{self._group}/{how}", body)
        self.note = self._caller.note
        if outcome is not Outcome.OK:
            # No answer to a retry says nothing about the first attempt.
            return Outcome.UNKNOWN if not answer else outcome
        problem = answer["results"][0].get("problem")
        if problem is None:
            return Outcome.OK
        self.note = f"{problem['status']} {problem['code']}"
        return Outcome.UNKNOWN if problem["status"] >= 500 else Outcome.REFUSED


def _first(operations: list[Operation], seen: dict[str, float]) -> dict[str, float]:
    """When each message was first seen, in the log or in the hands of a consumer."""
    found = dict(seen)
    for one in operations:
        if one.kind is Kind.DELIVERY:
            found[one.message] = min(one.end, found.get(one.message, one.end))
    return found
