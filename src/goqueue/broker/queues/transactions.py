"""Acknowledging messages of a queue group in a transaction.

Such a message leaves its consumer and belongs to the transaction: it is not delivered, it cannot
time out, and the end of the transaction decides. A commit makes it done; an abort makes it
deliverable at once, like a nack without a delay, and counts as a delivery like one.
"""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.broker.queues.host import HostedQueue
from goqueue.broker.queues.hosting import HostedGroup, QueueHosts
from goqueue.broker.queues.settling import Outcomes, route
from goqueue.delivery import LedgerKey, Preparation
from goqueue.delivery.ranges import ranges_of
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise
from goqueue.model.errors import GoQueueError
from goqueue.model.names import ProducerIdentity
from goqueue.model.observer import Outcome
from goqueue.partition import Partition


class TransactionalAcks:
    """The transactional acks of all queue groups of the node."""

    def __init__(self, clock: Clock, hosts: QueueHosts) -> None:
        self._clock = clock
        self._hosts = hosts

    def participant(self, group: HostedGroup) -> Partition:
        """Return the partition that a transaction must include before it acknowledges."""
        return self._hosts.journal.partition_of(group.id)

    def prepare(
        self, group: HostedGroup, receipts: Sequence[str], identity: ProducerIdentity
    ) -> Promise[Outcomes]:
        """Hand messages over to a transaction; return the outcomes when they are durable.

        Either everything that may be acknowledged is, or, if an error is raised, nothing.
        """
        outcomes: Outcomes = [None] * len(receipts)
        plans = self._plan(group, receipts, identity, outcomes)
        events = {
            LedgerKey(group.id, hosted.topic_id, number): event
            for hosted, plan in plans.items()
            for number, event in plan.events
        }
        promise: Promise[Outcomes] = Promise()
        journal = self._hosts.journal
        if not events:
            if self._hosts.leaders is None:
                promise.resolve(outcomes)
            else:
                # An owner that was replaced without noticing must not refuse anything.
                journal.prove(group.id).then(
                    lambda _, error: promise.settle(None if error is not None else outcomes, error)
                )
            return promise
        last_offset = journal.prepare(group.id, events, identity)
        for hosted, plan in plans.items():
            hosted.queue.transactions.prepare(plan)
            hosted.settle()

        def committed(error: GoQueueError | None) -> None:
            promise.settle(None if error is not None else outcomes, error)

        journal.partition_of(group.id).when_committed(last_offset, committed)
        return promise

    def _plan(
        self,
        group: HostedGroup,
        receipts: Sequence[str],
        identity: ProducerIdentity,
        outcomes: Outcomes,
    ) -> dict[HostedQueue, Preparation]:
        now_ms = self._clock.now_ms()
        plans: dict[HostedQueue, Preparation] = {}
        for hosted, places in route(list(group.queues.values()), receipts, outcomes).items():
            some = [receipts[place] for place in places]
            plan = plans[hosted] = hosted.queue.transactions.plan(
                now_ms, some, identity.producer_id
            )
            for place, settled in zip(places, plan.settled, strict=True):
                outcomes[place] = settled.error
        return plans

    def ended(self, partition: Partition, producer_id: int, *, is_commit: bool) -> None:
        """Carry out what a committed marker in a journal partition decides."""
        touched = self._hosts.journal.ended(partition, producer_id)
        groups = {group.id: group for group in self._hosts.groups.values()} if touched else {}
        queues: dict[HostedQueue, None] = {}
        for key in touched:
            group = groups.get(key.group)
            hosted = group.queues.get(key.topic_id) if group is not None else None
            if hosted is not None:
                queues[hosted] = None
        now_ms = self._clock.now_ms()
        for hosted in queues:
            self._observe(hosted, producer_id, is_commit=is_commit)
            hosted.queue.transactions.end(producer_id, now_ms, is_commit=is_commit)
            hosted.settle()
            hosted.wake()

    def _observe(self, hosted: HostedQueue, producer_id: int, *, is_commit: bool) -> None:
        """Report the messages that the end of a transaction settles."""
        observer = self._hosts.observer
        if observer is None:
            return
        outcome = Outcome.ACKED if is_commit else Outcome.RETRIED
        for number, partition in enumerate(hosted.queue.partitions):
            offsets = sorted(partition.ledger.prepared.get(producer_id, ()))
            if offsets:
                ranges = ranges_of(offsets)
                observer.settled(hosted.group, hosted.name_of(number), ranges, outcome=outcome)
