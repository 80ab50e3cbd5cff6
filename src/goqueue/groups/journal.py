"""Holds every answer back until what it says is durable.

Groups change in memory first. A call may then change records, answer waiting calls, or both. What
it wants written becomes one `Persist`, and its answers wait for that write; answers that need no
write of their own wait for the group's last membership write. So nobody outside ever learns of a
membership that a crash could take back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from goqueue.groups.effects import Effect, KeyedRecord, Persist, Reply
from goqueue.groups.offsets import OffsetChange
from goqueue.groups.records import encode_offset, encode_offset_key

if TYPE_CHECKING:
    from goqueue.groups.group import Group


@dataclass(slots=True)
class Write:
    """Records on their way to the log, and the answers that wait for them."""

    group: Group
    membership: dict[bytes, bytes | None]
    offsets: list[OffsetChange]
    replies: list[Reply]

    def records(self) -> list[KeyedRecord]:
        group_id = self.group.group_id
        offsets = [
            (
                encode_offset_key(group_id, topic, partition),
                None if committed is None else encode_offset(committed),
            )
            for topic, partition, committed in self.offsets
        ]
        return [*self.membership.items(), *offsets]


class Journal:
    def __init__(self) -> None:
        self._last_id = 0
        self._writes: dict[int, Write] = {}
        self.touched: dict[Group, None] = {}

    def touch(self, group: Group) -> None:
        """Remember that the group has something to say."""
        self.touched[group] = None

    def flush(self) -> list[Effect]:
        """Turn what the groups have said since the last flush into effects."""
        effects: list[Effect] = []
        for group in self.touched:
            self._flush_group(group, effects)
        self.touched.clear()
        return effects

    def _flush_group(self, group: Group, effects: list[Effect]) -> None:
        if group.staged or group.staged_offsets:
            effects.append(self._write(group))
            return
        replies, group.replies = group.replies, []
        write = self._writes.get(group.membership_write_id)
        if write is None:
            effects.extend(replies)
        else:
            write.replies.extend(replies)

    def _write(self, group: Group) -> Persist:
        self._last_id += 1
        write = Write(group, group.staged, group.staged_offsets, group.replies)
        self._writes[self._last_id] = write
        group.writes_open += 1
        if group.staged:
            group.membership_write_id = self._last_id
        group.staged, group.staged_offsets, group.replies = {}, [], []
        return Persist(self._last_id, group.group_id, write.records())

    def settle(self, write_id: int) -> Write | None:
        """Take the write off the books; `None` if it was not on them."""
        write = self._writes.pop(write_id, None)
        if write is not None:
            write.group.writes_open -= 1
        return write

    def open_writes(self, group: Group) -> list[Write]:
        return [write for write in self._writes.values() if write.group is group]

    def abandon(self) -> list[Reply]:
        """Forget every open write; return the answers that waited for them."""
        replies = [reply for write in self._writes.values() for reply in write.replies]
        self._writes.clear()
        return replies
