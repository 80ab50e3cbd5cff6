"""The log of facts that several nodes agree on: Raft and the controller, driven.

Raft says what to send, to save and to apply; this does it, on the clock, disk and network it is
given. Where Raft leads, the controller decides commands, and what it decides is proposed. Every
other node sends its commands there. A command is answered where it was asked when what it brought
about has been applied there too, so that whoever asked sees it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

import msgspec

from goqueue.broker.alarm import Alarm
from goqueue.broker.facts import Applied
from goqueue.broker.peers import Answer, Answered, PeerKind, Peers
from goqueue.broker.promise import Promise
from goqueue.broker.quorum_members import QuorumMembers
from goqueue.broker.quorum_requests import QuorumRequests
from goqueue.broker.scheduler import Scheduler
from goqueue.cluster.commands import (
    ChangeVoter,
    ClusterCommand,
    RegisterNode,
    Result,
    UnregisterNode,
    decode_command,
    encode_command,
)
from goqueue.cluster.controller import Controller
from goqueue.cluster.deciding import decide
from goqueue.cluster.facts import (
    TOPIC_PREFIX,
    Change,
    ClusterFact,
    Decision,
    Forget,
    NodeFact,
    decode_decision,
    encode_decision,
)
from goqueue.cluster.metadata import Metadata
from goqueue.cluster.raft import messages as raft_messages
from goqueue.cluster.raft.core import Raft
from goqueue.cluster.raft.messages import Entry, EntryKind, Members
from goqueue.cluster.raft.ready import (
    Proposal,
    RaftState,
    Ready,
    Snapshot,
)
from goqueue.cluster.raft.settings import RaftSettings
from goqueue.cluster.raft.storage import RaftStorage
from goqueue.cluster.topic_changes import InternalTopic
from goqueue.config import ClusterSettings
from goqueue.model.errors import (
    GoQueueError,
    MalformedRequest,
    NotController,
    RequestTimedOut,
    StorageFull,
)
from goqueue.partition import Partition

RETRY_MS = 100
CONTROLLER_TICK_MS = 100
FIRST_NODES_MS_MAX = 5_000  # that internal topics wait for all voters to be there
SNAPSHOT_ENTRIES = 10_000  # applied since the last snapshot; reading so many again is quick

_log = logging.getLogger(__name__)

_answer_encoder = msgspec.msgpack.Encoder()
_answer_decoder = msgspec.msgpack.Decoder(tuple[int, Result])


@dataclass(slots=True)
class _Proposed:
    """An entry of this node that is not yet known to be committed."""

    term: int
    done: Promise[tuple[int, Result]]
    result: Result


class Quorum:
    """This node's part in the quorum: voter, or learner that only follows the log."""

    def __init__(
        self,
        node_id: int,
        storage: RaftStorage,
        state: RaftState,
        settings: ClusterSettings,
        scheduler: Scheduler,
        peers: Peers,
        random: Random,
        *,
        contacts: Sequence[int],
        internal_topics: Sequence[InternalTopic],
        new_id: Callable[[], bytes],
        new_cluster_id: Callable[[], str],
        founder_disk: Callable[[int], bytes | None] = lambda node: None,
        raft_settings: RaftSettings | None = None,
    ) -> None:
        """`contacts` are nodes to ask while no leader is known.

        `founder_disk` tells with which disk a node was a first voter, if it was.
        """
        self.node_id = node_id
        self.metadata = Metadata()
        self.partitions: list[Partition] = []  # Its log is no partition.
        self.applied_index = state.snapshot.last.index
        if state.snapshot.data:
            self.metadata.restore(state.snapshot.data)
        self.failure: GoQueueError | None = None
        self._storage = storage
        self._settings = settings
        self._scheduler = scheduler
        self._peers = peers
        self._contacts = [node for node in contacts if node != node_id]
        self._internal_topics = internal_topics
        self._new_id = new_id
        self._new_cluster_id = new_cluster_id
        self._raft_settings = raft_settings or RaftSettings()
        self._raft = Raft(node_id, state, self._raft_settings, random)
        self._random = random
        self._members = QuorumMembers(
            lambda: self._raft,
            self.metadata,
            scheduler,
            peers,
            founder_disk=founder_disk,
            proposed=self._member_proposed,
        )
        self._asked = QuorumRequests(scheduler, ask=self._ask, when_applied=self.when_applied)
        self._controller: Controller | None = None
        self._controller_term = -1
        self._office_ms = 0
        self._proposed: dict[int, _Proposed] = {}
        self._last_proposed = 0
        self._applied: list[Applied] = []
        self._waiting: dict[int, list[Promise[None]]] = {}
        self._unsaved: list[Ready] = []
        self._is_saving = False
        self._is_pumping = False
        self._is_started = False
        self._is_stopped = False
        self._snapshot_index = self.applied_index
        self._alarm = Alarm(
            scheduler,
            name="quorum",
            next_deadline_ms=lambda: self._raft.due_ms,
            ring=self._ring,
        )
        peers.listen(PeerKind.QUORUM, self._receive)
        peers.serve(PeerKind.COMMAND, self._serve_command)

    # What is known

    @property
    def leader(self) -> int:
        """Who decides for the cluster, as far as is known here; -1 while nobody is."""
        leader = self._raft.leader_id
        return -1 if leader is None else leader

    @property
    def is_controller(self) -> bool:
        return self._controller is not None

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

    # Life

    def begin(self, state: RaftState) -> None:
        """Who the first members are was not known when this was made; now it can start."""
        assert not self._is_started
        assert not state.snapshot.data
        self._raft = Raft(self.node_id, state, self._raft_settings, self._random)

    def start(self) -> None:
        self._is_started = True
        for fact in self.metadata.nodes.values():
            self._locate(fact)
        self._ring(self._scheduler.now_ms())
        self._tick_controller()

    def stop(self) -> None:
        """Take no further part. Whoever waits here is told to ask again."""
        self._is_stopped = True
        self._asked.stop()
        self._leave_office()
        error = RequestTimedOut("The node is stopping; ask another one.")
        waiting, self._waiting = self._waiting, {}
        for promises in waiting.values():
            for promise in promises:
                promise.reject(error)

    def add_contacts(self, nodes: Iterable[int]) -> None:
        """These can be asked too while no leader is known."""
        self._contacts += [
            one for one in nodes if one != self.node_id and one not in self._contacts
        ]

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
            self._raft.receive(raft_messages.decode(head), self._scheduler.now_ms())
        except MalformedRequest as error:
            _log.warning("node %d: %s", sender, error)
            return
        self._pump()

    # Raft's work

    def _pump(self) -> None:
        """Do what Raft wants done, until there is nothing left to do at once."""
        if self._is_pumping:
            return  # Something that was applied has led here; the loop below goes on.
        self._is_pumping = True
        try:
            while not (ready := self._raft.take()).is_empty:
                self._perform(ready)
        finally:
            self._is_pumping = False
        if not self._raft.is_leader or self._raft.term != self._controller_term:
            self._leave_office()
        self._save()
        self._alarm.set()

    def _perform(self, ready: Ready) -> None:
        self._send(ready.messages_now)
        if ready.needs_saving:
            self._unsaved.append(ready)
        if ready.restored is not None:
            self._restore(ready.restored)
        for entry in ready.committed:
            self._apply(entry)

    def _send(self, messages: Iterable[raft_messages.Message]) -> None:
        for message in messages:
            self._peers.notify(message.to, PeerKind.QUORUM, raft_messages.encode(message))

    def _save(self) -> None:
        if self._is_saving or not self._unsaved or self.failure is not None:
            return
        self._is_saving = True
        readies, self._unsaved = self._unsaved, []
        self._scheduler.run_blocking(
            partial(self._storage.save, readies), partial(self._saved, readies)
        )

    def _saved(self, readies: list[Ready], _: object, error: Exception | None) -> None:
        self._is_saving = False
        if self._is_stopped:
            return
        if isinstance(error, StorageFull):
            _log.error("the quorum's log cannot be written, trying again: %s", error)
            self._unsaved[:0] = readies
            self._scheduler.call_later(RETRY_MS, self._save)
            return
        if isinstance(error, GoQueueError):
            # What is on the disk is unknown, so no promise can be made until the next start.
            _log.error("this node takes no further part in the quorum: %s", error)
            self.failure = error
            self._leave_office()
            return
        if error is not None:
            raise error
        for ready in readies:
            self._send(ready.messages)
        self._raft.saved(readies[-1].token)
        self._pump()

    # Applying

    def _apply(self, entry: Entry) -> None:
        self.applied_index = entry.index
        decision: Decision = ()
        if entry.kind is EntryKind.PAYLOAD:
            decision = decode_decision(entry.payload)
            self._take_over(decision)
        is_own = self._raft.is_leader and entry.term == self._raft.term
        if self._controller is not None and is_own:
            self._controller.applied(entry.index, decision)
        elif is_own and entry.index >= self._last_proposed:
            self._take_office(entry.index)
        proposed = self._proposed.pop(entry.index, None)
        if proposed is not None:
            if proposed.term == entry.term:
                proposed.done.resolve((entry.index, proposed.result))
            else:
                proposed.done.reject(NotController(self.leader))
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
        """This node was too far behind: the whole state has come at once."""
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
        lost = [index for index in self._proposed if index <= self.applied_index]
        for index in lost:
            self._proposed.pop(index).done.reject(NotController(self.leader))
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
        """Kept when this node has applied the entry at `index`."""
        promise: Promise[None] = Promise()
        if index <= self.applied_index:
            promise.resolve(None)
        else:
            self._waiting.setdefault(index, []).append(promise)
        return promise

    # The controller

    def _take_office(self, index: int) -> None:
        """Raft leads, and all that earlier leaders have decided is applied: decide from here on."""
        now_ms = self._scheduler.now_ms()
        self._controller = Controller(
            self.metadata,
            self._settings,
            index=index,
            now_ms=now_ms,
            internal_topics=self._internal_topics,
        )
        self._controller_term = self._raft.term
        self._office_ms = now_ms
        _log.info("node %d is the controller of term %d", self.node_id, self._raft.term)
        if self.metadata.cluster is None:
            self._decide_own(
                lambda controller: controller.record([ClusterFact(self._new_cluster_id())])
            )

    def _retake_office(self) -> None:
        """A controller gave up over a proposal that was refused, and Raft still leads."""
        if self._raft.is_settled and self.applied_index == self._raft.log.last_index:
            self._take_office(self.applied_index)

    def _leave_office(self) -> None:
        """Another leads, or nobody. What was proposed may get lost; whoever waits asks there."""
        self._last_proposed = 0
        if self._controller is not None:
            self._controller = None
            _log.info("node %d is no longer the controller", self.node_id)
        proposed, self._proposed = self._proposed, {}
        for one in proposed.values():
            one.done.reject(NotController(self.leader))

    def _tick_controller(self) -> None:
        if self._is_stopped:
            return
        self._scheduler.call_later(CONTROLLER_TICK_MS, self._tick_controller)
        now_ms = self._scheduler.now_ms()
        if self._raft.is_leader and self._controller is None:
            self._retake_office()
        self._decide_own(lambda controller: controller.tick(now_ms))
        if self._controller is not None:
            self._members.promote()
        if self._controller is not None and self._lacks_internal_topics():
            self._decide_own(lambda controller: controller.create_internal_topics(self._new_id))

    def _lacks_internal_topics(self) -> bool:
        assert self._controller is not None
        known = self._controller.metadata
        alive = sum(not node.is_fenced for node in known.nodes.values())
        members = self._raft.members
        # Whoever registers a moment later should have copies too: with too few of them, the next
        # node that is lost would be one too many.
        is_late = self._scheduler.now_ms() - self._office_ms >= FIRST_NODES_MS_MAX
        wanted = members.majority if is_late else len(members.voters)
        return alive >= wanted and any(
            known.topic(topic.name) is None for topic in self._internal_topics
        )

    def _decide_own(self, decide_it: Callable[[Controller], Decision]) -> None:
        """Something that the controller decides by itself; nobody waits for it."""
        if self._controller is None:
            return
        decision = decide_it(self._controller)
        if decision:
            self._propose(decision, None).then(_log_lost)

    def _propose(self, decision: Decision, result: Result) -> Promise[tuple[int, Result]]:
        """Have a decision of this controller committed."""
        done: Promise[tuple[int, Result]] = Promise()
        if not decision:
            # It follows from what was decided before, which must be committed first.
            index = self._last_proposed
            self.when_applied(index).then(
                lambda _, error: done.settle(None if error else (index, result), error)
            )
            return done
        outcome = self._raft.propose(encode_decision(decision), self._scheduler.now_ms())
        if not isinstance(outcome, Proposal):
            # It has decided what will never be: let another begin with what is committed.
            self._controller = None
            done.reject(NotController(-1))
            return done
        self._last_proposed = outcome.index
        self._proposed[outcome.index] = _Proposed(outcome.term, done, result)
        self._scheduler.call_soon(self._pump_unless_stopped)
        return done

    def _member_proposed(self, index: int) -> None:
        self._last_proposed = index
        self._scheduler.call_soon(self._pump_unless_stopped)

    def _pump_unless_stopped(self) -> None:
        if not self._is_stopped and self.failure is None:
            self._pump()

    # Commands

    def request(self, command: ClusterCommand) -> Promise[Result]:
        """Have something decided; kept when that is in effect on this node."""
        return self._asked.request(command)

    def ask_once(self, command: ClusterCommand, *, timeout_ms: int) -> Promise[None]:
        """Tell the controller something that will be told again anyway."""
        done: Promise[None] = Promise()
        try:
            asked = self._ask(command, timeout_ms)
        except GoQueueError as error:
            done.reject(error)
        else:
            asked.then(lambda _, error: done.settle(None, error))
        return done

    def _ask(self, command: ClusterCommand, timeout_ms: int) -> Promise[tuple[int, Result]]:
        if self._is_stopped:
            raise RequestTimedOut("The node is stopping; ask another one.")
        if self._controller is not None:
            return self._decide(command)
        target = self._raft.leader_id
        if target is None or target == self.node_id:
            if not self._contacts:
                raise NotController(-1)
            target = self._random.choice(self._contacts)
        done: Promise[tuple[int, Result]] = Promise()

        def answered(answer: Answered | None, error: Exception | None) -> None:
            if answer is None:
                assert error is not None
                done.reject(error)
            else:
                done.resolve(_answer_decoder.decode(answer.head))

        called = self._peers.call(
            target, PeerKind.COMMAND, encode_command(command), timeout_ms=timeout_ms
        )
        called.then(answered)
        return done

    def _decide(self, command: ClusterCommand) -> Promise[tuple[int, Result]]:
        assert self._controller is not None
        if isinstance(command, RegisterNode):
            self._members.welcome(self._controller, command)
        elif isinstance(command, UnregisterNode):
            self._members.dismiss(self._controller, command.node)
        elif isinstance(command, ChangeVoter):
            self._members.change_voter(command)
            return self._propose((), None)
        decision, result = decide(
            self._controller,
            command,
            replication_factor=self._settings.replication_factor,
            now_ms=self._scheduler.now_ms(),
        )
        return self._propose(decision, result)

    # Handing over

    def hand_over(self) -> bool:
        """Have another voter lead, so that nobody has to notice that none does; False if none can.

        What is asked of this node meanwhile is refused and asked again there.
        """
        successor = self._members.successor()
        if successor is None or not self._raft.is_leader or self._is_stopped:
            return False
        self._raft.transfer(successor, self._scheduler.now_ms())
        self._pump()
        return True

    # Voting again

    def admit(self, disk: bytes) -> bool:
        """Vote from now on, if it is known here for good that the cluster has this very disk."""
        fact = self.metadata.nodes.get(self.node_id)
        if fact is None or fact.disk != disk or self._raft.log.saved_index < self.applied_index:
            return False
        self._raft.may_vote = True
        return True

    def _serve_command(self, caller: int, head: bytes, _: memoryview) -> Promise[Answer]:
        if self._controller is None:
            raise NotController(self.leader)
        answer: Promise[Answer] = Promise()

        def decided(outcome: tuple[int, Result] | None, error: Exception | None) -> None:
            encoded = b"" if error else _answer_encoder.encode(outcome)
            answer.settle(Answer(encoded), error)

        self._decide(decode_command(head)).then(decided)
        return answer


def _log_lost(_: object, error: Exception | None) -> None:
    if error is not None:
        _log.info("a decision of the controller was lost: %s", error)
