"""How a new cluster begins, such that the same nodes can never form two.

Each node asks the others what they are. A node that belongs to a cluster says so, and whoever is
new joins it. If all are new, one of them, the founder, writes down who the first voters are; the
others take over exactly that. What keeps this safe:

- Only the node with the lowest id of those it knows may found, and only when every first voter
  has answered, is new, and knows the same nodes. Knowledge of nodes only grows, and what a node
  has told of itself it has written down before: so no two nodes can both be that founder.
- A first voter is a node together with its disk. One that comes back with another disk may have
  voted before, so it does not found again but joins like a stranger.
- A disk belongs to one cluster for ever, so of two lists of first voters at most one can have a
  majority.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import msgspec

from goqueue.cluster.facts import ClusterFact, NodeFact
from goqueue.cluster.metadata import Metadata
from goqueue.cluster.topic_changes import adopted
from goqueue.model.errors import ForeignCluster, InvalidSettings

VOTERS_MAX = 5  # more only make every decision slower
VOTERS_WANTED = 3  # survives the loss of one


class Founder(msgspec.Struct, frozen=True, array_like=True):
    """A first voter: a node with this very disk."""

    id: int
    disk: bytes


class Formed(msgspec.Struct, frozen=True, array_like=True):
    """A cluster that exists, as its founder wrote it down."""

    cluster_id: str
    founders: tuple[Founder, ...]


class Self(msgspec.Struct, frozen=True, array_like=True):
    """What a node tells others that ask; it is on its disk before it is told to anyone."""

    id: int
    disk: bytes  # made with the data folder
    offered_id: str  # for the cluster, in case this node founds it
    known: tuple[int, ...]  # all nodes that it was ever told of, by settings or by discovery
    configured_id: str = ""  # what its settings say the cluster is called
    formed: Formed | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing can be done before these have answered, or agree on who there is."""

    missing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """Write this down, then be one of its first voters."""

    formed: Formed


@dataclass(frozen=True, slots=True)
class Join:
    """Register with a cluster that exists, and learn its log from the beginning."""

    formed: Formed


Step = Wait | Found | Join


def next_step(me: Self, answers: Mapping[int, Self], *, nodes_min: int = 1) -> Step:
    """What a node that belongs to no cluster does, by the newest answers of those it knows.

    `nodes_min` is how many nodes discovery must have found before a cluster is founded.
    """
    everyone = {**answers, me.id: me}
    formed = _only_cluster([one.formed for one in everyone.values() if one.formed is not None])
    _check_names(everyone, formed)
    if formed is not None:
        is_founder = Founder(me.id, me.disk) in formed.founders
        return Found(formed) if is_founder else Join(formed)
    known = set(me.known) | {me.id}
    voters = first_voters(known)
    missing = [
        voter
        for voter in sorted(known)
        if voter not in everyone or set(everyone[voter].known) | {voter} != known
    ]
    if missing or len(known) < nodes_min or me.id != voters[0]:
        return Wait(tuple(missing))
    founders = tuple(Founder(voter, everyone[voter].disk) for voter in voters)
    name = next((one.configured_id for one in everyone.values() if one.configured_id), "")
    return Found(Formed(name or me.offered_id, founders))


def learned(me: Self, nodes: Collection[int]) -> Self:
    """The node after it was told of others; to be written down before it is told to anyone."""
    return msgspec.structs.replace(me, known=tuple(sorted({*me.known, *nodes, me.id})))


def first_voters(nodes: Collection[int]) -> tuple[int, ...]:
    """An odd number of voters: one more would cost a vote and survive no more failures."""
    count = min(len(nodes), VOTERS_MAX)
    return tuple(sorted(nodes)[: count - (count + 1) % 2])


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


def _check_names(everyone: Mapping[int, Self], formed: Formed | None) -> None:
    names = {one.configured_id for one in everyone.values() if one.configured_id}
    if formed is not None:
        names.add(formed.cluster_id)
    if len(names) > 1:
        told = ", ".join(sorted(names))
        raise InvalidSettings(
            [f"node.cluster_id: nodes that should be one cluster name several: {told}"]
        )
