"""The transactions of one coordinator: loading, completing writes, timers and deletion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from goqueue.config import TransactionSettings
from goqueue.model.errors import CoordinatorLoading, GoQueueError, InvalidRequest
from goqueue.model.names import ProducerIdentity, TopicPartition
from goqueue.model.tenants import tenant_of
from goqueue.transactions import steps
from goqueue.transactions.deadlines import Deadlines
from goqueue.transactions.effects import Effect, Persist, Reply, WriteMarkers
from goqueue.transactions.holds import CommitHold
from goqueue.transactions.limits import FAILED_WRITE_REST_MS, TRANSACTIONAL_ID_LENGTH_MAX
from goqueue.transactions.records import (
    Standing,
    decode_key,
    decode_standing,
    encode_key,
    encode_standing,
)
from goqueue.transactions.refusals import concurrent
from goqueue.transactions.transaction import NO_WRITE, Transaction, Why
from goqueue.transactions.views import TransactionState


@dataclass(slots=True)
class _Write:
    """A record on its way to the log, and the replies that wait for it."""

    transaction: Transaction
    standing: Standing | None
    replies: list[Reply]


class TransactionRegistry:
    def __init__(self, settings: TransactionSettings) -> None:
        self.settings = settings
        self.hold = CommitHold()
        self._transactions: dict[str, Transaction] = {}
        self._by_tenant: Counter[str] = Counter()
        self._producers: dict[int, Transaction] = {}  # by the producer id in `durable`
        self._deadlines = Deadlines()
        self._writes: dict[int, _Write] = {}
        self._last_write_id = NO_WRITE
        self._touched: dict[Transaction, None] = {}
        self.is_loaded = False
        # Called with every transaction that was committed or aborted, once that is in the log.
        self.ended: Callable[[Standing, Why], None] = lambda standing, why: None

    def __contains__(self, transactional_id: str) -> bool:
        return transactional_id in self._transactions

    def __len__(self) -> int:
        return len(self._transactions)

    def count_of(self, tenant: str) -> int:
        """Return how many transactional ids a tenant has here."""
        return self._by_tenant[tenant]

    def open_since_ms(self) -> list[int]:
        """Return when the open transactions have begun."""
        standings = [one.durable for one in self._transactions.values()]
        return [one.started_ms for one in standings if one is not None and one.is_open]

    @property
    def is_committing(self) -> bool:
        """Whether some decided commit is not known to be in all of its participants."""
        return any(
            standing is not None and standing.is_preparing and standing.is_committing
            for one in self._transactions.values()
            for standing in (one.current, one.durable)
        )

    # Loading and resigning

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Replay one record of the log, oldest first. Keys of other kinds are skipped."""
        transactional_id = decode_key(key)
        if transactional_id is None:
            return
        standing = None if value is None else decode_standing(value)
        transaction = self._open(transactional_id)
        self._settle(transaction, standing)
        transaction.current = standing
        self._forget_if_void(transaction)

    def loaded(self, now_ms: int) -> list[Effect]:
        """Start after the replay: carry out decisions; open transactions continue or time out."""
        self.is_loaded = True
        for transaction in self._transactions.values():
            self._touch(transaction)
        return self._finish(now_ms)

    # Completing writes and markers

    def persisted(self, write_id: int, now_ms: int) -> list[Effect]:
        """Complete a write whose record is durable."""
        write = self._writes.pop(write_id, None)
        if write is None:
            return []
        transaction = write.transaction
        transaction.write_id = NO_WRITE
        self._settle(transaction, write.standing)
        self._touch(transaction)
        return [*write.replies, *self._finish(now_ms)]

    def persist_failed(self, write_id: int, error: GoQueueError, now_ms: int) -> list[Effect]:
        """Fail a write whose record is not in the log: go back to what is, and pause a little."""
        write = self._writes.pop(write_id, None)
        if write is None:
            return []
        transaction = write.transaction
        transaction.write_id = NO_WRITE
        transaction.current, transaction.is_staged = transaction.durable, False
        transaction.rest_until_ms = now_ms + FAILED_WRITE_REST_MS
        tokens = [reply.token for reply in (*write.replies, *transaction.replies)]
        transaction.replies = []
        if transaction.durable is None or not transaction.durable.is_preparing:
            tokens += [*transaction.finishing, *(one.token for one in transaction.parked)]
            transaction.finishing, transaction.parked = [], []
        self._touch(transaction)
        return [*(Reply(token, error) for token in tokens), *self._finish(now_ms)]

    def marked(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        partition: TopicPartition,
        now_ms: int,
    ) -> list[Effect]:
        """Note that a participant has durably accepted its marker, or no longer exists."""
        transaction = self._transactions.get(transactional_id)
        if transaction is None or transaction.durable is None:
            return []
        if transaction.durable.is_preparing and transaction.durable.identity == identity:
            transaction.unmarked.discard(partition)
            self._touch(transaction)
        return self._finish(now_ms)

    def _settle(self, transaction: Transaction, standing: Standing | None) -> None:
        """Apply a state that is now in the log."""
        before, transaction.durable = transaction.durable, standing
        if standing is not None and standing is before:
            return  # It was only rewritten: accepted markers stay accepted.
        if before is not None and self._producers.get(before.producer_id) is transaction:
            del self._producers[before.producer_id]
        if standing is not None:
            self._producers[standing.producer_id] = transaction
        transaction.has_asked = False
        is_preparing = standing is not None and standing.is_preparing
        if before is not None and before.is_open and standing is not None and not standing.is_open:
            self.ended(standing, transaction.why)
            transaction.why = Why.PRODUCER
        transaction.unmarked = set(standing.partitions) if standing and is_preparing else set()

    # Time

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do. Get it again after every other call."""
        return self._deadlines.next_ms() if self.is_loaded else None

    def tick(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        while self.is_loaded and (name := self._deadlines.pop_due(now_ms)) is not None:
            transaction = self._transactions.get(name)
            if transaction is None:
                continue
            effects += self._refuse_parked(transaction, until_ms=now_ms)
            standing = transaction.current
            if standing is not None and self._time_is_over(transaction, standing, now_ms):
                is_open = standing.is_open
                transaction.why = Why.TIMEOUT
                transaction.stage(steps.fenced_off(standing, now_ms) if is_open else None)
            self._touch(transaction)
        return [*effects, *self._finish(now_ms)]

    def _time_is_over(self, transaction: Transaction, standing: Standing, now_ms: int) -> bool:
        deadline_ms = self._end_ms(transaction, standing)
        return deadline_ms is not None and deadline_ms <= now_ms

    def _end_ms(self, transaction: Transaction, standing: Standing) -> int | None:
        """When an open transaction is aborted, or an unused id expires."""
        if standing.is_preparing:
            return None
        if standing.state is TransactionState.ONGOING:
            end_ms = standing.started_ms + standing.timeout_ms
        elif standing.state is TransactionState.PREPARED or transaction.query_id is not None:
            end_ms = standing.updated_ms + standing.timeout_ms
        else:
            end_ms = standing.updated_ms + self.settings.id_expiration_ms
        return max(end_ms, transaction.rest_until_ms)

    def _deadline_ms(self, transaction: Transaction) -> int | None:
        deadlines = [parked.until_ms for parked in transaction.parked]
        standing = transaction.current
        if standing is not None:
            end_ms = self._end_ms(transaction, standing)
            if end_ms is not None:
                deadlines.append(end_ms)
            elif transaction.durable is standing and not transaction.unmarked:
                # All are marked, but that could not be written to the log.
                deadlines.append(transaction.rest_until_ms)
        return min(deadlines, default=None)

    def _refuse_parked(self, transaction: Transaction, *, until_ms: int) -> list[Effect]:
        late = [one for one in transaction.parked if one.until_ms <= until_ms]
        transaction.parked = [one for one in transaction.parked if one.until_ms > until_ms]
        error = concurrent(transaction.transactional_id)
        return [Reply(one.token, error) for one in late]

    # Serving

    def _touch(self, transaction: Transaction) -> None:
        """Mark the transaction as having changes or replies to flush."""
        self._touched[transaction] = None

    def _finish(self, now_ms: int) -> list[Effect]:
        """The effects of all touched transactions."""
        effects: list[Effect] = []
        while self._touched and self.is_loaded:
            transaction = next(iter(self._touched))
            del self._touched[transaction]
            self._go_on(transaction, effects, now_ms)
            self._flush(transaction, effects)
            self._deadlines.set(transaction.transactional_id, self._deadline_ms(transaction))
            self._forget_if_void(transaction)
        return effects

    def _go_on(self, transaction: Transaction, effects: list[Effect], now_ms: int) -> None:
        """Carry out a decision: request markers, and when all are written, complete it."""
        standing = transaction.current
        is_decided = standing is not None and standing.is_preparing
        if standing is None or not is_decided or transaction.durable is not standing:
            return
        if not transaction.has_asked and transaction.unmarked:
            transaction.has_asked = True
            partitions = tuple(sorted(transaction.unmarked))
            effects.append(
                WriteMarkers(
                    transaction.transactional_id,
                    standing.identity,
                    standing.is_committing,
                    partitions,
                )
            )
        if not transaction.unmarked and transaction.rest_until_ms <= now_ms:
            # A query uses new names for each epoch, and never queries completed ones.
            is_kept = transaction.query_id is None
            transaction.stage(steps.completed(standing, now_ms) if is_kept else None)
            effects += [Reply(one, standing.next_identity) for one in transaction.finishing]
            transaction.finishing = []
            parked, transaction.parked = transaction.parked, []
            for call in parked:
                call.run(now_ms)

    def _flush(self, transaction: Transaction, effects: list[Effect]) -> None:
        write = self._writes.get(transaction.write_id)
        if transaction.is_staged:
            if write is None:
                effects.append(self._write(transaction))
            return
        replies, transaction.replies = transaction.replies, []
        if write is None:
            effects += replies
        else:
            write.replies += replies

    def _write(self, transaction: Transaction) -> Persist:
        standing = transaction.current
        self._last_write_id += 1
        self._writes[self._last_write_id] = _Write(transaction, standing, transaction.replies)
        transaction.write_id = self._last_write_id
        transaction.replies, transaction.is_staged = [], False
        value = None if standing is None else encode_standing(standing)
        return Persist(self._last_write_id, encode_key(transaction.transactional_id), value)

    def _forget_if_void(self, transaction: Transaction) -> None:
        if transaction.is_forgettable:
            if self._transactions.pop(transaction.transactional_id, None) is not None:
                self._by_tenant[tenant_of(transaction.transactional_id)] -= 1
            self._deadlines.set(transaction.transactional_id, None)

    def _open(self, transactional_id: str) -> Transaction:
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            transaction = Transaction(transactional_id)
            self._transactions[transactional_id] = transaction
            self._by_tenant[tenant_of(transactional_id)] += 1
        return transaction

    def check_ready(self) -> None:
        """Raise while the log has not been replayed completely."""
        if not self.is_loaded:
            raise CoordinatorLoading("The coordinator is loading its log; retry.")

    def _check_ready(self, transactional_id: str) -> None:
        self.check_ready()
        if not 0 < len(transactional_id) <= TRANSACTIONAL_ID_LENGTH_MAX:
            raise InvalidRequest(f"{transactional_id[:100]!r} is not a valid transactional id.")
