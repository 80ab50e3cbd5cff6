"""The compiled scans; `reference.py` says what each function does."""

from goqueue.model.compression import Buffer

_Field = bytes | None

def hashes(data: Buffer, position: int, offset: int, /) -> tuple[bytes, int, int, int, int]: ...
def record_hashes(payload: Buffer, count: int, /) -> bytes: ...
def find(
    data: Buffer,
    position: int,
    offset: int,
    key: _Field,
    trace: _Field,
    name: _Field,
    content: _Field,
    text: _Field,
    /,
) -> tuple[list[int], int, int, int, int]: ...
def find_records(
    payload: Buffer,
    count: int,
    offset: int,
    key: _Field,
    trace: _Field,
    name: _Field,
    content: _Field,
    text: _Field,
    /,
) -> list[int]: ...
def bloom(hashes: Buffer, /) -> bytes: ...
