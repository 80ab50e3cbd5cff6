"""Acknowledging messages of a queue group in a transaction.

Such a message leaves its consumer and belongs to the transaction: it is not delivered, it cannot
time out, and the end of the transaction decides. A commit makes it done; an abort makes it
deliverable at once, like a nack without a delay, and counts as a delivery like one.
"""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.broker.queues.groups import QueueGroups
from goqueue.broker.queues.host import HostedGroup, HostedQueue
from goqueue.broker.queues.hosting import QueueHosts
from goqueue.broker.queues.queues import Outcomes, check_receipts, route
from goqueue.delivery import LedgerKey, Preparation
from goqueue.delivery.ranges import ranges_of
from goqueue.loop.promise import Promise
from goqueue.model.errors import GoQueueError
from goqueue.model.names import ProducerIdentity
from goqueue.model.observer import Outcome
from goqueue.partition import Partition


class TransactionalAcks:
    """The transactional acks of all queue groups of the node."""

    def __init__(self, hosts: QueueHosts, groups: QueueGroups) -> None:
        self._hosts = hosts
        self._groups = groups

    def participant(self, name: str) -> Partition:
        """Return the partition that a transaction with acks of a group must include."""
        return self._hosts.journal.partition_of(self._groups.get(name).id)

    def prepare(
        self, name: str, receipts: Sequence[str], identity: ProducerIdentity
    ) -> Promise[Outcomes]:
        """Hand messages over to a transaction; return the outcomes when they are durable.

        The messages are done when it commits, and are redelivered when it aborts. Either everything
        that may be acknowledged is, or, if an error is raised, nothing.
        """
        check_receipts(receipts)
        group = self._groups.owned(name)
        self._hosts.check_open(group)
        outcomes: Outcomes = [None] * len(receipts)
        plans = self._plan(group, receipts, identity, outcomes)
        events = {
            LedgerKey(group.id, hosted.topic_id, number): event
            for hosted, plan in plans.items()
            for number, event in plan.events
        }
        promise: Promise[Outcomes] = Promise()
        shard = group.shard
        if shard is None or not events:
            if shard is None or shard.is_alone:
                promise.resolve(outcomes)
            else:
                # An owner that was replaced without noticing must not refuse anything.
                shard.prove().then(
                    lambda _, error: promise.settle(None if error is not None else outcomes, error)
                )
            return promise
        last_offset = shard.prepare(events, identity)
        for hosted, plan in plans.items():
            hosted.queue.transactions.prepare(plan)
            hosted.settle()

        def committed(error: GoQueueError | None) -> None:
            promise.settle(None if error is not None else outcomes, error)

        shard.partition.when_committed(last_offset, committed)
        return promise

    def _plan(
        self,
        group: HostedGroup,
        receipts: Sequence[str],
        identity: ProducerIdentity,
        outcomes: Outcomes,
    ) -> dict[HostedQueue, Preparation]:
        now_ms = self._hosts.clock.now_ms()
        plans: dict[HostedQueue, Preparation] = {}
        for hosted, places in route(list(group.queues.values()), receipts, outcomes).items():
            some = [receipts[place] for place in places]
            plan = plans[hosted] = hosted.queue.transactions.plan(
                now_ms, some, identity.producer_id
            )
            for place, settled in zip(places, plan.settled, strict=True):
                outcomes[place] = settled.error
        return plans

    def ended(self, partition: Partition, producer_id: int, is_commit: bool, offset: int) -> None:
        """Carry out what a committed marker in a journal partition decides."""
        shard = self._hosts.journal.find(partition.name.partition)
        if shard is None or shard.partition is not partition:
            return
        queues: dict[HostedQueue, None] = {}
        for key in shard.ended(producer_id):
            group = self._hosts.by_id.get(key.group)
            for hosted in () if group is None else group.queues.values():
                if hosted.topic_id == key.topic_id:
                    queues[hosted] = None
        now_ms = self._hosts.clock.now_ms()
        for hosted in queues:
            self._observe(hosted, producer_id, is_commit=is_commit)
            hosted.queue.transactions.end(producer_id, now_ms, is_commit=is_commit)
            hosted.settle()
            hosted.wake()
        observer = self._hosts.observer
        if observer is not None:
            observer.reported(partition.name, offset + 1)

    def _observe(self, hosted: HostedQueue, producer_id: int, *, is_commit: bool) -> None:
        """Report the messages that the end of a transaction settles."""
        observer = self._hosts.observer
        if observer is None:
            return
        outcome = Outcome.ACKED if is_commit else Outcome.ABORTED
        for number, partition in enumerate(hosted.queue.partitions):
            offsets = sorted(partition.ledger.prepared.get(producer_id, ()))
            if offsets:
                ranges = ranges_of(offsets)
                observer.settled(hosted.group, hosted.name_of(number), ranges, outcome=outcome)
