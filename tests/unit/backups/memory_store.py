"""A store of backups that is no folder: names and bytes, as an object store has them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from goqueue.backups.store import Store


class MemoryStore(Store):
    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def __str__(self) -> str:
        return "memory"

    @contextmanager
    def open_for_writing(self) -> Iterator[None]:
        yield

    @contextmanager
    def writing(self) -> Iterator[MemoryPart]:
        yield MemoryPart(self.files)

    def read(self, name: str) -> Iterator[bytes]:
        if name not in self.files:
            raise FileNotFoundError(name)
        yield self.files[name]

    def size(self, name: str) -> int | None:
        data = self.files.get(name)
        return None if data is None else len(data)

    def names(self, prefix: str) -> list[str]:
        return sorted(one for one in self.files if one.rpartition("/")[0] == prefix)


class MemoryPart:
    def __init__(self, files: dict[str, bytes]) -> None:
        self._files = files
        self._data = b""

    def append(self, data: bytes) -> None:
        self._data += data

    def finish(self, name: str) -> None:
        self._files[name] = self._data
