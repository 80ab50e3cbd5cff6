"""A server on the broker's own stack that acknowledges produce requests and throws them away.

What remains when a broker does nothing is Python, uvloop and the sockets: a request cannot be
answered faster on this stack, which makes it the measure for one outstanding publish and for one
record per request. The ceiling of the clients is another matter: `clients/sink.c` shows that.

    python -m bench.sink --ready-file F [--partitions N]
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import json
import signal
import struct
from pathlib import Path
from typing import cast

import uvloop

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
OFFERED = ((PRODUCE, 3, 7), (FETCH, 4, 4), (METADATA, 1, 4), (API_VERSIONS, 0, 2))
UNSUPPORTED_VERSION = 35
BUFFER_BYTES = 256 * 1024
FRAME_BYTES_MAX = 64 << 20

_HEADER = struct.Struct(">hhih")
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_PARTITION_V3 = struct.Struct(">ihqq")
_PARTITION_V5 = struct.Struct(">ihqqq")


class Sink(asyncio.BufferedProtocol):
    """One connection. Answers of one read leave together."""

    def __init__(self, port: int, partition_count: int) -> None:
        self._port = port
        self._partition_count = partition_count
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._length = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._length :]

    def buffer_updated(self, nbytes: int) -> None:
        assert self._transport is not None
        end = self._length + nbytes
        at = 0
        answers = []
        while end - at >= 4:
            frame_end = at + 4 + _INT.unpack_from(self._buffer, at)[0]
            if frame_end - at > FRAME_BYTES_MAX:
                self._transport.abort()
                return
            if frame_end > end:
                break
            answer = self._answer(at + 4, frame_end)
            if answer:
                answers.append(answer)
            at = frame_end
        self._keep(at, end)
        if answers:
            self._transport.write(b"".join(answers))

    def _keep(self, start: int, end: int) -> None:
        """Move the unfinished frame to the front, into a larger buffer where it needs one."""
        rest = end - start
        wanted = 0
        if rest >= 4:
            wanted = 4 + int(_INT.unpack_from(self._buffer, start)[0])
        if wanted > len(self._buffer):
            grown = bytearray(wanted + BUFFER_BYTES)
            grown[:rest] = self._view[start:end]
            self._buffer, self._view = grown, memoryview(grown)
        elif start:
            self._view[:rest] = self._view[start:end]
        self._length = rest

    def _answer(self, start: int, end: int) -> bytes:
        api, version, correlation, client_length = _HEADER.unpack_from(self._buffer, start)
        body = start + _HEADER.size + max(client_length, 0)
        if api == PRODUCE:
            answer = self._produced(body, version)
        elif api == METADATA:
            answer = self._metadata(body, version)
        elif api == API_VERSIONS:
            answer = _versions(version)
        else:
            raise ValueError(f"the sink does not speak api {api}")
        return answer and _INT.pack(len(answer) + 4) + _INT.pack(correlation) + answer

    def _produced(self, at: int, version: int) -> bytes:
        buffer = self._buffer
        at += 2 + max(_SHORT.unpack_from(buffer, at)[0], 0)  # the transactional id
        acks, _, topic_count = struct.unpack_from(">hii", buffer, at)
        at += 10
        parts = [_INT.pack(topic_count)]
        for _ in range(topic_count):
            name_end = at + 2 + _SHORT.unpack_from(buffer, at)[0]
            partition_count = _INT.unpack_from(buffer, name_end)[0]
            parts.append(bytes(self._view[at : name_end + 4]))
            at = name_end + 4
            for _ in range(partition_count):
                partition, records_bytes = struct.unpack_from(">ii", buffer, at)
                at += 8 + max(records_bytes, 0)
                if version >= 5:
                    parts.append(_PARTITION_V5.pack(partition, 0, 0, -1, 0))
                else:
                    parts.append(_PARTITION_V3.pack(partition, 0, 0, -1))
        parts.append(_INT.pack(0))
        return b"".join(parts) if acks else b""

    def _metadata(self, at: int, version: int) -> bytes:
        names = []
        topic_count = _INT.unpack_from(self._buffer, at)[0]
        at += 4
        for _ in range(topic_count):
            name_end = at + 2 + _SHORT.unpack_from(self._buffer, at)[0]
            names.append(bytes(self._view[at:name_end]))
            at = name_end
        parts = [
            _INT.pack(0) if version >= 3 else b"",
            struct.pack(">ii", 1, 0) + _string("127.0.0.1") + struct.pack(">ih", self._port, -1),
            _string("sink") if version >= 2 else b"",
            struct.pack(">ii", 0, len(names)),
        ]
        for name in names:
            parts.append(_SHORT.pack(0) + name + struct.pack(">bi", 0, self._partition_count))
            parts += [
                struct.pack(">hiiiiii", 0, partition, 0, 1, 0, 1, 0)
                for partition in range(self._partition_count)
            ]
        return b"".join(parts)


def _versions(version: int) -> bytes:
    is_known = version <= 2
    parts = [struct.pack(">hi", 0 if is_known else UNSUPPORTED_VERSION, len(OFFERED))]
    parts += [struct.pack(">hhh", *offer) for offer in OFFERED]
    if is_known and version >= 1:
        parts.append(_INT.pack(0))
    return b"".join(parts)


def _string(text: str) -> bytes:
    return _SHORT.pack(len(text)) + text.encode()


async def _serve(ready_file: Path, partition_count: int) -> None:
    loop = asyncio.get_running_loop()
    port = 0
    server = await loop.create_server(lambda: Sink(port, partition_count), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    partial = ready_file.with_suffix(".partial")
    partial.write_text(json.dumps({"kafka": f"127.0.0.1:{port}"}))
    partial.rename(ready_file)
    await server.serve_forever()


def main() -> None:
    """Serve until ended."""
    parser = argparse.ArgumentParser(description="Acknowledge and discard, on uvloop.")
    parser.add_argument("--ready-file", type=Path, required=True)
    parser.add_argument("--partitions", type=int, default=6)
    arguments = parser.parse_args()
    # 1 is PR_SET_PDEATHSIG: the sink ends with the benchmark, however that ends.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    uvloop.run(_serve(arguments.ready_file, arguments.partitions))


if __name__ == "__main__":
    main()
