"""Replacing segments so that a crash at any moment leaves the old set or the new one.

The new files are written and synced under a `.cleaned` name. A small `swap` file then says which
segments go and which come; from the moment it is durable the swap will happen, now or at the
next start, and every step of it can be done twice.
"""

from __future__ import annotations

import msgspec

from goqueue.storage.disk import Disk
from goqueue.storage.framed import read_framed, write_framed
from goqueue.storage.segment import INDEX_SUFFIXES, LOG_SUFFIX, segment_name

CLEANED_SUFFIX = ".cleaned"
_SWAP_FILE = "swap"
_MAGIC = b"GQSW"
_VERSION = 1


class _Swap(msgspec.Struct, frozen=True, array_like=True):
    removed: list[int]
    added: list[int]


def begin_swap(disk: Disk, folder: str, *, removed: list[int], added: list[int]) -> None:
    """Decide that the synced `.cleaned` files of `added` take the place of `removed`. Blocks."""
    body = _Swap(removed, added)
    write_framed(disk, f"{folder}/{_SWAP_FILE}", magic=_MAGIC, version=_VERSION, body=body)


def finish_swap(disk: Disk, folder: str) -> None:
    """Carry out a swap that was decided, if there is one. Blocks."""
    path = f"{folder}/{_SWAP_FILE}"
    if not disk.exists(path):
        return
    swap = read_framed(disk, path, magic=_MAGIC, version=_VERSION, body=_Swap)
    if swap is not None:
        for base in swap.removed:
            suffixes = INDEX_SUFFIXES if base in swap.added else (*INDEX_SUFFIXES, LOG_SUFFIX)
            _remove_files(disk, f"{folder}/{segment_name(base)}", suffixes)
        for base in swap.added:
            _take_over(disk, f"{folder}/{segment_name(base)}")
        disk.sync_folder(folder)
    disk.remove(path)
    # A later segment may have the name of one that was removed, so this must not happen again.
    disk.sync_folder(folder)


def drop_leftovers(disk: Disk, folder: str) -> None:
    """Remove what rewriting left behind when no swap was decided."""
    for name in disk.list(folder):
        if name.endswith(CLEANED_SUFFIX):
            disk.remove(f"{folder}/{name}")


def _remove_files(disk: Disk, stem: str, suffixes: tuple[str, ...]) -> None:
    for suffix in suffixes:
        if disk.exists(stem + suffix):
            disk.remove(stem + suffix)


def _take_over(disk: Disk, stem: str) -> None:
    # The log comes last: as long as its cleaned file is there, so are those of its indexes.
    for suffix in (*INDEX_SUFFIXES, LOG_SUFFIX):
        if disk.exists(stem + suffix + CLEANED_SUFFIX):
            disk.rename(stem + suffix + CLEANED_SUFFIX, stem + suffix)
