"""Linearizable reads of the quorum's commit index (Raft's ReadIndex).

The leader confirms with a majority that it still leads before it answers. So a node that has
applied the log up to the answer has everything that was decided before the request.
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
    """Pending reads of this node as the leader."""

    def __init__(
        self, raft: Callable[[], Raft], clock: Clock, *, asked: Callable[[], None]
    ) -> None:
        """`asked` is called when Raft has work to do."""
        self._raft = raft
        self._clock = clock
        self._asked = asked
        self._count = 0
        self._waiting: dict[int, Promise[tuple[int, Result]]] = {}  # bounded by Raft

    def ask(self) -> Promise[tuple[int, Result]]:
        """Return an index up to which everything was committed when this was called, or later."""
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
        """Resolve confirmed reads; the committed entries that came with them are applied."""
        for read in ready.reads:
            self._waiting.pop(read.context).resolve((read.index, None))
        for context in ready.reads_lost:
            lost = self._waiting.pop(context, None)
            if lost is not None:
                lost.reject(NotController(-1))

    def give_up(self) -> None:
        """Fail all pending reads because this node no longer leads; callers retry elsewhere."""
        waiting, self._waiting = self._waiting, {}
        for done in waiting.values():
            done.reject(NotController(-1))
