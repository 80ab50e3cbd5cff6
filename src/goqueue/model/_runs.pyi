"""The compiled handling of runs; `run_reference.py` says what each function does."""

from goqueue.model.compression import Buffer
from goqueue.model.run_reference import Mark, Piece, Spans

def are_plain(
    data: Buffer, spans: Spans, bytes_max: int, time_min: int, time_max: int, /
) -> bool: ...
def gather_run(
    data: Buffer, pieces: list[Piece], base_offset: int, leader_epoch: int, /
) -> tuple[bytes, bytes, int]: ...
def mark_run(
    run: bytes, position: int, due: int, interval: int, newest: int, newest_offset: int, /
) -> tuple[list[Mark], int, int]: ...
