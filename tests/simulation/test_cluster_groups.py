"""Stream groups of a cluster: whoever has been replaced tells nobody where a group stands."""

from __future__ import annotations

import pytest

from goqueue.broker.confirming import CONFIRM_MS_MAX
from goqueue.groups import CommitOffsets, OffsetToCommit
from goqueue.loop.promise import promised
from goqueue.model.errors import CoordinatorNotAvailable, GoQueueError, NotCoordinator
from goqueue.model.names import OFFSETS_TOPIC
from goqueue.wire.kafka.errors import ErrorCode
from goqueue.wire.kafka.front_end import FrontEnd, Limits
from goqueue.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.simulation.cluster_world import ClusterNode, ClusterWorld
from tests.simulation.kafka_peer import KafkaPeer

TOPIC = "orders"
GROUP = "readers"
VERSION = 8
REPLACED_MS_MAX = 6_000


class Clients:
    """Commit, and ask what is committed."""

    def __init__(self, seed: int) -> None:
        self.world = ClusterWorld(seed)
        self.world.heal()
        self.world.create(TOPIC, min_insync_replicas="2")
        self.number = self.world.nodes[1].broker.groups.partition_of(GROUP)

    def coordinator(self) -> ClusterNode:
        node = self.world.leader_of(OFFSETS_TOPIC, self.number)
        assert node is not None
        return node

    def commit(self, node: ClusterNode, offset: int) -> None:
        offsets = [OffsetToCommit(topic=TOPIC, partition=0, offset=offset)]
        call = CommitOffsets(group_id=GROUP, offsets=offsets)
        assert not self.world.wait(node.broker.groups.commit_offsets(call)).errors

    def known(self, node: ClusterNode) -> int:
        """What a node would tell if it did not think twice."""
        return node.broker.groups.fetch_offsets(GROUP)[TOPIC][0].offset

    def fetch(self, node: ClusterNode) -> tuple[int, int]:
        """The error and the offset that a Kafka client gets."""
        front = FrontEnd(node.broker.local_gate, Limits(), advertised=lambda _: ("localhost", 9092))
        peer = KafkaPeer(front, self.world.run_until)
        wanted = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
        group = OffsetFetchRequestGroup(group_id=GROUP, topics=[wanted])
        answer = peer.call("OffsetFetch", VERSION, OffsetFetchRequest(groups=[group])).groups[0]
        if answer.error_code:
            return answer.error_code, -1
        return 0, answer.topics[0].partitions[0].committed_offset

    def replace(self, old: ClusterNode) -> ClusterNode:
        """Cut a coordinator off, and wait for another."""
        others = [number for number in self.world.nodes if number != old.number]
        self.world.network.cut([old.number], others)
        self.world.run_until(lambda: self.coordinator() is not old, ms_max=REPLACED_MS_MAX)
        return self.coordinator()


def test_a_coordinator_that_was_replaced_does_not_tell_old_offsets() -> None:
    clients = Clients(1)
    old = clients.coordinator()
    clients.commit(old, 1)
    assert clients.fetch(old) == (0, 1)
    new = clients.replace(old)
    clients.commit(new, 2)
    assert old.leads(OFFSETS_TOPIC, clients.number), "it has not heard of its successor"
    assert clients.known(old) == 1
    began_ms = clients.world.age_ms
    assert clients.fetch(old) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    assert clients.world.age_ms - began_ms <= CONFIRM_MS_MAX
    assert clients.fetch(new) == (0, 2)
    clients.world.network.heal()
    assert clients.fetch(old) == (ErrorCode.NOT_COORDINATOR, -1)


def test_whoever_asks_while_a_coordinator_is_cut_off_is_answered_when_it_is_not() -> None:
    clients = Clients(2)
    old = clients.coordinator()
    clients.commit(old, 1)
    others = [number for number in clients.world.nodes if number != old.number]
    clients.world.network.cut([old.number], others)
    asked = old.broker.groups.confirm(GROUP)
    clients.world.run_for(100)
    assert not asked.is_done
    clients.world.network.heal()
    clients.world.wait(asked)
    assert clients.known(old) == 1


def test_every_node_answers_for_its_groups_whichever_is_the_controller() -> None:
    clients = Clients(3)
    world = clients.world
    for node in world.up():
        for group in (f"group-{number}" for number in range(20)):
            number = node.broker.groups.partition_of(group)
            confirmed = node.broker.groups.confirm(group)
            if node.leads(OFFSETS_TOPIC, number):
                world.wait(confirmed)
            else:
                with pytest.raises(NotCoordinator):
                    world.wait(confirmed)


def test_a_new_coordinator_tells_nothing_that_may_still_be_lost() -> None:
    """The end of its log may be there alone, if the node that wrote it has died."""
    clients = Clients(4)
    world, old = clients.world, clients.coordinator()
    clients.commit(old, 1)
    world.run_for(500)
    heir, other = (node for node in world.up() if node is not old)
    # What the old one writes now reaches one other copy, and is committed by none.
    world.network.cut_one_way([old.number], [other.number])
    offsets = [OffsetToCommit(topic=TOPIC, partition=0, offset=2)]
    old.broker.groups.commit_offsets(CommitOffsets(group_id=GROUP, offsets=offsets))
    copy = heir.partition(OFFSETS_TOPIC, clients.number)
    assert copy is not None
    end = copy.end_offset
    world.run_until(lambda: copy.end_offset > end, ms_max=1_000)
    old.crash()
    world.run_until(lambda: heir.leads(OFFSETS_TOPIC, clients.number), ms_max=REPLACED_MS_MAX)
    if copy.high_watermark < copy.end_offset:
        with pytest.raises(CoordinatorNotAvailable):
            clients.known(heir)
    world.wait(heir.broker.groups.confirm(GROUP))
    assert copy.high_watermark >= end + 1
    assert clients.known(heir) == 2


@pytest.mark.parametrize("seed", range(3))
def test_offsets_of_a_deleted_topic_are_not_those_of_its_successor(seed: int) -> None:
    """The coordinator dies before it hears of the deletion; the next one never saw the topic."""
    clients = Clients(10 + seed)
    world, old = clients.world, clients.coordinator()
    world.wait(promised(old.broker.groups.know([TOPIC])))
    clients.commit(old, 1)
    world.run_for(500)
    old.crash()
    other = world.up()[0]
    assert other.broker.topics.find(TOPIC) is not None

    def delete() -> bool:
        try:
            world.wait(other.broker.topics.delete(TOPIC))
        except GoQueueError:
            return False  # Perhaps the controller has died too; another one is elected.
        return True

    world.run_until(delete)
    world.run_until(lambda: world.leader_of(OFFSETS_TOPIC, clients.number) is not None)
    new = clients.coordinator()
    assert new is not old
    world.wait(new.broker.groups.confirm(GROUP))
    world.create(TOPIC, min_insync_replicas="2")
    world.wait(new.broker.groups.confirm(GROUP))
    assert clients.fetch(new) == (0, -1)
    clients.commit(new, 3)
    assert clients.fetch(new) == (0, 3)
