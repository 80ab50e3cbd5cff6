"""Receiving and settling messages of queue groups.

A group has one queue for each topic that it receives from, started by the first receive. Calls that
settle messages return when their outcome is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from goqueue.broker.queues.groups import QueueGroups
from goqueue.broker.queues.host import ROUNDS_MAX, HostedQueue, Reading, ReceiveCall
from goqueue.broker.queues.hosting import QueueHosts
from goqueue.broker.queues.inspection import QueueInspection
from goqueue.broker.queues.positions import Look, QueuePositions
from goqueue.broker.queues.records import Received, ReceivedRun
from goqueue.broker.topics.topics import Topics
from goqueue.delivery import (
    DELAY_MS_MAX,
    HEAD_LENGTH,
    RECEIVE_MESSAGES_MAX,
    VISIBILITY_MS_MAX,
    LeasedRun,
    Queue,
    Settled,
    check_receipt,
)
from goqueue.loop.promise import Promise
from goqueue.model.errors import (
    GoQueueError,
    InternalTopic,
    InvalidReceipt,
    InvalidRequest,
    StaleReceipt,
    UnknownGroup,
)
from goqueue.partition import Partition

CONSUMER_NAME_LENGTH_MAX = 249
REASON_LENGTH_MAX = 1000
RECEIPTS_MAX = 1000
WAIT_MS_MAX = 60_000

# Bytes read per scan behind a backlog for messages of other tenants.
LOOK_BYTES_MAX = 4 << 20

Outcomes = list[GoQueueError | None]
Call = Callable[[Queue, Sequence[str]], list[Settled]]


class Queues:
    """Receives and settles messages. Its parts define groups, move queues and inspect them."""

    def __init__(self, topics: Topics, hosts: QueueHosts, groups: QueueGroups, look: Look) -> None:
        """`look` requests the start and end of partitions from their leaders."""
        self.groups = groups
        self.positions = QueuePositions(topics, hosts, groups, look)
        self.inspection = QueueInspection(topics, hosts, groups, look)
        self.journal = hosts.journal
        # On a single node, every stored message is visible at once.
        self.is_alone = hosts.leaders.is_alone
        self._topics = topics
        self._hosts = hosts
        self._lanes = hosts.sources.lanes
        self._clock = hosts.clock

    def open(self) -> None:
        """Load the groups; a single node also replays the journal before anything is delivered."""
        self._hosts.open()

    def stop(self) -> None:
        """Respond to waiting receivers, and journal everything."""
        self._hosts.stop()

    def close(self) -> None:
        """Save the lane indexes for the next start; everything is durable."""
        self._hosts.close()

    def lead(self, partition: Partition) -> None:
        """Own the groups of a journal partition, which this node leads now."""
        self._hosts.lead(partition)

    def resign(self, partition: Partition) -> None:
        """Give up a journal partition that this node no longer leads."""
        self._hosts.resign(partition)

    # Receiving

    def receive(
        self,
        name: str,
        topic_name: str,
        *,
        consumer: str,
        messages_max: int = 10,
        wait_ms: int = 0,
        visibility_ms: int | None = None,
    ) -> Receiver:
        """Lease messages, now or when some arrive; cancel the receiver if its client is gone."""
        _check("messages_max", messages_max, 1, RECEIVE_MESSAGES_MAX)
        _check("wait_ms", wait_ms, 0, WAIT_MS_MAX)
        _check("the length of the consumer's name", len(consumer), 1, CONSUMER_NAME_LENGTH_MAX)
        if visibility_ms is not None:
            _check("visibility_ms", visibility_ms, 1, VISIBILITY_MS_MAX)
        group = self._hosts.groups.get(name)
        hosted = None if group is None else group.queues.get(topic_name)
        if group is None or hosted is None:
            return self._receive_first(
                name,
                topic_name,
                consumer,
                messages_max,
                wait_ms=wait_ms,
                visibility_ms=visibility_ms,
            )
        if self._lanes.behind:
            self._lanes.catch_up()
        group.check_owned()
        lease_ms = visibility_ms or group.settings.visibility_ms
        receiver = Receiver(consumer, messages_max, lease_ms, topic=topic_name)
        hosted.receive(receiver, wait_ms)
        return receiver

    def _receive_first(
        self,
        name: str,
        topic_name: str,
        consumer: str,
        messages_max: int,
        *,
        wait_ms: int,
        visibility_ms: int | None,
    ) -> Receiver:
        """Start the queue, and create the group if it is missing, before messages are leased."""
        topic = self._topics.get(topic_name)
        if topic.is_internal:
            raise InternalTopic(topic_name)
        self._lanes.catch_up()
        made = None if name in self._hosts.groups else self.groups.create(name)
        group = self._hosts.groups.get(name)
        receiver = Receiver(consumer, messages_max, visibility_ms or 0, topic=topic_name)
        if group is None:
            assert made is not None
            again = partial(
                self.receive,
                name,
                topic_name,
                consumer=consumer,
                messages_max=messages_max,
                wait_ms=wait_ms,
                visibility_ms=visibility_ms,
            )
            _receive_when_made(made, receiver, again)
            return receiver
        group.check_owned()
        receiver.visibility_ms = receiver.visibility_ms or group.settings.visibility_ms
        _receive_when_begun(self.positions.begun(group, topic), receiver, wait_ms)
        return receiver

    def take_back(self, name: str, topic_name: str, consumer: str) -> None:
        """Return all messages of one of this node's own consumers, without counting a delivery."""
        group, _ = self.groups.served(name, topic_name)
        hosted = group.queues.get(topic_name)
        if hosted is not None:
            hosted.take_back(consumer)

    # Settling

    def ack(self, name: str, receipts: Sequence[str]) -> Promise[Outcomes]:
        """Acknowledge messages; return the outcome of each receipt, in order."""
        now_ms = self._clock.now_ms()
        return self._settle(name, receipts, lambda queue, some: queue.settling.ack(now_ms, some))

    def nack(
        self, name: str, receipts: Sequence[str], *, delay_ms: int | None = None
    ) -> Promise[Outcomes]:
        """Return messages for redelivery after this delay or after the group's backoff."""
        if delay_ms is not None:
            _check("delay_ms", delay_ms, 0, DELAY_MS_MAX)
        now_ms = self._clock.now_ms()
        return self._settle(
            name, receipts, lambda queue, some: queue.settling.nack(now_ms, some, delay_ms=delay_ms)
        )

    def give_back(self, name: str, receipts: Sequence[str]) -> Promise[Outcomes]:
        """Return messages that never reached their consumer, without counting a delivery."""
        now_ms = self._clock.now_ms()
        return self._settle(name, receipts, lambda queue, some: queue.give_back(now_ms, some))

    def reject(
        self, name: str, receipts: Sequence[str], *, reason: str = "rejected"
    ) -> Promise[Outcomes]:
        """Move messages to the dead-letter topic."""
        if len(reason) > REASON_LENGTH_MAX:
            raise InvalidRequest(f"A reason has at most {REASON_LENGTH_MAX} characters.")
        now_ms = self._clock.now_ms()
        return self._settle(
            name, receipts, lambda queue, some: queue.settling.reject(now_ms, some, reason=reason)
        )

    def extend(
        self,
        name: str,
        receipts: Sequence[str],
        *,
        visibility_ms: int | None = None,
        total_ms_max: int | None = None,
    ) -> Promise[Outcomes]:
        """Extend leases to `visibility_ms` from now, and to `total_ms_max` in total."""
        if visibility_ms is None:
            visibility_ms = self.groups.owned(name).settings.visibility_ms
        _check("visibility_ms", visibility_ms, 1, VISIBILITY_MS_MAX)
        now_ms, until = self._clock.now_ms(), visibility_ms
        return self._settle(
            name,
            receipts,
            lambda queue, some: queue.settling.extend(
                now_ms, some, visibility_ms=until, total_ms_max=total_ms_max
            ),
        )

    def _settle(self, name: str, receipts: Sequence[str], call: Call) -> Promise[Outcomes]:
        group = self._hosts.groups.get(name)
        if group is None:
            raise UnknownGroup(name)
        group.check_owned()
        _check("the number of receipts", len(receipts), 1, RECEIPTS_MAX)
        shard = group.shard
        if shard is not None and shard.opening:
            self._hosts.check_open(group)
        if shard is not None and group.queues:
            shard.check_writable()
        return settle(list(group.queues.values()), receipts, call)


def check_receipts(receipts: Sequence[str]) -> None:
    _check("the number of receipts", len(receipts), 1, RECEIPTS_MAX)


def _check(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InvalidRequest(f"{name} must be from {least} to {most}, not {value}.")


@dataclass(slots=True, eq=False)
class Receiver(ReceiveCall[Received]):
    """A call that is answered with messages of any partition."""

    topic: str = ""

    @property
    def is_selective(self) -> bool:
        return False

    def collect(self, hosted: HostedQueue) -> Received:
        """Lease messages of any partition, and read their records."""
        received = Received(self.topic)
        room, queue = hosted.limits.bytes_max, hosted.queue
        hosted.expect_nothing()
        call = queue.new_call()
        for _ in range(ROUNDS_MAX):
            now_ms = hosted.now_ms
            picks = queue.choose(now_ms, self.consumer, self.count_max - len(received))
            if not picks:
                break
            room_read = min(room, LOOK_BYTES_MAX) if queue.fairness.is_scanning else room
            reading = hosted.read(picks, is_first=not received, room=room_read)
            handed = queue.lease(
                now_ms,
                self.consumer,
                reading.runs,
                visibility_ms=self.visibility_ms,
                gone=reading.gone,
                call=call,
            )
            given = _given(reading, handed)
            for run in given:
                received.add(run)
            reads_ahead = queue.settings.fair_keys or queue.takes_whole_keys
            room = room - _bytes_of(given) if reads_ahead else reading.room
            hosted.is_awaiting = hosted.is_awaiting or reading.is_awaiting
            is_stopped = reading.error is not None or reading.is_awaiting
            if is_stopped and queue.fairness.stop_scanning():
                is_stopped = False  # There are messages that were set aside before.
            elif reading.error is not None and not received:
                raise reading.error
            if is_stopped or room <= 0 or len(received) >= self.count_max:
                break
        else:
            # All were parked behind their keys, or finished: continue in another loop iteration.
            hosted.is_searching = not received
        return received

    def nothing(self) -> Received:
        return Received(self.topic)


def _given(reading: Reading, handed: Sequence[LeasedRun]) -> list[ReceivedRun]:
    """Return the leased part of what was read."""
    given: list[ReceivedRun] = []
    for run_number, of_run, lease, first in handed:
        columns, places = reading.parts[run_number]
        if len(of_run) < len(places):
            places = [places[one] for one in of_run]
        given.append(ReceivedRun(columns, places, lease, first))
    return given


def _bytes_of(given: list[ReceivedRun]) -> int:
    return sum(run.columns.bytes_at(run.places) for run in given)


def _receive_when_begun(begun: Promise[HostedQueue], receiver: Receiver, wait_ms: int) -> None:
    """Receive from a queue as soon as it has started."""

    def started(hosted: HostedQueue | None, error: Exception | None) -> None:
        if receiver.promise.is_done:
            return
        if hosted is None:
            assert error is not None
            receiver.promise.reject(error)
        else:
            hosted.receive(receiver, wait_ms)

    begun.then(started)


def _receive_when_made(
    made: Promise[None], receiver: Receiver, again: Callable[[], Receiver]
) -> None:
    """Receive `again` once the group is committed, because its id determines its owner."""
    is_left = False

    def agreed(_: None, error: Exception | None) -> None:
        if receiver.promise.is_done:
            return
        try:
            if error is not None:
                raise error
            other = again()
        except GoQueueError as refused:
            receiver.refuse(refused)
            return
        receiver.leave = partial(leave, other)
        other.promise.then(answered)

    def leave(other: Receiver) -> None:
        nonlocal is_left
        is_left = True
        other.cancel()

    def answered(messages: Received | None, error: Exception | None) -> None:
        if not is_left:
            receiver.promise.settle(messages, error)

    made.then(agreed)


# Several queues of a group


def settle(queues: Sequence[HostedQueue], receipts: Sequence[str], call: Call) -> Promise[Outcomes]:
    """Call each queue with its own receipts; return the outcomes, in order.

    They are returned once they are durable.
    """
    if len(queues) == 1:  # All receipts belong to it, or to none.
        return queues[0].answer(call(queues[0].queue, receipts))
    outcomes: Outcomes = [None] * len(receipts)
    shares = route(queues, receipts, outcomes)
    promise: Promise[Outcomes] = Promise()
    if not shares:
        promise.resolve(outcomes)
        return promise
    gathering = _Gathering(promise, outcomes, len(shares))
    for hosted, places in shares.items():
        settled = call(hosted.queue, [receipts[place] for place in places])
        hosted.answer(settled).then(gathering.part(places))
    return promise


class _Gathering:
    """Gathers the results of several queues."""

    def __init__(self, promise: Promise[Outcomes], outcomes: Outcomes, part_count: int) -> None:
        self._promise = promise
        self._outcomes = outcomes
        self._left = part_count
        self._failure: Exception | None = None

    def part(self, places: list[int]) -> Callable[[Outcomes | None, Exception | None], None]:
        def done(some: Outcomes | None, error: Exception | None) -> None:
            self._left -= 1
            if some is None:
                self._failure = error
            else:
                for place, outcome in zip(places, some, strict=True):
                    self._outcomes[place] = outcome
            if not self._left:
                answer = None if self._failure is not None else self._outcomes
                self._promise.settle(answer, self._failure)

        return done


def route(
    queues: Sequence[HostedQueue], receipts: Sequence[str], outcomes: Outcomes
) -> dict[HostedQueue, list[int]]:
    """Group receipts by the queue that they belong to; those of no queue get an error."""
    by_number: dict[int, list[HostedQueue]] = {}
    for hosted in queues:
        by_number.setdefault(hosted.queue.number, []).append(hosted)
    by_head: dict[str, HostedQueue | None] = {}
    shares: dict[HostedQueue, list[int]] = {}
    for place, text in enumerate(receipts):
        head = text[:HEAD_LENGTH]
        try:
            if head not in by_head:
                by_head[head] = _issuer(by_number.get(check_receipt(text).queue, []), text)
            found = by_head[head]
            if found is None:
                raise StaleReceipt()
            shares.setdefault(found, []).append(place)
        except (InvalidReceipt, StaleReceipt) as error:
            outcomes[place] = error
    return shares


def _issuer(queues: list[HostedQueue], receipt: str) -> HostedQueue | None:
    """Return the queue that issued a receipt; more than one candidate is very rare."""
    if len(queues) < 2:
        return queues[0] if queues else None
    return next((one for one in queues if one.queue.settling.has_issued(receipt)), queues[0])
