"""Names of transactions that are committed together, an epoch of a query at a time.

A query writes epoch after epoch, each with many transactions, decided by one record. So all of
them, and that record, must have one coordinator: it is determined by the query alone.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from goqueue.model.errors import InvalidRequest
from goqueue.model.tenants import plain_name, prefix_of

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
        return f"{query_name(self.query_id)}~{self.run}~{self.epoch}~{self.attempt}"


def query_name(query_id: str) -> str:
    """Return what the transactional ids of a query begin with: its tenant comes first."""
    return f"{prefix_of(query_id)}{PREFIX}{plain_name(query_id)}"


def query_of_name(name: str) -> str | None:
    """Return the query id in such a name; None if it is not one."""
    plain = plain_name(name)
    return prefix_of(name) + plain[len(PREFIX) :] if plain.startswith(PREFIX) else None


def check_query_id(query_id: str) -> None:
    if not _QUERY_ID.fullmatch(plain_name(query_id)):
        raise InvalidRequest(
            f"{query_id[:QUERY_ID_LENGTH_MAX]!r} is not a valid query id: use 1 to "
            f"{QUERY_ID_LENGTH_MAX} letters, digits, '.', '_' and '-'."
        )


def read_attempt(transactional_id: str) -> Attempt | None:
    """Parse a name; None for transactions that belong to no query."""
    plain = plain_name(transactional_id)
    if not plain.startswith(PREFIX):
        return None
    found = _NAME.fullmatch(plain)
    if found is None or int(found["run"]) > RUN_MAX or int(found["epoch"]) > EPOCH_MAX:
        raise InvalidRequest(
            f"{transactional_id[:260]!r} is not a name for a transaction of a query: use "
            f"{PREFIX}query~run~epoch~attempt, or a name without that prefix."
        )
    query_id = prefix_of(transactional_id) + found["query"]
    return Attempt(query_id, int(found["run"]), int(found["epoch"]), found["attempt"])


def routing_name(transactional_id: str) -> str:
    """The name that determines the coordinator: the query's, or the transactional id itself."""
    plain = plain_name(transactional_id)
    if not plain.startswith(PREFIX):
        return transactional_id
    query = PREFIX + plain[len(PREFIX) :].partition("~")[0]
    return prefix_of(transactional_id) + query
