"""Queue groups of a cluster: no ack is forgotten, nothing is lost or dies twice."""

from __future__ import annotations

import pytest

from goqueue.broker.queues.host import GRANT_MS_MAX
from goqueue.broker.queues.records import Received
from goqueue.delivery.redrive import LEDGER_GROUP, RedriveOrder
from goqueue.delivery.settings import DEAD_LETTER_SUFFIX
from goqueue.loop.promise import Promise
from goqueue.model.errors import NotCoordinator, RequestTimedOut, StalePartitionVersion
from goqueue.model.names import DELIVERY_TOPIC
from tests.simulation.cluster_queues import (
    PARTITIONS,
    TOPIC,
    History,
    Writer,
    begin,
    kill_messages,
    owner_of,
    redrive_through_trouble,
    work_through_trouble,
)
from tests.simulation.cluster_world import ClusterNode


@pytest.mark.seeds(8)
def test_every_message_ends_acked_or_dead_once_per_group_whoever_owns_it(seed: int) -> None:
    work_through_trouble(begin(seed))


def test_a_group_made_by_its_first_receive_is_owned_by_one_node_and_others_say_so() -> None:
    world = begin(1)
    Writer(world).step()
    world.run_for(500)
    answers: dict[int, str] = {}
    for node in world.up():
        try:
            receiver = node.broker.queues.receive("new", TOPIC, consumer="a", wait_ms=100)
            answers[node.number] = f"{len(world.wait(receiver.promise))} messages"
        except NotCoordinator as error:
            answers[node.number] = error.code
        world.run_for(500)
    owners = {node.broker.queues.groups.owner_of("new") for node in world.up()}
    assert len(owners) == 1
    owner = owners.pop()
    assert "messages" in answers.pop(owner)
    assert list(answers.values()) == ["not_coordinator"] * 2


def test_those_who_wait_are_told_when_another_node_takes_over() -> None:
    world = begin(2)
    node = owner_of(world, "one")
    assert node is not None
    receiver = node.broker.queues.receive("one", TOPIC, consumer="a", wait_ms=60_000)
    world.run_for(200)
    assert not receiver.promise.is_done
    world.network.cut([node.number], list(world.nodes))
    world.run_until(lambda: owner_of(world, "one") is not node, ms_max=10_000)
    world.network.heal()
    world.run_until(lambda: receiver.promise.is_done, ms_max=10_000)
    told: list[Exception | None] = []
    receiver.promise.then(lambda _, error: told.append(error))
    assert isinstance(told[0], NotCoordinator)


@pytest.mark.parametrize("step_ms", [-100_000, -2_000, 5_000, 100_000])
def test_a_lease_lasts_as_long_as_it_should_whatever_the_clock_is_set_to(step_ms: int) -> None:
    lease_ms = 10_000
    world = begin(3)
    writer, owner = Writer(world), owner_of(world, "one")
    assert owner is not None

    def ask() -> Received:
        assert owner is not None
        receiver = owner.broker.queues.receive(
            "one", TOPIC, consumer="a", messages_max=100, visibility_ms=lease_ms
        )
        return world.wait(receiver.promise)

    assert not ask()  # There is a queue from now on.
    while not writer.acked:
        writer.step()
        world.run_for(100)
    world.run_for(1_000)
    before_ms = world.clock.now_ms()
    taken = ask()
    after_ms = world.clock.now_ms()
    assert taken
    owner.clock.skew_ms += step_ms
    while not ask():
        world.run_for(5)
    assert before_ms + lease_ms <= world.clock.now_ms() <= after_ms + lease_ms + 50


@pytest.mark.parametrize("how", ["both ways", "from it"])
def test_an_owner_that_was_replaced_delivers_nothing_whatever_it_knows(how: str) -> None:
    """Its leases cannot be committed; what it took goes back, and nobody has seen it."""
    world = begin(4)
    writer, history, former = Writer(world), History(world), owner_of(world, "one")
    assert former is not None
    everybody, one = list(world.nodes), [former.number]

    def ask(node: ClusterNode) -> Promise[Received]:
        return node.broker.queues.receive("one", TOPIC, consumer="a", messages_max=100).promise

    assert not world.wait(ask(former))  # There is a queue from now on.
    while not writer.acked:
        writer.step()
        world.run_for(100)
    world.run_for(1_000)  # By then every copy knows that they are committed.
    if how == "both ways":
        world.network.cut(one, everybody)
    else:
        world.network.cut_one_way(one, everybody)
    world.run_until(lambda: owner_of(world, "one") not in (former, None), ms_max=20_000)
    owner = owner_of(world, "one")
    assert owner is not None
    asked = ask(former)
    world.run_for(GRANT_MS_MAX + 100)
    with pytest.raises((RequestTimedOut, NotCoordinator)):
        world.wait(asked)
    done = world.wait(ask(owner))
    assert len(done) == writer.sent
    receipts = [each.delivery.receipt for each in done]
    assert world.wait(owner.broker.queues.ack("one", receipts)) == [None] * len(done)
    for each in done:
        history.answered("one", each)
        with pytest.raises(AssertionError, match="was acked and came back"):
            history.delivered("one", each, owner)
    owner.kill()  # Without a majority nobody succeeds it.
    if how == "both ways":
        assert owner_of(world, "one") is former
        again = ask(former)
        with pytest.raises(RequestTimedOut):
            world.wait(again)
    world.heal()
    node = owner_of(world, "one")
    assert node is not None
    assert not world.wait(ask(node))
    assert world.wait(node.broker.queues.ack("one", receipts)) == [None] * len(done)


def test_a_copy_that_is_behind_the_journal_brings_back_nothing_that_was_acked() -> None:
    world = begin(3)
    writer, node = Writer(world), owner_of(world, "one")
    assert node is not None
    queues, topic = node.broker.queues, node.broker.topics.get(TOPIC)

    def take_all() -> int:
        receiver = queues.receive("one", TOPIC, consumer="a", messages_max=100, wait_ms=500)
        got = world.wait(receiver.promise)
        if got:
            receipts = [one.delivery.receipt for one in got]
            assert world.wait(queues.ack("one", receipts)) == [None] * len(got)
        return len(got)

    for _ in range(10):
        writer.step()
    world.run_for(500)
    assert take_all() == writer.sent
    state = node.broker.topics.get(DELIVERY_TOPIC).partition(
        queues.journal.number_of(node.broker.topics.facts.queue_groups()["one"].id.hex())
    )
    copies = list(topic.partitions)
    queues.resign(state)
    files = node.broker.topics._files
    topic.partitions[:] = [
        files.absent(topic.fact, topic.settings, number) for number in range(PARTITIONS)
    ]
    queues.lead(state)
    topic.partitions[:] = copies
    queues._hosts.sources.copies_changed({topic.id})
    assert take_all() == 0
    before = writer.sent
    for _ in range(5):
        writer.step()
    world.run_for(500)
    assert take_all() == writer.sent - before


@pytest.mark.seeds(6)
def test_dead_letters_come_back_once_whoever_runs_the_job(seed: int) -> None:
    redrive_through_trouble(begin(seed))


def test_a_job_is_told_as_it_was_agreed_on() -> None:
    world = begin(4)
    kill_messages(world)
    place = world.up()[0].broker.queues.journal.number_of(LEDGER_GROUP)
    runner = world.leader_of(DELIVERY_TOPIC, place)
    assert runner is not None
    redrives = runner.broker.redrives
    job = world.wait(redrives.start(TOPIC, RedriveOrder(rate_per_s=1)))
    world.run_for(200)
    world.network.cut([runner.number], list(world.nodes))
    cancelled = redrives.cancel(TOPIC, job.id)
    assert redrives.get(TOPIC, job.id).state == "running", "the others have not heard of it"
    assert [one.state for one in redrives.jobs(TOPIC)] == ["running"]
    world.run_until(lambda: world.leader_of(DELIVERY_TOPIC, place) not in (None, runner))
    world.run_for(500)
    world.heal()
    with pytest.raises(StalePartitionVersion):
        world.wait(cancelled)
    owner = world.leader_of(DELIVERY_TOPIC, place)
    assert owner is not None
    assert owner.broker.redrives.get(TOPIC, job.id).state == "running"


def test_a_dead_letter_is_as_safe_as_the_message_was() -> None:
    world = begin(5)
    kill_messages(world)
    topics = world.up()[0].broker.topics
    source, letter_topic = topics.get(TOPIC), topics.get(TOPIC + DEAD_LETTER_SUFFIX)
    assert letter_topic.fact.settings == {"min_insync_replicas": "2"} == source.fact.settings
    leaders = world.up()[0].broker.leaders
    assert leaders.copies_of(letter_topic) == leaders.copies_of(source) == 3
