"""Journeys of many messages with faults put in, and a run of the pipeline that must find them all.

    python -m tests.e2e.journal_faults --messages 10000000

The journal is written with the broker's own encoding to a topic of a real broker: events of
batches, of lots of a queue group, and of single messages; commits of a stream group; schedules. Of
these, seeded faults drop, repeat or delay some. The problems that the pipeline finds must be these,
message by message, and no others; and all messages must be accounted for.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

import goqueue.spark
from goqueue.client import LogClient
from goqueue.model.names import SCHEDULED_TOPIC
from goqueue.spark import pipelines
from goqueue.spark.pipelines import JourneysQuery, JourneysResult
from goqueue.tracing.encoding import encode_events
from goqueue.tracing.events import Details, Event, Kind, Link, Place, Source, Span
from tests.integration.process import Broker

TOPICS = ("orders", "payments")
QUEUE, STREAM = "workers", "readers"
START_MS = 1_767_225_600_000
SPAN_MS = 6 * 3_600_000
GRACE_MS = 15 * 60_000
SLOW_MS = 60_000
BATCH, LOT, COMMIT = 500, 100, 1000
SINGLES = 20  # one batch of so many is delivered and acknowledged message by message
DELAY_MS = 120_000
EVENTS_PER_RECORD = 3000
JOURNAL_PARTITIONS = 4

# Faults of a queue group, and the problem that each must be found as.
FAULTS = {
    "drop": "never_delivered",
    "drop_end": "never_settled",
    "drop_after_nack": "never_repeated",
    "repeat_delivery": "delivered_again",
    "repeat_end": "settled_again",
    "delay_delivery": "late_delivery",
    "delay_end": "late_settlement",
}
SOUND = ("nack", "reject")  # handled as they should be


class Found(NamedTuple):
    """A problem of a range of messages."""

    problem: str
    topic: str
    partition: int
    group: str | None
    first: int
    end: int


class Fault(NamedTuple):
    name: str
    first: int
    end: int


class Story:
    """What happens to the messages of one partition, with faults."""

    def __init__(self, place: Place, count: int, faults: int, random_: random.Random) -> None:
        self.place = place
        self.count = count
        self.random = random_
        self.found: list[Found] = []
        self.faults = self._choose(faults)
        self._received = Details(Kind.RECEIVED, 1, principal="User:ada", client_id="app")
        self._stored = Details(Kind.STORED, 1, replicas=3)

    def _choose(self, faults: int) -> list[Fault]:
        """Choose ranges that do not touch, not among the first messages and not among the last."""
        names = [*FAULTS, *SOUND] * faults
        self.random.shuffle(names)
        low, high = COMMIT, self.count * 8 // 10
        room = (high - low) // len(names)
        assert room > 4, "too many faults for so few messages"
        chosen = []
        for number, name in enumerate(names):
            first = low + number * room
            size = self.random.randint(1, min(room - 3, 60))
            chosen.append(Fault(name, first, first + size))
            if name in FAULTS:
                self._expect(FAULTS[name], QUEUE, first, first + size)
        return chosen

    def _expect(self, problem: str, group: str | None, first: int, end: int) -> None:
        self.found.append(Found(problem, self.place.topic, self.place.partition, group, first, end))

    def received_ms(self, offset: int) -> int:
        return START_MS + SPAN_MS * (offset // BATCH * BATCH) // self.count

    def events(self) -> Iterator[Event]:
        """Yield the events, those of messages that were produced together behind each other."""
        dropped = self.count // BATCH // 2 * BATCH + 7
        waiting = self.count - COMMIT  # these are not delivered yet
        faults = iter([*self.faults, Fault("", self.count, self.count)])
        fault = next(faults)
        for first in range(0, self.count, BATCH):
            end, time_ms = min(first + BATCH, self.count), self.received_ms(first)
            yield Event(self._received, first, end, time_ms, time_ms, 50_000)
            yield Event(self._stored, first, end, time_ms + 4, time_ms + 4)
            size = 1 if first // BATCH % SINGLES == 0 else LOT
            at = first
            while at < min(end, waiting):
                while fault.end <= at:
                    fault = next(faults)
                if fault.first <= at:
                    until = min(fault.end, end)
                    yield from self._handled(fault.name, at, until)
                else:
                    until = min(at + size, end, fault.first, waiting)
                    yield from self._handled("", at, until)
                at = until
        yield from self._committed(dropped)

    def _handled(self, name: str, first: int, end: int) -> Iterator[Event]:
        delay_ms = DELAY_MS if name == "delay_delivery" else 0
        at_ms = self.received_ms(first) + 25 + self.random.randrange(10) + delay_ms
        if name == "drop":
            return
        yield self._of_queue(Kind.DELIVERED, first, end, at_ms, attempt=1)
        if name == "repeat_delivery":
            yield self._of_queue(Kind.DELIVERED, first, end, at_ms + 5, attempt=1)
        if name in ("drop_after_nack", "nack"):
            yield self._of_queue(Kind.NACKED, first, end, at_ms + 10, due_ms=at_ms + 1000)
            at_ms += 1005
            if name == "nack":
                yield self._of_queue(Kind.DELIVERED, first, end, at_ms, attempt=2)
        if name == "reject":
            yield self._of_queue(Kind.REJECTED, first, end, at_ms + 10, reason="bad")
            letter = Link(f"{self.place.topic}.dlq", 0, first)
            event = self._of_queue(Kind.DEAD_LETTERED, first, end, at_ms + 20, reason="bad")
            yield event._replace(link=letter)
        elif name not in ("drop_end", "drop_after_nack"):
            at_ms += 30 + (DELAY_MS if name == "delay_end" else 0)
            yield self._of_queue(Kind.ACKED, first, end, at_ms)
            if name == "repeat_end":
                yield self._of_queue(Kind.ACKED, first, end, at_ms + 40)

    def _of_queue(
        self,
        kind: Kind,
        first: int,
        end: int,
        time_ms: int,
        *,
        attempt: int = 0,
        due_ms: int = 0,
        reason: str = "",
    ) -> Event:
        consumer = f"consumer-{first % 3}" if kind is Kind.DELIVERED else ""
        details = Details(kind, 1, QUEUE, consumer, reason=reason, attempt=attempt)
        return Event(details, first, end, time_ms, time_ms, 0, due_ms)

    def _committed(self, dropped: int) -> Iterator[Event]:
        """Yield the commits of a stream group, without one range and with another one twice."""
        details = Details(Kind.CONSUMED, 1, STREAM, "member")
        for first in range(0, self.count, COMMIT):
            end = min(first + COMMIT, self.count)
            time_ms = self.received_ms(end - 1) + 200
            if first <= dropped < end:
                yield Event(details, first, dropped, time_ms, time_ms)
                yield Event(details, dropped + BATCH // 5, end, time_ms, time_ms)
                self._expect("never_delivered", STREAM, dropped, dropped + BATCH // 5)
            else:
                yield Event(details, first, end, time_ms, time_ms)
        again = self.count // 4
        yield Event(details, again, again + 777, START_MS + SPAN_MS, START_MS + SPAN_MS)
        self._expect("consumed_again", STREAM, again, again + 777)


class Schedules:
    """Scheduled messages, some of which are released late or never."""

    def __init__(self, place: Place, target: str, count: int, random_: random.Random) -> None:
        self.place = place
        self.target = target
        self.count = count
        self.random = random_
        self.found: list[Found] = []

    def events(self) -> Iterator[Event]:
        link = Link(self.target, 0, -1)
        fates = {11: "late_release", 23: "never_released", 37: "cancelled"}
        for number, first in enumerate(range(0, self.count, 10)):
            end, at_ms = first + 10, START_MS + SPAN_MS * first // (2 * self.count)
            due_ms, fate = at_ms + 3_600_000, fates.get(number % 50, "")
            scheduled = Details(Kind.SCHEDULED, 1)
            yield Event(scheduled, first, end, at_ms, at_ms, 0, due_ms, link)
            if fate in ("late_release", "never_released"):
                problem = Found(fate, self.target, self.place.partition, None, first, end)
                self.found.append(problem)
            if fate == "cancelled":
                yield Event(Details(Kind.CANCELLED, 1), first, end, at_ms + 9, at_ms + 9)
            elif fate != "never_released":
                late_ms = DELAY_MS if fate else self.random.randrange(50)
                released_ms = due_ms + late_ms
                target = Link(self.target, 0, first)
                released = Details(Kind.RELEASED, 1)
                yield Event(released, first, end, released_ms, released_ms, 0, 0, target)


class Journal:
    """A journal with the stories of all partitions, and the problems to be found in it."""

    def __init__(self, messages: int, *, partitions: int, faults: int, seed: int) -> None:
        random_ = random.Random(seed)
        count = messages // (len(TOPICS) * partitions)
        self.stories: list[Story | Schedules] = [
            Story(Place(topic, topic.encode().ljust(16), number), count, faults, random_)
            for topic in TOPICS
            for number in range(partitions)
        ]
        self.messages = count * len(self.stories)
        place = Place(SCHEDULED_TOPIC, b"schedules".ljust(16), 0)
        self.scheduled = max(1000, messages // 100)
        self.stories.append(Schedules(place, TOPICS[0], self.scheduled, random_))
        self.events = 0

    @property
    def found(self) -> set[Found]:
        return {one for story in self.stories for one in story.found}

    def write(self, client: LogClient, topic: str) -> None:
        """Write all events as records of a new topic."""
        client.topics.create(
            topic, partition_count=JOURNAL_PARTITIONS, settings={"retention.ms": "-1"}
        )
        with client.producer() as producer:
            for story in self.stories:
                place = story.place
                number = zlib.crc32(f"{place.topic}/{place.partition}".encode())
                for key, value in self._records(story):
                    producer.send(topic, value, key=key, partition=number % JOURNAL_PARTITIONS)

    def _records(self, story: Story | Schedules) -> Iterator[tuple[bytes, bytes]]:
        span = Span(Source(story.place.topic_id, story.place.partition), 0, 0, 1)
        some: list[Event] = []
        for event in story.events():
            some.append(event)
            if len(some) == EVENTS_PER_RECORD:
                yield encode_events(story.place, span, some)
                self.events += len(some)
                some = []
        yield encode_events(story.place, span, some)
        self.events += len(some)


def query_of(topic: str) -> JourneysQuery:
    now_ms = START_MS + SPAN_MS + 1000
    return JourneysQuery(
        journal=topic, grace_ms=GRACE_MS, slow_ms=SLOW_MS, now_ms=now_ms, checks_log=False
    )


def check(spark: SparkSession, journal: Journal, result: JourneysResult, folder: Path) -> int:
    """Compare what was found with what was put in; return the number of messages with problems."""
    table = pipelines.journeys_table(spark, folder, "problems")
    names = ("problem", "topic", "partition", "group", "first", "end")
    found = {Found(*row) for row in table.select(*names).collect()}
    expected = journal.found
    assert found == expected, (sorted(map(str, found ^ expected))[:10], len(found ^ expected))
    for one in result.accounts:
        assert sum(one.states.values()) == one.messages
    for group in (None, QUEUE, STREAM):
        accounts = [one for one in result.accounts if one.group == group]
        assert sum(one.messages for one in accounts) == journal.messages
    lost = ("never_delivered", "never_settled", "never_repeated")
    states = [one.states.get("lost", 0) for one in result.accounts]
    assert sum(states) == sum(one.end - one.first for one in expected if one.problem in lost)
    assert sum(one.messages for one in result.schedules) == journal.scheduled
    assert result.events == journal.events
    return sum(one.end - one.first for one in expected)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--partitions", type=int, default=4, help="of each topic")
    parser.add_argument("--faults", type=int, default=100, help="of each kind, in each partition")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="write the tables and the report here")
    wanted = parser.parse_args()
    journal = Journal(
        wanted.messages, partitions=wanted.partitions, faults=wanted.faults, seed=wanted.seed
    )
    with tempfile.TemporaryDirectory(dir=".cache") as scratch:
        folder = wanted.keep or Path(scratch) / "tables"
        node = Path(scratch).absolute() / "node"
        node.mkdir()
        broker = Broker(node, {})
        try:
            broker.start()
            began = time.monotonic()
            with LogClient(broker.bootstrap) as client:
                journal.write(client, "journal")
            print(
                f"{journal.messages:,} messages, {journal.events:,} events written in "
                f"{time.monotonic() - began:.1f} s"
            )
            settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "8"}
            spark = goqueue.spark.session("local[2]", settings=settings)
            began = time.monotonic()
            result = pipelines.audit_journeys(spark, broker.bootstrap, folder, query_of("journal"))
            print(f"pipeline: {time.monotonic() - began:.1f} s, {result.parts:,} parts")
            messages = check(spark, journal, result, folder)
            for one in result.problem_counts:
                print(f"{one.problem:20} {one.messages:10,} messages in {one.ranges:8,} ranges")
            print(f"all {len(journal.found):,} faults of {messages:,} messages found, no others")
            page = pipelines.write_report(
                folder / "report.html", now_ms=result.time_ms, journeys=folder
            )
            print(page if wanted.keep else "--keep FOLDER keeps the tables and the report.")
            spark.stop()
        finally:
            broker.close()


if __name__ == "__main__":
    main()
