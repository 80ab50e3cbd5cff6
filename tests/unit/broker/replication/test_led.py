"""Whom a leader believes: followers of its own epoch, in their present life, about this copy."""

from __future__ import annotations

import msgspec
import pytest

from goqueue.cluster.replication import FetchStatus, ReplicaFetch, ReplicaReport
from tests.unit.broker.replication.test_followed import FOLLOWER, LEADER, NOW_MS, Pair, fact_of

EPOCH = 5


@pytest.fixture
def pair() -> Pair:
    """One batch is in the leader's log, and the follower has not said anything of it."""
    pair = Pair(in_sync_min=2)
    pair.lead(EPOCH)
    pair.one.append("a")
    pair.one.sync()
    return pair


def question(pair: Pair) -> ReplicaFetch:
    """What a follower asks that has all there is."""
    return ReplicaFetch(
        topic_id=b"t",
        partition=0,
        request=1,
        leader_epoch=EPOCH,
        last_epoch=EPOCH,
        offset=1,
        durable_offset=1,
        start_offset=0,
        bytes_max=1 << 20,
        version=EPOCH,
    )


def report(**changes: int) -> ReplicaReport:
    said = ReplicaReport(
        topic_id=b"t", partition=0, leader_epoch=EPOCH, durable_offset=1, version=EPOCH
    )
    return msgspec.structs.replace(said, **changes)


def committed(pair: Pair) -> int:
    return pair.one.partition.high_watermark


def ask(pair: Pair, incarnation: bytes = b"f", **changes: int) -> FetchStatus:
    fetch = msgspec.structs.replace(question(pair), **changes)
    return pair.led.serve(FOLLOWER, incarnation, fetch, NOW_MS).answer.status


def test_what_a_follower_has_of_this_epoch_is_committed(pair: Pair) -> None:
    assert committed(pair) == 0
    assert ask(pair) is FetchStatus.OK
    assert committed(pair) == 1


@pytest.mark.parametrize(
    ("epoch", "status"),
    [(EPOCH - 1, FetchStatus.FENCED_EPOCH), (EPOCH + 1, FetchStatus.UNKNOWN_EPOCH)],
)
def test_what_is_asked_in_another_epoch_counts_for_nothing(
    pair: Pair, epoch: int, status: FetchStatus
) -> None:
    assert ask(pair, leader_epoch=epoch) is status
    assert committed(pair) == 0


@pytest.mark.parametrize("epoch", [EPOCH - 1, EPOCH + 1])
def test_what_is_reported_in_another_epoch_counts_for_nothing(pair: Pair, epoch: int) -> None:
    assert ask(pair, offset=0, durable_offset=0, last_epoch=-1) is FetchStatus.OK
    pair.led.reported(FOLLOWER, b"f", report(leader_epoch=epoch), NOW_MS)
    assert committed(pair) == 0
    pair.led.reported(FOLLOWER, b"f", report(), NOW_MS)
    assert committed(pair) == 1


def test_another_life_of_a_follower_counts_for_nothing(pair: Pair) -> None:
    assert ask(pair, b"earlier") is FetchStatus.UNKNOWN_REPLICA
    assert committed(pair) == 0


def test_what_a_follower_says_of_a_copy_that_it_has_to_throw_away_counts_for_nothing(
    pair: Pair,
) -> None:
    """It was taken from the replicas and became one again, and has not heard of it yet."""
    assert ask(pair, offset=0, durable_offset=0, last_epoch=-1) is FetchStatus.OK
    for version, replicas in ((EPOCH + 1, (LEADER,)), (EPOCH + 2, (LEADER, FOLLOWER))):
        fact = fact_of(EPOCH, replicas=replicas, in_sync=(LEADER,), version=version)
        pair.led.changed(fact, now_ms=NOW_MS)
    assert ask(pair) is FetchStatus.UNKNOWN_REPLICA
    now = EPOCH + 2
    assert ask(pair, version=now, offset=0, durable_offset=0, last_epoch=-1) is FetchStatus.OK
    pair.led.reported(FOLLOWER, b"f", report(), NOW_MS)
    assert not pair.proposals, "it is not in sync with what it had"
    pair.led.reported(FOLLOWER, b"f", report(version=now), NOW_MS)
    assert [one.in_sync for one in pair.proposals] == [(LEADER, FOLLOWER)]
