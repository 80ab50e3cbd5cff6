"""An empty, read-only disk, for logs that only other nodes store."""

from __future__ import annotations

import errno

from goqueue.model.compression import Buffer
from goqueue.storage.disk import File


class NoDisk:
    """A disk without any files."""

    def open(self, path: str) -> File:
        raise FileNotFoundError(errno.ENOENT, "no files are stored here", path)

    def create(self, path: str, *, lazily: bool = False) -> File:
        return _NoFile(path)

    def list(self, path: str) -> list[str]:
        return []

    def exists(self, path: str) -> bool:
        return False

    def rename(self, source: str, target: str) -> None:
        raise FileNotFoundError(errno.ENOENT, "no files are stored here", source)

    def remove(self, path: str) -> None:
        """Do nothing: there is nothing to remove."""

    def remove_tree(self, path: str) -> None:
        """Do nothing: there is nothing to remove."""

    def sync_folder(self, path: str) -> None:
        """Do nothing: there is nothing to make durable."""

    def read_whole(self, path: str) -> bytes:
        raise FileNotFoundError(errno.ENOENT, "no files are stored here", path)

    def replace_whole(self, path: str, data: bytes, *, is_durable: bool = True) -> None:
        raise OSError(errno.EROFS, "no files can be stored here", path)

    def free_bytes(self) -> int:
        return 0

    def reserve_bytes(self) -> int:
        return 0

    def set_reserve(self, size: int) -> None:
        """Do nothing: there is nothing to reserve."""

    def total_bytes(self) -> int:
        return 0


class _NoFile:
    """A file that is empty and stays so."""

    def __init__(self, path: str) -> None:
        self.path = path

    def append(self, data: Buffer) -> None:
        raise OSError(errno.EROFS, "no files can be stored here", self.path)

    def read(self, position: int, length: int) -> bytes:
        return b""

    def read_at_once(self, position: int, length: int) -> bytes | None:
        return None if length else b""

    def prefetch(self, position: int, length: int) -> None:
        """Do nothing: there is nothing to load."""

    def overwrite(self, position: int, data: bytes) -> None:
        raise OSError(errno.EROFS, "no files can be stored here", self.path)

    def write_durably(self, position: int, data: Buffer) -> None:
        raise OSError(errno.EROFS, "no files can be stored here", self.path)

    def truncate(self, size: int) -> None:
        """Do nothing: it is already empty."""

    def size(self) -> int:
        return 0

    def sync(self) -> None:
        """Do nothing: there is nothing to make durable."""

    def close(self) -> None:
        """Do nothing: no descriptor was opened."""

    def fileno(self) -> int:
        raise OSError(errno.ENOENT, "no files are stored here", self.path)

    def pin(self) -> None:
        """Do nothing: no descriptor was opened."""

    def unpin(self) -> None:
        """Do nothing: no descriptor was opened."""

    def retire(self) -> None:
        """Do nothing: there are no readers."""
