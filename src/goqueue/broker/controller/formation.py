"""How a node enters its cluster: by bootstrap, by joining, or by growing from a single node.

This precedes the quorum, whose voters must be agreed on. The rules are in `cluster/bootstrap.py`;
here nodes exchange their states, which are saved to disk before they are sent. `FormationRound`
handles the case that all nodes are new.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from functools import partial

import msgspec

from goqueue.broker.controller.node import Environment, identify_disk, rename_disk
from goqueue.cluster.bootstrap import (
    Attempt,
    Ballot,
    Formed,
    Found,
    InitialVoter,
    Join,
    Question,
    Self,
    Stand,
    answer_question,
    decode_question,
    encode_question,
    initial_quorum,
    learned,
    listed,
    next_step,
    snapshot_of_single_node,
)
from goqueue.cluster.metadata import Metadata
from goqueue.cluster.raft.messages import Members
from goqueue.cluster.raft.ready import RaftState
from goqueue.cluster.raft.storage import RaftStorage
from goqueue.config import ClusterSettings, NodeSettings
from goqueue.loop.peers import Answer, Answered, PeerKind
from goqueue.loop.promise import Promise
from goqueue.model.bounds import VERSION_MAX
from goqueue.model.errors import GoQueueError, InvalidSettings
from goqueue.storage.disk import Disk
from goqueue.storage.framed import read_framed_or_refuse, write_framed

ASK_MS = 250  # between two rounds of queries
ANSWER_MS_MAX = 1_000  # per question; then silent nodes are skipped
# Nodes that are started together should all take part in the bootstrap: then none has to join
# later, and every disk id is recorded from the beginning.
PATIENCE_MS = 5_000
# By then the node that should form the cluster has done so, or cannot reach the others.
POLITENESS_MS = 10_000
TELL_MS = 10_000  # how often the reason for waiting is logged
REPEAT_MS = 300  # between two attempts to send a question of a ballot
PAUSE_MS = 1_000  # maximum between the first two ballots; it doubles
PAUSE_MS_MAX = 8_000

_FILE = "meta/forming"
_MAGIC = b"GQFO"
_VERSION = 1

_log = logging.getLogger(__name__)

_encoder = msgspec.msgpack.Encoder()
_self_decoder = msgspec.msgpack.Decoder(Self)


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    """The saved state of a node's entry into a cluster."""

    me: Self
    has_begun: bool = False  # the quorum's files exist, and promises may have been made
    may_vote: bool = True  # False while its former disk may still be registered as a voter


Begun = Callable[[RaftState, bool], None]


class Formation:
    """This node's entry into a cluster; afterwards it informs new nodes about that cluster."""

    def __init__(
        self,
        environment: Environment,
        storage: RaftStorage,
        node: NodeSettings,
        settings: ClusterSettings,
        *,
        contacts: Collection[int],
        offered_id: str,
        single_node: Callable[[], Metadata | None],
    ) -> None:
        """`contacts` is the configured list; without one, `learn` supplies the nodes.

        A new cluster is named by the settings, or else by the id that one of the nodes has offered.
        `single_node` returns the metadata of a former single node, if this was one.
        """
        self.state = storage.load()
        if self.state is not None:
            storage.secure(self.state)
        self._node_id = node.id
        self._disk = environment.disk
        self._storage = storage
        self._clock = environment.clock
        self._peers = environment.peers
        self._nodes_min = 1 if settings.discovery is None else settings.discovery_count
        self._answers: dict[int, Self] = {}
        self._begun: Begun | None = None
        self._problem = ""  # why the answers so far do not suffice
        self._asked_ms = self._told_ms = self._clock.now_ms()
        self._is_stopped = False
        self._round = FormationRound(
            environment,
            me=lambda: self.me,
            keep=self._become,
            heard=self._hear,
            decided=self._agreed,
        )
        self._kept = self._recall(offered_id, environment.new_id)
        me = msgspec.structs.replace(
            self.me, id=node.id, configured_id=node.cluster_id, joins_only=settings.join_only
        )
        self._become(listed(me, contacts) if contacts else learned(me, ()))
        if self.state is None and me.formed is None:
            grown = single_node()
            if grown is not None:
                self._grow(grown)
        self._peers.serve(PeerKind.JOIN, self._answer)

    def _recall(self, offered_id: str, new_id: Callable[[], bytes]) -> _Kept:
        """Load the state of the last run, or create that of the first."""
        kept = _read_kept(self._disk)
        if kept is None:
            kept = _Kept(Self(self._node_id, identify_disk(self._disk, new_id), offered_id, ()))
        if kept.has_begun and self.state is None:
            _log.warning("the quorum's files are missing: this node joins again as a new node")
            kept = _Kept(msgspec.structs.replace(kept.me, disk=rename_disk(self._disk, new_id)))
        if self.state is not None and not kept.has_begun:
            kept = _finished(kept)
        if kept.me.formed is not None and kept.me.id != self._node_id:
            raise InvalidSettings(
                [
                    f"node.id: the data is that of node {kept.me.id} of cluster "
                    f"{kept.me.formed.cluster_id}, not of node {self._node_id}; configure that id, "
                    "or use an empty data folder"
                ]
            )
        return kept

    @property
    def me(self) -> Self:
        return self._kept.me

    @property
    def formed(self) -> Formed | None:
        """Return the cluster that this node belongs to, if any."""
        return self._kept.me.formed

    @property
    def may_vote(self) -> bool:
        return self._kept.may_vote

    def start(self, begun: Begun) -> None:
        """Call `begun` with the initial state as soon as there is one."""
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
        """Add nodes that discovery has found."""
        me = learned(self.me, nodes)
        if me != self.me and self.formed is None:
            self._become(me)
            self._step()

    @property
    def waits_for(self) -> str:
        """Return why this node has no cluster yet, as a sentence; empty if it has one."""
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
            return f"{text}. Its settings (cluster.join_only) forbid it to form one."
        needed = max(initial_quorum(self.me), self._nodes_min)
        return f"{text}. A new cluster needs {needed} of the nodes {_listing(self.me.known)}."

    def admit(self) -> None:
        """Allow this node to vote: the cluster has registered it with this disk."""
        self._keep(msgspec.structs.replace(self._kept, may_vote=True))

    # Queries

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
            told = _self_decoder.decode(answer.head)
        except msgspec.MsgspecError as problem:
            _log.warning("the bootstrap state of node %d cannot be decoded: %s", node, problem)
            return
        self._hear(told)

    def _hear(self, told: Self) -> None:
        self._answers[told.id] = told
        self._step()

    def _step(self) -> None:
        """Take the next step, given all answers."""
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
            # Retry later: settings may be corrected, and a full disk may be cleared.
            self._problem = str(error)

    def _agreed(self, formed: Formed) -> None:
        """Enter the cluster that enough nodes have accepted, maybe proposed without this one."""
        is_initial_voter = InitialVoter(self.me.id, self.me.disk) in formed.initial_voters
        try:
            self._enter(formed, is_initial_voter=is_initial_voter)
        except GoQueueError as error:
            # It remains agreed on, so the next attempt has the same result.
            self._problem = str(error)

    def _enter(self, formed: Formed, *, is_initial_voter: bool) -> None:
        assert self._begun is not None
        self._round.stop()
        is_absent = self._node_id in formed.absent
        # The initial voters are in no log entry, so at least one of them must have the list.
        voters = formed.voters if is_initial_voter or is_absent else ()
        state = self._begin(formed, Members(voters), may_vote=is_initial_voter)
        _log.info("%s cluster %s", "forming" if is_initial_voter else "joining", formed.cluster_id)
        self._begun(state, is_initial_voter)

    def _grow(self, metadata: Metadata) -> None:
        """Turn a single node into a cluster of one, which others may join."""
        if self.me.joins_only:
            raise InvalidSettings(
                [
                    "cluster.join_only: the data is that of a single node, which cannot join "
                    "another cluster; use an empty folder, or unset cluster.join_only"
                ]
            )
        name = self.me.configured_id or self.me.offered_id
        formed = Formed(name, (InitialVoter(self._node_id, self.me.disk),))
        data = snapshot_of_single_node(metadata, node=self._node_id, cluster_id=name)
        self._begin(formed, Members((self._node_id,)), data, may_vote=True)
        _log.info("this single node is now the first node of cluster %s", name)

    def _begin(
        self, formed: Formed, members: Members, data: bytes = b"", *, may_vote: bool
    ) -> RaftState:
        """Save the cluster's identity, then create its log; a crash in between is recovered."""
        if not data:
            # The data of a single node must be adopted together with the decision to grow.
            me = msgspec.structs.replace(self.me, formed=formed)
            self._keep(_Kept(me, may_vote=may_vote))
        self.state = state = self._storage.begin(members, data)
        me = msgspec.structs.replace(self.me, formed=formed)
        self._keep(_Kept(me, has_begun=True, may_vote=may_vote))
        return state

    def _answer(self, caller: int, head: bytes, body: memoryview) -> Promise[Answer]:
        """Return this node's state, after a promise or an acceptance if one is requested."""
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


def _read_kept(disk: Disk) -> _Kept | None:
    return read_framed_or_refuse(
        disk,
        _FILE,
        magic=_MAGIC,
        version=_VERSION,
        body=_Kept,
        remedy="The cluster of this node is in it: restore the file, or empty the folder meta, and "
        "the node joins as a new one.",
    )


def _finished(kept: _Kept) -> _Kept:
    """Complete a start that was interrupted just after the quorum's files were created."""
    me = kept.me
    if me.formed is None:  # Only a former single node starts before it saves this.
        formed = Formed(me.configured_id or me.offered_id, (InitialVoter(me.id, me.disk),))
        me = msgspec.structs.replace(me, formed=formed)
    return msgspec.structs.replace(kept, me=me, has_begun=True)


def belongs_to_cluster(disk: Disk) -> bool:
    """Return whether the data belongs to a cluster member, which must not run as a single node."""
    kept = _read_kept(disk)
    return kept is not None and kept.me.formed is not None


def _listing(nodes: Collection[int]) -> str:
    return ", ".join(map(str, nodes)) or "that discovery finds"


class FormationRound:
    """Runs ballots in which new nodes agree on a cluster, one at a time.

    A ballot that is superseded or gets no answers is abandoned. The next one starts after a random,
    growing pause, and after another proposer has had its time, so that nodes do not keep
    superseding one another.
    """

    def __init__(
        self,
        environment: Environment,
        *,
        me: Callable[[], Self],
        keep: Callable[[Self], None],
        heard: Callable[[Self], None],
        decided: Callable[[Formed], None],
    ) -> None:
        """`keep` saves the state of this node; `heard` receives the state of others."""
        self._clock = environment.clock
        self._peers = environment.peers
        self._random = environment.random
        self._me = me
        self._keep = keep
        self._heard = heard
        self._decided = decided
        self._attempt: Attempt | None = None
        self._rest_until_ms = 0
        self._failures = 0

    def stand(self, nodes: Iterable[int], others: Iterable[Self]) -> None:
        """Start a ballot with these nodes, unless one is running or was just abandoned."""
        if self._attempt is not None or self._clock.now_ms() < self._rest_until_ms:
            return
        me = self._me()
        latest = max(one.promised.round for one in (me, *others))
        if latest >= VERSION_MAX:
            _log.error("cannot bootstrap: a node has promised the last round, %d", latest)
            self._rest_until_ms = self._clock.now_ms() + PAUSE_MS_MAX
            return
        ballot = Ballot(latest + 1, me.id, me.disk)
        self._attempt = attempt = Attempt(me, ballot, list(nodes))
        _log.info("bootstrapping a cluster with nodes %s", ", ".join(map(str, nodes)))
        self._ask_all(attempt)

    def give_way(self) -> None:
        """Pause while another node runs its ballot, which takes two questions."""
        self._rest_until_ms = self._clock.now_ms() + 2 * ANSWER_MS_MAX

    def stop(self) -> None:
        self._attempt = None

    def _ask_all(self, attempt: Attempt) -> None:
        """Send the question of the ballot to all nodes, and answer it on this node first."""
        question = attempt.question
        self._clock.call_later(ANSWER_MS_MAX, partial(self._late, attempt, question))
        me = answer_question(self._me(), question)
        try:
            self._keep(me)
        except GoQueueError as error:
            _log.warning("cannot save the bootstrap promise of this node: %s", error)
            self._give_up()
            return
        self._send(attempt, question)
        self._hear(attempt, me)

    def _send(self, attempt: Attempt, question: Question) -> None:
        """Send the question to the others, repeatedly; a duplicate is harmless."""
        if attempt is not self._attempt or attempt.question is not question:
            return
        me, head = self._me(), encode_question(question)
        for node in me.known:
            if node != me.id:
                asked = self._peers.call(node, PeerKind.JOIN, head, timeout_ms=ANSWER_MS_MAX)
                asked.then(partial(self._answered, attempt, node))
        self._clock.call_later(REPEAT_MS, partial(self._send, attempt, question))

    def _answered(
        self, attempt: Attempt, node: int, answer: Answered | None, error: Exception | None
    ) -> None:
        if answer is None:
            if not isinstance(error, GoQueueError):
                assert error is not None
                raise error
            return
        try:
            told = _self_decoder.decode(answer.head)
        except msgspec.MsgspecError as problem:
            _log.warning("the bootstrap state of node %d cannot be decoded: %s", node, problem)
            return
        self._heard(told)
        self._hear(attempt, told)

    def _hear(self, attempt: Attempt, told: Self) -> None:
        if attempt is not self._attempt:
            return  # It was abandoned or is over.
        attempt.hear(told)
        if attempt.decided is not None:
            self._attempt = None
            self._decided(attempt.decided)
        elif attempt.is_overruled:
            self._give_up()
        elif attempt.may_propose(is_late=False):
            self._propose(attempt)

    def _late(self, attempt: Attempt, question: Question) -> None:
        """Continue after the time-out of a question with those that answered, if they suffice."""
        if attempt is not self._attempt or attempt.question is not question:
            return
        if attempt.may_propose(is_late=True):
            self._propose(attempt)
        else:
            self._give_up()

    def _propose(self, attempt: Attempt) -> None:
        attempt.propose()
        self._ask_all(attempt)

    def _give_up(self) -> None:
        self._attempt = None
        pause_ms = self._random.randint(1, min(PAUSE_MS << self._failures, PAUSE_MS_MAX))
        self._failures = min(self._failures + 1, PAUSE_MS_MAX // PAUSE_MS)
        until_ms = self._clock.now_ms() + pause_ms
        self._rest_until_ms = max(self._rest_until_ms, until_ms)
