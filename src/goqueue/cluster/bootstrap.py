"""Bootstrap of a new cluster, such that the same nodes never form two.

Each node queries the state of the others. If one of them belongs to a cluster, new nodes join that
cluster. If all that answer are new, they agree on a cluster in ballots (see `Attempt`): its id, its
voters, and the disk ids of the initial voters. Safety rests on these rules:

- Nodes of the configured list (`cluster.peers`) agree by majority, so a minority may be absent.
  Nodes found by discovery have no such list, so all of them must agree. A node writes what it has
  promised or accepted to disk before it answers.
- An initial voter is a node together with its disk. A node that returns with another disk may have
  voted before, so it does not vote but joins as a new node. The same applies to a listed node that
  was absent at bootstrap: it votes once its disk is committed in the metadata.
- A disk belongs to one cluster for ever, and its node reports that when asked to form a new one.

A majority of lost disks cannot be distinguished from disks that were never used. So a node that
gets an empty disk before all listed nodes have joined must be configured to join only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from goqueue.cluster.facts import ClusterFact, NodeFact
from goqueue.cluster.metadata import Metadata
from goqueue.cluster.topic_changes import adopted
from goqueue.model.bounds import NodeId, Version
from goqueue.model.errors import ForeignCluster, InvalidSettings, MalformedRequest
from goqueue.model.support import LEVEL_MAX

VOTERS_MAX = 5  # more voters only slow down every commit
VOTERS_WANTED = 3  # tolerates the loss of one


class InitialVoter(msgspec.Struct, frozen=True, array_like=True):
    """An initial voter: a node with this particular disk."""

    id: int
    disk: bytes


class Formed(msgspec.Struct, frozen=True, array_like=True):
    """A cluster that exists, as agreed on at bootstrap."""

    cluster_id: str
    initial_voters: tuple[InitialVoter, ...]
    absent: tuple[int, ...] = ()  # voters too, once their disks are committed in the metadata

    @property
    def voters(self) -> tuple[int, ...]:
        return tuple(sorted([*(one.id for one in self.initial_voters), *self.absent]))

    def initial_disk(self, node: int) -> bytes | None:
        """Return the disk with which a node was an initial voter; None if it was none."""
        return next((one.disk for one in self.initial_voters if one.id == node), None)


class Ballot(NamedTuple):
    """An attempt to form a cluster; a later ballot supersedes an earlier one."""

    round: Version
    node: NodeId
    disk: bytes  # a node that has lost its disk has also lost which rounds it has started


NO_BALLOT = Ballot(0, 0, b"")


class Accepted(msgspec.Struct, frozen=True, array_like=True):
    """The proposal that a node has accepted; a majority may have accepted it too."""

    ballot: Ballot
    formed: Formed


class Self(msgspec.Struct, frozen=True, array_like=True):
    """The state that a node reports to others; it is on disk before it is sent."""

    id: int
    disk: bytes  # disk id, created with the data folder
    offered_id: str  # cluster id to use if this node forms the cluster
    known: tuple[int, ...]  # the configured list, or all nodes that discovery has ever found
    configured_id: str = ""  # cluster id from its settings
    formed: Formed | None = None
    is_listed: bool = False  # whether `known` is the configured list
    joins_only: bool = False  # its settings say that the cluster already exists
    promised: Ballot = NO_BALLOT  # the node takes no part in earlier ballots
    accepted: Accepted | None = None

    @property
    def may_found(self) -> bool:
        return self.formed is None and not self.joins_only and self.id in self.known


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until more nodes have answered."""

    silent: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stand:
    """Start a ballot among these nodes to form a new cluster."""

    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """Save this to disk, then start as one of the initial voters."""

    formed: Formed


@dataclass(frozen=True, slots=True)
class Join:
    """Register with an existing cluster and replicate its log from the beginning."""

    formed: Formed


Step = Wait | Stand | Found | Join


def next_step(
    me: Self,
    answers: Mapping[int, Self],
    *,
    nodes_min: int = 1,
    is_patient: bool = False,
    is_polite: bool = True,
) -> Step:
    """Return the next step of a node without a cluster, from the newest answers of its peers.

    `nodes_min` is how many nodes discovery must have found before a cluster is formed. A patient
    node waits for peers that may still be starting. A polite node leaves the ballot to the lowest
    id among those that answer; that node may itself not reach enough of the others.
    """
    everyone = {**answers, me.id: me}
    formed = _only_cluster([one.formed for one in everyone.values() if one.formed is not None])
    _check_names(everyone, formed)
    if formed is not None:
        is_initial_voter = InitialVoter(me.id, me.disk) in formed.initial_voters
        return Found(formed) if is_initial_voter else Join(formed)
    _check_lists(me, answers)
    able = tuple(sorted(number for number in me.known if _agrees(me, everyone.get(number))))
    silent = tuple(number for number in me.known if number not in everyone)
    is_enough = len(able) >= initial_quorum(me) and len(me.known) >= nodes_min
    # One node suffices; two competing ballots would only delay each other.
    is_mine = me.id in able and (me.id == able[0] or not is_polite)
    if not is_enough or not is_mine or (is_patient and silent):
        return Wait(silent)
    return Stand(able)


def initial_quorum(me: Self) -> int:
    """Return how many of the known nodes must agree on a new cluster."""
    count = len(me.known)
    return count // 2 + 1 if me.is_listed else count


def listed(me: Self, nodes: Collection[int]) -> Self:
    """Return the node with the configured list, which may have been corrected."""
    return msgspec.structs.replace(me, known=tuple(sorted(nodes)), is_listed=True)


def learned(me: Self, nodes: Collection[int]) -> Self:
    """Return the node after discovery has found others; its list only grows.

    Save it to disk before sending it: otherwise a node could agree with a few nodes on something
    that it has already agreed on with many.
    """
    known = () if me.is_listed else me.known
    return msgspec.structs.replace(
        me, known=tuple(sorted({*known, *nodes, me.id})), is_listed=False
    )


def first_voters(nodes: Collection[int]) -> tuple[int, ...]:
    """Choose an odd number of voters: one more would add a vote but tolerate no more failures."""
    return tuple(sorted(nodes)[: _voter_count(len(nodes))])


def new_cluster(cluster_id: str, known: Collection[int], present: Mapping[int, Self]) -> Formed:
    """Return a cluster of the `known` nodes, started by those that are present.

    Nodes that are present vote first, so that there is a majority at once; absent ones fill up the
    number.
    """
    count = _voter_count(len(known))
    voters = sorted(present)[:count]
    absent = sorted(set(known) - set(present))[: count - len(voters)]
    initial_voters = tuple(InitialVoter(one, present[one].disk) for one in voters)
    return Formed(cluster_id, initial_voters, tuple(absent))


def _voter_count(node_count: int) -> int:
    count = min(node_count, VOTERS_MAX)
    return count - (count + 1) % 2


def next_voter(voters: Collection[int], nodes: Mapping[int, NodeFact]) -> int | None:
    """Return the next node to make a voter in a cluster that has grown; None if there are enough.

    Two voters tolerate no failure, so a second voter is added only if a third can follow it.
    """
    able = [node.id for node in nodes.values() if node.takes_leaders and node.id not in voters]
    count = len(voters)
    wanted = max(VOTERS_WANTED, count + (count + 1) % 2)
    if not has_too_few_voters(count) or count + len(able) < wanted:
        return None
    return min(able)


def has_too_few_voters(count: int) -> bool:
    """Return whether one more voter lets the quorum survive more failures.

    With an even number it always does.
    """
    return count < VOTERS_WANTED or count % 2 == 0


def parse_peers(text: str) -> dict[int, str]:
    """Parse the setting `cluster.peers` to addresses by node; the setting is already validated."""
    pairs = (one.partition("@") for one in text.split(",") if one)
    return {int(number): address for number, _, address in pairs}


def snapshot_of_single_node(metadata: Metadata, *, node: int, cluster_id: str) -> bytes:
    """Return the metadata of a single node as the first snapshot of a one-node cluster."""
    first = metadata.copy()
    first.apply(ClusterFact(cluster_id, LEVEL_MAX))  # as the single node has used it
    first.apply_all(tuple(adopted(first, node)))
    return first.snapshot()


def _only_cluster(formed: list[Formed]) -> Formed | None:
    for one in formed[1:]:
        if one.cluster_id != formed[0].cluster_id:
            raise ForeignCluster(one.cluster_id, formed[0].cluster_id)
    return formed[0] if formed else None


def _agrees(me: Self, other: Self | None) -> bool:
    """Return whether a node can form a cluster together with this one."""
    return (
        other is not None
        and other.may_found
        and (other.known, other.is_listed) == (me.known, me.is_listed)
    )


def _check_lists(me: Self, answers: Mapping[int, Self]) -> None:
    """Refuse differing lists: nodes with different lists could count different majorities."""
    if not me.is_listed:
        return  # Discovery may return different nodes to each node for a while.
    differing = [
        f"node {other.id} has {_written(other.known)}"
        for _, other in sorted(answers.items())
        if other.is_listed and other.known != me.known and (me.may_found or me.id in other.known)
    ]
    if differing:
        raise InvalidSettings(
            [
                f"cluster.peers: this node has the list {_written(me.known)}, but "
                f"{' and '.join(differing)}; configure the same list on all nodes"
            ]
        )


def _written(nodes: Collection[int]) -> str:
    return ",".join(map(str, nodes)) or "no nodes"


def _check_names(everyone: Mapping[int, Self], formed: Formed | None) -> None:
    names = {one.configured_id for one in everyone.values() if one.configured_id}
    if formed is not None:
        names.add(formed.cluster_id)
    if len(names) > 1:
        told = ", ".join(sorted(names))
        raise InvalidSettings(
            [f"node.cluster_id: the nodes name several clusters: {told}; configure one"]
        )


class Prepare(msgspec.Struct, frozen=True, array_like=True, tag="prepare"):
    """Requests a promise to take no part in earlier ballots, from nodes with the same list."""

    ballot: Ballot
    known: tuple[int, ...]
    is_listed: bool


class Propose(msgspec.Struct, frozen=True, array_like=True, tag="propose"):
    """Requests acceptance, from the nodes that have promised."""

    ballot: Ballot
    formed: Formed
    promised_by: tuple[InitialVoter, ...]


Question = Prepare | Propose

_question_encoder = msgspec.msgpack.Encoder()
_question_decoder: msgspec.msgpack.Decoder[Question] = msgspec.msgpack.Decoder(Question)


def encode_question(question: Question) -> bytes:
    return _question_encoder.encode(question)


def decode_question(data: bytes) -> Question:
    try:
        return _question_decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise MalformedRequest(f"A bootstrap message cannot be decoded: {error}.") from error


def answer_question(me: Self, question: Question) -> Self:
    """Return the node's state after its answer, to be saved before sending; the same if refused."""
    if not me.may_found or question.ballot < me.promised:
        return me
    if isinstance(question, Prepare):
        if (question.known, question.is_listed) != (me.known, me.is_listed):
            return me
        return msgspec.structs.replace(me, promised=question.ballot)
    if question.ballot != me.promised or InitialVoter(me.id, me.disk) not in question.promised_by:
        return me
    accepted = Accepted(question.ballot, question.formed)
    return msgspec.structs.replace(me, accepted=accepted)


class Attempt:
    """One ballot of single-decree Paxos, from the view of its proposer.

    It requests promises to take no part in earlier ballots; a promise returns what the node has
    accepted before. If any node has accepted a value, a majority may have, so the newest accepted
    value is proposed again; otherwise a new cluster is. Once enough nodes have accepted the same
    proposal, no other can be chosen, whatever fails. A promise binds a node together with its disk:
    a node that has lost its disk has lost the promise, and must not accept on its strength.
    """

    def __init__(self, me: Self, ballot: Ballot, awaited: Collection[int]) -> None:
        """`awaited` are nodes expected to be present, for which the proposer waits a moment."""
        self.ballot = ballot
        self.question: Question = Prepare(ballot, me.known, me.is_listed)
        self.is_overruled = False
        self.decided: Formed | None = None
        self._me = me
        self._quorum = initial_quorum(me)
        self._awaited = set(awaited)
        self._promises: dict[int, Self] = {}
        self._acceptances: set[int] = set()

    def hear(self, answer: Self) -> None:
        """Process the state reported by a node, in answer to the question or unsolicited."""
        if answer.promised > self.ballot:
            self.is_overruled = True
        elif answer.id not in self._me.known or answer.promised != self.ballot:
            return
        elif isinstance(self.question, Prepare):
            self._promises[answer.id] = answer
        elif answer.accepted is not None and answer.accepted.ballot == self.ballot:
            self._acceptances.add(answer.id)
            if len(self._acceptances) >= self._quorum:
                self.decided = self.question.formed

    def may_propose(self, *, is_late: bool) -> bool:
        """Return whether enough nodes have promised, and all awaited ones unless it is late."""
        if not isinstance(self.question, Prepare) or self.is_overruled:
            return False
        is_complete = self._awaited <= self._promises.keys()
        return len(self._promises) >= self._quorum and (is_complete or is_late)

    def propose(self) -> None:
        """Make the next question a proposal that follows from the promises."""
        promises = self._promises.values()
        before = [one.accepted for one in promises if one.accepted is not None]
        if before:
            formed = max(before, key=lambda one: one.ballot).formed
        else:
            names = [one.configured_id for one in promises if one.configured_id]
            name = names[0] if names else self._me.offered_id
            formed = new_cluster(name, self._me.known, self._promises)
        promised_by = tuple(InitialVoter(one.id, one.disk) for one in promises)
        self.question = Propose(self.ballot, formed, promised_by)
