"""Nodes that call each other over real sockets."""

from __future__ import annotations

import asyncio
import socket
from random import Random

import pytest

from goqueue.loop.peers import Contact
from goqueue.runtime import dialing
from goqueue.runtime.clock import LoopClock
from goqueue.runtime.peers import PeerConnections
from goqueue.wire.peers.frames import Hello
from tests.credentials import new_credentials

from .echo_nodes import EchoCaller, EchoNode, new_listener, play, until


@pytest.mark.parametrize("size", [0, 1_000, 5 << 20])
def test_a_call_goes_there_and_back(size: int) -> None:
    async def story() -> None:
        node = EchoNode()
        caller = EchoCaller(node.address)
        await caller.until_connected()
        body = bytes(range(256)) * (size // 256)
        answers = await asyncio.gather(*(caller.call(b"%d" % one, body) for one in range(8)))
        assert answers == [(b"%d" % one, body) for one in range(8)]
        caller.stop()
        node.listener.close()

    play(story)


def test_a_node_that_comes_back_is_called_again() -> None:
    async def story() -> None:
        node = EchoNode()
        caller = EchoCaller(node.address)
        await caller.until_connected()
        node.listener.close()
        await until(lambda: not caller.calling.is_connected)
        node = EchoNode(node.address[1])
        await caller.until_connected()
        assert await caller.call(b"again") == (b"again", b"")
        caller.stop()
        node.listener.close()

    play(story)


def test_a_node_that_starts_later_is_found() -> None:
    async def story() -> None:
        with socket.socket() as place:
            place.bind(("127.0.0.1", 0))
            address = place.getsockname()
        caller = EchoCaller(address)
        await until(lambda: bool(caller.dialer._failures))
        node = EchoNode(address[1])
        await caller.until_connected()
        assert await caller.call(b"found") == (b"found", b"")
        caller.stop()
        node.listener.close()

    play(story)


def test_a_stopped_dialer_leaves_nothing_open() -> None:
    async def story() -> None:
        node = EchoNode()
        caller = EchoCaller(node.address)
        await caller.until_connected()
        caller.stop()
        await until(lambda: not node.listener.connections)
        assert not caller.calling.is_connected
        node.listener.close()

    play(story)


def test_a_node_that_ends_is_found_to_be_gone_once_until_it_is_back() -> None:
    async def story() -> None:
        node = EchoNode()
        caller = EchoCaller(node.address)
        await caller.until_connected()
        assert caller.dialer.contact is Contact.OPEN
        node.listener.close()
        await until(lambda: caller.dialer.contact is Contact.GONE)
        await until(lambda: caller.dialer._failures >= 3)
        assert caller.gone == 1
        node = EchoNode(node.address[1])
        await caller.until_connected()
        assert caller.dialer.contact is Contact.OPEN
        caller.stop()
        node.listener.close()

    play(story)


def test_a_connection_that_breaks_says_nothing_of_the_node() -> None:
    async def story() -> None:
        node = EchoNode()
        caller = EchoCaller(node.address)
        await caller.until_connected()
        for connection in list(node.listener.connections):
            connection.close()
        await until(lambda: not caller.calling.is_connected)
        assert caller.dialer.contact is Contact.BROKEN
        await caller.until_connected()
        assert (caller.dialer.contact, caller.gone) == (Contact.OPEN, 0)
        caller.stop()
        node.listener.close()

    play(story)


class Peer:
    """A node that calls and is called."""

    def __init__(self, node: int, port: int = 0) -> None:
        loop = asyncio.get_running_loop()
        self.clock = LoopClock(loop)
        self.connections = PeerConnections(
            loop,
            self.clock,
            Random(0),
            hello=lambda: Hello("c", node),
            credentials=new_credentials(),
        )
        self.listener = new_listener(self.connections.server)
        host, self.port = self.listener.listen("127.0.0.1", port)
        self.address = f"{host}:{self.port}"

    def has_met(self, node: int) -> bool:
        return self.connections._callings[node].is_connected

    def stop(self) -> None:
        self.connections.stop()
        self.listener.close()
        self.clock.close()


def test_a_node_that_calls_is_called_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nobody would try again by itself within this test.
    monkeypatch.setattr(dialing, "RETRY_SECONDS_MIN", 1_000.0)
    monkeypatch.setattr(dialing, "RETRY_SECONDS_MAX", 1_000.0)

    async def story() -> None:
        one, two = Peer(1), Peer(2)
        two.stop()
        one.connections.locate(2, two.address)
        await until(lambda: one.connections.contact(2) is Contact.GONE)
        two = Peer(2, two.port)
        two.connections.locate(1, one.address)
        await until(lambda: two.has_met(1) and one.has_met(2))
        assert one.connections.contact(2) is Contact.OPEN
        one.stop()
        two.stop()

    play(story)
