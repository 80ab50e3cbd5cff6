"""TLS between nodes over real sockets: who is let in, who is not, and what changes meanwhile."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from goqueue.broker.gate.request_metrics import UNMEASURED
from goqueue.model.session import ConnectedClient, ListenerRules
from goqueue.runtime.budgets import ReceiveBudget
from goqueue.runtime.discovery import Discovery
from goqueue.runtime.serve import NODE_HANDSHAKES
from goqueue.runtime.sockets import SHARED_BUFFER_BYTES
from goqueue.runtime.tls.connections import TlsConnection
from goqueue.runtime.tls.nodes import NodeTls, shake_hands
from goqueue.wire.complaints import Complaints
from tests.certificates import Authority, Files
from tests.credentials import new_credentials

from .echo_nodes import SECONDS_MAX, EchoCaller, EchoNode, play, until


def tls_of(files: Files | None, discovered_as: str = "") -> NodeTls | None:
    return None if files is None else NodeTls(**files._asdict(), discovered_as=discovered_as)


def node_of(files: Files | None) -> EchoNode:
    return EchoNode(tls=tls_of(files))


def caller_of(address: tuple[str, int], files: Files | None) -> EchoCaller:
    return EchoCaller(address, tls=tls_of(files))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.mark.parametrize("size", [0, 1, 1_000, 300_000, 5 << 20])
def test_what_is_encrypted_arrives_as_it_was_sent(authority: Authority, size: int) -> None:
    async def story() -> None:
        node = node_of(authority.sign("node-2", "127.0.0.1"))
        caller = caller_of(node.address, authority.sign("node-1", "127.0.0.1"))
        await caller.until_connected()
        body = Random(size).randbytes(size)
        answers = await asyncio.gather(*(caller.call(b"%d" % one, body) for one in range(8)))
        assert answers == [(b"%d" % one, body) for one in range(8)]
        caller.stop()
        node.listener.close()

    play(story)


class Taker:
    """Takes whatever comes; the owner of its connection, and the one who speaks on it."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.shared_buffer = memoryview(bytearray(SHARED_BUFFER_BYTES))
        self.rules = ListenerRules("internal")
        self.turns = None
        self.unsent = None
        self.measured = UNMEASURED
        self.receiving = ReceiveBudget(1 << 20, self.loop.time)
        self.complaints = Complaints(logging.getLogger("goqueue"))
        self.unsent_bytes = self.taken_bytes = 0
        self.is_blocked = self.is_busy = False

    def connect(self, client: ConnectedClient, **_: object) -> Taker:
        return self

    def receive(self, data: memoryview) -> int:
        self.taken_bytes += len(data)
        return len(data)

    def wanted_bytes(self, data: memoryview) -> int:
        return 0

    def forget(self, connection: object) -> None: ...

    def closed(self) -> None: ...


def test_what_openssl_has_decrypted_is_not_left_lying_there(authority: Authority) -> None:
    """When the buffer is full in the middle of a record, no event tells that there is more."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        pair = socket.socketpair()
        for one in pair:
            one.setblocking(False)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        tls = tls_of(authority.sign("node-1", "node-1"))
        assert tls is not None
        sender, receiver = tls.dial(pair[0], "node-1"), tls.accept(pair[1])
        await asyncio.gather(shake_hands(loop, sender), shake_hands(loop, receiver))
        pieces = [b"a record that ends somewhere", bytes(SHARED_BUFFER_BYTES)]
        for piece in map(memoryview, pieces):
            while piece:
                piece = piece[sender.send(piece) :]
        taker = Taker()
        connection = TlsConnection(taker, receiver, "there")
        await until(lambda: taker.taken_bytes == sum(map(len, pieces)))
        connection.close()
        sender.close()

    play(story)


def test_nothing_can_be_read_on_the_way(authority: Authority) -> None:
    """A relay in between sees no byte of what is said."""

    async def story() -> None:
        node = node_of(authority.sign("node-2", "127.0.0.1"))
        seen, there_is = bytearray(), node.address

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there = await asyncio.open_connection(*there_is)

            async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
                while data := await source.read(65_536):
                    seen.extend(data)
                    sink.write(data)

            await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))

        between = await asyncio.start_server(relay, "127.0.0.1", 0)
        node.address = between.sockets[0].getsockname()
        caller = caller_of(node.address, authority.sign("node-1", "127.0.0.1"))
        await caller.until_connected()
        secret = b"nobody else may know this"
        assert await caller.call(secret, secret) == (secret, secret)
        assert len(seen) > len(secret)
        assert secret not in seen
        caller.stop()
        between.close()
        node.listener.close()

    play(story)


@pytest.mark.parametrize(
    ("who", "told_by_node", "told_by_caller"),
    [
        ("plain", "it does not use TLS", "does it want TLS?"),
        ("foreign", "its certificate is refused", "certificate"),
        ("expired", "its certificate is refused: certificate has expired", "certificate"),
        ("another host", "", "its certificate is refused: IP address mismatch"),
    ],
)
def test_who_is_no_node_gets_nowhere_and_is_told_of_once(
    authority: Authority,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    who: str,
    told_by_node: str,
    told_by_caller: str,
) -> None:
    caplog.set_level(logging.INFO)
    host = "127.0.0.9" if who == "another host" else "127.0.0.1"
    theirs: dict[str, Callable[[], Files | None]] = {
        "plain": lambda: None,
        "foreign": lambda: _trusting(
            Authority(tmp_path / "foreign", "foreign").sign("node-1", "127.0.0.1"), authority
        ),
        "expired": lambda: authority.sign("node-1", "127.0.0.1", days=-1),
        "another host": lambda: authority.sign("node-1", "127.0.0.1"),
    }

    async def story() -> None:
        node = node_of(authority.sign("node-2", host))
        stranger = caller_of(node.address, theirs[who]())
        await stranger.until_turned_away()
        assert not node.listener.connections
        if host == "127.0.0.1":
            caller = caller_of(node.address, authority.sign("node-3", host))
            await caller.until_connected()
            assert await caller.call(b"still") == (b"still", b"")
            caller.stop()
        stranger.stop()
        node.listener.close()

    play(story)
    records = [f"{one.name} {one.message}" for one in caplog.records]
    by_node = [one for one in records if one.startswith("goqueue.wire.peers.serving")]
    if told_by_node:
        assert len([one for one in by_node if told_by_node in one]) == 1, records
    by_caller = [one for one in records if one.startswith("goqueue.runtime.dialing")]
    assert any(told_by_caller in one for one in by_caller), records
    assert len(by_caller) <= 2, records


def _trusting(files: Files, authority: Authority) -> Files:
    """The certificate of a stranger who trusts the nodes, and is not trusted by them."""
    return files._replace(authorities=authority.sign("any", "any").authorities)


def test_a_node_with_tls_and_one_without_do_not_speak(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def story() -> None:
        node = node_of(None)
        caller = caller_of(node.address, authority.sign("node-1", "127.0.0.1"))
        await caller.until_turned_away()
        caller.stop()
        node.listener.close()

    play(story)
    assert caplog.text.count("does it use TLS?") == 1


def test_whoever_never_ends_the_handshake_keeps_no_node_out(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        node = node_of(authority.sign("node-2", "127.0.0.1"))
        silent = [socket.create_connection(node.address) for _ in range(40)]
        await until(lambda: node.listener.handshake_count == NODE_HANDSHAKES.per_address_max)
        for one in silent[NODE_HANDSHAKES.per_address_max :]:
            one.settimeout(SECONDS_MAX)
            assert await asyncio.to_thread(one.recv, 1) == b"", "one too many is closed at once"
        for one in silent:
            one.close()
        caller = caller_of(node.address, authority.sign("node-1", "127.0.0.1"))
        await caller.until_connected()
        caller.stop()
        node.listener.close()

    play(story)
    assert caplog.text.count("too many unauthenticated connections at once") == 1


def test_a_new_certificate_counts_for_the_next_connection_and_the_old_one_goes_on(
    authority: Authority, tmp_path: Path
) -> None:
    """Both nodes change to another authority, which is trusted beside the old one for a while."""

    async def story() -> None:
        files, other = authority.sign("node-2", "127.0.0.1"), authority.sign("node-1", "127.0.0.1")
        node = node_of(files)
        caller = caller_of(node.address, other)
        await caller.until_connected()
        (open_connection,) = node.listener.connections
        before = _serial(open_connection)
        successor = Authority(tmp_path / "new", "new")
        both = files.authorities.read_bytes()
        new = {name: successor.sign(name, "127.0.0.1") for name in ("node-1", "node-2")}
        files.authorities.write_bytes(both + new["node-1"].authorities.read_bytes())
        for name, old in (("node-1", other), ("node-2", files)):
            new[name].key.replace(old.key)
            new[name].certificate.replace(old.certificate)
        assert await caller.call(b"old") == (b"old", b""), "what is open goes on"
        open_connection.close()
        await until(lambda: not caller.calling.is_connected)
        await caller.until_connected()
        (open_connection,) = node.listener.connections
        assert _serial(open_connection) != before
        assert await caller.call(b"new") == (b"new", b"")
        caller.stop()
        node.listener.close()

    play(story)


def _serial(connection: object) -> object:
    wrapped = connection._socket  # type: ignore[attr-defined]
    assert isinstance(wrapped, ssl.SSLSocket)
    shown = wrapped.getpeercert()
    assert shown is not None
    return shown["serialNumber"]


def test_discovery_believes_those_that_have_the_name_it_looked_up(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        named = node_of(authority.sign("node-2", "nodes.example"))
        unnamed = node_of(authority.sign("node-3", "127.0.0.1"))
        found: asyncio.Future[dict[int, str]] = asyncio.get_running_loop().create_future()

        async def resolve(host: str, port: int) -> list[tuple[str, int]]:
            return [named.address, unnamed.address]

        discovery = Discovery(
            asyncio.get_running_loop(),
            "nodes.example",
            7000,
            found=lambda nodes: None if found.done() else found.set_result(nodes),
            is_idle=lambda: False,
            resolve=resolve,
            credentials=new_credentials(),
            tls=tls_of(authority.sign("node-1", "nodes.example"), "nodes.example"),
        )
        discovery.start()
        host, port = named.address
        assert await found == {2: f"{host}:{port}"}
        discovery.stop()
        named.listener.close()
        unnamed.listener.close()

    play(story)
    assert caplog.text.count("its certificate is refused: Hostname mismatch") == 1
