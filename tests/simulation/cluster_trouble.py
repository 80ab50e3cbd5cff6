"""What happens to a cluster: nodes die, disks fill, rot and slow down, messages go astray."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.cluster_world import ClusterNode, ClusterWorld

# Of a batch. Neither its checksum nor its neighbours can tell whether its epoch is right.
_EPOCH_BITS = range(12 * 8, 16 * 8)


class Trouble:
    """One deed after the other, as a seed decides."""

    def __init__(self, world: ClusterWorld, topic: str, *, partitions: int) -> None:
        self.world = world
        self.random = world.random
        self.topic = topic
        self.partitions = partitions
        self.told: list[str] = []
        self._failing: set[int] = set()
        self._rotting: ClusterNode | None = None
        self.deeds: list[Callable[[], None]] = [
            self.crash,
            self.crash,
            self.kill,
            self.kill_the_leader,
            self.restart,
            self.restart,
            self.isolate,
            self.split,
            self.one_way,
            self.bridge,
            self.join_up,
            self.join_up,
            self.bad_network,
            self.good_network,
            self.slow_disk,
            self.fast_disks,
            self.fill_disk,
            self.fail_sync,
            self.set_clock,
        ]

    def strike(self) -> None:
        deed = self.random.choice(self.deeds)
        self.told.append(f"{self.world.age_ms} {deed.__name__}")
        deed()

    def end(self) -> None:
        """Do what operators do: restart what has failed, and what may have rotted."""
        for node in self.world.nodes.values():
            node.disk.make_room()
            node.disk.sync_delay_ms = 0
            node.disk.fail_syncs(0)
            if node.is_up and (node.number in self._failing or _has_failed(node)):
                node.kill()
        self._failing.clear()
        self.world.heal()
        if self.rot():
            assert self._rotting is not None
            self.random.choice([self._rotting.kill, self._rotting.crash])()
            self.world.heal()
            self._rotting.is_rotten = False  # It has had everything again from others.

    # Nodes

    def crash(self) -> None:
        self._anyone(lambda node: node.is_up).crash()

    def kill(self) -> None:
        self._anyone(lambda node: node.is_up).kill()

    def kill_the_leader(self) -> None:
        leader = self.world.leader_of(self.topic, self.random.randrange(self.partitions))
        if leader is not None:
            leader.kill()

    def set_clock(self) -> None:
        """Somebody sets the clock of a node while it runs: far ahead, or back a little.

        Whoever waits does so by this clock, so setting it back makes all waiting longer by as much.
        """
        self._anyone().clock.skew_ms += self.random.choice([-2_000, 2_000, 600_000])

    def restart(self) -> None:
        for node in self.world.nodes.values():
            if not node.is_up:
                node.disk.make_room()
                node.disk.fail_syncs(0)
                self._failing.discard(node.number)
                node.start()

    # The network

    def isolate(self) -> None:
        node = self._anyone()
        self.world.network.cut([node.number], self._others(node.number))

    def split(self) -> None:
        numbers = self._shuffled()
        half = len(numbers) // 2
        self.world.network.cut(numbers[:half], numbers[half:])

    def one_way(self) -> None:
        """A node is not heard any more, but hears; or the other way round."""
        node = self._anyone()
        if self.random.random() < 0.5:
            self.world.network.cut_one_way([node.number], self._others(node.number))
        else:
            self.world.network.cut_one_way(self._others(node.number), [node.number])

    def bridge(self) -> None:
        """Two sides that see each other only through the node between them."""
        _, *others = self._shuffled()
        half = len(others) // 2
        self.world.network.cut(others[:half], others[half:])

    def join_up(self) -> None:
        self.world.network.faults.cut.clear()

    def bad_network(self) -> None:
        faults = self.world.network.faults
        faults.loss = self.random.choice([0.0, 0.05, 0.2])
        faults.duplication = self.random.choice([0.0, 0.1])
        faults.delay_ms = self.random.choice([1.0, 5.0, 50.0])
        faults.late = self.random.choice([0.0, 0.02])

    def good_network(self) -> None:
        cut = self.world.network.faults.cut
        self.world.network.heal()
        self.world.network.faults.cut = cut

    # Disks

    def slow_disk(self) -> None:
        self._anyone().disk.sync_delay_ms = self.random.choice([20.0, 100.0, 700.0])

    def fast_disks(self) -> None:
        for node in self.world.nodes.values():
            node.disk.sync_delay_ms = 0

    def fill_disk(self) -> None:
        node = self._anyone(lambda node: node.is_up)
        node.disk.fill_after(self.random.choice([0, 200, 3_000]))
        self.world.clock.call_later(self.random.uniform(200, 3_000), node.disk.make_room)

    def fail_sync(self) -> None:
        """A disk gives up, once; what is on it counts again after a restart."""
        node = self._anyone(lambda node: node.is_up)
        node.disk.fail_syncs()
        self._failing.add(node.number)

    def rot(self) -> bool:
        """Flip a bit of what all copies have, if there is enough of it."""
        node = self._anyone()
        number = self.random.randrange(self.partitions)
        copies = [one.partition(self.topic, number) for one in self.world.nodes.values()]
        ends = [one.durable_offset for one in copies if one is not None and one.end_offset]
        end = min([self.world.watch.ledger(self.topic, number).end, *ends])
        partition = node.partition(self.topic, number)
        if partition is None or end <= partition.start_offset:
            return False
        offset = self.random.randrange(partition.start_offset, end)
        found = partition.read_uncommitted(offset, bytes_max=1)
        # What is last in a log is not old enough to rot.
        if found is None or found.end_offset == partition.end_offset:
            return False
        bit = self.random.randrange(found.length * 8)
        if bit in _EPOCH_BITS:
            return False
        self._rotting, node.is_rotten = node, True
        node.disk.flip_bit(found.segment.file.path, found.position * 8 + bit)
        return True

    # Choices

    def _anyone(self, is_fit: Callable[[ClusterNode], bool] = lambda _: True) -> ClusterNode:
        fit = [node for node in self.world.nodes.values() if is_fit(node)]
        return self.random.choice(fit or list(self.world.nodes.values()))

    def _shuffled(self) -> list[int]:
        numbers = list(self.world.nodes)
        self.random.shuffle(numbers)
        return numbers

    def _others(self, number: int) -> list[int]:
        return [one for one in self.world.nodes if one != number]


def _has_failed(node: ClusterNode) -> bool:
    """Whether a node says of itself that it must be restarted."""
    partitions = (one for topic in node.broker.topics for one in topic.partitions)
    assert node.broker.cluster is not None
    return node.broker.cluster.quorum.failure is not None or any(
        one.failure is not None for one in partitions
    )
