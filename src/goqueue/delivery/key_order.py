"""Per-key order: a key with a message in flight makes its later messages wait in line.

Keys are identified by a hash, so that a retry has its key after a restart without reading its
record. Two keys with the same hash only wait for each other unnecessarily.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from hashlib import blake2b

from goqueue.delivery.ledger import NO_KEY


def key_number(key: bytes | None) -> int:
    """Return the hash of a key; records without a key are not ordered."""
    if key is None:
        return NO_KEY
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big") or 1


class KeyLines:
    """For one partition: which message holds each key, and which messages wait behind it."""

    __slots__ = ("_holders", "_lines", "parked_count")

    has_batches = False

    def __init__(self) -> None:
        self._holders: dict[int, int] = {}  # offset: key
        self._lines: dict[int, list[int]] = {}  # key: waiting offsets, lowest first
        self.parked_count = 0

    @property
    def is_used(self) -> bool:
        return bool(self._holders)

    def held(self) -> list[int]:
        """Return the messages that hold a key."""
        return list(self._holders)

    def key_of(self, offset: int) -> int:
        return self._holders.get(offset, NO_KEY)

    def enter(self, offset: int, key: int, call: int = 0) -> bool:
        """Let the message through if its key is free or already its own; else park it.

        `call` makes no difference: no receive gets two messages of one key.
        """
        if key == NO_KEY or self._holders.get(offset) == key:
            return True
        line = self._lines.get(key)
        if line is None:
            self._lines[key] = []
            self._holders[offset] = key
            return True
        insort(line, offset)
        self.parked_count += 1
        return False

    def resume(self, offset: int, key: int) -> bool:
        """Restore a retry from before a restart; return whether it may be chosen."""
        return self.enter(offset, key)

    def followers(self, offsets: Iterable[int]) -> list[int]:
        """Remove finished messages; return those that may go because of it."""
        following = [self.leave(offset) for offset in offsets]
        return [offset for offset in following if offset is not None]

    def leave(self, offset: int) -> int | None:
        """Release the key of a finished message; return the next message of the key, if any."""
        key = self._holders.pop(offset, NO_KEY)
        if key == NO_KEY:
            return None
        line = self._lines[key]
        if not line:
            del self._lines[key]
            return None
        following = line.pop(0)
        self._holders[following] = key
        self.parked_count -= 1
        return following

    def parked(self) -> list[int]:
        return [offset for line in self._lines.values() for offset in line]

    def drop(self, gone: set[int]) -> list[int]:
        """Forget these messages, whatever their state; return those that this frees."""
        for key, line in self._lines.items():
            kept = [offset for offset in line if offset not in gone]
            self.parked_count -= len(line) - len(kept)
            self._lines[key] = kept
        return self.followers([offset for offset in self._holders if offset in gone])
