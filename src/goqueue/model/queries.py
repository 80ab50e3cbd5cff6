"""Names of transactions that are committed together, an epoch of a query at a time.

A query writes epoch after epoch, each with many transactions, decided by one record. So all of
them, and that record, must have one coordinator: it is determined by the query alone.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from goqueue.model.errors import InvalidRequest

PREFIX = "__query~"
QUERY_ID_LENGTH_MAX = 100
EPOCH_MAX = (1 << 63) - 1
RUN_MAX = (1 << 63) - 1

_QUERY_ID = re.compile(rf"[a-zA-Z0-9._-]{{1,{QUERY_ID_LENGTH_MAX}}}")
_NAME = re.compile(
    rf"{PREFIX}(?P<query>[a-zA-Z0-9._-]{{1,{QUERY_ID_LENGTH_MAX}}})"
    r"~(?P<run>0|[1-9][0-9]{0,18})~(?P<epoch>0|[1-9][0-9]{0,18})~(?P<attempt>[a-zA-Z0-9._-]{1,64})"
)


class Attempt(NamedTuple):
    """One attempt to write a part of an epoch; another attempt at the same part has another
    name.
    """

    query_id: str
    run: int  # of the query, as returned when it was opened
    epoch: int
    attempt: str

    @property
    def transactional_id(self) -> str:
        return f"{PREFIX}{self.query_id}~{self.run}~{self.epoch}~{self.attempt}"


def check_query_id(query_id: str) -> None:
    if not _QUERY_ID.fullmatch(query_id):
        raise InvalidRequest(
            f"{query_id[:QUERY_ID_LENGTH_MAX]!r} is not a valid query id: use 1 to "
            f"{QUERY_ID_LENGTH_MAX} letters, digits, '.', '_' and '-'."
        )


def read_attempt(transactional_id: str) -> Attempt | None:
    """Parse a name; None for transactions that belong to no query."""
    if not transactional_id.startswith(PREFIX):
        return None
    found = _NAME.fullmatch(transactional_id)
    if found is None or int(found["run"]) > RUN_MAX or int(found["epoch"]) > EPOCH_MAX:
        raise InvalidRequest(
            f"{transactional_id[:260]!r} is not a name for a transaction of a query: use "
            f"{PREFIX}query~run~epoch~attempt, or a name without that prefix."
        )
    return Attempt(found["query"], int(found["run"]), int(found["epoch"]), found["attempt"])


def routing_name(transactional_id: str) -> str:
    """The name that determines the coordinator: the query's, or the transactional id itself."""
    if not transactional_id.startswith(PREFIX):
        return transactional_id
    return PREFIX + transactional_id[len(PREFIX) :].partition("~")[0]
