"""Atomic replacement of segments: a crash leaves the old set or the new one.

The new files are written and synced under a `.cleaned` name. A small `swap` file then lists the
segments to remove and to add; once it is durable the swap will happen, now or at the next start,
and every step of it is idempotent.
"""

from __future__ import annotations

import msgspec

from goqueue.storage.disk import Disk
from goqueue.storage.framed import read_framed, write_framed
from goqueue.storage.index import INDEX_SUFFIXES
from goqueue.storage.segment import LOG_SUFFIX, segment_name

CLEANED_SUFFIX = ".cleaned"
_SWAP_FILE = "swap"
_MAGIC = b"GQSW"
_VERSION = 1


class _Swap(msgspec.Struct, frozen=True, array_like=True):
    removed: list[int]
    added: list[int]


def begin_swap(disk: Disk, folder: str, *, removed: list[int], added: list[int]) -> None:
    """Commit to replace `removed` by the synced `.cleaned` files of `added`. Blocks."""
    body = _Swap(removed, added)
    write_framed(disk, f"{folder}/{_SWAP_FILE}", magic=_MAGIC, version=_VERSION, body=body)


def finish_swap(disk: Disk, folder: str) -> None:
    """Perform a committed swap, if there is one. Blocks."""
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
    # A later segment may reuse the name of a removed one, so the swap must not be repeated.
    disk.sync_folder(folder)


def drop_leftovers(disk: Disk, folder: str) -> None:
    """Remove rewritten files without a committed swap."""
    for name in disk.list(folder):
        if name.endswith(CLEANED_SUFFIX):
            disk.remove(f"{folder}/{name}")


def _remove_files(disk: Disk, stem: str, suffixes: tuple[str, ...]) -> None:
    for suffix in suffixes:
        if disk.exists(stem + suffix):
            disk.remove(stem + suffix)


def _take_over(disk: Disk, stem: str) -> None:
    # The log comes last: as long as its cleaned file exists, so do those of its indexes.
    for suffix in (*INDEX_SUFFIXES, LOG_SUFFIX):
        if disk.exists(stem + suffix + CLEANED_SUFFIX):
            disk.rename(stem + suffix + CLEANED_SUFFIX, stem + suffix)
