"""The compiled decoder; `decode_reference.py` says what each function does."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from goqueue.model.compression import Buffer
from goqueue.model.decode_fields import Headers
from goqueue.model.decode_reference import Batch, Index, JsonColumn, TableColumns

Row = TypeVar("Row")

def records(
    data: bytes,
    position: int,
    count_max: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
    row: Callable[..., Row],
    /,
) -> tuple[list[Row], int]: ...
def raw_records(
    data: bytes, position: int, count_max: int, row: Callable[..., Row], /
) -> tuple[list[Row], int]: ...
def index(
    data: bytes, count: int, base_offset: int, base_timestamp: int, append_time: int | None, /
) -> Index: ...
def columns(batches: Sequence[Batch], start: int, end: int, wanted: int, /) -> TableColumns: ...
def checksums(data: Buffer, bounds: memoryview, /) -> bytes: ...
def slices(
    data: bytes, starts: memoryview, ends: memoryview, places: Sequence[int], /
) -> list[bytes | None]: ...
def texts(
    data: bytes, starts: memoryview, ends: memoryview, places: Sequence[int], /
) -> list[str | None]: ...
def headers(data: bytes, start: int, end: int, /) -> Headers: ...
def json_rows(
    fragments: tuple[bytes, ...], columns: tuple[JsonColumn, ...], count: int, /
) -> bytes: ...
def check_records(
    data: Buffer, position: int, count: int, base_timestamp: int, has_gaps: bool, /
) -> tuple[int, int, int]: ...
def contains(needle: bytes, data: Buffer, start: int, /) -> bool: ...
