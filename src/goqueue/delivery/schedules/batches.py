"""Encodes whole batches of the internal topic and of released messages.

The bytes are exactly those of the records that `payload` describes. Millions of similar records are
written, so they are assembled here without creating an object per record.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterable, Sequence

import msgspec

from goqueue.delivery.schedules.ids import ID_CHARACTERS
from goqueue.delivery.schedules.payload import (
    MOVE_SUFFIX,
    RELEASED_HEADER,
    VERSION,
    ScheduledMessage,
)
from goqueue.model.attributes import SCHEDULE_ID_HEADER
from goqueue.model.batch import (
    HEADER_BYTES,
    NO_EPOCH,
    NO_PRODUCER,
    NO_SEQUENCE,
    TRANSACTIONAL,
    Header,
    build_batch,
    varint,
)
from goqueue.model.names import ProducerIdentity

_NUMBER = struct.Struct(">q")
_encode = msgspec.msgpack.Encoder().encode

_START = b"\x00\x00"  # no attributes, and the timestamp of the batch
_NULL = b"\x01"
_NO_HEADERS = b"\x00"
_KEY_LENGTH = varint(_NUMBER.size)
_MOVE_KEY_LENGTH = varint(_NUMBER.size + len(MOVE_SUFFIX))
_RELEASED_HEADERS = varint(1) + varint(len(RELEASED_HEADER)) + RELEASED_HEADER.encode() + varint(0)
_ID_NAME = varint(len(SCHEDULE_ID_HEADER)) + SCHEDULE_ID_HEADER.encode() + varint(ID_CHARACTERS)

Released = tuple[bytes | None, bytes | None, tuple[Header, ...]]  # key, value and headers


def message_batch(
    first: int,
    messages: Sequence[ScheduledMessage],
    now_ms: int,
    *,
    transaction: ProducerIdentity | None = None,
    base_sequence: int = NO_SEQUENCE,
    trailer: tuple[bytes, bytes] | None = None,
) -> tuple[bytearray, list[int]]:
    """Encode messages from number `first` on as one batch; return it with each record's position.

    In a transaction the batch is its producer's. `trailer` is the key and value of a last record.
    """
    parts: list[bytes] = []
    starts: list[int] = []
    position = HEADER_BYTES
    pack, join = _NUMBER.pack, b"".join
    for delta, message in enumerate(messages):
        content = _encode(message)
        body = join(
            (
                _START,
                varint(delta),
                _KEY_LENGTH,
                pack(first + delta),
                varint(len(content) + 1),
                VERSION,
                content,
                _NO_HEADERS,
            )
        )
        length = varint(len(body))
        parts.append(length)
        parts.append(body)
        starts.append(position)
        position += len(length) + len(body)
    if trailer is not None:
        key, value = trailer
        index = varint(len(messages))
        body = join((_START, index, varint(len(key)), key, varint(len(value)), value, _NO_HEADERS))
        parts += (varint(len(body)), body)
    batch = build_batch(
        b"".join(parts),
        record_count=len(messages) + (trailer is not None),
        attributes=0 if transaction is None else TRANSACTIONAL,
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        producer_id=NO_PRODUCER if transaction is None else transaction.producer_id,
        producer_epoch=NO_EPOCH if transaction is None else transaction.epoch,
        base_sequence=base_sequence,
    )
    return batch, starts


def end_batch(
    numbers: Sequence[int], moved: Container[int], now_ms: int, *, is_released: bool
) -> bytearray:
    """Encode tombstones that end messages, and those of their changed due times, as one batch."""
    pack = _NUMBER.pack
    tail = _NULL + (_RELEASED_HEADERS if is_released else _NO_HEADERS)
    parts: list[bytes] = []
    size, head = 0, b""
    for delta, number in enumerate(numbers):
        place = varint(delta)
        if len(place) != size:
            size = len(place)
            head = _head(size + _NUMBER.size + len(tail))
        parts.append(head + place + _KEY_LENGTH + pack(number) + tail)
    if moved:
        tail = MOVE_SUFFIX + _NULL + _NO_HEADERS
        for number in numbers:
            if number in moved:
                place = varint(len(parts))
                head = _head(len(place) + _NUMBER.size + len(tail))
                parts.append(head + place + _MOVE_KEY_LENGTH + pack(number) + tail)
    return _batch(parts, len(parts), now_ms)


def _head(size: int) -> bytes:
    """Encode the start of a record with `size` bytes besides it and the length of its key."""
    return varint(len(_START) + len(_KEY_LENGTH) + size) + _START


def released_records(messages: Iterable[Released], ids: bytes) -> bytes:
    """Encode released messages, each with its schedule id as its last header.

    `ids` holds the ids, concatenated.
    """
    parts: list[bytes] = []
    join = b"".join
    start = 0
    for delta, (key, value, headers) in enumerate(messages):
        stop = start + ID_CHARACTERS
        body = join(
            (
                _START,
                varint(delta),
                _NULL if key is None else varint(len(key)) + key,
                _NULL if value is None else varint(len(value)) + value,
                varint(len(headers) + 1),
                _encode_headers(headers) if headers else b"",
                _ID_NAME,
                ids[start:stop],
            )
        )
        parts.append(varint(len(body)))
        parts.append(body)
        start = stop
    return join(parts)


def _encode_headers(headers: tuple[Header, ...]) -> bytes:
    parts: list[bytes] = []
    for name, content in headers:
        encoded = name.encode()
        parts += (varint(len(encoded)), encoded)
        parts.append(_NULL if content is None else varint(len(content)) + content)
    return b"".join(parts)


def _batch(parts: list[bytes], count: int, now_ms: int) -> bytearray:
    return build_batch(
        b"".join(parts), record_count=count, base_timestamp=now_ms, max_timestamp=now_ms
    )
