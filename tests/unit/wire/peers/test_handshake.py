"""How nodes prove to each other that they know the secret of their cluster."""

from __future__ import annotations

import logging
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.model.errors import MalformedRequest
from goqueue.model.session import ConnectedClient, ListenerRules
from goqueue.model.support import UNKNOWN
from goqueue.wire.complaints import LINES_MAX, LINES_MS, Complaints
from goqueue.wire.parts import Part
from goqueue.wire.peers.frames import (
    ASKING_ID,
    HANDSHAKE_FRAME_BYTES_MAX,
    Frame,
    Hello,
    Role,
    hello_parts,
    proof_parts,
    take_frame,
)
from goqueue.wire.peers.handshake import (
    HANDSHAKE_MS_MAX,
    CalleeHandshake,
    CallerHandshake,
    Credentials,
    Unproven,
    protocol_problem,
)
from goqueue.wire.peers.serving import STRANGERS_MAX, STRANGERS_PER_ADDRESS_MAX, PeerServer, Serving
from tests.credentials import OTHER_SECRET, SECRET, new_credentials
from tests.simulation.clock import VirtualClock

CALLER, CALLEE = Hello("c", 1), Hello("c", 2)

INTERNAL = ListenerRules("internal")


def frame_of(parts: list[Part]) -> Frame:
    taken = take_frame(memoryview(b"".join(parts)))  # type: ignore[arg-type]
    assert taken is not None
    return taken[0]


def meet(
    caller: Credentials | None,
    callee: Credentials | None,
    *,
    caller_hello: Hello = CALLER,
    callee_hello: Hello = CALLEE,
    callee_id: int = 2,
) -> tuple[Hello, Hello]:
    """What the callee and the caller learn of each other."""
    calling, called = CallerHandshake(caller, caller_hello, callee_id), CalleeHandshake(callee)
    step = called.receive(frame_of(calling.begin()), callee_hello)
    if not isinstance(step, Hello):
        proof = calling.receive(frame_of(step))
        assert not isinstance(proof, Hello)
        step = called.receive(frame_of(proof), callee_hello)
    assert isinstance(step, Hello)
    met = calling.receive(frame_of(called.welcome(step, callee_hello)))
    assert isinstance(met, Hello)
    return step, met


def test_nodes_with_the_same_secret_meet() -> None:
    caller, callee = meet(new_credentials(), new_credentials())
    assert (caller.node_id, callee.node_id, callee.cluster_id) == (1, 2, "c")


def test_nodes_that_certificates_have_authenticated_need_no_secret() -> None:
    caller, callee = meet(None, None)
    assert (caller.node_id, callee.node_id) == (1, 2)


@pytest.mark.parametrize(
    ("caller", "callee"),
    [
        ((SECRET,), (OTHER_SECRET, SECRET)),  # the callee has the new one already
        ((OTHER_SECRET, SECRET), (SECRET,)),  # the caller has
        ((OTHER_SECRET, SECRET), (SECRET, OTHER_SECRET)),
        ((OTHER_SECRET,), (OTHER_SECRET, SECRET)),  # the caller has forgotten the old one
    ],
)
def test_a_secret_is_changed_one_node_after_the_other(
    caller: tuple[str, ...], callee: tuple[str, ...]
) -> None:
    meet(new_credentials(*caller), new_credentials(*callee))


@pytest.mark.parametrize(
    ("caller", "callee", "reason"),
    [
        ((SECRET,), (OTHER_SECRET,), "another secret"),
        (None, (SECRET,), "has no secret"),
        ((SECRET,), None, "does not ask for the secret"),
    ],
)
def test_nodes_without_a_common_secret_do_not_meet(
    caller: tuple[str, ...] | None, callee: tuple[str, ...] | None, reason: str
) -> None:
    with pytest.raises(MalformedRequest, match=reason):
        meet(
            None if caller is None else new_credentials(*caller),
            None if callee is None else new_credentials(*callee),
        )


def test_who_means_another_node_is_told_so() -> None:
    with pytest.raises(Unproven, match="looks for node 3"):
        meet(new_credentials(), new_credentials(), callee_id=3)


def test_a_proof_that_was_recorded_is_worth_nothing() -> None:
    calling, called = (
        CallerHandshake(new_credentials(), CALLER, 2),
        CalleeHandshake(new_credentials()),
    )
    hello = frame_of(calling.begin())
    challenge = called.receive(hello, CALLEE)
    assert not isinstance(challenge, Hello)
    proof = calling.receive(frame_of(challenge))
    assert not isinstance(proof, Hello)
    again = CalleeHandshake(new_credentials())
    assert not isinstance(again.receive(hello, CALLEE), Hello)
    with pytest.raises(Unproven):
        again.receive(frame_of(proof), CALLEE)


def test_a_proof_cannot_be_sent_back_to_its_author() -> None:
    """Somebody without the secret has node 2 prove what it is to prove to node 2 itself."""
    credentials = new_credentials()
    victim = CallerHandshake(credentials, CALLEE, 1)  # node 2 calls the impostor for node 1
    called = CalleeHandshake(credentials)  # and the impostor calls node 2
    hello = msgspec.structs.replace(
        CALLER, nonce=b"n" * 32, key_ids=credentials.key_ids, callee_id=2
    )
    challenge = called.receive(frame_of(hello_parts(hello)), CALLEE)
    assert not isinstance(challenge, Hello)
    victim.begin()
    stolen = victim.receive(frame_of(challenge))
    assert not isinstance(stolen, Hello)
    with pytest.raises(Unproven):
        called.receive(frame_of(stolen), CALLEE)


def test_a_callee_that_proves_nothing_is_not_believed() -> None:
    calling = CallerHandshake(new_credentials(), CALLER, 2)
    calling.begin()
    with pytest.raises(MalformedRequest, match="does not ask for the secret"):
        calling.receive(frame_of(hello_parts(CALLEE)))
    called = CalleeHandshake(new_credentials())
    calling = CallerHandshake(new_credentials(), CALLER, 2)
    step = called.receive(frame_of(calling.begin()), CALLEE)
    assert not isinstance(step, Hello)
    calling.receive(frame_of(step))
    for proof in (b"", b"\0" * 32):
        with pytest.raises(MalformedRequest, match="has not proved"):
            calling.receive(frame_of(hello_parts(msgspec.structs.replace(CALLEE, proof=proof))))


@given(st.integers(0, 6), st.binary(max_size=200))
def test_nothing_that_is_sent_instead_of_a_hello_is_believed(role: int, head: bytes) -> None:
    frame = Frame(Role(role), 0, 0, head, memoryview(b""))
    for handshake in (CalleeHandshake(new_credentials()), CalleeHandshake(None)):
        with pytest.raises(MalformedRequest):
            handshake.receive(frame, CALLEE)


@given(st.binary(max_size=64))
def test_no_other_proof_is_believed(proof: bytes) -> None:
    calling, called = (
        CallerHandshake(new_credentials(), CALLER, 2),
        CalleeHandshake(new_credentials()),
    )
    called.receive(frame_of(calling.begin()), CALLEE)
    with pytest.raises(MalformedRequest):
        called.receive(frame_of(proof_parts(proof)), CALLEE)


# Connections that prove nothing


class Door:
    """A node's side of connections, without sockets."""

    def __init__(self) -> None:
        self.clock = VirtualClock(random.Random(0))
        self.heard: list[int] = []
        self.server = PeerServer(self.clock.node(), lambda: CALLEE, new_credentials())
        self.server.notice_handlers = {1: lambda node, head, body: self.heard.append(node)}
        self.closed: list[Serving] = []

    def connect(self, host: str = "10.0.0.9") -> Serving:
        serving: list[Serving] = []

        def close() -> None:
            self.closed.append(serving[0])
            serving[0].closed()

        serving.append(
            self.server.connect(
                ConnectedClient(host, INTERNAL),
                send=lambda parts: None,
                close=close,
                unblock=lambda: None,
            )
        )
        return serving[0]


@pytest.fixture
def door() -> Door:
    return Door()


def test_who_says_nothing_is_disconnected_in_time(door: Door) -> None:
    serving = door.connect()
    serving.receive(memoryview(b"\0"))
    door.clock.run_for(HANDSHAKE_MS_MAX - 1)
    assert not door.closed
    door.clock.run_for(2)
    assert door.closed == [serving]


def test_who_announces_a_large_frame_is_disconnected_before_it_comes(door: Door) -> None:
    serving = door.connect()
    serving.receive(memoryview((HANDSHAKE_FRAME_BYTES_MAX + 1).to_bytes(4, "big")))
    assert door.closed == [serving]


def test_strangers_take_the_places_of_older_strangers_and_of_nobody_else(door: Door) -> None:
    calling = CallerHandshake(new_credentials(), CALLER, 2)
    sent: list[list[Part]] = []
    node = door.server.connect(
        ConnectedClient("10.0.0.1", INTERNAL),
        send=sent.append,
        close=lambda: pytest.fail("a node"),
        unblock=lambda: None,
    )
    node.receive(memoryview(b"".join(calling.begin())))  # type: ignore[arg-type]
    proof = calling.receive(frame_of(sent[0]))
    assert not isinstance(proof, Hello)
    node.receive(memoryview(b"".join(proof)))  # type: ignore[arg-type]
    first = [door.connect("10.0.0.9") for _ in range(STRANGERS_PER_ADDRESS_MAX)]
    assert not door.closed
    door.connect("10.0.0.9")
    assert door.closed == first[:1]
    for number in range(STRANGERS_MAX):
        door.connect(f"10.0.1.{number}")
    assert len(door.server._strangers) == STRANGERS_MAX
    assert door.closed[: len(first)] == first
    notice = b"".join([(14).to_bytes(4, "big"), bytes([Role.NOTICE, 1]), bytes(12)])
    node.receive(memoryview(notice))
    assert door.heard == [1]


@pytest.mark.parametrize("seed", range(20))
def test_garbage_is_never_heard(door: Door, seed: int) -> None:
    source = random.Random(seed)
    for _ in range(50):
        serving = door.connect()
        data = source.randbytes(source.randrange(200))
        if source.random() < 0.5:
            data = len(data).to_bytes(4, "big") + bytes([source.randrange(7), 1]) + data
        serving.receive(memoryview(data))
    assert door.heard == []


def test_what_strangers_do_is_told_at_a_bounded_rate(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(500):
        door.connect(f"10.1.{number // 250}.{number % 250}").receive(
            memoryview(b"GET / HTTP/1.1\r\n")
        )
    assert len(caplog.records) == LINES_MAX
    assert "10.1.0.0: turned away: it does not use the peer protocol" in caplog.text
    for number in range(500):  # whatever it varies, one address has one line
        door.connect("10.9.9.9").receive(memoryview(number.to_bytes(4, "big")))
    assert len(caplog.records) == LINES_MAX
    door.clock.run_for(LINES_MS)
    door.connect("10.2.0.1").receive(memoryview(b"GET / HTTP/1.1\r\n"))
    assert "more like it were left out" in caplog.records[-1].getMessage()


def test_who_only_asks_who_is_there_can_do_nothing_else(door: Door) -> None:
    calling = CallerHandshake(new_credentials(), Hello("", ASKING_ID), ASKING_ID)
    sent: list[list[Part]] = []
    ended: list[bool] = []
    serving = door.server.connect(
        ConnectedClient("10.0.0.1", INTERNAL),
        send=sent.append,
        close=lambda: ended.append(True),
        unblock=lambda: None,
    )
    serving.receive(memoryview(b"".join(calling.begin())))  # type: ignore[arg-type]
    proof = calling.receive(frame_of(sent[0]))
    assert not isinstance(proof, Hello)
    serving.receive(memoryview(b"".join(proof)))  # type: ignore[arg-type]
    met = calling.receive(frame_of(sent[1]))
    assert isinstance(met, Hello)
    assert met.node_id == 2
    assert ended == [True]


def test_lines_are_counted_only_where_there_is_a_clock(caplog: pytest.LogCaptureFixture) -> None:
    complaints = Complaints(logging.getLogger("goqueue"))
    for number in range(LINES_MAX + 5):
        complaints.tell(f"node {number}", "is late")
    assert len(caplog.records) == LINES_MAX + 5


# Versions of the protocol


def hello_of(node: int, versions: tuple[int, int]) -> Hello:
    return Hello("c", node, protocol_min=versions[0], protocol_max=versions[1])


@pytest.mark.parametrize(
    ("caller", "callee", "is_met"),
    [
        ((1, 1), (1, 2), True),
        ((1, 2), (2, 3), True),
        ((2, 3), (1, 2), True),
        ((1, 1), (2, 3), False),
        ((3, 4), (1, 2), False),
    ],
)
def test_nodes_need_a_version_of_the_protocol_in_common(
    caller: tuple[int, int], callee: tuple[int, int], is_met: bool
) -> None:
    """Each of them checks: the other may be a release that does not."""
    mine, theirs = hello_of(1, caller), hello_of(2, callee)
    for one, other in ((mine, theirs), (theirs, mine)):
        problem = protocol_problem(one, other)
        assert (problem == "") is is_met
        for number in (*caller, *callee):
            assert is_met or str(number) in problem


def test_a_callee_without_a_common_version_is_left_with_both_ranges() -> None:
    calling = CallerHandshake(None, hello_of(1, (1, 1)), 2)
    [part] = hello_parts(hello_of(2, (2, 3)))
    taken = take_frame(memoryview(part))
    assert taken is not None
    with pytest.raises(MalformedRequest, match=r"versions 2 to 3 .* this one 1 to 1"):
        calling.receive(taken[0])


def test_a_node_of_the_release_before_says_nothing_of_versions() -> None:
    """It sends the fields up to the expected node, and ignores those behind them."""
    old = msgspec.msgpack.encode(["c", 1, 1, b"GQPR", b"", [], b"", 2])
    hello = msgspec.msgpack.decode(old, type=Hello)
    assert (hello.protocol_min, hello.protocol_max, hello.support) == (1, 1, UNKNOWN)
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(CALLER))
    assert fields[:8] == ["c", 1, 1, b"GQPR", b"", [], b"", ASKING_ID]
