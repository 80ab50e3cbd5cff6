"""A node that takes over many partitions starts their owners in several turns: nothing is lost."""

from __future__ import annotations

from collections import Counter

import pytest

from goqueue.broker.shards import leadership
from goqueue.groups import CommitOffsets, OffsetToCommit
from goqueue.loop.promise import Promise
from goqueue.model.errors import GoQueueError
from goqueue.model.names import OFFSETS_TOPIC
from goqueue.partition import Partition
from tests.simulation.cluster_world import ClusterNode, ClusterWorld

GROUPS = 60
TOPIC = "orders"


@pytest.fixture(autouse=True)
def one_log_per_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leadership, "READ_PER_TURN_MAX", 1)


class Groups:
    """Groups that commit to whichever node coordinates them."""

    def __init__(self, seed: int) -> None:
        self.world = ClusterWorld(seed, groups__offsets_partitions="12")
        self.world.heal()
        self.world.create(TOPIC, min_insync_replicas="2")
        self.names = [f"group-{number}" for number in range(GROUPS)]
        self.acked: dict[str, int] = {}

    def node_of(self, group: str) -> ClusterNode | None:
        number = self.world.nodes[1].broker.groups.partition_of(group)
        return self.world.leader_of(OFFSETS_TOPIC, number)

    def commit(self, group: str, offset: int) -> Promise[None]:
        """Commit if the group has a coordinator; note what is acknowledged."""
        done: Promise[None] = Promise()

        def answered(errors: object, error: Exception | None) -> None:
            assert error is None or isinstance(error, GoQueueError)
            if error is None:
                self.acked[group] = max(offset, self.acked.get(group, 0))
            done.resolve(None)

        node = self.node_of(group)
        if node is None:
            done.resolve(None)
            return done
        call = CommitOffsets(
            group_id=group, offsets=[OffsetToCommit(topic=TOPIC, partition=0, offset=offset)]
        )
        node.broker.groups.commit_offsets(call).then(answered)
        return done

    def are_owned(self) -> bool:
        nodes = [self.node_of(one) for one in self.names]
        return all(
            node is not None and node.broker.groups.shards.is_here(name)
            for node, name in zip(nodes, self.names, strict=True)
        )

    def check(self) -> None:
        """Every group has what was acknowledged."""
        self.world.heal()
        self.world.run_until(self.are_owned)
        for name, offset in self.acked.items():
            node = self.node_of(name)
            assert node is not None
            self.world.wait(node.broker.groups.confirm(name))
            assert node.broker.groups.fetch_offsets(name)[TOPIC][0].offset >= offset


def test_owners_start_one_after_the_other_and_know_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = Groups(1)
    world = groups.world
    for name in groups.names:
        world.wait(groups.commit(name, 1))
    starts: Counter[tuple[int, int]] = Counter()  # by node and turn
    turn = 0
    change = leadership.Leadership._change_role

    def noted(
        self: leadership.Leadership, topic: object, partition: Partition, **how: bool
    ) -> None:
        if how["leads"] and partition.log.size:
            starts[id(self), turn] += 1
        change(self, topic, partition, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(leadership.Leadership, "_change_role", noted)
    victim = groups.node_of(groups.names[0])
    assert victim is not None
    victim.kill()

    def next_turn() -> bool:
        nonlocal turn
        turn += 1
        return False

    world.run_until(lambda: next_turn() or groups.are_owned())
    assert len(starts) > 3
    assert max(starts.values()) == 1
    victim.start()
    assert len(groups.acked) == GROUPS
    groups.check()


@pytest.mark.seeds(10)
def test_leaders_that_fail_while_owners_start_lose_nothing(seed: int) -> None:
    groups = Groups(seed)
    world, chance = groups.world, groups.world.random
    for round_number in range(1, 6):
        for name in groups.names:
            groups.commit(name, round_number)
            world.run_for(chance.uniform(0, 3))
        victim = chance.choice(world.up())
        chance.choice([victim.kill, victim.crash])()
        world.run_for(chance.choice([chance.uniform(0, 50), chance.uniform(500, 6_000)]))
        victim.start()
        world.run_for(chance.uniform(0, 3_000))
    groups.check()
