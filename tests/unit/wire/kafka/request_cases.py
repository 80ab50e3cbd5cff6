"""Requests that bring batches, sound and hostile.

Used by the unit tests and by the run with the sanitizers, which has no test runner.
"""

from __future__ import annotations

import random
import struct

from goqueue.model.batch import Record, encode_batch
from goqueue.wire.kafka.headers import encode_request_header
from goqueue.wire.kafka.messages import API_BY_NAME
from goqueue.wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from goqueue.wire.kafka.request_reference import VERSION_MAX, VERSION_MIN

BATCH = bytes(encode_batch([Record(b"k", b"v" * 100, timestamp_ms=1)]))
CLIENT_ID = b"\x00\x04peer"  # as the header of a request has it
FRAME_BYTES_MAX = 1000
REQUESTS_MAX = 5

_PRODUCE = API_BY_NAME["Produce"]


def frame(
    version: int = 7,
    *,
    name: str = "orders",
    partitions: tuple[int, ...] = (3,),
    acks: int = 1,
    batch: bytes | None = BATCH,
    transactional_id: str | None = None,
    correlation_id: int = 1,
) -> bytes:
    """A request as a client sends it."""
    data = [PartitionProduceData(index=number, records=batch) for number in partitions]
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name=name, partition_data=data)],
    )
    header = encode_request_header(
        _PRODUCE, version=version, correlation_id=correlation_id, client_id="peer"
    )
    body = header + _PRODUCE.codec.encode_request(request, version)
    return struct.pack(">i", len(body)) + body


def hostile_frames(chance: random.Random) -> bytes:
    """Requests of which some bytes are changed, and the last of them may be missing."""
    frames = bytearray()
    for _ in range(chance.randint(1, 3)):
        one = bytearray(frame(chance.randint(VERSION_MIN, VERSION_MAX)))
        for _ in range(chance.choice([0, 0, 1, 3])):
            one[chance.randrange(min(len(one), chance.choice([60, 1000])))] = chance.randrange(256)
        frames += one
    return bytes(frames[: chance.choice([len(frames), chance.randint(0, len(frames))])])
