"""Queries of a broker in memory: runs, epochs, and which transactions were committed."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace, TracebackType
from typing import Any

from goqueue.model.batch import Record, decode_batch, read_header
from goqueue.model.errors import InvalidTransactionState
from goqueue.model.names import TopicPartition
from goqueue.model.queries import Attempt
from tests.unit.client.fake_broker import FakeBroker

FIRST_PRODUCER_ID = 1000


@dataclass
class FakeQueries:
    """What `Client.queries` and `Client.transactions` answer, and what readers see in the end."""

    runs: dict[str, int] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    attempts: dict[str, Attempt] = field(default_factory=dict)  # by transaction
    prepared: set[str] = field(default_factory=set)
    committed: set[str] = field(default_factory=set)
    aborted: set[str] = field(default_factory=set)

    # The parts of a client that a copy uses

    @property
    def queries(self) -> FakeQueries:
        return self

    @property
    def transactions(self) -> FakeQueries:
        return self

    def __enter__(self) -> FakeQueries:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def open(self, query: str) -> Any:
        self.runs[query] = self.runs.get(query, 0) + 1
        for one, attempt in self.attempts.items():
            if attempt.query_id == query and one not in self.committed:
                self.aborted.add(one)
        return SimpleNamespace(run=self.runs[query], epoch=self.epochs.get(query))

    def begin(self, attempt: Attempt, *, timeout: float) -> Any:
        self._check_run(attempt)
        number = FIRST_PRODUCER_ID + len(self.attempts)
        self.attempts[str(number)] = attempt
        return SimpleNamespace(
            id=str(number),
            transactional_id=attempt.transactional_id,
            producer_id=number,
            producer_epoch=0,
        )

    def prepare(self, transaction_id: str) -> None:
        assert transaction_id not in self.aborted
        self.prepared.add(transaction_id)

    def commit(self, query: str, epoch: int, *, run: int, transactions: list[str]) -> Any:
        for one in transactions:
            self._check_run(self.attempts[one])
            assert self.attempts[one][:3] == (query, run, epoch)
            assert one in self.prepared - self.aborted
        assert epoch == self.epochs.get(query, -1) + 1
        self.epochs[query] = epoch
        self.committed.update(transactions)
        return SimpleNamespace(outcome="committed")

    def abort(self, transaction_id: str) -> None:
        assert transaction_id not in self.committed
        self.aborted.add(transaction_id)

    def _check_run(self, attempt: Attempt) -> None:
        if attempt.run != self.runs[attempt.query_id]:
            raise InvalidTransactionState("Another driver has opened the query.")

    # What a reader sees

    def visible(self, broker: FakeBroker, partition: TopicPartition) -> list[Record]:
        """Records that are in no transaction, or in one that was committed."""
        return [
            record
            for batch in broker.logs[partition]
            if self._is_visible(read_header(batch).producer_id)
            for record in decode_batch(batch)
        ]

    def _is_visible(self, producer_id: int) -> bool:
        return producer_id < FIRST_PRODUCER_ID or str(producer_id) in self.committed
