"""Names of the transactions that are committed together, an epoch of a query at a time.

A query writes epoch after epoch, each with many transactions, which one record decides. So all of
them, and that record, must be in the care of one coordinator: it is found by the query alone.
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
    """One try to write a part of an epoch; another try of the same part has another name."""

    query_id: str
    run: int  # of the query, as the answer to its opening says
    epoch: int
    attempt: str

    @property
    def transactional_id(self) -> str:
        return f"{PREFIX}{self.query_id}~{self.run}~{self.epoch}~{self.attempt}"


def check_query_id(query_id: str) -> None:
    if not _QUERY_ID.fullmatch(query_id):
        raise InvalidRequest(
            f"{query_id[:QUERY_ID_LENGTH_MAX]!r} cannot name a query: use 1 to "
            f"{QUERY_ID_LENGTH_MAX} letters, digits, '.', '_' and '-'."
        )


def read_attempt(transactional_id: str) -> Attempt | None:
    """What the name says; None for transactions that belong to no query."""
    if not transactional_id.startswith(PREFIX):
        return None
    found = _NAME.fullmatch(transactional_id)
    if found is None or int(found["run"]) > RUN_MAX or int(found["epoch"]) > EPOCH_MAX:
        raise InvalidRequest(
            f"{transactional_id[:260]!r} is no name for a transaction of a query: that is "
            f"{PREFIX}query~run~epoch~attempt; names that begin otherwise are free."
        )
    return Attempt(found["query"], int(found["run"]), int(found["epoch"]), found["attempt"])


def routing_name(transactional_id: str) -> str:
    """What decides who coordinates: the name itself, or of a query's transactions the query."""
    if not transactional_id.startswith(PREFIX):
        return transactional_id
    return PREFIX + transactional_id[len(PREFIX) :].partition("~")[0]
