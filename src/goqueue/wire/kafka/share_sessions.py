"""Share sessions: a member of a share group names its partitions once, then only changes (KIP-932).

A session belongs to one member of a group on one node. Its epoch orders the requests of the member:
0 opens it, each request has the next one, -1 closes it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from typing import NamedTuple

from goqueue.model.errors import (
    InvalidRequest,
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    UnknownShareSession,
)

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = (1 << 31) - 1
ID_BITS = 62
# Of all sessions together; the largest of Kafka's tools and clients name some hundreds each.
PARTITIONS_MAX = 200_000
# Of one session: each fetch goes through all of them, even if its request names none.
SESSION_PARTITIONS_MAX = 10_000

PartitionRef = tuple[bytes, int]  # the id of a topic and the number of a partition


class SessionKey(NamedTuple):
    """Whose session it is. Others cannot continue it, even if they learn the id of the member."""

    tenant: str
    principal: str
    group: str
    member: str


class ShareSession:
    """The partitions that a member reads on this node."""

    __slots__ = ("epoch", "id", "key", "let_go", "lock_ms", "overdue", "partitions")

    def __init__(self, key: SessionKey, wanted: Iterable[PartitionRef]) -> None:
        self.key = key
        self.id = 1 + secrets.randbits(ID_BITS)  # unique among all sessions of a member
        self.epoch = 1
        self.lock_ms = 0  # how long records are leased, as last heard
        self.partitions: dict[PartitionRef, None] = dict.fromkeys(wanted)
        # Partitions that the next response contains even if there is nothing new about them: the
        # client has not heard of them yet, or it was told an error.
        self.overdue: set[PartitionRef] = set()
        self.let_go: Callable[[], None] = _do_nothing  # what the session's end is reported to

    def update(self, wanted: Iterable[PartitionRef], forgotten: Iterable[PartitionRef]) -> None:
        """Apply what a request adds and removes."""
        for one in wanted:
            if one not in self.partitions:
                self.partitions[one] = None
                self.overdue.add(one)
        for one in forgotten:
            self.partitions.pop(one, None)
            self.overdue.discard(one)

    def in_turn(self) -> list[PartitionRef]:
        """Return the partitions, each time beginning with another one, so that none starves."""
        partitions = list(self.partitions)
        first = self.epoch % len(partitions) if partitions else 0
        return partitions[first:] + partitions[:first]


class ShareSessions:
    """The sessions of a node."""

    def __init__(self, sessions_max: int, partitions_max: int = PARTITIONS_MAX) -> None:
        self._sessions_max = sessions_max
        self._partitions_max = partitions_max
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self, key: SessionKey, wanted: Iterable[PartitionRef], *, has_acks: bool
    ) -> ShareSession:
        """Begin a session, in place of the member's earlier one."""
        if has_acks:
            raise InvalidRequest("The request that opens a share session cannot acknowledge.")
        known = self._sessions.get(key)
        if known is not None:
            self._remove(known)
        session = ShareSession(key, wanted)
        if len(self._sessions) >= self._sessions_max:
            raise ShareSessionLimitReached(
                f"This node has {self._sessions_max} share sessions, which is the most that "
                "fetch.share_sessions_max allows."
            )
        self._check_room(len(session.partitions), 0)
        self._sessions[key] = session
        self._partitions += len(session.partitions)
        return session

    def resume(
        self,
        key: SessionKey,
        epoch: int,
        wanted: Iterable[PartitionRef] = (),
        forgotten: Iterable[PartitionRef] = (),
    ) -> ShareSession:
        """Return the session of a further request, updated from it."""
        session = self.find(key)
        if epoch != session.epoch:
            raise InvalidShareSessionEpoch(
                f"The share session of member {key.member[:100]} is at epoch {session.epoch}, not "
                f"{epoch}."
            )
        added = dict.fromkeys(one for one in wanted if one not in session.partitions)
        before = len(session.partitions)
        self._check_room(len(added), before)
        session.update(added, forgotten)
        self._partitions += len(session.partitions) - before
        session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
        return session

    def find(self, key: SessionKey) -> ShareSession:
        """Return the session of a member; raise if there is none."""
        session = self._sessions.get(key)
        if session is None:
            raise UnknownShareSession(
                f"Member {key.member[:100]} has no share session on this node."
            )
        return session

    def close(self, session: ShareSession) -> bool:
        """End a session; False if it had ended already."""
        if self._sessions.get(session.key) is not session:
            return False
        self._remove(session)
        return True

    def _remove(self, session: ShareSession) -> None:
        del self._sessions[session.key]
        self._partitions -= len(session.partitions)
        session.let_go()

    def _check_room(self, added: int, known: int) -> None:
        """Raise if a session that knows some partitions cannot have so many more."""
        if known + added > SESSION_PARTITIONS_MAX:
            raise ShareSessionLimitReached(
                f"A share session has at most {SESSION_PARTITIONS_MAX} partitions."
            )
        if added > self._partitions_max - self._partitions:
            raise ShareSessionLimitReached(
                f"The share sessions of this node would have more than {self._partitions_max} "
                "partitions."
            )


def _do_nothing() -> None:
    """Used until somebody holds the session."""
