"""Balances members that do not all subscribe to the same topics.

All partitions of a topic are equivalent to its subscribers, so only the number of partitions of
each topic per member matters. A member with many is relieved along a chain: it gives a partition to
a subscriber of that topic, which may pass on one of another topic, until the chain reaches a member
with at least two fewer than the first. When no such chain is left, no assignment is more even.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from goqueue.groups.assignment.partitions import Partition, Partitions

Link = tuple[str, str]  # a giver, and the topic of the partition it gives


class Balance:
    def __init__(
        self, readers: Mapping[str, Sequence[str]], kept: Mapping[str, Partitions]
    ) -> None:
        self._readers = readers
        self._held: dict[str, dict[str, list[int]]] = {member: {} for member in kept}
        self._load = dict.fromkeys(kept, 0)
        for member, partitions in kept.items():
            for topic, number in sorted(partitions):
                self._give(member, topic, number)

    def settle(self, free: Sequence[Partition]) -> dict[str, Partitions]:
        """Assign free partitions, then even out the rest."""
        free_by_topic: dict[str, list[int]] = defaultdict(list)
        for topic, number in free:
            free_by_topic[topic].append(number)
        # Topics with few subscribers leave less choice, so they go first.
        for topic in sorted(free_by_topic, key=lambda topic: len(self._readers[topic])):
            self._assign_free(topic, free_by_topic[topic])
        while chain := self._find_chain():
            self._move_along(chain)
        return {
            member: frozenset((topic, number) for topic, held in topics.items() for number in held)
            for member, topics in self._held.items()
        }

    def _assign_free(self, topic: str, numbers: list[int]) -> None:
        """Give each partition to the subscriber with the fewest."""
        loads = [(self._load[each], index) for index, each in enumerate(self._readers[topic])]
        heapq.heapify(loads)
        for number in numbers:
            load, index = loads[0]
            self._give(self._readers[topic][index], topic, number)
            heapq.heapreplace(loads, (load + 1, index))

    def _find_chain(self) -> list[Link]:
        """A shortest chain from the member with most that has one; its last link is the receiver.

        What a member with more reached without success need not be searched again from one with
        fewer. So a search visits every topic once, and every chain brings two members closer
        together.
        """
        load_min = min(self._load.values())
        reached: dict[str, Link | None] = {}
        topics_seen: set[str] = set()
        for donor in sorted(self._load, key=self._load.__getitem__, reverse=True):
            if self._load[donor] < load_min + 2:
                break
            if donor not in reached:
                reached[donor] = None
                receiver = self._search(donor, reached, topics_seen)
                if receiver is not None:
                    return self._unwind(receiver, reached)
        return []

    def _search(
        self, donor: str, reached: dict[str, Link | None], topics_seen: set[str]
    ) -> str | None:
        """The member with fewest of the nearest that have two fewer; record how each was
        reached.
        """
        givers = [donor]
        while givers:
            receivers = []
            for giver in givers:
                for topic, held in self._held[giver].items():
                    if held and topic not in topics_seen:
                        topics_seen.add(topic)
                        new = [each for each in self._readers[topic] if each not in reached]
                        reached.update(dict.fromkeys(new, (giver, topic)))
                        receivers += new
            receiver = min(receivers, key=self._load.__getitem__, default=donor)
            if self._load[receiver] <= self._load[donor] - 2:
                return receiver
            givers = receivers
        return None

    def _unwind(self, receiver: str, reached: Mapping[str, Link | None]) -> list[Link]:
        chain = [(receiver, "")]
        while (link := reached[chain[-1][0]]) is not None:
            chain.append(link)
        return chain[::-1]

    def _move_along(self, chain: list[Link]) -> None:
        for (giver, topic), (receiver, _) in pairwise(chain):
            self._load[giver] -= 1
            self._give(receiver, topic, self._held[giver][topic].pop())

    def _give(self, member: str, topic: str, number: int) -> None:
        self._held[member].setdefault(topic, []).append(number)
        self._load[member] += 1
