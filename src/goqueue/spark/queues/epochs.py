"""Receives the messages of an epoch, and holds them until Spark has committed it.

Messages are received and immediately acknowledged in a broker transaction, which stays prepared. So
they are held by the epoch, not by a lease: nobody else receives them, even if the driver or the
broker is killed, until the idempotent call that commits the epoch, or until the time for which the
query may hold them has passed. Then they are redelivered.
"""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from goqueue.client.http import QueueGroup, ReceivedMessage, RetrySettings
from goqueue.client.http.requests.groups import GroupRequests
from goqueue.client.http.requests.queries import QueryRequests
from goqueue.client.http.requests.queues import QueueRequests
from goqueue.client.http.requests.topics import TopicRequests
from goqueue.client.http.requests.transactions import InTransaction, TransactionRequests
from goqueue.client.http.transport import Transport
from goqueue.model.errors import (
    FencedProducer,
    GoQueueError,
    GroupKindMismatch,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionState,
    UnknownGroup,
    UnknownTopic,
    UnknownTransaction,
)
from goqueue.model.names import TopicPartition
from goqueue.model.queries import PREFIX, Attempt
from goqueue.spark.access import Access
from goqueue.spark.connecting import PATIENCE_MS, http_settings, http_url
from goqueue.spark.queues.offsets import MessagePosition, QueueOffset
from goqueue.spark.queues.options import QueueOptions

PAGE_MESSAGES = 1_000  # per call
LEASE_S = 60  # from receiving a message to having it in the transaction
OPEN_S = 120  # maximum time to assemble an epoch
IDLE_WAIT_S = 0.25  # how long a plan waits for the first message
# A broker restart must not end a query. Waits are random, up to a second, half on average.
_RETRIES_MAX = 2 * PATIENCE_MS // 1000
_BACKOFF_MS_MAX = 1_000
_PAUSE_S = 0.5
# Errors that mean that a transaction has ended and its messages are available again.
GIVEN_BACK = (
    FencedProducer,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    UnknownTransaction,
)

_log = logging.getLogger(__name__)


class Held(NamedTuple):
    """The messages of a new epoch, and the transaction that holds them."""

    run: int
    transaction: str
    positions: list[MessagePosition]


def carrier(http: str, access: Access) -> Transport:
    """Return a connection to the HTTP API that retries for a long time."""
    retry = RetrySettings(retries_max=_RETRIES_MAX, backoff_ms_max=_BACKOFF_MS_MAX)
    return Transport(http_url(http, access), http_settings(access, retry))


def commit_epoch(carrier: Transport, offset: QueueOffset) -> None:
    """Acknowledge the messages of an epoch. Idempotent, from any process.

    A transaction that no longer exists was committed long ago or has returned its messages. These
    are redelivered, as at-least-once delivery allows, which is no reason to stop a query.
    """
    if not offset.transaction:
        return
    request = QueryRequests().commit(
        offset.query, offset.epoch, run=offset.run, transactions=[offset.transaction]
    )
    try:
        carrier.send(request)
    except GIVEN_BACK as error:
        _log.warning(
            "The %d messages of epoch %d come to group %r again: they were held for longer than "
            "queue.hold allows, or given back by hand (%s)",
            offset.count,
            offset.epoch,
            offset.group,
            error,
        )


class QueueEpochs:
    """The driver's calls on one queue group."""

    def __init__(
        self,
        carrier: Transport,
        options: QueueOptions,
        *,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._carrier = carrier
        self._options = options
        self._now_s = now_s
        self._sleep = sleep
        self._turn = 0  # which topic is received from first
        self._runs: dict[str, int] = {}
        # One name for all epochs: messages left by a killed driver do not count against another.
        self._consumer = f"spark-{uuid.uuid4().hex[:12]}"

    def close(self) -> None:
        self._carrier.close()

    # The group

    def check_group(self) -> None:
        """Raise an error that says what to change if the group cannot be read this way."""
        name = self._options.group
        try:
            found = self._carrier.send(GroupRequests().describe(name))
        except UnknownGroup as error:
            raise InvalidRequest(
                f"There is no queue group {name!r}; make it with `goqueue queue configure {name}`, "
                "so that its settings are what you mean them to be."
            ) from error
        if not isinstance(found, QueueGroup):
            raise GroupKindMismatch(name, is_queue=False)
        if found.settings.key_order:
            raise InvalidRequest(
                f"Group {name!r} keeps the order of keys (key_order): an epoch would hold one "
                "message of each key, and the tasks of Spark keep no order. Use a group without "
                "key_order, or read the topic as a stream of offsets (without queue.group)."
            )

    def waiting_count(self) -> int:
        """Return the number of messages that the group has yet to deliver, now or as retries."""
        found = 0
        for topic in self._options.read.topics:
            with contextlib.suppress(InvalidRequest):  # It has not received from that topic yet.
                stats = self._carrier.send(self._requests(topic).stats())
                found += stats.ready + stats.retrying
        return found

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Return topic ids, which distinguish topics from recreated ones of the same name."""
        return {one: self._carrier.send(TopicRequests().describe(one)).id for one in topics}

    # Epochs

    def take(self, query: str, epoch: int, messages_max: int, *, waits: bool) -> Held | None:
        """Receive and hold the messages of an epoch; None when there are none.

        Waits for a broker that restarts in the middle, and assembles the epoch anew.
        """
        deadline_s = self._now_s() + PATIENCE_MS / 1000
        while True:
            try:
                return self._try_take(query, epoch, messages_max, waits=waits)
            except GoQueueError as error:
                may_pass = error.retryable and not isinstance(error, UnknownTopic)
                if not may_pass or self._now_s() > deadline_s:
                    raise
                _log.warning("An epoch is put together again: %s", error)
                self._sleep(_PAUSE_S)

    def _try_take(self, query: str, epoch: int, messages_max: int, *, waits: bool) -> Held | None:
        pages = _Pages(self._receive, self._topics_in_turn(), messages_max)
        page = pages.next()
        if not page and waits:
            pages = _Pages(self._receive, self._topics_in_turn(), messages_max)
            page = pages.next(IDLE_WAIT_S)
        if not page:
            return None
        run = self._run_of(query)
        attempt = Attempt(query, run, epoch, uuid.uuid4().hex[:16])
        begun = self._carrier.send(QueryRequests().begin(attempt, timeout=OPEN_S))
        positions: list[MessagePosition] = []
        try:
            while page:
                positions += self._hold(begun.id, page)
                page = pages.next()
            if positions:
                hold_s = self._options.hold_ms / 1000
                self._carrier.send(QueryRequests().prepare(begun.id, timeout=hold_s))
                return Held(run, begun.id, positions)
        except BaseException:
            self.release(begun.id)
            raise
        self.release(begun.id)  # All leases ended before the transaction could take the messages.
        return None

    def commit(self, offset: QueueOffset) -> None:
        commit_epoch(self._carrier, offset)

    def _hold(self, transaction: str, page: Sequence[ReceivedMessage]) -> list[MessagePosition]:
        """Acknowledge messages in the transaction; return those that it now holds."""
        receipts = [one.receipt for one in page]
        request = InTransaction(transaction).ack(self._options.group, receipts)
        outcomes = self._carrier.send(request)
        return [
            MessagePosition(
                TopicPartition(one.topic, one.partition), one.offset, one.attempt, one.priority
            )
            for one, error in zip(page, outcomes, strict=True)
            if error is None
        ]

    def release(self, transaction: str) -> None:
        """Make the messages of a transaction available again, at once or when it times out."""
        with contextlib.suppress(GoQueueError):
            self._carrier.send(TransactionRequests().abort(transaction))

    def release_others(self, query: str, kept: str) -> None:
        """Release messages that a previous instance of the query took but did not checkpoint."""
        for one in self._carrier.send(TransactionRequests().list_all(prefix=f"{PREFIX}{query}~")):
            if one.id != kept and one.state in ("ongoing", "prepared"):
                self.release(one.id)

    def _run_of(self, query: str) -> int:
        """Return the run, which is named like the query: a restarted driver has the same run."""
        if query not in self._runs:
            opened = self._carrier.send(QueryRequests().open(query, run_name=query))
            self._runs[query] = opened.run
        return self._runs[query]

    # Receiving

    def _requests(self, topic: str) -> QueueRequests:
        return QueueRequests(topic, self._options.group, self._consumer)

    def _receive(self, topic: str, count: int, wait_s: float) -> list[ReceivedMessage]:
        request = self._requests(topic).receive(
            min(count, PAGE_MESSAGES), wait=wait_s, visibility=LEASE_S, bodies=False
        )
        return self._carrier.send(request)

    def _topics_in_turn(self) -> list[str]:
        topics = self._options.read.topics
        self._turn = (self._turn + 1) % len(topics)
        return [*topics[self._turn :], *topics[: self._turn]]


class _Pages:
    """Pages of messages from each topic in turn, until all are exhausted or there are enough."""

    def __init__(
        self,
        receive: Callable[[str, int, float], list[ReceivedMessage]],
        topics: list[str],
        messages_max: int,
    ) -> None:
        self._receive = receive
        self._topics = topics
        self._left = messages_max

    def next(self, wait_s: float = 0) -> list[ReceivedMessage]:
        """Return the next page, empty at the end; waits up to `wait_s` for the first topic."""
        while self._topics and self._left:
            topic = self._topics.pop(0)
            page = self._receive(topic, self._left, wait_s)
            wait_s = 0
            if page:
                self._left -= len(page)
                self._topics.append(topic)
                return page
        return []
