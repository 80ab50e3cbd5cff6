"""Connections with other nodes: one to each of them, and those that they open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from goqueue.loop.clock import Clock
from goqueue.loop.peers import Answered, Contact, Handler, NoticeHandler, PeerKind
from goqueue.loop.promise import Promise
from goqueue.model.compression import Buffer
from goqueue.model.errors import RequestTimedOut
from goqueue.model.support import SUPPORT, Support
from goqueue.runtime.dialing import Dialer
from goqueue.runtime.tls.nodes import NodeTls
from goqueue.runtime.tls.revocations import Revocations
from goqueue.wire.peers.calling import Calling
from goqueue.wire.peers.frames import Hello
from goqueue.wire.peers.handshake import Credentials
from goqueue.wire.peers.serving import PeerServer


class PeerConnections:
    """The `Peers` of a node that runs as a process."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        random: Random,
        *,
        hello: Callable[[], Hello],
        credentials: Credentials | None,
        tls: NodeTls | None = None,
        support: Support = SUPPORT,
    ) -> None:
        """Other nodes are authenticated by credentials, by TLS, or by both; one is required."""
        assert credentials is not None or tls is not None, "nodes must be authenticated"
        self.server = PeerServer(clock, hello, credentials)
        self.server.on_met = self._hurry
        self.support = support
        self._loop = loop
        self._clock = clock
        self._random = random
        self._hello = hello
        self._credentials = credentials
        self._tls = tls
        self._callings: dict[int, Calling] = {}
        self._dialers: dict[int, Dialer] = {}
        self._addresses: dict[int, str] = {}
        self._gone_listeners: list[Callable[[int], None]] = []

    def support_of(self, node: int) -> Support | None:
        calling = self._callings.get(node)
        return None if calling is None else calling.support

    def locate(self, node: int, address: str) -> None:
        if self._addresses.get(node) == address:
            return
        self._addresses[node] = address
        dialer = self._dialers.pop(node, None)
        if dialer is not None:
            dialer.stop()
        calling = self._callings.get(node)
        if calling is None:
            calling = self._callings[node] = Calling(
                self._clock, node, self._hello, self._credentials
            )
        host, _, port = address.rpartition(":")
        self._dialers[node] = Dialer(
            self._loop,
            calling,
            host.strip("[]"),
            int(port),
            self._random,
            tls=self._tls,
            on_gone=partial(self._tell_gone, node),
        )

    def end_revoked(self, revoked: Revocations) -> None:
        """Close the connections to nodes whose certificate is revoked."""
        for dialer in self._dialers.values():
            dialer.end_revoked(revoked)

    def call(
        self,
        node: int,
        kind: PeerKind,
        head: bytes,
        body: Sequence[Buffer] = (),
        *,
        timeout_ms: int,
    ) -> Promise[Answered]:
        calling = self._callings.get(node)
        if calling is not None:
            return calling.call(kind, head, body, timeout_ms=timeout_ms)
        promise: Promise[Answered] = Promise()
        promise.reject(RequestTimedOut(f"The address of node {node} is not known yet; retry."))
        return promise

    def notify(self, node: int, kind: PeerKind, head: bytes, body: Sequence[Buffer] = ()) -> None:
        calling = self._callings.get(node)
        if calling is not None:
            calling.notify(kind, head, body)

    def serve(self, kind: PeerKind, handler: Handler) -> None:
        self.server.handlers[kind] = handler

    def listen(self, kind: PeerKind, handler: NoticeHandler) -> None:
        self.server.notice_handlers[kind] = handler

    def contact(self, node: int) -> Contact:
        dialer = self._dialers.get(node)
        return Contact.OPEN if dialer is None else dialer.contact

    def on_gone(self, heard: Callable[[int], None]) -> None:
        self._gone_listeners.append(heard)

    def _tell_gone(self, node: int) -> None:
        for heard in self._gone_listeners:
            heard(node)

    def _hurry(self, node: int) -> None:
        """Reconnect at once to a node that has just connected, because it was restarted."""
        dialer = self._dialers.get(node)
        if dialer is not None:
            dialer.hurry()

    def stop(self) -> None:
        for dialer in self._dialers.values():
            dialer.stop()
