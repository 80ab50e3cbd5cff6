"""Messages for a log: Kafka producers, with and without delays, and publishing over HTTP."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.integration.faults import rules
from tests.integration.faults.operations import Kind, Outcome

from .base import HttpCaller, KafkaSender, Logs, Workload, turns

PARTITIONS = 3
BATCH = 4
PACE_SECONDS = 0.15
DELAYS_SECONDS = (0.05, 0.5, 2.0, 6.0)


class KafkaLog(Workload):
    """Idempotent producers with acks=all: every message once, in order."""

    name = "kafka-log"
    topic = "orders"

    def prepare(self) -> None:
        self.site.create(self.topic, partitions=PARTITIONS)

    def clients(self) -> list[Callable[[], None]]:
        return [lambda: self._send("one"), lambda: self._send("two")]

    def topics(self) -> dict[str, str]:
        return {self.topic: "read_uncommitted"}

    def check(self, logs: Logs) -> list[rules.Violation]:
        sends = self.history.of(self.name, Kind.SEND)
        return [
            *rules.log_rules(sends, logs.counts(self.topic)),
            *rules.disordered(sends, logs.values[self.topic]),
            *rules.early(sends, logs.seen, self.history.clocks),
        ]

    def delay(self, chance: random.Random) -> float:
        return 0.0

    def _send(self, process: str) -> None:
        chance, sender = self.random(process), KafkaSender(self, process)
        for turn in turns(self.site, PACE_SECONDS, chance):
            partition = chance.randrange(PARTITIONS)
            for number in range(BATCH):
                value = f"{self.name}:{process}:{turn}-{number}"
                sender.send(self.topic, partition, value, delay_seconds=self.delay(chance))
            sender.poll()
        sender.finish()


class KafkaDelayed(KafkaLog):
    """The same with delayed messages among the others."""

    name = "kafka-delayed"
    topic = "reminders"

    def delay(self, chance: random.Random) -> float:
        return chance.choice((0.0, *DELAYS_SECONDS))

    def is_drained(self) -> bool:
        return _is_released(self)


class HttpSchedules(Workload):
    """Messages published over HTTP, some delayed, some of those cancelled."""

    name = "http-schedules"
    topic = "later"

    def prepare(self) -> None:
        self.site.create(self.topic)

    def clients(self) -> list[Callable[[], None]]:
        return [lambda: self._publish("one"), lambda: self._publish("two")]

    def topics(self) -> dict[str, str]:
        return {self.topic: "read_uncommitted"}

    def is_drained(self) -> bool:
        return _is_released(self)

    def check(self, logs: Logs) -> list[rules.Violation]:
        sends = self.history.of(self.name, Kind.SEND)
        cancels = self.history.of(self.name, Kind.CANCEL)
        counts = logs.counts(self.topic)
        gone = {one.message for one in cancels if one.outcome is not Outcome.REFUSED}
        kept = [one for one in sends if one.message not in gone]
        return [
            *rules.lost(kept, counts),
            *rules.doubled(sends, counts),
            *rules.refused_yet_there(sends, counts),
            *rules.never_sent(sends, counts),
            *rules.early(sends, logs.seen, self.history.clocks),
            *rules.cancelled_yet_there(cancels, counts),
        ]

    def _publish(self, process: str) -> None:
        chance = self.random(process)
        caller = HttpCaller(self.site, chance)
        waiting: list[tuple[str, str]] = []
        for turn in turns(self.site, PACE_SECONDS, chance):
            delay = chance.choice((0.0, *DELAYS_SECONDS))
            value = f"{self.name}:{process}:{turn}"
            body = {"value": value, "key": value}
            more = {"delay_ms": int(delay * 1000)} if delay else {}
            operation = self.begin(process, Kind.SEND, value, seconds=delay)
            outcome, answer = caller.call("POST", f"/v1/topics/{self.topic}/publish", body | more)
            self.history.end(operation, outcome, caller.note)
            if outcome is Outcome.OK and delay:
                waiting.append((value, answer["schedule_id"]))
            if waiting and chance.random() < 0.4:
                self._cancel(process, caller, *waiting.pop(chance.randrange(len(waiting))))
                del waiting[:-20]

    def _cancel(self, process: str, caller: HttpCaller, value: str, schedule_id: str) -> None:
        operation = self.begin(process, Kind.CANCEL, value)
        outcome, answer = caller.call("DELETE", f"/v1/schedules/{schedule_id}")
        if outcome is Outcome.REFUSED and not answer:
            outcome = Outcome.UNKNOWN  # nobody was there to say whether it was released
        self.history.end(operation, outcome, caller.note)


def _is_released(workload: Workload) -> bool:
    caller = HttpCaller(workload.site, workload.random("drain"))
    outcome, answer = caller.call("GET", "/v1/schedules/count")
    return outcome is Outcome.OK and answer["count"] == 0
