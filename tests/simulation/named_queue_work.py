"""What clients of an ordered named queue do, and what must be true of what they see.

The same work is done at a single node and at a cluster; `Where` tells the clients whom to ask.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from goqueue.broker import Broker
from goqueue.broker.named_queues.named_queues import NamedQueueSpec, Posted, Posting
from goqueue.broker.queues.queues import Receiver
from goqueue.broker.queues.records import Received, ReceivedMessage
from goqueue.model.attributes import DEDUPLICATION_HEADER, MESSAGE_ID_HEADER, header_text
from goqueue.model.batch import Record
from goqueue.model.errors import GoQueueError

NAME = "orders.fifo"
KEYS = 4
VISIBILITY_MS = 400
GONE_MS = 3_000  # a client that has no answer by then asks again
SPEC = NamedQueueSpec(
    NAME,
    is_ordered=True,
    queue_settings={
        "key_order": True,
        "key_batches": True,
        "deliveries_max": 0,
        "backoff_ms": 0,
        "visibility_ms": VISIBILITY_MS,
    },
)


class Where(NamedTuple):
    """The broker to ask, and who it is: another life or another time as the owner is another."""

    broker: Broker
    tenure: tuple[int, ...]
    now_ms: int


Find = Callable[[], Where | None]


def check_refusal(error: Exception) -> None:
    """Trouble passes, so whoever is refused may ask again."""
    assert isinstance(error, GoQueueError), error
    assert error.retryable, error


class Sender:
    """Sends numbered messages of one key after the other, each until it has an answer."""

    def __init__(self, chance: random.Random, find: Find, key: int) -> None:
        self.find = find
        self.key = b"k%d" % key
        self.answers: dict[str, Posted] = {}
        self.duplicates = 0
        self._random = chance
        self._first = 0  # of those that have no answer yet
        self._count = 0
        self._sent = 0
        self._turn = 0
        self._asked: Where | None = None

    @property
    def acked(self) -> int:
        return self._first

    def step(self) -> None:
        """Send, or send again what has had no answer for too long or from one who is gone."""
        where = self.find()
        if where is None:
            return
        if self._asked is not None:
            is_gone = where.tenure != self._asked.tenure
            if not is_gone and where.now_ms < self._asked.now_ms + GONE_MS:
                return
        else:
            self._count = self._random.randint(1, 4)
        numbers = list(range(self._first, self._first + self._count))
        if self._first and self._random.random() < 0.3:
            # Somebody repeats what has an answer already.
            numbers.insert(0, self._random.randrange(self._first))
        self._send(where, numbers)

    def _send(self, where: Where, numbers: list[int]) -> None:
        self._turn += 1
        turn, self._asked = self._turn, where
        postings = []
        for number in numbers:
            self._sent += 1
            record = Record(self.key, b"%d" % number)
            postings.append(Posting(record, self._id(), deduplication_id=self._name(number)))
        queue = where.broker.named_queues.find(NAME)
        if queue is None:
            self._asked = None
            return

        def answered(results: list[Posted | GoQueueError] | None, error: Exception | None) -> None:
            if error is not None:
                check_refusal(error)
            if turn == self._turn:
                self._asked = None
            for number, result in zip(numbers, results or (), strict=False):
                self._note(number, result, is_last=turn == self._turn)

        where.broker.named_queues.send(queue, postings).then(answered)

    def _id(self) -> str:
        return f"{self.key.decode()}-sent-{self._sent}"

    def _name(self, number: int) -> str:
        return f"{self.key.decode()}-{number}"

    def _note(self, number: int, result: Posted | GoQueueError, *, is_last: bool) -> None:
        if isinstance(result, GoQueueError):
            check_refusal(result)
            return
        self.duplicates += result.is_duplicate
        told = result._replace(is_duplicate=False)
        known = self.answers.setdefault(self._name(number), told)
        assert known == told, f"{self._name(number)} was {known} and is {told}"
        if is_last and number == self._first:
            self._first += 1
            self._count -= 1


class Taker:
    """Receives, and acks, gives back or forgets what it got; checks the order of keys."""

    def __init__(self, chance: random.Random, find: Find, name: str, seen: Seen) -> None:
        self._random = chance
        self._find = find
        self._name = name
        self._seen = seen
        self._waiting: Receiver | None = None
        self._asked: Where | None = None

    def step(self, *, is_kind: bool) -> None:
        where = self._find()
        if where is None:
            return
        if self._waiting is not None and self._asked is not None:
            is_gone = where.tenure != self._asked.tenure
            is_late = where.now_ms > self._asked.now_ms + GONE_MS
            if not self._waiting.promise.is_done and not is_gone and not is_late:
                return
        self._asked = where
        try:
            self._waiting = where.broker.queues.receive(
                NAME,
                NAME,
                consumer=self._name,
                messages_max=self._random.randint(1, 10),
                wait_ms=self._random.choice([0, 50, 300]),
            )
        except GoQueueError as error:
            check_refusal(error)
            return

        def received(messages: Received | None, error: Exception | None) -> None:
            if error is not None:
                check_refusal(error)
            now = self._find()
            # What a former owner says that knows no better is never answered.
            if messages and now is not None and now.tenure == where.tenure:
                self._seen.received(list(messages), now)
                self._settle(where, list(messages), is_kind=is_kind)

        self._waiting.promise.then(received)

    def _settle(self, where: Where, messages: list[ReceivedMessage], *, is_kind: bool) -> None:
        """In parts, so that some of a receive are done while others are not."""
        while messages:
            count = len(messages) if is_kind else self._random.randint(1, len(messages))
            part = self._random.sample(messages, count)
            messages = [one for one in messages if one not in part]
            choice = 0.0 if is_kind else self._random.random()
            receipts = [one.delivery.receipt for one in part]
            queues = where.broker.queues
            try:
                if choice < 0.55:
                    self._seen.acking(part)
                    queues.ack(NAME, receipts).then(self._seen.acked(part))
                elif choice < 0.75:
                    self._seen.given_back(part)
                    queues.nack(NAME, receipts, delay_ms=self._random.choice([0, 0, 150]))
                elif choice < 0.85:
                    self._seen.extended(part, where.now_ms + 900)
                    queues.extend(NAME, receipts, visibility_ms=900)
            except GoQueueError as error:
                check_refusal(error)


class _Out(NamedTuple):
    call: int
    until_ms: int
    tenure: tuple[int, ...]


class Seen:
    """What all takers together have seen."""

    def __init__(self, told: str, *, has_late_acks: bool = False) -> None:
        """In a cluster an ack without an answer may count later, when an earlier leader is back."""
        self.told = told
        self._has_late_acks = has_late_acks
        self._acking: set[tuple[bytes, int]] = set()
        self.done: set[tuple[bytes, int]] = set()
        self.deliveries = 0
        self.largest_run = 0
        self._calls = 0
        self._out: dict[tuple[bytes, int], _Out] = {}
        self._unfinished: dict[bytes, dict[int, int]] = {}

    def received(self, messages: list[ReceivedMessage], now: Where) -> None:
        self._calls += 1
        runs: dict[bytes, int] = {}
        for one in messages:
            key, offset = _place(one)
            told = f"{self.told}: {key!r} {offset}"
            assert (key, offset) not in self.done, f"{told} was acked and came back"
            self._check_alone(key, offset, now, told)
            # Whatever was delivered before and is not done comes before later ones of its key.
            unfinished = self._unfinished.setdefault(key, {})
            earlier = {
                lower: call
                for lower, call in unfinished.items()
                if lower < offset and call != self._calls
            }
            assert not earlier, f"{told} came before {earlier}"
            if not (self._has_late_acks and (key, offset) in self._acking):
                unfinished[offset] = self._calls
            self._out[key, offset] = _Out(self._calls, one.delivery.until_ms, now.tenure)
            runs[key] = runs.get(key, 0) + 1
            self.deliveries += 1
        self.largest_run = max(self.largest_run, *runs.values())

    def _check_alone(self, key: bytes, offset: int, now: Where, told: str) -> None:
        """No other receive has an earlier message of the key."""
        for (other, lower), out in self._out.items():
            is_held = out.tenure == now.tenure and out.until_ms > now.now_ms
            if other == key and out.call != self._calls and lower < offset:
                assert not is_held, f"{told} came while {lower} is out"

    def acking(self, messages: list[ReceivedMessage]) -> None:
        for one in messages:
            key, offset = _place(one)
            self._acking.add((key, offset))
            self._unfinished[key].pop(offset, None)
            self._out.pop((key, offset), None)

    def acked(
        self, messages: list[ReceivedMessage]
    ) -> Callable[[list[GoQueueError | None] | None, Exception | None], None]:
        def settled(outcomes: list[GoQueueError | None] | None, error: Exception | None) -> None:
            for one, outcome in zip(messages, outcomes or (), strict=False):
                if outcome is None:
                    self.done.add(_place(one))

        return settled

    def given_back(self, messages: list[ReceivedMessage]) -> None:
        for one in messages:
            self._out.pop(_place(one), None)

    def extended(self, messages: list[ReceivedMessage], until_ms: int) -> None:
        for one in messages:
            out = self._out.get(_place(one))
            if out is not None:
                self._out[_place(one)] = out._replace(until_ms=until_ms)


def _place(one: ReceivedMessage) -> tuple[bytes, int]:
    assert one.record.key is not None
    return one.record.key, one.delivery.offset


def check_stored(records: list[Record], senders: list[Sender], told: str) -> None:
    """Every id is stored once, in the order of its key, and as its sender was told."""
    stored: dict[str, tuple[str, int]] = {}
    numbers: dict[bytes, list[int]] = {}
    for record in records:
        name = header_text(record.headers, DEDUPLICATION_HEADER)
        message_id = header_text(record.headers, MESSAGE_ID_HEADER)
        assert name is not None
        assert message_id is not None
        assert record.key is not None
        assert name not in stored, f"{told}: {name} is stored twice"
        stored[name] = (message_id, record.offset)
        numbers.setdefault(record.key, []).append(int(record.value or b""))
    for key, order in numbers.items():
        assert order == sorted(order), f"{told}: {key!r} is out of order"
    for sender in senders:
        for name, posted in sender.answers.items():
            assert stored.get(name) == (posted.message_id, posted.sequence), f"{told}: {name}"
