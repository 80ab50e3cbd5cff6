"""Kafka frames written by hand, for what no well-behaved client would send."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS = 0, 1, 2, 3, 18
UNSUPPORTED_VERSION = 35
UNKNOWN_TOPIC_OR_PARTITION = 3

NO_TAGS = b"\0"  # ends the header of newer versions

ANSWER_SECONDS_MAX = 45.0


@dataclass(slots=True)
class Wire:
    """One connection to a broker's Kafka port."""

    socket: socket.socket

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def request(self, api: int, version: int, body: bytes = b"", *, correlation: int = 1) -> None:
        """Send one request with the old header, which has no tagged fields."""
        self.send(frame(request_header(api, version, correlation) + body))

    def answer(self) -> tuple[int, bytes]:
        """The correlation id and the body of the next answer."""
        (size,) = struct.unpack(">i", self._exactly(4))
        answer = self._exactly(size)
        return struct.unpack_from(">i", answer)[0], answer[4:]

    def is_closed(self) -> bool:
        """Wait for the broker to close the connection; an answer instead is a failure."""
        try:
            rest = self.socket.recv(65536)
        except ConnectionResetError:
            return True
        assert rest == b"", f"answered {rest[:60]!r} instead of closing"
        return True

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise ConnectionResetError("closed by the broker")
            data += piece
        return data


@contextmanager
def connect(bootstrap: str, *, receive_buffer: int | None = None) -> Iterator[Wire]:
    """Connect, and close at the end."""
    host, port = bootstrap.split(",")[0].rsplit(":", 1)
    with socket.socket() as raw:
        if receive_buffer is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        raw.settimeout(ANSWER_SECONDS_MAX)
        raw.connect((host, int(port)))
        yield Wire(raw)


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def request_header(api: int, version: int, correlation: int, client: str = "by hand") -> bytes:
    return struct.pack(">hhi", api, version, correlation) + string(client)


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def metadata_v1(*topics: str) -> bytes:
    """The body of a Metadata request, version 1."""
    return struct.pack(">i", len(topics)) + b"".join(string(topic) for topic in topics)


def fetch_v4(
    topic: str, *, partition: int = 0, offset: int = 0, wait_ms: int = 0, bytes_max: int = 1 << 20
) -> bytes:
    """The body of a Fetch request, version 4, for one partition."""
    return (
        struct.pack(">iiiib", -1, wait_ms, 1, bytes_max, 0)
        + struct.pack(">i", 1)
        + string(topic)
        + struct.pack(">iiqi", 1, partition, offset, bytes_max)
    )


def fetched_v4(body: bytes) -> tuple[int, int, int]:
    """Error, high watermark and number of record bytes of a Fetch answer to one partition."""
    at = 4 + 4  # throttle time, topic count
    (name_length,) = struct.unpack_from(">h", body, at)
    at += 2 + name_length + 4 + 4  # name, partition count, partition
    error, high_watermark, _, aborted = struct.unpack_from(">hqqi", body, at)
    at += 22 + max(aborted, 0) * 16
    (size,) = struct.unpack_from(">i", body, at)
    return error, high_watermark, size


def produce_v3(topic: str, batch: bytes, *, partition: int = 0) -> bytes:
    """The body of a Produce request, version 3, with one batch for one partition."""
    return (
        struct.pack(">hhii", -1, -1, 30_000, 1)
        + string(topic)
        + struct.pack(">iii", 1, partition, len(batch))
        + batch
    )


def produced_v3(body: bytes) -> tuple[int, int]:
    """Error and base offset of a Produce answer for one partition."""
    (name_length,) = struct.unpack_from(">h", body, 4)
    error, offset = struct.unpack_from(">hq", body, 4 + 2 + name_length + 4 + 4)
    return error, offset


def list_offsets_v1(topic: str, partition: int, timestamp: int) -> bytes:
    """The body of a ListOffsets request, version 1."""
    return struct.pack(">ii", -1, 1) + string(topic) + struct.pack(">iiq", 1, partition, timestamp)


def api_versions(bootstrap: str) -> dict[int, tuple[int, int]]:
    """Lowest and highest version of each API, as the broker tells them."""
    with connect(bootstrap) as wire:
        wire.request(API_VERSIONS, 0)
        _, body = wire.answer()
    return parse_api_versions_v0(body)[1]


def parse_api_versions_v0(body: bytes) -> tuple[int, dict[int, tuple[int, int]]]:
    """The error and the table of an ApiVersions answer, version 0."""
    error, count = struct.unpack_from(">hi", body)
    rows = struct.iter_unpack(">hhh", body[6 : 6 + 6 * count])
    return error, {api: (lowest, highest) for api, lowest, highest in rows}
