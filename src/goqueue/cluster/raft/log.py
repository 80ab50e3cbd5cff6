"""The in-memory log of one node: entries, the position before them, and their progress.

`committed` entries are agreed on by the quorum and never change; `saved` ones are on this node's
disk. Either may be ahead of the other. Entries between `base` and the end of the snapshot are
retained for followers that are only slightly behind.
"""

from __future__ import annotations

from goqueue.cluster.raft.messages import (
    Entry,
    EntryKind,
    Members,
    Position,
    decode_members,
)
from goqueue.cluster.raft.ready import START, RaftState, Ready, Snapshot

_ENTRY_OVERHEAD_BYTES = 32


def entry_bytes(entry: Entry) -> int:
    """Return the approximate size on the wire, so that empty entries count too."""
    return len(entry.payload) + _ENTRY_OVERHEAD_BYTES


class RaftLog:
    def __init__(self, state: RaftState) -> None:
        self.snapshot = state.snapshot
        self.base = state.base
        self.entries = list(state.entries)
        self.commit_index = state.snapshot.last.index
        self.handed_out_index = self.commit_index
        self.saved_index = self.last_index
        self.generation = 0  # raised whenever entries are truncated
        self._untaken_index = self.last_index + 1  # first entry not yet handed out for saving
        self._truncate_from: int | None = None
        self._has_new_snapshot = False
        self._restored: Snapshot | None = None
        # Each list of members takes effect at its entry, committed or not.
        self._members = [(self.snapshot.last.index, self.snapshot.members)]
        self._note_members(self.entries)

    def begin(self, members: Members) -> None:
        """Set the initial members of an empty log."""
        assert self.last == self.snapshot.last == START
        self.snapshot = Snapshot(START, members, b"")
        self._members = [(START.index, members)]

    # Content

    @property
    def last_index(self) -> int:
        return self.base.index + len(self.entries)

    @property
    def last(self) -> Position:
        if not self.entries:
            return self.base
        entry = self.entries[-1]
        return Position(entry.index, entry.term)

    @property
    def members(self) -> Members:
        return self._members[-1][1]

    @property
    def members_index(self) -> int:
        """Return the index of the entry that set `members`."""
        return self._members[-1][0]

    def members_at(self, index: int) -> Members:
        return next(members for at, members in reversed(self._members) if at <= index)

    def possible_members(self) -> list[Members]:
        """Return all lists that the quorum may have agreed on by now, by this node's log."""
        later = [members for at, members in self._members if at > self.commit_index]
        return [self.members_at(self.commit_index), *later]

    def term_at(self, index: int) -> int | None:
        """Return the term of an entry; None if it is not, or no longer, in the log."""
        if index == self.base.index:
            return self.base.term
        if self.base.index < index <= self.last_index:
            return self.entries[index - self.base.index - 1].term
        return None

    def position_at(self, index: int) -> Position:
        term = self.term_at(index)
        assert term is not None, f"entry {index} is not in the log"
        return Position(index, term)

    def read(self, start: int, *, entries_max: int, bytes_max: int) -> list[Entry]:
        """Return entries from `start` on, at least one if there is one."""
        first = start - self.base.index - 1
        assert first >= 0, f"entry {start} is not kept any more"
        found: list[Entry] = []
        size = 0
        for at in range(first, min(len(self.entries), first + entries_max)):
            size += entry_bytes(self.entries[at])
            if found and size > bytes_max:
                break
            found.append(self.entries[at])
        return found

    def hint_for(self, index: int, term: int) -> Position:
        """Return the newest own entry that could also be in a log that has `term` at `index`."""
        at = min(index, self.last_index)
        while at > self.base.index:
            own = self.entries[at - self.base.index - 1].term
            if own <= term:
                return Position(at, own)
            at -= 1
        return self.base

    def is_behind_or_equal(self, other: Position) -> bool:
        """Return whether a log that ends at `other` is at least as up to date as this one."""
        last = self.last
        return (other.term, other.index) >= (last.term, last.index)

    # Changes

    def append(self, term: int, kind: EntryKind, payload: bytes) -> Entry:
        """Append an entry of the leader itself."""
        entry = Entry(self.last_index + 1, term, kind, payload)
        self._extend([entry])
        return entry

    def accept(self, previous: Position, entries: list[Entry]) -> int | None:
        """Store a leader's entries; return the index up to which the logs match, or None."""
        if previous.index < self.commit_index:
            # The leader has everything that is committed, so the logs match at least up to there.
            entries = entries[self.commit_index - previous.index :]
            previous = self.position_at(self.commit_index)
        elif self.term_at(previous.index) != previous.term:
            return None
        for at, entry in enumerate(entries):
            if self.term_at(entry.index) != entry.term:
                self._truncate(entry.index)
                self._extend(entries[at:])
                break
        return previous.index + len(entries)

    def commit_to(self, index: int) -> bool:
        """Advance the commit index; return whether it moved."""
        assert index <= self.last_index, "what is not in the log cannot be committed"
        if index <= self.commit_index:
            return False
        self.commit_index = index
        return True

    def compact(self, index: int, data: bytes, *, entries_kept: int) -> None:
        """Replace everything up to `index` by the snapshot `data`."""
        members = self.members_at(index)
        self.snapshot = Snapshot(self.position_at(index), members, data)
        base_index = max(self.base.index, index - entries_kept)
        base = self.position_at(base_index)
        del self.entries[: base_index - self.base.index]
        self.base = base
        self._members = [
            (index, members),
            *((at, later) for at, later in self._members if at > index),
        ]
        self._has_new_snapshot = True

    def install(self, snapshot: Snapshot) -> None:
        """Install a leader's snapshot, which is ahead of the commit index of this node."""
        last = snapshot.last
        assert last.index > self.commit_index
        if self.term_at(last.index) == last.term:
            # The log contains the snapshot's last entry, so later entries may be needed and are
            # kept.
            del self.entries[: last.index - self.base.index]
            later = [(at, members) for at, members in self._members if at > last.index]
        else:
            self.entries.clear()
            self.generation += 1
            self.saved_index = min(self.saved_index, self.commit_index)
            later = []
        self.base = last
        self.snapshot = snapshot
        self._members = [(last.index, snapshot.members), *later]
        self.commit_index = last.index
        self.handed_out_index = last.index
        self._has_new_snapshot = True
        self._restored = snapshot

    # Output

    def take(self, ready: Ready, *, committed_max: int) -> None:
        """Fill in what is to be saved and what is to be applied."""
        if self._has_new_snapshot:
            ready.snapshot, ready.base = self.snapshot, self.base
            ready.entries = list(self.entries)
        else:
            ready.truncate_from = self._truncate_from
            ready.entries = self.entries[self._untaken_index - self.base.index - 1 :]
        ready.restored = self._restored
        self._has_new_snapshot, self._restored, self._truncate_from = False, None, None
        self._untaken_index = self.last_index + 1
        if self.handed_out_index < self.commit_index:
            first = self.handed_out_index - self.base.index
            until = self.commit_index - self.base.index
            ready.committed = self.entries[first : min(until, first + committed_max)]
            self.handed_out_index += len(ready.committed)

    def note_saved(self, generation: int, last_index: int) -> None:
        """Note that a Ready taken when the log ended at `last_index` is on disk."""
        # In an older generation some entries were truncated; the Ready that did it comes later and
        # counts for all of them.
        if generation == self.generation:
            self.saved_index = max(self.saved_index, last_index)

    # Helpers

    def _extend(self, entries: list[Entry]) -> None:
        self.entries.extend(entries)
        self._note_members(entries)

    def _truncate(self, index: int) -> None:
        if index > self.last_index:
            return
        assert index > self.commit_index, "committed entries never change"
        del self.entries[index - self.base.index - 1 :]
        while self._members[-1][0] >= index:
            self._members.pop()
        self.generation += 1
        self.saved_index = min(self.saved_index, index - 1)
        if index < self._untaken_index:
            self._untaken_index = index
            self._truncate_from = min(index, self._truncate_from or index)

    def _note_members(self, entries: list[Entry]) -> None:
        for entry in entries:
            if entry.kind is EntryKind.MEMBERS and entry.index > self._members[-1][0]:
                self._members.append((entry.index, decode_members(entry.payload)))
