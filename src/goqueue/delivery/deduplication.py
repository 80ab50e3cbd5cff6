"""Recently sent deduplication ids, so that a message that is sent again is not stored again.

A sender that got no response sends again under the same id. The first message of an id is
remembered for some minutes, and a repetition gets the result of the first one. Nothing here is
persisted: the ids are in the records, and a restart reads back those of the last minutes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

WINDOW_MS = 5 * 60 * 1000


class Kept(NamedTuple):
    """The stored first message of an id."""

    message_id: str
    sequence: int | None


Slot = tuple[str, bytes | None]  # an id, and the key that limits its scope, if any


@dataclass(slots=True)
class IdRoom:
    """The number of remembered ids, over all queues, and its limit."""

    count_max: int
    count: int = 0


class Deduplication:
    """The ids of one queue. Each is being stored, or remembered until it expires."""

    __slots__ = ("_expiries", "_is_closed", "_known", "_room", "window_ms")

    def __init__(self, room: IdRoom, *, window_ms: int = WINDOW_MS) -> None:
        self.window_ms = window_ms
        self._room = room
        self._is_closed = False
        self._known: dict[Slot, Kept | None] = {}  # None while it is being stored
        self._expiries: deque[tuple[int, Slot]] = deque()

    def __len__(self) -> int:
        return len(self._known)

    def close(self) -> None:
        """Stop deduplicating. Writes in progress may still complete."""
        self._is_closed = True
        self._room.count -= len(self._known)
        self._known.clear()
        self._expiries.clear()

    def is_full(self, now_ms: int) -> bool:
        self._forget(now_ms)
        return self._room.count >= self._room.count_max

    def is_storing(self, slot: Slot) -> bool:
        return self._known.get(slot, self) is None

    def find(self, slot: Slot, now_ms: int) -> Kept | None:
        """Return the first message of an id, if it was stored within the window."""
        self._forget(now_ms)
        return self._known.get(slot)

    def begin(self, slot: Slot) -> None:
        """Register an id whose first message is about to be stored."""
        assert slot not in self._known, "an id is stored once"
        self._known[slot] = None
        self._room.count += 1

    def stored(self, slot: Slot, kept: Kept, now_ms: int) -> None:
        if not self._is_closed:
            self._known[slot] = kept
            self._expiries.append((now_ms + self.window_ms, slot))

    def failed(self, slot: Slot) -> None:
        """Release an id whose message was not stored, so that the next one may be."""
        if self._known.get(slot, self) is None:
            del self._known[slot]
            self._room.count -= 1

    def recall(self, found: Iterable[tuple[Slot, Kept, int]], now_ms: int) -> None:
        """Add ids read back from the log, with the time since each was stored.

        The first message of an id counts. The limit is ignored: they are in the log already.
        """
        untils: list[tuple[int, Slot]] = []
        for slot, kept, age_ms in found:
            left_ms = self.window_ms - max(0, age_ms)
            if left_ms > 0 and slot not in self._known:
                self._known[slot] = kept
                self._room.count += 1
                untils.append((now_ms + left_ms, slot))
        self._expiries = deque(sorted([*self._expiries, *untils], key=_until))

    def _forget(self, now_ms: int) -> None:
        expiries, known = self._expiries, self._known
        while expiries and expiries[0][0] <= now_ms:
            del known[expiries.popleft()[1]]
            self._room.count -= 1


def _until(entry: tuple[int, Slot]) -> int:
    return entry[0]
