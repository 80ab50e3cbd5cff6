"""Queries, drivers and nodes that live and die at random; every message is worked on once."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random

import pytest

from goqueue.spark.queues.listener import reported
from goqueue.spark.queues.offsets import QueueOffset, read_queue_offset
from goqueue.spark.queues.reader import QueuePlanner
from tests.unit.spark.queues.queue_world import QueueWorld, offsets_of

STEPS = 40
ROUNDS_MAX = 100


@dataclass
class Query:
    """What Spark does with a source: it plans, writes down, reads, commits, and starts again."""

    world: QueueWorld
    random: Random
    driver: QueuePlanner = field(init=False)
    planned: list[str] = field(default_factory=list)  # the log of offsets
    committed: int = 0  # how many of them are in the log of commits
    worked: list[tuple[int, int]] = field(default_factory=list)
    is_planned: bool = False  # the driver has planned the tasks of the open epoch

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """The driver is killed, and another one started."""
        self.driver = self.world.driver(maxMessagesPerTrigger=str(self.random.choice([2, 5, 50])))
        self.is_planned = False

    def offset(self, number: int) -> QueueOffset:
        if number < 0:
            return self.driver.initial
        return read_queue_offset(json.loads(self.planned[number]))

    def plan(self) -> bool:
        """Ask for the next epoch and write it down, unless the driver dies between the two."""
        if len(self.planned) > self.committed:
            return False
        end = self.driver.next_end(self.offset(self.committed - 1), is_limited=True)
        if end is None:
            return False
        if self.committed and self.random.random() < 0.2:
            self.restart()  # With no checkpoint at all it would be another query.
            return False
        self.planned.append(json.dumps(end.to_json()))
        return True

    def read(self) -> None:
        if len(self.planned) > self.committed:
            self.driver.tasks(self.offset(self.committed))
            self.is_planned = True

    def commit(self) -> None:
        """The epoch is written and in the log of commits; the listener may hear of it."""
        if not self.is_planned:
            return
        end = self.offset(self.committed)
        self.worked += offsets_of(end)
        self.committed += 1
        self.is_planned = False
        if self.random.random() < 0.5:
            said = reported(json.dumps(self.driver.report()), self.planned[-1])
            assert said is not None
            self.driver.finish(said[1])


@pytest.mark.parametrize("seed", range(25))
def test_whoever_dies_every_message_is_worked_on_once_and_done(seed: int) -> None:
    random = Random(seed)
    world = QueueWorld(deliveries_max=1000)
    query, published = Query(world, random), [0, 0]
    for _ in range(STEPS):
        step = random.choice(["publish", "plan", "plan", "read", "read", "commit", "die", "kill"])
        if step == "publish":
            partition, count = random.randrange(2), random.randrange(1, 20)
            world.publish(count, partition=partition)
            published[partition] += count
        elif step == "plan":
            query.plan()
        elif step == "read":
            query.read()
        elif step == "commit":
            query.commit()
        elif step == "die":
            query.restart()
        else:
            world.restart()
    for _ in range(ROUNDS_MAX):
        query.plan()
        query.read()
        query.commit()
        if len(query.worked) == sum(published):
            break
    assert query.driver.next_end(query.offset(query.committed - 1), is_limited=True) is None
    expected = [(number, one) for number in range(2) for one in range(published[number])]
    assert sorted(query.worked) == expected
    if expected:
        assert world.open_count() == 0
