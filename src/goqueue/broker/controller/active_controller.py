"""The active controller: the Raft leader decides for the cluster.

Decisions are proposed in the order in which they are made, and a caller gets its result when its
decision is committed. When another node leads, the controller is discarded and all pending calls
fail with a retryable error.

The leader also changes the members of the quorum, one node at a time. A node that registers
receives the log. A node that returns with another disk is removed first, since its votes and
entries are lost, and added again as a new node. Callers get a retryable error meanwhile, so each
step waits for the one before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from goqueue.broker.controller.metadata import AppliedMetadata
from goqueue.broker.controller.node import Environment
from goqueue.cluster.bootstrap import Formed, has_too_few_voters, next_voter
from goqueue.cluster.commands import (
    ChangeVoter,
    ClusterCommand,
    RegisterNode,
    Result,
    UnregisterNode,
)
from goqueue.cluster.controller import Controller
from goqueue.cluster.deciding import decide
from goqueue.cluster.facts import ClusterFact, Decision, encode_readable
from goqueue.cluster.levels import first_level
from goqueue.cluster.metadata import Metadata
from goqueue.cluster.raft.core import Raft
from goqueue.cluster.raft.members import MemberChange
from goqueue.cluster.raft.messages import Entry
from goqueue.cluster.raft.ready import NotLeader, Proposal, Refused
from goqueue.cluster.topic_changes import InternalTopic, missing
from goqueue.config import ClusterSettings
from goqueue.loop.clock import Clock
from goqueue.loop.peers import Contact, Peers
from goqueue.loop.promise import Promise
from goqueue.model.errors import (
    GoQueueError,
    InvalidRequest,
    NotController,
    QuorumAtRisk,
    RequestTimedOut,
    UnknownNode,
)

CONTROLLER_TICK_MS = 100
FIRST_NODES_MS_MAX = 5_000  # how long internal topics wait for all voters to register
CAUGHT_UP_ENTRIES = 100  # lag up to which a learner may become a voter

_log = logging.getLogger(__name__)

Decided = tuple[int, Result]  # index in the log, and the result


class ActiveController:
    """Holds the controller while this node leads."""

    def __init__(
        self,
        raft: Raft,
        applied: AppliedMetadata,
        settings: ClusterSettings,
        environment: Environment,
        *,
        internal_topics: Sequence[InternalTopic],
        formed: Callable[[], Formed | None],
        wake: Callable[[], None],
    ) -> None:
        """`formed` is the cluster as agreed on at bootstrap; `wake` runs Raft soon."""
        self.controller: Controller | None = None
        self._raft = raft
        self._applied = applied
        self._settings = settings
        self._clock = environment.clock
        self._peers = environment.peers
        self._new_id = environment.new_id
        self._internal_topics = internal_topics
        self._formed = formed
        self._proposals = Proposals(raft, environment.clock, wake)
        self._members = QuorumMembers(
            raft,
            applied.metadata,
            self._proposals,
            environment.clock,
            environment.peers,
            formed=formed,
        )
        self._term = -1
        self._since_ms = 0

    # Leadership

    def leave_unless_leading(self) -> None:
        if not self._raft.is_leader or self._raft.term != self._term:
            self.leave()

    def leave(self) -> None:
        """Discard the controller. Its proposals may be lost; callers retry at the new leader."""
        if self.controller is not None:
            self.controller = None
            _log.info("node %d is no longer the controller", self._raft.node_id)
        self._proposals.lose_all()

    def successor(self) -> int | None:
        """Return the voter to which the leadership should be transferred, if there is one."""
        return self._members.successor()

    def _take(self, index: int) -> None:
        """Start a controller: Raft leads, and all decisions of earlier leaders are applied."""
        raft, metadata, now_ms = self._raft, self._applied.metadata, self._clock.now_ms()
        self.controller = Controller(
            metadata,
            self._settings,
            index=index,
            now_ms=now_ms,
            internal_topics=self._internal_topics,
            support=self._peers.support,
        )
        self._term = raft.term
        self._since_ms = now_ms
        self._proposals.last_index = max(self._proposals.last_index, index)
        _log.info("node %d is the controller of term %d", raft.node_id, raft.term)
        if metadata.cluster is None:
            formed = self._formed()
            name = "" if formed is None else formed.cluster_id
            fact = ClusterFact(name, formed_level=self._peers.support.level_max)
            self._decide_own(lambda controller: controller.record([fact]))
        # The predecessor may be gone, which may be why this node leads.
        self._miss([node for node in metadata.nodes if self._is_gone(node)])

    def _retake(self) -> None:
        """Start again after a controller was discarded over a refused proposal while leading."""
        raft, index = self._raft, self._applied.index
        if raft.is_settled and index == raft.log.last_index:
            self._take(index)

    # Node failures

    def _is_gone(self, node: int) -> bool:
        is_other = node != self._raft.node_id
        return is_other and self._peers.contact(node) is Contact.GONE

    def miss(self, node: int) -> None:
        """Handle a node that is gone: elect other leaders and shrink the in-sync sets."""
        self._miss([node])

    def _miss(self, nodes: Sequence[int]) -> None:
        # A false report costs a node its leaders for a moment and nothing else: a fenced node is
        # unfenced at its next heartbeat, and is not reported as gone twice in between.
        if self.controller is None or not nodes:
            return
        for node in nodes:
            self.controller.lost(node)
        self._tick()

    def _tick(self) -> None:
        now_ms = self._clock.now_ms()
        self._decide_own(lambda controller: controller.tick(now_ms))

    def tick(self) -> None:
        """Do the periodic work of the controller."""
        if self._raft.is_leader and self.controller is None:
            self._retake()
        self._tick()
        if self.controller is not None:
            self._members.promote()
        self._raise_first_level()
        if self.controller is not None and self._lacks_internal_topics():
            self._decide_own(lambda controller: controller.create_internal_topics(self._new_id))

    def _raise_first_level(self) -> None:
        """Give a new cluster the newest level that its nodes support: it has no data to keep."""
        if self.controller is None:
            return
        level = first_level(self.controller.metadata, self._raft.members.voters)
        if level is not None:
            self._decide_own(lambda controller: controller.finalize(level))

    def _lacks_internal_topics(self) -> bool:
        assert self.controller is not None
        known = self.controller.metadata
        alive = sum(not node.is_fenced for node in known.nodes.values())
        members = self._raft.members
        # Nodes that register a moment later should get replicas too: with too few replicas, the
        # loss of the next node would be one too many.
        is_late = self._clock.now_ms() - self._since_ms >= FIRST_NODES_MS_MAX
        wanted = members.majority if is_late else len(members.voters)
        return alive >= wanted and bool(missing(known, self._internal_topics))

    # Deciding

    def decide(self, command: ClusterCommand) -> Promise[Decided]:
        """Decide and commit a command; raise if it is refused."""
        self.leave_unless_leading()
        if self.controller is None:
            raise NotController(-1)
        if isinstance(command, RegisterNode):
            self._members.welcome(self.controller, command)
        elif isinstance(command, UnregisterNode):
            self._members.dismiss(self.controller, command.node)
        elif isinstance(command, ChangeVoter):
            self._members.change_voter(command)
            return self._propose((), None)
        decision, result = decide(
            self.controller,
            command,
            replication_factor=self._settings.replication_factor,
            now_ms=self._clock.now_ms(),
        )
        proposed = self._propose(decision, result)
        if isinstance(command, RegisterNode):
            self._raise_first_level()  # before the node serves anybody
        return proposed

    def _decide_own(self, decide_it: Callable[[Controller], Decision]) -> None:
        """Propose a decision of the controller itself, which has no caller."""
        if self.controller is None:
            return
        decision = decide_it(self.controller)
        if decision:
            self._propose(decision, None).then(_log_lost)

    def _propose(self, decision: Decision, result: Result) -> Promise[Decided]:
        """Commit a decision of this controller."""
        try:
            return self._proposals.propose(decision, result)
        except GoQueueError as error:
            # The controller's state includes a decision that will never be committed: it restarts
            # from the committed state.
            self.controller = None
            refused: Promise[Decided] = Promise()
            refused.reject(error)
            return refused

    # The log

    def applied(self, entry: Entry, decision: Decision) -> None:
        """Note that an entry of the log is committed and applied on this node."""
        is_own = self._raft.is_leader and entry.term == self._raft.term
        if self.controller is not None and is_own:
            self.controller.applied(entry.index, decision)
        elif is_own and entry.index >= self._proposals.last_index:
            self._take(entry.index)
        self._proposals.applied(entry)

    def skipped_to(self, index: int) -> None:
        """A snapshot replaced the state up to `index`: proposals up to there are lost."""
        self._proposals.lose_until(index)


def _log_lost(_: object, error: Exception | None) -> None:
    if error is not None:
        _log.info("a decision of the controller was not committed: %s", error)


@dataclass(slots=True)
class _Proposed:
    """An entry proposed by this node whose commit is pending."""

    term: int
    done: Promise[Decided]
    result: Result


class Proposals:
    """Entries that this node has proposed as the leader, until they are committed or lost."""

    def __init__(self, raft: Raft, clock: Clock, wake: Callable[[], None]) -> None:
        self.last_index = 0
        self._raft = raft
        self._clock = clock
        self._wake = wake
        self._pending: dict[int, _Proposed] = {}

    def propose(self, decision: Decision, result: Result) -> Promise[Decided]:
        """Propose a decision; raise if it cannot be proposed."""
        done: Promise[Decided] = Promise()
        if not decision:
            self._follow_last(done, result)
            return done
        try:
            data = encode_readable(decision)
        except GoQueueError as error:
            _log.error("a decision cannot be encoded and is dropped: %s", error)
            raise
        outcome = self._raft.propose(data, self._clock.now_ms())
        if not isinstance(outcome, Proposal):
            raise NotController(-1)
        self._add(outcome.index, _Proposed(outcome.term, done, result))
        return done

    def _follow_last(self, done: Promise[Decided], result: Result) -> None:
        """Answer when all earlier decisions are committed: an empty decision depends on them."""
        index = self.last_index
        last = self._pending.get(index)
        if last is None:
            done.resolve((index, result))
        else:
            # Not when an entry is applied at its index: that may be another controller's.
            last.done.then(lambda _, error: done.settle(None if error else (index, result), error))

    def add_members(self, index: int) -> None:
        """Note a proposed change of the quorum's members."""
        self._add(index, _Proposed(self._raft.term, Promise(), None))

    def _add(self, index: int, proposed: _Proposed) -> None:
        self.last_index = index
        self._pending[index] = proposed
        self._wake()

    def applied(self, entry: Entry) -> None:
        """Answer the caller whose decision this entry has, or was to have."""
        proposed = self._pending.get(entry.index)
        if proposed is not None and proposed.term == entry.term:
            del self._pending[entry.index]
            proposed.done.resolve((entry.index, proposed.result))
        elif proposed is not None:
            self._lose([entry.index])

    def lose_until(self, index: int) -> None:
        self._lose([one for one in self._pending if one <= index])

    def lose_all(self) -> None:
        """Fail all proposals, because this node no longer leads."""
        self.last_index = 0
        self._lose(list(self._pending))

    def _lose(self, indexes: Sequence[int]) -> None:
        leader = self._raft.leader_id
        lost = [self._pending.pop(index) for index in indexes]
        for one in lost:
            one.done.reject(NotController(-1 if leader is None else leader))


class QuorumMembers:
    """Changes the members of the quorum."""

    def __init__(
        self,
        raft: Raft,
        metadata: Metadata,
        proposals: Proposals,
        clock: Clock,
        peers: Peers,
        *,
        formed: Callable[[], Formed | None],
    ) -> None:
        """`metadata` is the committed state; `formed` the cluster as agreed on at bootstrap."""
        self._raft = raft
        self._metadata = metadata
        self._proposals = proposals
        self._clock = clock
        self._peers = peers
        self._formed = formed

    def welcome(self, controller: Controller, command: RegisterNode) -> None:
        """Add a node that registers as a learner."""
        node = command.node
        controller.check_register(
            node,
            command.addresses,
            now_ms=self._clock.now_ms(),
            cluster_id=command.cluster_id,
            support=command.support,
        )
        raft = self._raft
        address = command.addresses.get("internal")
        if address is not None and node != raft.node_id:
            self._peers.locate(node, address)
        if node in raft.members.all and self._has_other_disk(controller, command):
            self._change(MemberChange.REMOVE, node)
            raise RequestTimedOut(
                f"Node {node} has lost its disk; retry when its former registration is removed."
            )
        if node not in raft.members.all:
            self._change(MemberChange.ADD_LEARNER, node)

    def dismiss(self, controller: Controller, node: int) -> None:
        """Remove a node that is being unregistered from the quorum."""
        controller.check_unregister(node)
        if node in self._raft.members.all:
            self._change(MemberChange.REMOVE, node)
            raise RequestTimedOut(f"Node {node} is being removed from the quorum; retry later.")

    def change_voter(self, command: ChangeVoter) -> None:
        """Promote or demote a node, one at a time, if the voters keep a live majority."""
        node, voters = command.node, set(self._raft.members.voters)
        if command.is_wanted == (node in voters):
            return
        self._check_living(voters | {node} if command.is_wanted else voters - {node})
        fact = self._metadata.nodes.get(node)
        if command.is_wanted:
            if fact is None:
                raise UnknownNode(node)
            if fact.is_fenced:
                raise QuorumAtRisk(f"Node {node} is not running; start it before you promote it.")
            self._change(MemberChange.PROMOTE, node)
            return
        if fact is not None and fact.takes_leaders and has_too_few_voters(len(voters) - 1):
            raise InvalidRequest(
                f"Node {node} would be promoted again at once; drain it first, or promote "
                "another one."
            )
        self._change(MemberChange.DEMOTE, node)

    def _check_living(self, voters: set[int]) -> None:
        """Refuse a set of voters without a live majority: it could not be changed any more."""
        running = sorted(node for node in voters if self._metadata.is_alive(node))
        majority = len(voters) // 2 + 1
        if len(running) < majority:
            silent = ", ".join(str(node) for node in sorted(voters.difference(running)))
            raise QuorumAtRisk(
                f"Of the voters {', '.join(map(str, sorted(voters)))} only {len(running)} would be "
                f"running, but {majority} are needed. Start or remove first: {silent}."
            )

    def promote(self) -> None:
        """Promote a learner that has nearly caught up, if there are too few voters."""
        raft = self._raft
        if not raft.is_settled:
            return
        nodes = self._metadata.nodes
        able = {one: nodes[one] for one in raft.members.learners if one in nodes}
        chosen = next_voter(raft.members.voters, able)
        if chosen is None:
            return
        lag = raft.lag_of(chosen)
        if lag is not None and lag <= CAUGHT_UP_ENTRIES:
            with suppress(RequestTimedOut):  # Retried at the next tick.
                self._change(MemberChange.PROMOTE, chosen)

    def successor(self) -> int | None:
        """Return the most up-to-date other voter that takes leaders."""
        raft, nodes = self._raft, self._metadata.nodes
        able = [
            (raft.lag_of(one) or 0, one)
            for one in raft.members.voters
            if one != raft.node_id and one in nodes and nodes[one].takes_leaders
        ]
        return min(able)[1] if able else None

    def _has_other_disk(self, controller: Controller, command: RegisterNode) -> bool:
        known, formed = controller.metadata.nodes.get(command.node), self._formed()
        if known is not None:
            return known.disk != command.disk
        before = None if formed is None else formed.initial_disk(command.node)
        return before is not None and before != command.disk

    def _change(self, change: MemberChange, node: int) -> None:
        """Propose a membership change; raise if it is refused, for now or for good."""
        raft = self._raft
        outcome = raft.propose_members(change, node, self._clock.now_ms())
        if isinstance(outcome, NotLeader):
            raise NotController(-1 if outcome.leader_id is None else outcome.leader_id)
        if isinstance(outcome, Refused):
            is_passing = not raft.is_settled or raft.lag_of(node)
            raise (RequestTimedOut if is_passing else InvalidRequest)(outcome.reason)
        _log.info("quorum: %s node %d", change.value, node)
        self._proposals.add_members(outcome.index)
