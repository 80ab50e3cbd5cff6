"""One transactional id: the state of its transaction, in the log and in memory, and its calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from goqueue.model.names import TopicPartition
from goqueue.transactions.effects import Reply, Token
from goqueue.transactions.records import Standing

NO_WRITE = 0


@dataclass(slots=True)
class Parked:
    """A call that waits until the last transaction is completed."""

    token: Token
    until_ms: int
    run: Callable[[int], None]


class Why(StrEnum):
    """Why a transaction ends."""

    PRODUCER = "producer"  # it has committed or aborted, or the epoch of its query has
    REPLACED = "replaced"  # another run of the producer has begun
    TIMEOUT = "timeout"
    REQUESTED = "requested"  # somebody else aborts it


@dataclass(slots=True, eq=False)
class Transaction:
    """Changes are made to `current` at once; callers get replies when `durable` has them.

    Nothing outside may rely on `current`: a crash, or a log that refuses, goes back to `durable`.
    """

    transactional_id: str
    query_id: str | None = None  # the query whose epoch it is a part of
    durable: Standing | None = None
    current: Standing | None = None
    is_staged: bool = False  # `current` is to be written, after the write in flight
    write_id: int = NO_WRITE
    replies: list[Reply] = field(default_factory=list)  # wait for the next write
    unmarked: set[TopicPartition] = field(default_factory=set)  # have not accepted their marker yet
    has_asked: bool = False  # the markers of the decision in `durable` have been requested
    finishing: list[Token] = field(default_factory=list)  # wait until all are marked
    parked: list[Parked] = field(default_factory=list)
    rest_until_ms: int = 0  # after a write that failed
    why: Why = Why.PRODUCER  # it is being ended

    def stage(self, standing: Standing | None) -> None:
        self.current = standing
        self.is_staged = True

    def stage_again(self) -> None:
        """Write the state again, so that replies wait until it is certain that they are still true.

        Another node may coordinate already and have changed the state. A deposed coordinator cannot
        write.
        """
        self.is_staged = True

    def reply(self, token: Token, result: object) -> None:
        self.replies.append(Reply(token, result))

    @property
    def is_forgettable(self) -> bool:
        is_busy = self.is_staged or self.write_id != NO_WRITE or self.replies or self.parked
        return not is_busy and self.durable is None and self.current is None
