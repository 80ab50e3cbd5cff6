"""A quorum in one thread: real cores and real storage on a virtual clock, a network and disks
that do everything that networks and disks do, all of it from one seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import msgspec

from goqueue.cluster.raft import (
    EntryKind,
    Members,
    Message,
    NotLeader,
    Proposal,
    Raft,
    RaftSettings,
    RaftStorage,
    Ready,
    Refused,
    decode,
    encode,
)
from tests.simulation.clock import Timer, VirtualClock
from tests.simulation.disk import PowerLost, SimulatedDisk
from tests.simulation.raft_checks import Checks
from tests.simulation.raft_history import Client, History

FOLDER = "quorum"
Outcome = Callable[[tuple[bytes, ...] | int | None], None]


class Voter:
    """One machine: a core, its storage, its disk, its own idea of time, a list as state."""

    def __init__(self, world: World, number: int) -> None:
        chance = world.random
        self.world = world
        self.id = number
        self.disk = SimulatedDisk(chance, survival=chance.choice((0.0, 0.5, 0.9)))
        self.rate = chance.choice((chance.uniform(0.9, 1.1), chance.uniform(0.5, 2.0)))
        self.offset_ms = chance.randrange(10_000_000)
        self.save_ms = 2.0
        self.is_up = self.is_paused = False
        self.life = 0
        self.durable_index = 0
        self.durable_terms: dict[int, int] = {}
        self.durable_snapshot_index = 0
        self.applied_index = 0
        self.state: list[bytes] = []
        self.raft: Raft
        self.storage: RaftStorage

    # Life

    def start(self) -> None:
        self.life += 1
        self.storage = RaftStorage(self.disk, FOLDER)
        try:
            state = self.storage.load() or self.storage.begin(self.world.first_members_of(self.id))
        except PowerLost:
            self.disk.crash()
            self.world.after(self.world.random.uniform(10, 300), self.start)
            return
        self.is_up, self.is_paused = True, False
        self.raft = Raft(self.id, state, self.world.settings, self.world.random)
        self.state = _unpack(state.snapshot.data)
        self.applied_index = state.snapshot.last.index
        self.durable_snapshot_index = state.snapshot.last.index
        self.durable_hard = state.hard
        self.durable_terms = {entry.index: entry.term for entry in state.entries}
        self.durable_index = state.base.index + len(state.entries)
        self.unsaved: list[Ready] = []
        self.is_saving = False
        self.proposals: dict[int, tuple[int, Outcome]] = {}
        self.reads: dict[int, Outcome] = {}
        self.reads_ready: list[tuple[int, Outcome]] = []
        self.inbox: list[Message] = []
        self.timer: Timer | None = None
        self.raft.tick(self.now_ms())
        self.pump()

    def crash(self) -> None:
        self.is_up = False
        self.life += 1
        if self.timer is not None:
            self.timer.cancel()
        self.disk.crash()

    def pause(self) -> None:
        """As SIGSTOP: nothing happens here, and everything that arrives waits."""
        self.is_paused = True

    def resume(self) -> None:
        if self.is_up and self.is_paused:
            self.is_paused = False
            inbox, self.inbox = self.inbox, []
            if self.world.random.random() < 0.5:
                self.raft.tick(self.now_ms())
            for message in inbox:
                self.raft.receive(message, self.now_ms())
                self.world.checks.stepped(self)
            self.pump()

    def now_ms(self) -> int:
        return self.offset_ms + int(self.world.clock.now_ms() * self.rate)

    def set_rate(self, rate: float) -> None:
        """Let the clock go on from where it is, faster or slower."""
        self.offset_ms += int(self.world.clock.now_ms() * (self.rate - rate))
        self.rate = rate

    # Inputs

    def receive(self, data: bytes) -> None:
        if not self.is_up:
            return
        message = decode(data)
        if self.is_paused:
            self.inbox.append(message)
        else:
            self.raft.receive(message, self.now_ms())
            self.pump()

    def append(self, value: bytes, done: Outcome) -> int | None:
        """Who leads instead (-1: nobody knows), or None when the value is on its way."""
        outcome = self.raft.propose(value, self.now_ms())
        if isinstance(outcome, Proposal):
            self.proposals[outcome.index] = (outcome.term, done)
            self.pump()
            return None
        done(None)
        return _leader_in(outcome)

    def read(self, done: Outcome) -> int | None:
        context = self.world.number()
        outcome = self.raft.read(context, self.now_ms())
        if outcome is not None:
            done(None)
            return _leader_in(outcome)
        self.reads[context] = done
        self.pump()
        return None

    def on_timer(self) -> None:
        self.timer = None
        if not self.is_paused:
            self.raft.tick(self.now_ms())
            self.pump()
        else:
            self.arm(50)

    # Work

    def pump(self) -> None:
        """Do what the core asks for until it asks for nothing."""
        life = self.life
        while self.is_up and self.life == life:
            ready = self.raft.take()
            if ready.is_empty:
                break
            self.world.checks.taken(self, ready)
            self.world.checks.messages(ready.messages_now)
            self.send(ready.messages_now)
            if ready.needs_saving:
                self.unsaved.append(ready)
            self.apply(ready)
        self.save()
        self.arm((self.raft.due_ms - self.now_ms()) / self.rate)

    def arm(self, delay_ms: float) -> None:
        at_us = self.world.now_us() + max(1, delay_ms) * 1000
        if self.timer is not None:
            if self.timer.at_us <= at_us:
                return
            self.timer.cancel()
        self.timer = self.world.after(max(1, delay_ms), self.alive(self.on_timer))

    def save(self) -> None:
        if self.is_saving or not self.unsaved:
            return
        batch, self.unsaved = self.unsaved, []
        self.is_saving = True
        chance = self.world.random

        def write() -> None:
            try:
                self.storage.save(batch)
            except PowerLost:
                self.crash()
                self.world.after(chance.uniform(10, 500), self.start_again)
                return
            for ready in batch:
                self.note_durable(ready)
                self.world.checks.messages(ready.messages)
            self.world.after(chance.uniform(0, 1), self.alive(lambda: self.saved(batch)))

        self.world.after(chance.uniform(0, self.save_ms), self.alive(write))

    def saved(self, batch: list[Ready]) -> None:
        self.is_saving = False
        for ready in batch:
            self.send(ready.messages)
        self.raft.saved(batch[-1].token)
        self.pump()

    def start_again(self) -> None:
        if not self.is_up:
            self.start()

    def apply(self, ready: Ready) -> None:
        if ready.restored is not None:
            self.state = _unpack(ready.restored.data)
            self.applied_index = ready.restored.last.index + len(ready.committed)
        for entry in ready.committed:
            if entry.kind is EntryKind.PAYLOAD:
                self.state.append(entry.payload)
            term, done = self.proposals.pop(entry.index, (0, None))
            if done is not None:
                done(entry.index if term == entry.term else None)
        for read in ready.reads:
            self.reads_ready.append((read.index, self.reads.pop(read.context)))
        for context in ready.reads_lost:
            self.reads.pop(context)(None)
        due = [one for one in self.reads_ready if one[0] <= self.applied_index]
        self.reads_ready = [one for one in self.reads_ready if one[0] > self.applied_index]
        for _, done in due:
            done(tuple(self.state))
        snapshot_index = self.raft.log.snapshot.last.index
        if self.applied_index - snapshot_index >= self.world.compaction_entries:
            self.compact()

    def compact(self) -> None:
        self.raft.compact(self.applied_index, msgspec.msgpack.encode(self.state))

    def send(self, messages: list[Message]) -> None:
        for message in messages:
            self.world.send(message)

    # What the checks ask

    def note_durable(self, ready: Ready) -> None:
        self.durable_hard = ready.hard_state or self.durable_hard
        if ready.snapshot is not None:
            self.durable_snapshot_index = ready.snapshot.last.index
            self.durable_terms.clear()
            assert ready.base is not None
            self.durable_index = ready.base.index
        if ready.truncate_from is not None:
            for index in [one for one in self.durable_terms if one >= ready.truncate_from]:
                del self.durable_terms[index]
        for entry in ready.entries:
            self.durable_terms[entry.index] = entry.term
            self.durable_index = entry.index

    def has_durably(self, index: int, term: int) -> bool:
        return self.durable_terms.get(index) == term or index <= self.durable_snapshot_index

    def alive(self, action: Callable[[], None]) -> Callable[[], None]:
        """The action, unless the node has died in between."""
        life = self.life
        return lambda: action() if self.life == life else None


class World:
    def __init__(self, seed: int, *, voters: int, spares: int = 0) -> None:
        """So many first voters, and `spares` that are no members until someone adds them."""
        self.seed = seed
        self.random = chance = random.Random(seed)
        self.clock = VirtualClock(chance)
        self.settings = replace(
            RaftSettings(heartbeat_ms=40, election_ms=200),
            append_entries_max=chance.choice((1, 3, 100)),
            appends_in_flight_max=chance.choice((1, 4, 16)),
            snapshot_chunk_bytes=chance.choice((20, 100, 10_000)),
            entries_kept=chance.choice((0, 5, 30)),
            committed_entries_max=chance.choice((1, 5, 1_000)),
            promotion_lag_max=chance.choice((0, 10)),
        )
        self.compaction_entries = chance.choice((5, 20, 1_000_000))
        self.first_voters = tuple(range(voters))
        self.loss = self.duplication = self.late = 0.0
        self.delay_ms = 2.0
        self.cut: set[tuple[int, int]] = set()
        self.checks = Checks(self)
        self.history = History()
        self.sent = 0
        self._number = 0
        self.voters = {number: Voter(self, number) for number in range(voters + spares)}
        for node in self.voters.values():
            node.start()
        self.clients = [Client(self, name) for name in range(3)]

    def first_members_of(self, number: int) -> Members:
        return Members(self.first_voters if number in self.first_voters else ())

    def number(self) -> int:
        self._number += 1
        return self._number

    def now_us(self) -> int:
        return self.clock._now_us

    def after(self, delay_ms: float, action: Callable[[], None]) -> Timer:
        return self.clock.call_later(delay_ms, action)

    def send(self, message: Message) -> None:
        self.sent += 1
        copies = 1 + (self.random.random() < self.duplication)
        for _ in range(copies):
            if (message.sender, message.to) in self.cut or self.random.random() < self.loss:
                continue
            delay_ms = self.random.uniform(0.2, self.delay_ms)
            if self.random.random() < self.late:
                delay_ms += self.random.uniform(0, 1_500)
            data = encode(message)
            target = self.voters[message.to]
            self.after(delay_ms, lambda data=data, target=target: target.receive(data))

    def leader(self) -> Voter | None:
        """The leader of the newest term, if it is up."""
        leaders = [node for node in self.voters.values() if node.is_up and node.raft.is_leader]
        return max(leaders, key=lambda node: node.raft.term, default=None)


def _leader_in(outcome: NotLeader | Refused) -> int:
    if isinstance(outcome, NotLeader) and outcome.leader_id is not None:
        return outcome.leader_id
    return -1


def _unpack(data: bytes) -> list[bytes]:
    return msgspec.msgpack.decode(data, type=list[bytes]) if data else []
