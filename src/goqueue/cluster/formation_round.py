"""How new nodes agree on one cluster: Paxos for a single decision, the first there is.

Whoever tries asks the others for a promise to take no part in earlier attempts, and is told what
they have agreed to before. If that is anything, it may be what most have agreed to, so the newest
of it is proposed again, and else a new cluster. Once enough nodes have accepted the same proposal
nothing else can ever be agreed on, whoever fails. A promise binds a node together with its disk:
one that lost it meanwhile has forgotten the promise, and must not accept in its name.
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
    """Promise to take no part in an attempt before this one, of nodes that know these."""

    ballot: Ballot
    known: tuple[int, ...]
    is_listed: bool


class Propose(msgspec.Struct, frozen=True, array_like=True, tag="propose"):
    """Accept this, if you are one of those that have promised."""

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
        raise MalformedRequest(f"This is not how a cluster is founded: {error}.") from error


def answer_question(me: Self, question: Question) -> Self:
    """The node after it has answered; unchanged if it refuses. To be kept before it is told."""
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
    """One ballot, as the node that tries it sees it."""

    def __init__(self, me: Self, ballot: Ballot, awaited: Collection[int]) -> None:
        """`awaited` are those that should be there, and are worth a moment's patience."""
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
        """A node has told what it is, after it was asked the question or by itself."""
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
        """Whether enough have promised, and all that are awaited unless it is late."""
        if not isinstance(self.question, Prepare) or self.is_overruled:
            return False
        is_complete = self._awaited <= self._promises.keys()
        return len(self._promises) >= self._quorum and (is_complete or is_late)

    def propose(self) -> None:
        """Have the next question be whether the others accept what follows from their promises."""
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
