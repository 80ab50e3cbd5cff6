"""A network between simulated nodes that loses, delays, doubles and reorders what is sent.

Calls are a question and an answer, each on its way alone: a lost answer leaves the caller not
knowing whether it was heard. Which of all this happens a seed decides.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from goqueue.loop.peers import Answer, Answered, Contact, Handler, NoticeHandler, PeerKind
from goqueue.loop.promise import Promise
from goqueue.model.compression import Buffer
from goqueue.model.errors import GoQueueError, InvalidRequest, RequestTimedOut
from goqueue.model.errors.refusals import Refusal, error_of, refusal_of
from goqueue.model.support import SUPPORT, Support
from tests.simulation.clock import NodeClock, VirtualClock


@dataclass
class Faults:
    """How bad the network is just now."""

    loss: float = 0.0
    duplication: float = 0.0
    delay_ms: float = 1.0
    late: float = 0.0  # how likely something is very late
    cut: set[tuple[int, int]] = field(default_factory=set)  # from, to


class Network:
    """Carries what nodes send each other."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.faults = Faults()
        self.nodes: dict[int, SimulatedPeers] = {}
        self.sent = 0
        self.digest = 0  # of all that was sent, and when; the same for two runs of a seed

    def join(self, node: int, clock: NodeClock, support: Support = SUPPORT) -> SimulatedPeers:
        """A node that starts; whatever was on its way to an earlier life of it gets lost."""
        self.nodes[node] = SimulatedPeers(self, node, clock, support)
        return self.nodes[node]

    def leave(self, node: int) -> None:
        """A machine is without power: nobody hears of it again, and nobody is told."""
        self.nodes.pop(node, None)

    def end(self, node: int) -> None:
        """A process ends. Its machine closes its connections, and refuses new ones."""
        self.leave(node)
        for other in self.nodes.values():
            if not {(node, other.node), (other.node, node)} & self.faults.cut:
                other.lose(node)

    def mistake(self, node: int, other: int) -> None:
        """Have one node believe that another is gone, which is there all the same."""
        if node in self.nodes:
            self.nodes[node].lose(other, is_true=False)

    def cut(self, some: Sequence[int], others: Sequence[int]) -> None:
        """Let nothing pass between these, either way."""
        self.faults.cut |= {(one, other) for one in some for other in others}
        self.faults.cut |= {(other, one) for one in some for other in others}

    def cut_one_way(self, some: Sequence[int], others: Sequence[int]) -> None:
        """Let nothing pass from `some` to `others`; they still hear what those say."""
        self.faults.cut |= {(one, other) for one in some for other in others}

    def heal(self) -> None:
        self.faults = Faults()

    def note(self, source: int, target: int, kind: PeerKind, head: bytes, body: bytes) -> None:
        """Remember for the digest that this was sent now."""
        event = f"{self.clock.now_ms()} {source} {target} {kind} ".encode()
        self.digest = zlib.crc32(body, zlib.crc32(head, zlib.crc32(event, self.digest)))

    def carry(self, source: int, target: int, deliver: Callable[[], None]) -> None:
        """Have `deliver` called by and by: late, twice or never."""
        faults, chance = self.faults, self.clock.random
        self.sent += 1
        if (source, target) in faults.cut:
            return
        for _ in range(1 + (chance.random() < faults.duplication)):
            if chance.random() >= faults.loss:
                delay = chance.uniform(0.05, faults.delay_ms)
                if chance.random() < faults.late:
                    delay += chance.uniform(0, 600)
                self.clock.call_later(delay, deliver)


class SimulatedPeers:
    """The network as one life of one node sees it."""

    def __init__(
        self, network: Network, node: int, clock: NodeClock, support: Support = SUPPORT
    ) -> None:
        self.node = node
        self.support = support
        self.located: dict[int, str] = {}
        self._network = network
        self._clock = clock
        self._handlers: dict[PeerKind, Handler] = {}
        self._notice_handlers: dict[PeerKind, NoticeHandler] = {}
        self._gone_listeners: list[Callable[[int], None]] = []
        self._broken: set[int] = set()
        self._gone: dict[int, SimulatedPeers | None] = {}  # and the life that was there instead

    def support_of(self, node: int) -> Support | None:
        other = self._network.nodes.get(node)
        return None if other is None else other.support

    def locate(self, node: int, address: str) -> None:
        self.located[node] = address

    def serve(self, kind: PeerKind, handler: Handler) -> None:
        self._handlers[kind] = handler

    def listen(self, kind: PeerKind, handler: NoticeHandler) -> None:
        self._notice_handlers[kind] = handler

    def contact(self, node: int) -> Contact:
        if node in self._broken:
            return Contact.BROKEN
        is_gone = node in self._gone and self._gone[node] is self._network.nodes.get(node)
        return Contact.GONE if is_gone else Contact.OPEN

    def on_gone(self, heard: Callable[[int], None]) -> None:
        self._gone_listeners.append(heard)

    def lose(self, node: int, *, is_true: bool = True) -> None:
        """A connection to a node ends, and before long another one is refused."""

        def refused() -> None:
            self._broken.discard(node)
            present = self._network.nodes.get(node)
            if is_true and present is not None:
                return  # It is back already.
            self._gone[node] = present
            for heard in self._gone_listeners:
                heard(node)

        self._broken.add(node)
        self._clock.call_later(self._network.clock.random.uniform(0, 60), refused)

    def notify(self, node: int, kind: PeerKind, head: bytes, body: Sequence[Buffer] = ()) -> None:
        sent = b"".join(body)
        self._network.note(self.node, node, kind, head, sent)

        def arrive() -> None:
            target = self._network.nodes.get(node)
            if target is not None and kind in target._notice_handlers:
                handler = target._notice_handlers[kind]
                target._clock.deliver(lambda: handler(self.node, head, memoryview(sent)))

        self._network.carry(self.node, node, arrive)

    def call(
        self,
        node: int,
        kind: PeerKind,
        head: bytes,
        body: Sequence[Buffer] = (),
        *,
        timeout_ms: int,
    ) -> Promise[Answered]:
        promise: Promise[Answered] = Promise()
        sent = b"".join(body)
        self._network.note(self.node, node, kind, head, sent)
        timer = self._clock.call_later(timeout_ms, lambda: _give_up(promise, node))

        def answered(answer: tuple[bytes, bytes] | Refusal) -> None:
            self._clock.deliver(partial(take, answer))

        def take(answer: tuple[bytes, bytes] | Refusal) -> None:
            # An answer to an earlier life, or one that comes twice, finds nobody.
            if self._network.nodes.get(self.node) is not self or promise.is_done:
                return
            timer.cancel()
            if isinstance(answer, Refusal):
                promise.reject(error_of(answer))
            else:
                promise.resolve(Answered(answer[0], memoryview(answer[1])))

        self._network.carry(self.node, node, partial(self._ask, node, kind, head, sent, answered))
        return promise

    def _ask(
        self,
        node: int,
        kind: PeerKind,
        head: bytes,
        body: bytes,
        answered: Callable[[tuple[bytes, bytes] | Refusal], None],
    ) -> None:
        target = self._network.nodes.get(node)
        if target is not None:
            target._clock.deliver(partial(self._ask_now, target, kind, head, body, answered))

    def _ask_now(
        self,
        target: SimulatedPeers,
        kind: PeerKind,
        head: bytes,
        body: bytes,
        answered: Callable[[tuple[bytes, bytes] | Refusal], None],
    ) -> None:
        def reply(answer: Answer | None, error: Exception | None) -> None:
            message: tuple[bytes, bytes] | Refusal
            if isinstance(error, GoQueueError):
                message = refusal_of(error)
            elif error is not None:
                raise error
            else:
                assert answer is not None
                message = (answer.head, b"".join(answer.body))
            self._network.carry(target.node, self.node, partial(answered, message))

        handler = target._handlers.get(kind)
        try:
            if handler is None:
                raise InvalidRequest(f"This node does not serve calls of the kind {kind}.")
            promise = handler(self.node, head, memoryview(body))
        except GoQueueError as error:
            reply(None, error)
        else:
            promise.then(reply)


def _give_up(promise: Promise[Answered], node: int) -> None:
    if not promise.is_done:
        promise.reject(RequestTimedOut(f"Node {node} has not answered; retry."))
