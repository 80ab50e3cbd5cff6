"""The audit log as a file: one event per line, renamed when it is large.

Only the owner can read a new file. A file that another program has moved away is left alone and a
new one begun, as tools that rotate logs expect. Lines are written whole or not at all; they are not
synced, so a failure of the machine may lose the last ones, which the topic has.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise

_FILE_MODE = 0o600


class AuditFile:
    """Appends events to a file, in a thread."""

    def __init__(self, clock: Clock, path: Path, *, bytes_max: int, files_max: int) -> None:
        self.name = str(path)
        self._clock = clock
        self._path = path
        self._bytes_max = bytes_max
        self._files_max = files_max
        self._descriptor = -1

    def write(self, texts: Sequence[bytes]) -> Promise[None]:
        lines = b"".join([text + b"\n" for text in texts])
        written: Promise[None] = Promise()
        self._clock.run_blocking(
            lambda: self._append(lines), lambda _, error: written.settle(None, error)
        )
        return written

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _append(self, lines: bytes) -> None:
        size = self._open_current()
        if size and size + len(lines) > self._bytes_max:
            self._rotate()
            size = self._open_current()
        try:
            left = memoryview(lines)
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError:
            os.ftruncate(self._descriptor, size)  # What is written again must not follow a half.
            raise

    def _open_current(self) -> int:
        """Open the file of this name, unless it is open; return its size."""
        if self._descriptor >= 0 and not self._is_current():
            self.close()
        if self._descriptor < 0:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, _FILE_MODE)
        return os.fstat(self._descriptor).st_size

    def _is_current(self) -> bool:
        """Whether the open file still has its name."""
        try:
            named = os.stat(self._path)
        except FileNotFoundError:
            return False
        return os.path.samestat(named, os.fstat(self._descriptor))

    def _rotate(self) -> None:
        """Rename the files: the current one becomes `.1`, that one `.2`, and the last one goes."""
        self.close()
        last = self._files_max - 1
        if last == 0:
            self._path.unlink(missing_ok=True)
            return
        for number in range(last - 1, 0, -1):
            source = self._numbered(number)
            if source.exists():
                source.replace(self._numbered(number + 1))
        self._path.replace(self._numbered(1))

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")
