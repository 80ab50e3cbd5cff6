"""Fetch sessions: a consumer sends its partitions once, then only changes (KIP-227).

A session has the partitions and what the client last received about each, so that a response
contains only the partitions with news.
"""

from __future__ import annotations

from collections import OrderedDict
from random import Random

from goqueue.model.errors import InvalidFetchSessionEpoch, UnknownFetchSession
from goqueue.wire.kafka.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_EPOCH_MAX = (1 << 31) - 1

# A topic by name in older versions, by id in newer ones.
TopicRef = str | bytes
PartitionRef = tuple[TopicRef, int]
Owner = tuple[str, str]  # a tenant and a principal: only they continue their sessions
NOBODY: Owner = ("", "")


class SessionPartition:
    """A partition of a session, and what its client has received about it."""

    __slots__ = ("high_watermark", "log_start_offset", "wanted")

    def __init__(self, wanted: FetchPartition) -> None:
        self.wanted = wanted
        self.high_watermark = -1
        self.log_start_offset = -1


class FetchSession:
    __slots__ = ("epoch", "id", "owner", "partitions", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, owner: Owner) -> None:
        self.id = session_id
        self.owner = owner
        self.uses_topic_ids = uses_topic_ids
        self.epoch = 1
        self.partitions: OrderedDict[PartitionRef, SessionPartition] = OrderedDict()

    def update(self, request: FetchRequest) -> None:
        """Apply what the request adds, changes and removes."""
        for topic in request.forgotten_topics_data:
            for number in topic.partitions:
                self.partitions.pop((self._ref(topic), number), None)
        for fetched in request.topics:
            for wanted in fetched.partitions:
                key = (self._ref(fetched), wanted.partition)
                known = self.partitions.get(key)
                if known is None:
                    self.partitions[key] = SessionPartition(wanted)
                else:
                    known.wanted = wanted

    def _ref(self, topic: FetchTopic | ForgottenTopic) -> TopicRef:
        return topic.topic_id if self.uses_topic_ids else topic.topic

    def serve_last(self, keys: list[PartitionRef]) -> None:
        """Move partitions that were just served to the end, so that none starves."""
        for key in keys:
            if key in self.partitions:
                self.partitions.move_to_end(key)


class FetchSessions:
    """The sessions of a node; a new one replaces the least recently used."""

    def __init__(self, sessions_max: int, random: Random) -> None:
        self._sessions_max = sessions_max
        self._random = random
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self, request: FetchRequest, *, uses_topic_ids: bool, owner: Owner = NOBODY
    ) -> FetchSession | None:
        """Open a session for a full request; None if the client wants none."""
        known = self._sessions.get(request.session_id)
        if known is not None and known.owner == owner:
            del self._sessions[request.session_id]
        if request.session_epoch != INITIAL_EPOCH or not request.topics or not self._sessions_max:
            return None
        session_id = self._random.randint(1, _EPOCH_MAX)
        while session_id in self._sessions:
            session_id = self._random.randint(1, _EPOCH_MAX)
        session = FetchSession(session_id, uses_topic_ids, owner)
        session.update(request)
        self._sessions[session_id] = session
        if len(self._sessions) > self._sessions_max:
            self._sessions.popitem(last=False)
        return session

    def resume(
        self, request: FetchRequest, *, uses_topic_ids: bool, owner: Owner = NOBODY
    ) -> FetchSession:
        """The session of an incremental request, updated from it."""
        session = self._sessions.get(request.session_id)
        is_ours = session is not None and session.owner == owner
        if session is None or not is_ours or session.uses_topic_ids != uses_topic_ids:
            raise UnknownFetchSession(f"Fetch session {request.session_id} is not known here.")
        if request.session_epoch != session.epoch:
            raise InvalidFetchSessionEpoch(
                f"Fetch session {session.id} is at epoch {session.epoch}, not "
                f"{request.session_epoch}."
            )
        session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1
        session.update(request)
        self._sessions.move_to_end(session.id)
        return session
