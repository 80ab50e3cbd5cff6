"""TLS handshakes over real sockets: slow clients, many at once, and what they cost the others."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from goqueue.broker.gate.request_metrics import ListenerMetrics
from goqueue.config import load
from goqueue.metrics import Registry
from goqueue.metrics import catalogue as metrics
from goqueue.model.errors import AuthenticationFailed
from goqueue.model.session import ConnectedClient, ListenerRules
from goqueue.runtime import listening
from goqueue.runtime.listening import HANDSHAKE, ConnectionLimits, Listener
from goqueue.runtime.tls.clients import ClientTls
from goqueue.runtime.tls.handshakes import STEPS_WAITING_MAX, HandshakeLimits, Pace, Tls
from tests.certificates import Authority, Files
from tests.integration.echo_nodes import play, until

CLIENT_HELLO_HEAD = b"\x16\x03\x01\x02\x00\x01\x00"


class Echo:
    """Gives back what it receives."""

    unsent_bytes = 0
    is_blocked = is_busy = False

    def __init__(self, client: ConnectedClient, send: Callable[[list[Any]], None]) -> None:
        self.client = client
        self._send = send

    def receive(self, data: memoryview) -> int:
        self._send([bytes(data)])
        return len(data)

    def wanted_bytes(self, data: memoryview) -> int:
        return 0

    def closed(self) -> None: ...


class EchoServer:
    """A listener with TLS that gives back what it receives."""

    def __init__(
        self,
        authority: Authority,
        limits: HandshakeLimits,
        connect: Callable[..., Echo] | None = None,
        **more: Path | str,
    ) -> None:
        files = authority.sign("server", "127.0.0.1")
        settings = load(
            overrides={
                "--listen-kafka": "ssl://127.0.0.1:0",
                "security.tls_certificate": str(files.certificate),
                "security.tls_key": str(files.key),
                **{f"security.{name}": str(value) for name, value in more.items()},
            }
        )
        tls = ClientTls.of(settings)
        assert tls is not None
        self.revocations = tls.revocations
        loop = asyncio.get_running_loop()
        self.pace = Pace(loop)
        self.listener = Listener(
            loop,
            connect or (lambda client, *, send, **_: Echo(client, send)),
            ConnectionLimits(
                connections_max=5_000,
                connections_per_address_max=-1,
                idle_timeout_ms=60_000,
                receive_bytes_total_max=1 << 20,
            ),
            ListenerRules("kafka-ssl", is_encrypted=True),
            tls=Tls(tls.accept, self.pace, limits, revocations=tls.revocations),
        )
        self.address = self.listener.listen("127.0.0.1", 0)
        self.context = ssl.create_default_context(cafile=str(files.authorities))

    async def echo(self, data: bytes) -> bytes:
        """Connect, send, and return what comes back."""
        reader, writer = await asyncio.open_connection(
            *self.address, ssl=self.context, server_hostname="127.0.0.1"
        )
        try:
            writer.write(data)
            return await reader.readexactly(len(data))
        finally:
            writer.close()

    def dial(self) -> socket.socket:
        return socket.create_connection(self.address)


class CertifiedClient:
    """A connection of a client with a certificate."""

    def __init__(self, server: EchoServer, own: Files) -> None:
        self._server = server
        self._context = ssl.create_default_context(cafile=str(own.authorities))
        self._context.load_cert_chain(own.certificate, own.key)

    async def connect(self) -> CertifiedClient:
        self._reader, self._writer = await asyncio.open_connection(
            *self._server.address, ssl=self._context, server_hostname="127.0.0.1"
        )
        await self.echo()
        return self

    async def echo(self) -> None:
        self._writer.write(b"hello")
        assert await self._reader.readexactly(5) == b"hello"

    async def until_closed(self) -> None:
        with contextlib.suppress(ConnectionError):
            assert await self._reader.read() == b""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def is_closed(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return await asyncio.get_running_loop().sock_recv(client, 100) == b""
    except ConnectionError:
        return True


def test_clients_that_stall_are_closed_and_keep_nobody_out(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def story() -> None:
        server = EchoServer(authority, HandshakeLimits(seconds_max=0.5))
        registry = Registry()
        measured = server.listener.measured = ListenerMetrics(registry, "outside")
        silent = [server.dial() for _ in range(30)]
        begun = [server.dial() for _ in range(30)]
        for one in begun:
            one.sendall(CLIENT_HELLO_HEAD)
        await until(lambda: server.listener.handshake_count == 60)
        assert await server.echo(b"meanwhile") == b"meanwhile"
        for one in silent + begun:
            assert await is_closed(one)
            one.close()
        assert not server.listener.handshake_count
        # Who sends nothing may be a probe of the port. Bytes are counted without encryption.
        refused = registry.counter(metrics.LISTENER_CONNECTIONS_REFUSED, "outside", HANDSHAKE)
        assert (refused.value, measured.opened.value) == (len(begun), 1)
        assert measured.received.value == measured.sent.value == len(b"meanwhile")
        assert await server.echo(b"afterwards") == b"afterwards"
        server.listener.close()

    play(story)
    late = "127.0.0.1: turned away: it did not complete the TLS handshake in time"
    assert caplog.text.count(late) == 1, "once, not for each of them"


def test_a_new_revocation_list_is_compared_with_a_few_connections_in_each_turn(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "REVOKED_PER_TURN", 2)
    monkeypatch.setattr(listening, "SWEEP_MS", 50)

    async def story() -> None:
        alice, bob = (authority.sign(name, "client") for name in ("alice", "bob"))
        server = EchoServer(
            authority,
            HandshakeLimits(),
            tls_client_auth="required",
            tls_client_authorities=alice.authorities,
            tls_revocation_lists=authority.revoke(),
        )
        heard: list[bool] = []
        server.listener.on_revocations = lambda revoked: heard.append(bool(revoked))
        kept = [await CertifiedClient(server, alice).connect() for _ in range(3)]
        ended = [await CertifiedClient(server, bob).connect() for _ in range(5)]
        authority.revoke(bob)
        for one in ended:
            await one.until_closed()
        for one in kept:
            await one.echo()
        assert heard == [True]
        listed = server.revocations()
        authority.revoke(bob)  # as an authority issues its list again before it is out of date
        await until(lambda: server.revocations() is not listed)
        carol = authority.sign("carol", "client")
        kept.append(await CertifiedClient(server, carol).connect())
        authority.revoke(bob, carol)
        await kept.pop().until_closed()
        assert heard == [True, True], "and not for the list that names nobody new"
        server.listener.close()

    play(story)


def test_one_address_cannot_take_all_handshakes(authority: Authority) -> None:
    """Beyond the limit, a new handshake replaces the oldest of the address with the most."""

    async def story() -> None:
        server = EchoServer(authority, HandshakeLimits(total_max=20))
        other = socket.socket()
        other.bind(("127.0.0.2", 0))
        other.connect(server.address)
        flood = [server.dial() for _ in range(60)]
        await until(lambda: server.listener.handshake_count == 20)
        for one in flood[:41]:
            assert await is_closed(one)
        assert await server.echo(b"hello") == b"hello"
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.recv(1)  # That of the other address is still open.
        for one in (*flood, other):
            one.close()
        server.listener.close()

    play(story)


def test_a_thousand_clients_at_once_delay_an_iteration_by_a_few_milliseconds(
    authority: Authority,
) -> None:
    """No iteration takes longer than the time for handshakes and the longest step."""

    async def story() -> None:
        server = EchoServer(authority, HandshakeLimits())
        turn, turns = server.pace._turn, []

        def timed() -> None:
            began = time.thread_time()
            turn()
            turns.append(time.thread_time() - began)

        server.pace._turn = timed  # type: ignore[method-assign]
        answers = await asyncio.gather(*(server.echo(b"%d" % one) for one in range(1_000)))
        assert answers == [b"%d" % one for one in range(1_000)]
        # In the time of this thread, because a busy machine may interrupt it.
        assert max(turns) < 0.05
        server.listener.close()

    play(story)


def test_connections_wait_in_the_system_while_handshakes_are_busy(authority: Authority) -> None:
    async def story() -> None:
        server = EchoServer(authority, HandshakeLimits())
        held: list[Callable[[], None]] = []
        server.pace._loop = _Holding(held)  # type: ignore[assignment]
        clients = [server.dial() for _ in range(STEPS_WAITING_MAX + 100)]
        for one in clients:
            one.sendall(CLIENT_HELLO_HEAD)
        await until(lambda: server.pace.is_full)
        count = server.listener.handshake_count
        await asyncio.sleep(0.05)
        assert server.listener.handshake_count == count < len(clients)
        server.pace._loop = asyncio.get_running_loop()
        while held:
            held.pop()()
        await until(lambda: server.listener.handshake_count == len(clients))
        for one in clients:
            one.close()
        assert await server.echo(b"hello") == b"hello"
        server.listener.close()

    play(story)


class _Holding:
    """An event loop that keeps callbacks back."""

    def __init__(self, held: list[Callable[[], None]]) -> None:
        self._held = held

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._held.append(callback)


def test_a_client_that_hangs_up_at_once_is_not_worth_a_line(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def story() -> None:
        server = EchoServer(authority, HandshakeLimits())
        for _ in range(5):
            server.dial().close()
        assert await server.echo(b"hello") == b"hello"
        await until(lambda: not server.listener.handshake_count)
        server.listener.close()

    play(story)
    assert not caplog.records


def test_a_client_without_a_name_is_closed_and_does_not_count(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    def refuse(client: ConnectedClient, **_: object) -> Echo:
        raise AuthenticationFailed("It has no name.")

    async def story() -> None:
        server = EchoServer(authority, HandshakeLimits(), refuse)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await server.echo(b"hello")
        assert not server.listener.connections
        assert not server.listener._per_address
        server.listener.close()

    play(story)
    assert "turned away: It has no name. (listener kafka-ssl)" in caplog.text


def test_the_end_of_a_stream_is_told_apart_from_a_cut(authority: Authority) -> None:
    async def story() -> None:
        server = EchoServer(authority, HandshakeLimits())
        reader, writer = await asyncio.open_connection(
            *server.address, ssl=server.context, server_hostname="127.0.0.1"
        )
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        (connection,) = server.listener.connections
        connection.close()
        assert await reader.read() == b"", "an error without the alert that ends the stream"
        writer.close()
        server.listener.close()

    play(story)
