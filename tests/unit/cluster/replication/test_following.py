"""What a follower asks, and what it makes of the answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from goqueue.cluster.facts import PartitionFact
from goqueue.cluster.replication import (
    Append,
    FetchStatus,
    Follow,
    Following,
    ReplicaFetch,
    ReplicaFetched,
    Restart,
    Truncate,
    parked_ms,
)
from goqueue.config import ReplicationSettings
from goqueue.partition.epochs import LeaderEpochs

RETRY_MS = 50
SETTINGS = ReplicationSettings(lag_ms=1_600, retry_ms=RETRY_MS, fetch_bytes_max=1000)
TIMEOUT_MS = parked_ms(SETTINGS) + 2 * RETRY_MS


@dataclass
class Log:
    """A log of 100 records of the epochs 1, 3 and 4."""

    start_offset: int = 0
    end_offset: int = 100
    durable_offset: int = 90
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(1, 0), (3, 40), (4, 70)])

    @property
    def last_epoch(self) -> int:
        return LeaderEpochs(self.epochs).latest

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        return LeaderEpochs(self.epochs).end_offset(epoch, log_end=self.end_offset)


def following(log: Log) -> Following:
    fact = PartitionFact(b"t", 0, (1, 2), (1, 2), leader=1, leader_epoch=6)
    return Following(log, fact, SETTINGS)


def ask(one: Following, now_ms: int = 0) -> ReplicaFetch:
    fetch = one.fetch(now_ms)
    assert fetch is not None
    return fetch


def answer(
    fetch: ReplicaFetch, status: FetchStatus = FetchStatus.OK, **fields: Any
) -> ReplicaFetched:
    values: dict[str, Any] = {
        "topic_id": b"t",
        "partition": 0,
        "request": fetch.request,
        "leader_epoch": fetch.leader_epoch,
        "last_epoch": fetch.last_epoch,
        "offset": fetch.offset,
        "status": status,
        "high_watermark": 80,
        "start_offset": 10,
        "restart_offset": 8,
        **fields,
    }
    return ReplicaFetched(**values)


def diverging(log: Log, epoch: int, end: int) -> Any:
    one = following(log)
    fetch = ask(one)
    reply = answer(fetch, FetchStatus.DIVERGING, diverging_epoch=epoch, diverging_end=end)
    (effect,) = one.received(reply, b"", 0)
    assert one.fetch(10_000) is None, "nothing is asked before the log is cut"
    one.truncated()
    assert one.fetch(10_000) is not None
    return effect


def test_a_question_names_the_last_epoch_and_what_is_durable() -> None:
    fetch = ask(following(Log()))
    assert (fetch.last_epoch, fetch.offset, fetch.durable_offset) == (4, 100, 90)
    assert fetch.leader_epoch == 6


def test_one_question_is_out_at_a_time_and_is_given_up_in_the_end() -> None:
    one = following(Log())
    first = ask(one)
    assert one.fetch(TIMEOUT_MS - 1) is None
    second = ask(one, TIMEOUT_MS)
    assert one.received(answer(first), b"batches", TIMEOUT_MS) == []
    assert one.received(answer(second), b"batches", TIMEOUT_MS) != []


def test_batches_are_stored_before_the_leaders_word_on_them() -> None:
    one = following(Log())
    effects = one.received(answer(ask(one)), b"batches", 0)
    assert effects == [Append(b"batches"), Follow(high_watermark=80, start_offset=10)]


def test_an_answer_counts_once() -> None:
    one = following(Log())
    reply = answer(ask(one))
    one.received(reply, b"batches", 0)
    ask(one)
    assert one.received(reply, b"batches", 0) == []


@pytest.mark.parametrize("field_name", ["request", "leader_epoch", "last_epoch", "offset"])
def test_an_answer_to_another_question_is_passed_over(field_name: str) -> None:
    one = following(Log())
    fetch = ask(one)
    other = getattr(fetch, field_name) + 1
    assert one.received(answer(fetch, **{field_name: other}), b"batches", 0) == []


@pytest.mark.parametrize(
    ("epoch", "end", "cut"),
    [
        (4, 90, 90),  # the leader has less of the same epoch
        (3, 60, 60),  # and of an earlier one
        (3, 75, 70),  # more than this follower has
        (2, 50, 40),  # of an epoch that this follower has never seen
        (1, 40, 40),
    ],
)
def test_a_diverging_log_is_cut_where_both_agree(epoch: int, end: int, cut: int) -> None:
    assert diverging(Log(), epoch, end) == Truncate(cut)


def test_a_follower_that_shares_nothing_begins_with_the_leaders_first_batch() -> None:
    assert diverging(Log(), -1, -1) == Restart(8)


def test_a_log_whose_beginning_was_deleted_keeps_its_place() -> None:
    log = Log(start_offset=70, epochs=[(4, 70)])
    assert diverging(log, 3, 80) == Truncate(70)


def test_unless_the_leader_never_came_so_far() -> None:
    log = Log(start_offset=70, epochs=[(4, 70)])
    assert diverging(log, 3, 60) == Restart(8)


def test_a_follower_that_is_far_behind_begins_anew() -> None:
    one = following(Log())
    reply = answer(ask(one), FetchStatus.BELOW_START, start_offset=500, restart_offset=480)
    assert one.received(reply, b"", 0) == [Restart(480)]


@pytest.mark.parametrize(
    "status",
    [
        FetchStatus.FENCED_EPOCH,
        FetchStatus.UNKNOWN_EPOCH,
        FetchStatus.NOT_LEADER,
        FetchStatus.UNKNOWN_REPLICA,
        FetchStatus.DAMAGED,
    ],
)
def test_a_refusal_is_asked_again_after_a_while(status: FetchStatus) -> None:
    one = following(Log())
    assert one.received(answer(ask(one), status), b"", 0) == []
    assert one.fetch(RETRY_MS - 1) is None
    assert one.fetch(RETRY_MS) is not None


def test_what_becomes_durable_is_reported_when_a_question_is_out() -> None:
    log = Log()
    one = following(log)
    one.received(answer(ask(one)), b"", 0)
    log.durable_offset = 95
    assert one.report() is None, "the next question says it"
    ask(one)
    assert one.report() is None, "it has said it"
    log.durable_offset = 100
    report = one.report()
    assert report is not None
    assert (report.durable_offset, report.leader_epoch) == (100, 6)
    assert one.report() is None


def test_nothing_is_reported_before_the_logs_were_compared() -> None:
    log = Log()
    one = following(log)
    ask(one)
    log.durable_offset = 100
    assert one.report() is None


def test_a_follower_does_not_start_over_at_a_batch_that_its_leader_cannot_read() -> None:
    one = following(Log())
    reply = answer(
        ask(one),
        FetchStatus.DIVERGING,
        diverging_epoch=-1,
        diverging_end=0,
        restart_offset=-1,
    )
    assert one.received(reply, b"", 0) == []
    assert one.fetch(TIMEOUT_MS) is not None, "it asks again"
