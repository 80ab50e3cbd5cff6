"""Back-off after failed attempts to authenticate.

Each address and each user may fail a few times; then every further failure doubles the time for
which attempts are refused without a check. Successes of others are not affected: a user that is
attacked from one address can still log in from another, because only pairs are locked, and an
address only after many more failures.
"""

from __future__ import annotations

FREE_FAILURES = 5  # of one user from one address
FREE_FAILURES_OF_ADDRESS = 50  # of all users together
WAIT_MS_MIN = 250
WAIT_MS_MAX = 60_000
FORGET_MS = 10 * 60_000  # failures older than this do not count
ENTRIES_MAX = 10_000  # the oldest are dropped

_Entry = tuple[int, int]  # the number of failures, and when the last one was
_Subject = tuple[str, str | None]  # an address, and a user or None for all of them


class Failures:
    """Counts failures, and returns how long a client has to wait."""

    def __init__(self) -> None:
        self._entries: dict[_Subject, _Entry] = {}

    def wait_ms(self, host: str, user: str, *, now_ms: int) -> int:
        """Return for how long attempts of this address for this user are refused; 0: try now."""
        return max(
            self._wait((host, user), FREE_FAILURES, now_ms),
            self._wait((host, None), FREE_FAILURES_OF_ADDRESS, now_ms),
        )

    def failed(self, host: str, user: str, *, now_ms: int) -> None:
        for subject in ((host, user), (host, None)):
            count, last_ms = self._entries.pop(subject, (0, now_ms))
            if now_ms - last_ms > FORGET_MS:
                count = 0
            self._entries[subject] = (count + 1, now_ms)  # The newest is the last entry.
        while len(self._entries) > ENTRIES_MAX:
            del self._entries[next(iter(self._entries))]

    def succeeded(self, host: str, user: str) -> None:
        self._entries.pop((host, user), None)

    def _wait(self, subject: _Subject, free: int, now_ms: int) -> int:
        count, last_ms = self._entries.get(subject, (0, 0))
        if count <= free:
            return 0
        pause = min(WAIT_MS_MAX, WAIT_MS_MIN << min(count - free - 1, 16))
        return max(0, last_ms + pause - now_ms)
