"""Operations on queries, which commit whole epochs of prepared transactions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from goqueue.broker.gate.operation import Area, Arguments, named_by_owner, operation
from goqueue.loop.promise import Promise
from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.queries import query_name
from goqueue.model.session import Session
from goqueue.model.tenants import NamePrefix, QueryId, Text, TransactionHandle, plain_name
from goqueue.transactions import EpochOutcome, QueryView

if TYPE_CHECKING:
    from goqueue.broker.broker import Broker

__all__ = ["EpochOutcome", "ListedQuery", "QueriesArea", "QueryPage", "QueryView"]


def _transactional_ids_of_query(arguments: Arguments) -> Iterable[Resource]:
    """Access to a query is granted by the common prefix of its transactional ids."""
    return (_resource(arguments["query_id"]),)


def _resource(query_id: str) -> Resource:
    return Resource(ResourceKind.TRANSACTIONAL_ID, query_name(query_id))


def _coordinator(broker: Broker, arguments: Arguments) -> int:
    return broker.transactions.owner_of(query_name(arguments["query_id"]))


class ListedQuery(NamedTuple):
    """A query, and how many of its transactions are open."""

    query: QueryView
    writers: int


class QueryPage(NamedTuple):
    """The first queries after a name; `total` counts all matches."""

    queries: list[ListedQuery]
    total: int
    is_last: bool


def _one_page(arguments: Arguments, pages: Sequence[QueryPage]) -> QueryPage:
    limit = arguments["limit"]
    found = sorted((one for page in pages for one in page.queries), key=_name)
    is_last = len(found) <= limit and all(page.is_last for page in pages)
    return QueryPage(found[:limit], sum(page.total for page in pages), is_last)


def _name(one: ListedQuery) -> str:
    return one.query.query_id


class QueriesArea(Area):
    """Queries: open, list, show, commit an epoch."""

    @operation(Action.DESCRIBE, named_by_owner, merge=_one_page, is_reading=True)
    async def list(
        self, session: Session, *, match: Text, after: NamePrefix, limit: int
    ) -> QueryPage:
        """Return the queries whose names contain a text, by name."""
        found = [
            ListedQuery(*one)
            for one in self._broker.epochs.all()
            if match in plain_name(one[0].query_id).lower()
            and self._may(session, Action.DESCRIBE, _resource(one[0].query_id))
        ]
        later = sorted((one for one in found if _name(one) > after), key=_name)
        return QueryPage(later[:limit], len(found), len(later) <= limit)

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
