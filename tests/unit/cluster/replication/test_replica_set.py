"""Which replicas are in sync, and what is committed by that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from goqueue.cluster.facts import PartitionFact
from goqueue.cluster.replication import (
    AdvanceHighWatermark,
    ProposeInSync,
    ReplicaSet,
    SetShortage,
)
from goqueue.config import ReplicationSettings

A, B = b"a", b"b"
LAG_MS = 1000
RETRY_MS = 100


@dataclass
class Log:
    """What a leader has when it starts."""

    epoch_start: int = 0
    high_watermark: int = 0
    durable_offset: int = 100


def fact(
    replicas: tuple[int, ...] = (0, 1, 2), in_sync: tuple[int, ...] = (0, 1, 2), *, version: int = 7
) -> PartitionFact:
    return PartitionFact(b"t", 0, replicas, in_sync, leader=0, leader_epoch=5, version=version)


class Lead(ReplicaSet):
    """Node 0 leads, 1 and 2 follow, and the log has 100 records."""

    def __init__(
        self,
        in_sync: tuple[int, ...] = (0, 1, 2),
        *,
        replicas: tuple[int, ...] = (0, 1, 2),
        in_sync_min: int = 1,
        **log: int,
    ) -> None:
        super().__init__(
            fact(replicas, in_sync),
            Log(**log),
            ReplicationSettings(lag_ms=LAG_MS, retry_ms=RETRY_MS),
            in_sync_min=in_sync_min,
            alive={0: A, 1: A, 2: A},
            now_ms=0,
        )

    def has(self, node: int, durable: int, *, now_ms: int = 0, incarnation: bytes = A) -> list[Any]:
        """A follower has made so much durable, and has fetched all."""
        return self.follower_fetched(
            node,
            incarnation,
            offset=100,
            durable_offset=durable,
            start_offset=0,
            end_offset=100,
            now_ms=now_ms,
        )

    def decided(self, *in_sync: int, version: int) -> list[Any]:
        return self.in_sync_changed(fact(in_sync=in_sync, version=version), now_ms=0)


def test_what_the_slowest_in_sync_has_is_committed() -> None:
    lead = Lead()
    assert lead.has(1, 60) == []
    assert lead.has(2, 40) == [AdvanceHighWatermark(40)]
    assert lead.has(2, 80) == [AdvanceHighWatermark(60)]


def test_the_leaders_own_disk_counts_too() -> None:
    lead = Lead(durable_offset=10)
    lead.has(1, 60)
    assert lead.has(2, 60) == [AdvanceHighWatermark(10)]
    assert lead.local_durable(50) == [AdvanceHighWatermark(50)]


def test_a_leader_that_is_alone_commits_by_itself() -> None:
    assert Lead(in_sync=(0,)).begin() == [AdvanceHighWatermark(100)]


def test_a_late_question_takes_nothing_back() -> None:
    lead = Lead(in_sync=(0, 1))
    lead.has(1, 60)
    assert lead.has(1, 20) == []
    assert lead.high_watermark == 60


def test_nothing_is_believed_of_another_incarnation() -> None:
    lead = Lead(in_sync=(0, 1))
    assert lead.has(1, 60, incarnation=B) == []
    lead.nodes_changed({0: A, 1: B, 2: A}, now_ms=0)
    assert lead.has(1, 60, incarnation=A) == []
    assert lead.has(1, 60, incarnation=B) == [AdvanceHighWatermark(60)]


def test_what_an_incarnation_had_does_not_count_for_the_next() -> None:
    lead = Lead(in_sync=(0, 1, 2))
    lead.has(1, 60)
    lead.nodes_changed({0: A, 1: B, 2: A}, now_ms=0)
    assert lead.has(2, 60) == []


def test_a_report_counts_only_after_the_logs_were_compared() -> None:
    lead = Lead(in_sync=(0, 1))
    report: dict[str, Any] = {"durable_offset": 60, "end_offset": 100, "now_ms": 0}
    assert lead.follower_durable(1, A, **report) == []
    lead.has(1, 0)
    assert lead.follower_durable(1, A, **report) == [AdvanceHighWatermark(60)]


def test_a_follower_joins_when_it_has_all_that_is_committed() -> None:
    lead = Lead(in_sync=(0, 1), high_watermark=50)
    assert lead.has(2, 49) == []
    assert lead.has(2, 50) == [ProposeInSync((0, 1, 2), {1: A, 2: A}, 5, 7)]


def test_a_follower_joins_when_it_has_all_from_before_this_leader() -> None:
    lead = Lead(in_sync=(0,), epoch_start=90, durable_offset=0)
    assert lead.has(2, 89) == []
    assert lead.has(2, 90)


def test_a_dead_node_does_not_join() -> None:
    lead = Lead(in_sync=(0, 1))
    lead.nodes_changed({0: A, 1: A}, now_ms=0)
    assert lead.has(2, 100) == []


def test_whoever_may_be_in_sync_counts_until_the_controller_has_answered() -> None:
    lead = Lead(in_sync=(0, 1), high_watermark=10)
    lead.has(2, 50)
    assert lead.has(1, 100) == [AdvanceHighWatermark(50)]
    assert lead.decided(0, 1, version=8) == [AdvanceHighWatermark(100)]


def test_a_refused_member_counts_until_the_version_has_changed() -> None:
    lead = Lead(in_sync=(0, 1), high_watermark=10)
    lead.has(2, 50)
    lead.proposal_refused(version=7, now_ms=0)
    assert lead.has(1, 100) == [AdvanceHighWatermark(50)]
    assert lead.has(2, 50) == [], "what was just refused is not asked again at once"
    assert lead.tick(RETRY_MS) == [ProposeInSync((0, 1), {1: A}, 5, 7)]
    assert lead.decided(0, 1, version=8) == [AdvanceHighWatermark(100)]


def test_a_refusal_on_the_grounds_of_a_later_version_waits_for_it() -> None:
    lead = Lead(in_sync=(0, 1), high_watermark=10)
    lead.has(2, 50)
    lead.proposal_refused(version=8, now_ms=0)
    assert lead.counting == {0, 1, 2}


def test_older_decisions_are_passed_over() -> None:
    lead = Lead()
    assert lead.decided(0, version=7) == []
    assert lead.in_sync == {0, 1, 2}


def test_time_alone_makes_a_follower_lag() -> None:
    lead = Lead()
    lead.has(1, 100, now_ms=500)
    assert lead.tick(LAG_MS) == []
    # A follower that lacks a single record lags as much as one that lacks everything.
    lead.has(2, 99, now_ms=LAG_MS)
    assert lead.tick(LAG_MS + 1) == [ProposeInSync((0, 1), {1: A}, 5, 7)]


def test_a_follower_that_keeps_up_with_a_busy_log_does_not_lag() -> None:
    lead = Lead(in_sync=(0, 1))
    for now_ms in range(0, 5000, 100):
        end = 100 + now_ms
        lead.follower_fetched(
            1,
            A,
            offset=end,
            durable_offset=end - 200,  # what it has synced is always two rounds behind
            start_offset=0,
            end_offset=end,
            now_ms=now_ms,
        )
        assert lead.tick(now_ms) == []


def test_a_proposal_that_nobody_answers_is_repeated() -> None:
    lead = Lead(in_sync=(0, 1))
    (proposal,) = lead.has(2, 100)
    assert lead.tick(RETRY_MS - 1) == []
    assert lead.tick(RETRY_MS) == [proposal]


def test_with_too_few_in_sync_nothing_is_committed_and_writers_are_told() -> None:
    lead = Lead(in_sync=(0, 1), in_sync_min=2)
    assert lead.begin() == []
    assert lead.decided(0, version=8) == [
        SetShortage(is_short=True, in_sync_count=1, in_sync_min=2)
    ]
    assert lead.has(1, 80) != []  # It proposes to take it in again, and commits nothing.
    assert lead.high_watermark == 0
    assert lead.decided(0, 1, version=9) == [
        SetShortage(is_short=False, in_sync_count=2, in_sync_min=2),
        AdvanceHighWatermark(80),
    ]


def test_where_there_are_fewer_replicas_than_needed_all_of_them_commit() -> None:
    lead = Lead(replicas=(0,), in_sync=(0,), in_sync_min=2)
    assert lead.begin() == [
        SetShortage(is_short=True, in_sync_count=1, in_sync_min=2),
        AdvanceHighWatermark(100),
    ]


def test_the_low_watermark_is_that_of_the_followers_in_sync() -> None:
    def begins(lead: Lead, node: int, start_offset: int) -> None:
        lead.follower_fetched(
            node,
            A,
            offset=100,
            durable_offset=100,
            start_offset=start_offset,
            end_offset=100,
            now_ms=0,
        )

    lead = Lead()
    begins(lead, 1, 70)
    assert lead.low_watermark == -1  # The other one has not told.
    begins(lead, 2, 40)
    assert lead.low_watermark == 40
    lead.decided(0, 1, version=8)
    assert lead.low_watermark == 70
    lead.decided(0, version=9)
    assert lead.low_watermark is None


def test_nothing_is_believed_of_a_copy_that_its_node_has_to_throw_away() -> None:
    lead = Lead()
    lead.has(1, 100)
    # Node 1 goes and comes back while it has not heard of either.
    lead.in_sync_changed(fact((0, 2), (0, 2), version=8), now_ms=0)
    lead.in_sync_changed(fact((0, 1, 2), (0, 2), version=9), now_ms=0)
    assert not lead.is_about_this(1, 7)
    assert lead.is_about_this(1, 9)
    assert lead.is_about_this(2, 7)
    progress = lead.progress(1)
    assert progress is not None
    assert progress.durable_offset == -1
    # It starts again meanwhile, which changes nothing about that.
    lead.nodes_changed({0: A, 1: B, 2: A}, now_ms=0)
    assert not lead.is_about_this(1, 8)


def test_of_who_is_not_in_sync_nothing_is_known_after_decisions_that_were_missed() -> None:
    lead = Lead(in_sync=(0, 2))
    lead.has(1, 60)
    lead.has(2, 60)
    lead.in_sync_changed(fact((0, 1, 2), (0, 2), version=10), now_ms=0)
    assert not lead.is_about_this(1, 9)
    assert lead.is_about_this(2, 7)
    behind, other = lead.progress(1), lead.progress(2)
    assert behind is not None
    assert other is not None
    assert (behind.durable_offset, other.durable_offset) == (-1, 60)
