"""Real sockets on the loopback: every byte once and in order, within the limits."""

from __future__ import annotations

import array
import asyncio
import fcntl
import socket
import struct
import termios
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from goqueue.broker.gate.request_metrics import ListenerMetrics
from goqueue.metrics import Registry
from goqueue.metrics import catalogue as metrics
from goqueue.model.errors import MalformedRequest
from goqueue.model.session import ConnectedClient, ListenerRules
from goqueue.runtime import listening, sockets, turn_reference, turns
from goqueue.runtime.disk import LocalDisk
from goqueue.runtime.listening import ConnectionLimits, Listener
from goqueue.runtime.sockets import SocketConnection
from goqueue.wire.parts import FileRange, Part

Story = Callable[["Server"], Awaitable[None]]
SECONDS_MAX = 20


class Echo:
    """The protocol side: frames of a length and a body, answered with the same body.

    A body that begins with `hold` is answered when `release` is called.
    """

    requests_max = 4

    def __init__(self, send: Callable[[list[Part]], None], close: Any, unblock: Any) -> None:
        self.unsent_bytes = 0
        self.is_closed = False
        self.is_muted = False
        self.received = 0
        self.mute_after = -1  # requests
        self.steps: list[int] = []  # how many bytes were received at once
        self._partial_bytes = 0
        self.answer: Callable[[bytes], list[Part]] = lambda frame: [frame]
        self._held: list[bytes] = []
        self._send = send
        self._close = close
        self._unblock = unblock

    @property
    def is_blocked(self) -> bool:
        is_full = len(self._held) >= self.requests_max or self.unsent_bytes > 1 << 20
        return is_full or self.is_muted

    @property
    def is_busy(self) -> bool:
        return bool(self._held)

    def receive(self, data: memoryview) -> int:
        self.steps.append(len(data) - self._partial_bytes)
        at = 0
        while len(data) - at >= 4 and not self.is_blocked and not self.is_closed:
            (length,) = struct.unpack_from(">i", data, at)
            if length < 0:
                raise MalformedRequest("A length cannot be negative.")
            if len(data) - at < 4 + length:
                break
            frame = bytes(data[at : at + 4 + length])
            self.received += 1
            self.is_muted = self.received == self.mute_after
            at += 4 + length
            if frame[4:8] == b"hold" or self._held:
                self._held.append(frame)
            else:
                self._send(self.answer(frame))
        self._partial_bytes = len(data) - at
        return at

    def unmute(self) -> None:
        self.is_muted = False
        self._unblock()

    def wanted_bytes(self, data: memoryview) -> int:
        return 4 if len(data) < 4 else 4 + int(struct.unpack_from(">i", data)[0])

    def release(self) -> None:
        was_blocked = self.is_blocked
        held, self._held = self._held, []
        for frame in held:
            self._send(self.answer(frame))
        if was_blocked and not self.is_blocked:
            self._unblock()

    def closed(self) -> None:
        self.is_closed = True


class Server:
    """A listener and the sessions it has made."""

    def __init__(self, **limits: int) -> None:
        self.sessions: list[Echo] = []
        self.hosts: list[str] = []
        settings = {
            "connections_max": 100,
            "connections_per_address_max": -1,
            "idle_timeout_ms": 600_000,
            "receive_bytes_total_max": 100 << 20,
            **limits,
        }
        self.listener = Listener(
            asyncio.get_running_loop(),
            self._connect,
            ConnectionLimits(**settings),
            ListenerRules("kafka"),
        )
        self.address = self.listener.listen("127.0.0.1", 0)

    def _connect(self, client: ConnectedClient, *, send: Any, close: Any, unblock: Any) -> Echo:
        self.hosts.append(client.host)
        self.sessions.append(Echo(send, close, unblock))
        return self.sessions[-1]

    async def client(self) -> Client:
        reader, writer = await asyncio.open_connection(*self.address, limit=1 << 26)
        return Client(reader, writer)

    @property
    def connections(self) -> list[SocketConnection]:
        return list(self.listener.connections)

    @property
    def arrived_bytes(self) -> int:
        """What the only connection has not received yet."""
        (connection,) = self.connections
        room = array.array("i", [0])
        fcntl.ioctl(connection._fd, termios.FIONREAD, room)
        return room[0]

    async def until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *bodies: bytes) -> None:
        self.writer.write(b"".join(struct.pack(">i", len(body)) + body for body in bodies))

    async def receive(self) -> bytes:
        (length,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(length)

    async def is_hung_up_on(self) -> bool:
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True


@pytest.fixture(params=["asyncio", "uvloop", "turns", "reference"])
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Run a story on an event loop that knows each socket, or only the set of them."""
    is_united = request.param in ("turns", "reference")
    monkeypatch.setattr(turns, "CONNECTIONS_MIN", 1 if is_united else 1000)
    if request.param == "reference":
        monkeypatch.setattr(turns, "receive_ready", turn_reference.receive_ready)
        monkeypatch.setattr(turns, "send_all", turn_reference.send_all)

    def run(story: Story, **limits: int) -> None:
        async def main() -> None:
            server = Server(**limits)
            try:
                await asyncio.wait_for(story(server), SECONDS_MAX)
            finally:
                server.listener.close()

        loop = asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(main())

    return run


# Bytes


@pytest.mark.parametrize("size", [0, 1, 1000, 16 << 10, 300 << 10, 3 << 20])
def test_what_is_sent_comes_back_whole(run: Callable[..., None], size: int) -> None:
    async def story(server: Server) -> None:
        client = await server.client()
        body = bytes(range(256)) * (size // 256 + 1)
        client.send(body[:size], b"after")
        assert await client.receive() == body[:size]
        assert await client.receive() == b"after"
        assert server.hosts == ["127.0.0.1"]

    run(story)


@pytest.mark.parametrize(("asked", "given"), [(64 << 10, 128 << 10), (-1, None)])
def test_the_send_buffer_is_as_large_as_asked(
    run: Callable[..., None], asked: int, given: int | None
) -> None:
    async def story(server: Server) -> None:
        client = await server.client()
        client.send(b"hello")
        assert await client.receive() == b"hello"
        (connection,) = server.connections
        assert connection._socket is not None
        size = connection._socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        # Linux doubles what is asked for, to have room for its own bookkeeping.
        assert (size == given) if given else (size != 128 << 10)

    run(story, send_buffer_bytes=asked)


def test_requests_that_come_byte_by_byte_are_put_together(run: Callable[..., None]) -> None:
    async def story(server: Server) -> None:
        client = await server.client()
        client.writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"\x00\x00\x00\x05hello\x00\x00\x00\x02ok":
            client.writer.write(bytes([byte]))
            await client.writer.drain()
            await asyncio.sleep(0)
        assert await client.receive() == b"hello"
        assert await client.receive() == b"ok"
        assert server.listener.receiving.bytes_total == 0, "the shared buffer has room for the next"

    run(story)


def test_many_requests_of_many_connections_do_not_mix(run: Callable[..., None]) -> None:
    async def story(server: Server) -> None:
        async def talk(number: int) -> None:
            client = await server.client()
            bodies = [b"%d-%d " % (number, index) * (index * 37 % 3000) for index in range(60)]
            client.send(*bodies)
            for body in bodies:
                assert await client.receive() == body

        await asyncio.gather(*(talk(number) for number in range(10)))

    run(story)


def test_an_answer_from_a_file_is_sent_whole_among_others(
    run: Callable[..., None], tmp_path: Path
) -> None:
    disk = LocalDisk(str(tmp_path))
    file = disk.create("data")
    content = bytes(range(256)) * 40_000
    file.append(content)

    async def story(server: Server) -> None:
        client = await server.client()
        await server.until(lambda: bool(server.sessions))

        def answer(frame: bytes) -> list[Part]:
            if frame[4:] != b"file":
                return [frame]
            head = struct.pack(">i", len(content) - 100 + 3)
            return [head, FileRange(file, 100, len(content) - 100), b"end"]

        server.sessions[0].answer = answer
        client.send(b"before", b"file", b"after", b"file")
        assert await client.receive() == b"before"
        assert await client.receive() == content[100:] + b"end"
        assert await client.receive() == b"after"
        assert await client.receive() == content[100:] + b"end"
        assert server.sessions[0].unsent_bytes == 0
        assert not file.is_pinned

    run(story)


def test_an_answer_from_more_files_than_may_be_open_is_sent_whole(
    run: Callable[..., None], tmp_path: Path
) -> None:
    disk = LocalDisk(str(tmp_path), open_files_max=4)
    contents = [bytes([number]) * 100_000 for number in range(8)]
    files = [disk.create(f"{number}") for number in range(8)]
    for file, content in zip(files, contents, strict=True):
        file.append(content)
    before = b"x" * (16 << 20)  # more than a socket takes from one who does not read

    async def story(server: Server) -> None:
        client = await server.client()
        await server.until(lambda: bool(server.sessions))
        head = struct.pack(">i", len(before) + 800_000)
        ranges = [FileRange(one, 0, 100_000) for one in files]
        server.sessions[0].answer = lambda _: [head, before, *ranges]
        client.writer.transport.pause_reading()
        client.send(b"all")
        await server.until(lambda: files[0].is_pinned)
        assert [one.is_pinned for one in files] == [True] * 2 + [False] * 6
        client.writer.transport.resume_reading()
        assert await client.receive() == before + b"".join(contents)
        assert disk.pinned == 0

    run(story)


def test_an_answer_from_a_file_that_is_gone_ends_only_its_connection(
    run: Callable[..., None], tmp_path: Path
) -> None:
    disk = LocalDisk(str(tmp_path), open_files_max=4)
    file = disk.create("data")
    file.append(b"x" * 1000)
    file.close()
    disk.remove("data")
    gone = disk.open("data")

    async def story(server: Server) -> None:
        client, other = await server.client(), await server.client()
        await server.until(lambda: len(server.sessions) == 2)
        for session in server.sessions:
            session.answer = lambda frame: (
                [FileRange(gone, 0, 1000)] if frame[4:] == b"file" else [frame]
            )
        client.send(b"file")
        assert await client.reader.read() == b""
        other.send(b"hello")
        assert await other.receive() == b"hello"
        assert disk.pinned == 0

    run(story)


def test_a_client_that_does_not_read_holds_up_only_itself(run: Callable[..., None]) -> None:
    async def story(server: Server) -> None:
        lazy, other = await server.client(), await server.client()
        lazy.writer.transport.pause_reading()
        body = b"x" * (1 << 20)
        lazy.send(*[body] * 30)
        await server.until(lambda: any(one.is_blocked for one in server.sessions))
        other.send(b"hello")
        assert await other.receive() == b"hello"
        handled = max(one.received for one in server.sessions)
        assert handled < 30, "what is not taken is not made"
        lazy.writer.transport.resume_reading()
        for _ in range(30):
            assert await lazy.receive() == body

    run(story)


def test_a_blocked_session_is_not_read_and_goes_on_where_it_was(run: Callable[..., None]) -> None:
    async def story(server: Server) -> None:
        client = await server.client()
        bodies = [b"hold %d" % number + b"." * 5_000 for number in range(50)]
        client.send(*bodies)
        await server.until(lambda: bool(server.sessions) and server.sessions[0].is_blocked)
        assert server.sessions[0].received == Echo.requests_max
        received = []
        while len(received) < len(bodies):
            server.sessions[0].release()
            received.append(await client.receive())
        assert received == bodies

    run(story)


def test_what_arrived_while_a_client_was_muted_is_received_in_steps(
    run: Callable[..., None],
) -> None:
    step = sockets.DELAYED_STEP_BYTES

    async def story(server: Server) -> None:
        client, large = await server.client(), b"x" * (1 << 20)
        for _ in range(3):  # until the buffers of the system are large
            client.send(large)
            assert await client.receive() == large
        (session,) = server.sessions
        session.mute_after = session.received + 1
        client.send(b"first")
        assert await client.receive() == b"first"

        client.send(large, b"after")
        await server.until(lambda: server.arrived_bytes >= 3 * step)
        session.steps.clear()
        session.unmute()
        assert await client.receive() == large
        assert session.steps[:2] == [step, step]
        assert await client.receive() == b"after"

        # It was not muted since, and so is received from as others are.
        client.send(*[b"hold"] * Echo.requests_max)
        await server.until(lambda: session.is_blocked)
        client.send(large)
        await server.until(lambda: server.arrived_bytes >= 3 * step)
        session.steps.clear()
        session.release()
        for _ in range(Echo.requests_max):
            assert await client.receive() == b"hold"
        assert await client.receive() == large
        assert session.steps[0] > step

    run(story)


# Turns


async def _clients(server: Server, count: int) -> list[Client]:
    """Clients in the order of their sessions."""
    clients = []
    for _ in range(count):
        clients.append(await server.client())
        await server.until(lambda: len(server.sessions) == len(clients))
    return clients


def test_large_requests_of_many_connections_come_whole(run: Callable[..., None]) -> None:
    async def story(server: Server) -> None:
        clients = await _clients(server, 12)
        bodies = [bytes([number]) * (100_000 + 40_000 * number) for number in range(12)]
        for client, body in zip(clients, bodies, strict=True):
            client.send(body, b"after", body)
        for client, body in zip(clients, bodies, strict=True):
            assert await client.receive() == body
            assert await client.receive() == b"after"
            assert await client.receive() == body

    run(story)


def test_a_buffer_that_is_taken_back_in_a_turn_spoils_nothing(run: Callable[..., None]) -> None:
    async def story(server: Server) -> None:
        partial, owner, *others = await _clients(server, 6)
        large = b"x" * (300 << 10)
        owner.send(large)
        assert await owner.receive() == large
        assert server.listener.receiving.bytes_total > 0, "it keeps its buffer for the next"
        # In one turn: a request in part, for which there is only the memory of that buffer, one
        # more of the connection whose buffer it was, and others.
        partial.writer.write(struct.pack(">i", 90_000) + b"y" * 50_000)
        owner.send(b"z" * 60_000)
        for number, client in enumerate(others):
            client.send(b"%d" % number * 5_000)
        for number, client in enumerate(others):
            assert await client.receive() == b"%d" % number * 5_000
        assert await owner.receive() == b"z" * 60_000
        partial.writer.write(b"y" * 40_000)
        assert await partial.receive() == b"y" * 90_000

    run(story, receive_bytes_total_max=310 << 10)


def test_answers_that_are_held_go_out_together_and_in_order(
    run: Callable[..., None], tmp_path: Path
) -> None:
    file = LocalDisk(str(tmp_path)).create("data")
    file.append(b"from a file")

    async def story(server: Server) -> None:
        clients = await _clients(server, 3)
        assert server.listener.turns is not None
        server.listener.turns.hold()
        for session in server.sessions:
            session._send([b"\x00\x00\x00\x05"])
            session._send([b"first"])
        server.sessions[1]._send([b"\x00\x00\x00\x06", b"second"])
        server.sessions[2]._send([b"\x00\x00\x00\x0b", FileRange(file, 0, 11)])
        server.listener.turns.release()
        for client in clients:
            assert await client.receive() == b"first"
        assert await clients[1].receive() == b"second"
        assert await clients[2].receive() == b"from a file"

    run(story)


def test_the_rest_of_an_answer_that_does_not_fit_the_socket_follows(
    run: Callable[..., None],
) -> None:
    async def story(server: Server) -> None:
        lazy, other = await _clients(server, 2)
        lazy.writer.transport.pause_reading()
        body = bytes(range(256)) * (40 << 10)
        answer = struct.pack(">i", len(body)) + body
        assert server.listener.turns is not None
        for _ in range(3):  # The first goes out in part, the others are behind it.
            server.listener.turns.hold()
            server.sessions[0]._send([answer])
            server.sessions[1]._send([b"\x00\x00\x00\x02ok"])
            server.listener.turns.release()
            assert await other.receive() == b"ok"
        assert server.sessions[0].unsent_bytes > 0
        lazy.writer.transport.resume_reading()
        for _ in range(3):
            assert await lazy.receive() == body
        await server.until(lambda: server.sessions[0].unsent_bytes == 0)

    run(story)


def test_answers_to_clients_that_are_gone_end_only_their_connections(
    run: Callable[..., None],
) -> None:
    async def story(server: Server) -> None:
        gone, closed, there = await _clients(server, 3)
        assert server.listener.turns is not None
        for connection in server.connections:
            if connection._protocol is server.sessions[0]:
                assert connection._socket is not None
                connection._socket.shutdown(socket.SHUT_WR)  # so that sending fails
        server.listener.turns.hold()
        for session in server.sessions:
            session._send([b"\x00\x00\x00\x02ok"])
        server.sessions[1]._close()
        server.listener.turns.release()
        assert await there.receive() == b"ok"
        assert await gone.is_hung_up_on()
        assert await closed.is_hung_up_on()
        assert [session.is_closed for session in server.sessions] == [True, True, False]

    run(story)


def test_connections_come_and_go_while_others_talk(run: Callable[..., None]) -> None:
    async def story(server: Server) -> None:
        async def talk(number: int) -> None:
            for index in range(10):
                client = await server.client()
                client.send(b"%d-%d" % (number, index))
                assert await client.receive() == b"%d-%d" % (number, index)
                client.writer.close()

        await asyncio.gather(*(talk(number) for number in range(10)))
        await server.until(lambda: not server.listener.connections)

    run(story)


# Limits


def test_connections_over_the_limit_are_refused_and_room_is_used_again(
    run: Callable[..., None],
) -> None:
    async def story(server: Server) -> None:
        first, second = await server.client(), await server.client()
        for client in (first, second):
            client.send(b"hello")
            assert await client.receive() == b"hello"
        third = await server.client()
        assert await third.is_hung_up_on()
        first.writer.close()
        await server.until(lambda: len(server.listener.connections) == 1)
        fourth = await server.client()
        fourth.send(b"hello")
        assert await fourth.receive() == b"hello"

    run(story, connections_max=2)
    run(story, connections_per_address_max=2)


def test_a_silent_connection_is_ended(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "SWEEP_MS", 5)

    async def story(server: Server) -> None:
        client = await server.client()
        assert await client.is_hung_up_on()
        assert server.sessions[0].is_closed
        assert server.listener.connections == set()

    run(story, idle_timeout_ms=20)


def test_a_client_that_waits_for_its_answer_is_not_taken_for_silent(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "SWEEP_MS", 5)
    sweeps = 0
    sweep = Listener._sweep

    def counted(listener: Listener) -> None:
        nonlocal sweeps
        sweeps += 1
        sweep(listener)

    monkeypatch.setattr(Listener, "_sweep", counted)

    async def story(server: Server) -> None:
        waiting, silent = await server.client(), await server.client()
        waiting.send(b"hold")
        assert await silent.is_hung_up_on()
        before = sweeps
        await server.until(lambda: sweeps > before + 10)
        assert len(server.listener.connections) == 1

    run(story, idle_timeout_ms=20)


def test_an_announced_length_takes_no_memory_before_its_bytes_have_come(
    run: Callable[..., None],
) -> None:
    async def story(server: Server) -> None:
        client = await server.client()
        client.writer.write(struct.pack(">i", 90 << 20) + b"x" * 1000)
        await server.until(lambda: server.listener.receiving.bytes_total > 0)
        assert server.listener.receiving.bytes_total <= 64 << 10
        client.writer.close()
        await server.until(lambda: not server.listener.connections)
        assert server.listener.receiving.bytes_total == 0

    run(story)


def test_without_memory_a_connection_waits_and_loses_nothing(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "MEMORY_RETRY_SECONDS", 0.005)

    async def story(server: Server) -> None:
        greedy, modest = await server.client(), await server.client()
        greedy.writer.write(struct.pack(">i", 1 << 20) + b"x" * (20 << 10))
        await server.until(lambda: server.listener.receiving.bytes_total >= 20 << 10)
        body = b"y" * (40 << 10)
        modest.writer.write(struct.pack(">i", len(body)) + body[:30_000])
        await server.until(lambda: any(one.is_waiting_for_memory for one in server.connections))
        modest.writer.write(body[30_000:])
        greedy.writer.close()
        assert await modest.receive() == body
        modest.send(b"after")
        assert await modest.receive() == b"after"

    run(story, receive_bytes_total_max=50 << 10)


def test_a_session_that_is_unblocked_while_it_waits_for_memory_loses_nothing(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "MEMORY_RETRY_SECONDS", 0.02)

    async def story(server: Server) -> None:
        greedy, client = await server.client(), await server.client()
        greedy.writer.write(struct.pack(">i", 1 << 20) + b"x" * (60 << 10))
        await server.until(lambda: server.listener.receiving.bytes_total >= 110 << 10)
        bodies = [b"hold %d" % number + b"." * 5_000 for number in range(20)]
        client.send(*bodies)
        await server.until(lambda: any(one.is_blocked for one in server.sessions))
        blocked = next(one for one in server.sessions if one.is_blocked)
        await server.until(lambda: any(one.is_waiting_for_memory for one in server.connections))
        blocked.release()  # while what follows has nowhere to be kept
        for _ in range(10):
            await asyncio.sleep(0)  # let the event loop act on it
        greedy.writer.close()
        answers = asyncio.gather(_receive_all(client, len(bodies)))
        while not answers.done():
            blocked.release()
            await asyncio.sleep(0.001)
        assert answers.result() == [bodies]

    run(story, receive_bytes_total_max=190 << 10)


async def _receive_all(client: Client, count: int) -> list[bytes]:
    return [await client.receive() for _ in range(count)]


# Ends


def test_malformed_bytes_end_the_connection_and_no_other(run: Callable[..., None]) -> None:
    async def story(server: Server) -> None:
        bad, good = await server.client(), await server.client()
        bad.writer.write(b"\xff\xff\xff\xff")
        assert await bad.is_hung_up_on()
        good.send(b"hello")
        assert await good.receive() == b"hello"

    run(story)


def test_a_client_that_goes_in_the_middle_of_an_answer_leaves_nothing_behind(
    run: Callable[..., None], tmp_path: Path
) -> None:
    file = LocalDisk(str(tmp_path)).create("data")
    file.append(bytes(20 << 20))

    async def story(server: Server) -> None:
        client = await server.client()
        await server.until(lambda: bool(server.sessions))
        server.sessions[0].answer = lambda frame: [FileRange(file, 0, 20 << 20)]
        client.send(b"file")
        await server.until(lambda: file.is_pinned)
        client.writer.transport.abort()
        await server.until(lambda: server.sessions[0].is_closed)
        assert not file.is_pinned
        assert server.listener.connections == set()

    run(story)


def test_closing_the_listener_ends_all_connections_and_refuses_new_ones(
    run: Callable[..., None],
) -> None:
    async def story(server: Server) -> None:
        client = await server.client()
        client.send(b"hello")
        assert await client.receive() == b"hello"
        server.listener.close()
        assert await client.is_hung_up_on()
        with pytest.raises(ConnectionRefusedError):
            await server.client()

    run(story)


def test_connections_and_bytes_are_counted(run: Callable[..., None]) -> None:
    registry = Registry()

    async def story(server: Server) -> None:
        measured = server.listener.measured = ListenerMetrics(registry, "kafka")
        clients = [await server.client() for _ in range(3)]
        sent = received = 0
        for client in clients:
            for body in (b"a" * 10, b"b" * 300_000):
                client.send(body)
                sent += 4 + len(body)
                received += 4 + len(await client.receive())
        assert measured.received.value == sent
        assert measured.sent.value == received
        refused = await server.client()
        assert await refused.reader.read() == b""
        assert measured.opened.value == len(clients)

    run(story, connections_max=3)
    refusals = registry.counters(metrics.LISTENER_CONNECTIONS_REFUSED).children
    assert {labels: one.value for labels, one in refusals.items()} == {
        ("kafka", "connection_limit"): 1
    }
