"""One query: which run may commit, which epoch is committed, and which calls wait."""

from __future__ import annotations

from dataclasses import dataclass, field

from goqueue.transactions.effects import Reply, Token
from goqueue.transactions.records import QueryStanding
from goqueue.transactions.transaction import NO_WRITE, Parked, Transaction


@dataclass(slots=True, eq=False)
class Query:
    """Changes are made to `current`, one at a time; others wait until `durable` has it."""

    query_id: str
    durable: QueryStanding | None = None
    current: QueryStanding | None = None
    write_id: int = NO_WRITE
    deciding: list[Transaction] = field(default_factory=list)  # by the record in flight
    unfinished: set[str] = field(default_factory=set)  # decided by `durable`, not yet complete
    replies: list[Reply] = field(default_factory=list)  # wait for the record
    finishing: list[Reply] = field(default_factory=list)  # wait until all readers can see it
    parked: list[Parked] = field(default_factory=list)
    rest_until_ms: int = 0  # after a write that failed

    @property
    def is_writing(self) -> bool:
        return self.current is not self.durable

    @property
    def is_forgettable(self) -> bool:
        is_busy = self.is_writing or self.replies or self.finishing or self.parked
        return not is_busy and self.durable is None

    @property
    def waiting(self) -> list[Token]:
        tokens = [reply.token for reply in (*self.replies, *self.finishing)]
        return tokens + [parked.token for parked in self.parked]
