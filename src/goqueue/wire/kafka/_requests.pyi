"""The compiled reading of requests; `request_reference.py` says what it does."""

from goqueue.wire.kafka.request_reference import Run

def read_run(
    data: memoryview, start: int, client_id: bytes, frame_bytes_max: int, count_max: int, /
) -> Run | None: ...
