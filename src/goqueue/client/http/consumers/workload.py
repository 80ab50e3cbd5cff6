"""The messages that a queue consumer holds: waiting, being handled, and to be settled.

It decides how many more to request, which leases to extend and what to settle; threads, tasks and
requests are in `consumer` and `async_consumer`. Times are milliseconds of any monotonic clock.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from goqueue.client.http.messages import ReceivedMessage
from goqueue.client.http.moments import Duration, duration_ms
from goqueue.model.errors import GoQueueError, InvalidRequest
from goqueue.wire.http.fields import MESSAGES_MAX

UNSETTLED_MAX = 1000  # back-pressure: receive no more until the broker has accepted some
_EXTENSIONS_PER_LEASE = 3  # so that the next is still in time if one fails


class Retry(Exception):
    """Raised by a handler: deliver this message again, after a number of seconds.

    Without a delay the backoff of the group applies, as for any other exception.
    """

    def __init__(self, reason: str = "", *, after: Duration | None = None) -> None:
        self.delay_ms = None if after is None else duration_ms(after)
        super().__init__(reason)


class Reject(Exception):
    """Raised by a handler: this message can never be handled; dead-letter it."""

    def __init__(self, reason: str = "rejected") -> None:
        self.reason = reason or "rejected"
        super().__init__(self.reason)


class Verdict(enum.Enum):
    ACK = "ack"
    NACK = "nack"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class Decision:
    """How a message is settled."""

    verdict: Verdict
    delay_ms: int | None = None
    reason: str = ""


ACK = Decision(Verdict.ACK)
GIVE_BACK = Decision(Verdict.NACK, delay_ms=0)


def decision_on(error: BaseException | None) -> Decision:
    """The decision that follows from the outcome of a handler."""
    if error is None:
        return ACK
    if isinstance(error, Reject):
        return Decision(Verdict.REJECT, reason=error.reason)
    return Decision(Verdict.NACK, delay_ms=error.delay_ms if isinstance(error, Retry) else None)


@dataclass(frozen=True, slots=True)
class Settlement:
    """Messages to settle in the same way."""

    decision: Decision
    receipts: Sequence[str]


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """Concurrency, leases and timeouts of a consumer."""

    concurrency: int = 8
    prefetch: int | None = None  # received ahead of the handlers; by default one per handler
    visibility_ms: int = 30_000  # of a lease and of each extension
    # A stop waits for the receive in progress, so this bounds how long stopping an idle consumer
    # takes.
    wait_ms: int = 2_000
    shutdown_ms: int = 30_000  # for handlers that still run when the consumer stops

    def __post_init__(self) -> None:
        if not 1 <= self.concurrency <= MESSAGES_MAX:
            raise InvalidRequest(f"concurrency must be from 1 to {MESSAGES_MAX}.")
        if self.prefetch is not None and self.prefetch < 0:
            raise InvalidRequest("prefetch must be 0 or more.")
        if self.visibility_ms < 1 or self.wait_ms < 0 or self.shutdown_ms < 0:
            raise InvalidRequest("Times must not be negative, and a lease at least 1 ms.")

    @property
    def held_max(self) -> int:
        ahead = self.concurrency if self.prefetch is None else self.prefetch
        return self.concurrency + ahead


@dataclass(slots=True)
class Tally:
    """Counts of messages."""

    received: int = 0
    acked: int = 0
    nacked: int = 0
    rejected: int = 0
    given_back: int = 0  # received but not begun when the consumer stopped
    stale: int = 0  # settled too late, or expired while waiting; others have them
    unsettled: int = 0  # handled, but not settled at the broker: they are delivered again
    abandoned: int = 0  # still running when the shutdown timeout passed


@dataclass(slots=True)
class Held:
    message: ReceivedMessage
    until_ms: float  # when the lease expires unless extended
    extend_at_ms: float


@dataclass(slots=True)
class Workload:
    settings: ConsumerSettings
    tally: Tally = field(default_factory=Tally)
    is_stopping: bool = False
    waiting: deque[str] = field(default_factory=deque)
    running: set[str] = field(default_factory=set)
    _held: dict[str, Held] = field(default_factory=dict)  # both kinds, by receipt
    _decided: dict[Decision, list[str]] = field(default_factory=dict)
    _settling: int = 0

    # Receiving and handling

    def room(self) -> int:
        """How many messages to request now."""
        if self.is_stopping or self._undone() >= UNSETTLED_MAX:
            return 0
        room = min(MESSAGES_MAX, self.settings.held_max - len(self._held))
        # While handlers have messages to begin, one larger receive later is cheaper.
        return 0 if self.waiting and room * 2 < self.settings.held_max else room

    def received(self, messages: Iterable[ReceivedMessage], now_ms: float) -> None:
        for message in messages:
            self.tally.received += 1
            self._held[message.receipt] = Held(message, 0, 0)
            self._lease(message.receipt, now_ms)
            if self.is_stopping:
                self._give_back(message.receipt)
            else:
                self.waiting.append(message.receipt)

    def begin(self, now_ms: float) -> ReceivedMessage | None:
        """The next message to handle. Those with an expired lease belong to other consumers now."""
        if len(self.running) >= self.settings.concurrency:
            return None
        while self.waiting:
            receipt = self.waiting.popleft()
            if self._held[receipt].until_ms <= now_ms:
                del self._held[receipt]
                self.tally.stale += 1
                continue
            self.running.add(receipt)
            return self._held[receipt].message
        return None

    def ended(self, message: ReceivedMessage, decision: Decision) -> None:
        """Record the outcome of a handler."""
        if message.receipt in self.running:
            self.running.discard(message.receipt)
            self._decide(message.receipt, decision)

    def stop(self) -> None:
        """Receive no more, and give back what no handler has begun."""
        self.is_stopping = True
        while self.waiting:
            self._give_back(self.waiting.popleft())

    def abandon(self) -> list[ReceivedMessage]:
        """Stop waiting for running handlers; their leases expire."""
        left = [self._held.pop(receipt).message for receipt in self.running]
        self.running.clear()
        self.tally.abandoned += len(left)
        return left

    # Leases

    def leases_to_extend(self, now_ms: float) -> list[str]:
        due = [receipt for receipt, one in self._held.items() if one.extend_at_ms <= now_ms]
        return due[:MESSAGES_MAX]

    def extended(
        self, receipts: Sequence[str], errors: Sequence[GoQueueError | None], now_ms: float
    ) -> list[ReceivedMessage]:
        """Record which leases were extended; return the messages that were lost."""
        lost = []
        for receipt, error in zip(receipts, errors, strict=True):
            if receipt not in self._held:
                continue  # settled in the meantime
            if error is None:
                self._lease(receipt, now_ms)
                continue
            lost.append(self._held[receipt].message)
            if receipt in self.running:
                # The handler cannot be interrupted; its ack will be refused as stale.
                self._held[receipt].extend_at_ms = float("inf")
            else:
                self.waiting.remove(receipt)
                del self._held[receipt]
                self.tally.stale += 1
        return lost

    def not_extended(self, receipts: Sequence[str], now_ms: float) -> None:
        """The request failed; retry soon."""
        for receipt in receipts:
            if receipt in self._held:
                self._held[receipt].extend_at_ms = now_ms + self._extend_after_ms() / 4

    def next_extension_ms(self) -> float | None:
        return min((one.extend_at_ms for one in self._held.values()), default=None)

    # Settling

    @property
    def has_decisions(self) -> bool:
        return bool(self._decided)

    @property
    def is_settled(self) -> bool:
        """Whether the broker has accepted all decisions."""
        return not self._decided and not self._settling

    def take_settlement(self) -> Settlement | None:
        """Messages to settle in one request."""
        for decision, receipts in self._decided.items():
            batch, rest = receipts[:MESSAGES_MAX], receipts[MESSAGES_MAX:]
            if rest:
                self._decided[decision] = rest
            else:
                del self._decided[decision]
            self._settling += len(batch)
            return Settlement(decision, batch)
        return None

    def settled(self, settlement: Settlement, errors: Sequence[GoQueueError | None] | None) -> int:
        """Record the response, or a failure (None); return how many came too late."""
        self._settling -= len(settlement.receipts)
        if errors is None:
            self.tally.unsettled += len(settlement.receipts)
            return 0
        stale = sum(error is not None for error in errors)
        done = len(errors) - stale
        self.tally.stale += stale
        if settlement.decision.verdict is Verdict.ACK:
            self.tally.acked += done
        elif settlement.decision.verdict is Verdict.REJECT:
            self.tally.rejected += done
        else:
            self.tally.nacked += done
        return stale

    def _decide(self, receipt: str, decision: Decision) -> None:
        del self._held[receipt]
        self._decided.setdefault(decision, []).append(receipt)

    def _give_back(self, receipt: str) -> None:
        self.tally.given_back += 1
        self._decide(receipt, GIVE_BACK)

    def _lease(self, receipt: str, now_ms: float) -> None:
        held = self._held[receipt]
        held.until_ms = now_ms + self.settings.visibility_ms
        held.extend_at_ms = now_ms + self._extend_after_ms()

    def _extend_after_ms(self) -> float:
        return self.settings.visibility_ms / _EXTENSIONS_PER_LEASE

    def _undone(self) -> int:
        return self._settling + sum(map(len, self._decided.values()))
