"""Offsets of stream groups: committed by Kafka clients and by members over HTTP."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.integration.faults import rules
from tests.integration.faults.operations import Kind, Operation, Outcome

from .base import BACK_OFF_SECONDS, HttpCaller, KafkaSender, Logs, Site, Workload, turns

PARTITIONS = 2
PACE_SECONDS = 0.3
CALL_SECONDS = 8.0
POLLED_MAX = 50


class KafkaOffsets(Workload):
    """One committer per partition that counts up, and others that ask."""

    name = "kafka-offsets"
    topic = "positions"
    group = "counters"

    def prepare(self) -> None:
        self.site.create(self.topic, partitions=PARTITIONS)

    def clients(self) -> list[Callable[[], None]]:
        committers = [(lambda one=one: self._commit(one)) for one in range(PARTITIONS)]  # type: ignore[misc]
        return [*committers, lambda: self._fetch("asker")]

    def check(self, logs: Logs) -> list[rules.Violation]:
        return rules.stale_offsets(self.history.of(self.name, Kind.COMMIT, Kind.FETCH))

    def _commit(self, partition: int) -> None:
        process = f"committer-{partition}"
        consumer = self._consumer()
        for turn in turns(self.site, PACE_SECONDS, self.random(process)):
            place = TopicPartition(self.topic, partition, turn + 1)
            operation = self._operation(process, Kind.COMMIT, partition, turn + 1)
            try:
                [result] = consumer.commit(offsets=[place], asynchronous=False) or [place]
            except KafkaException as error:
                self.history.end(operation, Outcome.UNKNOWN, str(error))
                continue
            outcome = Outcome.OK if result.error is None else Outcome.UNKNOWN
            self.history.end(operation, outcome, str(result.error or ""))
            if turn % 4 == 0:
                self._ask(process, consumer, partition)
        consumer.close()

    def _fetch(self, process: str) -> None:
        chance = self.random(process)
        while not self.site.over.is_set():
            consumer = self._consumer()  # a new one asks anew who coordinates the group
            for _ in range(20):
                self._ask(process, consumer, chance.randrange(PARTITIONS))
                self.site.pause(PACE_SECONDS)
            consumer.close()

    def _ask(self, process: str, consumer: Consumer, partition: int) -> None:
        operation = self._operation(process, Kind.FETCH, partition, -1)
        try:
            [place] = consumer.committed(
                [TopicPartition(self.topic, partition)], timeout=CALL_SECONDS
            )
        except KafkaException as error:
            self.history.end(operation, Outcome.UNKNOWN, str(error))
            return
        operation.number = max(place.offset, -1)
        outcome = Outcome.OK if place.error is None else Outcome.UNKNOWN
        self.history.end(operation, outcome)

    def _operation(self, process: str, kind: Kind, partition: int, number: int) -> Operation:
        where = f"{self.group}/{partition}"
        return self.begin(process, kind, where, group=where, number=number)

    def _consumer(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.site.bootstrap,
                "group.id": self.group,
                "enable.auto.commit": False,
                "socket.timeout.ms": 5_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )


class HttpStream(Workload):
    """Members of a stream group over HTTP: they get everything, and nothing after its commit."""

    name = "http-stream"
    topic = "events"
    group = "readers"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._delivered: set[str] = set()

    def prepare(self) -> None:
        self.site.create(self.topic, partitions=PARTITIONS)

    def clients(self) -> list[Callable[[], None]]:
        return [self._send, lambda: self._read("one"), lambda: self._read("two")]

    def topics(self) -> dict[str, str]:
        return {self.topic: "read_uncommitted"}

    def is_drained(self) -> bool:
        sends = self.history.of(self.name, Kind.SEND)
        return all(one.message in self._delivered for one in sends if one.outcome is Outcome.OK)

    def check(self, logs: Logs) -> list[rules.Violation]:
        sends = self.history.of(self.name, Kind.SEND)
        counts = logs.counts(self.topic)
        missing = [one for one in counts if one not in self._delivered]
        return [
            *rules.log_rules(sends, counts),
            *rules.read_again(self.history.of(self.name, Kind.DELIVERY, Kind.COMMIT)),
            *(rules.Violation("never delivered", one, "to the stream group") for one in missing),
        ]

    def _send(self) -> None:
        chance, sender = self.random("sender"), KafkaSender(self, "sender")
        for turn in turns(self.site, PACE_SECONDS, chance):
            sender.send(self.topic, chance.randrange(PARTITIONS), f"{self.name}:{turn}")
        sender.finish()

    def _read(self, process: str) -> None:
        caller = HttpCaller(self.site, self.random(process))
        epoch: int | None = None
        after: int | None = None
        while not self.site.over.is_set():
            if epoch is None:
                epoch, after = self._join(process, caller), None
                self.site.over.wait(BACK_OFF_SECONDS if epoch is None else 0)
                continue
            epoch, after = self._poll(process, caller, epoch, after)
            self.site.pause(0.1)

    def _join(self, process: str, caller: HttpCaller) -> int | None:
        body = {"topics": [self.topic], "member_id": process}
        outcome, answer = caller.call("POST", f"/v1/groups/{self.group}/join", body)
        return int(answer["member_epoch"]) if outcome is Outcome.OK else None

    def _poll(
        self, process: str, caller: HttpCaller, epoch: int, after: int | None
    ) -> tuple[int | None, int | None]:
        """Poll and commit; epoch and number for the next poll, no epoch to join again."""
        more = {} if after is None else {"after": after}
        start = self.history.now()
        outcome, answer = caller.call(
            "GET",
            f"/v1/groups/{self.group}/poll",
            member_id=process,
            member_epoch=epoch,
            wait_ms=500,
            limit=POLLED_MAX,
            start="earliest",
            **more,
        )
        if outcome is not Outcome.OK:
            return None, None
        ends: dict[int, int] = {}
        for one in answer["messages"]:
            partition, offset = one["partition"], one["offset"]
            ends[partition] = offset + 1
            delivery = self.begin(process, Kind.DELIVERY, one["value"], number=offset)
            delivery.start, delivery.group = start, str(partition)
            self.history.end(delivery, Outcome.OK)
            self._delivered.add(one["value"])
        epoch = int(answer["member_epoch"])
        if ends:
            self._commit(process, caller, epoch, ends)
        if answer["assignment"] is not None:
            body = {"member_id": process, "member_epoch": epoch, "owned": answer["assignment"]}
            caller.call("POST", f"/v1/groups/{self.group}/revoke", body)
        return epoch, int(answer["poll"])

    def _commit(self, process: str, caller: HttpCaller, epoch: int, ends: dict[int, int]) -> None:
        offsets = [
            {"topic": self.topic, "partition": partition, "offset": end}
            for partition, end in ends.items()
        ]
        body = {"member_id": process, "member_epoch": epoch, "offsets": offsets}
        operations = [
            self.begin(process, Kind.COMMIT, f"{self.group}/{one}", group=str(one), number=end)
            for one, end in ends.items()
        ]
        outcome, answer = caller.call("POST", f"/v1/groups/{self.group}/commit", body)
        failed = {one["partition"] for one in answer.get("results", ()) if "problem" in one}
        for operation in operations:
            is_done = outcome is Outcome.OK and int(operation.group) not in failed
            self.history.end(operation, Outcome.OK if is_done else Outcome.UNKNOWN, caller.note)
