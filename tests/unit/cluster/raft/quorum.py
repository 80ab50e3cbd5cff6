"""A quorum for unit tests: messages arrive at once and in order, unless the test says otherwise."""

from __future__ import annotations

import random

from goqueue.cluster.raft import (
    Entry,
    EntryKind,
    HardState,
    Members,
    Message,
    Proposal,
    Raft,
    RaftSettings,
    RaftState,
    ReadDone,
    Ready,
    Snapshot,
)

SETTINGS = RaftSettings(heartbeat_ms=10, election_ms=100, entries_kept=0, promotion_lag_max=0)


class Quorum:
    def __init__(self, voters: int, *, spares: int = 0, settings: RaftSettings = SETTINGS) -> None:
        self.settings = settings
        self.now_ms = 0
        self.cut: set[int] = set()  # nodes that nobody hears and that hear nobody
        self.slow: set[int] = set()  # nodes whose disk does not answer
        self.sent: list[Message] = []
        self.on_the_way: list[Message] = []
        members = Members(tuple(range(voters)))
        self.nodes = {
            number: Raft(
                number,
                RaftState.new(members if number < voters else Members(())),
                settings,
                random.Random(number),
            )
            for number in range(voters + spares)
        }
        self.unsaved: dict[int, list[Ready]] = {number: [] for number in self.nodes}
        self.applied: dict[int, list[Entry]] = {number: [] for number in self.nodes}
        self.restored: dict[int, list[Snapshot]] = {number: [] for number in self.nodes}
        self.reads: list[ReadDone] = []
        self.reads_lost: list[int] = []

    def run(self, ms: int) -> None:
        for _ in range(ms // 5):
            self.now_ms += 5
            for node in self.nodes.values():
                node.tick(self.now_ms)
            self.settle()

    def elect(self, number: int) -> Raft:
        """Let one node's patience end first."""
        for one in self.nodes.values():
            one.tick(self.now_ms)
        node = self.nodes[number]
        self.now_ms = max(one.due_ms for one in self.nodes.values())
        node.tick(self.now_ms)
        self.settle()
        assert node.is_leader, f"{number} is {node.role}"
        return node

    def settle(self) -> None:
        """Let everything happen that is under way."""
        while self.work() or self.deliver():
            pass

    def work(self) -> bool:
        is_busy = False
        for number, node in self.nodes.items():
            while not (ready := node.take()).is_empty:
                is_busy = True
                self.send(ready.messages_now)
                self.applied[number] += ready.committed
                self.restored[number] += [ready.restored] if ready.restored else []
                self.reads += ready.reads
                self.reads_lost += ready.reads_lost
                if ready.needs_saving:
                    self.unsaved[number].append(ready)
            is_busy |= number not in self.slow and self.save(number)
        return is_busy

    def save(self, number: int) -> bool:
        """Let a disk finish."""
        readies, self.unsaved[number] = self.unsaved[number], []
        for ready in readies:
            self.send(ready.messages)
        if readies:
            self.nodes[number].saved(readies[-1].token)
        return bool(readies)

    def send(self, messages: list[Message]) -> None:
        self.sent += messages
        self.on_the_way += messages

    def deliver(self) -> bool:
        messages, self.on_the_way = self.on_the_way, []
        for message in messages:
            if not {message.sender, message.to} & self.cut:
                self.nodes[message.to].receive(message, self.now_ms)
        return bool(messages)

    def propose(self, number: int, payload: bytes) -> Proposal:
        proposal = self.nodes[number].propose(payload, self.now_ms)
        assert isinstance(proposal, Proposal)
        return proposal

    def payloads(self, number: int) -> list[bytes]:
        return [one.payload for one in self.applied[number] if one.kind is EntryKind.PAYLOAD]

    def leaders(self) -> list[int]:
        return [number for number, node in self.nodes.items() if node.is_leader]


def node_with(
    terms: list[int], *, voters: int = 3, number: int = 0, hard: HardState | None = None
) -> Raft:
    """A node whose log has entries of these terms."""
    state = RaftState.new(Members(tuple(range(voters))))
    state.entries = [
        Entry(index, term, EntryKind.PAYLOAD, b"%d" % index) for index, term in enumerate(terms, 1)
    ]
    state.hard = hard or HardState(terms[-1] if terms else 0, None)
    return Raft(number, state, SETTINGS, random.Random(0))
