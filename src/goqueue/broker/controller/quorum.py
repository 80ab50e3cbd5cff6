"""The driver of Raft and the controller: the replicated metadata log.

Raft returns what to send, save and apply; this module does it, with the given clock, disk and
network. On the Raft leader the controller decides commands, and its decisions are proposed. Other
nodes send their commands there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from goqueue.broker.controller.active_controller import (
    CONTROLLER_TICK_MS,
    ActiveController,
    Decided,
)
from goqueue.broker.controller.calls import ControllerCalls, QuorumReads, QuorumStates
from goqueue.broker.controller.metadata import Applied, AppliedMetadata
from goqueue.broker.controller.node import Environment
from goqueue.cluster.bootstrap import Formed
from goqueue.cluster.commands import CatchUp, ClusterCommand, Result
from goqueue.cluster.facts import ClusterFact, Decision, NodeFact
from goqueue.cluster.raft import messages as raft_messages
from goqueue.cluster.raft.core import Raft
from goqueue.cluster.raft.messages import Entry, Members
from goqueue.cluster.raft.ready import Ready, Snapshot
from goqueue.cluster.raft.storage import RaftStorage
from goqueue.cluster.topic_changes import InternalTopic
from goqueue.config import ClusterSettings
from goqueue.loop.alarm import Alarm
from goqueue.loop.clock import Clock
from goqueue.loop.peers import PeerKind
from goqueue.loop.promise import Promise
from goqueue.model.errors import GoQueueError, MalformedRequest, RequestTimedOut, StorageFull
from goqueue.partition import Partition

SNAPSHOT_ENTRIES = 10_000  # applied since the last snapshot; replaying so many is quick
SAVE_RETRY_MS = 100  # until a full disk has space again

_log = logging.getLogger(__name__)


class Quorum:
    """This node's part in the quorum: a voter, or a learner that only receives the log."""

    def __init__(
        self,
        raft: Raft,
        storage: RaftStorage,
        settings: ClusterSettings,
        environment: Environment,
        *,
        internal_topics: Sequence[InternalTopic],
        formed: Callable[[], Formed | None],
    ) -> None:
        """`formed` is the cluster as agreed on at bootstrap, once this node belongs to one."""
        self.node_id = raft.node_id
        self.support = environment.peers.support
        self.partitions: list[Partition] = []  # the log is not a partition
        self.failure: GoQueueError | None = None
        # Called with the reason when a decision of the cluster cannot be applied here.
        self.on_unable: Callable[[GoQueueError], None] = _nothing
        self._raft = raft
        self._clock = clock = environment.clock
        self._peers = peers = environment.peers
        self._applied = AppliedMetadata(raft.log.snapshot, environment.peers.support)
        self.metadata = self._applied.metadata
        self._active = ActiveController(
            raft,
            self._applied,
            settings,
            environment,
            internal_topics=internal_topics,
            formed=formed,
            wake=self._pump_soon,
        )
        self._reads = QuorumReads(raft, clock, self._pump_soon)
        self._calls = ControllerCalls(raft, self._applied, environment, decide=self._decide)
        self.states = QuorumStates(raft, clock, peers)
        self._saves = _Saves(storage, clock, saved=self._saved, failed=self._fail)
        self._alarm = Alarm(
            clock, name="quorum", next_deadline_ms=lambda: raft.due_ms, ring=self._ring
        )
        self._is_pumping = False
        self._is_started = False
        self._is_stopped = False
        self._snapshot_index = self._applied.index
        self._applied.on_applied(self._locate_all)
        peers.listen(PeerKind.QUORUM, self._receive)
        peers.on_gone(self._miss)

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
    def committed_index(self) -> int:
        return self._raft.commit_index

    @property
    def elections(self) -> int:
        """Return how often this node was a candidate since it started."""
        return self._raft.elections

    @property
    def applied_index(self) -> int:
        return self._applied.index

    @property
    def may_vote(self) -> bool:
        return self._raft.may_vote

    # Life cycle

    def begin(self, members: Members) -> None:
        """Set the initial members of a new cluster, once they are agreed on."""
        assert not self._is_started
        self._raft.begin(members)

    def start(self, *, may_vote: bool = True) -> None:
        """Take part, without votes unless `may_vote`."""
        self._is_started = True
        self._raft.may_vote = may_vote
        self._locate_all(tuple(self.metadata.nodes.values()))
        self._ring(self._clock.now_ms())
        self._tick_controller()

    def stop(self) -> None:
        """Stop taking part. Pending calls fail with a retryable error."""
        self._is_stopped = True
        self._saves.stop()
        self._calls.stop()
        self._reads.give_up()
        self._active.leave()
        self._applied.stop(RequestTimedOut("The node is stopping; retry on another node."))

    def add_contacts(self, nodes: Iterable[int]) -> None:
        """Add nodes to call while no leader is known."""
        self._calls.add_contacts(nodes)

    def on_applied(self, applied: Applied) -> None:
        self._applied.on_applied(applied)

    @property
    def _is_running(self) -> bool:
        return self._is_started and not self._is_stopped and self.failure is None

    def _ring(self, now_ms: int) -> None:
        if self._is_running:
            self._raft.tick(now_ms)
            self._pump()

    def _receive(self, sender: int, head: bytes, _: memoryview) -> None:
        if not self._is_running:
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
        if self._is_running:
            self._raft.miss(node, self._clock.now_ms())
            self._active.miss(node)
            self._pump()

    # Raft's output

    def _pump_soon(self) -> None:
        self._clock.call_soon(self._pump_if_running)

    def _pump_if_running(self) -> None:
        if self._is_running:
            self._pump()

    def _pump(self) -> None:
        """Perform Raft's output until there is nothing left to do at once."""
        if self._is_pumping:
            return  # Called from something that was applied; the loop below continues.
        self._is_pumping = True
        try:
            while self.failure is None and not (ready := self._raft.take()).is_empty:
                self._perform(ready)
        except GoQueueError as error:
            self._cannot_apply(error)
        finally:
            self._is_pumping = False
        if self.failure is not None:
            return
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
        if self.failure is not None:
            return
        for ready in readies:
            self._send(ready.messages)
        self._raft.saved(readies[-1].token)
        self._pump()

    def _fail(self, error: GoQueueError) -> None:
        self.failure = error
        self._reads.give_up()
        self._active.leave()

    def _cannot_apply(self, error: GoQueueError) -> None:
        """Stop taking part: this node would differ from the others if it went on.

        The entry is not applied, now or later, so an upgraded node finds the data as it is.
        """
        _log.error("this node has stopped: it cannot apply a decision of its cluster: %s", error)
        self._saves.stop()
        self._fail(error)
        self._applied.stop(RequestTimedOut("The node is stopping; retry on another node."))
        self.on_unable(error)

    # Applying

    def _apply(self, entry: Entry) -> None:
        decision = self._applied.apply(entry)
        self._active.applied(entry, decision)
        self._applied.settle()
        # A release that does not support a new level should fail when it starts, not later.
        is_raised = any(isinstance(change, ClusterFact) for change in decision)
        if is_raised or entry.index - self._snapshot_index >= SNAPSHOT_ENTRIES:
            self._snapshot_index = entry.index
            self._raft.compact(entry.index, self.metadata.snapshot())

    def _restore(self, snapshot: Snapshot) -> None:
        self._applied.restore(snapshot)
        self._snapshot_index = snapshot.last.index
        self._active.skipped_to(snapshot.last.index)
        self._applied.settle()

    def _locate_all(self, decision: Decision) -> None:
        """Note the addresses of nodes that have changed."""
        for fact in decision:
            address = fact.addresses.get("internal") if isinstance(fact, NodeFact) else None
            if isinstance(fact, NodeFact) and address is not None and fact.id != self.node_id:
                self._peers.locate(fact.id, address)
                self.add_contacts([fact.id])

    # The controller

    def _tick_controller(self) -> None:
        if self._is_stopped:
            return
        self._clock.call_later(CONTROLLER_TICK_MS, self._tick_controller)
        self._active.tick()

    def _decide(self, command: ClusterCommand) -> Promise[Decided] | None:
        """Pass a command to the controller, if this node is the controller."""
        if not self.is_controller:
            return None
        return self._reads.ask() if isinstance(command, CatchUp) else self._active.decide(command)

    # Commands

    def request(self, command: ClusterCommand) -> Promise[Result]:
        """Request a decision; resolves when it is in effect on this node."""
        return self._calls.request(command)

    def ask_once(self, command: ClusterCommand, *, timeout_ms: int) -> Promise[None]:
        """Send a command once, without retries, because it will be repeated anyway."""
        return self._calls.ask_once(command, timeout_ms=timeout_ms)

    def catch_up(self, *, timeout_ms: int) -> Promise[None]:
        """Resolve when this node has applied everything decided before the call; tried once."""
        return self._calls.catch_up(timeout_ms=timeout_ms)

    # Leadership transfer

    def hand_over(self) -> bool:
        """Transfer leadership to another voter, without a gap; return False if none can lead.

        Requests to this node meanwhile are refused and retried there.
        """
        successor = self._active.successor()
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


def _nothing(_: GoQueueError) -> None:
    """Ignore a failure; without a process around it, a node can only stop taking part."""


class _Saves:
    """Ordered writes of Raft's state to disk, in a thread, one at a time.

    What arrives during a write makes the next one.
    """

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
