"""Key order: a message waits while an earlier one of its key is in flight.

`KeyOrder` delivers one message of a key at a time, `KeyBatches` several to one receive call. Each
holds one partition of one group.

Keys are identified by a hash, so that a retry has its key after a restart without reading its
record. Two keys with the same hash only wait for each other unnecessarily.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from hashlib import blake2b

from goqueue.delivery.ledger import NO_KEY

# How many waiting messages of a key are offered at once to the next receive, which may take all.
OFFERED_MAX = 10
NO_CALL = -1  # the call of messages in flight since before a restart


def key_number(key: bytes | None) -> int:
    """Return the hash of a key; records without a key are not ordered."""
    if key is None:
        return NO_KEY
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big") or 1


class KeyOrder:
    """Which message holds each key, and which messages wait for it to be done."""

    __slots__ = ("_waiters", "keys", "parked_count")

    has_batches = False

    def __init__(self) -> None:
        self.keys: dict[int, int] = {}  # offset: key, of the messages that hold one
        self.parked_count = 0
        self._waiters: dict[int, list[int]] = {}  # key: waiting offsets, lowest first

    def held(self) -> list[int]:
        """Return the messages that hold a key."""
        return list(self.keys)

    def parked(self) -> list[int]:
        """Return the messages that wait."""
        return [offset for waiters in self._waiters.values() for offset in waiters]

    def key_of(self, offset: int) -> int:
        return self.keys.get(offset, NO_KEY)

    def enter(self, offset: int, key: int, call: int = 0) -> bool:
        """Let the message through if its key is free or already its own; else park it.

        `call` makes no difference: no receive gets two messages of one key.
        """
        if key == NO_KEY or self.keys.get(offset) == key:
            return True
        waiters = self._waiters.get(key)
        if waiters is None:
            self._waiters[key] = []
            self.keys[offset] = key
            return True
        insort(waiters, offset)
        self.parked_count += 1
        return False

    def resume(self, offset: int, key: int) -> bool:
        """Restore a retry from before a restart; return whether it may be chosen."""
        return self.enter(offset, key)

    def out_before(self, offset: int) -> list[int]:
        """Return lower messages of the same key that are in flight: there are none."""
        return []

    def fail(self, offset: int) -> list[int]:
        """Take a message back, which keeps its key; return the messages that may be chosen."""
        return [offset]

    def in_turn(self, due_ms: dict[int, int]) -> dict[int, int]:
        """Return when each message may be chosen: no other one of its key can be."""
        return due_ms

    def followers(self, offsets: Iterable[int]) -> list[int]:
        """Remove finished messages; return those that may go because of it."""
        following = [self._leave(offset) for offset in offsets]
        return [offset for offset in following if offset is not None]

    def _leave(self, offset: int) -> int | None:
        """Release the key of a finished message; return the next message of the key, if any."""
        key = self.keys.pop(offset, NO_KEY)
        if key == NO_KEY:
            return None
        waiters = self._waiters[key]
        if not waiters:
            del self._waiters[key]
            return None
        following = waiters.pop(0)
        self.keys[following] = key
        self.parked_count -= 1
        return following

    def drop(self, gone: set[int]) -> list[int]:
        """Forget these messages, whatever their state; return those that this frees."""
        for key, waiters in self._waiters.items():
            kept = [offset for offset in waiters if offset not in gone]
            self.parked_count -= len(waiters) - len(kept)
            self._waiters[key] = kept
        return self.followers([offset for offset in self.keys if offset in gone])


class _KeyQueue:
    """One key: the messages in flight, with their calls, and those that wait, lowest first."""

    __slots__ = ("out", "waiting")

    def __init__(self) -> None:
        self.out: dict[int, int] = {}
        self.waiting: list[int] = []

    def is_free_for(self, offset: int, call: int) -> bool:
        """Whether no lower message is held by another call."""
        return all(one > offset or its == call for one, its in self.out.items())

    def is_before_all_out(self, offset: int) -> bool:
        return all(one > offset for one in self.out)


class KeyBatches:
    """Key order where one receive may take several messages of a key.

    While a receive call holds a message of a key, no other call gets a later one of that key. An
    earlier one that was returned is delivered again even while later ones are in flight: those
    cannot be recalled, so waiting for them would gain nothing. Returned messages and messages never
    delivered wait in one queue per key, lowest offset first, and a message may go only when no
    lower one waits. So a consumer sees a key in order within each receive, and never gets a message
    while a lower one waits or is held by another consumer.

    The first few waiting messages are offered: they can be chosen. An offered message that is
    chosen too early is refused and waits again. Whenever no lower message of a key is in flight,
    the first waiting one is offered, so that a key never stalls.
    """

    __slots__ = ("_offered", "_queues", "keys", "parked_count")

    has_batches = True

    def __init__(self) -> None:
        self.keys: dict[int, int] = {}  # offset: key, of the messages that are in flight or wait
        self.parked_count = 0  # waiting and not offered
        self._queues: dict[int, _KeyQueue] = {}
        self._offered: set[int] = set()

    def held(self) -> list[int]:
        """Return the messages that are in flight or may be chosen."""
        out = [offset for queue in self._queues.values() for offset in queue.out]
        return [*out, *self._offered]

    def parked(self) -> list[int]:
        """Return the messages that wait and may not be chosen."""
        return [
            offset
            for queue in self._queues.values()
            for offset in queue.waiting
            if offset not in self._offered
        ]

    def key_of(self, offset: int) -> int:
        return self.keys.get(offset, NO_KEY)

    def out_before(self, offset: int) -> list[int]:
        """Return lower messages of the same key that are in flight."""
        queue = self._queues.get(self.key_of(offset))
        return [] if queue is None else sorted(one for one in queue.out if one < offset)

    # Delivery

    def enter(self, offset: int, key: int, call: int = NO_CALL) -> bool:
        """Give the message to this call if its key is free or held by the call; else park it."""
        if key == NO_KEY:
            return True
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _KeyQueue()
        waiting = queue.waiting
        is_first = not waiting or waiting[0] >= offset
        if is_first and queue.is_free_for(offset, call):
            if waiting and waiting[0] == offset:
                del waiting[0]
                self._stop_waiting(offset)
            queue.out[offset] = call
            self.keys[offset] = key
            return True
        if self.keys.get(offset) == key:
            # It was offered, and keeps its position in the queue.
            self._offered.remove(offset)
        else:
            insort(waiting, offset)
            self.keys[offset] = key
        self.parked_count += 1
        return False

    def resume(self, offset: int, key: int) -> bool:
        """Restore a retry after all lower ones; return whether it is offered."""
        if key == NO_KEY:
            return True
        queue = self._queues.setdefault(key, _KeyQueue())
        insort(queue.waiting, offset)
        self.keys[offset] = key
        if not queue.is_before_all_out(offset) or len(queue.waiting) > OFFERED_MAX:
            self.parked_count += 1
            return False
        self._offered.add(offset)
        return True

    # Return

    def fail(self, offset: int) -> list[int]:
        """Queue a returned message; return the messages that may be chosen from now on."""
        key = self.keys.get(offset, NO_KEY)
        if key == NO_KEY:
            return [offset]
        queue = self._queues[key]
        if queue.out.pop(offset, None) is None:
            return []  # It waits already: an earlier lease of it has ended.
        insort(queue.waiting, offset)
        self.parked_count += 1
        return self._offer(key, queue)

    def followers(self, offsets: Iterable[int]) -> list[int]:
        """Remove finished messages; return those that may be chosen because of it."""
        keys: dict[int, None] = {}
        for offset in offsets:
            key = self.keys.pop(offset, NO_KEY)
            if key == NO_KEY:
                continue
            keys[key] = None
            queue = self._queues[key]
            if queue.out.pop(offset, None) is None:
                del queue.waiting[bisect_left(queue.waiting, offset)]
                self._stop_waiting(offset)
        following: list[int] = []
        for key in keys:
            following += self._offer(key, self._queues[key])
        return following

    def drop(self, gone: set[int]) -> list[int]:
        """Forget these messages, whatever their state; return those that this frees."""
        return self.followers([offset for offset in self.keys if offset in gone])

    def _stop_waiting(self, offset: int) -> None:
        if offset in self._offered:
            self._offered.remove(offset)
        else:
            self.parked_count -= 1

    def _offer(self, key: int, queue: _KeyQueue) -> list[int]:
        if not queue.waiting:
            if not queue.out:
                del self._queues[key]
            return []
        first = [one for one in queue.waiting[:OFFERED_MAX] if queue.is_before_all_out(one)]
        fresh = [offset for offset in first if offset not in self._offered]
        self._offered.update(fresh)
        self.parked_count -= len(fresh)
        # Include those offered before: when one may be chosen depends on the lower ones.
        return first if fresh else []

    def in_turn(self, due_ms: Mapping[int, int]) -> dict[int, int]:
        """Return when each message may be chosen: never before a lower one of its key."""
        latest_ms: dict[int, int] = {}
        turns_ms: dict[int, int] = {}
        for offset in sorted(due_ms):
            key = self.key_of(offset)
            turn_ms = due_ms[offset]
            if key != NO_KEY:
                turn_ms = latest_ms[key] = max(turn_ms, latest_ms.get(key, turn_ms))
            turns_ms[offset] = turn_ms
        return turns_ms
