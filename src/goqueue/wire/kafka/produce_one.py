"""The commonest request by far, read and answered by hand: one batch for one partition.

It says the same as the generated codec with the handler in `handlers/produce.py`, in a third of
the steps. Whatever does not have exactly this form, or fails, is left to them.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING

from goqueue.broker.joining import Joining
from goqueue.broker.schedule_split import Split
from goqueue.model.errors import GoQueueError
from goqueue.partition import Appended, Partition
from goqueue.wire.kafka.errors import code_of

if TYPE_CHECKING:
    from goqueue.broker.topics import Topic
    from goqueue.wire.kafka.connection import Connection
    from goqueue.wire.kafka.front_end import FrontEnd
    from goqueue.wire.parts import Part

VERSION_MIN = 5
VERSION_MAX = 12  # from 13 on topics go by their ids
_FLEXIBLE_FROM = 9
_WITH_MESSAGES_FROM = 8

_PLAIN_HEAD = Struct(">hhiih")  # transactional id, acks, time-out, topics, length of the name
_PLAIN_PARTITION = Struct(">iii")  # partitions, number, bytes
_FLEXIBLE_HEAD = Struct(">bhibb")  # the same, with lengths one too large
_FLEXIBLE_PARTITION = Struct(">bi")
_ACKS_ALL = -1
_END_TAGS = b"\x00\x00\x00"  # no tagged fields in the partition, the topic and the request

Parsed = tuple[bytes, int, memoryview, int]


class Answer:
    """The place of the answer in the line of its connection."""

    __slots__ = (
        "_appended",
        "_connection",
        "_correlation_id",
        "_layout",
        "_name",
        "_partition",
        "is_done",
        "parts",
    )

    def __init__(
        self,
        connection: Connection,
        correlation_id: int,
        layout: Layout,
        name: bytes,
        partition: Partition,
        appended: Appended | Split | Joining,
    ) -> None:
        self._connection = connection
        self._correlation_id = correlation_id
        self._layout = layout
        self._name = name
        self._partition = partition
        self._appended = appended
        self.is_done = False
        self.parts: list[Part] = []

    def __call__(self, error: GoQueueError | None) -> None:
        """The batch is committed, or never will be."""
        appended, partition = self._appended, self._partition
        base_offset, timestamp_ms = appended.base_offset, appended.timestamp_ms
        code = 0
        if error is not None:
            code, base_offset = code_of(error), -1
        self.parts.append(
            self._layout.pack(
                self._correlation_id,
                self._name,
                partition.name.partition,
                code,
                base_offset,
                timestamp_ms,
                partition.log.start_offset,
            )
        )
        self.is_done = True
        self._connection.advance()


class Layout:
    """How answers for one topic are laid out in one version."""

    __slots__ = ("_length", "_struct", "_version")

    def __init__(self, name: bytes, version: int) -> None:
        self._version = version
        text = f"{len(name)}s"
        if version >= _FLEXIBLE_FROM:
            self._struct = Struct(f">iixbb{text}bihqqqbbxxix")
        elif version >= _WITH_MESSAGES_FROM:
            self._struct = Struct(f">iiih{text}iihqqqihi")
        else:
            self._struct = Struct(f">iiih{text}iihqqqi")
        self._length = self._struct.size - 4

    def pack(
        self,
        correlation_id: int,
        name: bytes,
        number: int,
        code: int,
        base_offset: int,
        timestamp_ms: int,
        start_offset: int,
    ) -> bytes:
        version, pack = self._version, self._struct.pack
        place = (number, code, base_offset, timestamp_ms, start_offset)
        if version >= _FLEXIBLE_FROM:
            # Counts and lengths are one larger than what they count; 1 is an empty list, 0 null.
            return pack(self._length, correlation_id, 2, len(name) + 1, name, 2, *place, 1, 0, 0)
        if version >= _WITH_MESSAGES_FROM:
            return pack(self._length, correlation_id, 1, len(name), name, 1, *place, 0, -1, 0)
        return pack(self._length, correlation_id, 1, len(name), name, 1, *place, 0)


def produce_one(
    front: FrontEnd,
    connection: Connection,
    frame: memoryview,
    *,
    version: int,
    correlation_id: int,
    at: int,
) -> bool:
    """Handle the request whose body begins at `at`; False leaves it untouched."""
    try:
        parsed = _parse_flexible(frame, at) if version >= _FLEXIBLE_FROM else _parse(frame, at)
    except (StructError, IndexError):
        return False
    if parsed is None:
        return False
    name, number, batch, acks = parsed
    topic = front.topics_by_bytes.get(name) or _find_topic(front, name)
    if topic is None or not 0 <= number < len(topic.partitions):
        return False
    partition = topic.partitions[number]
    if partition.shortage is not None:
        return False  # It depends on what the client wants to wait for.
    try:
        appended = front.broker.produce(topic, partition, batch)
    except GoQueueError:
        return False  # Nothing was stored; the general way will say why.
    layout = front.produce_layouts.get((name, version))
    if layout is None:
        layout = front.produce_layouts[name, version] = Layout(name, version)
    if isinstance(appended, Appended) and appended.last_offset < partition.high_watermark:
        # It is committed already, so nobody has to be called back.
        base_offset, _, timestamp_ms = appended
        place = (number, 0, base_offset, timestamp_ms, partition.log.start_offset)
        if connection.answer_at_once(layout.pack(correlation_id, name, *place)):
            return True
    answer = Answer(connection, correlation_id, layout, name, partition, appended)
    connection.stand_in_line(answer)
    if isinstance(appended, Appended) and acks == _ACKS_ALL:
        partition.when_committed(appended.last_offset, answer)
    elif isinstance(appended, Appended):
        partition.when_durable(appended.last_offset, answer)
    else:
        appended.when_committed(answer)
    return True


def _parse(frame: memoryview, at: int) -> Parsed | None:
    transactional, acks, _, topics, length = _PLAIN_HEAD.unpack_from(frame, at)
    if transactional != -1 or acks not in (1, -1) or topics != 1 or length <= 0:
        return None
    at += _PLAIN_HEAD.size + length
    partitions, number, size = _PLAIN_PARTITION.unpack_from(frame, at)
    start = at + _PLAIN_PARTITION.size
    if partitions != 1 or size <= 0 or start + size != len(frame):
        return None
    return bytes(frame[at - length : at]), number, frame[start:], acks


def _parse_flexible(frame: memoryview, at: int) -> Parsed | None:
    transactional, acks, _, topics, length = _FLEXIBLE_HEAD.unpack_from(frame, at)
    # A longer name would need a second byte for its length.
    if transactional != 0 or acks not in (1, -1) or topics != 2 or length <= 1:
        return None
    length -= 1
    at += _FLEXIBLE_HEAD.size + length
    partitions, number = _FLEXIBLE_PARTITION.unpack_from(frame, at)
    start = at + _FLEXIBLE_PARTITION.size
    size, shift = 0, 0
    while True:
        byte = frame[start]
        start += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    end = start + size - 1
    if partitions != 2 or size <= 1 or frame[end:] != _END_TAGS:
        return None
    return bytes(frame[at - length : at]), number, frame[start:end], acks


def _find_topic(front: FrontEnd, name: bytes) -> Topic | None:
    try:
        topic = front.broker.topics.find(name.decode())
    except UnicodeDecodeError:
        return None
    if topic is not None:
        front.topics_by_bytes[name] = topic
    return topic
