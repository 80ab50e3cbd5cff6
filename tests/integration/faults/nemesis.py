"""What is done to the machines of a cluster, one thing after the other, as a seed decides."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

from .machines import MachineBroker, Network, faketime_library

SKEWS_SECONDS = (-600, -2, 0, 5, 600)
LOSS_PERCENT = 10

_log = logging.getLogger(__name__)


class Nemesis:
    """Breaks nodes, networks, disks and clocks, and mends them."""

    def __init__(
        self,
        nodes: dict[int, MachineBroker],
        network: Network,
        seed: int,
        *,
        leader: Callable[[], int],
    ) -> None:
        self._nodes = nodes
        self._network = network
        self._random = random.Random(seed)
        self._leader = leader
        self.done: list[str] = []
        self._deeds: list[Callable[[], str]] = [
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

    def order(self) -> list[Callable[[], str]]:
        """Every deed once, in an order of this seed."""
        return self._random.sample(self._deeds, len(self._deeds))

    def strike(self, deed: Callable[[], str]) -> None:
        told = f"{deed.__name__} {deed()}"
        self.done.append(told)
        _log.info("%s", told)

    def mend(self) -> None:
        """End what was done last; clocks stay wrong."""
        self._network.heal()
        for node in self._nodes.values():
            node.resume()
            node.empty_disk()
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
        number = self._anyone()
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

    # Disks and clocks

    def fill_a_disk(self) -> str:
        number = self._random.choice([self._leader(), self._anyone()])
        self._nodes[number].fill_disk()
        return f"of node {number}"

    def skew_clocks(self) -> str:
        told = []
        for number, node in self._nodes.items():
            seconds = self._random.choice(SKEWS_SECONDS)
            node.skew(seconds)
            told.append(f"{number}: {seconds:+d} s")
        return ", ".join(told)

    def _anyone(self) -> int:
        return self._random.choice(list(self._nodes))
