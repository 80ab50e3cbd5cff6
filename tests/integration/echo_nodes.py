"""A node that gives back what it is sent, and one that calls it, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import uvloop

from goqueue.loop.peers import Answer, Answered
from goqueue.loop.promise import Promise
from goqueue.model.session import ListenerRules
from goqueue.runtime.clock import LoopClock
from goqueue.runtime.dialing import Dialer
from goqueue.runtime.listening import ConnectionLimits, Listener
from goqueue.runtime.serve import NODE_HANDSHAKES
from goqueue.runtime.tls.handshakes import Pace, Tls
from goqueue.runtime.tls.nodes import NodeTls
from goqueue.wire.peers.calling import Calling
from goqueue.wire.peers.frames import Hello
from goqueue.wire.peers.serving import PeerServer
from tests.credentials import new_credentials

ECHO = 1
SECONDS_MAX = 30


async def until(is_reached: Callable[[], bool]) -> None:
    """Wait for what the event loop brings about; nobody announces it."""
    while not is_reached():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


def play(story: Callable[[], Awaitable[None]]) -> None:
    """Run a story on the event loop that nodes run on."""

    async def main() -> None:
        async with asyncio.timeout(SECONDS_MAX):
            await story()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def new_listener(server: PeerServer, *, tls: NodeTls | None = None) -> Listener:
    """A listener for other nodes, not bound yet."""
    loop = asyncio.get_running_loop()
    return Listener(
        loop,
        server.connect,
        ConnectionLimits(
            connections_max=100,
            connections_per_address_max=-1,
            idle_timeout_ms=60_000,
            receive_bytes_total_max=100 << 20,
        ),
        ListenerRules("internal"),
        tls=None if tls is None else Tls(tls.accept, Pace(loop), NODE_HANDSHAKES),
        complaints=server.complaints,
    )


class EchoNode:
    """Gives back what it is sent, in two pieces."""

    def __init__(self, port: int = 0, *, tls: NodeTls | None = None) -> None:
        clock = LoopClock(asyncio.get_running_loop())
        self.server = PeerServer(clock, lambda: Hello("c", 2), new_credentials())
        self.server.handlers[ECHO] = self._echo
        self.listener = new_listener(self.server, tls=tls)
        self.address = self.listener.listen("127.0.0.1", port)

    def _echo(self, caller: int, head: bytes, body: memoryview) -> Promise[Answer]:
        answer: Promise[Answer] = Promise()
        answer.resolve(Answer(head, [bytes(body[:1]), bytes(body[1:])]))
        return answer


class EchoCaller:
    """Calls such a node."""

    def __init__(self, address: tuple[str, int], *, tls: NodeTls | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.clock = LoopClock(loop)
        self.calling = Calling(self.clock, 2, lambda: Hello("c", 1), new_credentials())
        self.gone = 0
        self.dialer = Dialer(
            loop, self.calling, *address, random=Random(0), on_gone=self._note_gone, tls=tls
        )

    def _note_gone(self) -> None:
        self.gone += 1

    async def until_connected(self) -> None:
        await until(lambda: self.calling.is_connected)

    async def until_turned_away(self, times: int = 3) -> None:
        """Wait until it has tried so often and got nowhere."""
        await until(lambda: self.dialer._failures >= times)
        assert not self.calling.is_connected

    async def call(self, head: bytes, body: bytes = b"") -> tuple[bytes, bytes]:
        answered: asyncio.Future[tuple[bytes, bytes]] = asyncio.get_running_loop().create_future()

        def done(answer: Answered | None, error: Exception | None) -> None:
            if answer is None:
                assert error is not None
                answered.set_exception(error)
            else:
                answered.set_result((answer.head, bytes(answer.body)))

        self.calling.call(ECHO, head, [body], timeout_ms=SECONDS_MAX * 1000).then(done)
        return await answered

    def stop(self) -> None:
        self.dialer.stop()
        self.clock.close()
