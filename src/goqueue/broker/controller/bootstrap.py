"""Driver of the bootstrap rounds in which new nodes agree on a cluster.

The rules are in `cluster/bootstrap.py`. A ballot that is superseded or gets no answers is
abandoned. The next one starts after a random, growing pause, and after another proposer has had its
time, so that nodes do not keep superseding one another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from random import Random

import msgspec

from goqueue.cluster.bootstrap import (
    Attempt,
    Ballot,
    Formed,
    Question,
    Self,
    answer_question,
    encode_question,
)
from goqueue.loop.clock import Clock
from goqueue.loop.peers import Answered, PeerKind, Peers
from goqueue.model.bounds import VERSION_MAX
from goqueue.model.errors import GoQueueError

ANSWER_MS_MAX = 1_000  # per question; then silent nodes are skipped
REPEAT_MS = 300
PAUSE_MS = 1_000  # maximum between the first two ballots; it doubles
PAUSE_MS_MAX = 8_000

_log = logging.getLogger(__name__)
_decoder = msgspec.msgpack.Decoder(Self)


class FormationRound:
    """Runs ballots to form a cluster, one at a time."""

    def __init__(
        self,
        clock: Clock,
        peers: Peers,
        random: Random,
        *,
        me: Callable[[], Self],
        keep: Callable[[Self], None],
        heard: Callable[[Self], None],
        decided: Callable[[Formed], None],
    ) -> None:
        """`keep` saves the state of this node; `heard` receives the state of others."""
        self._clock = clock
        self._peers = peers
        self._random = random
        self._me = me
        self._keep = keep
        self._heard = heard
        self._decided = decided
        self._attempt: Attempt | None = None
        self._rest_until_ms = 0
        self._failures = 0

    def stand(self, nodes: Iterable[int], others: Iterable[Self]) -> None:
        """Start a ballot with these nodes, unless one is running or was just abandoned."""
        if self._attempt is not None or self._clock.now_ms() < self._rest_until_ms:
            return
        me = self._me()
        latest = max(one.promised.round for one in (me, *others))
        if latest >= VERSION_MAX:
            _log.error("cannot bootstrap: a node has promised the last round, %d", latest)
            self._rest_until_ms = self._clock.now_ms() + PAUSE_MS_MAX
            return
        ballot = Ballot(latest + 1, me.id, me.disk)
        self._attempt = attempt = Attempt(me, ballot, list(nodes))
        _log.info("bootstrapping a cluster with nodes %s", ", ".join(map(str, nodes)))
        self._ask_all(attempt)

    def give_way(self) -> None:
        """Pause while another node runs its ballot, which takes two questions."""
        self._rest_until_ms = self._clock.now_ms() + 2 * ANSWER_MS_MAX

    def stop(self) -> None:
        self._attempt = None

    def _ask_all(self, attempt: Attempt) -> None:
        """Send the question of the ballot to all nodes, and answer it on this node first."""
        question = attempt.question
        self._clock.call_later(ANSWER_MS_MAX, partial(self._late, attempt, question))
        me = answer_question(self._me(), question)
        try:
            self._keep(me)
        except GoQueueError as error:
            _log.warning("cannot save the bootstrap promise of this node: %s", error)
            self._give_up()
            return
        self._send(attempt, question)
        self._hear(attempt, me)

    def _send(self, attempt: Attempt, question: Question) -> None:
        """Send the question to the others, repeatedly; a duplicate is harmless."""
        if attempt is not self._attempt or attempt.question is not question:
            return
        me, head = self._me(), encode_question(question)
        for node in me.known:
            if node != me.id:
                asked = self._peers.call(node, PeerKind.JOIN, head, timeout_ms=ANSWER_MS_MAX)
                asked.then(partial(self._answered, attempt, node))
        self._clock.call_later(REPEAT_MS, partial(self._send, attempt, question))

    def _answered(
        self, attempt: Attempt, node: int, answer: Answered | None, error: Exception | None
    ) -> None:
        if answer is None:
            if not isinstance(error, GoQueueError):
                assert error is not None
                raise error
            return
        try:
            told = _decoder.decode(answer.head)
        except msgspec.MsgspecError as problem:
            _log.warning("the bootstrap state of node %d cannot be decoded: %s", node, problem)
            return
        self._heard(told)
        self._hear(attempt, told)

    def _hear(self, attempt: Attempt, told: Self) -> None:
        if attempt is not self._attempt:
            return  # It was abandoned or is over.
        attempt.hear(told)
        if attempt.decided is not None:
            self._attempt = None
            self._decided(attempt.decided)
        elif attempt.is_overruled:
            self._give_up()
        elif attempt.may_propose(is_late=False):
            self._propose(attempt)

    def _late(self, attempt: Attempt, question: Question) -> None:
        """Continue after the time-out of a question with those that answered, if they suffice."""
        if attempt is not self._attempt or attempt.question is not question:
            return
        if attempt.may_propose(is_late=True):
            self._propose(attempt)
        else:
            self._give_up()

    def _propose(self, attempt: Attempt) -> None:
        attempt.propose()
        self._ask_all(attempt)

    def _give_up(self) -> None:
        self._attempt = None
        pause_ms = self._random.randint(1, min(PAUSE_MS << self._failures, PAUSE_MS_MAX))
        self._failures = min(self._failures + 1, PAUSE_MS_MAX // PAUSE_MS)
        until_ms = self._clock.now_ms() + pause_ms
        self._rest_until_ms = max(self._rest_until_ms, until_ms)
