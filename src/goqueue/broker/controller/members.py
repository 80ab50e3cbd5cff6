"""Membership of the quorum, changed by its leader one node at a time.

A node that registers receives the log. A node that returns with another disk is removed first,
since its votes and entries are lost, and added again as a new node. Callers get a retryable error
meanwhile, so each step waits for the one before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from goqueue.cluster.bootstrap import has_too_few_voters, next_voter
from goqueue.cluster.commands import ChangeVoter, RegisterNode
from goqueue.cluster.controller import Controller
from goqueue.cluster.metadata import Metadata
from goqueue.cluster.raft.core import Raft
from goqueue.cluster.raft.members import MemberChange
from goqueue.cluster.raft.ready import NotLeader, Refused
from goqueue.loop.clock import Clock
from goqueue.loop.peers import Peers
from goqueue.model.errors import (
    InvalidRequest,
    NotController,
    QuorumAtRisk,
    RequestTimedOut,
    UnknownNode,
)

CAUGHT_UP_ENTRIES = 100  # lag up to which a learner may become a voter

_log = logging.getLogger(__name__)


class QuorumMembers:
    def __init__(
        self,
        raft: Callable[[], Raft],
        metadata: Metadata,
        clock: Clock,
        peers: Peers,
        *,
        initial_disk: Callable[[int], bytes | None],
        proposed: Callable[[int], None],
    ) -> None:
        """`metadata` is the committed state; `proposed` gets the index of each change."""
        self._raft = raft
        self._metadata = metadata
        self._clock = clock
        self._peers = peers
        self._initial_disk = initial_disk
        self._proposed = proposed

    def welcome(self, controller: Controller, command: RegisterNode) -> None:
        """Add a node that registers as a learner."""
        node = command.node
        controller.check_register(
            node,
            command.addresses,
            now_ms=self._clock.now_ms(),
            cluster_id=command.cluster_id,
        )
        raft = self._raft()
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
        if node in self._raft().members.all:
            self._change(MemberChange.REMOVE, node)
            raise RequestTimedOut(f"Node {node} is being removed from the quorum; retry later.")

    def change_voter(self, command: ChangeVoter) -> None:
        """Promote or demote a node, one at a time, if the voters keep a live majority."""
        node, voters = command.node, set(self._raft().members.voters)
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
        raft = self._raft()
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
        raft, nodes = self._raft(), self._metadata.nodes
        able = [
            (raft.lag_of(one) or 0, one)
            for one in raft.members.voters
            if one != raft.node_id and one in nodes and nodes[one].takes_leaders
        ]
        return min(able)[1] if able else None

    def _has_other_disk(self, controller: Controller, command: RegisterNode) -> bool:
        known = controller.metadata.nodes.get(command.node)
        before = self._initial_disk(command.node) if known is None else known.disk
        return before is not None and before != command.disk

    def _change(self, change: MemberChange, node: int) -> None:
        """Propose a membership change; raise if it is refused, for now or for good."""
        raft = self._raft()
        outcome = raft.propose_members(change, node, self._clock.now_ms())
        if isinstance(outcome, NotLeader):
            raise NotController(-1 if outcome.leader_id is None else outcome.leader_id)
        if isinstance(outcome, Refused):
            is_passing = not raft.is_settled or raft.lag_of(node)
            raise (RequestTimedOut if is_passing else InvalidRequest)(outcome.reason)
        _log.info("quorum: %s node %d", change.value, node)
        self._proposed(outcome.index)
