"""Holds every answer back until what it says is durable.

Groups change in memory first. A call may then change records, answer waiting calls, or both. What
it wants written becomes one `Persist`, and its answers wait for that write; answers that need no
write of their own wait for the membership write under way. So nobody outside ever learns of a
membership that a crash could take back.

A group has one write under way at a time. What it changes meanwhile rests on that write, so it is
merged into the next one: a write that fails then leaves no hole under a later one that succeeds.
What a transaction commits waits for nobody, since nothing rests on it before the transaction ends.
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
    """Records on their way to the log, and the answers that wait for them."""

    group: Group
    membership: dict[bytes, bytes | None]
    offsets: list[OffsetChange]
    replies: list[Reply]
    identity: ProducerIdentity | None = None  # whose transaction it is part of

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
        """Remember that the group has something to say."""
        self.touched[group] = None

    def flush(self, group: Group, effects: list[Effect]) -> None:
        """Turn what the group has said since its last flush into effects."""
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
        """Offsets of a transaction, to be written now."""
        self._last_id += 1
        write = Write(group, {}, offsets, [reply], identity)
        self._writes[self._last_id] = write
        group.writes_pending[self._last_id] = write
        return Persist(self._last_id, group.group_id, write.records(), identity)

    def open_write(self, group: Group) -> Write | None:
        """The write of this group that is under way."""
        return self._writes.get(group.write_id)

    def settle(self, write_id: int) -> Write | None:
        """Take the write off the books; `None` if it was not on them."""
        write = self._writes.pop(write_id, None)
        if write is not None and write.identity is not None:
            del write.group.writes_pending[write_id]
        elif write is not None:
            write.group.write_id = NO_WRITE
        return write

    def abandon(self) -> list[Reply]:
        """Forget every open write; return the answers that waited for them."""
        replies = [reply for write in self._writes.values() for reply in write.replies]
        self._writes.clear()
        return replies
