"""Balancing members that do not all read the same topics.

All partitions of a topic are alike to its readers, so the question is only how many of each topic
a member has. A member is relieved along a chain: it gives a partition to a reader of that topic,
which may pass on one of another topic, until it reaches somebody with at least two fewer. When no
such chain is left, no assignment is more even.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from goqueue.groups.partitions import Partition, Partitions

Link = tuple[str, str]  # the member that gives, and the topic it gives from


class Balance:
    def __init__(
        self, readers: Mapping[str, Sequence[str]], kept: Mapping[str, Partitions]
    ) -> None:
        self._readers = readers
        self._held: dict[str, dict[str, list[int]]] = {member: {} for member in kept}
        self._load = dict.fromkeys(kept, 0)
        self._topics_of: dict[str, list[str]] = {member: [] for member in kept}
        for topic, members in readers.items():
            for member in members:
                self._topics_of[member].append(topic)
        for member, partitions in kept.items():
            for partition in sorted(partitions):
                self._give(member, partition)

    def settle(self, free: Sequence[Partition]) -> dict[str, Partitions]:
        """Hand out what is free, then even out the rest."""
        for partition in self._rarest_first(free):
            readers = self._readers[partition[0]]
            self._give(min(readers, key=self._load.__getitem__), partition)
        self._even_out()
        return {
            member: frozenset(
                (topic, partition) for topic, held in topics.items() for partition in held
            )
            for member, topics in self._held.items()
        }

    def _rarest_first(self, free: Sequence[Partition]) -> list[Partition]:
        """Topics with few readers leave less choice, so they go first."""
        return sorted(free, key=lambda partition: len(self._readers[partition[0]]))

    def _even_out(self) -> None:
        """Relieve until a whole round over the members, poorest first, changes nothing.

        Every chain brings two members nearer to each other, so the loop ends.
        """
        is_even = False
        while not is_even:
            is_even = True
            for member in sorted(self._load, key=self._load.__getitem__):
                while chain := self._chain_to(member):
                    self._pass_along(chain, member)
                    is_even = False

    def _chain_to(self, poor: str) -> list[Link]:
        """The shortest chain from a member with at least two more, as links from its end."""
        limit = self._load[poor] + 2
        reached_by: dict[str, tuple[str, str]] = {}  # giver: (receiver, topic)
        topics_seen: set[str] = set()
        queue = deque([poor])
        while queue:
            receiver = queue.popleft()
            for topic in self._topics_of[receiver]:
                if topic in topics_seen:
                    continue
                topics_seen.add(topic)
                givers = [
                    each
                    for each in self._readers[topic]
                    if each != poor and each not in reached_by and self._held[each].get(topic)
                ]
                for giver in givers:
                    reached_by[giver] = (receiver, topic)
                richest = max(givers, key=self._load.__getitem__, default=poor)
                if self._load[richest] >= limit:
                    return self._unwind(richest, poor, reached_by)
                queue.extend(givers)
        return []

    def _unwind(
        self, giver: str, poor: str, reached_by: Mapping[str, tuple[str, str]]
    ) -> list[Link]:
        chain = []
        while giver != poor:
            receiver, topic = reached_by[giver]
            chain.append((giver, topic))
            giver = receiver
        return chain

    def _pass_along(self, chain: list[Link], poor: str) -> None:
        receivers = [giver for giver, _ in chain[1:]] + [poor]
        for (giver, topic), receiver in zip(chain, receivers, strict=True):
            partition = self._held[giver][topic].pop()
            self._load[giver] -= 1
            self._give(receiver, (topic, partition))

    def _give(self, member: str, partition: Partition) -> None:
        topic, number = partition
        self._held[member].setdefault(topic, []).append(number)
        self._load[member] += 1
