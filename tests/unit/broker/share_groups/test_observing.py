"""Journeys, statistics and metrics have the deliveries of share groups like those of receivers."""

from __future__ import annotations

from goqueue.model.names import JOURNEYS_TOPIC
from goqueue.model.share_groups import AckType
from goqueue.tracing.events import Event, Kind
from tests.simulation.journal import entries, of_message
from tests.simulation.scraping import scrape
from tests.simulation.world import World
from tests.unit.broker.share_groups.member import SESSION, Member, acks
from tests.unit.broker.share_groups.test_fetching import send, share_world

ACCEPT, RELEASE, REJECT = AckType.ACCEPT, AckType.RELEASE, AckType.REJECT
FLUSHED_MS = 1_300


def journey(world: World, offset: int) -> list[Event]:
    """Return the events of one record, once all that happened is in the journal."""
    world.run_for(FLUSHED_MS)
    topic = world.broker.topics.get(JOURNEYS_TOPIC)
    return of_message(entries(topic.partitions), "orders", 0, offset)


def settled_world() -> World:
    """Of four records, one is accepted, one rejected, one released and accepted, one is held."""
    world = share_world()
    send(world, 4, per_batch=4)
    one, two = Member(world, "one"), Member(world, "two")
    assert one.take(records_max=3, is_record_limited=True) == [(0, 2, 1)]
    one.acknowledge(acks((0, 0, ACCEPT), (1, 1, REJECT), (2, 2, RELEASE)))
    assert two.take(records_max=1, is_record_limited=True) == [(2, 2, 2)]
    two.acknowledge(acks((2, 2, ACCEPT)))
    assert two.take() == [(3, 3, 1)]
    return world


def test_the_journey_of_a_record_names_the_members_that_held_it() -> None:
    world = settled_world()
    delivered, released, again, accepted = [
        one for one in journey(world, 2) if one.kind not in (Kind.RECEIVED, Kind.STORED)
    ]
    assert (delivered.kind, delivered.details.group) == (Kind.DELIVERED, "workers")
    assert (delivered.details.consumer, delivered.details.attempt) == ("one", 1)
    assert released.kind is Kind.NACKED
    assert (again.details.consumer, again.details.attempt) == ("two", 2)
    assert accepted.kind is Kind.ACKED


def test_the_journey_of_a_rejected_record_ends_as_a_dead_letter() -> None:
    world = settled_world()
    kinds = [one.kind for one in journey(world, 1)]
    assert kinds[-1] is Kind.DEAD_LETTERED
    assert Kind.REJECTED in kinds


def test_a_session_that_ends_returns_what_it_held() -> None:
    world = share_world()
    send(world, 2)
    member = Member(world, "one")
    member.take()
    member.release(is_counted=False)
    assert [one.kind for one in journey(world, 0)][-2:] == [Kind.DELIVERED, Kind.RETURNED]


def test_statistics_and_metrics_count_what_members_do() -> None:
    world = settled_world()
    stats = world.wait(
        world.broker.local_gate.queues.stats(SESSION, group="workers", topic="orders")
    )
    assert (stats.ready, stats.in_flight, stats.retrying) == (0, 1, 0)
    totals = stats.totals
    assert (totals.delivered, totals.redelivered, totals.acked) == (5, 1, 2)
    assert (totals.nacked, totals.rejected) == (1, 1)
    world.run_for(100)  # Until the last lease is written.
    found = scrape(world.broker, world.wait)
    place = ("workers", "orders")
    assert found["queue_delivered_total"] == {place: 5}
    assert found["queue_settled_total"] == {
        (*place, "acked"): 2,
        (*place, "nacked"): 1,
        (*place, "rejected"): 1,
    }


def test_a_receiver_and_a_member_take_different_records_of_one_group() -> None:
    world = share_world()
    send(world, 4)
    receiver = world.broker.queues.receive("workers", "orders", consumer="r", messages_max=2)
    assert [one.delivery.offset for one in world.wait(receiver.promise)] == [0, 1]
    assert Member(world, "one").take() == [(2, 3, 1)]


def test_members_are_counted_while_they_are_there() -> None:
    world = World()
    world.create("orders", 1)

    def counted() -> dict[tuple[str, ...], float]:
        world.run_for(1_000)
        return scrape(world.broker, world.wait).get("share_group_members", {})

    assert counted() == {}
    members = [Member(world, name) for name in ("ada", "bob")]
    for one in members:
        one.heartbeat(topics=["orders"])
    assert counted() == {("workers",): 2}
    members[0].heartbeat(epoch=-1)
    assert counted() == {("workers",): 1}
    world.run_for(120_000)  # The other one is not heard of any more.
    assert counted() == {}
