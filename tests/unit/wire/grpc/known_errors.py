"""All errors that a client may be told."""

from __future__ import annotations

from collections.abc import Iterator

from goqueue.model.errors import GoQueueError
from goqueue.wire.carrier import problems
from goqueue.wire.carrier.problems import STATUSES, HttpError
from goqueue.wire.grpc import budgets, watches


def _below(kind: type[HttpError]) -> Iterator[type[HttpError]]:
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)


_MODULES = (problems.__name__, budgets.__name__, watches.__name__)
KNOWN: tuple[type[GoQueueError], ...] = (
    *STATUSES,
    *(one for one in _below(HttpError) if one.__module__ in _MODULES),
)
BY_CODE = {one.code: one for one in KNOWN if hasattr(one, "code")}


def instance_of(kind: type[GoQueueError]) -> GoQueueError:
    """An error as far as its kind says what it is; its fields are missing."""
    return kind.__new__(kind)
