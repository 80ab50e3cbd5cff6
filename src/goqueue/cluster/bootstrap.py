"""How a new cluster begins, such that the same nodes can never form two.

Each node asks the others what they are. A node that belongs to a cluster says so, and whoever is
new joins it. If all that answer are new, they agree on a cluster among themselves, in rounds (see
`formation_round`): its id, who votes, and which disks the first voters have. What keeps this safe:

- The nodes of the list in the settings agree by majority, and so can do without the rest. Nodes
  that discovery has found know no such list, so all of them must agree. What a node has promised
  or accepted is on its disk before it is told.
- A first voter is a node together with its disk. One that comes back with another disk may have
  voted before, so it does not vote but joins like a stranger. The same goes for a node of the
  list that was not there at the beginning: it votes when the cluster knows its disk.
- A disk belongs to one cluster for ever, and whoever has one says so when it is asked to found.

What nobody can tell is a majority of disks that were lost from one that was never used. So a node
that gets an empty disk before all of the list have joined must be told to join only.
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
from goqueue.model.errors import ForeignCluster, InvalidSettings

VOTERS_MAX = 5  # more only make every decision slower
VOTERS_WANTED = 3  # survives the loss of one


class InitialVoter(msgspec.Struct, frozen=True, array_like=True):
    """A first voter: a node with this very disk."""

    id: int
    disk: bytes


class Formed(msgspec.Struct, frozen=True, array_like=True):
    """A cluster that exists, as it was agreed on."""

    cluster_id: str
    initial_voters: tuple[InitialVoter, ...]
    absent: tuple[int, ...] = ()  # voters too, as soon as the cluster knows their disks

    @property
    def voters(self) -> tuple[int, ...]:
        return tuple(sorted([*(one.id for one in self.initial_voters), *self.absent]))


class Ballot(NamedTuple):
    """An attempt to found a cluster; a later one overrules an earlier one."""

    round: Version
    node: NodeId
    disk: bytes  # a node that has lost its disk does not know which rounds it has begun


NO_BALLOT = Ballot(0, 0, b"")


class Accepted(msgspec.Struct, frozen=True, array_like=True):
    """What a node has agreed to, and may be what most have."""

    ballot: Ballot
    formed: Formed


class Self(msgspec.Struct, frozen=True, array_like=True):
    """What a node tells others that ask; it is on its disk before it is told to anyone."""

    id: int
    disk: bytes  # made with the data folder
    offered_id: str  # for the cluster, in case this node founds it
    known: tuple[int, ...]  # the list in the settings, or all that discovery has ever found
    configured_id: str = ""  # what its settings say the cluster is called
    formed: Formed | None = None
    is_listed: bool = False  # whether `known` is the list in the settings
    joins_only: bool = False  # its settings say that there is a cluster already
    promised: Ballot = NO_BALLOT  # it takes no part in earlier ones
    accepted: Accepted | None = None

    @property
    def may_found(self) -> bool:
        return self.formed is None and not self.joins_only and self.id in self.known


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing can be done before more nodes have answered."""

    silent: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stand:
    """Try to have these nodes agree on a new cluster."""

    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """Write this down, then be one of its first voters."""

    formed: Formed


@dataclass(frozen=True, slots=True)
class Join:
    """Register with a cluster that exists, and learn its log from the beginning."""

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
    """What a node that belongs to no cluster does, by the newest answers of those it knows.

    `nodes_min` is how many nodes discovery must have found before a cluster is founded. A node
    that is patient does not begin without those that may just be starting; one that is polite
    leaves it to the lowest of those that answer, which need not hear enough of the others itself.
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
    # One of them is enough, and two would only get in each other's way.
    is_mine = me.id in able and (me.id == able[0] or not is_polite)
    if not is_enough or not is_mine or (is_patient and silent):
        return Wait(silent)
    return Stand(able)


def initial_quorum(me: Self) -> int:
    """How many of the nodes that one knows must agree on a new cluster."""
    count = len(me.known)
    return count // 2 + 1 if me.is_listed else count


def listed(me: Self, nodes: Collection[int]) -> Self:
    """The node with the list of its settings, which may have been corrected."""
    return msgspec.structs.replace(me, known=tuple(sorted(nodes)), is_listed=True)


def learned(me: Self, nodes: Collection[int]) -> Self:
    """The node after discovery has found others; what it knows only grows.

    To be written down before it is told to anyone: by that no node agrees with few on what it has
    already agreed on with many.
    """
    known = () if me.is_listed else me.known
    return msgspec.structs.replace(
        me, known=tuple(sorted({*known, *nodes, me.id})), is_listed=False
    )


def first_voters(nodes: Collection[int]) -> tuple[int, ...]:
    """An odd number of voters: one more would cost a vote and survive no more failures."""
    return tuple(sorted(nodes)[: _voter_count(len(nodes))])


def new_cluster(cluster_id: str, known: Collection[int], present: Mapping[int, Self]) -> Formed:
    """A cluster of nodes that know of each other, begun by those that are there.

    These vote first of all, so that there is a majority at once; others fill up the number.
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
    """Who should vote next in a cluster that has grown, or None if there are enough.

    A second voter alone would be a second way to stop, so there must be a third to follow it.
    """
    able = [node.id for node in nodes.values() if node.takes_leaders and node.id not in voters]
    count = len(voters)
    wanted = max(VOTERS_WANTED, count + (count + 1) % 2)
    if not has_too_few_voters(count) or count + len(able) < wanted:
        return None
    return min(able)


def has_too_few_voters(count: int) -> bool:
    """Whether one more would let the quorum survive more, as an even number always would."""
    return count < VOTERS_WANTED or count % 2 == 0


def parse_peers(text: str) -> dict[int, str]:
    """The addresses by node of the setting `cluster.peers`, which is checked where it is read."""
    pairs = (one.partition("@") for one in text.split(",") if one)
    return {int(number): address for number, _, address in pairs}


def snapshot_of_single_node(metadata: Metadata, *, node: int, cluster_id: str) -> bytes:
    """The facts of a node that was alone, as the first snapshot of a cluster of one."""
    first = metadata.copy()
    first.apply(ClusterFact(cluster_id))
    first.apply_all(tuple(adopted(first, node)))
    return first.snapshot()


def _only_cluster(formed: list[Formed]) -> Formed | None:
    for one in formed[1:]:
        if one.cluster_id != formed[0].cluster_id:
            raise ForeignCluster(one.cluster_id, formed[0].cluster_id)
    return formed[0] if formed else None


def _agrees(me: Self, other: Self | None) -> bool:
    """Whether a node can found a cluster together with this one."""
    return (
        other is not None
        and other.may_found
        and (other.known, other.is_listed) == (me.known, me.is_listed)
    )


def _check_lists(me: Self, answers: Mapping[int, Self]) -> None:
    """Nodes with different lists could count different majorities, so they found nothing."""
    if not me.is_listed:
        return  # Discovery may tell each node something else for a while.
    differing = [
        f"node {other.id} has {_written(other.known)}"
        for _, other in sorted(answers.items())
        if other.is_listed and other.known != me.known and (me.may_found or me.id in other.known)
    ]
    if differing:
        raise InvalidSettings(
            [
                f"cluster.peers: this node has the list {_written(me.known)}, but "
                f"{' and '.join(differing)}; give all of them the same"
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
            [f"node.cluster_id: nodes that should be one cluster name several: {told}"]
        )
