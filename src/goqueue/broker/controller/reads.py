"""Questions to the quorum about how far its log has come, which only a real leader can answer.

Raft's leader asks a majority whether it still leads, and only then answers. So whoever has applied
the log up to the answer knows all that was decided before the question.
"""

from __future__ import annotations

from collections.abc import Callable

from goqueue.cluster.commands import Result
from goqueue.cluster.raft.core import Raft
from goqueue.cluster.raft.ready import Ready
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise
from goqueue.model.errors import NotController


class QuorumReads:
    """The reads that this node, as the leader, has asked the others about."""

    def __init__(
        self, raft: Callable[[], Raft], clock: Clock, *, asked: Callable[[], None]
    ) -> None:
        """`asked` has what Raft wants done carried out soon."""
        self._raft = raft
        self._clock = clock
        self._asked = asked
        self._count = 0
        self._waiting: dict[int, Promise[tuple[int, Result]]] = {}  # no more than Raft takes

    def ask(self) -> Promise[tuple[int, Result]]:
        """The index up to which everything was committed when this was called, or later."""
        done: Promise[tuple[int, Result]] = Promise()
        self._count += 1
        refusal = self._raft().read(self._count, self._clock.now_ms())
        if refusal is not None:
            done.reject(NotController(-1))
            return done
        self._waiting[self._count] = done
        self._asked()
        return done

    def settle(self, ready: Ready) -> None:
        """Answer what Raft has answered; the committed entries that came with it are applied."""
        for read in ready.reads:
            self._waiting.pop(read.context).resolve((read.index, None))
        for context in ready.reads_lost:
            lost = self._waiting.pop(context, None)
            if lost is not None:
                lost.reject(NotController(-1))

    def give_up(self) -> None:
        """This node leads no more: whoever waits has to ask the next leader."""
        waiting, self._waiting = self._waiting, {}
        for done in waiting.values():
            done.reject(NotController(-1))
