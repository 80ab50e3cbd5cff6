"""Clients of a quorum, and whether what they saw could have happened one after the other.

The state is a list to which values are appended; a read sees all of it. So the only thing that can
be wrong is the order: an operation must see everything that was answered before it was asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.raft_world import World

PATIENCE_MS = 250


@dataclass(slots=True)
class Operation:
    asked_us: int
    value: bytes | None  # None for a read
    answered_us: int | None = None  # None: nobody knows what became of it
    seen: tuple[bytes, ...] = ()  # by a read
    is_refused: bool = False


class History:
    def __init__(self) -> None:
        self.operations: list[Operation] = []

    def count(self, *, is_read: bool) -> int:
        return sum(
            one.answered_us is not None and (one.value is None) == is_read
            for one in self.operations
        )

    def check(self, values: list[bytes]) -> None:
        """Everything answered fits on one line, on which each stands between asking and answer."""
        places = {value: place for place, value in enumerate(values, 1)}
        assert len(places) == len(values), "a value was appended twice"
        points: list[tuple[int, int, int]] = []  # asked, answered, how much it makes certain
        for one in self.operations:
            if one.is_refused:
                assert one.value not in places, "a refused value was appended"
            elif one.answered_us is not None and one.value is not None:
                assert one.value in places, "an acknowledged value is lost"
                points.append((one.asked_us, one.answered_us, places[one.value]))
            elif one.answered_us is not None:
                assert list(one.seen) == values[: len(one.seen)], "a read saw another history"
                points.append((one.asked_us, one.answered_us, len(one.seen)))
        self._check_order(points)
        self._check_nothing_seen_early()

    def _check_order(self, points: list[tuple[int, int, int]]) -> None:
        certain = 0
        answers = sorted((answered, place) for _, answered, place in points)
        at = 0
        for asked, _, place in sorted(points):
            while at < len(answers) and answers[at][0] < asked:
                certain = max(certain, answers[at][1])
                at += 1
            assert place >= certain, f"{certain} was certain before something saw only {place}"

    def _check_nothing_seen_early(self) -> None:
        asked = {one.value: one.asked_us for one in self.operations if one.value is not None}
        for one in self.operations:
            if one.value is None and one.answered_us is not None:
                for value in one.seen[-1:]:
                    assert asked.get(value, 0) <= one.answered_us, "seen before it was asked for"


class Client:
    """Asks one thing after the other, of whom it takes for the leader."""

    def __init__(self, world: World, name: int) -> None:
        self.world = world
        self.name = name
        self.random = world.random
        self.count = 0
        self.guess: int | None = None
        self.is_stopped = False
        self.next()

    def next(self) -> None:
        if not self.is_stopped:
            self.world.clock.call_later(self.random.uniform(1, 60), self.ask)

    def ask(self) -> None:
        world = self.world
        living = [node for node in world.voters.values() if node.is_up]
        if self.is_stopped or not living:
            self.next()
            return
        node = world.voters[self.guess] if self.guess is not None else self.random.choice(living)
        if not node.is_up or node.is_paused:
            self.guess = None
            self.next()
            return
        self.count += 1
        is_read = self.random.random() < 0.4
        value = None if is_read else b"%d.%d" % (self.name, self.count)
        operation = Operation(world.now_us(), value)
        waiting = [True]

        def done(outcome: tuple[bytes, ...] | int | None) -> None:
            """With what was read, a place in the log, or nothing for a refusal."""
            if outcome is None:
                operation.is_refused = value is not None
            else:
                operation.answered_us = world.now_us()
                operation.seen = outcome if isinstance(outcome, tuple) else ()
            if waiting[0]:
                waiting[0] = False
                self.next()

        def give_up() -> None:
            if waiting[0]:
                waiting[0] = False
                self.guess = None
                self.next()

        self.guess = node.id
        world.history.operations.append(operation)
        world.clock.call_later(PATIENCE_MS, give_up)
        leader = node.read(done) if value is None else node.append(value, done)
        if leader is not None:
            self.guess = leader if leader >= 0 else None
