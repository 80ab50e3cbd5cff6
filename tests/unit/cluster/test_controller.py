"""What the controller decides, told as stories of small clusters."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from goqueue.cluster import (
    ClusterFact,
    Controller,
    Decision,
    InternalTopic,
    Metadata,
    NodeFact,
    PartitionFact,
    TopicFact,
    drain_report,
)
from goqueue.cluster.commands import ReserveProducerIds
from goqueue.cluster.deciding import decide
from goqueue.cluster.facts import NO_LEADER
from goqueue.config import ClusterSettings
from goqueue.model import errors

UNCLEAN = {"unclean_leader_election_enable": "true"}
TOPIC = b"t" * 16


class Cluster:
    """A controller whose decisions are committed at once, and nodes that read them at once."""

    def __init__(self, *numbers: int, internal: tuple[InternalTopic, ...] = ()) -> None:
        self.now_ms = 0
        self.index = 0
        self.internal = internal
        self.silent: set[int] = set()
        self.metadata = Metadata()
        self.controller = self.new_controller()
        for number in numbers:
            self.join(number)

    def new_controller(self) -> Controller:
        return Controller(
            self.metadata,
            ClusterSettings(),
            index=self.index,
            now_ms=self.now_ms,
            internal_topics=self.internal,
        )

    def commit(self, decision: Decision) -> Decision:
        if decision:
            self.index += 1
            self.metadata.apply_all(decision)
            self.controller.applied(self.index, decision)
        assert self.metadata.snapshot() == self.controller.metadata.snapshot()
        return decision

    def join(self, node: int, incarnation: bytes = b"", **fields: bytes | str) -> None:
        self.register(node, incarnation or bytes([node]), **fields)
        self.heartbeat(node)

    def register(self, node: int, incarnation: bytes, **fields: bytes | str) -> Decision:
        address = str(fields.pop("address", f"host{node}:1"))
        rack, disk = str(fields.pop("rack", "")), fields.pop("disk", b"")
        assert isinstance(disk, bytes)
        return self.commit(
            self.controller.register(
                node, incarnation, {"peers": address}, now_ms=self.now_ms, rack=rack, disk=disk
            )
        )

    def heartbeat(
        self, node: int, *, wants_drain: bool = False, applied: int | None = None
    ) -> Decision:
        return self.commit(
            self.controller.heartbeat(
                node,
                self.controller.metadata.nodes[node].incarnation,
                applied_index=self.index if applied is None else applied,
                wants_drain=wants_drain,
                now_ms=self.now_ms,
            )
        )

    def run(self, ms: int) -> Decision:
        decided: Decision = ()
        for _ in range(ms // 500):
            self.now_ms += 500
            for node in set(self.controller.metadata.nodes) - self.silent:
                self.heartbeat(node)
            decided += self.commit(self.controller.tick(self.now_ms))
        return decided

    def kill(self, *nodes: int) -> Decision:
        self.silent.update(nodes)
        return self.run(2500)

    def back(self, node: int, incarnation: bytes = b"again", **fields: bytes | str) -> None:
        self.silent.discard(node)
        self.join(node, incarnation, **fields)

    def topic(self, *replicas: list[int], **settings: str) -> None:
        fact = TopicFact(TOPIC, "orders", len(replicas), settings)
        self.commit(
            self.controller.create_topic(fact, replication_factor=1, assignments=list(replicas))
        )

    def partition(self, number: int = 0) -> PartitionFact:
        fact = self.metadata.partitions.get(TOPIC, number)
        assert fact is not None
        return fact

    def in_sync(self, *members: int, number: int = 0) -> Decision:
        fact = self.partition(number)
        return self.commit(
            self.controller.change_in_sync(
                fact.leader,
                TOPIC,
                number,
                members,
                leader_epoch=fact.leader_epoch,
                version=fact.version,
            )
        )

    def state(self, number: int = 0) -> tuple[int, tuple[int, ...]]:
        fact = self.partition(number)
        return fact.leader, fact.in_sync


# Nodes and sessions


def test_a_node_is_fenced_until_it_has_read_its_own_registration() -> None:
    cluster = Cluster()
    cluster.register(1, b"a")
    assert cluster.metadata.nodes[1].is_fenced
    assert cluster.heartbeat(1, applied=cluster.index - 1) == ()
    assert cluster.metadata.nodes[1].is_fenced
    cluster.heartbeat(1)
    assert not cluster.metadata.nodes[1].is_fenced


def test_a_registration_that_is_not_committed_unfences_nobody() -> None:
    cluster = Cluster()
    cluster.controller.register(1, b"a", {}, now_ms=0)
    beat = cluster.controller.heartbeat
    assert beat(1, b"a", applied_index=10**9, wants_drain=False, now_ms=0) == ()


def test_a_node_that_was_silent_is_trusted_when_it_has_read_that_it_was_fenced() -> None:
    cluster = Cluster(1)
    cluster.silent.add(1)
    cluster.run(1500)
    cluster.now_ms += 500
    fencing = cluster.controller.tick(cluster.now_ms)
    before = cluster.index
    beat = cluster.controller.heartbeat
    assert beat(1, b"\x01", applied_index=before, wants_drain=False, now_ms=cluster.now_ms) == ()
    cluster.commit(fencing)
    assert cluster.heartbeat(1, applied=before) == ()
    assert cluster.heartbeat(1) != ()


def test_a_late_word_about_an_earlier_life_does_not_make_a_new_one_trusted() -> None:
    cluster = Cluster(1)
    leaving = cluster.controller.leave(1, b"\x01")
    starting = cluster.controller.register(1, b"new", {}, now_ms=cluster.now_ms)
    cluster.controller.applied(10, leaving)
    beat = cluster.controller.heartbeat
    assert beat(1, b"new", applied_index=10, wants_drain=False, now_ms=cluster.now_ms) == ()
    cluster.controller.applied(11, starting)
    assert beat(1, b"new", applied_index=10, wants_drain=False, now_ms=cluster.now_ms) == ()
    assert beat(1, b"new", applied_index=11, wants_drain=False, now_ms=cluster.now_ms) != ()


def test_a_new_controller_trusts_who_has_read_what_it_began_with() -> None:
    cluster = Cluster()
    cluster.register(1, b"a")
    cluster.controller = cluster.new_controller()
    assert cluster.heartbeat(1, applied=cluster.index - 1) == ()
    cluster.heartbeat(1)
    assert not cluster.metadata.nodes[1].is_fenced


def test_asking_again_to_be_registered_changes_nothing() -> None:
    cluster = Cluster(1)
    assert cluster.register(1, b"\x01") == ()


def test_words_of_an_earlier_life_are_refused() -> None:
    cluster = Cluster(1)
    cluster.register(1, b"new")
    with pytest.raises(errors.StaleIncarnation):
        cluster.controller.heartbeat(
            1, b"\x01", applied_index=9, wants_drain=False, now_ms=cluster.now_ms
        )
    with pytest.raises(errors.UnknownNode):
        cluster.controller.heartbeat(7, b"", applied_index=9, wants_drain=False, now_ms=0)


def test_two_processes_cannot_be_one_node() -> None:
    cluster = Cluster(1)
    with pytest.raises(errors.NodeConflict):
        cluster.register(1, b"other", address="elsewhere:1")
    cluster.kill(1)
    cluster.register(1, b"other", address="elsewhere:1")
    assert cluster.metadata.nodes[1].addresses == {"peers": "elsewhere:1"}


def test_a_node_of_another_cluster_is_refused() -> None:
    cluster = Cluster()
    cluster.commit(cluster.controller.record([ClusterFact("ours")]))
    with pytest.raises(errors.ForeignCluster, match="theirs"):
        cluster.controller.register(1, b"a", {}, now_ms=0, cluster_id="theirs")
    assert cluster.controller.register(1, b"a", {}, now_ms=0, cluster_id="ours")


def test_a_node_that_is_gone_is_fenced_before_its_session_expires() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.topic([1, 2, 3])
    cluster.controller.lost(1)
    cluster.controller.lost(99)  # Nobody knows it, and nobody minds.
    before = cluster.partition().version
    cluster.commit(cluster.controller.tick(cluster.now_ms))
    assert cluster.metadata.nodes[1].is_fenced
    # One decision names the new leader and takes the dead copy out of those that count.
    assert (cluster.state(), cluster.partition().version) == ((2, (2, 3)), before + 1)
    assert cluster.controller.tick(cluster.now_ms) == ()


def test_a_node_that_is_heard_after_it_was_gone_was_not_gone() -> None:
    cluster = Cluster(1)
    cluster.controller.lost(1)
    cluster.heartbeat(1)
    assert cluster.controller.tick(cluster.now_ms) == ()
    cluster.controller.lost(1)
    cluster.commit(cluster.controller.tick(cluster.now_ms))
    assert cluster.metadata.nodes[1].is_fenced
    cluster.heartbeat(1)
    assert not cluster.metadata.nodes[1].is_fenced


def test_a_new_controller_counts_sessions_from_when_it_began() -> None:
    cluster = Cluster(1)
    cluster.topic([1])
    cluster.now_ms += 100_000
    cluster.controller = cluster.new_controller()
    cluster.silent.add(1)
    assert cluster.run(1500) == ()
    assert cluster.run(1000) != ()
    assert cluster.metadata.nodes[1].is_fenced


def test_a_controller_that_stood_still_blames_nobody_for_the_silence() -> None:
    cluster = Cluster(1, 2)
    cluster.run(1000)
    cluster.now_ms += 60_000
    assert cluster.commit(cluster.controller.tick(cluster.now_ms)) == ()
    cluster.silent.add(2)
    cluster.run(3000)
    assert [node.is_fenced for node in cluster.metadata.nodes.values()] == [False, True]


# Leaders and in-sync sets


def test_the_failure_of_a_node_is_one_decision_for_all_its_partitions() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.topic([1, 2, 3], [2, 3, 1], [3, 1, 2])
    before = [cluster.partition(number) for number in range(3)]
    decision = cluster.kill(1)
    assert [cluster.state(number) for number in range(3)] == [(2, (2, 3)), (2, (2, 3)), (3, (3, 2))]
    assert [type(change) for change in decision] == [PartitionFact] * 3 + [NodeFact]
    after = [cluster.partition(number) for number in range(3)]
    assert [fact.leader_epoch for fact in after] == [1, 0, 0]
    assert all(new.version > old.version for old, new in zip(before, after, strict=True))


def test_a_node_that_is_back_is_in_sync_only_when_the_leader_says_so() -> None:
    cluster = Cluster(1, 2)
    cluster.topic([1, 2])
    cluster.kill(1)
    cluster.back(1)
    assert cluster.state() == (2, (2,))
    cluster.in_sync(1, 2)
    assert cluster.state() == (2, (1, 2))


def test_the_last_in_sync_member_stays_and_leads_when_it_is_back() -> None:
    cluster = Cluster(1, 2)
    cluster.topic([1, 2])
    cluster.kill(2)
    cluster.kill(1)
    assert cluster.state() == (NO_LEADER, (1,))
    cluster.back(2)
    assert cluster.state() == (NO_LEADER, (1,))
    cluster.back(1)
    assert cluster.state() == (1, (1,))
    assert cluster.partition().leader_epoch == 2


def test_in_sync_members_that_fail_together_may_each_come_back_first() -> None:
    for first in (1, 2):
        cluster = Cluster(1, 2)
        cluster.topic([1, 2])
        cluster.kill(1, 2)
        assert cluster.state() == (NO_LEADER, (1, 2))
        cluster.back(first)
        assert cluster.state() == (first, (first,))


def test_an_unclean_election_needs_the_setting_or_an_operator() -> None:
    cluster = Cluster(1, 2)
    cluster.topic([1, 2])
    cluster.kill(2)
    cluster.kill(1)
    cluster.back(2)
    cluster.commit(cluster.controller.elect(TOPIC, 0, is_unclean=True))
    assert cluster.state() == (2, (2,))
    allowing = Cluster(1, 2)
    allowing.topic([1, 2], **UNCLEAN)
    allowing.in_sync(1)
    allowing.kill(1)
    assert allowing.state() == (2, (2,))


def test_allowing_unclean_elections_later_elects() -> None:
    cluster = Cluster(1, 2)
    cluster.topic([1, 2])
    cluster.in_sync(1)
    cluster.kill(1)
    assert cluster.state() == (NO_LEADER, (1,))
    cluster.commit(cluster.controller.configure_topic("orders", UNCLEAN))
    assert cluster.state() == (2, (2,))


def test_a_replica_that_is_only_being_added_is_never_elected_uncleanly() -> None:
    cluster = Cluster(1, 2)
    cluster.topic([1], **UNCLEAN)
    cluster.commit(cluster.controller.reassign(TOPIC, 0, [2]))
    cluster.kill(1)
    assert cluster.state() == (NO_LEADER, (1,))
    with pytest.raises(errors.NoEligibleLeader):
        cluster.controller.elect(TOPIC, 0, is_unclean=True)


def test_a_lost_disk_is_not_mistaken_for_an_empty_partition() -> None:
    cluster = Cluster()
    cluster.join(1, disk=b"first")
    cluster.join(2)
    cluster.topic([1, 2])
    cluster.in_sync(1)
    cluster.kill(1)
    cluster.back(1, disk=b"second")
    assert cluster.state() == (NO_LEADER, (1,))
    assert cluster.partition().is_lost
    cluster.commit(cluster.controller.elect(TOPIC, 0, is_unclean=True))
    assert cluster.state() == (2, (2,)), "the other replica has at least something"
    assert not cluster.partition().is_lost


def test_a_quick_restart_with_a_lost_disk_leaves_the_in_sync_set() -> None:
    cluster = Cluster()
    cluster.join(1, disk=b"first")
    cluster.join(2)
    cluster.topic([1, 2])
    cluster.join(1, b"again", disk=b"second")
    assert cluster.state() == (2, (2,))
    assert not cluster.partition().is_lost


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"leader_epoch": 0}, errors.FencedLeaderEpoch),
        ({"leader_epoch": 2}, errors.UnknownLeaderEpoch),
        ({"version": 0}, errors.StalePartitionVersion),
        ({"node": 3}, errors.NotLeader),
        ({"in_sync": (3,)}, errors.InvalidRequest),
        ({"in_sync": ()}, errors.InvalidRequest),
        ({"in_sync": (2, 2)}, errors.InvalidRequest),
        ({"in_sync": (2, 1)}, errors.IneligibleReplica),  # fenced
        ({"in_sync": (2, 4)}, errors.IneligibleReplica),  # has no replica
        ({"incarnations": {3: b"before"}}, errors.IneligibleReplica),
        ({"number": 9}, errors.UnknownPartition),
        ({"topic_id": b"?"}, errors.UnknownTopicId),
    ],
)
def test_an_in_sync_set_that_does_not_fit_is_refused(
    fields: dict[str, object], error: type[errors.GoQueueError]
) -> None:
    cluster = Cluster(1, 2, 3, 4)
    cluster.topic([1, 2, 3])
    cluster.kill(1)
    asked: dict[str, object] = {
        "node": 2,
        "topic_id": TOPIC,
        "number": 0,
        "in_sync": (2, 3),
        "leader_epoch": 1,
        "version": cluster.partition().version,
        **fields,
    }
    before = cluster.metadata.snapshot()
    with pytest.raises(error):
        cluster.controller.change_in_sync(**asked)  # type: ignore[arg-type]
    assert cluster.controller.metadata.snapshot() == before


def test_a_leader_that_asks_for_what_is_makes_its_earlier_wishes_void() -> None:
    """Else whoever it once asked for in vain would have to be waited for, and nobody could join."""
    cluster = Cluster(1, 2)
    cluster.topic([1, 2])
    change = cluster.controller.change_in_sync
    cluster.commit(change(1, TOPIC, 0, [1], leader_epoch=0, version=0))
    cluster.commit(change(1, TOPIC, 0, [1], leader_epoch=0, version=1))
    assert cluster.state() == (1, (1,))
    assert cluster.partition().version == 2
    with pytest.raises(errors.StalePartitionVersion):
        change(1, TOPIC, 0, [1, 2], leader_epoch=0, version=1)


def test_decisions_in_flight_are_part_of_what_the_next_is_decided_on() -> None:
    cluster = Cluster(1, 2)
    cluster.topic([1, 2])
    change = cluster.controller.change_in_sync
    first = change(1, TOPIC, 0, [1], leader_epoch=0, version=0)
    assert cluster.state() == (1, (1, 2)), "nothing is committed yet"
    with pytest.raises(errors.StalePartitionVersion):
        change(1, TOPIC, 0, [1, 2], leader_epoch=0, version=0)
    cluster.commit(first)
    assert cluster.state() == (1, (1,))


def test_leaders_go_back_a_few_at_a_time() -> None:
    cluster = Cluster(1, 2)
    cluster.topic(*([1, 2] for _ in range(300)))
    cluster.kill(1)
    cluster.back(1)
    for number in range(300):
        cluster.in_sync(1, 2, number=number)
    led = []
    for _ in range(12):
        cluster.run(1000)
        led.append(cluster.metadata.partitions.leader_count(1))
    assert led[-1] == 300
    steps = {after - before for before, after in itertools.pairwise([0, *led])}
    assert steps == {0, 100, 200}


def test_the_preferred_leader_can_be_asked_for() -> None:
    cluster = Cluster(1, 2)
    cluster.topic([1, 2])
    with pytest.raises(errors.ElectionNotNeeded):
        cluster.controller.elect(TOPIC, 0)
    cluster.kill(1)
    with pytest.raises(errors.PreferredLeaderNotAvailable):
        cluster.controller.elect(TOPIC, 0)
    with pytest.raises(errors.ElectionNotNeeded):
        cluster.controller.elect(TOPIC, 0, is_unclean=True)
    cluster.back(1)
    cluster.in_sync(1, 2)
    cluster.commit(cluster.controller.elect(TOPIC, 0))
    assert cluster.state() == (1, (1, 2))


# Draining, leaving


def test_a_drained_node_leads_nothing_and_gets_nothing_new() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.topic([1, 2], [1, 3], [2, 1])
    cluster.commit(cluster.controller.drain(1))
    assert [cluster.state(number)[0] for number in range(3)] == [2, 3, 2]
    assert drain_report(cluster.metadata, 1).is_done
    cluster.kill(2)
    assert cluster.state(1)[0] == 3
    cluster.run(10_000)
    assert cluster.state(1)[0] == 3, "preference does not bring it back"
    assert cluster.state(0)[0] == 1, "but better a drained leader than none"
    report = drain_report(cluster.metadata, 1)
    assert report.stuck == (("orders", 0), ("orders", 2))
    cluster.commit(cluster.controller.drain(1, is_wanted=False))
    cluster.run(10_000)
    assert cluster.state(1)[0] == 1


def test_a_drain_goes_on_when_another_member_gets_in_sync() -> None:
    cluster = Cluster(1, 2)
    cluster.topic([1, 2])
    cluster.in_sync(1)
    cluster.commit(cluster.controller.drain(1))
    assert not drain_report(cluster.metadata, 1).is_done
    cluster.in_sync(1, 2)
    assert cluster.state() == (2, (1, 2))


def test_a_drain_lasts_over_a_restart_and_the_wish_to_stop_does_not() -> None:
    cluster = Cluster(1, 2)
    cluster.commit(cluster.controller.drain(1))
    cluster.heartbeat(2, wants_drain=True)
    assert cluster.metadata.nodes[2].is_stopping
    cluster.join(1, b"again")
    cluster.join(2, b"again")
    assert cluster.metadata.nodes[1].is_draining
    assert not cluster.metadata.nodes[2].is_stopping


def test_a_node_that_leaves_is_gone_at_once_and_for_good() -> None:
    cluster = Cluster(1, 2)
    cluster.topic([1, 2])
    cluster.heartbeat(1, wants_drain=True)
    assert cluster.state() == (2, (1, 2))
    cluster.commit(cluster.controller.leave(1, b"\x01"))
    assert cluster.state() == (2, (2,))
    cluster.heartbeat(1)
    assert cluster.metadata.nodes[1].is_fenced, "a late heartbeat does not bring it back"
    cluster.join(1, b"again")
    assert not cluster.metadata.nodes[1].is_fenced


def test_only_a_node_that_is_stopped_and_empty_can_be_unregistered() -> None:
    cluster = Cluster(1, 2)
    cluster.topic([1, 2])
    with pytest.raises(errors.NodeInUse, match="running"):
        cluster.controller.unregister(1)
    cluster.kill(1)
    with pytest.raises(errors.NodeInUse, match="has 1 replicas"):
        cluster.controller.unregister(1)
    cluster.commit(cluster.controller.reassign(TOPIC, 0, [2]))
    cluster.commit(cluster.controller.unregister(1))
    assert list(cluster.metadata.nodes) == [2]
    with pytest.raises(errors.UnknownNode):
        cluster.controller.unregister(1)


# Moving replicas


def test_a_move_is_complete_when_the_new_replicas_are_in_sync() -> None:
    cluster = Cluster(1, 2, 3, 4)
    cluster.topic([1, 2])
    cluster.commit(cluster.controller.reassign(TOPIC, 0, [3, 4]))
    fact = cluster.partition()
    assert (fact.replicas, fact.adding, fact.removing) == ((1, 2), (3, 4), (1, 2))
    cluster.in_sync(1, 2, 3)
    assert cluster.partition().replicas == (1, 2)
    cluster.in_sync(1, 2, 3, 4)
    fact = cluster.partition()
    assert (fact.replicas, fact.in_sync, fact.leader) == ((3, 4), (3, 4), 3)
    assert not fact.is_moving
    assert fact.leader_epoch == 1


def test_a_cancelled_move_leaves_everything_as_it_was() -> None:
    cluster = Cluster(1, 2, 3, 4)
    cluster.topic([1, 2])
    cluster.commit(cluster.controller.reassign(TOPIC, 0, [4, 3, 2]))
    cluster.in_sync(1, 2, 3)
    cluster.commit(cluster.controller.cancel_reassign(TOPIC, 0))
    fact = cluster.partition()
    assert (fact.replicas, fact.in_sync, fact.leader) == ((1, 2), (1, 2), 1)
    assert not fact.adding
    with pytest.raises(errors.NoReassignment):
        cluster.controller.cancel_reassign(TOPIC, 0)


def test_a_move_is_not_cancelled_when_only_the_new_replicas_have_everything() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.topic([1])
    cluster.commit(cluster.controller.reassign(TOPIC, 0, [2, 3]))
    cluster.in_sync(1, 2)
    cluster.kill(1)
    assert cluster.state() == (2, (2,))
    with pytest.raises(errors.NotEnoughReplicas):
        cluster.controller.cancel_reassign(TOPIC, 0)


def test_another_move_replaces_the_one_under_way() -> None:
    cluster = Cluster(1, 2, 3, 4)
    cluster.topic([1, 2])
    cluster.commit(cluster.controller.reassign(TOPIC, 0, [3, 4]))
    cluster.in_sync(1, 2, 3)
    cluster.commit(cluster.controller.reassign(TOPIC, 0, [1, 4]))
    fact = cluster.partition()
    assert (fact.adding, fact.removing, fact.in_sync) == ((4,), (2,), (1, 2))
    cluster.in_sync(1, 2, 4)
    assert cluster.partition().replicas == (1, 4)


def test_a_throttle_lasts_as_long_as_its_move() -> None:
    cluster = Cluster(1, 2, 3, 4)
    cluster.topic([1, 2])
    controller = cluster.controller

    def throttle() -> int:
        return cluster.partition().throttle_bytes_per_second

    with pytest.raises(errors.NoReassignment):
        controller.throttle_move(TOPIC, 0, 5)
    cluster.commit(controller.reassign(TOPIC, 0, [1, 4], throttle_bytes_per_second=5))
    assert throttle() == 5
    version = cluster.partition().version
    cluster.commit(controller.throttle_move(TOPIC, 0, 7))
    assert (throttle(), cluster.partition().version) == (7, version + 1)
    assert controller.throttle_move(TOPIC, 0, 7) == ()
    assert controller.reassign(TOPIC, 0, [1, 4]) == ()
    cluster.commit(controller.reassign(TOPIC, 0, [1, 4], throttle_bytes_per_second=9))
    assert throttle() == 9
    cluster.commit(controller.reassign(TOPIC, 0, [1, 3]))
    assert throttle() == 9
    cluster.commit(controller.cancel_reassign(TOPIC, 0))
    assert throttle() == 0
    cluster.commit(controller.reassign(TOPIC, 0, [1, 4], throttle_bytes_per_second=5))
    cluster.in_sync(1, 2, 4)
    assert not cluster.partition().is_moving
    assert throttle() == 0
    # What is there already does not move, and so has no throttle.
    cluster.commit(controller.reassign(TOPIC, 0, [4, 1], throttle_bytes_per_second=5))
    assert throttle() == 0


def test_throttles_of_a_node_outlive_its_restart() -> None:
    cluster = Cluster(1, 2)
    with pytest.raises(errors.UnknownNode):
        cluster.controller.throttle_node(
            7, feeding_bytes_per_second=5, catching_up_bytes_per_second=None
        )

    def throttle(feeding: int | None, catching_up: int | None) -> Decision:
        return cluster.commit(
            cluster.controller.throttle_node(
                1, feeding_bytes_per_second=feeding, catching_up_bytes_per_second=catching_up
            )
        )

    def throttles() -> tuple[int, int]:
        fact = cluster.metadata.nodes[1]
        return fact.feeding_bytes_per_second, fact.catching_up_bytes_per_second

    throttle(5, None)
    throttle(None, 7)
    assert throttle(5, 7) == ()
    cluster.kill(1)
    cluster.back(1)
    assert throttles() == (5, 7)
    throttle(0, 0)
    assert throttles() == (0, 0)


def test_another_order_or_fewer_replicas_take_effect_at_once() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.topic([1, 2, 3])
    cluster.commit(cluster.controller.reassign(TOPIC, 0, [3, 2]))
    fact = cluster.partition()
    assert (fact.replicas, fact.in_sync, fact.leader) == ((3, 2), (3, 2), 3)
    assert cluster.controller.reassign(TOPIC, 0, [3, 2]) == ()


# Topics


def test_new_topics_are_spread_and_led_evenly() -> None:
    cluster = Cluster(1, 2, 3)
    for number in range(6):
        fact = TopicFact(bytes([number]) * 16, f"t{number}", 2)
        cluster.commit(cluster.controller.create_topic(fact, replication_factor=2))
    leaders = Counter(fact.leader for fact in cluster.metadata.partitions)
    assert leaders == {1: 4, 2: 4, 3: 4}
    assert all(fact.in_sync == fact.replicas for fact in cluster.metadata.partitions)


@pytest.mark.parametrize(
    ("name", "count", "assignments", "error"),
    [
        ("orders", 1, None, errors.TopicExists),
        ("or/ders", 1, None, errors.InvalidTopicName),
        ("a.b", 1, None, errors.InvalidTopicName),
        ("new", 0, None, errors.InvalidPartitionCount),
        ("new", 10_001, None, errors.InvalidPartitionCount),
        ("new", 2, [[1]], errors.InvalidReplicaAssignment),
        ("new", 1, [[9]], errors.InvalidReplicaAssignment),
    ],
)
def test_a_topic_that_cannot_be_is_refused(
    name: str, count: int, assignments: list[list[int]] | None, error: type[errors.GoQueueError]
) -> None:
    cluster = Cluster(1)
    cluster.topic([1])
    other = TopicFact(b"o" * 16, "a_b", 1)
    cluster.commit(cluster.controller.create_topic(other, replication_factor=1))
    with pytest.raises(error):
        cluster.controller.create_topic(
            TopicFact(b"n" * 16, name, count), replication_factor=1, assignments=assignments
        )


def test_a_topic_that_grows_remembers_where_old_routing_ended() -> None:
    cluster = Cluster(1, 2)
    cluster.topic([1, 2], [2, 1])
    cluster.commit(cluster.controller.add_partitions("orders", 4))
    assert [len(fact.replicas) for fact in cluster.metadata.partitions] == [2] * 4
    assert cluster.metadata.routing[TOPIC].ended[0].ends == (-1, -1)
    with pytest.raises(errors.NotLeader):
        cluster.controller.end_routing(2, TOPIC, {0: (0, 50)})
    cluster.kill(1)
    with pytest.raises(errors.FencedLeaderEpoch):
        cluster.controller.end_routing(2, TOPIC, {0: (0, 50)})
    cluster.commit(cluster.controller.end_routing(2, TOPIC, {0: (1, 50), 1: (0, 60)}))
    assert cluster.metadata.routing[TOPIC].ended[0].ends == (50, 60)
    assert cluster.controller.end_routing(2, TOPIC, {0: (1, 99)}) == ()
    cluster.commit(cluster.controller.add_partitions("orders", 5))
    assert [epoch.partition_count for epoch in cluster.metadata.routing[TOPIC].ended] == [2, 4]
    with pytest.raises(errors.InvalidPartitionCount):
        cluster.controller.add_partitions("orders", 5)


def test_a_topic_grows_again_although_no_leader_has_reported() -> None:
    cluster = Cluster(1, 2)
    cluster.topic([1, 2])
    for count in (2, 3, 7):
        cluster.commit(cluster.controller.add_partitions("orders", count))
    assert len(list(cluster.metadata.partitions)) == 7


def test_producer_ids_are_given_once() -> None:
    cluster = Cluster()
    decided = [
        decide(cluster.controller, ReserveProducerIds(count), replication_factor=3, now_ms=0)
        for count in (100, 1)
    ]
    for decision, _ in decided:
        cluster.metadata.apply_all(decision)
    assert [first for _, first in decided] == [0, 100]
    assert cluster.metadata.next_producer_id == 101


def test_internal_topics_get_more_replicas_as_nodes_join() -> None:
    ids = (bytes([number]) * 16 for number in itertools.count())
    cluster = Cluster(1, internal=(InternalTopic("__offsets", 4), InternalTopic("__state", 2)))
    cluster.commit(cluster.controller.create_internal_topics(lambda: next(ids)))
    assert {fact.replicas for fact in cluster.metadata.partitions} == {(1,)}
    assert cluster.controller.create_internal_topics(lambda: next(ids)) == ()
    for node, size in ((2, 2), (3, 3), (4, 3)):
        cluster.join(node)
        cluster.run(6000)
        for fact in cluster.metadata.partitions.moving():
            members = fact.members
            cluster.commit(
                cluster.controller.change_in_sync(
                    fact.leader,
                    fact.topic_id,
                    fact.number,
                    members,
                    leader_epoch=fact.leader_epoch,
                    version=fact.version,
                )
            )
        assert {len(fact.replicas) for fact in cluster.metadata.partitions} == {size}
    for call in (
        cluster.controller.delete_topic,
        lambda name: cluster.controller.add_partitions(name, 9),
    ):
        with pytest.raises(errors.InternalTopic):
            call("__offsets")


def test_the_topics_of_a_single_node_become_partitions_of_the_cluster() -> None:
    cluster = Cluster()
    alone = (TopicFact(TOPIC, "orders", 2, {}, 4),)
    cluster.commit(cluster.controller.record(alone))
    cluster.register(1, b"a")
    cluster.commit(cluster.controller.adopt(1))
    assert cluster.state(1) == (NO_LEADER, (1,))
    cluster.heartbeat(1)
    assert cluster.state(1) == (1, (1,))
    assert cluster.partition(1).leader_epoch == 5, "above that of every record it has"
    assert cluster.controller.adopt(1) == ()
    cluster.join(2)
    cluster.commit(cluster.controller.reassign(TOPIC, 0, [1, 2]))
    cluster.in_sync(1, 2)
    assert cluster.state() == (1, (1, 2))
