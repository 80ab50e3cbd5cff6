"""Transactions in partitions that end without their coordinator, or are unknown to it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from goqueue.broker.topics.topics import Topics
from goqueue.broker.transactions.markers import Ending, Markers
from goqueue.loop.promise import Promise
from goqueue.model.errors import GoQueueError, InvalidTransactionState, UnknownPartition
from goqueue.model.names import ProducerIdentity, TopicPartition
from goqueue.partition import Partition
from goqueue.transactions import TransactionState, TransactionView

_OPEN_STATES = frozenset(
    {
        TransactionState.ONGOING,
        TransactionState.PREPARED,
        TransactionState.PREPARE_COMMIT,
        TransactionState.PREPARE_ABORT,
    }
)

_log = logging.getLogger(__name__)

OfProducer = Callable[[int], TransactionView | None]
# Looks up a producer's transaction where several nodes coordinate.
Ask = Callable[[int], Promise[TransactionView | None]]
# Has the coordinator of a transactional id abort the transaction of an identity.
Abort = Callable[[str, ProducerIdentity], Promise[None]]
MarkerErrors = Mapping[TopicPartition, GoQueueError | None]


class Strays:
    def __init__(
        self,
        topics: Topics,
        markers: Markers,
        of_producer: OfProducer,
        ask: Ask,
        *,
        abort: Abort,
    ) -> None:
        self._abort = abort
        self._topics = topics
        self._markers = markers
        self._of_producer = of_producer
        self._ask = ask

    def write_markers(
        self,
        identity: ProducerIdentity,
        partitions: Sequence[TopicPartition],
        *,
        is_commit: bool,
        coordinator_epoch: int,
    ) -> Promise[MarkerErrors]:
        """Write markers decided by another coordinator or an operator.

        If an operator aborts in one partition a transaction that a coordinator has open, the whole
        transaction is aborted: otherwise it would end in one partition and stay open in the others.
        """
        promise: Promise[MarkerErrors] = Promise()
        names = list(dict.fromkeys(partitions))

        def fail(error: Exception) -> None:
            if isinstance(error, GoQueueError):
                promise.resolve(dict.fromkeys(names, error))
            else:
                promise.reject(error)

        def asked(view: TransactionView | None, error: Exception | None) -> None:
            known = [] if view is None else [one for one in names if _is_open_in(view, one)]
            if error is not None:
                fail(error)
            elif view is not None and known and not is_commit:
                self._abort(view.transactional_id, identity).then(partial(aborted, known))
            else:
                write(names, {}, view)

        def aborted(known: list[TopicPartition], _: None, error: Exception | None) -> None:
            if error is not None:
                fail(error)
            else:
                others = [one for one in names if one not in known]
                write(others, dict.fromkeys(known), None)

        def write(
            left: list[TopicPartition],
            results: dict[TopicPartition, GoQueueError | None],
            view: TransactionView | None,
        ) -> None:
            ending = Ending(identity, is_commit, coordinator_epoch, turn=0)
            self._write_all(left, ending, view, promise, results)

        if names:
            self._ask(identity.producer_id).then(asked)
        else:
            promise.resolve({})
        return promise

    def _write_all(
        self,
        names: list[TopicPartition],
        ending: Ending,
        view: TransactionView | None,
        promise: Promise[MarkerErrors],
        results: dict[TopicPartition, GoQueueError | None],
    ) -> None:
        """Write markers; resolve with the results so far and those of these markers."""
        count = len(results) + len(names)
        if not names:
            promise.resolve(results)
        for name in names:

            def marked(error: GoQueueError | None, name: TopicPartition = name) -> None:
                results[name] = error
                if len(results) == count:
                    promise.resolve(results)

            try:
                partition = self._partition(name, view)
            except GoQueueError as error:
                marked(error)
                continue
            self._markers.write(partition, ending, marked=marked)

    def _partition(self, name: TopicPartition, view: TransactionView | None) -> Partition:
        """A partition in which someone other than the coordinator may end a producer's
        transaction.
        """
        topic = self._topics.find(name.topic)
        if topic is None or not 0 <= name.partition < len(topic.partitions):
            raise UnknownPartition(name)
        if view is not None and _is_open_in(view, name):
            # It would end in one partition and stay open in the others.
            raise InvalidTransactionState(
                f"The transaction of {view.transactional_id!r} has a coordinator ({view.state}); "
                "abort it by its transactional id."
            )
        return topic.partitions[name.partition]

    def end_orphans(self) -> None:
        """End transactions open in a partition but unknown to any coordinator, or readers wait
        forever.

        Participants are persisted before their first record, so this happens only when a disk lost
        writes that were not yet synced. All coordinators are on this node; in a cluster, `Orphans`
        queries the others.
        """
        for topic in self._topics:
            for partition in topic.partitions:
                for one in list(partition.transactions):
                    view = self._of_producer(one.producer_id)
                    if view is None or not _is_open_in(view, partition.name):
                        identity = ProducerIdentity(one.producer_id, one.producer_epoch)
                        is_commit = _is_decided(partition, identity, view)
                        ending = Ending(identity, is_commit, partition.leader_epoch, turn=0)
                        self._markers.drive(partition.name, ending, done=_nothing)

    def end_if_orphan(
        self, partition: Partition, identity: ProducerIdentity, view: TransactionView | None
    ) -> None:
        """End a producer's open transaction in a partition led here, if no coordinator will.

        This makes one attempt; a caller that finds the transaction still open calls again.
        """
        if view is not None and _is_open_in(view, partition.name):
            return
        is_commit = _is_decided(partition, identity, view)
        known = partition.producers.get(identity.producer_id)
        epoch = 0 if known is None else max(0, known.coordinator_epoch)
        ending = Ending(identity, is_commit, epoch, turn=0)
        self._markers.write(partition, ending, marked=partial(_marked, partition))


def _is_decided(
    partition: Partition, identity: ProducerIdentity, view: TransactionView | None
) -> bool:
    """Whether to commit an orphan, because only its marker was lost."""
    # The producer's own commit ended this epoch.
    is_commit = (
        view is not None
        and view.state is TransactionState.COMPLETE_COMMIT
        and view.identity.epoch == identity.epoch + 1
    )
    _log.warning(
        "%s: an open transaction of producer %d has no coordinator, and is %s",
        partition.name,
        identity.producer_id,
        "committed" if is_commit else "aborted",
    )
    return is_commit


def _is_open_in(view: TransactionView, partition: TopicPartition) -> bool:
    return view.state in _OPEN_STATES and partition in view.partitions


def _nothing() -> None:
    """Do nothing: the producer is not there to be notified."""


def _marked(partition: Partition, error: GoQueueError | None) -> None:
    if error is not None:
        _log.warning(
            "%s: the transaction could not be ended; retrying later: %s", partition.name, error
        )
