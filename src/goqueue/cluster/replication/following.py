"""The follower's side: fetch what follows its own end, and truncate what the leader lacks.

Each fetch names the epoch of the last batch and the offset after it. These two show the leader
whether the follower's log is a prefix of its own, because no two leaders share an epoch and none
rewrites what it has written. If it is not, the leader returns the end of the newest epoch that both
may have, and the follower truncates its log there and fetches again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from goqueue.cluster.facts import PartitionFact
from goqueue.cluster.replication.messages import (
    FetchStatus,
    ReplicaFetch,
    ReplicaFetched,
    ReplicaReport,
)
from goqueue.config import ReplicationSettings

PARKED_MS_MAX = 5_000  # longest time that a fetch at the end of an idle log is parked


def parked_ms(settings: ReplicationSettings) -> int:
    """Return how long a leader parks a fetch at the end of an idle log.

    A follower with a parked fetch must answer several times before it counts as lagging.
    """
    return min(PARKED_MS_MAX, settings.lag_ms // 4)


class FollowerLog(Protocol):
    """The view of the local replica that following needs."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def durable_offset(self) -> int: ...

    @property
    def last_epoch(self) -> int: ...

    def epoch_end(self, epoch: int) -> tuple[int, int]: ...


@dataclass(frozen=True, slots=True)
class Append:
    """Append these batches of the leader."""

    batches: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    """Drop everything from `offset` on; `truncated` must follow."""

    offset: int


@dataclass(frozen=True, slots=True)
class Restart:
    """Drop the whole log and start again at `offset`; `truncated` must follow."""

    offset: int


@dataclass(frozen=True, slots=True)
class Follow:
    """The leader's high watermark and start offset."""

    high_watermark: int
    start_offset: int


Effect = Append | Truncate | Restart | Follow


class State(Enum):
    FETCHING = "fetching"
    TRUNCATING = "truncating"


class Following:
    """One replica following one leader in one epoch."""

    def __init__(
        self,
        log: FollowerLog,
        fact: PartitionFact,
        settings: ReplicationSettings,
        *,
        first_request: int = 0,
    ) -> None:
        """`first_request` differs per process, so that old answers are not taken for new ones."""
        self.leader = fact.leader
        self.leader_epoch = fact.leader_epoch
        self.version = fact.version  # of the partition, in this node's metadata
        self.state = State.FETCHING
        self.is_matching = False  # the leader has confirmed that it has everything that is here
        self._log = log
        self._topic_id, self._partition = fact.place
        self._bytes_max = settings.fetch_bytes_max
        self._timeout_ms = parked_ms(settings) + 2 * settings.retry_ms
        self._retry_ms = settings.retry_ms
        self._request = first_request
        self._asked: ReplicaFetch | None = None
        self._asked_ms = 0
        self._not_before_ms = 0
        self._told_durable = -1

    def repair(self, offset: int) -> Truncate:
        """Truncate at `offset`, from where the local log is damaged, to fetch the rest again."""
        self.state = State.TRUNCATING
        return Truncate(offset)

    # Requests

    def fetch(self, now_ms: int) -> ReplicaFetch | None:
        """Return the next fetch; None while one is in flight or something else comes first."""
        if self.state is not State.FETCHING or now_ms < self._not_before_ms:
            return None
        if self._asked is not None and now_ms - self._asked_ms < self._timeout_ms:
            return None
        self._request += 1
        self._asked_ms = now_ms
        self._told_durable = self._log.durable_offset
        self._asked = ReplicaFetch(
            topic_id=self._topic_id,
            partition=self._partition,
            request=self._request,
            leader_epoch=self.leader_epoch,
            last_epoch=self._log.last_epoch,
            offset=self._log.end_offset,
            durable_offset=self._told_durable,
            start_offset=self._log.start_offset,
            bytes_max=self._bytes_max,
            version=self.version,
        )
        return self._asked

    def report(self) -> ReplicaReport | None:
        """Report that more is durable than in the last fetch; None if the next fetch reports it.

        Before the leader has compared the logs, what is durable here may not be in the leader's
        log.
        """
        durable = self._log.durable_offset
        if not self.is_matching or self._asked is None or durable <= self._told_durable:
            return None
        self._told_durable = durable
        return ReplicaReport(
            topic_id=self._topic_id,
            partition=self._partition,
            leader_epoch=self.leader_epoch,
            durable_offset=durable,
            version=self.version,
        )

    # Answers

    def received(self, answer: ReplicaFetched, batches: bytes, now_ms: int) -> list[Effect]:
        """Return the effects of an answer; one to an earlier fetch is ignored."""
        if not self._is_awaited(answer):
            return []
        self._asked = None
        if answer.status is FetchStatus.OK:
            self.is_matching = True
            news: list[Effect] = [Append(batches)] if batches else []
            return [*news, Follow(answer.high_watermark, answer.start_offset)]
        if answer.status is FetchStatus.DIVERGING:
            effect = self._cut(answer)
        elif answer.status is FetchStatus.BELOW_START:
            effect = self._restart(answer)
        else:
            # One of the two nodes has stale metadata; that resolves itself as it applies the log.
            effect = None
        if effect is None:
            self._not_before_ms = now_ms + self._retry_ms
            return []
        self.state = State.TRUNCATING
        return [effect]

    def failed(self, now_ms: int) -> None:
        """Retry later: the fetch could not be sent, or its answer could not be stored."""
        self._asked = None
        self._not_before_ms = now_ms + self._retry_ms

    def truncated(self) -> None:
        """Note that the truncation of the last answer is done."""
        assert self.state is State.TRUNCATING
        self.state = State.FETCHING

    def _is_awaited(self, answer: ReplicaFetched) -> bool:
        asked = self._asked
        return asked is not None and (
            answer.request,
            answer.leader_epoch,
            answer.last_epoch,
            answer.offset,
        ) == (asked.request, asked.leader_epoch, asked.last_epoch, asked.offset)

    def _cut(self, answer: ReplicaFetched) -> Effect | None:
        """Truncate to where both logs agree on the newest epoch that both may have.

        A log that starts later than that keeps its start offset, empty: what was deleted before it
        was committed, and its offsets are not reused. A follower starts over only if the leader
        never had those offsets or has deleted more.
        """
        log = self._log
        own_epoch, own_end = log.epoch_end(answer.diverging_epoch)
        target = min(own_end if own_epoch >= 0 else log.start_offset, answer.diverging_end)
        if answer.diverging_epoch < 0 or target < log.start_offset:
            return self._restart(answer)
        return Truncate(target)

    def _restart(self, answer: ReplicaFetched) -> Effect | None:
        """Start over at the leader's first batch; None while it cannot read that."""
        return Restart(answer.restart_offset) if answer.restart_offset >= 0 else None
