"""What is done to the machines of a cluster, one thing after the other, as a seed decides."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

from .machines import MachineBroker, Network, faketime_library, slow_link

SKEWS_SECONDS = (-600, -2, 0, 5, 600)
LOSS_PERCENT = 10
DAMAGED_FILES = (1, 6)

_log = logging.getLogger(__name__)

Deed = Callable[[], str]


class Nemesis:
    """Breaks nodes, networks, disks and clocks, and mends them.

    `until_whole` waits until every replica is in sync. With it data is lost and damaged as well:
    one node at a time, which is what the guarantees allow with two replicas in sync at least.
    """

    def __init__(
        self,
        nodes: dict[int, MachineBroker],
        network: Network,
        seed: int,
        *,
        leader: Callable[[], int],
        until_whole: Callable[[], None] | None = None,
        skews_seconds: tuple[int, ...] = SKEWS_SECONDS,
    ) -> None:
        self._nodes = nodes
        self._network = network
        self._random = random.Random(seed)
        self._leader = leader
        self._until_whole = until_whole or (lambda: None)
        self._skews_seconds = skews_seconds
        self._slow_link = slow_link() if until_whole else ""
        self.done: list[str] = []
        self.ended: list[str] = []  # nodes whose process ended by itself, with what they printed
        self._deeds: list[Deed] = [
            self.kill_the_leader,
            self.kill_anyone,
            self.kill_everyone,
            self.pause_the_leader,
            self.pause_anyone,
            self.isolate_the_leader,
            self.split_one_way,
            self.bridge,
            self.lose_packets,
            self.fill_a_disk,
        ]
        if faketime_library() is not None:
            self._deeds.append(self.skew_clocks)
        if until_whole is not None:
            self._deeds += [self.restart_one_by_one, self.lose_data, self.damage_data]
            self._deeds += [self.kill_with_a_full_disk, self.cut_the_leader_one_way]
            self._deeds += [self.slow_links] if self._slow_link else []

    @property
    def names(self) -> list[str]:
        """Everything that can be done here."""
        return [deed.__name__ for deed in self._deeds]

    def order(self) -> list[Deed]:
        """Every deed once, in an order of this seed."""
        return self._random.sample(self._deeds, len(self._deeds))

    def strike(self, deed: Deed) -> str:
        told = f"{deed.__name__} {deed()}"
        self.done.append(told)
        _log.info("%s", told)
        return told

    def mend(self) -> None:
        """End what was done last; clocks stay wrong."""
        self._network.heal()
        for node in self._nodes.values():
            node.resume()
            node.empty_disk()
            if node.is_running and not node.is_alive:
                self.ended.append(f"node {node.node_id} ended:\n{node.log_text[-3000:]}")
                node.kill()
            if not node.is_running:
                node.launch()

    # Nodes

    def kill_the_leader(self) -> str:
        return self._kill(self._leader())

    def kill_anyone(self) -> str:
        return self._kill(self._anyone())

    def kill_everyone(self) -> str:
        return ", ".join(self._kill(number) for number in self._nodes)

    def pause_the_leader(self) -> str:
        return self._pause(self._leader())

    def pause_anyone(self) -> str:
        return self._pause(self._anyone())

    def restart_one_by_one(self) -> str:
        """Stop and start every node in order, as an upgrade does."""
        for node in self._nodes.values():
            self._until_whole()
            node.stop()
            node.launch()
            node.until_ready()
        return "all nodes"

    def _kill(self, number: int) -> str:
        if self._nodes[number].is_running:
            self._nodes[number].kill()
        return f"node {number}"

    def _pause(self, number: int) -> str:
        self._nodes[number].pause()
        return f"node {number}"

    # The network between nodes; clients reach everyone all the time

    def isolate_the_leader(self) -> str:
        """A leader that nobody hears any more, though clients still do."""
        leader = self._leader()
        others = [one for one in self._nodes if one != leader]
        self._network.cut([(leader, one) for one in others] + [(one, leader) for one in others])
        return f"node {leader}"

    def split_one_way(self) -> str:
        return self._cut_one_way(self._anyone())

    def cut_the_leader_one_way(self) -> str:
        return self._cut_one_way(self._leader())

    def _cut_one_way(self, number: int) -> str:
        others = [one for one in self._nodes if one != number]
        if self._random.random() < 0.5:
            self._network.cut([(number, one) for one in others])
            return f"node {number} is not heard"
        self._network.cut([(one, number) for one in others])
        return f"node {number} does not hear"

    def bridge(self) -> str:
        middle, left, right = self._random.sample(list(self._nodes), 3)
        self._network.cut([(left, right), (right, left)])
        return f"{left} and {right} see only {middle}"

    def lose_packets(self) -> str:
        self._network.cut((), loss_percent=LOSS_PERCENT)
        return f"{LOSS_PERCENT} %"

    def slow_links(self) -> str:
        slow = self._random.sample(list(self._nodes), self._random.choice((1, 2)))
        for number in slow:
            self._network.slow_down(number, self._slow_link)
        return f"of nodes {slow}: {self._slow_link}"

    # Disks and clocks

    def fill_a_disk(self) -> str:
        number = self._random.choice([self._leader(), self._anyone()])
        self._nodes[number].fill_disk()
        return f"of node {number}"

    def kill_with_a_full_disk(self) -> str:
        """A node that is started again while there is still no room."""
        number = self._anyone()
        node = self._nodes[number]
        node.fill_disk()
        node.kill()
        node.launch()
        return f"node {number}"

    def lose_data(self) -> str:
        number = self._anyone()
        self._until_whole()
        self._kill(number)
        self._nodes[number].lose_data()
        return f"of node {number}"

    def damage_data(self) -> str:
        number = self._random.choice([self._leader(), self._anyone()])
        self._until_whole()
        self._kill(number)
        files = self._random.randint(*DAMAGED_FILES)
        return f"of node {number}: {self._nodes[number].damage(self._random, files=files)}"

    def skew_clocks(self) -> str:
        told = []
        for number, node in self._nodes.items():
            seconds = self._random.choice(self._skews_seconds)
            node.skew(seconds)
            told.append(f"{number}: {seconds:+d} s")
        return ", ".join(told)

    def _anyone(self) -> int:
        return self._random.choice(list(self._nodes))
