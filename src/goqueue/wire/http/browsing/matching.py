"""Conditions on single messages, for what is not found by a search of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from goqueue.model.errors import InvalidRegularExpression

if TYPE_CHECKING:
    from goqueue.broker.gate.areas.records import RecordFilter
    from goqueue.model.batch import Record

PATTERN_MEMORY_BYTES_MAX = 4 << 20  # of a compiled pattern


class Pattern:
    """A regular expression, which RE2 searches in linear time."""

    __slots__ = ("_search",)

    def __init__(self, text: str) -> None:
        # Imported here, because few clients use a pattern, and it takes some megabytes.
        import re2

        options = re2.Options()
        options.max_mem = PATTERN_MEMORY_BYTES_MAX
        options.log_errors = False
        try:
            self._search: Any = re2.compile(text.encode(), options).search
        except re2.error as error:
            raise InvalidRegularExpression(
                f"The regular expression {text[:200]!r} does not follow RE2 syntax."
            ) from error

    def is_in(self, record: Record) -> bool:
        """Whether the key, the value or the value of a header has a match."""
        search = self._search
        return (
            (record.value is not None and search(record.value) is not None)
            or (record.key is not None and search(record.key) is not None)
            or any(value is not None and search(value) is not None for _, value in record.headers)
        )


def satisfies(record: Record, wanted: RecordFilter, trace: bytes | None = None) -> bool:
    """Whether a record satisfies conditions, as a search of the log decides it.

    `trace` has the digits of the trace id that is wanted.
    """
    if wanted.key is not None and record.key != wanted.key:
        return False
    if wanted.header is not None and not any(
        name == wanted.header and wanted.header_value in (None, value)
        for name, value in record.headers
    ):
        return False
    if trace is not None and not _is_of_trace(record, trace):
        return False
    text = wanted.text
    if text is None:
        return True
    fields = (record.key, record.value, *(value for _, value in record.headers))
    return any(one is not None and text in one for one in fields)


def _is_of_trace(record: Record, trace: bytes) -> bool:
    # Imported here with all that searches need, because most nodes are never searched.
    from goqueue.model.scanning import trace_of

    return any(trace_of(name.encode(), value) == trace for name, value in record.headers)
