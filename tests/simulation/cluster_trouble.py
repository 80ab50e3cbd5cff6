"""What happens to a cluster: nodes die, disks fill, rot and slow down, messages go astray."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from goqueue.broker.shards.own_records import readable_batches
from goqueue.model.errors import CorruptBatch
from goqueue.partition import Partition
from tests.simulation.cluster_watch import Place
from tests.simulation.cluster_world import ClusterNode, ClusterWorld

# Of a batch. Neither its checksum nor its neighbours can tell whether its epoch is right.
_EPOCH_BITS = range(12 * 8, 16 * 8)
_JOURNALS = ("meta/commit-journal-0", "meta/commit-journal-1")
_JOURNAL_USED_BYTES = 40_000
REPAIR_MS = 30_000
PAUSE_MS = (100, 6_000)
SOON_OPERATIONS = 60


class Trouble:
    """One deed after the other, as a seed decides, and some of them where it hurts most."""

    def __init__(self, world: ClusterWorld, places: Sequence[Place]) -> None:
        """`places` are the partitions whose leaders are killed and beside which disks rot."""
        self.world = world
        self.random = world.random
        self.places = places
        self.told: list[str] = []
        self._failing: set[int] = set()
        self._rotting: ClusterNode | None = None
        self.deeds: list[Callable[[], None]] = [
            self.crash,
            self.crash,
            self.crash_soon,
            self.crash_soon,
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
            self.mistake,
            self.slow_disk,
            self.fast_disks,
            self.fill_disk,
            self.fail_sync,
            self.set_clock,
            self.rot,
            self.outage,
            self.pause,
            self.pause_the_leader,
        ]

    def strike(self) -> None:
        deed = self.random.choice(self.deeds)
        name = getattr(deed, "__name__", None) or str(deed)
        self.told.append(f"{self.world.age_ms} {name}")
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
        self.rot()
        if self._rotting is not None:
            # A start finds what has rotted in files that are written to, and readers find the
            # rest. Whatever is found is had again from others.
            self.random.choice([self._rotting.kill, self._rotting.crash])()
            self.world.heal()
            _read_all(self._rotting)
        self.world.run_until(self._is_repaired, ms_max=REPAIR_MS)
        for node in self.world.nodes.values():
            node.is_rotten = False
            node.durable.clear()

    def _is_repaired(self) -> bool:
        copies = [one for node in self.world.up() for one in _copies(node)]
        has_holes = any(one.replica.first_damage is not None for one in copies)
        return not has_holes and self.world.is_whole()

    # Nodes

    def crash(self) -> None:
        self._anyone(lambda node: node.is_up).crash()

    def crash_soon(self) -> None:
        """The power fails between two operations of a disk, or during the next start of a node."""
        self._anyone().crash_after(self.random.randrange(SOON_OPERATIONS))

    def kill(self) -> None:
        self._anyone(lambda node: node.is_up).kill()

    def kill_the_leader(self) -> None:
        leader = self.world.leader_of(*self.random.choice(self.places))
        if leader is not None:
            leader.kill()

    def pause(self) -> None:
        """Stop a process for a while, longer than its session or not, with all that it believes."""
        self._pause(self._anyone(lambda node: node.is_up and not node.is_paused))

    def pause_the_leader(self) -> None:
        leader = self.world.leader_of(*self.random.choice(self.places))
        if leader is not None:
            self._pause(leader)

    def _pause(self, node: ClusterNode) -> None:
        if node.is_up and not node.is_paused:
            node.pause()
            self.world.clock.call_later(self.random.uniform(*PAUSE_MS), node.clock.resume)

    def outage(self) -> None:
        """The power fails everywhere, and comes back here and there."""
        if self.random.random() < 0.8:
            self.rot()
        for number in self._shuffled():
            node = self.world.nodes[number]
            if node.is_up:
                node.crash()
            self.world.clock.call_later(self.random.uniform(10, 2_500), partial(self._start, node))

    def set_clock(self) -> None:
        """Somebody sets the clock of a node while it runs, by little or by a lot."""
        steps_ms = [-600_000, -60_000, -2_000, 2_000, 60_000, 600_000]
        self._anyone().clock.skew_ms += self.random.choice(steps_ms)

    def restart(self) -> None:
        for node in self.world.nodes.values():
            self._start(node)

    def _start(self, node: ClusterNode) -> None:
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

    def mistake(self) -> None:
        """One node, or all others, find that a node is gone, and it is there."""
        node = self._anyone().number
        others = self._others(node)
        for other in others if self.random.random() < 0.5 else [self.random.choice(others)]:
            self.world.network.mistake(other, node)

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

    def rot(self) -> None:
        """Flip a bit on the disk of one node, the same one to the end: in a file that stands beside
        the logs, or of something that is committed in any of them."""
        node = self._rotting or self._anyone(lambda node: node.is_up)
        if not node.is_up:
            return
        if self.random.random() < 0.3:
            self._rot_beside(node)
            return
        written = [place for place, ledger in self.world.watch.ledgers.items() if ledger.end]
        place = self.random.choice(sorted(written) or self.places[:1])
        partition = node.partition(*place)
        if partition is None:
            return
        end = min(self.world.watch.ledger(*place).end, partition.replica.durable_offset)
        if end <= partition.start_offset:
            return
        offset = self.random.randrange(partition.start_offset, end)
        try:
            found = partition.replica.read(offset, bytes_max=1)
        except CorruptBatch:
            return
        assert found is not None
        bit = self.random.randrange(found.length * 8)
        if bit not in _EPOCH_BITS:
            self._flip(node, found.segment.file.path, found.position * 8 + bit)

    def _rot_beside(self, node: ClusterNode) -> None:
        topic, number = self.random.choice(self.places)
        folder = f"logs/{topic}/{number}"
        paths = [f"{folder}/{name}" for name in node.disk.list(folder) if name[-4:] != ".log"]
        paths += [path for path in _JOURNALS if node.disk.exists(path)]
        path = self.random.choice(paths or list(_JOURNALS))
        size = len(node.disk.read_whole(path)) if node.disk.exists(path) else 0
        if path in _JOURNALS:
            # Of a file that is mostly empty, the part that is used.
            size = min(size, _JOURNAL_USED_BYTES)
        if size:
            self._flip(node, path, self.random.randrange(8 * size))

    def _flip(self, node: ClusterNode, path: str, bit: int) -> None:
        self._rotting, node.is_rotten = node, True
        self.told.append(f"{self.world.age_ms} rot on node {node.number}: {path}, bit {bit}")
        node.disk.flip_bit(path, bit)

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


def _copies(node: ClusterNode) -> list[Partition]:
    topics = node.broker.topics
    return [one for topic in topics for one in topic.partitions if topics.keeps(one)]


def _read_all(node: ClusterNode) -> None:
    for partition in _copies(node):
        for _ in readable_batches(partition, name="what is in a copy"):
            pass


def _has_failed(node: ClusterNode) -> bool:
    """Whether a node says of itself that it must be restarted."""
    partitions = (one for topic in node.broker.topics for one in topic.partitions)
    assert node.broker.cluster is not None
    return node.broker.cluster.quorum.failure is not None or any(
        one.failure is not None for one in partitions
    )
