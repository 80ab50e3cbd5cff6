"""Decodes the most frequent requests by hand: each has one batch for one partition.

`_requests.c` decodes many of them at once; this is the same in plain Python. Requests of any other
form are left to the generated codec.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from struct import Struct
from struct import error as StructError

VERSION_MIN = 5
VERSION_MAX = 12  # from version 13 on requests have topic ids
FLEXIBLE_FROM = 9

_PRODUCE_KEY = 0
_HEAD = Struct(">ihhi")  # length, API key, version, correlation id
_PLAIN_HEAD = Struct(">hhiih")  # transactional id, acks, timeout, topics, length of the name
_PLAIN_PARTITION = Struct(">iii")  # partitions, number, bytes
_FLEXIBLE_HEAD = Struct(">bhibb")  # the same, with lengths plus one
_FLEXIBLE_PARTITION = Struct(">bi")
_NUMBER = Struct(">i")
_OFFSET = Struct(">q")
_ANSWER_ID_AT = 4
_NO_TAGS = b"\x00"
_END_TAGS = b"\x00\x00\x00"  # no tagged fields in the partition, the topic and the request
_SIZE_BYTES_MAX = 5

# The key of a partition is the part of a request that identifies it, from the topic's name to the
# partition number, and the version. A share is the part of a run for one key: the indexes of its
# requests in the run, their correlation ids, and where their batches start and end, alternating.
# These numbers are packed as by `pack_numbers`, because none is used alone.
Share = tuple[bytes, bytes, bytes, bytes]
Run = tuple[int, int, int, list[Share]]  # where it ends, acks, number of requests, their shares
Parsed = tuple[int, bytes, int, int]  # acks, key, start and end of the batch
_Row = tuple[int, bytes, int, int]  # correlation id, key, start and end of the batch
_Places = tuple[int, int, int, int, int]  # acks, start and end of the key and of the batch


def read_run(
    data: memoryview, start: int, client_id: bytes, frame_bytes_max: int, count_max: int, /
) -> Run | None:
    """Return the requests from `start` on with the same acks and version; None if there are none.

    Their header must contain the client id as the bytes `client_id`. With one version no partition
    has two keys, so the batches of a partition stay in order.
    """
    promise: int | None = None
    version_first: int | None = None
    rows: list[_Row] = []
    while len(rows) < count_max and len(data) - start >= _HEAD.size:
        length, api_key, version, correlation_id = _HEAD.unpack_from(data, start)
        frame = data[start : start + 4 + length]
        if not 0 <= length <= frame_bytes_max or len(frame) != 4 + length:
            break
        if api_key != _PRODUCE_KEY or not VERSION_MIN <= version <= VERSION_MAX:
            break
        if version_first not in (None, version):
            break
        body = _HEAD.size + len(client_id)
        if frame[_HEAD.size : body] != client_id:
            break
        if version >= FLEXIBLE_FROM:
            if frame[body : body + 1] != _NO_TAGS:
                break
            body += 1
        parsed = parse_produce(frame, body, version)
        if parsed is None or promise not in (None, parsed[0]):
            break
        promise, key, batch_start, batch_end = parsed
        version_first = version
        rows.append((correlation_id, key, start + batch_start, start + batch_end))
        start += 4 + length
    return None if promise is None else (start, promise, len(rows), _shares(rows))


def answer_run(
    parts: list[bytes],
    places: bytes,
    correlation_ids: bytes,
    template: bytes,
    offset_at: int,
    offsets: bytes,
    first: int,
    /,
) -> None:
    """Fill in the responses of a share: each is the template with a correlation id and an offset.

    The offsets of all batches are packed; those of this share begin at `first`. Without offsets,
    that of the template stays.
    """
    base_offsets = memoryview(offsets).cast("q")[first:]
    numbers = zip(_unpacked(places), _unpacked(correlation_ids), strict=True)
    for number, (place, correlation_id) in enumerate(numbers):
        answer = bytearray(template)
        _NUMBER.pack_into(answer, _ANSWER_ID_AT, correlation_id)
        if offsets:
            _OFFSET.pack_into(answer, offset_at, base_offsets[number])
        parts[place] = bytes(answer)


def pack_numbers(numbers: Iterable[int]) -> bytes:
    """Pack numbers as four bytes each, in native byte order."""
    return array("i", numbers).tobytes()


def _unpacked(numbers: bytes) -> list[int]:
    return memoryview(numbers).cast("i").tolist()


def _shares(rows: list[_Row]) -> list[Share]:
    by_key: dict[bytes, list[tuple[int, _Row]]] = {}
    for place, row in enumerate(rows):
        by_key.setdefault(row[1], []).append((place, row))
    return [
        (
            key,
            pack_numbers(place for place, _ in some),
            pack_numbers(row[0] for _, row in some),
            pack_numbers(number for _, row in some for number in row[2:]),
        )
        for key, some in by_key.items()
    ]


def parse_produce(frame: memoryview, at: int, version: int) -> Parsed | None:
    """Decode the single batch of a request whose body starts at `at`; None for any other form."""
    try:
        parse = _parse_flexible if version >= FLEXIBLE_FROM else _parse_plain
        places = parse(frame, at)
    except (StructError, IndexError):
        return None
    if places is None:
        return None
    acks, name, name_end, start, end = places
    return acks, bytes(frame[name:name_end]) + bytes((version,)), start, end


def split_key(key: bytes) -> tuple[bytes, int, int]:
    """The topic's name, the partition number, and the version of a key."""
    version, end = key[-1], len(key) - 1 - _NUMBER.size
    (number,) = _NUMBER.unpack_from(key, end)
    count_bytes = 1 if version >= FLEXIBLE_FROM else 4
    return key[: end - count_bytes], number, version


def _parse_plain(frame: memoryview, at: int) -> _Places | None:
    transactional, acks, _, topics, length = _PLAIN_HEAD.unpack_from(frame, at)
    if transactional != -1 or acks not in (1, -1) or topics != 1 or length <= 0:
        return None
    name = at + _PLAIN_HEAD.size
    at = name + length
    partitions, _, size = _PLAIN_PARTITION.unpack_from(frame, at)
    start = at + _PLAIN_PARTITION.size
    if partitions != 1 or size <= 0 or start + size != len(frame):
        return None
    return acks, name, start - 4, start, start + size


def _parse_flexible(frame: memoryview, at: int) -> _Places | None:
    transactional, acks, _, topics, length = _FLEXIBLE_HEAD.unpack_from(frame, at)
    # A longer name would need a second byte for its length.
    if transactional != 0 or acks not in (1, -1) or topics != 2 or length <= 1:
        return None
    name = at + _FLEXIBLE_HEAD.size
    at = name + length - 1
    partitions, _ = _FLEXIBLE_PARTITION.unpack_from(frame, at)
    key_end = start = at + _FLEXIBLE_PARTITION.size
    size = 0
    for shift in range(0, 7 * _SIZE_BYTES_MAX, 7):
        byte = frame[start]
        start += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    else:
        return None
    end = start + size - 1
    if partitions != 2 or size <= 1 or frame[end:] != _END_TAGS:
        return None
    return acks, name, key_end, start, end
