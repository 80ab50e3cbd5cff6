"""The driver of Raft and the controller: the replicated metadata log.

Raft returns what to send, save and apply; this module does it, with the given clock, disk and
network. On the Raft leader the controller decides commands, and its decisions are proposed. Other
nodes send their commands there. A command resolves on the calling node when its decision has been
applied there too, so that the caller sees its effect.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import Random

from goqueue.broker.controller.active_controller import (
    CONTROLLER_TICK_MS,
    ActiveController,
    Decided,
    QuorumMembers,
)
from goqueue.broker.controller.calls import QuorumCalls, QuorumReads, QuorumRequests, QuorumStates
from goqueue.broker.controller.metadata import Applied
from goqueue.cluster.commands import CatchUp, ClusterCommand, Result
from goqueue.cluster.facts import (
    TOPIC_PREFIX,
    Change,
    Decision,
    Forget,
    NodeFact,
    decode_decision,
)
from goqueue.cluster.metadata import Metadata
from goqueue.cluster.raft import messages as raft_messages
from goqueue.cluster.raft.core import Raft
from goqueue.cluster.raft.messages import Entry, EntryKind, Members
from goqueue.cluster.raft.ready import RaftState, Ready, Snapshot
from goqueue.cluster.raft.settings import RaftSettings
from goqueue.cluster.raft.storage import RaftStorage
from goqueue.cluster.topic_changes import InternalTopic
from goqueue.config import ClusterSettings
from goqueue.loop.alarm import Alarm
from goqueue.loop.clock import Clock
from goqueue.loop.peers import PeerKind, Peers
from goqueue.loop.promise import Promise
from goqueue.model.errors import GoQueueError, MalformedRequest, RequestTimedOut, StorageFull
from goqueue.partition import Partition

SNAPSHOT_ENTRIES = 10_000  # applied since the last snapshot; replaying so many is quick

_log = logging.getLogger(__name__)


class Quorum:
    """This node's part in the quorum: a voter, or a learner that only receives the log."""

    def __init__(
        self,
        node_id: int,
        storage: RaftStorage,
        state: RaftState,
        settings: ClusterSettings,
        clock: Clock,
        peers: Peers,
        random: Random,
        *,
        contacts: Sequence[int],
        internal_topics: Sequence[InternalTopic],
        new_id: Callable[[], bytes],
        new_cluster_id: Callable[[], str],
        initial_disk: Callable[[int], bytes | None] = lambda node: None,
        raft_settings: RaftSettings | None = None,
    ) -> None:
        """`contacts` are nodes to call while no leader is known.

        `initial_disk` returns the disk with which a node was an initial voter, or None.
        """
        self.node_id = node_id
        self.metadata = Metadata()
        self.partitions: list[Partition] = []  # the log is not a partition
        self.applied_index = state.snapshot.last.index
        if state.snapshot.data:
            self.metadata.restore(state.snapshot.data)
        self.failure: GoQueueError | None = None
        self._clock = clock
        self._peers = peers
        self._raft_settings = raft_settings or RaftSettings.for_session(settings.session_ms)
        self._raft = Raft(node_id, state, self._raft_settings, random)
        self._random = random
        self._members = QuorumMembers(
            lambda: self._raft,
            self.metadata,
            clock,
            peers,
            initial_disk=initial_disk,
            proposed=lambda index: self._active.members_proposed(index),
        )
        self._active = ActiveController(
            lambda: self._raft,
            self.metadata,
            settings,
            clock,
            peers,
            self._members,
            internal_topics=internal_topics,
            new_id=new_id,
            new_cluster_id=new_cluster_id,
            applied_index=lambda: self.applied_index,
            proposed=lambda: clock.call_soon(self._pump_unless_stopped),
        )
        self._reads = QuorumReads(
            lambda: self._raft,
            clock,
            asked=lambda: clock.call_soon(self._pump_unless_stopped),
        )
        self._calls = QuorumCalls(
            node_id,
            peers,
            random,
            contacts=contacts,
            leader=lambda: self._raft.leader_id,
            decide=self._decide,
        )
        self._asked = QuorumRequests(clock, ask=self._calls.ask, when_applied=self.when_applied)
        self._applied: list[Applied] = []
        self._waiting: dict[int, list[Promise[None]]] = {}
        self._saves = QuorumSaves(storage, clock, saved=self._saved, failed=self._fail)
        self._is_pumping = False
        self._is_started = False
        self._is_stopped = False
        self._snapshot_index = self.applied_index
        self._alarm = Alarm(
            clock,
            name="quorum",
            next_deadline_ms=lambda: self._raft.due_ms,
            ring=self._ring,
        )
        peers.listen(PeerKind.QUORUM, self._receive)
        peers.on_gone(self._miss)
        self.states = QuorumStates(node_id, lambda: self._raft, clock, peers)

    # State

    @property
    def leader(self) -> int:
        """Return the controller, as far as this node knows; -1 if unknown."""
        leader = self._raft.leader_id
        return -1 if leader is None else leader

    @property
    def is_controller(self) -> bool:
        return self._active.controller is not None

    @property
    def voters(self) -> tuple[int, ...]:
        return self._raft.members.voters

    @property
    def members(self) -> Members:
        return self._raft.members

    @property
    def term(self) -> int:
        return self._raft.term

    @property
    def may_vote(self) -> bool:
        return self._raft.may_vote

    @may_vote.setter
    def may_vote(self, is_allowed: bool) -> None:
        self._raft.may_vote = is_allowed

    # Life cycle

    def begin(self, state: RaftState) -> None:
        """Set the initial state, once the initial members are agreed on."""
        assert not self._is_started
        assert not state.snapshot.data
        self._raft = Raft(self.node_id, state, self._raft_settings, self._random)

    def start(self) -> None:
        self._is_started = True
        for fact in self.metadata.nodes.values():
            self._locate(fact)
        self._ring(self._clock.now_ms())
        self._tick_controller()

    def stop(self) -> None:
        """Stop taking part. Pending calls fail with a retryable error."""
        self._is_stopped = True
        self._saves.stop()
        self._calls.stop()
        self._asked.stop()
        self._reads.give_up()
        self._active.leave()
        error = RequestTimedOut("The node is stopping; retry on another node.")
        waiting, self._waiting = self._waiting, {}
        for promises in waiting.values():
            for promise in promises:
                promise.reject(error)

    def add_contacts(self, nodes: Iterable[int]) -> None:
        """Add nodes to call while no leader is known."""
        self._calls.add_contacts(nodes)

    def on_applied(self, applied: Applied) -> None:
        self._applied.append(applied)

    def _ring(self, now_ms: int) -> None:
        if not self._is_stopped and self.failure is None:
            self._raft.tick(now_ms)
            self._pump()

    def _receive(self, sender: int, head: bytes, _: memoryview) -> None:
        if not self._is_started or self._is_stopped or self.failure is not None:
            return
        try:
            message = raft_messages.decode(head)
            if message.sender != sender:
                raise MalformedRequest(f"The message names node {message.sender} as its sender.")
            self._raft.receive(message, self._clock.now_ms())
        except MalformedRequest as error:
            _log.warning("node %d: %s", sender, error)
            return
        self._pump()

    def _miss(self, node: int) -> None:
        """Handle a node that is gone, without waiting for time-outs."""
        if self._is_started and not self._is_stopped and self.failure is None:
            self._raft.miss(node, self._clock.now_ms())
            self._active.miss(node)
            self._pump()

    # Raft's output

    def _pump(self) -> None:
        """Perform Raft's output until there is nothing left to do at once."""
        if self._is_pumping:
            return  # Called from something that was applied; the loop below continues.
        self._is_pumping = True
        try:
            while not (ready := self._raft.take()).is_empty:
                self._perform(ready)
        finally:
            self._is_pumping = False
        self._active.leave_unless_leading()
        self._saves.begin()
        self._alarm.set()

    def _perform(self, ready: Ready) -> None:
        self._send(ready.messages_now)
        if ready.needs_saving:
            self._saves.add(ready)
        if ready.restored is not None:
            self._restore(ready.restored)
        for entry in ready.committed:
            self._apply(entry)
        self._reads.settle(ready)

    def _send(self, messages: Iterable[raft_messages.Message]) -> None:
        for message in messages:
            self._peers.notify(message.to, PeerKind.QUORUM, raft_messages.encode(message))

    def _saved(self, readies: list[Ready]) -> None:
        for ready in readies:
            self._send(ready.messages)
        self._raft.saved(readies[-1].token)
        self._pump()

    def _fail(self, error: GoQueueError) -> None:
        self.failure = error
        self._reads.give_up()
        self._active.leave()

    # Applying

    def _apply(self, entry: Entry) -> None:
        self.applied_index = entry.index
        decision: Decision = ()
        if entry.kind is EntryKind.PAYLOAD:
            decision = decode_decision(entry.payload)
            self._take_over(decision)
        self._active.applied(entry, decision)
        self._tell_waiting()
        if entry.index - self._snapshot_index >= SNAPSHOT_ENTRIES:
            self._snapshot_index = entry.index
            self._raft.compact(entry.index, self.metadata.snapshot())

    def _take_over(self, decision: Decision) -> None:
        self.metadata.apply_all(decision)
        for change in decision:
            if isinstance(change, NodeFact):
                self._locate(change)
        for applied in self._applied:
            applied(decision)

    def _restore(self, snapshot: Snapshot) -> None:
        """Replace the whole state by a snapshot, because this node was too far behind."""
        before = {topic.id: topic for topic in self.metadata.topics()}
        self.metadata.restore(snapshot.data)
        self.applied_index = self._snapshot_index = snapshot.last.index
        after = {topic.id for topic in self.metadata.topics()}
        gone = [
            Forget(TOPIC_PREFIX + one.name.encode())
            for one in before.values()
            if one.id not in after
        ]
        changes: list[Change] = [*gone, *self.metadata.facts()]
        for change in changes:
            if isinstance(change, NodeFact):
                self._locate(change)
        for applied in self._applied:
            applied(tuple(changes))
        self._active.skipped_to(self.applied_index)
        self._tell_waiting()

    def _locate(self, fact: NodeFact) -> None:
        address = fact.addresses.get("internal")
        if address is not None and fact.id != self.node_id:
            self._peers.locate(fact.id, address)
            self.add_contacts([fact.id])

    def _tell_waiting(self) -> None:
        due = [index for index in self._waiting if index <= self.applied_index]
        for index in sorted(due):
            for promise in self._waiting.pop(index):
                promise.resolve(None)

    def when_applied(self, index: int) -> Promise[None]:
        """Return a promise that resolves when this node has applied the entry at `index`."""
        promise: Promise[None] = Promise()
        if index <= self.applied_index:
            promise.resolve(None)
        else:
            self._waiting.setdefault(index, []).append(promise)
        return promise

    # The controller

    def _tick_controller(self) -> None:
        if self._is_stopped:
            return
        self._clock.call_later(CONTROLLER_TICK_MS, self._tick_controller)
        self._active.tick()

    def _pump_unless_stopped(self) -> None:
        if not self._is_stopped and self.failure is None:
            self._pump()

    # Commands

    def request(self, command: ClusterCommand) -> Promise[Result]:
        """Request a decision; resolves when it is in effect on this node."""
        return self._asked.request(command)

    def ask_once(self, command: ClusterCommand, *, timeout_ms: int) -> Promise[None]:
        """Send a command once, without retries, because it will be repeated anyway."""
        done: Promise[None] = Promise()
        try:
            asked = self._calls.ask(command, timeout_ms)
        except GoQueueError as error:
            done.reject(error)
        else:
            asked.then(lambda _, error: done.settle(None, error))
        return done

    def catch_up(self, *, timeout_ms: int) -> Promise[None]:
        """Resolve when this node has applied everything decided before the call; tried once."""
        done: Promise[None] = Promise()

        def answered(decided: Decided | None, error: Exception | None) -> None:
            if decided is None:
                assert error is not None
                done.reject(error)
            else:
                self.when_applied(decided[0]).then(done.settle)

        try:
            self._calls.ask(CatchUp(), timeout_ms).then(answered)
        except GoQueueError as error:
            done.reject(error)
        return done

    # Leadership transfer

    def hand_over(self) -> bool:
        """Transfer leadership to another voter, without a gap; return False if none can lead.

        Requests to this node meanwhile are refused and retried there.
        """
        successor = self._members.successor()
        if successor is None or not self._raft.is_leader or self._is_stopped:
            return False
        self._raft.transfer(successor, self._clock.now_ms())
        self._pump()
        return True

    # Readmission as a voter

    def admit(self, disk: bytes) -> bool:
        """Allow this node to vote, if its log durably shows that this disk is registered."""
        fact = self.metadata.nodes.get(self.node_id)
        if fact is None or fact.disk != disk or self._raft.log.saved_index < self.applied_index:
            return False
        self._raft.may_vote = True
        return True

    def _decide(self, command: ClusterCommand) -> Promise[Decided] | None:
        """Pass a command to the controller, if this node is the controller."""
        if not self.is_controller:
            return None
        return self._reads.ask() if isinstance(command, CatchUp) else self._active.decide(command)


SAVE_RETRY_MS = 100  # until a full disk has space again

_log = logging.getLogger(__name__)


class QuorumSaves:
    """One write at a time, in a thread."""

    def __init__(
        self,
        storage: RaftStorage,
        clock: Clock,
        *,
        saved: Callable[[list[Ready]], None],
        failed: Callable[[GoQueueError], None],
    ) -> None:
        """`failed` is called once; after it nothing is written any more."""
        self._storage = storage
        self._clock = clock
        self._on_saved = saved
        self._on_failed = failed
        self._unsaved: list[Ready] = []
        self._is_saving = False
        self._is_over = False

    def add(self, ready: Ready) -> None:
        self._unsaved.append(ready)

    def stop(self) -> None:
        """Write nothing more, and report no completion of a write in progress."""
        self._is_over = True

    def begin(self) -> None:
        """Write what has accumulated, unless a write is in progress."""
        if self._is_saving or not self._unsaved or self._is_over:
            return
        self._is_saving = True
        readies, self._unsaved = self._unsaved, []
        self._clock.run_blocking(partial(self._storage.save, readies), partial(self._done, readies))

    def _done(self, readies: list[Ready], _: object, error: Exception | None) -> None:
        self._is_saving = False
        if self._is_over:
            return
        if isinstance(error, StorageFull):
            _log.error("the quorum's log cannot be written, retrying: %s", error)
            self._unsaved[:0] = readies
            self._clock.call_later(SAVE_RETRY_MS, self.begin)
        elif isinstance(error, GoQueueError):
            # The content of the disk is unknown, so no promise can be made until the next start.
            _log.error("this node has stopped taking part in the quorum: %s", error)
            self._is_over = True
            self._on_failed(error)
        elif error is not None:
            raise error
        else:
            self._on_saved(readies)
