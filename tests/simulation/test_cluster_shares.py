"""Share groups of a cluster: no acceptance is forgotten, nothing is lost or held twice."""

from __future__ import annotations

import pytest

from goqueue.broker.gate.areas.share_groups import ShareFetched
from goqueue.loop.promise import Cancellation, Promise
from goqueue.model.errors import GoQueueError, RequestTimedOut
from goqueue.model.share_groups import ShareFetch, ShareWanted
from tests.simulation.cluster_queues import GROUPS, PARTITIONS, TOPIC, owner_of
from tests.simulation.cluster_shares import LOCK_MS, SESSION, begin, share_through_trouble


@pytest.mark.seeds(8)
def test_every_record_is_accepted_or_dead_once_per_group_whoever_leads_and_owns(seed: int) -> None:
    history = share_through_trouble(begin(seed))
    assert history.deliveries


@pytest.mark.seeds(4)
def test_the_same_where_owners_have_no_replica(seed: int) -> None:
    history = share_through_trouble(begin(seed, node_count=5))
    assert history.deliveries


@pytest.mark.seeds(4)
def test_the_same_where_receivers_have_fair_shares(seed: int) -> None:
    history = share_through_trouble(begin(seed, fair_keys=True))
    assert history.deliveries


@pytest.mark.seeds(20)
def test_a_fetch_whose_wait_is_ended_early_holds_nothing_that_it_was_not_sent(seed: int) -> None:
    world = begin(seed)
    owner = owner_of(world, GROUPS[0])
    leaders = [world.leader_of(TOPIC, number) for number in range(PARTITIONS)]
    number = next((at for at, one in enumerate(leaders) if one is not owner), 0)
    leader = leaders[number]
    assert leader is not None

    def fetch(member: str, wait_ms: int) -> tuple[Promise[ShareFetched], Cancellation]:
        call = ShareFetch(
            GROUPS[0],
            member,
            (ShareWanted(TOPIC, number),),
            (),
            wait_ms=wait_ms,
            bytes_max=1 << 20,
            records_max=10,
            session_id=1,
        )
        cancellation = Cancellation()
        fetched = leader.broker.local_gate.share_groups.fetch(
            SESSION, call=call, cancellation=cancellation
        )
        return fetched, cancellation

    world.wait(fetch("first", 0)[0])  # The group begins in the topic.
    ended, cancellation = fetch("first", 5_000)
    world.run_for(world.random.uniform(0, 100))
    committed: list[GoQueueError | None] = []
    world.produce(TOPIC, ["a"], lambda _, error: committed.append(error), number=number)
    world.run_for(world.random.uniform(0, 8))  # The record may be leased and not answered yet.
    cancellation.cancel()
    world.run_until(lambda: ended.is_done, ms_max=1_000)
    world.run_until(lambda: committed == [None])
    started_ms = world.clock.now_ms()
    try:
        has_record = any(part.acquired for part in world.wait(ended).parts)
    except RequestTimedOut:
        has_record = False
    if not has_record:
        [part] = world.wait(fetch("second", 5_000)[0]).parts
        [acquired] = part.acquired
        assert acquired.delivery_count == 1
        assert world.clock.now_ms() - started_ms < LOCK_MS / 2, "it was held until its lock ended"
