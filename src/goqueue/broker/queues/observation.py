"""Reports the events of the delivery journal to an observer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from goqueue.delivery import Event
from goqueue.delivery.grants import Granted, Voided
from goqueue.delivery.ledger import DeadLettered, Done, Finish, Retried, Return, StoredLetter
from goqueue.delivery.ranges import Range, ranges_of
from goqueue.model.names import TopicPartition
from goqueue.model.observer import Observer, Outcome, Target

_OUTCOMES = {
    Finish.ACKED: Outcome.ACKED,
    Finish.EXPIRED: Outcome.EXPIRED,
    Finish.SKIPPED: Outcome.SKIPPED,
}
_RETURNS = {
    Return.NACKED: Outcome.NACKED,
    Return.LEASE_EXPIRED: Outcome.LEASE_EXPIRED,
    Return.REJECTED: Outcome.REJECTED,
}


class Observation(NamedTuple):
    """An observer of queue groups, and what it needs besides the events."""

    observer: Observer
    ahead_ms: Callable[[], int]  # of the clock of deliveries, before the wall clock
    topic_name: Callable[[bytes], str]  # by id; empty if it is unknown

    def report(self, group: str, partition: TopicPartition, events: Iterable[Event]) -> None:
        """Report committed events of one partition; other kinds of events change no message."""
        observer = self.observer
        for event in events:
            if isinstance(event, Granted):
                for attempt, ranges in _by_attempt(event):
                    observer.delivered(
                        group, partition, ranges, consumer=event.consumer, attempt=attempt
                    )
            elif isinstance(event, Done):
                observer.settled(group, partition, event.ranges, outcome=_OUTCOMES[event.why])
            elif isinstance(event, Retried) and event.returned:
                self._report_returned(group, partition, event)
            elif isinstance(event, Voided) and event.offsets:
                ranges = ranges_of(sorted(event.offsets))
                observer.settled(group, partition, ranges, outcome=Outcome.RELEASED)
            elif isinstance(event, DeadLettered):
                topic = self.topic_name(event.topic_id)
                for run in _runs(event.letters):
                    first, count = run[0], len(run)
                    observer.dead_lettered(
                        group,
                        partition,
                        [(first.offset, first.offset + count)],
                        reason=first.reason,
                        target=Target(TopicPartition(topic, first.partition), first.position),
                    )

    def _report_returned(self, group: str, partition: TopicPartition, event: Retried) -> None:
        """Report returned messages, together if they are due at the same time."""
        due, ahead_ms = dict(event.retries), self.ahead_ms()
        by_kind: dict[tuple[Return, int], list[int]] = {}
        for offset, why in event.returned:
            by_kind.setdefault((why, due[offset].due_ms), []).append(offset)
        for (why, due_ms), offsets in by_kind.items():
            self.observer.settled(
                group,
                partition,
                ranges_of(sorted(offsets)),
                outcome=_RETURNS[why],
                due_ms=due_ms - ahead_ms if due_ms else 0,
            )


def _by_attempt(event: Granted) -> list[tuple[int, list[Range]]]:
    """Return the messages of a lease by delivery attempt; most are first deliveries."""
    offsets, attempts = event.offsets, event.attempts
    first = attempts[0]
    if attempts.count(first) == len(attempts):
        if isinstance(offsets, range):
            return [(first, [(offsets[0], offsets[-1] + 1)])]
        return [(first, ranges_of(sorted(offsets)))]
    found: dict[int, list[int]] = {}
    for offset, attempt in zip(offsets, attempts, strict=True):
        found.setdefault(attempt, []).append(offset)
    return [(attempt, ranges_of(sorted(some))) for attempt, some in found.items()]


def _runs(letters: Sequence[StoredLetter]) -> list[list[StoredLetter]]:
    """Split letters where the messages or their dead letters are not contiguous."""
    runs: list[list[StoredLetter]] = []
    for one in letters:
        last = runs[-1][-1] if runs else None
        is_next = (
            last is not None
            and one.offset == last.offset + 1
            and one.reason == last.reason
            and (one.position == last.position + 1 or one.position == last.position == -1)
        )
        if is_next:
            runs[-1].append(one)
        else:
            runs.append([one])
    return runs
