"""The compiled handling of runs; `run_reference.py` says what each function does."""

from goqueue.model.batch import BatchHeader
from goqueue.model.compression import Buffer
from goqueue.model.run_reference import Span

def is_plain(
    data: Buffer, start: int, end: int, bytes_max: int, time_min: int, time_max: int, /
) -> bool: ...
def gather_run(
    data: Buffer,
    spans: list[Span],
    base_offset: int,
    leader_epoch: int,
    row: type[BatchHeader],
    /,
) -> tuple[bytes, list[BatchHeader]]: ...
