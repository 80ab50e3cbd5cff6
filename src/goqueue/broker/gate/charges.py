"""What operations that return records charge for: the bytes and the number of the records.

An operation declares it with `charges`. The node that performs it refuses the call while the client
is over its rate, and charges the answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from goqueue.broker.quotas.quotas import size_of
from goqueue.broker.schedules.listing import Schedule
from goqueue.model.batch import Record


def records_charge(records: Iterable[Record | None]) -> tuple[int, int]:
    """Return the bytes and the number of some records."""
    sizes = [size_of(one) for one in records if one is not None]
    return sum(sizes), len(sizes)


def as_it_reads(_: Any) -> tuple[int, int]:
    """For an operation that charges what it reads itself, which is not what it returns."""
    return 0, 0


def one_record(record: Record) -> tuple[int, int]:
    return size_of(record), 1


def scheduled_message(found: Schedule) -> tuple[int, int]:
    return size_of(Record(found.key, found.value or b"", found.headers)), 1


def messages_with_records(found: Iterable[Any]) -> tuple[int, int]:
    """For a list of what has a `record`."""
    return records_charge(one.record for one in found)


def records_of_poll(polled: Any) -> tuple[int, int]:
    return messages_with_records(polled.records)


def records_of_page(page: Any) -> tuple[int, int]:
    """For pairs of a place and a record."""
    return records_charge(record for _, record in page.records)


def bytes_searched(page: Any) -> tuple[int, int]:
    """For a search, which reads far more than it finds."""
    return page.read_bytes, len(page.records)
