"""Holds every reply back until the state it depends on is durable.

Groups change in memory first. A call may then change records, reply to waiting calls, or both. Its
records become one `Persist`, and its replies wait for that write; replies that need no write of
their own wait for the membership write in flight. So no caller ever sees a membership that a crash
could undo.

A group has one write in flight at a time. Changes made meanwhile depend on that write, so they are
merged into the next one: a write that fails then leaves no gap under a later one that succeeds.
Transactional commits do not wait, since nothing depends on them before the transaction ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from goqueue.groups.effects import Effect, KeyedRecord, Persist, Reply
from goqueue.groups.offsets import OffsetChange
from goqueue.groups.records import encode_offset, encode_offset_key_prefix, encode_partition
from goqueue.model.names import ProducerIdentity

if TYPE_CHECKING:
    from goqueue.groups.group import Group

NO_WRITE = 0


@dataclass(slots=True)
class Write:
    """Records on their way to the log, and the replies that wait for them."""

    group: Group
    membership: dict[bytes, bytes | None]
    offsets: list[OffsetChange]
    replies: list[Reply]
    identity: ProducerIdentity | None = None  # the producer whose transaction it is part of

    def records(self) -> list[KeyedRecord]:
        prefixes: dict[str, bytes] = {}
        records: list[KeyedRecord] = [*self.membership.items()]
        for topic, partition, committed in self.offsets:
            prefix = prefixes.get(topic)
            if prefix is None:
                prefix = prefixes[topic] = encode_offset_key_prefix(self.group.group_id, topic)
            value = None if committed is None else encode_offset(committed)
            records.append((prefix + encode_partition(partition), value))
        return records


class Journal:
    def __init__(self) -> None:
        self._last_id = 0
        self._writes: dict[int, Write] = {}
        self.touched: dict[Group, None] = {}

    def touch(self, group: Group) -> None:
        """Mark the group as having changes or replies to flush."""
        self.touched[group] = None

    def flush(self, group: Group, effects: list[Effect]) -> None:
        """Turn the group's changes and replies since its last flush into effects."""
        write = self.open_write(group)
        if group.staged or group.staged_offsets:
            if write is None:
                effects.append(self._write(group))
            return
        replies, group.replies = group.replies, []
        if write is not None and write.membership:
            write.replies.extend(replies)
        else:
            effects.extend(replies)

    def _write(self, group: Group) -> Persist:
        self._last_id += 1
        write = Write(group, group.staged, group.staged_offsets, group.replies)
        self._writes[self._last_id] = write
        group.write_id = self._last_id
        group.staged, group.staged_offsets, group.replies = {}, [], []
        return Persist(self._last_id, group.group_id, write.records())

    def write_pending(
        self, group: Group, identity: ProducerIdentity, offsets: list[OffsetChange], reply: Reply
    ) -> Persist:
        """Write the offsets of a transaction now."""
        self._last_id += 1
        write = Write(group, {}, offsets, [reply], identity)
        self._writes[self._last_id] = write
        group.writes_pending[self._last_id] = write
        return Persist(self._last_id, group.group_id, write.records(), identity)

    def open_write(self, group: Group) -> Write | None:
        """The write of this group that is in flight."""
        return self._writes.get(group.write_id)

    def settle(self, write_id: int) -> Write | None:
        """Remove a write in flight; return `None` if there is no such write."""
        write = self._writes.pop(write_id, None)
        if write is not None and write.identity is not None:
            del write.group.writes_pending[write_id]
        elif write is not None:
            write.group.write_id = NO_WRITE
        return write

    def abandon(self) -> list[Reply]:
        """Discard every write in flight; return the replies that waited for them."""
        replies = [reply for write in self._writes.values() for reply in write.replies]
        self._writes.clear()
        return replies
