"""Leader epochs: which leader wrote which part of the log."""

from __future__ import annotations

from bisect import bisect_right

FIRST_EPOCH = (0, 0)

Entries = list[tuple[int, int]]


class LeaderEpochs:
    """Ascending pairs of epoch and the first offset written in it.

    `latest` is the last epoch, or -1. `unsaved` are the entries if a file must be written for them:
    a log of the first epoch only needs none.
    """

    __slots__ = ("_entries", "_saved", "latest", "unsaved")

    def __init__(self, entries: Entries | None = None) -> None:
        """`entries` are those in the file."""
        self._entries = list(entries or ())
        self.set_saved(self.entries)

    @property
    def entries(self) -> Entries:
        return list(self._entries)

    @property
    def is_saved(self) -> bool:
        """Return whether the file has exactly these entries."""
        return self._entries == self._saved

    def set_saved(self, entries: Entries) -> None:
        """Note that the file has these entries now."""
        self._saved = entries
        self._changed()

    def note(self, epoch: int, start_offset: int) -> bool:
        """Start an epoch at an offset; return False if it has already started."""
        entries = self._entries
        if epoch < 0 or (entries and epoch <= entries[-1][0]):
            return False
        # Entries for the same offsets were saved from a history that has been truncated since.
        while entries and entries[-1][1] >= start_offset:
            entries.pop()
        entries.append((epoch, start_offset))
        self._changed()
        return True

    def end_offset(self, epoch: int, *, log_end: int) -> tuple[int, int]:
        """Return the newest epoch not after `epoch` and its end offset; -1, -1 if none."""
        number = bisect_right(self._entries, epoch, key=lambda entry: entry[0]) - 1
        if number < 0:
            return -1, -1
        is_last = number + 1 == len(self._entries)
        return self._entries[number][0], log_end if is_last else self._entries[number + 1][1]

    def epoch_of(self, offset: int) -> int:
        """Return the epoch in which `offset` was written, or -1."""
        number = bisect_right(self._entries, offset, key=lambda entry: entry[1]) - 1
        return self._entries[number][0] if number >= 0 else -1

    def truncate(self, offset: int) -> None:
        """Drop the epochs that start at `offset` or later."""
        while self._entries and self._entries[-1][1] >= offset:
            self._entries.pop()
        self._changed()

    def advance_start(self, offset: int) -> None:
        """Drop the epochs that ended before `offset`."""
        number = bisect_right(self._entries, offset, key=lambda entry: entry[1]) - 1
        if number > 0:
            del self._entries[:number]
            self._changed()

    def _changed(self) -> None:
        """Update what is read at every append and every round of syncing."""
        entries = self._entries
        self.latest = entries[-1][0] if entries else -1
        needs_file = not self.is_saved and entries != [FIRST_EPOCH]
        self.unsaved = self.entries if needs_file else None
