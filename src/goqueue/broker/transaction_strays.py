"""Transactions in partitions whose coordinator is not asked, or does not know of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from goqueue.broker.promise import Promise
from goqueue.broker.topics import Topics
from goqueue.broker.transaction_markers import Markers
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
MarkerErrors = Mapping[TopicPartition, GoQueueError | None]


class Strays:
    def __init__(self, topics: Topics, markers: Markers, of_producer: OfProducer) -> None:
        self._topics = topics
        self._markers = markers
        self._of_producer = of_producer

    def write_markers(
        self,
        identity: ProducerIdentity,
        partitions: Sequence[TopicPartition],
        *,
        is_commit: bool,
        coordinator_epoch: int,
    ) -> Promise[MarkerErrors]:
        """Another coordinator's decision, or an operator's about a transaction nobody knows."""
        results: dict[TopicPartition, GoQueueError | None] = {}
        promise: Promise[MarkerErrors] = Promise()
        names = list(dict.fromkeys(partitions))
        if not names:
            promise.resolve(results)
        for name in names:

            def marked(error: GoQueueError | None, name: TopicPartition = name) -> None:
                results[name] = error
                if len(results) == len(names):
                    promise.resolve(results)

            try:
                partition = self._partition(name, identity)
            except GoQueueError as error:
                marked(error)
                continue
            self._markers.write(
                partition,
                identity,
                is_commit=is_commit,
                coordinator_epoch=coordinator_epoch,
                marked=marked,
            )
        return promise

    def _partition(self, name: TopicPartition, identity: ProducerIdentity) -> Partition:
        """A partition in which somebody else may end the transaction of a producer."""
        topic = self._topics.find(name.topic)
        if topic is None or not 0 <= name.partition < len(topic.partitions):
            raise UnknownPartition(name)
        view = self._of_producer(identity.producer_id)
        if view is not None and _is_open_in(view, name):
            # It would end in one place and stay open in the others.
            raise InvalidTransactionState(
                f"The transaction of {view.transactional_id!r} is known here ({view.state}); abort "
                "it by its transactional id."
            )
        return topic.partitions[name.partition]

    def end_orphans(self) -> None:
        """End what is open in a partition and known to no coordinator, or readers wait for ever.

        Participants are written down before their first record, so this takes a disk that lost
        what it had not been asked to sync. All coordinators are on this node; where they are not,
        theirs would have to be asked.
        """
        for topic in self._topics:
            for partition in topic.partitions:
                for one in list(partition.transactions):
                    view = self._of_producer(one.producer_id)
                    if view is None or not _is_open_in(view, partition.name):
                        identity = ProducerIdentity(one.producer_id, one.producer_epoch)
                        self._end_orphan(partition, identity, view)

    def _end_orphan(
        self, partition: Partition, identity: ProducerIdentity, view: TransactionView | None
    ) -> None:
        # A producer whose own commit has ended this epoch has lost only the marker.
        is_commit = (
            view is not None
            and view.state is TransactionState.COMPLETE_COMMIT
            and view.identity.epoch == identity.epoch + 1
        )
        _log.warning(
            "%s: an open transaction of producer %d is unknown, and is %s",
            partition.name,
            identity.producer_id,
            "committed" if is_commit else "aborted",
        )
        self._markers.drive(
            partition.name,
            identity,
            is_commit=is_commit,
            coordinator_epoch=partition.leader_epoch,
            done=_nothing,
        )


def _is_open_in(view: TransactionView, partition: TopicPartition) -> bool:
    return view.state in _OPEN_STATES and partition in view.partitions


def _nothing() -> None:
    """Whoever had it open is not there to be told."""
