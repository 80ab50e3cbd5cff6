"""Reports the events of the delivery journal to an observer."""

from __future__ import annotations

from collections.abc import Iterable

from goqueue.delivery import Event
from goqueue.delivery.grants import Granted, Voided
from goqueue.delivery.ledger import DeadLettered, Done, Finish, Retried
from goqueue.delivery.ranges import ranges_of
from goqueue.model.names import TopicPartition
from goqueue.model.observer import Observer, Outcome

_OUTCOMES = {
    Finish.ACKED: Outcome.ACKED,
    Finish.EXPIRED: Outcome.EXPIRED,
    Finish.SKIPPED: Outcome.SKIPPED,
}


def observe(
    observer: Observer, group: str, partition: TopicPartition, events: Iterable[Event]
) -> None:
    """Report committed events of one partition; other kinds of events change no message."""
    for event in events:
        if isinstance(event, Granted):
            ranges = ranges_of(sorted(event.offsets))
            observer.delivered(group, partition, ranges, consumer=event.consumer)
        elif isinstance(event, Done):
            observer.settled(group, partition, event.ranges, outcome=_OUTCOMES[event.why])
        elif isinstance(event, Retried) and event.returned:
            ranges = ranges_of(sorted(event.returned))
            observer.settled(group, partition, ranges, outcome=Outcome.RETRIED)
        elif isinstance(event, Voided) and event.offsets:
            ranges = ranges_of(sorted(event.offsets))
            observer.settled(group, partition, ranges, outcome=Outcome.RELEASED)
        elif isinstance(event, DeadLettered):
            observer.dead_lettered(group, partition, event.ranges)
