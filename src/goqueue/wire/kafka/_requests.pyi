"""The compiled handling of requests; `request_reference.py` says what each function does."""

from goqueue.wire.kafka.request_reference import Run

def read_run(
    data: memoryview, start: int, client_id: bytes, frame_bytes_max: int, count_max: int, /
) -> Run | None: ...
def answer_run(
    parts: list[bytes],
    places: bytes,
    correlation_ids: bytes,
    template: bytes,
    offset_at: int,
    offsets: bytes,
    first: int,
    /,
) -> None: ...
