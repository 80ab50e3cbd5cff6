"""The leader's side: replicate to followers, commit, and confirm reads.

A `Leadership` exists for the leader of one term. It decides nothing about terms; `Raft` ends it
when it loses its majority.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum, auto

from goqueue.cluster.raft.log import RaftLog, entry_bytes
from goqueue.cluster.raft.messages import (
    COUNTER_MAX,
    Append,
    AppendAnswer,
    Entry,
    EntryKind,
    Position,
    SnapshotAnswer,
    SnapshotChunk,
    StandNow,
)
from goqueue.cluster.raft.ready import Outbox, Proposal, ReadDone, Refused, Snapshot
from goqueue.cluster.raft.settings import RaftSettings
from goqueue.model.errors import MalformedRequest

_CHUNK_PATIENCE_HEARTBEATS = 4  # then a chunk counts as lost


class Leadership:
    def __init__(
        self,
        node_id: int,
        term: int,
        log: RaftLog,
        outbox: Outbox,
        settings: RaftSettings,
        *,
        now_ms: int,
    ) -> None:
        self.node_id = node_id
        self.term = term
        self.followers: dict[int, Progress] = {}
        self.transfer_to: int | None = None
        self.heartbeat_due_ms = now_ms
        self._log = log
        self._outbox = outbox
        self._settings = settings
        self._now_ms = now_ms
        self._transfer_until_ms = 0
        self._uncommitted_bytes = sum(
            entry_bytes(entry) for entry in log.entries if entry.index > log.commit_index
        )
        self._round = 0
        self._reads_new: list[int] = []
        self._reads_asked: deque[tuple[int, int, list[int]]] = deque()  # round, index, contexts
        self._reads_waiting = 0
        self._reads_done: list[ReadDone] = []
        self._meet_followers()
        # Entries of earlier terms are committed through this one, never by counting replicas.
        self.append(EntryKind.NOTHING, b"")

    # Time

    def tick(self, now_ms: int) -> None:
        self._now_ms = now_ms
        if self.transfer_to is not None and now_ms >= self._transfer_until_ms:
            self.transfer_to = None
        if now_ms >= self.heartbeat_due_ms:
            self.heartbeat_due_ms = now_ms + self._settings.heartbeat_ms
            for node, progress in self.followers.items():
                self._send_empty(node, progress)
            self._hand_over()

    def has_majority(self, now_ms: int) -> bool:
        """Return whether a majority of voters has answered within the election timeout."""
        oldest_ms = now_ms - self._settings.election_ms
        heard = sum(
            voter == self.node_id or self.followers[voter].heard_ms > oldest_ms
            for voter in self._log.members.voters
        )
        return heard >= self._log.members.majority

    # Proposals

    def append(self, kind: EntryKind, payload: bytes) -> Proposal:
        entry = self._log.append(self.term, kind, payload)
        self._uncommitted_bytes += entry_bytes(entry)
        if kind is EntryKind.MEMBERS:
            self._meet_followers()
        return Proposal(entry.index, entry.term)

    def refusal(self, payload_bytes: int) -> Refused | None:
        """Return why nothing can be proposed now, or None."""
        settings = self._settings
        if self._log.last_index >= COUNTER_MAX:
            return Refused("The quorum's log has reached its maximum index; nothing can be added.")
        if payload_bytes > settings.payload_bytes_max:
            return Refused(
                f"A proposal of {payload_bytes} bytes is larger than the "
                f"{settings.payload_bytes_max} allowed; split it."
            )
        if self.transfer_to is not None:
            return Refused(f"Leadership moves to node {self.transfer_to}; retry there.")
        if self._uncommitted_bytes + payload_bytes > settings.uncommitted_bytes_max:
            return Refused(
                f"{self._uncommitted_bytes} bytes are uncommitted without a majority; retry when "
                "a majority of the voters answers again."
            )
        return None

    @property
    def has_committed(self) -> bool:
        """Return whether an entry of this term is committed, so that `commit_index` is current."""
        return self._log.term_at(self._log.commit_index) == self.term

    def lag_of(self, node: int) -> int:
        return self._log.commit_index - self.followers[node].match_index

    # Answers

    def receive_append_answer(self, answer: AppendAnswer, now_ms: int) -> None:
        progress = self.followers.get(answer.sender)
        if progress is None:
            return
        if answer.round > self._round or answer.match_index > self._log.last_index:
            raise MalformedRequest(
                f"Node {answer.sender} sent an impossible acknowledgement: entry "
                f"{answer.match_index} of {self._log.last_index}."
            )
        progress.hear(now_ms, answer.round)
        if answer.is_accepted:
            if progress.accept(answer):
                self.commit_what_a_majority_has()
        else:
            hint = self._log.hint_for(answer.hint.index, answer.hint.term)
            if progress.refuse(answer, try_index=hint.index):
                self._send_empty(answer.sender, progress)
        self._settle_reads()
        self._hand_over()

    def receive_snapshot_answer(self, answer: SnapshotAnswer, now_ms: int) -> None:
        progress = self.followers.get(answer.sender)
        if progress is not None:
            progress.hear(now_ms)
            progress.accept_chunk(answer)

    def commit_what_a_majority_has(self) -> None:
        """Commit up to the newest entry of this term that a majority of voters has saved."""
        index = self._majority_of(
            self._log.saved_index if voter == self.node_id else self.followers[voter].match_index
            for voter in self._log.members.voters
        )
        before = self._log.commit_index
        if index > before and self._log.term_at(index) == self.term:
            self._log.commit_to(index)
            base = self._log.base.index
            committed = self._log.entries[before - base : index - base]
            self._uncommitted_bytes -= sum(map(entry_bytes, committed))
            self._meet_followers()

    # Reads

    def read(self, context: int) -> Refused | None:
        if self._reads_waiting >= self._settings.reads_waiting_max:
            return Refused(f"{self._reads_waiting} reads are waiting for a majority; retry later.")
        self._reads_waiting += 1
        self._reads_new.append(context)
        return None

    def take_reads(self) -> list[ReadDone]:
        done, self._reads_done = self._reads_done, []
        return done

    def unfinished_reads(self) -> list[int]:
        asked = [context for _, _, contexts in self._reads_asked for context in contexts]
        return asked + self._reads_new

    # Leadership transfer

    def transfer(self, to: int, now_ms: int) -> None:
        self.transfer_to = to
        self._transfer_until_ms = now_ms + self._settings.election_ms
        self._hand_over()

    def resign(self) -> None:
        """Request the most up-to-date voter to take over at once."""
        voters = [voter for voter in self._log.members.voters if voter != self.node_id]
        if voters:
            best = max(voters, key=lambda voter: self.followers[voter].match_index)
            self._outbox.send_now(StandNow(self.node_id, best, self.term))

    # Sending

    def flush(self) -> None:
        """Send every follower what is new for it."""
        self._ask_reads()
        for node, progress in self.followers.items():
            if progress.pace is Pace.STREAMING:
                self._stream(node, progress)
            if progress.next_index <= self._log.base.index and progress.pace is not Pace.SNAPSHOT:
                progress.begin_snapshot(self._log.snapshot)
            if progress.pace is Pace.SNAPSHOT:
                self._send_chunk(node, progress)
            is_commit_news = progress.commit_index_sent < self._log.commit_index
            if progress.round_sent < self._round or (
                is_commit_news and progress.pace is Pace.STREAMING
            ):
                self._send_empty(node, progress)

    def _stream(self, node: int, progress: Progress) -> None:
        log, settings = self._log, self._settings
        while (
            log.base.index < progress.next_index <= log.last_index
            and len(progress.in_flight) < settings.appends_in_flight_max
        ):
            entries = log.read(
                progress.next_index,
                entries_max=settings.append_entries_max,
                bytes_max=settings.append_bytes_max,
            )
            self._send_append(node, progress, log.position_at(progress.next_index - 1), entries)
            progress.next_index = entries[-1].index + 1
            progress.in_flight.append(entries[-1].index)

    def _send_empty(self, node: int, progress: Progress) -> None:
        """Send a heartbeat, which also detects lost messages."""
        if progress.pace is Pace.SNAPSHOT:
            assert progress.snapshot is not None
            previous = progress.snapshot.last
        elif progress.next_index > self._log.base.index:
            previous = self._log.position_at(progress.next_index - 1)
        else:
            previous = self._log.snapshot.last
        self._send_append(node, progress, previous, [])

    def _send_append(
        self, node: int, progress: Progress, previous: Position, entries: list[Entry]
    ) -> None:
        commit_index = self._log.commit_index
        progress.commit_index_sent = commit_index
        progress.round_sent = self._round
        self._outbox.send_now(
            Append(self.node_id, node, self.term, previous, entries, commit_index, self._round)
        )

    def _send_chunk(self, node: int, progress: Progress) -> None:
        """Send one chunk at a time; resend one that is not answered for long."""
        snapshot, sent_ms = progress.snapshot, progress.chunk_sent_ms
        assert snapshot is not None
        patience_ms = _CHUNK_PATIENCE_HEARTBEATS * self._settings.heartbeat_ms
        if sent_ms is not None and self._now_ms < sent_ms + patience_ms:
            return
        offset = progress.snapshot_offset
        data = snapshot.data[offset : offset + self._settings.snapshot_chunk_bytes]
        progress.chunk_sent_ms = self._now_ms
        self._outbox.send_now(
            SnapshotChunk(
                self.node_id,
                node,
                self.term,
                snapshot.last,
                snapshot.members,
                len(snapshot.data),
                offset,
                data,
            )
        )

    # Helpers

    def _meet_followers(self) -> None:
        """Replicate to exactly the members; a removed one until its removal is committed."""
        log = self._log
        wanted = set(log.members.all) | set(log.members_at(log.commit_index).all)
        wanted.discard(self.node_id)
        for node in wanted - self.followers.keys():
            self.followers[node] = Progress(next_index=log.last_index + 1, now_ms=self._now_ms)
        for node in self.followers.keys() - wanted:
            del self.followers[node]

    def _majority_of(self, values: Iterator[int]) -> int:
        """Return the largest value that a majority of the voters has reached."""
        return sorted(values, reverse=True)[self._log.members.majority - 1]

    def _ask_reads(self) -> None:
        """Start one round of appends for the new reads, once an entry of this term is committed."""
        if self._reads_new and self.has_committed:
            self._round += 1
            self._reads_asked.append((self._round, self._log.commit_index, self._reads_new))
            self._reads_new = []
            self._settle_reads()

    def _settle_reads(self) -> None:
        """Complete the reads whose round was confirmed by a majority."""
        if not self._reads_asked:
            return
        confirmed = self._majority_of(
            self._round if voter == self.node_id else self.followers[voter].round_answered
            for voter in self._log.members.voters
        )
        while self._reads_asked and self._reads_asked[0][0] <= confirmed:
            _, index, contexts = self._reads_asked.popleft()
            self._reads_waiting -= len(contexts)
            self._reads_done += [ReadDone(context, index) for context in contexts]

    def _hand_over(self) -> None:
        """Request the successor to stand for election as soon as it has the whole log."""
        if self.transfer_to is None:
            return
        progress = self.followers.get(self.transfer_to)
        if progress is not None and progress.match_index == self._log.last_index:
            self._outbox.send_now(StandNow(self.node_id, self.transfer_to, self.term))


class Pace(Enum):
    PROBING = auto()  # empty appends, one at a time, find where the logs diverge
    STREAMING = auto()  # entries are sent ahead of their acknowledgements
    SNAPSHOT = auto()  # the follower needs entries that the log no longer has


class Progress:
    """Progress of one follower as seen by its leader, and what to send it next.

    The leader first assumes that a follower's log matches its own, until that is refused.
    """

    def __init__(self, *, next_index: int, now_ms: int) -> None:
        self.pace = Pace.STREAMING
        self.match_index = 0  # durably identical up to here
        self.next_index = next_index
        self.in_flight: deque[int] = deque()  # last index of each unacknowledged append
        self.commit_index_sent = 0
        self.round_sent = 0
        self.round_answered = 0
        self.heard_ms = now_ms
        self.snapshot: Snapshot | None = None
        self.snapshot_offset = 0
        self.chunk_sent_ms: int | None = None  # None: the next chunk may be sent

    def hear(self, now_ms: int, round_answered: int = 0) -> None:
        self.heard_ms = now_ms
        self.round_answered = max(self.round_answered, round_answered)

    def accept(self, answer: AppendAnswer) -> bool:
        """Note how far the logs match; return whether that is further than before."""
        is_news = answer.match_index > self.match_index
        self.match_index = max(self.match_index, answer.match_index)
        while self.in_flight and self.in_flight[0] <= self.match_index:
            self.in_flight.popleft()
        if self.pace is Pace.STREAMING:
            self.next_index = max(self.next_index, self.match_index + 1)
        elif self.pace is Pace.PROBING or self._has_snapshot():
            self._stream()
        return is_news

    def refuse(self, answer: AppendAnswer, *, try_index: int) -> bool:
        """Step back to probe at `try_index`; return False for an answer that is too late."""
        is_late = answer.refused_index <= self.match_index
        if self.pace is Pace.PROBING:
            is_late = answer.refused_index != self.next_index - 1
        if is_late or self.pace is Pace.SNAPSHOT:
            return False
        self.pace = Pace.PROBING
        self.in_flight.clear()
        self.next_index = max(self.match_index, min(answer.refused_index - 1, try_index)) + 1
        return True

    def begin_snapshot(self, snapshot: Snapshot) -> None:
        self.pace = Pace.SNAPSHOT
        self.in_flight.clear()
        self.snapshot = snapshot
        self.snapshot_offset = 0
        self.chunk_sent_ms = None

    def accept_chunk(self, answer: SnapshotAnswer) -> None:
        """Note where the next chunk must start, ahead or behind."""
        snapshot = self.snapshot
        if snapshot is None or answer.last != snapshot.last:
            return
        if answer.offset != self.snapshot_offset and answer.offset <= len(snapshot.data):
            self.snapshot_offset = answer.offset
            self.chunk_sent_ms = None

    def _has_snapshot(self) -> bool:
        return self.snapshot is not None and self.match_index >= self.snapshot.last.index

    def _stream(self) -> None:
        self.pace = Pace.STREAMING
        self.snapshot = None
        self.next_index = self.match_index + 1
        self.in_flight.clear()
