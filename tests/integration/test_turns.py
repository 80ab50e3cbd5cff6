"""Many sockets in one turn: the compiled functions and the plain ones do the same."""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from goqueue.runtime import turn_reference, turns
from goqueue.runtime.turn_reference import APART, READY_MAX
from goqueue.runtime.turns import Turns
from tests.integration.turn_cases import a_pair, outcomes, reset
from tests.unit.compiling import can_compile

IS_BUILT = turns.receive_ready is not turn_reference.receive_ready
MODULES: list[Any] = [turn_reference, *([turns] if IS_BUILT else [])]
BUFFER_BYTES = 1000


class Sockets:
    """Pairs of sockets, of which one end each is in a set."""

    def __init__(self) -> None:
        self.epoll = select.epoll()
        self.ours: list[socket.socket] = []
        self.theirs: list[socket.socket] = []
        self.buffer = memoryview(bytearray(BUFFER_BYTES))

    def add(self, *, tcp: bool = False) -> socket.socket:
        ours, theirs = a_tcp_pair() if tcp else a_pair()
        self.epoll.register(ours, select.EPOLLIN)
        self.ours.append(ours)
        self.theirs.append(theirs)
        return theirs

    @property
    def connections(self) -> dict[int, str]:
        return {one.fileno(): f"c{number}" for number, one in enumerate(self.ours)}

    def receive(
        self, module: Any, *, apart: tuple[int, ...] = (), room_min: int = 1
    ) -> list[tuple[str, int, int]]:
        descriptors = {self.ours[number].fileno() for number in apart}
        rows: list[tuple[str, int, int]] = module.receive_ready(
            self.epoll, self.connections, descriptors, self.buffer, room_min
        )
        return rows

    def close(self) -> None:
        self.epoll.close()
        for one in self.ours + self.theirs:
            one.close()


def a_tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        theirs = socket.create_connection(listening.getsockname())
        ours, _ = listening.accept()
    ours.setblocking(False)
    return ours, theirs


@pytest.fixture
def some() -> Iterator[Sockets]:
    made = Sockets()
    yield made
    made.close()


@pytest.fixture(params=MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def module(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_the_compiled_functions_are_built_where_there_is_a_compiler() -> None:
    if not can_compile():
        pytest.skip("there is nothing to build them with")
    assert IS_BUILT, "There is a compiler and no compiled module; run `make setup`."


@pytest.mark.parametrize("seed", range(200))
def test_both_do_the_same(seed: int) -> None:
    expected = outcomes(turn_reference, seed)
    assert all(outcomes(module, seed) == expected for module in MODULES)


# Receiving


def test_what_came_lies_side_by_side(some: Sockets, module: Any) -> None:
    for data in (b"one", b"two more", b""):
        some.add().sendall(data)
    assert some.receive(module) == [("c0", 0, 3), ("c1", 3, 8)]
    assert bytes(some.buffer[:11]) == b"onetwo more"
    assert some.receive(module) == []


def test_those_without_room_are_still_ready_the_next_time(some: Sockets, module: Any) -> None:
    for _ in range(3):
        some.add().sendall(b"x" * 450)
    assert some.receive(module, room_min=200) == [("c0", 0, 450), ("c1", 450, 450)]
    assert some.receive(module, room_min=200) == [("c2", 0, 450)]


def test_one_gets_all_the_room_there_is(some: Sockets, module: Any) -> None:
    some.add().sendall(b"x" * (BUFFER_BYTES + 500))
    assert some.receive(module) == [("c0", 0, BUFFER_BYTES)]
    assert some.receive(module) == [("c0", 0, 500)]


def test_the_end_and_errors_are_told_of_each(some: Sockets, module: Any) -> None:
    some.add().close()
    reset(some.add(tcp=True))
    some.add().sendall(b"x")
    rows = {name: length for name, _, length in some.receive(module)}
    assert rows == {"c0": 0, "c1": -errno.ECONNRESET, "c2": 1}


def test_nothing_is_taken_from_those_that_are_apart(some: Sockets, module: Any) -> None:
    for _ in range(2):
        some.add().sendall(b"x" * BUFFER_BYTES)
    rows = some.receive(module, apart=(0,), room_min=BUFFER_BYTES)
    assert rows == [("c1", 0, BUFFER_BYTES), ("c0", APART, 0)]
    assert some.ours[0].recv(BUFFER_BYTES) == b"x" * BUFFER_BYTES


def test_a_descriptor_that_nobody_knows_is_passed_over(some: Sockets, module: Any) -> None:
    some.add().sendall(b"x")
    assert module.receive_ready(some.epoll, {}, set(), some.buffer, 1) == []
    assert some.receive(module) == [("c0", 0, 1)]


def test_of_very_many_some_wait_and_all_get_their_turn(some: Sockets, module: Any) -> None:
    count = READY_MAX + 10
    for _ in range(count):
        some.add().sendall(b"x")
    rows = some.receive(module)
    assert len(rows) == READY_MAX
    assert len({name for name, *_ in rows + some.receive(module)}) == count


# Sending


def test_pieces_that_go_out_whole_are_not_mentioned(some: Sockets, module: Any) -> None:
    for _ in range(3):
        some.add()
    pieces = [b"one", b"", b"three"]
    assert module.send_all([one.fileno() for one in some.ours], pieces) == []
    assert some.theirs[0].recv(100) == b"one"
    assert some.theirs[2].recv(100) == b"three"


def test_what_does_not_go_out_whole_is_told_of_each(some: Sockets, module: Any) -> None:
    for _ in range(4):
        some.add()
    some.ours[1].shutdown(socket.SHUT_WR)
    large = b"x" * (32 << 20)
    descriptors = [one.fileno() for one in some.ours]
    (number, sent), broken = module.send_all(descriptors[:2], [large, b"x"])
    assert number == 0
    assert 0 < sent < len(large)
    assert broken == (1, -errno.EPIPE)
    assert module.send_all(descriptors, [large, b"x", b"two", b"three"]) == [
        (0, -errno.EAGAIN),
        (1, -errno.EPIPE),
    ]
    assert some.theirs[3].recv(100) == b"three"


def test_there_is_a_piece_for_each(module: Any) -> None:
    assert module.send_all([], []) == []
    with pytest.raises(ValueError, match="shorter"):
        module.send_all([-1], [])


# Turns


class Loop:
    """An event loop whose readers are called by the test."""

    def __init__(self) -> None:
        self.readers: dict[int, Callable[[], None]] = {}

    def time(self) -> float:
        return 0.0

    def add_reader(self, descriptor: int, call: Callable[[], None]) -> None:
        self.readers[descriptor] = call

    def remove_reader(self, descriptor: int) -> None:
        del self.readers[descriptor]


class Talker:
    """A connection that notes what comes, and may act on it."""

    host = "somewhere"

    def __init__(self, served: Turns, descriptor: int, order: list[Talker]) -> None:
        self.heard: list[bytes] = []
        self.action: Callable[[], None] = lambda: None
        self.descriptor = descriptor
        self.is_closed = False
        self._order = order
        self._turns = served
        served.watch(descriptor, self)

    def readable(self) -> None:
        self.received(memoryview(os.read(self.descriptor, 100)), 1, 0.0)

    def received(self, buffer: memoryview, length: int, now: float) -> None:
        self._order.append(self)
        self.heard.append(bytes(buffer))
        self.action()

    def sent(self, answer: bytes, length: int) -> None:
        raise AssertionError("Nothing was to be sent.")

    def close(self) -> None:
        self.is_closed = True
        self._turns.unwatch(self.descriptor)


class Talk:
    """Connections that are served in turns, from the first one on."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.turns = Turns(self.loop, memoryview(bytearray(1 << 20)))  # type: ignore[arg-type]
        self.pairs: list[tuple[socket.socket, socket.socket]] = []
        self.order: list[Talker] = []  # in which they were heard

    def talker(self) -> Talker:
        self.pairs.append(a_pair())
        return Talker(self.turns, self.pairs[-1][0].fileno(), self.order)

    def say(self, number: int, data: bytes) -> None:
        self.pairs[number][1].sendall(data)

    def turn(self) -> None:
        for call in list(self.loop.readers.values()):
            call()


@pytest.fixture
def talk(module: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Talk]:
    monkeypatch.setattr(turns, "CONNECTIONS_MIN", 1)
    monkeypatch.setattr(turns, "receive_ready", module.receive_ready)
    monkeypatch.setattr(turns, "send_all", module.send_all)
    made = Talk()
    yield made
    for pair in made.pairs:
        for one in pair:
            one.close()


def test_the_loop_knows_each_until_there_are_many(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "CONNECTIONS_MIN", 3)
    talkers = [talk.talker(), talk.talker()]
    assert set(talk.loop.readers) == {one.descriptor for one in talkers}
    talkers.append(talk.talker())
    (of_all,) = talk.loop.readers
    assert of_all not in {one.descriptor for one in talkers}
    for one in talkers:
        one.close()
    assert talk.loop.readers == {}
    again = talk.talker()
    assert set(talk.loop.readers) == {again.descriptor}
    again.close()


def test_what_came_for_one_is_not_given_to_the_next_with_its_number(talk: Talk) -> None:
    first, second = talk.talker(), talk.talker()
    later: list[Talker] = []

    def replace() -> None:
        second.close()
        ours, _ = a_new = a_pair()
        talk.pairs.append(a_new)
        os.dup2(ours.fileno(), second.descriptor)
        later.append(Talker(talk.turns, second.descriptor, talk.order))

    first.action = replace
    talk.say(0, b"one")
    talk.say(1, b"for the one that was closed")
    talk.turn()
    assert first.heard == [b"one"]
    assert later[0].heard == []
    talk.say(2, b"for the new one")
    talk.turn()
    assert later[0].heard == [b"for the new one"]


def test_one_that_fails_is_closed_and_no_other(
    talk: Talk, caplog: pytest.LogCaptureFixture
) -> None:
    talkers = [talk.talker() for _ in range(3)]

    def fail() -> None:
        raise KeyError("a mistake of ours")

    talkers[0].action = fail
    for number in range(3):
        talk.say(number, b"%d" % number)
    talk.turn()
    assert [one.heard for one in talkers] == [[b"0"], [b"1"], [b"2"]]
    assert [one.is_closed for one in talkers] == [True, False, False]
    assert "handling what somewhere sent failed" in caplog.text


def test_one_that_is_not_watched_is_not_read(talk: Talk) -> None:
    first, second = talk.talker(), talk.talker()
    talk.turns.unwatch(first.descriptor)
    talk.say(0, b"kept")
    talk.say(1, b"heard")
    talk.turn()
    assert (first.heard, second.heard) == ([], [b"heard"])
    talk.turns.watch(first.descriptor, first)
    talk.turn()
    assert first.heard == [b"kept"]


def test_one_that_is_apart_receives_by_itself(talk: Talk) -> None:
    first, second = talk.talker(), talk.talker()
    talk.turns.set_apart(first.descriptor, is_apart=True)
    talk.say(0, b"x" * 150)
    talk.say(1, b"y")
    talk.turn()
    assert first.heard == [b"x" * 100], "no more than it has room for"
    assert second.heard == [b"y"]
    assert talk.order == [second, first], "what is in the shared buffer is handled first"
    talk.turns.set_apart(first.descriptor, is_apart=False)
    talk.turn()
    assert first.heard[1:] == [b"x" * 50]
