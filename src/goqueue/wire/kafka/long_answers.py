"""Encodes long lists in a thread: all groups, or the settings of all topics.

Encoding a hundred thousand groups takes a tenth of a second, in which a node would answer nobody.
Threads that run Python let the event loop go on every millisecond.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise, promised
from goqueue.loop.turns import Turns
from goqueue.wire.parts import Part

WAITING_MAX = 1_000


class LongAnswers:
    """The long answers of all connections; one is encoded at a time, as threads sync logs too."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turns = Turns(clock, waiting_max=WAITING_MAX)

    def encode(
        self, write: Callable[..., None], response: Any, version: int
    ) -> Promise[list[Part]]:
        """Return the parts of a response; the first is empty, for its header."""

        def encoded() -> list[Part]:
            parts: list[bytes] = []
            write(response, version, parts)
            return [b"", b"".join(parts)]

        async def encode() -> list[Part]:
            done: Promise[list[Part]] = Promise()
            self._clock.run_blocking(encoded, done.settle)
            return await done

        return promised(self._turns.run(encode))
