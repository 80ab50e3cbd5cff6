"""Discovers the other nodes by a DNS name that resolves to the addresses of all of them."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable

from goqueue.model.errors import GoQueueError, MalformedRequest
from goqueue.runtime.tls.files import reason_of
from goqueue.runtime.tls.nodes import NodeTls
from goqueue.wire.complaints import Complaints
from goqueue.wire.parts import Part
from goqueue.wire.peers.frames import (
    ASKING_ID,
    HANDSHAKE_FRAME_BYTES_MAX,
    PROTOCOL_MAX,
    PROTOCOL_MIN,
    Frame,
    Hello,
    take_frame,
    wanted_bytes,
)
from goqueue.wire.peers.handshake import CallerHandshake, Credentials

LOOK_SECONDS = 0.5  # while nodes are missing
LOOK_SECONDS_IDLE = 30.0  # afterwards, because restarted nodes may have other addresses
ANSWER_SECONDS_MAX = 2.0
ADDRESSES_MAX = 1_000
STEPS_MAX = 3  # frames that a node sends until it is identified

_log = logging.getLogger(__name__)

Resolve = Callable[[str, int], Awaitable[list[tuple[str, int]]]]
Found = Callable[[dict[int, str]], None]


class Discovery:
    """Resolves the name periodically, and reports the nodes at its addresses."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        host: str,
        port: int,
        *,
        found: Found,
        is_idle: Callable[[], bool],
        credentials: Credentials | None,
        resolve: Resolve | None = None,
        tls: NodeTls | None = None,
    ) -> None:
        """`is_idle` returns whether no node is missing, so that lookups can be rare."""
        self._loop = loop
        self._host = host
        self._port = port
        self._found = found
        self._is_idle = is_idle
        self._resolve = resolve or self._look_up
        self._credentials = credentials
        self._tls = tls
        self._complaints = Complaints(_log)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = self._loop.create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        is_told = False
        while True:
            try:
                addresses = await self._resolve(self._host, self._port)
            except OSError as error:
                if not is_told:
                    _log.warning("%s cannot be resolved: %s; retrying", self._host, error)
                is_told = True
                addresses = []
            asked = [self._who_is_at(host, port) for host, port in addresses[:ADDRESSES_MAX]]
            nodes = dict(one for one in await asyncio.gather(*asked) if one is not None)
            if nodes:
                is_told = False
                self._found(nodes)
            await asyncio.sleep(LOOK_SECONDS_IDLE if self._is_idle() else LOOK_SECONDS)

    async def _who_is_at(self, host: str, port: int) -> tuple[int, str] | None:
        """The id of the node at an address, and the address; None if no node answers there."""
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                reader, writer = await self._connect(host, port)
                try:
                    hello = await self._shake_hands(reader, writer)
                finally:
                    writer.close()
        except ssl.SSLError as error:
            self._complaints.tell(address, reason_of(error))
            return None
        except GoQueueError as error:
            self._complaints.tell(address, str(error))
            return None
        except (OSError, TimeoutError, EOFError) as error:
            _log.debug("no node answers at %s: %s", address, error)
            return None
        self._complaints.settle(address)
        return hello.node_id, address

    async def _shake_hands(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Hello:
        """The identity of the node there, after both have authenticated each other."""
        me = Hello("", ASKING_ID, protocol_min=PROTOCOL_MIN, protocol_max=PROTOCOL_MAX)
        handshake = CallerHandshake(self._credentials, me, ASKING_ID)
        _write(writer, handshake.begin())
        for _ in range(STEPS_MAX):
            step = handshake.receive(await _read_frame(reader))
            if isinstance(step, Hello):
                return step
            _write(writer, step)
        raise MalformedRequest("it does not complete the handshake")

    async def _connect(
        self, host: str, port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._tls is None:
            return await asyncio.open_connection(host, port)
        context, name = self._tls.client_context(), self._tls.name_of(host)
        return await asyncio.open_connection(host, port, ssl=context, server_hostname=name)

    async def _look_up(self, host: str, port: int) -> list[tuple[str, int]]:
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return sorted({(str(one[4][0]), int(one[4][1])) for one in found})


def _write(writer: asyncio.StreamWriter, parts: list[Part]) -> None:
    for part in parts:
        assert isinstance(part, bytes)
        writer.write(part)


async def _read_frame(reader: asyncio.StreamReader) -> Frame:
    data = b""
    while (taken := take_frame(memoryview(data), HANDSHAKE_FRAME_BYTES_MAX)) is None:
        data += await reader.readexactly(wanted_bytes(memoryview(data)) - len(data))
    return taken[0]
