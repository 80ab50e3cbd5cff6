"""Calls from node to node, without sockets: both ends joined in memory, on a virtual clock."""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest

from goqueue.loop.peers import Answer, Answered
from goqueue.loop.promise import Promise
from goqueue.model.errors import GoQueueError, NotLeader, RequestTimedOut
from goqueue.model.names import TopicPartition
from goqueue.model.session import ConnectedClient, ListenerRules
from goqueue.model.support import SUPPORT
from goqueue.wire.complaints import TOLD_MAX, Complaints
from goqueue.wire.parts import Part
from goqueue.wire.peers import calling
from goqueue.wire.peers.calling import Calling
from goqueue.wire.peers.frames import Hello
from goqueue.wire.peers.serving import CALLS_MAX, PeerServer, Serving
from tests.credentials import SECRET, new_credentials
from tests.simulation.clock import VirtualClock

ECHO, LATE, FAIL, BREAK = range(1, 5)
TIMEOUT_MS = 1_000
SERVER = Hello("c", 2)
CALLER = Hello("c", 1)

INTERNAL = ListenerRules("internal")


class Pair:
    """Node 1 calls node 2."""

    def __init__(
        self,
        *,
        server: Hello = SERVER,
        caller: Hello = CALLER,
        secrets: tuple[str, ...] | None = (SECRET,),
        secrets_of_caller: tuple[str, ...] | None = (SECRET,),
    ) -> None:
        self.clock = VirtualClock(Random(0))
        self.late: list[Promise[Answer]] = []
        self.notices: list[tuple[int, bytes]] = []
        of_server = None if secrets is None else new_credentials(*secrets)
        of_caller = None if secrets_of_caller is None else new_credentials(*secrets_of_caller)
        self.server = PeerServer(self.clock.node(), lambda: server, of_server)
        self.server.handlers = {
            ECHO: self._echo,
            LATE: self._late,
            FAIL: self._fail,
            BREAK: self._break,
        }
        self.server.notice_handlers = {
            ECHO: lambda node, head, body: self.notices.append((node, head + bytes(body)))
        }
        self.calling = Calling(self.clock.node(), 2, lambda: caller, of_caller)
        self.is_open = False
        self.serving: Serving
        self.wire: list[tuple[Callable[[memoryview], int], bytes]] = []

    def open(self) -> None:
        self.is_open = True
        self.serving = self.server.connect(
            ConnectedClient("there", INTERNAL),
            send=self._to(lambda: self.calling),
            close=self._end,
            unblock=lambda: None,
        )
        self.calling.connect(
            ConnectedClient("here", INTERNAL),
            send=self._to(lambda: self.serving),
            close=self._end,
            unblock=lambda: None,
        )
        self.pump()

    def break_off(self) -> None:
        if self.is_open:
            self.is_open = False
            self.wire.clear()
            self.serving.closed()
            self.calling.closed()

    def _end(self) -> None:
        """Close after what was sent before, as a socket does."""

        def close(_: memoryview) -> int:
            self.break_off()
            return 0

        self.wire.append((close, b""))

    def pump(self, ms: float = 0) -> None:
        self.clock.run_for(ms)
        while self.wire:
            receive, data = self.wire.pop(0)
            try:
                assert receive(memoryview(data)) == len(data)
            except GoQueueError:
                self.break_off()

    def _to(self, end: Callable[[], Any]) -> Callable[[list[Part]], None]:
        def send(parts: list[Part]) -> None:
            data = b"".join(parts)  # type: ignore[arg-type]
            self.wire.append((lambda view: int(end().receive(view)), data))

        return send

    def call(self, kind: int, head: bytes = b"", body: bytes = b"") -> list[Any]:
        """Call; the list gets the answer or the error when there is one."""
        outcome: list[Any] = []

        def done(answer: Answered | None, error: Exception | None) -> None:
            outcome.append(error or (answer and (answer.head, bytes(answer.body))))

        self.calling.call(kind, head, [body], timeout_ms=TIMEOUT_MS).then(done)
        self.pump()
        return outcome

    def _echo(self, caller: int, head: bytes, body: memoryview) -> Promise[Answer]:
        answer: Promise[Answer] = Promise()
        answer.resolve(Answer(head + b" from %d" % caller, [bytes(body)]))
        return answer

    def _late(self, caller: int, head: bytes, body: memoryview) -> Promise[Answer]:
        self.late.append(Promise())
        return self.late[-1]

    def _fail(self, caller: int, head: bytes, body: memoryview) -> Promise[Answer]:
        raise NotLeader(TopicPartition("orders", 0), 3)

    def _break(self, caller: int, head: bytes, body: memoryview) -> Promise[Answer]:
        answer: Promise[Answer] = Promise()
        answer.reject(ZeroDivisionError())
        return answer


@pytest.fixture
def pair() -> Pair:
    pair = Pair()
    pair.open()
    return pair


def test_a_call_is_answered(pair: Pair) -> None:
    assert pair.call(ECHO, b"head", b"body") == [(b"head from 1", b"body")]


def test_answers_find_their_calls_in_any_order(pair: Pair) -> None:
    first, second = pair.call(LATE), pair.call(LATE)
    pair.late[1].resolve(Answer(b"second"))
    pair.pump()
    assert (first, second) == ([], [(b"second", b"")])
    pair.late[0].resolve(Answer(b"first"))
    pair.pump()
    assert first == [(b"first", b"")]


def test_what_the_other_node_refuses_is_raised_here(pair: Pair) -> None:
    (error,) = pair.call(FAIL)
    assert isinstance(error, NotLeader)
    assert error.leader == 3


def test_an_unknown_kind_is_refused(pair: Pair) -> None:
    (error,) = pair.call(99)
    assert "does not serve" in str(error)


def test_a_fault_over_there_breaks_the_connection_and_no_more(pair: Pair) -> None:
    (error,) = pair.call(BREAK)
    assert isinstance(error, RequestTimedOut)
    pair.open()
    assert pair.call(ECHO, b"again") == [(b"again from 1", b"")]


def test_a_call_without_an_answer_ends_in_time_and_a_late_answer_is_dropped(pair: Pair) -> None:
    outcome = pair.call(LATE)
    pair.pump(TIMEOUT_MS + 1)
    (error,) = outcome
    assert isinstance(error, RequestTimedOut)
    pair.late[0].resolve(Answer(b"late"))
    pair.pump()
    assert outcome == [error]
    assert pair.call(ECHO, b"on") == [(b"on from 1", b"")]


def test_calls_under_way_end_with_their_connection(pair: Pair) -> None:
    outcome = pair.call(LATE)
    pair.break_off()
    assert isinstance(outcome[0], RequestTimedOut)
    assert isinstance(pair.call(ECHO)[0], RequestTimedOut), "nobody is there"
    pair.pump(2 * TIMEOUT_MS)
    assert len(outcome) == 1


def test_what_the_other_node_supports_is_known_while_it_is_connected() -> None:
    """It may come back as an older release, which could not read what is sent to a newer one."""
    pair = Pair(server=msgspec.structs.replace(SERVER, support=SUPPORT))
    assert pair.calling.support is None
    pair.open()
    assert pair.calling.support == SUPPORT
    pair.break_off()
    assert pair.calling.support is None


def test_calls_made_before_the_other_node_said_who_it_is_wait_for_that() -> None:
    pair = Pair()
    pair.is_open = True
    pair.serving = pair.server.connect(
        ConnectedClient("there", INTERNAL),
        send=pair._to(lambda: pair.calling),
        close=pair.break_off,
        unblock=lambda: None,
    )
    pair.calling.connect(
        ConnectedClient("here", INTERNAL),
        send=pair._to(lambda: pair.serving),
        close=pair.break_off,
        unblock=lambda: None,
    )
    assert not pair.calling.is_connected
    assert pair.call(ECHO, b"early") == [(b"early from 1", b"")]


def test_notices_arrive_with_the_name_of_their_sender(pair: Pair) -> None:
    pair.calling.notify(ECHO, b"ne", [b"ws"])
    pair.calling.notify(99, b"of a later version")
    pair.pump()
    assert pair.notices == [(1, b"news")]
    pair.break_off()
    pair.calling.notify(ECHO, b"lost")
    pair.pump()
    assert pair.notices == [(1, b"news")]


@pytest.mark.parametrize(
    ("server", "caller", "reason"),
    [
        (Hello("c", 2), Hello("other", 1), "cluster other"),
        (Hello("c", 2), Hello("c", 2), "Two nodes have the id 2"),
        (Hello("c", 2), Hello("c", 1, version=9), "version 9"),
        (Hello("c", 3), Hello("c", 1), "It looks for node 2"),
    ],
)
def test_strangers_do_not_speak_to_each_other(
    server: Hello, caller: Hello, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    pair = Pair(server=server, caller=caller)
    for _ in range(3):
        pair.open()
        assert not pair.is_open
        assert not pair.calling.is_connected
        assert reason in pair.calling.complaint
    assert len(caplog.records) <= 1, "told once, however often it tries"


def test_a_trouble_that_comes_again_after_all_was_well_is_told_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    complaints = Complaints(logging.getLogger("goqueue"))
    complaints.tell("node 1", "is late")
    complaints.tell("node 1", "is late")
    complaints.tell("node 2", "is late")
    complaints.settle("node 1")
    complaints.tell("node 1", "is late")
    complaints.tell("node 2", "is late")
    assert [one.getMessage() for one in caplog.records] == [
        "node 1: is late",
        "node 2: is late",
        "node 1: is late",
    ]


def test_what_was_told_is_remembered_within_bounds() -> None:
    complaints = Complaints(logging.getLogger("goqueue"), logging.DEBUG)
    for number in range(3 * TOLD_MAX):
        complaints.tell(f"node {number}", "is late")
    assert len(complaints._told) == TOLD_MAX


def test_a_node_that_does_not_know_its_cluster_yet_may_ask() -> None:
    pair = Pair(caller=Hello("", 1))
    pair.open()
    assert pair.call(ECHO, b"which") == [(b"which from 1", b"")]


def test_who_calls_too_often_must_wait(pair: Pair) -> None:
    for _ in range(CALLS_MAX):
        pair.call(LATE)
    assert pair.serving.is_blocked
    pair.late[0].resolve(Answer())
    assert not pair.serving.is_blocked


def test_calls_beyond_the_bound_are_refused_at_once(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calling, "CALLS_MAX", 3)
    outcomes = [pair.call(LATE) for _ in range(4)]
    assert [bool(one) for one in outcomes] == [False, False, False, True]
    assert "are in flight" in str(outcomes[3][0])


def test_who_does_not_say_who_it_is_is_not_heard() -> None:
    pair = Pair()
    pair.open()
    ends: list[bool] = []
    stranger = pair.server.connect(
        ConnectedClient("x", INTERNAL),
        send=lambda parts: None,
        close=lambda: ends.append(True),
        unblock=lambda: None,
    )
    stranger.receive(memoryview(b"GET / HTTP/1.1\r\n\r\n" + bytes(100)))
    assert ends == [True]


def test_a_notice_that_makes_no_sense_breaks_the_connection_and_no_more(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    def confused(node: int, head: bytes, body: memoryview) -> None:
        raise ZeroDivisionError

    pair.server.notice_handlers[FAIL] = confused
    pair.calling.notify(FAIL, b"?")
    pair.pump()
    assert not pair.is_open
    assert "ZeroDivisionError" in caplog.text
    pair.open()
    assert pair.call(ECHO, b"again") == [(b"again from 1", b"")]
