"""Whom a request is passed on to, and when nobody can take it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from goqueue.loop.peers import Answered, PeerKind
from goqueue.loop.promise import Promise
from goqueue.model.errors import NoOwner
from goqueue.wire.carrier.calls import Call, Raw, Request
from goqueue.wire.carrier.forwarding import NOBODY, Forwarder

HERE, THERE = 1, 2


class FakePeers:
    """Takes calls and answers none."""

    def __init__(self) -> None:
        self.called: list[int] = []
        self.heads: list[bytes] = []

    def serve(self, kind: PeerKind, handler: Callable[..., Any]) -> None: ...

    def listen(self, kind: PeerKind, handler: Callable[..., Any]) -> None: ...

    def call(
        self, node: int, kind: PeerKind, head: bytes, *_: object, **__: object
    ) -> Promise[Answered]:
        self.called.append(node)
        self.heads.append(head)
        return Promise()


def forward(node: int, *, is_there: bool = True, is_forwarded: bool = False) -> tuple[Any, Any]:
    """Which nodes were called, and the error if it was refused at once."""
    peers = FakePeers()
    cluster = SimpleNamespace(is_there=lambda _: is_there)
    broker = SimpleNamespace(node_id=HERE, cluster=cluster)
    forwarder = Forwarder(cast(Any, broker), cast(Any, peers))
    forwarder.attach(cast(Any, SimpleNamespace(headers_forwarded=(b"accept",))))
    errors: list[Exception | None] = []
    answer: Promise[Raw] = forwarder.forward(
        node, Request("POST", "/v1/x"), Call({}, is_forwarded=is_forwarded), application=0
    )
    answer.then(lambda _, error: errors.append(error))
    return peers.called, errors[0] if errors else None


def test_a_request_goes_to_its_owner() -> None:
    assert forward(THERE) == ([THERE], None)


@pytest.mark.parametrize(
    "case",
    [
        {"node": NOBODY},
        {"node": HERE},
        {"node": THERE, "is_there": False},
        {"node": THERE, "is_forwarded": True},
    ],
    ids=[
        "nobody owns it",
        "this node does, and says no",
        "the owner is gone",
        "it came from there",
    ],
)
def test_who_cannot_answer_is_not_asked(case: dict[str, Any]) -> None:
    """Nothing was done then, so that it can be tried again whatever it is."""
    called, error = forward(**case)
    assert called == []
    assert isinstance(error, NoOwner)


def test_only_headers_that_the_application_looks_at_go_along() -> None:
    peers = FakePeers()
    broker = SimpleNamespace(node_id=HERE, cluster=SimpleNamespace(is_there=lambda _: True))
    forwarder = Forwarder(cast(Any, broker), cast(Any, peers))
    for names in ((b"accept",), (b"x-amz-target", b"host")):
        forwarder.attach(cast(Any, SimpleNamespace(headers_forwarded=names)))
    headers = {b"accept": b"a", b"host": b"h", b"cookie": b"secret"}
    for application in (0, 1):
        request = Request("POST", "/", headers=headers)
        forwarder.forward(THERE, request, Call({}), application=application)
    sent = [msgspec.msgpack.decode(head)[5] for head in peers.heads]
    assert sent == [{b"accept": b"a"}, {b"host": b"h"}]
