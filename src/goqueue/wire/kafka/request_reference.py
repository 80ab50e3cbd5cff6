"""The commonest requests, read by hand: each brings one batch for one partition.

`_requests.c` reads many of them at once, compiled; this says the same in plain Python. Whatever
has another form is left to the generated codec.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from struct import Struct
from struct import error as StructError

VERSION_MIN = 5
VERSION_MAX = 12  # from 13 on topics go by their ids
FLEXIBLE_FROM = 9

_PRODUCE_KEY = 0
_HEAD = Struct(">ihhi")  # length, what is asked for, in which version, correlation id
_PLAIN_HEAD = Struct(">hhiih")  # transactional id, acks, time-out, topics, length of the name
_PLAIN_PARTITION = Struct(">iii")  # partitions, number, bytes
_FLEXIBLE_HEAD = Struct(">bhibb")  # the same, with lengths one too large
_FLEXIBLE_PARTITION = Struct(">bi")
_NUMBER = Struct(">i")
_OFFSET = Struct(">q")
_ANSWER_ID_AT = 4
_NO_TAGS = b"\x00"
_END_TAGS = b"\x00\x00\x00"  # no tagged fields in the partition, the topic and the request
_SIZE_BYTES_MAX = 5

# The key of a partition is what a request says of it, from the topic's name to the number, and the
# version that it says it in. A share is what a run has for one key: the places of its requests in
# the run, their correlation ids, and where their batches start and end, in turns. Those numbers are
# packed as `pack_numbers` does it, because nobody looks at one of them alone.
Share = tuple[bytes, bytes, bytes, bytes]
Run = tuple[int, int, int, list[Share]]  # where it ends, acks, how many requests, their shares
Parsed = tuple[int, bytes, int, int]  # acks, key, start and end of the batch
_Row = tuple[int, bytes, int, int]  # correlation id, key, start and end of the batch
_Places = tuple[int, int, int, int, int]  # acks, where the key and the batch begin and end


def read_run(
    data: memoryview, start: int, client_id: bytes, frame_bytes_max: int, count_max: int, /
) -> Run | None:
    """The requests that want the same acks in the same version from `start` on; None if none does.

    Their header must name the client as `client_id` does, in the bytes that it has there. Because
    of the one version no partition has two keys, and what is for one keeps its order.
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
    """Put the answers of a share into their places: the template with an id, and an offset, each.

    The offsets of all batches are packed; those of this share begin with the `first`. If there are
    none at all, the template's is left in place.
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
    """Numbers of four bytes each, in the order of bytes that the processor has."""
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
    """The one batch of a request whose body begins at `at`; None if that is not all it has."""
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
    """The topic's name, the number of the partition, and the version."""
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
