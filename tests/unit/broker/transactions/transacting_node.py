"""A node whose clients use transactions without knowing producers."""

from __future__ import annotations

from typing import Any

from goqueue.broker.publishing.publisher import Published, PublishResult, Scheduled
from goqueue.broker.reading.records import Place
from goqueue.broker.transactions.ids import Transaction
from goqueue.broker.transactions.publishing import Addressed
from goqueue.model.attributes import DELAY_HEADER
from goqueue.model.batch import Record
from goqueue.model.errors import GoQueueError
from tests.unit.broker.queues.test_queues import Messages, QueueNode, receipts


class TransactingNode(QueueNode):
    def begin(self, name: str | None = None, *, timeout_ms: int = 60_000) -> Transaction:
        return self.wait(self.broker.transacting.begin(name, timeout_ms=timeout_ms))

    def publish(
        self,
        transaction: Transaction,
        *values: str,
        topic: str = "out",
        delay_ms: int | None = None,
        partition: int | None = None,
    ) -> list[PublishResult]:
        headers = () if delay_ms is None else ((DELAY_HEADER, str(delay_ms).encode()),)
        messages = [
            Addressed(topic, Record(None, one.encode(), headers), partition) for one in values
        ]
        return self.wait(self.broker.transacting.publish(transaction, messages))

    def publish_well(self, transaction: Transaction, *values: str, **options: Any) -> None:
        for result in self.publish(transaction, *values, **options):
            assert isinstance(result, Published | Scheduled), result

    def ack_in(
        self, transaction: Transaction, messages: Messages, group: str = "shop"
    ) -> list[str | None]:
        outcomes = self.wait(self.broker.transacting.ack(transaction, group, receipts(messages)))
        return [None if one is None else one.code for one in outcomes]

    def commit(self, transaction: Transaction) -> None:  # type: ignore[override]
        self.wait(self.broker.transacting.commit(transaction))

    def abort(self, transaction: Transaction) -> None:
        self.wait(self.broker.transacting.abort(transaction))

    def refusal(self, call: Any, *arguments: Any, **options: Any) -> str:
        """The code of the error that a call ends in; it must."""
        try:
            call(*arguments, **options)
        except GoQueueError as error:
            return error.code
        raise AssertionError("nothing was refused")

    def read(self, topic: str = "out") -> list[str]:
        """What a reader of committed messages sees, of all partitions."""
        target = self.broker.topics.get(topic)
        places = [Place(one, one.start_offset) for one in target.partitions]
        page = self.wait(
            self.broker.reads.read(places, records_max=1000, bytes_max=1 << 20).promise
        )
        return [(record.value or b"").decode() for _, record in page.records]

    def states(self, topic: str = "orders", group: str = "shop") -> list[str]:
        self.broker.queues.inspection.lanes(
            topic
        )  # which looks at what a start has left to be looked at
        found = self.wait(self.broker.queues.inspection.peek(group, topic, 0, offset=0, count=1000))
        return [one.state.state for one in found]

    def schedule_count(self) -> int:
        return self.wait(self.broker.schedules.count())
