"""How a node comes to its cluster: it founds one with others, joins one, or was alone and grows.

This goes before the quorum, whose voters must agree on who they are. The rules are those of
`cluster/bootstrap.py`; here nodes are asked what they are, and what is told is on disk before.
`formation_round` is for nodes that are all new.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial
from random import Random

import msgspec

from goqueue.broker.controller.bootstrap import FormationRound
from goqueue.broker.controller.membership import identify_disk, rename_disk
from goqueue.cluster.bootstrap import (
    Formed,
    Found,
    InitialVoter,
    Join,
    Self,
    Stand,
    initial_quorum,
    learned,
    listed,
    next_step,
    snapshot_of_single_node,
)
from goqueue.cluster.formation_round import answer_question, decode_question
from goqueue.cluster.metadata import Metadata
from goqueue.cluster.raft.messages import Members
from goqueue.cluster.raft.ready import RaftState
from goqueue.cluster.raft.storage import RaftStorage
from goqueue.loop.clock import Clock
from goqueue.loop.peers import Answer, Answered, PeerKind, Peers
from goqueue.loop.promise import Promise
from goqueue.model.errors import GoQueueError, InvalidSettings, StorageFailed
from goqueue.storage.disk import Disk
from goqueue.storage.framed import read_framed, write_framed

ASK_MS = 250  # between two rounds of questions
ANSWER_MS_MAX = 1_000
# Nodes that are started together should all be there at the beginning: then none of them has to
# be taken in, and every disk is known from the first moment.
PATIENCE_MS = 5_000
# By then whoever was to found the cluster has done so, or cannot: it does not hear the others.
POLITENESS_MS = 10_000
TELL_MS = 10_000  # how often it is logged what is waited for

_FILE = "meta/forming"
_MAGIC = b"GQFO"
_VERSION = 1

_log = logging.getLogger(__name__)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Self)


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    """What a node knows of its way into a cluster."""

    me: Self
    has_begun: bool = False  # the quorum's files were made, and promises may have been given
    may_vote: bool = True  # False while its former self, with another disk, may still be a voter


Begun = Callable[[RaftState, bool], None]


class Formation:
    """This node's way into a cluster; afterwards it tells newcomers about that cluster."""

    def __init__(
        self,
        node_id: int,
        disk: Disk,
        storage: RaftStorage,
        clock: Clock,
        peers: Peers,
        random: Random,
        *,
        contacts: Collection[int],
        nodes_min: int,
        joins_only: bool,
        offered_id: str,
        configured_id: str,
        new_id: Callable[[], bytes],
        single_node: Callable[[], Metadata | None],
    ) -> None:
        """`contacts` is the list of the settings; without one, `learn` tells what there is.

        `single_node` tells what a node that was alone until now has written down, if it was.
        """
        self.state = storage.load()
        if self.state is not None:
            storage.secure(self.state)
        self._node_id = node_id
        self._disk = disk
        self._storage = storage
        self._clock = clock
        self._peers = peers
        self._nodes_min = nodes_min
        self._answers: dict[int, Self] = {}
        self._begun: Begun | None = None
        self._problem = ""  # why what was answered so far does not do
        self._asked_ms = self._told_ms = clock.now_ms()
        self._is_stopped = False
        self._round = FormationRound(
            clock,
            peers,
            random,
            me=lambda: self.me,
            keep=self._become,
            heard=self._hear,
            decided=self._agreed,
        )
        kept = self._recall(offered_id, new_id)
        me = msgspec.structs.replace(
            kept.me, id=node_id, configured_id=configured_id, joins_only=joins_only
        )
        self._kept = kept
        self._become(listed(me, contacts) if contacts else learned(me, ()))
        grown = single_node() if self.state is None and me.formed is None else None
        if grown is not None:
            self._grow(grown)
        peers.serve(PeerKind.JOIN, self._answer)

    def _recall(self, offered_id: str, new_id: Callable[[], bytes]) -> _Kept:
        """What this node was when it last ran, or what it is if this is the first time."""
        kept = self._read()
        if kept is None:
            kept = _Kept(Self(self._node_id, identify_disk(self._disk, new_id), offered_id, ()))
        if kept.has_begun and self.state is None:
            _log.warning("the quorum's files are gone: this node joins again as a new one")
            kept = _Kept(msgspec.structs.replace(kept.me, disk=rename_disk(self._disk, new_id)))
        if self.state is not None and not kept.has_begun:
            kept = _finished(kept)
        if kept.me.formed is not None and kept.me.id != self._node_id:
            raise InvalidSettings(
                [
                    f"node.id: the data is that of node {kept.me.id} of cluster "
                    f"{kept.me.formed.cluster_id}, not of node {self._node_id}; one would be bound "
                    "by what the other has promised"
                ]
            )
        return kept

    @property
    def me(self) -> Self:
        return self._kept.me

    @property
    def formed(self) -> Formed | None:
        """The cluster that this node belongs to, once it does."""
        return self._kept.me.formed

    @property
    def may_vote(self) -> bool:
        return self._kept.may_vote

    def initial_disk(self, node: int) -> bytes | None:
        """The disk with which a node was one of the first voters, if it was."""
        initial_voters = () if self.formed is None else self.formed.initial_voters
        return next((one.disk for one in initial_voters if one.id == node), None)

    def start(self, begun: Begun) -> None:
        """Have `begun` called with the state to begin with, as soon as there is one."""
        self._begun = begun
        if self.state is not None:
            begun(self.state, self.may_vote)
            return
        self._step()
        self._ask()

    def stop(self) -> None:
        self._is_stopped = True
        self._round.stop()

    def learn(self, nodes: Collection[int]) -> None:
        """There are these nodes, as discovery has found."""
        me = learned(self.me, nodes)
        if me != self.me and self.formed is None:
            self._become(me)
            self._step()

    @property
    def waits_for(self) -> str:
        """What keeps this node from belonging to a cluster, as a sentence; empty if nothing."""
        if self.state is not None:
            return ""
        if self._problem:
            return f"This node cannot join its cluster: {self._problem}"
        others = [one for one in self.me.known if one != self._node_id]
        silent = [str(one) for one in others if one not in self._answers]
        text = "This node belongs to no cluster yet"
        if silent:
            text += f"; nodes that have not answered: {', '.join(silent)}"
        if self.me.joins_only:
            return f"{text}. It is told to join one and not to found one."
        needed = max(initial_quorum(self.me), self._nodes_min)
        return f"{text}. A new cluster takes {needed} of the nodes {_listing(self.me.known)}."

    def admit(self) -> None:
        """The cluster knows this node with this disk, so it may vote when it is made a voter."""
        self._keep(msgspec.structs.replace(self._kept, may_vote=True))

    # Asking

    def _ask(self) -> None:
        if self.state is not None or self._is_stopped:
            return
        for node in self.me.known:
            if node != self._node_id:
                asked = self._peers.call(node, PeerKind.JOIN, b"", timeout_ms=ANSWER_MS_MAX)
                asked.then(partial(self._answered, node))
        if self._is_time_to_tell():
            _log.warning("%s", self.waits_for)
        self._step()
        self._clock.call_later(ASK_MS, self._ask)

    def _answered(self, node: int, answer: Answered | None, error: Exception | None) -> None:
        if answer is None:
            if not isinstance(error, GoQueueError):
                assert error is not None
                raise error
            self._answers.pop(node, None)
            return
        try:
            told = _decoder.decode(answer.head)
        except msgspec.MsgspecError as problem:
            _log.warning("what node %d is cannot be read: %s", node, problem)
            return
        self._hear(told)

    def _hear(self, told: Self) -> None:
        self._answers[told.id] = told
        self._step()

    def _step(self) -> None:
        """Do what the rules say, by all that was answered."""
        if self.state is not None or self._is_stopped or self._begun is None:
            return
        waited_ms = self._clock.now_ms() - self._asked_ms
        try:
            step = next_step(
                self.me,
                self._answers,
                nodes_min=self._nodes_min,
                is_patient=waited_ms < PATIENCE_MS,
                is_polite=waited_ms < POLITENESS_MS,
            )
            self._problem = ""
            if isinstance(step, Stand):
                self._round.stand(step.nodes, self._answers.values())
            elif isinstance(step, Found | Join):
                self._enter(step.formed, is_initial_voter=isinstance(step, Found))
        except GoQueueError as error:
            # Settings may be corrected, and a full disk may be cleared: there is another time.
            self._problem = str(error)

    def _agreed(self, formed: Formed) -> None:
        """Enough nodes have accepted this, which may first have been proposed without this one."""
        is_initial_voter = InitialVoter(self.me.id, self.me.disk) in formed.initial_voters
        try:
            self._enter(formed, is_initial_voter=is_initial_voter)
        except GoQueueError as error:
            # It stays agreed on, so that the next attempt comes to the same end.
            self._problem = str(error)

    def _enter(self, formed: Formed, *, is_initial_voter: bool) -> None:
        assert self._begun is not None
        self._round.stop()
        is_absent = self._node_id in formed.absent
        # Who votes from the first entry on is in no entry, so that one of them must know it.
        voters = formed.voters if is_initial_voter or is_absent else ()
        state = self._begin(formed, Members(voters), may_vote=is_initial_voter)
        _log.info("%s cluster %s", "forming" if is_initial_voter else "joining", formed.cluster_id)
        self._begun(state, is_initial_voter)

    def _grow(self, metadata: Metadata) -> None:
        """A node that was alone is a cluster of one, which others may join."""
        if self.me.joins_only:
            raise InvalidSettings(
                [
                    "cluster.join_only: the data is that of a single node, which cannot become "
                    "that of another cluster; use an empty folder, or let this one grow"
                ]
            )
        name = self.me.configured_id or self.me.offered_id
        formed = Formed(name, (InitialVoter(self._node_id, self.me.disk),))
        data = snapshot_of_single_node(metadata, node=self._node_id, cluster_id=name)
        self._begin(formed, Members((self._node_id,)), data, may_vote=True)
        _log.info("this node was alone until now; it is cluster %s from here on", name)

    def _begin(
        self, formed: Formed, members: Members, data: bytes = b"", *, may_vote: bool
    ) -> RaftState:
        """Write down which cluster it is, then begin its log; a crash between is gone through."""
        if not data:
            # What a single node has must be taken over together with the decision to grow.
            me = msgspec.structs.replace(self.me, formed=formed)
            self._keep(_Kept(me, may_vote=may_vote))
        self.state = state = self._storage.begin(members, data)
        me = msgspec.structs.replace(self.me, formed=formed)
        self._keep(_Kept(me, has_begun=True, may_vote=may_vote))
        return state

    def _answer(self, caller: int, head: bytes, body: memoryview) -> Promise[Answer]:
        """Tell what this node is, and promise or accept what it is asked to before."""
        if head and self.state is None:
            answer = answer_question(self.me, decode_question(head))
            if answer != self.me:
                self._become(answer)
                self._round.give_way()
        promise: Promise[Answer] = Promise()
        promise.resolve(Answer(_encoder.encode(self.me)))
        return promise

    # Helpers

    def _is_time_to_tell(self) -> bool:
        now_ms = self._clock.now_ms()
        if now_ms - self._told_ms < TELL_MS:
            return False
        self._told_ms = now_ms
        return True

    def _become(self, me: Self) -> None:
        self._keep(msgspec.structs.replace(self._kept, me=me))

    def _keep(self, kept: _Kept) -> None:
        if kept != self._kept or not self._disk.exists(_FILE):
            write_framed(self._disk, _FILE, magic=_MAGIC, version=_VERSION, body=kept)
        self._kept = kept

    def _read(self) -> _Kept | None:
        if not self._disk.exists(_FILE):
            return None
        kept = read_framed(self._disk, _FILE, magic=_MAGIC, version=_VERSION, body=_Kept)
        if kept is None:
            raise StorageFailed(
                f"{_FILE} cannot be read, so this node does not know which cluster it belongs to. "
                "Restore the file, or empty the folder meta: the node then joins as a new one."
            )
        return kept


def _finished(kept: _Kept) -> _Kept:
    """A start that was cut short when the quorum's files had just been made."""
    me = kept.me
    if me.formed is None:  # Only a node that was alone begins before it writes this down.
        formed = Formed(me.configured_id or me.offered_id, (InitialVoter(me.id, me.disk),))
        me = msgspec.structs.replace(me, formed=formed)
    return msgspec.structs.replace(kept, me=me, has_begun=True)


def belongs_to_cluster(disk: Disk) -> bool:
    """Whether the data is that of a node in a cluster, which must not run alone."""
    kept = read_framed(disk, _FILE, magic=_MAGIC, version=_VERSION, body=_Kept)
    return kept is not None and kept.me.formed is not None


def _listing(nodes: Collection[int]) -> str:
    return ", ".join(map(str, nodes)) or "that discovery finds"
