"""Per-key order where one receive may take several messages of a key.

While a receive call holds a message of a key, no other call gets a later one of that key. An
earlier one that was returned is delivered again even while later ones are in flight: those cannot
be recalled, so waiting for them would gain nothing. Returned messages and messages never delivered
wait in one line per key, lowest offset first, and a message may go only when no lower one waits. So
a consumer sees a key in order within each receive, and never gets a message while a lower one waits
or is held by another consumer.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping

from goqueue.delivery.ledger import NO_KEY

# How many waiting messages of a key are offered at once to the next receive, which may take all.
OFFERED_MAX = 10
NO_CALL = -1  # the call of messages in flight since before a restart


class _Line:
    """One key: the messages in flight, with their calls, and those that wait, lowest first."""

    __slots__ = ("out", "standing")

    def __init__(self) -> None:
        self.out: dict[int, int] = {}
        self.standing: list[int] = []

    def is_free_for(self, offset: int, call: int) -> bool:
        """Whether no lower message is held by another call."""
        return all(one > offset or its == call for one, its in self.out.items())

    def is_before_all_out(self, offset: int) -> bool:
        return all(one > offset for one in self.out)


class KeyRuns:
    """For one partition: the messages of each key that are in flight, and those that wait.

    The first few waiting messages are offered: they can be chosen. An offered message that is
    chosen too early is refused and waits again. Whenever no lower message of a key is in flight,
    the first waiting one is offered, so that a line never stalls.
    """

    __slots__ = ("_key_of", "_lines", "_offered", "parked_count")

    has_batches = True

    def __init__(self) -> None:
        self._key_of: dict[int, int] = {}
        self._lines: dict[int, _Line] = {}
        self._offered: set[int] = set()
        self.parked_count = 0  # waiting and not offered

    @property
    def is_used(self) -> bool:
        return bool(self._key_of)

    def held(self) -> list[int]:
        """Return the messages that are in flight or may be chosen."""
        out = [offset for line in self._lines.values() for offset in line.out]
        return [*out, *self._offered]

    def key_of(self, offset: int) -> int:
        return self._key_of.get(offset, NO_KEY)

    def parked(self) -> list[int]:
        return [
            offset
            for line in self._lines.values()
            for offset in line.standing
            if offset not in self._offered
        ]

    def out_before(self, offset: int) -> list[int]:
        """Return lower messages of the same key that are in flight."""
        line = self._lines.get(self.key_of(offset))
        return [] if line is None else sorted(one for one in line.out if one < offset)

    # Delivery

    def enter(self, offset: int, key: int, call: int = NO_CALL) -> bool:
        """Give the message to this call if its key is free or held by the call; else park it."""
        if key == NO_KEY:
            return True
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line()
        standing = line.standing
        is_first = not standing or standing[0] >= offset
        if is_first and line.is_free_for(offset, call):
            if standing and standing[0] == offset:
                del standing[0]
                self._leave_standing(offset)
            line.out[offset] = call
            self._key_of[offset] = key
            return True
        if self._key_of.get(offset) == key:
            # It was offered, and keeps its position in the line.
            self._offered.remove(offset)
        else:
            insort(standing, offset)
            self._key_of[offset] = key
        self.parked_count += 1
        return False

    def resume(self, offset: int, key: int) -> bool:
        """Restore a retry after all lower ones; return whether it is offered."""
        if key == NO_KEY:
            return True
        line = self._lines.setdefault(key, _Line())
        insort(line.standing, offset)
        self._key_of[offset] = key
        if not line.is_before_all_out(offset) or len(line.standing) > OFFERED_MAX:
            self.parked_count += 1
            return False
        self._offered.add(offset)
        return True

    # Return

    def fail(self, offset: int) -> list[int]:
        """Put a returned message in line; return the messages that may be chosen from now on."""
        key = self._key_of.get(offset, NO_KEY)
        if key == NO_KEY:
            return [offset]
        line = self._lines[key]
        del line.out[offset]
        insort(line.standing, offset)
        self.parked_count += 1
        return self._offer(key, line)

    def followers(self, offsets: Iterable[int]) -> list[int]:
        """Remove finished messages; return those that may be chosen because of it."""
        keys: dict[int, None] = {}
        for offset in offsets:
            key = self._key_of.pop(offset, NO_KEY)
            if key == NO_KEY:
                continue
            keys[key] = None
            line = self._lines[key]
            if line.out.pop(offset, None) is None:
                del line.standing[bisect_left(line.standing, offset)]
                self._leave_standing(offset)
        following: list[int] = []
        for key in keys:
            following += self._offer(key, self._lines[key])
        return following

    def drop(self, gone: set[int]) -> list[int]:
        """Forget these messages, whatever their state; return those that this frees."""
        return self.followers([offset for offset in self._key_of if offset in gone])

    def _leave_standing(self, offset: int) -> None:
        if offset in self._offered:
            self._offered.remove(offset)
        else:
            self.parked_count -= 1

    def _offer(self, key: int, line: _Line) -> list[int]:
        if not line.standing:
            if not line.out:
                del self._lines[key]
            return []
        first = [one for one in line.standing[:OFFERED_MAX] if line.is_before_all_out(one)]
        fresh = [offset for offset in first if offset not in self._offered]
        self._offered.update(fresh)
        self.parked_count -= len(fresh)
        # Include those offered before: when one may be chosen depends on the lower ones.
        return first if fresh else []

    def in_turn(self, due_ms: Mapping[int, int]) -> dict[int, int]:
        """Return when each may be chosen: never before a lower message of its key."""
        latest_ms: dict[int, int] = {}
        turns_ms: dict[int, int] = {}
        for offset in sorted(due_ms):
            key = self.key_of(offset)
            turn_ms = due_ms[offset]
            if key != NO_KEY:
                turn_ms = latest_ms[key] = max(turn_ms, latest_ms.get(key, turn_ms))
            turns_ms[offset] = turn_ms
        return turns_ms
