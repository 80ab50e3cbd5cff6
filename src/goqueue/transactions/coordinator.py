"""All transactions of one partition of `__transaction_state`, and the calls to them.

Every call takes the current time. Calls with a response take a token and return effects, among
which, now or later, is the reply to that token; or they raise the GoQueueError that is the
response.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from goqueue.model.errors import (
    GoQueueError,
    InvalidRequest,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    TransactionAbortable,
)
from goqueue.model.names import ProducerIdentity, TopicPartition
from goqueue.transactions import steps
from goqueue.transactions.calls import End, Initialise, Prepare
from goqueue.transactions.effects import Effect, Token
from goqueue.transactions.epochs import Epochs
from goqueue.transactions.limits import (
    CONCURRENT_CALLS_MAX,
    CONCURRENT_WAIT_MS,
    PARTICIPANTS_MAX,
)
from goqueue.transactions.records import NO_EPOCH, Standing
from goqueue.transactions.refusals import concurrent, fenced, misplaced, unknown, unmapped
from goqueue.transactions.transaction import Parked, Transaction, Why
from goqueue.transactions.views import TransactionState, TransactionView

Handle = Callable[[Transaction, Token, int], None]


class Coordinator(Epochs):
    # Initialising a producer

    def initialise(self, call: Initialise, *, token: Token, now_ms: int) -> list[Effect]:
        """Reply with the identity under which the producer may begin."""
        self._check_ready(call.transactional_id)
        timeout_ms_max = self.settings.timeout_ms_max
        if not 0 < call.timeout_ms <= timeout_ms_max:
            raise InvalidTransactionTimeout(
                f"A transaction timeout cannot be {call.timeout_ms} ms: choose 1 to "
                f"{timeout_ms_max} (setting transactions.timeout_ms_max)."
            )
        self._check_attempt(call.transactional_id)
        transaction = self._open(call.transactional_id)

        def handle(transaction: Transaction, token: Token, now_ms: int) -> None:
            self._initialise(transaction, call, token, now_ms)

        return self._serve(transaction, handle, token, now_ms)

    def _initialise(
        self, transaction: Transaction, call: Initialise, token: Token, now_ms: int
    ) -> None:
        standing = transaction.current
        if standing is None:
            self._answer_new(transaction, steps.first(call, now_ms), token)
            return
        known = (standing.identity, standing.last_identity, standing.next_identity)
        if call.identity is not None and call.identity not in known:
            raise fenced(call.transactional_id, call.identity)
        if standing.is_open:
            # The producer that left it open is gone, or wants to discard it.
            is_own_wish = call.identity is not None
            standing = steps.fenced_off(standing, now_ms, is_own_wish=is_own_wish)
            transaction.why = Why.REPLACED
            transaction.stage(standing)
        if standing.is_preparing:

            def again(now_ms: int) -> None:
                self._initialise(transaction, call, token, now_ms)

            self._park(transaction, token, now_ms, again)
        elif call.identity is not None and call.identity == standing.last_identity:
            transaction.reply(token, standing.identity)
        else:
            self._answer_new(transaction, steps.taken_over(standing, call, now_ms), token)

    def _answer_new(self, transaction: Transaction, standing: Standing, token: Token) -> None:
        transaction.stage(standing)
        transaction.reply(token, standing.identity)

    # Participants

    def add_partitions(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        partitions: Sequence[TopicPartition],
        *,
        token: Token,
        now_ms: int,
    ) -> list[Effect]:
        """Add participants; the first ones begin the transaction."""
        if not partitions:
            raise InvalidRequest("There are no partitions to add; give at least one.")
        transaction = self._get(transactional_id, identity.producer_id)

        def handle(transaction: Transaction, token: Token, now_ms: int) -> None:
            self._add_partitions(transaction, identity, partitions, token, now_ms)

        return self._serve(transaction, handle, token, now_ms)

    def _add_partitions(
        self,
        transaction: Transaction,
        identity: ProducerIdentity,
        partitions: Sequence[TopicPartition],
        token: Token,
        now_ms: int,
    ) -> None:
        standing = self._check_identity(transaction, identity)
        if standing.is_preparing:

            def again(now_ms: int) -> None:
                self._add_partitions(transaction, identity, partitions, token, now_ms)

            self._park(transaction, token, now_ms, again)
            return
        if standing.state is TransactionState.PREPARED:
            raise misplaced(transaction.transactional_id, "written to", standing.state)
        is_begun = standing.state is TransactionState.ONGOING
        if not (is_begun and all(map(standing.has, partitions))):
            standing = steps.joined(standing, partitions, now_ms)
            if len(standing.partitions) > PARTICIPANTS_MAX:
                raise TransactionAbortable(
                    f"A transaction may have {PARTICIPANTS_MAX} partitions; abort it and begin "
                    "smaller ones."
                )
            transaction.stage(standing)
        else:
            # This may be the last transaction, which has ended at another coordinator, not the next
            # one.
            transaction.stage_again()
        transaction.reply(token, None)

    def verify(
        self, transactional_id: str, identity: ProducerIdentity, partition: TopicPartition
    ) -> GoQueueError | None:
        """Why this producer may not write there in its transaction now; None if it may.

        It may once the log has the partition as a participant, and until an end is decided: so
        nothing can be written that no marker would reach.
        """
        try:
            transaction = self._get(transactional_id, identity.producer_id)
            standing = self._check_identity(transaction, identity)
        except GoQueueError as error:
            return error
        if standing.is_preparing:
            return concurrent(transactional_id)
        if standing.state is not TransactionState.ONGOING:
            return misplaced(transactional_id, "written to", standing.state)
        durable = transaction.durable
        # The log may still hold the end of the last transaction, under the identity of this one.
        is_begun = durable is not None and durable.state is TransactionState.ONGOING
        is_own = durable is not None and is_begun and durable.identity == identity
        if durable is None or not is_own or not durable.has(partition):
            return InvalidTransactionState(
                f"Partition {partition} is not part of the transaction of {transactional_id!r}; "
                "add it first."
            )
        return None

    # Ending

    def prepare(self, call: Prepare, *, token: Token, now_ms: int) -> list[Effect]:
        """Mark the transaction as fully written; from then on it waits for its epoch."""
        transaction = self._get(call.transactional_id, call.identity.producer_id)

        def handle(transaction: Transaction, token: Token, now_ms: int) -> None:
            standing = self._check_identity(transaction, call.identity)
            self._prepare(transaction, standing, call, now_ms)
            transaction.reply(token, None)

        return self._serve(transaction, handle, token, now_ms)

    def end(self, call: End, *, token: Token, now_ms: int) -> list[Effect]:
        """Decide the transaction; reply with the identity under which the producer continues."""
        transaction = self._get(call.transactional_id, call.identity.producer_id)

        def handle(transaction: Transaction, token: Token, now_ms: int) -> None:
            self._end(transaction, call, token, now_ms)

        return self._serve(transaction, handle, token, now_ms)

    def _end(self, transaction: Transaction, call: End, token: Token, now_ms: int) -> None:
        standing = transaction.current
        if standing is None:
            raise unmapped(call.transactional_id, call.identity.producer_id)
        is_undecided = standing.is_open or standing.state is TransactionState.EMPTY
        if not is_undecided and call.bumps_epoch and call.identity == standing.last_identity:
            self._repeat_end(transaction, standing, call, token)
            return
        standing = self._check_identity(transaction, call.identity)
        if call.is_commit and standing.state is TransactionState.PREPARED:
            raise misplaced(call.transactional_id, "committed but by its epoch", standing.state)
        if standing.is_open:
            if call.is_commit:
                self.hold.check(now_ms)
            standing = steps.decided(standing, call, now_ms)
            transaction.stage(standing)
            self._answer_end(transaction, standing, call, token)
        elif standing.state is TransactionState.EMPTY and not call.bumps_epoch:
            raise misplaced(call.transactional_id, "ended", standing.state)
        elif not call.bumps_epoch and not (call.waits and standing.is_preparing):
            # The next transaction has the same identity: it may be the one to end, begun at another
            # coordinator and unknown here.
            self._repeat_end(transaction, standing, call, token)
            transaction.stage_again()
        elif standing.is_preparing:
            self._park(
                transaction,
                token,
                now_ms,
                lambda now_ms: self._end(transaction, call, token, now_ms),
            )
        elif call.is_commit:
            raise misplaced(call.transactional_id, "committed", standing.state)
        else:
            # A producer that is unsure whether anything was begun aborts.
            standing = steps.completed(steps.decided(standing, call, now_ms), now_ms)
            self._answer_new(transaction, standing, token)

    def _repeat_end(
        self, transaction: Transaction, standing: Standing, call: End, token: Token
    ) -> None:
        """Repeat the reply of an earlier decision, which may have been lost."""
        if call.is_commit != standing.is_committing:
            what = "committed" if call.is_commit else "aborted"
            raise misplaced(call.transactional_id, what, standing.state)
        self._answer_end(transaction, standing, call, token)

    def _answer_end(
        self, transaction: Transaction, standing: Standing, call: End, token: Token
    ) -> None:
        if call.waits and standing.is_preparing:
            transaction.finishing.append(token)
        else:
            transaction.reply(token, standing.next_identity)

    def abort(
        self,
        transactional_id: str,
        *,
        identity: ProducerIdentity | None = None,
        token: Token,
        now_ms: int,
    ) -> list[Effect]:
        """Abort without the producer; reply when the participants have the outcome.

        With an `identity`, abort only its transaction, and none begun since.
        """
        self._check_ready(transactional_id)
        transaction = self._transactions.get(transactional_id)
        standing = transaction.current if transaction is not None else None
        if transaction is None or standing is None:
            raise unknown(transactional_id)
        if identity is not None and standing.is_open and identity != standing.identity:
            raise fenced(transactional_id, identity)
        if standing.is_open:
            transaction.why = Why.REQUESTED
            transaction.stage(steps.fenced_off(standing, now_ms))
        elif standing.state is not TransactionState.PREPARE_ABORT:
            raise misplaced(transactional_id, "aborted", standing.state)
        transaction.finishing.append(token)
        self._touch(transaction)
        return self._finish(now_ms)

    # Queries

    def describe(self, transactional_id: str) -> TransactionView:
        self._check_ready(transactional_id)
        transaction = self._transactions.get(transactional_id)
        if transaction is None or transaction.durable is None:
            raise unknown(transactional_id)
        return _view(transaction, transaction.durable)

    def all(
        self,
        *,
        states: Collection[TransactionState] = (),
        producer_ids: Collection[int] = (),
        started_before_ms: int | None = None,
    ) -> list[TransactionView]:
        """Return every transaction, or those that match every given filter."""
        self._check_ready("*")
        views = [
            _view(one, one.durable)
            for one in self._transactions.values()
            if one.durable is not None
        ]
        return [
            view
            for view in views
            if (not states or view.state in states)
            and (not producer_ids or view.identity.producer_id in producer_ids)
            and (started_before_ms is None or 0 <= view.started_ms < started_before_ms)
        ]

    def of_producer(self, producer_id: int) -> TransactionView | None:
        """The transaction of a producer id, if this coordinator has it."""
        transaction = self._producers.get(producer_id)
        if transaction is None or transaction.durable is None:
            return self._committed_view(producer_id)
        return _view(transaction, transaction.durable)

    # Serving

    def _serve(
        self, transaction: Transaction, handle: Handle, token: Token, now_ms: int
    ) -> list[Effect]:
        try:
            handle(transaction, token, now_ms)
        except GoQueueError:
            self._forget_if_void(transaction)
            raise
        self._touch(transaction)
        return self._finish(now_ms)

    def _park(
        self, transaction: Transaction, token: Token, now_ms: int, run: Callable[[int], None]
    ) -> None:
        """Let a call wait, for a bounded time, until the last transaction is completed."""
        if len(transaction.parked) >= CONCURRENT_CALLS_MAX:
            raise concurrent(transaction.transactional_id)

        def run_or_refuse(now_ms: int) -> None:
            try:
                run(now_ms)
            except GoQueueError as error:
                transaction.reply(token, error)

        transaction.parked.append(Parked(token, now_ms + CONCURRENT_WAIT_MS, run_or_refuse))

    def _get(self, transactional_id: str, producer_id: int) -> Transaction:
        self._check_ready(transactional_id)
        transaction = self._transactions.get(transactional_id)
        if transaction is None or transaction.current is None:
            raise unmapped(transactional_id, producer_id)
        return transaction

    def _check_identity(self, transaction: Transaction, identity: ProducerIdentity) -> Standing:
        """The state of the transaction, if this is its current producer."""
        standing = transaction.current
        if standing is None:
            raise unmapped(transaction.transactional_id, identity.producer_id)
        if identity in (standing.identity, standing.next_identity):
            return standing
        known = (standing.producer_id, standing.last_producer_id)
        if identity.producer_id not in known or identity.epoch == NO_EPOCH:
            raise unmapped(transaction.transactional_id, identity.producer_id)
        raise fenced(transaction.transactional_id, identity)


def _view(transaction: Transaction, standing: Standing) -> TransactionView:
    """The state that cannot be undone: that in the log, and that all participants have it."""
    if standing.is_preparing and transaction.has_asked and not transaction.unmarked:
        standing = steps.completed(standing, standing.updated_ms)
    return TransactionView(
        transactional_id=transaction.transactional_id,
        state=standing.state,
        identity=standing.identity,
        timeout_ms=standing.timeout_ms,
        started_ms=standing.started_ms,
        updated_ms=standing.updated_ms,
        partitions=standing.partitions,
    )
