"""The compiled encoder; `encode_reference.py` says what each function does."""

from goqueue.model.encode_reference import Column, Columns

def append(
    batch: bytearray,
    count: int,
    base_timestamp: int,
    columns: Columns,
    places: memoryview,
    first: int,
    bytes_max: int,
    records_max: int,
    /,
) -> tuple[int, int]: ...
def partitions(keys: Column, partition_count: int, /) -> memoryview: ...
