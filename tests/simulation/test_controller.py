"""The controller among failures: after every decision all rules hold, and nothing acked is lost."""

from __future__ import annotations

from functools import partial

import pytest

from goqueue.cluster.facts import NO_LEADER
from goqueue.cluster.metadata import Metadata
from tests.simulation.controller_model import INTERNAL, Cluster, Node
from tests.simulation.controller_watch import Cause

STEPS = 400
TOPICS_MAX = 6


def _step(cluster: Cluster) -> None:
    """One thing of many that can happen."""
    random = cluster.random
    node = random.choice(cluster.nodes)
    happenings = [
        (20, partial(cluster.run, random.choice([100, 200, 500, 1500]))),
        (30, partial(cluster.commit, random.randint(0, len(cluster.in_flight)))),
        (30, lambda: [_catch_up(cluster, each) for each in cluster.nodes]),
        (15, partial(_produce, cluster)),
        (12, partial(_propose, cluster)),
        (4, partial(_crash_or_start, cluster, node)),
        (3, partial(_silence, cluster, node)),
        (3, partial(_want_drain, node)),
        (2, partial(_leave, cluster, node)),
        (3, partial(_operate_node, cluster, node)),
        (6, partial(_reassign, cluster)),
        (5, partial(_elect, cluster)),
        (7, partial(_change_topics, cluster)),
        (3, partial(_end_routing, cluster)),
        (3, cluster.fail_over),
    ]
    weights = [weight for weight, _ in happenings]
    random.choices(happenings, weights)[0][1]()


def _catch_up(cluster: Cluster, node: Node) -> None:
    cluster.read_log(node, cluster.random.choice([0, 1, 3, 100]))
    if node.is_running and not node.is_silent:
        known = cluster.controller.metadata.nodes.get(node.id)
        if known is None or known.incarnation != node.incarnation:
            cluster.register(node)


def _produce(cluster: Cluster) -> None:
    for place in cluster.places():
        for node in cluster.nodes:
            cluster.produce(node, place)


def _propose(cluster: Cluster) -> None:
    for place in cluster.places():
        for node in cluster.nodes:
            if cluster.random.random() < 0.5:
                cluster.propose_in_sync(node, place)


def _crash_or_start(cluster: Cluster, node: Node) -> None:
    if node.is_running and cluster.random.random() < 0.6:
        node.is_running = False
    else:
        cluster.start(node, has_lost_disk=cluster.random.random() < 0.1)


def _silence(cluster: Cluster, node: Node) -> None:
    """One node at most loses the controller by this; the one before it finds it again."""
    for each in cluster.nodes:
        each.is_silent = each is node and cluster.random.random() < 0.6


def _want_drain(node: Node) -> None:
    node.wants_drain = node.is_running


def _leave(cluster: Cluster, node: Node) -> None:
    if node.is_running and not node.is_silent and node.wants_drain:
        controller = cluster.controller
        cluster.decide(Cause("leave"), lambda: controller.leave(node.id, node.incarnation))
        node.is_running = False


def _operate_node(cluster: Cluster, node: Node) -> None:
    controller = cluster.controller
    if cluster.random.random() < 0.3:
        cluster.decide(Cause("unregister"), lambda: controller.unregister(node.id))
    else:
        is_wanted = cluster.random.random() < 0.4
        cluster.decide(Cause("drain"), lambda: controller.drain(node.id, is_wanted=is_wanted))


def _reassign(cluster: Cluster) -> None:
    places = cluster.places()
    if not places:
        return
    topic_id, number = place = cluster.random.choice(places)
    controller = cluster.controller
    if cluster.random.random() < 0.25:
        cluster.decide(Cause("cancel", place), lambda: controller.cancel_reassign(topic_id, number))
    else:
        count = cluster.random.randint(1, min(4, len(cluster.nodes)))
        target = [node.id for node in cluster.random.sample(cluster.nodes, count)]
        cluster.decide(
            Cause("reassign", place, target=tuple(target)),
            lambda: controller.reassign(topic_id, number, target),
        )


def _elect(cluster: Cluster) -> None:
    partitions = cluster.controller.metadata.partitions
    is_unclean = cluster.random.random() < 0.5
    facts = partitions.leaderless() if is_unclean else partitions.strayed()
    if facts or (facts := list(partitions)):
        topic_id, number = place = cluster.random.choice(facts).place
        cluster.decide(
            Cause("elect", place, is_unclean=is_unclean),
            lambda: cluster.controller.elect(topic_id, number, is_unclean=is_unclean),
        )


def _change_topics(cluster: Cluster) -> None:
    random, controller = cluster.random, cluster.controller
    names = [topic.name for topic in controller.metadata.topics()]
    what = random.random()
    if not names or (what < 0.5 and len(names) < TOPICS_MAX):
        is_unclean = random.random() < 0.15
        settings = {"unclean_leader_election_enable": "true"} if is_unclean else {}
        fact, factor = cluster.topic(random.randint(1, 4), **settings), random.randint(1, 4)
        cluster.decide(
            Cause("create"), lambda: controller.create_topic(fact, replication_factor=factor)
        )
    elif what < 0.65:
        name = random.choice(names)
        cluster.decide(Cause("delete"), lambda: controller.delete_topic(name))
    elif what < 0.75:
        cluster.decide(Cause("internal"), lambda: controller.create_internal_topics(cluster.new_id))
    elif what < 0.85:
        name, text = random.choice(names), random.choice(["true", "false"])
        settings = {"unclean_leader_election_enable": text}
        cluster.decide(Cause("configure"), lambda: controller.configure_topic(name, settings))
    else:
        name = random.choice(names)
        topic = controller.metadata.topic(name)
        assert topic is not None
        count = min(topic.partition_count + random.randint(1, 2), 8)
        cluster.decide(Cause("grow"), lambda: controller.add_partitions(name, count))


def _end_routing(cluster: Cluster) -> None:
    for node in cluster.nodes:
        for fact in node.view.partitions.led_by(node.id):
            if node.is_running and not node.is_silent and fact.topic_id in node.view.routing:
                told = {fact.number: (fact.leader_epoch, cluster.random.randint(0, 1000))}
                cluster.decide(
                    Cause("end_routing"),
                    partial(cluster.controller.end_routing, node.id, fact.topic_id, told),
                )


def _heal(cluster: Cluster) -> None:
    """Everything is started, heard and caught up for a while."""
    for node in cluster.nodes:
        node.is_silent = False
        if not node.is_running or node.wants_drain:
            cluster.start(node)
    for node in cluster.nodes:
        if node.id in cluster.controller.metadata.nodes:
            cluster.decide(
                Cause("drain"), partial(cluster.controller.drain, node.id, is_wanted=False)
            )
    for _ in range(60):
        cluster.run(500)
        cluster.commit(len(cluster.in_flight))
        for node in cluster.nodes:
            _catch_up(cluster, node)
            cluster.read_log(node, len(cluster.log))
        for place in cluster.places():
            for node in cluster.nodes:
                cluster.join_all(node, place)
    cluster.commit(len(cluster.in_flight))
    for node in cluster.nodes:
        cluster.read_log(node, len(cluster.log))


def _check_healed(cluster: Cluster) -> None:
    metadata = cluster.committed
    assert all(not node.is_fenced for node in metadata.nodes.values())
    assert len(metadata.nodes) == len(cluster.nodes)
    for fact in metadata.partitions:
        if fact.is_lost:
            assert fact.leader == NO_LEADER
            continue
        assert set(fact.in_sync) == set(fact.replicas)
        assert fact.leader == fact.replicas[0]
        wanted = cluster.wanted.get(fact.place, fact.replicas)
        assert not fact.is_moving
        assert fact.replicas == wanted
    for topic in INTERNAL:
        known = metadata.topic(topic.name)
        for fact in metadata.partitions.of_topic(known.id) if known else []:
            assert (
                fact.is_lost
                or len(fact.replicas) >= min(3, len(cluster.nodes))
                or (fact.place in cluster.wanted)
            )


def _check_same_everywhere(cluster: Cluster) -> None:
    snapshot = cluster.committed.snapshot()
    for node in cluster.nodes:
        assert node.view.snapshot() == snapshot
    again = Metadata()
    for decision in cluster.log:
        again.apply_all(decision)
    assert again.snapshot() == snapshot


def _run(seed: int, steps: int = STEPS) -> Cluster:
    cluster = Cluster(seed, node_count=3 + seed % 4)
    for node in cluster.nodes:
        cluster.start(node)
    for _ in range(steps):
        _step(cluster)
        for node in cluster.nodes:
            if not node.is_running and cluster.random.random() < 0.08:
                cluster.start(node, has_lost_disk=cluster.random.random() < 0.1)
    cluster.commit(len(cluster.in_flight))
    return cluster


@pytest.mark.seeds(150)
def test_every_decision_keeps_the_rules_and_all_heals(seed: int) -> None:
    cluster = _run(seed)
    _heal(cluster)
    _check_healed(cluster)
    _check_same_everywhere(cluster)


def test_a_seed_replays_exactly() -> None:
    assert _run(7).committed.snapshot() == _run(7).committed.snapshot()


def test_the_simulation_meets_what_it_is_for() -> None:
    """A rule that is never tried is not tested: each kind of decision and refusal must occur."""
    kinds: dict[str, int] = {}
    refused: set[str] = set()
    elections = unclean = moves = acked = 0
    for seed in range(24):
        cluster = _run(seed)
        elections += cluster.watch.elections
        unclean += cluster.watch.unclean
        moves += cluster.watch.moves_done
        acked += sum(map(len, cluster.acked.values()))
        refused |= set(cluster.refused)
        for name, count in cluster.watch.kinds.items():
            kinds[name] = kinds.get(name, 0) + count
    assert set(kinds) >= {
        "register", "heartbeat", "tick", "change_in_sync", "reassign", "cancel", "elect", "drain",
        "unregister", "create", "delete", "grow", "internal", "end_routing", "leave",
    }  # fmt: skip
    assert {"change_in_sync: StalePartitionVersion", "change_in_sync: FencedLeaderEpoch"} <= refused
    assert min(elections, moves, unclean) > 20
    assert acked > 500
