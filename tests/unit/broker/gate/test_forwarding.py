"""Operations on their way to their owner: who is asked, what is tried again, and for how long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from goqueue.broker.gate import levels
from goqueue.broker.gate.forwarding import HANDOVER_MS_MAX, HANDOVER_RETRY_MS, Forwarder
from goqueue.broker.gate.operation import NO_OWNER, OPERATIONS, Area, cluster, operation
from goqueue.delivery import QueueSettings
from goqueue.loop.peers import Answer, Answered, PeerKind
from goqueue.loop.promise import Cancellation, Promise
from goqueue.model.access import Action
from goqueue.model.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    GoQueueError,
    LimitReached,
    NoOwner,
    NotCoordinator,
    RequestTimedOut,
    UnknownGroup,
    UpgradeInProgress,
)
from goqueue.model.session import Session
from goqueue.model.support import SUPPORT, UNKNOWN, Support
from tests.simulation.clock import VirtualClock

HERE, THERE = 1, 2
ALICE = Session("test", principal="User:alice")


class FakePeers:
    """Keeps calls until they are answered by hand."""

    def __init__(self) -> None:
        self.called: list[tuple[int, bytes, bytes]] = []
        self.answers: list[Promise[Answered]] = []
        self.notices: list[int] = []

    def serve(self, kind: PeerKind, handler: Callable[..., Promise[Answer]]) -> None:
        self.handler = handler

    def listen(self, kind: PeerKind, handler: Callable[..., None]) -> None:
        self.cancel_handler = handler

    def call(
        self, node: int, kind: PeerKind, head: bytes, body: list[bytes], *, timeout_ms: int
    ) -> Promise[Answered]:
        self.called.append((node, head, b"".join(body)))
        self.answers.append(Promise())
        return self.answers[-1]

    def notify(self, node: int, kind: PeerKind, head: bytes) -> None:
        self.notices.append(node)


class Here:
    """Performs with one outcome after the other, and with the last again and again."""

    def __init__(self, *outcomes: Any) -> None:
        self.outcomes = outcomes
        self.asked = 0

    def __call__(self) -> Promise[Any]:
        outcome = self.outcomes[min(self.asked, len(self.outcomes) - 1)]
        self.asked += 1
        promise: Promise[Any] = Promise()
        if isinstance(outcome, Exception):
            promise.reject(outcome)
        else:
            promise.resolve(outcome)
        return promise


class ShopArea(Area):
    """Two operations, of which one only reads."""


async def _buy(area: ShopArea, session: Session, *, node: int, cancellation: Cancellation) -> str:
    raise AssertionError


async def _look(area: ShopArea, session: Session, *, node: int, cancellation: Cancellation) -> str:
    raise AssertionError


@pytest.fixture(autouse=True)
def declared() -> Iterator[None]:
    """The table of operations has these only for a test."""

    def owner(_: object, arguments: Any) -> int:
        return int(arguments["node"])

    _buy.__qualname__, _look.__qualname__ = "ShopArea.buy", "ShopArea.look"
    operation(Action.WRITE, cluster, owner=owner)(_buy)
    operation(Action.READ, cluster, owner=owner, is_reading=True)(_look)
    yield
    del OPERATIONS["shop.buy"], OPERATIONS["shop.look"]


class Routed:
    def __init__(
        self,
        here: Here,
        *,
        node: int = HERE,
        name: str = "shop.buy",
        is_there: bool = True,
        support: Support = SUPPORT,
    ) -> None:
        self.clock, self.peers, self.here = VirtualClock(), FakePeers(), here
        broker = SimpleNamespace(
            node_id=HERE,
            clock=self.clock,
            cluster=SimpleNamespace(
                is_there=lambda _: is_there,
                support_of=lambda node: SUPPORT if node == HERE else support,
            ),
        )
        self.performed: list[tuple[Session, str, Any]] = []
        self.forwarder = Forwarder(cast(Any, broker), cast(Any, self.peers), self._perform)
        self.begin_ms = self.clock.now_ms()
        self.cancellation = Cancellation()
        self.answers: list[tuple[Any, Exception | None]] = []
        arguments = {"node": node, "cancellation": self.cancellation}
        answer = self.forwarder.route(ALICE, OPERATIONS[name], arguments, here)
        answer.then(lambda value, error: self.answers.append((value, error)))

    def _perform(self, session: Session, declared: Any, arguments: Any) -> Promise[Any]:
        self.performed.append((session, declared.name, arguments))
        return self.here()

    def wait(self) -> tuple[Any, Exception | None]:
        self.clock.run_until(lambda: bool(self.answers))
        return self.answers[0]

    @property
    def took_ms(self) -> int:
        return self.clock.now_ms() - self.begin_ms


@pytest.mark.parametrize(
    "refusal",
    [
        NoOwner(),
        NotCoordinator("moved"),
        CoordinatorLoading("reading"),
        CoordinatorNotAvailable("not yet"),
    ],
)
def test_a_call_waits_for_the_new_owner(refusal: Exception) -> None:
    routed = Routed(Here(refusal, refusal, "answer"))
    assert routed.wait() == ("answer", None)
    assert (routed.here.asked, routed.took_ms) == (3, 2 * HANDOVER_RETRY_MS)


def test_it_does_not_wait_for_ever() -> None:
    routed = Routed(Here(NoOwner()))
    assert isinstance(routed.wait()[1], NoOwner)
    assert HANDOVER_MS_MAX <= routed.took_ms <= HANDOVER_MS_MAX + HANDOVER_RETRY_MS


@pytest.mark.parametrize("outcome", ["answer", UnknownGroup("none")])
def test_any_other_answer_is_passed_on_at_once(outcome: Any) -> None:
    routed = Routed(Here(outcome, "never"))
    assert outcome in routed.wait()
    assert routed.took_ms == 0


def test_what_may_have_been_done_is_repeated_only_if_it_changes_nothing() -> None:
    lost = RequestTimedOut("The connection broke.")
    assert Routed(Here(lost, "answer"), name="shop.look").wait() == ("answer", None)
    assert Routed(Here(lost, "answer")).wait() == (None, lost)


def test_a_client_that_has_gone_is_not_asked_for_any_more() -> None:
    routed = Routed(Here(NoOwner()))
    routed.cancellation.cancel()
    assert isinstance(routed.answers[0][1], NoOwner)
    routed.clock.run_for(HANDOVER_MS_MAX)
    assert (routed.here.asked, len(routed.answers)) == (1, 1)


def test_a_call_goes_to_its_owner_with_its_session() -> None:
    routed = Routed(Here("never"), node=THERE)
    [(node, head, body)] = routed.peers.called
    assert node == THERE
    answer = routed.peers.handler(HERE, head, memoryview(body))
    [(session, name, arguments)] = routed.performed
    assert (session, name, arguments["node"]) == (ALICE, "shop.buy", THERE)
    answers: list[Answer | None] = []
    answer.then(lambda value, _: answers.append(value))
    assert answers[0] is not None
    told = b"".join(bytes(part) for part in answers[0].body)
    routed.peers.answers[0].resolve(Answered(b"", memoryview(told)))
    assert routed.answers == [("never", None)]


def test_the_owner_learns_that_the_client_has_gone() -> None:
    routed = Routed(Here(), node=THERE)
    [(_, head, body)] = routed.peers.called
    waiting: Promise[Any] = Promise()
    routed.here = cast(Any, lambda: waiting)
    answer = routed.peers.handler(HERE, head, memoryview(body))
    [(_, _, arguments)] = routed.performed
    routed.cancellation.cancel()
    assert routed.peers.notices == [THERE]
    number = msgspec.msgpack.decode(head)[0]
    routed.peers.cancel_handler(HERE, msgspec.msgpack.encode(number), memoryview(b""))
    assert arguments["cancellation"].is_cancelled
    assert answer.is_done


@pytest.mark.parametrize(
    ("node", "is_there"), [(NO_OWNER, True), (THERE, False)], ids=["nobody owns it", "it is gone"]
)
def test_who_cannot_answer_is_not_asked(node: int, is_there: bool) -> None:
    """Nothing was done then, so it can be tried again whatever it is."""
    routed = Routed(Here(), node=node, is_there=is_there)
    assert isinstance(routed.wait()[1], NoOwner)
    assert routed.peers.called == []


@pytest.mark.parametrize("body", [b"\x93\x01\x02\x03", b"\xa2\xff\xff", b"", b"\x91" * 5_000])
def test_an_answer_that_cannot_be_read_settles_the_call(body: bytes) -> None:
    routed = Routed(Here(), node=THERE, name="shop.look")
    routed.peers.answers[0].resolve(Answered(b"", memoryview(body)))
    error = routed.wait()[1]
    assert isinstance(error, UpgradeInProgress)
    assert "Node 2 has answered shop.look as another release does" in str(error)
    assert error.retryable
    assert len(routed.peers.called) == 1


def test_a_change_whose_answer_cannot_be_read_may_have_been_made() -> None:
    """Clients that repeat what was refused would publish a message twice."""
    routed = Routed(Here(), node=THERE, name="shop.buy")
    routed.peers.answers[0].resolve(Answered(b"", memoryview(b"\x93\x01\x02\x03")))
    error = routed.wait()[1]
    assert isinstance(error, RequestTimedOut)
    assert "Node 2 has answered shop.buy as another release does" in str(error)
    assert "may have been carried out" in str(error)
    assert len(routed.peers.called) == 1


@pytest.mark.parametrize(
    ("name", "expected"), [("shop.look", UpgradeInProgress), ("shop.buy", RequestTimedOut)]
)
def test_an_answer_that_an_older_node_cannot_have_says_whether_something_was_changed(
    name: str, expected: type[GoQueueError]
) -> None:
    routed = Routed(Here(), node=THERE, name=name, support=UNKNOWN)
    [(_, head, body)] = routed.peers.called
    routed.here = cast(Any, lambda: Here(QueueSettings(error_headers=True))())
    errors: list[Exception | None] = []
    answer = routed.peers.handler(THERE, head, memoryview(body))
    answer.then(lambda _, error: errors.append(error))
    assert type(errors[0]) is expected


def test_an_older_node_is_not_asked_for_what_it_does_not_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(levels, "OPERATIONS_SINCE", {"shop.buy": 3})
    routed = Routed(Here(), node=THERE, support=UNKNOWN)
    error = routed.wait()[1]
    assert isinstance(error, UpgradeInProgress)
    assert routed.peers.called == []
    assert len(Routed(Here(), node=THERE).peers.called) == 1
    assert len(Routed(Here(), node=THERE, name="shop.look", support=UNKNOWN).peers.called) == 1


def test_an_operation_of_a_later_version_is_refused() -> None:
    routed = Routed(Here(), node=THERE)
    head = msgspec.msgpack.encode([1, "shop.sell", list(msgspec.structs.astuple(ALICE))])
    errors: list[Exception | None] = []
    answer = routed.peers.handler(HERE, head, memoryview(b""))
    answer.then(lambda _, error: errors.append(error))
    assert "does not support 'shop.sell'" in str(errors[0])


class Huge(GoQueueError):
    """An answer that there is no memory for."""

    def __str__(self) -> str:
        raise MemoryError


def test_an_answer_without_memory_for_it_is_refused() -> None:
    routed = Routed(Here(), node=THERE)
    [(_, head, body)] = routed.peers.called
    routed.here = cast(Any, lambda: Here([Huge()])())
    errors: list[Exception | None] = []
    answer = routed.peers.handler(HERE, head, memoryview(body))
    answer.then(lambda _, error: errors.append(error))
    assert isinstance(errors[0], LimitReached)
