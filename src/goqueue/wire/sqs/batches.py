"""Batches: entries with ids, each of which succeeds or fails separately."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol, TypeVar

from goqueue.model.errors import GoQueueError
from goqueue.wire.sqs.errors import (
    BatchEntryIdsNotDistinct,
    EmptyBatchRequest,
    InvalidBatchEntryId,
    MissingParameter,
    TooManyEntriesInBatchRequest,
    told,
)
from goqueue.wire.sqs.shapes import Failed

ENTRIES_MAX = 10
_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")


class Entry(Protocol):
    id: str | None


E = TypeVar("E", bound=Entry)


def check_entries(entries: Sequence[E] | None, action: str) -> Sequence[E]:
    """Raise unless there is at least one entry, not too many, and all ids are distinct."""
    if not entries:
        raise EmptyBatchRequest(f"{action}RequestEntry")
    if len(entries) > ENTRIES_MAX:
        raise TooManyEntriesInBatchRequest(len(entries), ENTRIES_MAX)
    seen = set()
    for number, one in enumerate(entries, 1):
        if one.id is None:
            raise MissingParameter(f"{action}RequestEntry.{number}.Id")
        if not _ID.fullmatch(one.id):
            raise InvalidBatchEntryId
        if one.id in seen:
            raise BatchEntryIdsNotDistinct(one.id)
        seen.add(one.id)
    return entries


def failed(entry_id: str | None, error: GoQueueError) -> Failed:
    refusal = told(error)
    return Failed(entry_id or "", refusal.is_of_sender, refusal.query_name, str(refusal))
