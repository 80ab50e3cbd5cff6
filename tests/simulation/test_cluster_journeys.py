"""Journeys of a cluster: whatever nodes do, they agree with what clients have seen."""

from __future__ import annotations

import contextlib

import pytest

from goqueue.model.errors import GoQueueError
from tests.simulation import cluster_schedules, cluster_shares, cluster_transactions
from tests.simulation.cluster_journeys import Journal
from tests.simulation.cluster_queues import (
    GRAVE,
    TOPIC,
    begin,
    redrive_through_trouble,
    strike,
    work_through_trouble,
)
from tests.simulation.cluster_streams import Streams
from tests.simulation.transactions_model import INPUT, OUTPUTS


@pytest.mark.seeds(6)
def test_journeys_agree_with_what_consumers_have_seen(seed: int) -> None:
    world = begin(seed)
    history = work_through_trouble(world)
    journal = Journal(world)
    journal.check_spans()
    journal.check_stored([TOPIC, GRAVE])
    journal.check_groups(history)
    journal.check_letters(TOPIC)


@pytest.mark.seeds(4)
def test_journeys_agree_with_what_members_of_share_groups_have_seen(seed: int) -> None:
    world = cluster_shares.begin(seed)
    history = cluster_shares.share_through_trouble(world)
    journal = Journal(world)
    journal.check_spans()
    journal.check_stored([TOPIC, GRAVE])
    journal.check_groups(history)
    journal.check_letters(TOPIC)


@pytest.mark.seeds(4)
def test_journeys_of_delayed_messages_are_linked_whoever_releases_them(seed: int) -> None:
    world = cluster_schedules.begin(seed)
    client = cluster_schedules.schedule_through_trouble(world)
    client.check_complete()
    journal = Journal(world)
    journal.check_spans()
    journal.check_stored([cluster_schedules.TOPIC])
    journal.check_releases(cluster_schedules.TOPIC)
    assert journal.linked or not client.acked


@pytest.mark.seeds(6)
def test_journeys_agree_with_what_stream_groups_have_committed(seed: int) -> None:
    world = begin(seed)
    streams = Streams(world, TOPIC, partitions=2)
    for _ in range(8):
        for _ in range(world.random.randint(5, 25)):
            streams.work()
            world.run_for(world.random.uniform(5, 100))
        if world.random.random() < 0.5:
            _remove_records(streams, world.random.randrange(2))
        strike(world)
    world.heal()
    streams.settle()
    _remove_records(streams, 0)
    journal = Journal(world)
    journal.check_spans()
    journal.check_stored([TOPIC])
    for committer in streams.committers:
        offset = max(committer.acked, committer.told)
        journal.check_consumed(committer.group, TOPIC, committer.reader.number, offset)
    journal.check_retired(TOPIC)
    journal.check_deduplicated(TOPIC)


def _remove_records(streams: Streams, number: int) -> None:
    """Remove some of what the reader of a partition has read."""
    node = streams.world.leader_of(TOPIC, number)
    partition = None if node is None else node.partition(TOPIC, number)
    if partition is None:
        return
    read = min(streams.readers[number].position, partition.high_watermark)
    if read > partition.start_offset:
        with contextlib.suppress(GoQueueError):  # It does not lead any more.
            offset = streams.world.random.randint(partition.start_offset, read)
            partition.retention.delete_before(offset)


@pytest.mark.seeds(4)
def test_journeys_agree_with_what_transactions_have_committed(seed: int) -> None:
    stage = cluster_transactions.begin(seed)
    world = stage.cluster
    applications = cluster_transactions.applications_on(
        stage, positions=cluster_transactions.ENDLESS
    )
    for _ in range(5):
        strike(world)
        cluster_transactions.run(stage, applications, stage.random.uniform(100, 1_500))
    stage.is_quiet = True
    world.heal()
    for application in applications:
        application.positions = application.committed_offset() + 1
    cluster_transactions.settle(stage, applications)
    journal = Journal(world)
    journal.check_spans()
    journal.check_stored({name.topic for name in OUTPUTS})
    for application in applications:
        offset = application.committed_offset()
        journal.check_consumed(application.group_id, INPUT, 0, offset, is_there=False)


@pytest.mark.seeds(6)
def test_journeys_of_redriven_messages_are_linked_or_marked(seed: int) -> None:
    world = begin(seed)
    redrive_through_trouble(world)
    journal = Journal(world)
    journal.check_spans()
    journal.check_stored([TOPIC, GRAVE])
    journal.check_letters(TOPIC)
    journal.check_redriven(TOPIC)
