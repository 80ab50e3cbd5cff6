"""What happens to a quorum: somebody dies, is cut off, slows down, joins or leaves."""

from __future__ import annotations

from collections.abc import Callable

from goqueue.cluster.raft import MemberChange
from tests.simulation.clock import NeverHappened
from tests.simulation.raft_world import Voter, World

RECOVERY_MS = 6_000  # within which everything works again; thirty times the election time-out


class Trouble:
    def __init__(self, world: World, *, changes_members: bool) -> None:
        self.world = world
        self.random = world.random
        self.pause_ms = (20, 100, 300, 700)  # at most, between two deeds
        self.deeds = [
            self.crash,
            self.crash,
            self.crash_in_the_middle,
            self.crash_many,
            self.restart,
            self.restart,
            self.partition,
            self.one_way,
            self.bridge,
            self.heal,
            self.heal,
            self.bad_network,
            self.slow_disk,
            self.fast_disks,
            self.pause,
            self.resume,
            self.transfer,
            self.compact,
            self.set_clock,
            self.lose_the_leader,
            self.miss_the_leader,
        ]
        if changes_members:
            self.deeds += [self.change_members] * 8

    @classmethod
    def of_elections(cls, world: World) -> Trouble:
        """Leaders never last, and everybody dies for a moment all the time."""
        trouble = cls(world, changes_members=False)
        trouble.deeds = [
            trouble.crash_briefly,
            trouble.crash_briefly,
            trouble.crash_briefly,
            trouble.lose_the_leader,
            trouble.lose_the_leader,
            trouble.miss_the_leader,
            trouble.transfer,
            trouble.transfer,
            trouble.partition,
            trouble.one_way,
            trouble.heal,
            trouble.bad_network,
        ]
        trouble.pause_ms = (5, 20, 60, 200)
        return trouble

    @classmethod
    def of_members(cls, world: World) -> Trouble:
        """Every leader begins changes, most of which it will not see the end of."""
        trouble = cls(world, changes_members=False)
        trouble.deeds = [
            *[trouble.change_members] * 6,
            trouble.lose_the_leader,
            trouble.partition,
            trouble.partition,
            trouble.heal,
            trouble.heal,
            trouble.crash_briefly,
            trouble.transfer,
            trouble.compact,
        ]
        trouble.pause_ms = (5, 20, 100, 300)
        return trouble

    def run(self, ms: float) -> None:
        clock = self.world.clock
        until_ms = clock.now_ms() + ms
        while clock.now_ms() < until_ms:
            self.random.choice(self.deeds)()
            clock.run_for(self.random.choice(self.pause_ms) * self.random.random())

    def end(self) -> None:
        """Make everything well again, and see that it is."""
        world = self.world
        self.heal()
        self.fast_disks()
        world.loss = world.duplication = world.late = 0.0
        world.delay_ms = 2.0
        for node in world.voters.values():
            node.disk.crash_at(None)
            node.resume()
            node.start_again()
        for client in world.clients:
            client.is_stopped = True
        marks: list[object] = []
        self._propose_mark(marks)
        try:
            world.clock.run_until(lambda: bool(marks) and self._all_have_all(), ms_max=RECOVERY_MS)
        except NeverHappened:
            raise AssertionError(f"no recovery: {[_state(one) for one in self._all()]}") from None

    def _propose_mark(self, marks: list[object]) -> None:
        """Propose until something new is committed."""
        leader = self.world.leader()
        if leader is not None:
            leader.append(b"mark%d" % self.world.number(), lambda done: done and marks.append(done))
        if not marks:
            self.world.after(100, lambda: None if marks else self._propose_mark(marks))

    def _all_have_all(self) -> bool:
        leader = self.world.leader()
        end = len(self.world.checks.committed) - 1
        return leader is not None and all(
            self.world.voters[member].applied_index == end for member in leader.raft.members.all
        )

    # Deeds

    def crash(self) -> None:
        node = self._anyone()
        if node.is_up:
            node.crash()
            self.world.after(self.random.uniform(10, 1_500), node.start_again)

    def crash_briefly(self) -> None:
        node = self._anyone()
        if node.is_up:
            node.crash()
            self.world.after(self.random.uniform(0, 20), node.start_again)

    def lose_the_leader(self) -> None:
        """It is not heard of, so that several try to be the next one."""
        leader = self._leader()
        if leader is not None:
            self._cut(lambda a, b: leader.id in (a, b))

    def miss_the_leader(self) -> None:
        """Some believe that it is gone; mostly they are wrong."""
        leader = self._leader()
        for node in self._all():
            is_able = node.is_up and not node.is_paused and self.random.random() < 0.6
            if leader is not None and is_able:
                node.raft.miss(leader.id, node.now_ms())
                node.pump()

    def crash_many(self) -> None:
        if self.random.random() < 0.3:
            for node in self._all():
                if node.is_up and self.random.random() < 0.8:
                    node.crash()
                    self.world.after(self.random.uniform(10, 800), node.start_again)

    def crash_in_the_middle(self) -> None:
        """During one of the next few operations of the disk."""
        self._anyone().disk.crash_at(self.random.randrange(8))

    def restart(self) -> None:
        for node in self._all():
            node.start_again()

    def partition(self) -> None:
        side = {node.id for node in self._all() if self.random.random() < 0.5}
        self._cut(lambda a, b: (a in side) != (b in side))

    def one_way(self) -> None:
        mute = {node.id for node in self._all() if self.random.random() < 0.4}
        self._cut(lambda a, b: a in mute and b not in mute)

    def bridge(self) -> None:
        """Two sides that see only one common node."""
        middle = self._anyone().id
        side = {node.id for node in self._all() if self.random.random() < 0.5}
        self._cut(lambda a, b: middle not in (a, b) and (a in side) != (b in side))

    def heal(self) -> None:
        self.world.cut.clear()

    def bad_network(self) -> None:
        self.world.loss = self.random.choice((0, 0, 0.02, 0.2))
        self.world.duplication = self.random.choice((0, 0.05, 0.3))
        self.world.late = self.random.choice((0, 0, 0.02, 0.2))
        self.world.delay_ms = self.random.choice((2.0, 2.0, 30.0))

    def slow_disk(self) -> None:
        self._anyone().save_ms = self.random.choice((50.0, 400.0, 1_500.0))

    def fast_disks(self) -> None:
        for node in self._all():
            node.save_ms = 2.0

    def pause(self) -> None:
        node = self._anyone()
        if node.is_up:
            node.pause()
            self.world.after(self.random.uniform(50, 1_500), node.resume)

    def resume(self) -> None:
        for node in self._all():
            node.resume()

    def set_clock(self) -> None:
        self._anyone().offset_ms += self.random.choice((-1, 1)) * self.random.randrange(1_000_000)

    def transfer(self) -> None:
        leader = self._leader()
        if leader is not None:
            leader.raft.transfer(self._anyone().id, leader.now_ms())
            leader.pump()

    def compact(self) -> None:
        node = self._anyone()
        if node.is_up and not node.is_paused:
            node.compact()
            node.pump()

    def change_members(self) -> None:
        leader = self._leader()
        if leader is not None:
            node, members = self._anyone().id, leader.raft.members
            change = MemberChange.REMOVE
            if node not in members.all:
                change = MemberChange.ADD_LEARNER
            elif node in members.learners and self.random.random() < 0.8:
                change = MemberChange.PROMOTE
            leader.raft.propose_members(change, node, leader.now_ms())
            leader.pump()

    # Helpers

    def _all(self) -> list[Voter]:
        return list(self.world.voters.values())

    def _anyone(self) -> Voter:
        return self.random.choice(self._all())

    def _leader(self) -> Voter | None:
        leaders = [node for node in self._all() if node.is_up and node.raft.is_leader]
        leaders = [node for node in leaders if not node.is_paused]
        return self.random.choice(leaders) if leaders else None

    def _cut(self, is_cut: Callable[[int, int], bool]) -> None:
        nodes = self.world.voters
        self.world.cut = {(a, b) for a in nodes for b in nodes if a != b and is_cut(a, b)}


def _state(node: Voter) -> str:
    if not node.is_up:
        return f"{node.id} down"
    raft = node.raft
    return (
        f"{node.id} {raft.role} term {raft.term} leader {raft.leader_id} log {raft.log.last_index} "
        f"commit {raft.commit_index} saved {raft.log.saved_index} applied {node.applied_index} "
        f"members {raft.members}"
    )
