"""What a log needs from a disk, so that a real and a simulated one are interchangeable.

Paths are relative to the data folder and use forward slashes. Errors are `OSError`, as the
operating system raises them.
"""

from __future__ import annotations

import errno
from typing import Protocol

from goqueue.model.compression import Buffer

# A bad sector, or a damaged file system.
_UNREADABLE = frozenset({errno.EIO, getattr(errno, "EUCLEAN", errno.EIO)})


def is_unreadable(error: OSError) -> bool:
    """Whether the disk cannot read what it has stored."""
    return error.errno in _UNREADABLE


class File(Protocol):
    """An open file that grows only at its end."""

    path: str

    def append(self, data: Buffer) -> None:
        """Write all of `data` at the end, or raise with an unknown part of it written."""

    def read(self, position: int, length: int) -> bytes:
        """Read up to `length` bytes; fewer only at the end of the file."""

    def read_at_once(self, position: int, length: int) -> bytes | None:
        """Read `length` bytes from the page cache; None if some are not there or do not exist."""

    def prefetch(self, position: int, length: int) -> None:
        """Start to load bytes into memory, without waiting."""

    def overwrite(self, position: int, data: bytes) -> None:
        """Replace bytes inside the file; for marks in headers, never for records."""

    def write_durably(self, position: int, data: Buffer) -> None:
        """Replace and sync bytes inside the file, which must have been synced. May block."""

    def truncate(self, size: int) -> None: ...

    def size(self) -> int: ...

    def sync(self) -> None:
        """Make the contents durable, and the file's name too if it is new. May block."""

    def close(self) -> None:
        """Close the descriptor; the next use opens the file again."""

    def fileno(self) -> int:
        """Return the descriptor, for sending the file to a socket."""

    def pin(self) -> None:
        """Keep the descriptor open until `unpin`: for sockets, and for other threads."""

    def unpin(self) -> None: ...

    def retire(self) -> None:
        """Keep the content readable for holders of this file; its name is about to go."""


class Disk(Protocol):
    """A folder on some disk."""

    def open(self, path: str) -> File:
        """Return an existing file; it is opened at its first use."""

    def create(self, path: str, *, lazily: bool = False) -> File:
        """Create an empty file and its folder if missing; `lazily`, at its first use."""

    def list(self, path: str) -> list[str]:
        """List the names in a folder, sorted; none if there is no such folder."""

    def exists(self, path: str) -> bool: ...

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def sync_folder(self, path: str) -> None:
        """Make the names in a folder durable. May block."""

    def read_whole(self, path: str) -> bytes:
        """Read a small file; raise `FileNotFoundError` if there is none."""

    def replace_whole(self, path: str, data: bytes, *, is_durable: bool = True) -> None:
        """Replace a small file atomically: a crash leaves the old contents or the new.

        Without `is_durable`, that holds for a crash of the process, not of the machine.
        """

    def free_bytes(self) -> int: ...

    def reserve_bytes(self) -> int:
        """Return how many bytes are reserved for a start on a full disk."""

    def set_reserve(self, size: int) -> None:
        """Reserve so many bytes instead, which are not free meanwhile. May block."""

    def total_bytes(self) -> int: ...
