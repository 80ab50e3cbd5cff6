"""How far the members of stream groups have polled.

A member that polls again expects the messages after those it has already received. A group stores
only committed offsets, so positions beyond them are held here, in memory: after a restart a member
continues from its committed offset.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from goqueue.groups import Partition, Partitions

MemberKey = tuple[str, str]  # group and member id


@dataclass(slots=True)
class Positions:
    """The position of one member in each of its partitions."""

    assigned: Partitions | None = None  # by the last heartbeat; None before the first one here
    next: dict[Partition, int] = field(default_factory=dict)
    handed_out: dict[Partition, int] = field(default_factory=dict)  # returned, not committed yet
    poll: int = 0  # the sequence number of the last response
    before: tuple[dict[Partition, int], dict[Partition, int]] | None = None  # state before it
    turn: int = 0  # rotates the first partition, so that none is always last

    def assign(self, assigned: Partitions) -> None:
        """Drop the positions of partitions that the member no longer owns."""

        def held(offsets: dict[Partition, int]) -> dict[Partition, int]:
            return {one: at for one, at in offsets.items() if one in assigned}

        self.assigned = assigned
        self.next, self.handed_out = held(self.next), held(self.handed_out)
        if self.before is not None:
            self.before = held(self.before[0]), held(self.before[1])

    def begin_poll(self) -> None:
        """Save the current positions before messages are returned."""
        self.before = dict(self.next), dict(self.handed_out)
        self.poll += 1

    def check_answered(self, poll: int) -> None:
        """Roll back to the last response the member received, if a later one was lost."""
        if poll == self.poll - 1 and self.before is not None:
            self.next, self.handed_out = self.before
            self.poll, self.before = poll, None

    def hand_out(self, partition: Partition, next_offset: int) -> None:
        self.next[partition] = self.handed_out[partition] = next_offset


class MemberPositions:
    """The positions of all members; the least recently active are evicted first."""

    def __init__(self, members_max: int) -> None:
        self._members_max = members_max
        self._members: OrderedDict[MemberKey, Positions] = OrderedDict()

    def __len__(self) -> int:
        return len(self._members)

    def of(self, group: str, member_id: str) -> Positions:
        key = (group, member_id)
        positions = self._members.get(key)
        if positions is None:
            positions = self._members[key] = Positions()
            if len(self._members) > self._members_max:
                self._members.popitem(last=False)
        else:
            self._members.move_to_end(key)
        return positions

    def forget(self, group: str, member_id: str) -> None:
        self._members.pop((group, member_id), None)

    def forget_groups(self, is_meant: Callable[[str], bool]) -> None:
        """Forget all members of groups that another node now coordinates."""
        gone = [key for key in self._members if is_meant(key[0])]
        for key in gone:
            del self._members[key]
