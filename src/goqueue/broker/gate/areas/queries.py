"""Operations on queries, which commit whole epochs of prepared transactions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from goqueue.broker.gate.operation import Area, Arguments, operation
from goqueue.loop.promise import Promise
from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.queries import query_name
from goqueue.model.session import Session
from goqueue.model.tenants import QueryId, Text, TransactionHandle
from goqueue.transactions import EpochOutcome, QueryView

if TYPE_CHECKING:
    from goqueue.broker.broker import Broker

__all__ = ["EpochOutcome", "QueriesArea", "QueryView"]


def _transactional_ids_of_query(arguments: Arguments) -> Iterable[Resource]:
    """Access to a query is granted by the common prefix of its transactional ids."""
    return (Resource(ResourceKind.TRANSACTIONAL_ID, query_name(arguments["query_id"])),)


def _coordinator(broker: Broker, arguments: Arguments) -> int:
    return broker.transactions.owner_of(query_name(arguments["query_id"]))


class QueriesArea(Area):
    """Queries: open, show, commit an epoch."""

    @operation(Action.WRITE, _transactional_ids_of_query, owner=_coordinator)
    def open(self, session: Session, *, query_id: QueryId, run_name: Text) -> Promise[QueryView]:
        """Start a run of a query; fence earlier runs, and abort their open transactions."""
        return self._broker.epochs.open(query_id, run_name)

    @operation(Action.DESCRIBE, _transactional_ids_of_query, owner=_coordinator, is_reading=True)
    async def show(self, session: Session, *, query_id: QueryId) -> QueryView:
        """Return the newest run and the newest epoch of a query."""
        return self._broker.epochs.describe(query_id)

    @operation(Action.WRITE, _transactional_ids_of_query, owner=_coordinator)
    async def commit_epoch(
        self,
        session: Session,
        *,
        query_id: QueryId,
        run: int,
        epoch: int,
        transaction_ids: Sequence[TransactionHandle],
        is_last: bool,
    ) -> EpochOutcome:
        """Commit prepared transactions as one epoch, unless it is already committed."""
        ids = self._broker.transacting.ids
        return await self._broker.epochs.commit(
            query_id,
            run=run,
            epoch=epoch,
            prepared=[ids.read(one) for one in transaction_ids],
            is_last=is_last,
        )
