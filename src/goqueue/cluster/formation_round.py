"""How new nodes agree on one cluster: single-decree Paxos.

The proposer requests promises to take no part in earlier ballots; a promise returns what the node
has accepted before. If any node has accepted a value, a majority may have, so the newest accepted
value is proposed again; otherwise a new cluster is. Once enough nodes have accepted the same
proposal, no other can be chosen, whatever fails. A promise binds a node together with its disk: a
node that has lost its disk has lost the promise, and must not accept on its strength.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from goqueue.cluster.bootstrap import (
    Accepted,
    Ballot,
    Formed,
    InitialVoter,
    Self,
    initial_quorum,
    new_cluster,
)
from goqueue.model.errors import MalformedRequest


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

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Question] = msgspec.msgpack.Decoder(Question)


def encode_question(question: Question) -> bytes:
    return _encoder.encode(question)


def decode_question(data: bytes) -> Question:
    try:
        return _decoder.decode(data)
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
    """One ballot, from the view of its proposer."""

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
