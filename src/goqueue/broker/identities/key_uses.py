"""When keys were last used: exact on the node that was asked, to about an hour on the others.

Each node has the uses it has seen in memory. It writes them into the metadata when the last use
that is written there is an hour old, at most once a minute and all in one command. So the cost
does not depend on how often keys are used, and a restart forgets an hour at most.
"""

from __future__ import annotations

import logging
from itertools import islice

from goqueue.broker.controller.metadata import FactLog
from goqueue.cluster.commands import Result
from goqueue.cluster.identity_commands import NoteKeyUses, last_use_ms
from goqueue.loop.clock import Clock
from goqueue.model.errors import GoQueueError

WRITE_EVERY_MS = 60 * 60_000  # for one key
COLLECT_MS = 60_000
USES_PER_COMMAND_MAX = 1_000

_log = logging.getLogger(__name__)


class KeyUses:
    """The last use of each key, as far as this node knows."""

    def __init__(self, clock: Clock, log: FactLog) -> None:
        self._clock = clock
        self._log = log
        self._seen: dict[str, int] = {}
        self._is_collecting = False

    def note(self, key_id: str) -> None:
        """Note that a key is used now."""
        now_ms = self._clock.wall_ms()
        self._seen[key_id] = now_ms
        if not self._is_collecting and self._is_due(key_id, now_ms):
            self._is_collecting = True
            self._clock.call_later(COLLECT_MS, self._write)

    def last_ms(self, key_id: str) -> int:
        """Return the last use of a key that is known here; 0 if there is none."""
        return max(self._seen.get(key_id, 0), last_use_ms(self._log.metadata, key_id))

    def _is_due(self, key_id: str, used_ms: int) -> bool:
        return used_ms - last_use_ms(self._log.metadata, key_id) >= WRITE_EVERY_MS

    def _write(self) -> None:
        self._is_collecting = False
        known = self._log.metadata.keys
        self._seen = {one: used_ms for one, used_ms in self._seen.items() if one in known}
        due = ((one, used_ms) for one, used_ms in self._seen.items() if self._is_due(one, used_ms))
        uses = dict(islice(due, USES_PER_COMMAND_MAX))
        if not uses:
            return
        if len(uses) == USES_PER_COMMAND_MAX:
            self._is_collecting = True
            self._clock.call_later(COLLECT_MS, self._write)
        try:
            self._log.request(NoteKeyUses(uses)).then(_log_failure)
        except GoQueueError as error:
            _log_failure(None, error)


def _log_failure(_: Result | None, error: Exception | None) -> None:
    if error is not None:
        _log.info("the last uses of keys were not written, and will be later: %s", error)
