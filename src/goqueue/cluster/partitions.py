"""The partitions of all topics, indexed for the decisions of the controller.

Failure of one of five nodes that share ten thousand partitions must not require a scan of all of
them. Every change costs as many steps as the partition has replicas.
"""

from __future__ import annotations

from collections.abc import Iterator

from goqueue.cluster.facts import NO_LEADER, PartitionFact, PartitionKey

# A dictionary keeps its order, which a set of bytes does not from run to run.
_Places = dict[PartitionKey, None]


class PartitionTable:
    """All partitions by topic, with indexes by node, by leader and by pending change."""

    __slots__ = ("_by_topic", "_led", "_moving", "_on_node", "_strayed", "count")

    def __init__(self) -> None:
        self._by_topic: dict[bytes, dict[int, PartitionFact]] = {}
        self._on_node: dict[int, _Places] = {}
        self._led: dict[int, _Places] = {}
        self._strayed: _Places = {}
        self._moving: _Places = {}
        self.count = 0

    def get(self, topic_id: bytes, number: int) -> PartitionFact | None:
        its = self._by_topic.get(topic_id)
        return None if its is None else its.get(number)

    def at(self, place: PartitionKey) -> PartitionFact:
        return self._by_topic[place[0]][place[1]]

    def of_topic(self, topic_id: bytes) -> list[PartitionFact]:
        """Return the partitions of a topic by number; none for a topic of a single node."""
        its = self._by_topic.get(topic_id, {})
        return [its[number] for number in sorted(its)]

    def of_node(self, node: int) -> list[PartitionFact]:
        """Return the partitions with a replica on a node, also those being added or removed."""
        return self._facts(self._on_node.get(node, {}))

    def led_by(self, node: int) -> list[PartitionFact]:
        return self._facts(self._led.get(node, {}))

    def leaderless(self) -> list[PartitionFact]:
        return self._facts(self._led.get(NO_LEADER, {}))

    def strayed(self) -> list[PartitionFact]:
        """Return the partitions that are not led by their preferred replica."""
        return self._facts(self._strayed)

    def moving(self) -> list[PartitionFact]:
        """Return the partitions whose replicas are being moved."""
        return self._facts(self._moving)

    def replica_count(self, node: int) -> int:
        return len(self._on_node.get(node, ()))

    def leader_count(self, node: int) -> int:
        return len(self._led.get(node, ()))

    def __iter__(self) -> Iterator[PartitionFact]:
        for its in self._by_topic.values():
            yield from its.values()

    def put(self, fact: PartitionFact) -> None:
        its = self._by_topic.setdefault(fact.topic_id, {})
        before = its.get(fact.number)
        if before is not None:
            self._unlist(before)
        else:
            self.count += 1
        its[fact.number] = fact
        self._list(fact)

    def drop_topic(self, topic_id: bytes) -> None:
        for fact in self._by_topic.pop(topic_id, {}).values():
            self._unlist(fact)
            self.count -= 1

    def drop(self, topic_id: bytes, number: int) -> None:
        its = self._by_topic.get(topic_id, {})
        fact = its.pop(number, None)
        if fact is not None:
            self._unlist(fact)
            self.count -= 1
            if not its:
                del self._by_topic[topic_id]

    def _list(self, fact: PartitionFact) -> None:
        place = fact.place
        for node in fact.members:
            self._on_node.setdefault(node, {})[place] = None
        self._led.setdefault(fact.leader, {})[place] = None
        if fact.leader not in (NO_LEADER, fact.replicas[0]):
            self._strayed[place] = None
        if fact.is_moving:
            self._moving[place] = None

    def _unlist(self, fact: PartitionFact) -> None:
        place = fact.place
        for node in fact.members:
            _strike(self._on_node, node, place)
        _strike(self._led, fact.leader, place)
        self._strayed.pop(place, None)
        self._moving.pop(place, None)

    def _facts(self, places: _Places) -> list[PartitionFact]:
        return [self._by_topic[topic_id][number] for topic_id, number in places]


def _strike(lists: dict[int, _Places], node: int, place: PartitionKey) -> None:
    places = lists.get(node, {})
    places.pop(place, None)
    if not places:
        lists.pop(node, None)
