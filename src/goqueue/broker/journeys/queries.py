"""What a query of the journal wants, and what it returns; `searching` answers it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from goqueue.model.tenants import Text

OFFSET_MAX = (1 << 62) - 1


class JournalQuery(NamedTuple):
    """Which events are wanted. Without a topic, those about all."""

    topic_id: bytes | None = None
    partition: int | None = None
    first: int = 0
    end: int = OFFSET_MAX
    kinds: tuple[int, ...] = ()
    group: Text = ""  # as the broker names it
    from_ms: int | None = None
    until_ms: int | None = None


class FoundRecord(NamedTuple):
    """The wanted events of one record of the journal, encoded, and the offset of the record."""

    offset: int
    key: bytes
    value: bytes


class FoundEvents(NamedTuple):
    """What a call has found, in the order of the journal, and where the next one continues."""

    records: Sequence[FoundRecord]
    next_offset: int
    is_end: bool
    read_bytes: int = 0


class CountedEvents(NamedTuple):
    """What a call has counted, and where the next one continues."""

    kinds: Sequence[tuple[int, Text, int, int]]  # kind, group, messages and bytes
    next_offset: int
    is_end: bool
    read_bytes: int = 0
