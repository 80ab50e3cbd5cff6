"""A folder as the place of backups: immutable files, written whole and durably."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from goqueue.backups.store import Store
from goqueue.model.errors import InvalidRequest

READ_BYTES = 1 << 20
_PART = ".part"
_LOCK = "lock"


class Folder(Store):
    """A folder of this machine. Only its owner may read it: backups hold credentials."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    @contextmanager
    def open_for_writing(self) -> Iterator[None]:
        try:
            with self._locked():
                yield
        except OSError as error:
            raise InvalidRequest(
                f"The backup cannot be written to {self.path}: {error.strerror or error}. What was "
                "copied so far is used again by the next one."
            ) from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InvalidRequest(f"Another backup is being written to {self.path}.") from None
            for left_over in self.path.rglob(f"*{_PART}"):
                left_over.unlink()
            yield
        finally:
            os.close(fd)

    # Files

    @contextmanager
    def writing(self) -> Iterator[Part]:
        part = Part(self.path)
        try:
            yield part
        finally:
            part.close()

    def read(self, name: str) -> Iterator[bytes]:
        with (self.path / name).open("rb") as file:
            while data := file.read(READ_BYTES):
                yield data

    def size(self, name: str) -> int | None:
        try:
            return (self.path / name).stat().st_size
        except FileNotFoundError:
            return None

    def names(self, prefix: str) -> list[str]:
        return sorted(f"{prefix}/{one.name}" for one in (self.path / prefix).glob("*"))


class Part:
    """A file that has no name yet."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._path = root / f"{os.getpid()}-{id(self):x}{_PART}"
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._is_named = False

    def append(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]

    def finish(self, name: str) -> None:
        """Make the content durable, then the name."""
        os.fsync(self._file)
        target = self._root / name
        missing = [one for one in target.parents if not one.exists()]
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path.rename(target)
        self._is_named = True
        for folder in (target.parent, *(one.parent for one in missing)):
            _sync_folder(folder)

    def close(self) -> None:
        os.close(self._file)
        if not self._is_named:
            self._path.unlink()


def _sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
